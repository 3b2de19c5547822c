//! Values of the transcripts: variables, texts, byte strings and sums, turned into what a field holds.

use super::layout::{Kind, NO_VERSION, encode};
use anyhow::{Context, Result, bail, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

/// Members of a nested value.
pub type Item = BTreeMap<&'static str, Value>;

/// What a field holds.
#[derive(Clone, PartialEq)]
#[allow(missing_docs, reason = "the kinds of values")]
pub enum Value {
    Int(i64),
    Bool(bool),
    Text(String),
    Bytes(Bytes),
    List(Vec<Value>),
    Item(Item),
}

impl Value {
    /// The number.
    ///
    /// # Errors
    /// If it is something else.
    pub fn int(&self) -> Result<i64> {
        let Self::Int(n) = self else { bail!("{self:?} is not a number") };
        Ok(*n)
    }
    /// The truth value.
    ///
    /// # Errors
    /// If it is something else.
    pub fn bool(&self) -> Result<bool> {
        let Self::Bool(b) = self else { bail!("{self:?} is not a bool") };
        Ok(*b)
    }
    /// The text.
    ///
    /// # Errors
    /// If it is something else.
    pub fn text(&self) -> Result<&str> {
        let Self::Text(text) = self else { bail!("{self:?} is not a text") };
        Ok(text)
    }
    /// The byte string.
    ///
    /// # Errors
    /// If it is something else.
    pub fn bytes(&self) -> Result<&Bytes> {
        let Self::Bytes(bytes) = self else { bail!("{self:?} is not a byte string") };
        Ok(bytes)
    }
    /// The list.
    ///
    /// # Errors
    /// If it is something else.
    pub fn list(&self) -> Result<&[Value]> {
        let Self::List(list) = self else { bail!("{self:?} is not a list") };
        Ok(list)
    }
    /// A member of a nested value.
    ///
    /// # Errors
    /// If it is not nested, or has no such member.
    pub fn member(&self, name: &str) -> Result<&Value> {
        let Self::Item(item) = self else { bail!("{self:?} has no members") };
        item.get(name).with_context(|| format!("member {name} is missing"))
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Text(text) if text.len() > 160 => write!(f, "a text of {} bytes", text.len()),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => write!(f, "{}", hex(bytes)),
            Self::List(list) if list.len() > 20 => {
                write!(f, "{:?} and more, {} in all", &list[..20], list.len())
            }
            Self::List(list) => f.debug_list().entries(list).finish(),
            Self::Item(item) => f.debug_map().entries(item).finish(),
        }
    }
}

/// Bytes as hexadecimal digits, the first ones only if there are many.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::new();
    for byte in bytes.iter().take(64) {
        // Writing to a text cannot fail.
        let _always = write!(digits, "{byte:02x}");
    }
    if bytes.len() > 64 { format!("{digits}… ({} bytes)", bytes.len()) } else { digits }
}

/// Reads hexadecimal digits.
///
/// # Errors
/// If there is anything else, or an odd number of them.
pub fn unhex(digits: &str) -> Result<Bytes> {
    ensure!(digits.len().is_multiple_of(2) && digits.is_ascii(), "{digits:?} is not hexadecimal");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).with_context(|| format!("{digits:?}")))
        .collect()
}

/// The variables of one scenario.
#[derive(Clone, Debug)]
pub struct Scope {
    /// What `${run}` stands for.
    pub run: String,
    /// Variables by name.
    pub variables: BTreeMap<String, Value>,
}

impl Scope {
    /// A scope without variables.
    pub fn new(run: String) -> Self {
        Self { run, variables: BTreeMap::new() }
    }

    fn variable(&self, name: &str) -> Result<&Value> {
        self.variables.get(name).with_context(|| format!("variable {name} is not set"))
    }

    /// The variable that `json` refers to as a whole, if it does.
    ///
    /// # Errors
    /// If it is not set.
    pub fn reference(&self, json: &Json) -> Result<Option<&Value>> {
        match json.as_str().and_then(|text| text.strip_prefix('$')) {
            Some(name) if !name.starts_with('{') => self.variable(name).map(Some),
            _ => Ok(None),
        }
    }

    /// Replaces each `${name}` in `text`.
    ///
    /// # Errors
    /// If a variable is not set or cannot stand in a text.
    pub fn text(&self, text: &str) -> Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, tail) = after.split_once('}').context("${ without }")?;
            out.push_str(before);
            match name {
                "run" => out.push_str(&self.run),
                _ => match self.variable(name)? {
                    Value::Int(n) => out.push_str(&n.to_string()),
                    Value::Text(text) => out.push_str(text),
                    other => bail!("variable {name} is {other:?}, not a text"),
                },
            }
            rest = tail;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// A number, a variable, a sum or a product.
    ///
    /// # Errors
    /// If `json` is none of them.
    pub fn int(&self, json: &Json) -> Result<i64> {
        if let Some(value) = self.reference(json)? {
            return value.int();
        }
        if let Some(n) = json.as_i64() {
            return Ok(n);
        }
        let terms = |list: &Json| -> Result<Vec<i64>> {
            list.as_array().context("terms are a list")?.iter().map(|term| self.int(term)).collect()
        };
        if let Some(list) = json.get("+") {
            return Ok(terms(list)?.iter().sum());
        }
        if let Some(list) = json.get("*") {
            return Ok(terms(list)?.iter().product());
        }
        bail!("{json} is not a number")
    }

    /// A byte string. Takes `&mut self` since `repeat` sets its variable.
    ///
    /// # Errors
    /// If `json` is not one.
    pub fn bytes(&mut self, json: &Json) -> Result<Bytes> {
        if let Some(value) = self.reference(json)? {
            return value.bytes().cloned();
        }
        if let Some(digits) = json.as_str() {
            return unhex(digits);
        }
        let object = json.as_object().with_context(|| format!("{json} is not a byte string"))?;
        let mut out = BytesMut::new();
        if let Some(text) = object.get("text") {
            out.extend_from_slice(self.text(text.as_str().context("text")?)?.as_bytes());
        } else if let Some(payload) = object.get("event") {
            let payload = self.bytes(payload)?;
            out.put_i32(0);
            out.put_i32(i32::try_from(payload.len())?);
            out.extend_from_slice(&payload);
        } else if let Some(fill) = object.get("fill") {
            let count = object.get("len").and_then(Json::as_u64).context("len of fill")?;
            out.extend_from_slice(&unhex(fill.as_str().context("fill")?)?.repeat(usize::try_from(count)?));
        } else if let Some(n) = object.get("i32") {
            out.put_i32(i32::try_from(self.int(n)?)?);
        } else if let Some(n) = object.get("i64") {
            out.put_i64(self.int(n)?);
        } else if let Some(parts) = object.get("cat") {
            for part in parts.as_array().context("cat is a list")? {
                out.extend_from_slice(&self.bytes(part)?);
            }
        } else if let (Some(repeat), Some(of)) = (object.get("repeat"), object.get("of")) {
            for (name, n) in self.repeat(repeat)? {
                self.variables.insert(name, Value::Int(n));
                out.extend_from_slice(&self.bytes(of)?);
            }
        } else {
            bail!("{json} is not a byte string");
        }
        Ok(out.freeze())
    }

    /// The variable and each of its values in a `repeat`.
    ///
    /// # Errors
    /// If its members are missing.
    pub fn repeat(&self, json: &Json) -> Result<Vec<(String, i64)>> {
        let part = |name| json.get(name).with_context(|| format!("repeat.{name}"));
        let name = part("var")?.as_str().context("repeat.var")?.to_owned();
        Ok((self.int(part("from")?)?..=self.int(part("to")?)?).map(|n| (name.clone(), n)).collect())
    }

    /// The value of a field of the given kind.
    ///
    /// # Errors
    /// If `json` cannot be one.
    pub fn value(&mut self, kind: Kind, json: &Json) -> Result<Value> {
        Ok(match kind {
            Kind::Blob | Kind::Rest | Kind::Event => Value::Bytes(self.bytes(json)?),
            Kind::I8 | Kind::I32 | Kind::I64 => Value::Int(self.int(json)?),
            Kind::Bool => Value::Bool(json.as_bool().with_context(|| format!("{json} is not a bool"))?),
            Kind::Text | Kind::Uuid => match self.reference(json)? {
                Some(value) => value.clone(),
                None => Value::Text(self.text(json.as_str().with_context(|| format!("{json} is no text"))?)?),
            },
            Kind::Texts => self.list(json, |scope, item| scope.value(Kind::Text, item))?,
            Kind::Versions => self.list(json, |scope, item| Ok(Value::Int(scope.int(item)?)))?,
            Kind::Keys | Kind::Entries | Kind::Attributes | Kind::Merged | Kind::Chunks => {
                self.list(json, Self::item)?
            }
        })
    }

    fn list(&mut self, json: &Json, each: impl Fn(&mut Self, &Json) -> Result<Value>) -> Result<Value> {
        if let Some(value) = self.reference(json)? {
            return Ok(value.clone());
        }
        let items = json.as_array().with_context(|| format!("{json} is not a list"))?;
        Ok(Value::List(items.iter().map(|item| each(self, item)).collect::<Result<_>>()?))
    }

    fn item(&mut self, json: &Json) -> Result<Value> {
        let members = json.as_object().context("an item is an object")?;
        let mut item = Item::new();
        for (name, member) in members {
            let (name, kind) = member_kind(name)?;
            item.insert(name, self.value(kind, member)?);
        }
        if item.contains_key("key") {
            item.entry("version").or_insert(Value::Int(NO_VERSION));
        }
        Ok(Value::Item(item))
    }

    /// The frame that the message `json` describes.
    ///
    /// # Errors
    /// If it is not a message.
    pub fn frame(&mut self, json: &Map<String, Json>) -> Result<Bytes> {
        let command = json.get("type").and_then(Json::as_str).context("a message has a type")?;
        let layout = super::layout::fields(command)?;
        let mut fields = BTreeMap::new();
        for (name, value) in json.iter().filter(|(name, _)| !matches!(name.as_str(), "type" | "extra")) {
            let field = layout.iter().find(|field| field.name == name);
            let kind = field.with_context(|| format!("{command} has no field {name}"))?.kind;
            fields.insert(name.clone(), self.value(kind, value)?);
        }
        let extra = json.get("extra").map(|extra| self.bytes(extra)).transpose()?.unwrap_or_default();
        encode(command, &fields, &extra)
    }
}

/// The kind of a nested value's member, and its name with a static life.
///
/// # Errors
/// If no nested value has such a member.
pub fn member_kind(name: &str) -> Result<(&'static str, Kind)> {
    Ok(match name {
        "key" => ("key", Kind::Blob),
        "value" => ("value", Kind::Blob),
        "version" => ("version", Kind::I64),
        "source" => ("source", Kind::Text),
        "newTargetWriteOffset" => ("newTargetWriteOffset", Kind::I64),
        "attributeId" => ("attributeId", Kind::Text),
        "updateType" => ("updateType", Kind::I8),
        "newValue" => ("newValue", Kind::I64),
        "oldValue" => ("oldValue", Kind::I64),
        "lengthInMetadata" => ("lengthInMetadata", Kind::I64),
        "lengthInStorage" => ("lengthInStorage", Kind::I64),
        "startOffset" => ("startOffset", Kind::I64),
        "chunkName" => ("chunkName", Kind::Text),
        "existsInStorage" => ("existsInStorage", Kind::Bool),
        _ => bail!("no nested value has a member {name}"),
    })
}
