//! Whether a reply is what a wire transcript expects.

use super::layout::{Kind, Reply, fields};
use super::value::{Scope, Value, member_kind};
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value as Json};
use std::collections::BTreeSet;

/// `Ok(None)`: it fits. `Ok(Some(why))`: it does not. `Err`: the transcript is wrong.
pub type Verdict = Result<Option<String>>;

impl Scope {
    /// Compares a reply with the message `want`, which must list every field.
    ///
    /// # Errors
    /// If the transcript is wrong.
    pub fn match_reply(&mut self, want: &Json, got: &Reply) -> Verdict {
        let want = want.as_object().context("an expectation is an object")?;
        let command = want.get("type").and_then(Json::as_str).context("an expectation has a type")?;
        if command != got.command {
            return Ok(Some(format!("reply is {}, expected {command}", got.command)));
        }
        let layout = fields(command)?;
        let listed: BTreeSet<&str> = want.keys().map(String::as_str).filter(|name| *name != "type").collect();
        let known: BTreeSet<&str> = layout.iter().map(|field| field.name).collect();
        ensure!(listed == known, "an expectation lists every field of {command}, this one {listed:?}");
        for field in layout {
            if let Some(why) = self.match_value(field.kind, &want[field.name], got.field(field.name)?)? {
                return Ok(Some(format!("{}: {why}", field.name)));
            }
        }
        Ok(None)
    }

    /// Compares a field's value with a matcher.
    ///
    /// # Errors
    /// If the transcript is wrong.
    pub fn match_value(&mut self, kind: Kind, want: &Json, got: &Value) -> Verdict {
        if want == "*" {
            return Ok(None);
        }
        if let Some(object) = want.as_object() {
            if let Some(options) = object.get("any_of").and_then(Json::as_array) {
                for option in options {
                    if self.match_value(kind, option, got)?.is_none() {
                        return Ok(None);
                    }
                }
                return Ok(Some(format!("{got:?} is none of the allowed values")));
            }
            if object.keys().any(|key| is_operator(key)) {
                return self.match_operators(object, got);
            }
            if let Some(items) = object.get("unordered") {
                return self.match_unordered(kind, items, got);
            }
        }
        if let (Value::List(got), Some(want)) = (got, want.as_array()) {
            return self.match_list(kind, want, got);
        }
        let value = match (kind, self.value(kind, want)?) {
            (Kind::Uuid, Value::Text(text)) => Value::Text(text.to_lowercase()),
            (_, value) => value,
        };
        Ok((value != *got).then(|| format!("{got:?}, expected {value:?}")))
    }

    fn match_operators(&mut self, operators: &Map<String, Json>, got: &Value) -> Verdict {
        for (operator, operand) in operators {
            let holds = match operator.as_str() {
                "capture" => {
                    let name = operand.as_str().context("capture names a variable")?;
                    self.variables.insert(name.to_owned(), got.clone());
                    true
                }
                "minLen" => i64::try_from(got.bytes()?.len())? >= self.int(operand)?,
                "maxLen" => i64::try_from(got.bytes()?.len())? <= self.int(operand)?,
                ">" => got.int()? > self.int(operand)?,
                ">=" => got.int()? >= self.int(operand)?,
                "<" => got.int()? < self.int(operand)?,
                "<=" => got.int()? <= self.int(operand)?,
                other => anyhow::bail!("no operator {other}"),
            };
            if !holds {
                return Ok(Some(format!("{got:?} is not {operator} {operand}")));
            }
        }
        Ok(None)
    }

    fn match_list(&mut self, kind: Kind, want: &[Json], got: &[Value]) -> Verdict {
        if want.len() != got.len() {
            return Ok(Some(format!("{} items, expected {}", got.len(), want.len())));
        }
        for (at, (want, got)) in want.iter().zip(got).enumerate() {
            if let Some(why) = self.match_item(kind, want, got)? {
                return Ok(Some(format!("[{at}]: {why}")));
            }
        }
        Ok(None)
    }

    fn match_unordered(&mut self, kind: Kind, want: &Json, got: &Value) -> Verdict {
        let want = want.as_array().context("unordered is a list")?;
        let mut left: Vec<&Value> = got.list()?.iter().collect();
        if want.len() != left.len() {
            return Ok(Some(format!("{} items, expected {}", left.len(), want.len())));
        }
        for want in want {
            let mut hit = None;
            for (at, got) in left.iter().enumerate() {
                if self.match_item(kind, want, got)?.is_none() {
                    hit = Some(at);
                    break;
                }
            }
            let Some(hit) = hit else { return Ok(Some(format!("no item equals {want}"))) };
            left.swap_remove(hit);
        }
        Ok(None)
    }

    fn match_item(&mut self, kind: Kind, want: &Json, got: &Value) -> Verdict {
        if want == "*" {
            return Ok(None);
        }
        let Value::Item(got) = got else {
            return self.match_value(if kind == Kind::Versions { Kind::I64 } else { kind }, want, got);
        };
        let want = want.as_object().context("an item is an object")?;
        let listed: BTreeSet<&str> = want.keys().map(String::as_str).collect();
        ensure!(listed == got.keys().copied().collect(), "an item lists all members, this one {listed:?}");
        for (name, want) in want {
            if let Some(why) = self.match_value(member_kind(name)?.1, want, &got[name.as_str()])? {
                return Ok(Some(format!("{name}: {why}")));
            }
        }
        Ok(None)
    }
}

fn is_operator(key: &str) -> bool {
    matches!(key, "capture" | ">" | ">=" | "<" | "<=" | "minLen" | "maxLen")
}
