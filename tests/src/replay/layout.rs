//! The fields of every command under the names that the transcripts use.
//!
//! A second statement of the layouts, on purpose: the transcripts send frames that end early or carry too much, which
//! a typed encoder cannot, and a reply is read by this table and by [`Command`] and must agree in both.

use super::value::{Item, Value};
use anyhow::{Context, Result, bail, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use dhara_wire::codec::{Blob, Reader, Rest, Uuid, Wire};
use dhara_wire::command::{Command, TABLE, TableEntry, TableKey};
use std::collections::BTreeMap;

/// How a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the transcripts' types")]
pub enum Kind {
    I8,
    I32,
    I64,
    Bool,
    Text,
    Uuid,
    Blob,
    Rest,
    Event,
    Texts,
    Versions,
    Keys,
    Entries,
    Attributes,
    Merged,
    Chunks,
}

/// One field of a command.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in the transcripts.
    pub name: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// Whether a request may end before it.
    pub optional: bool,
}

/// Fields by command, in wire order; `?` marks optional tails.
const LAYOUTS: &[(&str, &str)] = &[
    ("Hello", "highVersion:i32 lowVersion:i32"),
    ("KeepAlive", ""),
    ("Padding", "data:rest"),
    ("PartialEvent", "data:rest"),
    ("Event", "data:rest"),
    ("SetupAppend", "requestId:i64 writerId:uuid segment:text delegationToken:text"),
    ("AppendSetup", "requestId:i64 segment:text writerId:uuid lastEventNumber:i64"),
    ("AppendBlock", "writerId:uuid data:rest"),
    (
        "AppendBlockEnd",
        "writerId:uuid sizeOfWholeEvents:i32 data:blob numEvents:i32 lastEventNumber:i64 requestId:i64?",
    ),
    ("ConditionalAppend", "writerId:uuid eventNumber:i64 expectedOffset:i64 event:event requestId:i64?"),
    ("ConditionalBlockEnd", "writerId:uuid eventNumber:i64 expectedOffset:i64 data:blob requestId:i64"),
    (
        "DataAppended",
        "writerId:uuid eventNumber:i64 previousEventNumber:i64? requestId:i64? currentSegmentWriteOffset:i64?",
    ),
    ("ConditionalCheckFailed", "writerId:uuid eventNumber:i64 requestId:i64?"),
    ("ReadSegment", "segment:text offset:i64 suggestedLength:i32 delegationToken:text requestId:i64?"),
    ("SegmentRead", "segment:text offset:i64 atTail:bool endOfSegment:bool data:blob requestId:i64?"),
    ("GetStreamSegmentInfo", "requestId:i64 segment:text delegationToken:text"),
    (
        "StreamSegmentInfo",
        "requestId:i64 segment:text exists:bool isSealed:bool isDeleted:bool lastModified:i64 writeOffset:i64 \
         startOffset:i64?",
    ),
    ("LocateOffset", "requestId:i64 segment:text targetOffset:i64 delegationToken:text"),
    ("OffsetLocated", "requestId:i64 segment:text offset:i64"),
    (
        "CreateSegment",
        "requestId:i64 segment:text targetRate:i32 scaleType:i8 delegationToken:text rolloverSizeBytes:i64?",
    ),
    ("SegmentCreated", "requestId:i64 segment:text"),
    ("CreateTransientSegment", "requestId:i64 writerId:uuid parentSegment:text delegationToken:text"),
    ("SealSegment", "requestId:i64 segment:text delegationToken:text"),
    ("SegmentSealed", "requestId:i64 segment:text"),
    ("DeleteSegment", "requestId:i64 segment:text delegationToken:text"),
    ("SegmentDeleted", "requestId:i64 segment:text"),
    ("UpdateSegmentPolicy", "requestId:i64 segment:text targetRate:i32 scaleType:i8 delegationToken:text"),
    ("SegmentPolicyUpdated", "requestId:i64 segment:text"),
    ("TruncateSegment", "requestId:i64 segment:text truncationOffset:i64 delegationToken:text"),
    ("SegmentTruncated", "requestId:i64 segment:text"),
    ("GetSegmentAttribute", "requestId:i64 segment:text attributeId:uuid delegationToken:text"),
    ("SegmentAttribute", "requestId:i64 value:i64"),
    (
        "UpdateSegmentAttribute",
        "requestId:i64 segment:text attributeId:uuid newValue:i64 expectedValue:i64 delegationToken:text",
    ),
    ("SegmentAttributeUpdated", "requestId:i64 success:bool"),
    (
        "MergeSegments",
        "requestId:i64 target:text source:text delegationToken:text attributeUpdates:attributes?",
    ),
    ("SegmentsMerged", "requestId:i64 target:text source:text newTargetWriteOffset:i64?"),
    ("MergeSegmentsBatch", "requestId:i64 target:text sources:texts delegationToken:text"),
    ("SegmentsBatchMerged", "requestId:i64 target:text merged:merged"),
    (
        "CreateTableSegment",
        "requestId:i64 segment:text delegationToken:text sortedDeprecated:bool? keyLength:i32? \
         rolloverSizeBytes:i64?",
    ),
    ("DeleteTableSegment", "requestId:i64 segment:text mustBeEmpty:bool delegationToken:text"),
    ("GetTableSegmentInfo", "requestId:i64 segment:text delegationToken:text"),
    (
        "TableSegmentInfo",
        "requestId:i64 segment:text startOffset:i64 length:i64 entryCount:i64 keyLength:i32",
    ),
    (
        "UpdateTableEntries",
        "requestId:i64 segment:text delegationToken:text entries:entries tableSegmentOffset:i64?",
    ),
    ("TableEntriesUpdated", "requestId:i64 updatedVersions:versions"),
    ("RemoveTableKeys", "requestId:i64 segment:text delegationToken:text keys:keys tableSegmentOffset:i64?"),
    ("TableKeysRemoved", "requestId:i64 segment:text"),
    ("ReadTable", "requestId:i64 segment:text delegationToken:text keys:keys"),
    ("TableRead", "requestId:i64 segment:text entries:entries"),
    (
        "ReadTableKeys",
        "requestId:i64 segment:text delegationToken:text suggestedKeyCount:i32 continuationToken:blob? \
         prefixFilter:blob? fromKey:blob? toKey:blob?",
    ),
    ("TableKeysRead", "requestId:i64 segment:text keys:keys continuationToken:blob"),
    (
        "ReadTableEntries",
        "requestId:i64 segment:text delegationToken:text suggestedEntryCount:i32 continuationToken:blob? \
         prefixFilter:blob? fromKey:blob? toKey:blob?",
    ),
    ("TableEntriesRead", "requestId:i64 segment:text entries:entries continuationToken:blob"),
    (
        "ReadTableEntriesDelta",
        "requestId:i64 segment:text delegationToken:text fromPosition:i64 suggestedEntryCount:i32",
    ),
    (
        "TableEntriesDeltaRead",
        "requestId:i64 segment:text entries:entries shouldClear:bool reachedEnd:bool lastPosition:i64",
    ),
    ("WrongHost", "requestId:i64 segment:text correctHost:text serverStackTrace:text?"),
    ("SegmentIsSealed", "requestId:i64 segment:text serverStackTrace:text? offset:i64?"),
    ("SegmentAlreadyExists", "requestId:i64 segment:text serverStackTrace:text?"),
    ("NoSuchSegment", "requestId:i64 segment:text serverStackTrace:text? offset:i64?"),
    ("InvalidEventNumber", "writerId:uuid requestId:i64 serverStackTrace:text? eventNumber:i64?"),
    ("SegmentIsTruncated", "requestId:i64 segment:text startOffset:i64 serverStackTrace:text? offset:i64?"),
    ("OperationUnsupported", "requestId:i64 operationName:text serverStackTrace:text?"),
    ("AuthTokenCheckFailed", "requestId:i64 serverStackTrace:text? errorCode:i32?"),
    ("ErrorMessage", "requestId:i64 segment:text message:text errorCode:i32"),
    ("TableSegmentNotEmpty", "requestId:i64 segment:text serverStackTrace:text"),
    ("TableKeyDoesNotExist", "requestId:i64 segment:text serverStackTrace:text"),
    ("TableKeyBadVersion", "requestId:i64 segment:text serverStackTrace:text"),
    ("FlushToStorage", "containerId:i32 delegationToken:text requestId:i64"),
    ("StorageFlushed", "requestId:i64"),
    ("ListStorageChunks", "segment:text delegationToken:text requestId:i64"),
    ("StorageChunksListed", "requestId:i64 chunks:chunks"),
];

/// The version that a key without a condition carries.
pub const NO_VERSION: i64 = dhara_wire::limits::KEY_NO_VERSION;

/// The fields of `command`, in wire order.
///
/// # Errors
/// If the transcripts know no such command.
pub fn fields(command: &str) -> Result<Vec<Field>> {
    let (_, line) =
        LAYOUTS.iter().find(|(name, _)| *name == command).with_context(|| format!("no command {command}"))?;
    line.split_whitespace().map(field).collect()
}

fn field(text: &'static str) -> Result<Field> {
    let (name, kind) = text.split_once(':').context("a field is name:kind")?;
    let optional = kind.ends_with('?');
    let kind = match kind.trim_end_matches('?') {
        "i8" => Kind::I8,
        "i32" => Kind::I32,
        "i64" => Kind::I64,
        "bool" => Kind::Bool,
        "text" => Kind::Text,
        "uuid" => Kind::Uuid,
        "blob" => Kind::Blob,
        "rest" => Kind::Rest,
        "event" => Kind::Event,
        "texts" => Kind::Texts,
        "versions" => Kind::Versions,
        "keys" => Kind::Keys,
        "entries" => Kind::Entries,
        "attributes" => Kind::Attributes,
        "merged" => Kind::Merged,
        "chunks" => Kind::Chunks,
        other => bail!("no kind {other}"),
    };
    Ok(Field { name, kind, optional })
}

fn code(command: &str) -> Result<i32> {
    let name = if command == "Event" { "TopLevelEvent" } else { command };
    let row = TABLE.iter().find(|row| row.1 == name);
    Ok(row.with_context(|| format!("the codec has no command {name}"))?.0)
}

/// Builds one frame. A missing optional field ends the payload, a missing delegation token is empty, `extra` follows
/// the last field.
///
/// # Errors
/// If a field is missing, unknown, or of the wrong type.
pub fn encode(command: &str, given: &BTreeMap<String, Value>, extra: &[u8]) -> Result<Bytes> {
    let layout = fields(command)?;
    for name in given.keys() {
        ensure!(layout.iter().any(|field| field.name == name), "{command} has no field {name}");
    }
    let mut payload = BytesMut::new();
    let mut ended = false;
    for field in layout {
        match given.get(field.name) {
            Some(value) => {
                ensure!(!ended, "{command}.{} follows a missing optional field", field.name);
                put(field.kind, value, &mut payload).with_context(|| format!("field {}", field.name))?;
            }
            None if field.name == "delegationToken" => payload.put_u16(0),
            None if field.optional => ended = true,
            None => bail!("{command}.{} is missing", field.name),
        }
    }
    payload.extend_from_slice(extra);
    let mut frame = BytesMut::with_capacity(payload.len() + 8);
    frame.put_i32(code(command)?);
    frame.put_i32(i32::try_from(payload.len())?);
    frame.extend_from_slice(&payload);
    Ok(frame.freeze())
}

fn put(kind: Kind, value: &Value, out: &mut BytesMut) -> Result<()> {
    match kind {
        Kind::I8 => out.put_i8(i8::try_from(value.int()?)?),
        Kind::I32 => out.put_i32(i32::try_from(value.int()?)?),
        Kind::I64 => out.put_i64(value.int()?),
        Kind::Bool => out.put_u8(u8::from(value.bool()?)),
        Kind::Text => put_text(value.text()?, out)?,
        Kind::Uuid => out.put_u128(parse_uuid(value.text()?)?),
        Kind::Blob => put_blob(value.bytes()?, out)?,
        Kind::Rest => out.extend_from_slice(value.bytes()?),
        Kind::Event => {
            out.put_i32(0);
            put_blob(value.bytes()?, out)?;
        }
        Kind::Texts => {
            put_list(value, out, |item, out| put_text(item.text()?, out))?;
        }
        Kind::Keys => put_list(value, out, put_key)?,
        Kind::Entries => put_list(value, out, |item, out| {
            put_key(item, out)?;
            let data = item.member("value")?.bytes()?;
            out.put_i32(i32::try_from(data.len() + 4)?);
            put_blob(data, out)
        })?,
        Kind::Attributes => put_list(value, out, |item, out| {
            out.put_u128(parse_uuid(item.member("attributeId")?.text()?)?);
            out.put_i8(i8::try_from(item.member("updateType")?.int()?)?);
            out.put_i64(item.member("newValue")?.int()?);
            out.put_i64(item.member("oldValue")?.int()?);
            Ok(())
        })?,
        Kind::Versions | Kind::Merged | Kind::Chunks => bail!("{kind:?} is only ever received"),
    }
    Ok(())
}

fn put_list(
    value: &Value,
    out: &mut BytesMut,
    each: impl Fn(&Value, &mut BytesMut) -> Result<()>,
) -> Result<()> {
    let items = value.list()?;
    out.put_i32(i32::try_from(items.len())?);
    items.iter().try_for_each(|item| each(item, out))
}

fn put_text(text: &str, out: &mut BytesMut) -> Result<()> {
    out.put_u16(u16::try_from(text.len()).context("text above 65,535 bytes")?);
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn put_blob(data: &[u8], out: &mut BytesMut) -> Result<()> {
    out.put_i32(i32::try_from(data.len())?);
    out.extend_from_slice(data);
    Ok(())
}

/// Writes the version of an empty key too, as a careless client may.
fn put_key(item: &Value, out: &mut BytesMut) -> Result<()> {
    let key = item.member("key")?.bytes()?;
    out.put_i32(i32::try_from(key.len() + 12)?);
    put_blob(key, out)?;
    out.put_i64(item.member("version")?.int()?);
    Ok(())
}

/// Reads a uuid in its usual form.
///
/// # Errors
/// If it is not 32 hexadecimal digits, hyphens aside.
pub fn parse_uuid(text: &str) -> Result<u128> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    ensure!(digits.len() == 32, "{text} is not a uuid");
    Ok(u128::from_str_radix(&digits, 16)?)
}

/// A decoded reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The command's name.
    pub command: &'static str,
    /// Every field.
    pub fields: BTreeMap<&'static str, Value>,
}

impl Reply {
    /// The value of a field.
    ///
    /// # Errors
    /// If the command has no such field.
    pub fn field(&self, name: &str) -> Result<&Value> {
        self.fields.get(name).with_context(|| format!("{} has no field {name}", self.command))
    }
}

/// Decodes a reply. Every field must be there and nothing may follow; [`Command`] must read it alike.
///
/// # Errors
/// If the frame is not exactly one known command.
pub fn decode(code: i32, payload: &Bytes) -> Result<Reply> {
    let row = TABLE.iter().find(|row| row.0 == code);
    let name = row.with_context(|| format!("unknown reply code {code}"))?.1;
    let from = &mut Reader::new(payload.clone());
    let mut values = BTreeMap::new();
    for field in fields(name)? {
        let value = get(field.kind, from).with_context(|| format!("{name}.{}", field.name))?;
        values.insert(field.name, value);
    }
    ensure!(from.remaining() == 0, "{name}: {} bytes after the last field", from.remaining());
    let mut again = BytesMut::new();
    Command::decode(code, payload.clone())?.encode(&mut again);
    ensure!(again[8..] == payload[..], "{name}: the codec writes it differently");
    Ok(Reply { command: name, fields: values })
}

fn get(kind: Kind, from: &mut Reader) -> Result<Value> {
    Ok(match kind {
        Kind::I8 => Value::Int(i8::get(from)?.into()),
        Kind::I32 => Value::Int(i32::get(from)?.into()),
        Kind::I64 => Value::Int(i64::get(from)?),
        Kind::Bool => match i8::get(from)? {
            byte @ 0..=1 => Value::Bool(byte == 1),
            byte => bail!("bool byte {byte}"),
        },
        Kind::Text => Value::Text(String::get(from)?),
        Kind::Uuid => Value::Text(Uuid::get(from)?.to_string()),
        Kind::Blob => Value::Bytes(Blob::get(from)?.0),
        Kind::Rest => Value::Bytes(Rest::get(from)?.0),
        Kind::Event => Value::Bytes(dhara_wire::command::Event::get(from)?.0),
        Kind::Texts | Kind::Attributes => bail!("{kind:?} is only ever sent"),
        Kind::Versions => Value::List(Vec::<i64>::get(from)?.into_iter().map(Value::Int).collect()),
        Kind::Keys => Value::List(Vec::<TableKey>::get(from)?.into_iter().map(key).collect()),
        Kind::Entries => Value::List(Vec::<TableEntry>::get(from)?.into_iter().map(entry).collect()),
        Kind::Merged => Value::List(
            Vec::<dhara_wire::command::MergedSource>::get(from)?
                .into_iter()
                .map(|merged| {
                    Value::Item(Item::from([
                        ("source", Value::Text(merged.source)),
                        ("newTargetWriteOffset", Value::Int(merged.new_target_write_offset)),
                    ]))
                })
                .collect(),
        ),
        Kind::Chunks => Value::List(
            Vec::<dhara_wire::command::ChunkInfo>::get(from)?
                .into_iter()
                .map(|chunk| {
                    Value::Item(Item::from([
                        ("lengthInMetadata", Value::Int(chunk.length_in_metadata)),
                        ("lengthInStorage", Value::Int(chunk.length_in_storage)),
                        ("startOffset", Value::Int(chunk.start_offset)),
                        ("chunkName", Value::Text(chunk.chunk_name)),
                        ("existsInStorage", Value::Bool(chunk.exists_in_storage)),
                    ]))
                })
                .collect(),
        ),
    })
}

fn key(key: TableKey) -> Value {
    Value::Item(Item::from([("key", Value::Bytes(key.key)), ("version", Value::Int(key.version))]))
}

fn entry(entry: TableEntry) -> Value {
    Value::Item(Item::from([
        ("key", Value::Bytes(entry.key.key)),
        ("version", Value::Int(entry.key.version)),
        ("value", Value::Bytes(entry.value)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_names_a_command_of_the_codec() {
        for (name, _) in LAYOUTS {
            code(name).unwrap();
            fields(name).unwrap();
        }
    }
}
