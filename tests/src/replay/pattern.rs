//! Patterns of the controller transcripts: what stands for what, and whether a reply fits.

use super::Failure;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// Variables of a scenario by name.
pub type Variables = BTreeMap<String, Json>;

/// Replaces variables, segment ids, sums and repetitions everywhere in `json`, also in keys.
///
/// # Errors
/// If a variable is not set.
pub fn substitute(json: &Json, variables: &Variables) -> Result<Json> {
    Ok(match json {
        Json::Object(members) if members.len() == 1 && members.contains_key("+") => {
            let terms = list(&members["+"], variables)?;
            let terms: Option<Vec<i64>> = terms.iter().map(integer).collect();
            json!(terms.context("a sum has numbers")?.iter().sum::<i64>())
        }
        Json::Object(members) if members.len() == 1 && members.contains_key("join") => {
            Json::String(list(&members["join"], variables)?.iter().map(plain).collect())
        }
        Json::Object(members) if members.len() == 1 && members.contains_key("rep") => {
            let count = members["rep"][1].as_u64().context("rep has a count")?;
            Json::String(plain(&members["rep"][0]).repeat(usize::try_from(count)?))
        }
        Json::Object(members) => {
            let mut out = Map::new();
            for (key, value) in members {
                let key = plain(&substitute_text(key, variables)?);
                out.insert(key, substitute(value, variables)?);
            }
            Json::Object(out)
        }
        Json::Array(_) => Json::Array(list(json, variables)?),
        Json::String(text) => substitute_text(text, variables)?,
        other => other.clone(),
    })
}

fn list(json: &Json, variables: &Variables) -> Result<Vec<Json>> {
    json.as_array().context("a list")?.iter().map(|item| substitute(item, variables)).collect()
}

fn substitute_text(text: &str, variables: &Variables) -> Result<Json> {
    if let Some(name) = text.strip_prefix('$')
        && !name.is_empty()
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    {
        return Ok(variable(name, variables)?.clone());
    }
    if let Some(id) = segment_id(text) {
        return Ok(Json::String(id.to_string()));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, tail) = after.split_once('}').context("${ without }")?;
        out.push_str(before);
        out.push_str(&rendered(name, variables)?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(Json::String(out))
}

fn variable<'a>(name: &str, variables: &'a Variables) -> Result<&'a Json> {
    variables.get(name).with_context(|| format!("variable {name} is not set"))
}

/// `x`, `hex:x` (16 digits), `number:x` and `epoch:x` (halves of a segment id).
fn rendered(name: &str, variables: &Variables) -> Result<String> {
    let (function, name) = name.rsplit_once(':').unwrap_or(("", name));
    let value = variable(name, variables)?;
    let number = || integer(value).with_context(|| format!("{value} is not a number"));
    Ok(match function {
        "" => plain(value),
        "hex" => format!("{:016x}", number()?),
        "number" => (number()? & 0xffff_ffff).to_string(),
        "epoch" => (number()? >> 32).to_string(),
        other => bail!("no function {other}"),
    })
}

/// `@E.N` is the segment with number N created in epoch E.
fn segment_id(text: &str) -> Option<i64> {
    let (epoch, number) = text.strip_prefix('@')?.split_once('.')?;
    Some((epoch.parse::<i64>().ok()? << 32) + number.parse::<i64>().ok()?)
}

/// A text without its quotes, anything else as JSON.
pub fn plain(json: &Json) -> String {
    json.as_str().map_or_else(|| json.to_string(), str::to_owned)
}

/// A number, or a text that is one.
pub fn integer(json: &Json) -> Option<i64> {
    json.as_i64().or_else(|| json.as_str()?.parse().ok())
}

#[allow(clippy::cast_precision_loss, reason = "only compared with numbers that are fractions themselves")]
fn number(json: &Json) -> Option<f64> {
    json.as_f64().or_else(|| integer(json).map(|n| n as f64))
}

/// Whether two values are equal; numbers and numeric texts are the same.
pub fn same(a: &Json, b: &Json) -> bool {
    if let (Some(a), Some(b)) = (integer(a), integer(b)) {
        return a == b;
    }
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b).is_eq() || (a - b).abs() <= 0.0,
        _ => a == b,
    }
}

const OPERATORS: &[&str] = &[
    ">",
    "<",
    ">=",
    "<=",
    "ne",
    "in",
    "re",
    "unordered",
    "contains",
    "absent",
    "len",
    "epoch",
    "lacks",
    "each",
    "all",
];

/// Tells what differs between `got` and the pattern `want`; `None` stands for a member that is missing.
///
/// # Errors
/// If the pattern itself is wrong.
pub fn differs(want: &Json, got: Option<&Json>, path: &str) -> Result<Option<String>> {
    if let Some(members) = want.as_object()
        && !members.is_empty()
        && members.keys().all(|key| OPERATORS.contains(&key.as_str()))
    {
        return operators(members, got, path);
    }
    let Some(got) = got else { return Ok(Some(format!("{path}: missing, expected {}", brief(want)))) };
    if want == "*" {
        return Ok(None);
    }
    let different = || Some(format!("{path}: expected {}, got {}", brief(want), brief(got)));
    match (want, got) {
        (Json::Object(want), Json::Object(got)) => {
            for (name, want) in want {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if let Some(why) = differs(want, got.get(name), &path)? {
                    return Ok(Some(why));
                }
            }
            Ok(None)
        }
        (Json::Array(want), Json::Array(got)) if want.len() == got.len() => {
            for (at, (want, got)) in want.iter().zip(got).enumerate() {
                if let Some(why) = differs(want, Some(got), &format!("{path}[{at}]"))? {
                    return Ok(Some(why));
                }
            }
            Ok(None)
        }
        (Json::Object(_) | Json::Array(_), _) => Ok(different()),
        _ => Ok(if same(want, got) { None } else { different() }),
    }
}

fn operators(members: &Map<String, Json>, got: Option<&Json>, path: &str) -> Result<Option<String>> {
    for (operator, want) in members {
        if operator == "absent" {
            if got.is_none() != want.as_bool().context("absent is a bool")? {
                return Ok(Some(format!("{path}: absent should be {want}")));
            }
            continue;
        }
        let Some(got) = got else { return Ok(Some(format!("{path}: missing, expected {operator} {want}"))) };
        let why = match operator.as_str() {
            "each" => first(got, |at, item| differs(want, Some(item), &format!("{path}[{at}]")))?,
            "all" => first(want, |_, pattern| differs(pattern, Some(got), path))?,
            "contains" | "unordered" | "lacks" => lists(operator, want, got, path)?,
            _ if holds(operator, want, got)? => None,
            _ => Some(format!("{path}: {} does not satisfy {operator} {}", brief(got), brief(want))),
        };
        if why.is_some() {
            return Ok(why);
        }
    }
    Ok(None)
}

fn first(
    list: &Json,
    mut each: impl FnMut(usize, &Json) -> Result<Option<String>>,
) -> Result<Option<String>> {
    for (at, item) in list.as_array().into_iter().flatten().enumerate() {
        if let Some(why) = each(at, item)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

fn holds(operator: &str, want: &Json, got: &Json) -> Result<bool> {
    let compared = || -> Option<std::cmp::Ordering> {
        match (integer(got), integer(want)) {
            (Some(got), Some(want)) => Some(got.cmp(&want)),
            _ => number(got)?.partial_cmp(&number(want)?),
        }
    };
    Ok(match operator {
        ">" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "<" => compared().is_some_and(std::cmp::Ordering::is_lt),
        ">=" => compared().is_some_and(std::cmp::Ordering::is_ge),
        "<=" => compared().is_some_and(std::cmp::Ordering::is_le),
        "ne" => !same(want, got),
        "in" => {
            for option in want.as_array().context("in has a list")? {
                if differs(option, Some(got), "")?.is_none() {
                    return Ok(true);
                }
            }
            false
        }
        "re" => {
            let pattern = regex::Regex::new(want.as_str().context("re has a text")?)?;
            got.as_str().is_some_and(|text| pattern.is_match(text))
        }
        "len" => {
            let length = match got {
                Json::Array(list) => list.len(),
                Json::Object(members) => members.len(),
                Json::String(text) => text.chars().count(),
                _ => return Ok(false),
            };
            want.as_u64() == u64::try_from(length).ok()
        }
        "epoch" => integer(got).map(|id| id >> 32) == integer(want),
        other => bail!("no operator {other}"),
    })
}

fn lists(operator: &str, want: &Json, got: &Json, path: &str) -> Result<Option<String>> {
    let mut left: Vec<&Json> =
        got.as_array().with_context(|| format!("{path} is not a list"))?.iter().collect();
    for want in want.as_array().with_context(|| format!("{operator} has a list"))? {
        let mut hit = None;
        for (at, got) in left.iter().enumerate() {
            if differs(want, Some(got), "")?.is_none() {
                hit = Some(at);
                break;
            }
        }
        match (operator, hit) {
            ("lacks", Some(_)) => return Ok(Some(format!("{path}: must not contain {}", brief(want)))),
            ("lacks", None) => {}
            (_, Some(hit)) => drop(left.remove(hit)),
            (_, None) => return Ok(Some(format!("{path}: no entry fits {} in {}", brief(want), brief(got)))),
        }
    }
    let surplus = operator == "unordered" && !left.is_empty();
    Ok(surplus.then(|| format!("{path}: surplus entries {left:?}")))
}

/// The value at a path of member names and indices.
///
/// # Errors
/// If there is none.
pub fn pick<'a>(reply: &'a Json, path: &str) -> Result<&'a Json> {
    let mut at = reply;
    for part in path.split('.') {
        let next = match at {
            Json::Array(list) => part.parse::<usize>().ok().and_then(|index| list.get(index)),
            _ => at.get(part),
        };
        at = next.ok_or_else(|| Failure(format!("no {path} in {}", brief(reply))))?;
    }
    Ok(at)
}

/// JSON, cut after some hundred characters.
pub fn brief(json: &Json) -> String {
    let mut text = json.to_string();
    if let Some((cut, _)) = text.char_indices().nth(400) {
        text.truncate(cut);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_numeric_texts_are_the_same() {
        assert!(same(&json!("5"), &json!(5)));
        assert!(same(&json!(1.0), &json!(1)));
        assert!(!same(&json!(true), &json!(1)));
        assert!(!same(&json!("a"), &json!(1)));
    }

    #[test]
    fn segment_ids_and_variables_are_replaced() {
        let variables = Variables::from([("id".to_owned(), json!("4294967297"))]);
        let got = substitute(&json!({"@1.1": "$id", "x": "${epoch:id}/${number:id}/${hex:id}"}), &variables);
        let want = json!({"4294967297": "4294967297", "x": "1/1/0000000100000001"});
        assert_eq!(got.unwrap(), want);
    }

    #[test]
    fn unordered_refuses_surplus_entries() {
        let want = json!({"unordered": [1, 2]});
        assert!(differs(&want, Some(&json!([2, 1])), "x").unwrap().is_none());
        assert!(differs(&want, Some(&json!([2, 1, 3])), "x").unwrap().is_some());
    }
}
