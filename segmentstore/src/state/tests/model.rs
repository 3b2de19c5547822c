//! The model: what the protocol promises of segments, sessions and tables, in the plainest terms.
//!
//! It keeps whole contents, judges one request after the other, and knows no records, rows or staging.

use crate::operation::{Answer, ConnectionId, Policy, Refusal, Request, SegmentKind, SessionId};
use crate::operation::{TableCondition, TablePut};
use bytes::Bytes;
use dhara_wire::codec::Uuid;
use dhara_wire::command::{AttributeUpdate, AttributeUpdateType};
use dhara_wire::limits::{NULL_ATTRIBUTE_VALUE, TABLE_ENTRY_OVERHEAD_BYTES};
use std::collections::BTreeMap;

/// A segment with all that was ever put into it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    /// Tells segments of one name apart.
    pub(crate) birth: u64,
    pub(crate) kind: SegmentKind,
    pub(crate) policy: Policy,
    pub(crate) rollover_bytes: i64,
    pub(crate) created_ms: i64,
    pub(crate) start: u64,
    /// Bytes of a stream from offset 0 on.
    pub(crate) data: Vec<u8>,
    pub(crate) sealed: bool,
    pub(crate) events: u64,
    pub(crate) attributes: BTreeMap<u128, i64>,
    pub(crate) entries: BTreeMap<Bytes, (i64, Bytes)>,
    pub(crate) table_length: u64,
}

impl Segment {
    pub(crate) fn length(&self) -> u64 {
        if self.kind.is_table() { self.table_length } else { self.data.len() as u64 }
    }

    fn attribute(&self, id: Uuid) -> i64 {
        const CORE: u128 = 0x8000_0000_0000_0000 << 64;
        match id.0.checked_sub(CORE) {
            Some(0) => self.created_ms,
            Some(1) => i64::try_from(self.events).unwrap(),
            Some(2) => i64::from(self.policy.scale_type),
            Some(3) => i64::from(self.policy.target_rate),
            Some(4) => self.rollover_bytes,
            _ => self.attributes.get(&id.0).copied().unwrap_or(NULL_ATTRIBUTE_VALUE),
        }
    }

    fn set_attribute(&mut self, id: u128, value: i64) {
        if value == NULL_ATTRIBUTE_VALUE {
            self.attributes.remove(&id);
        } else {
            self.attributes.insert(id, value);
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Session {
    segment: Option<(String, u64)>,
    writer: Uuid,
    last: i64,
    failed: Option<Refusal>,
}

/// An append as the model sees it.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) session: SessionId,
    pub(crate) number: i64,
    pub(crate) data: Bytes,
    pub(crate) events: u32,
    pub(crate) expected_offset: Option<i64>,
}

/// All segments and sessions of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) segments: BTreeMap<String, Segment>,
    sessions: BTreeMap<SessionId, Session>,
    births: u64,
    pub(crate) epoch: u64,
}

const ILLEGAL: Refusal = Refusal::Illegal("");

/// The same outcome without words, which the model does not know.
pub(crate) fn plain(outcome: Result<Answer, Refusal>) -> Result<Answer, Refusal> {
    outcome.map_err(|refusal| match refusal {
        Refusal::Illegal(_) => ILLEGAL,
        Refusal::Unsupported(_) => Refusal::Unsupported(""),
        other => other,
    })
}

impl Model {
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    pub(crate) fn attribute(&self, name: &str, id: Uuid) -> i64 {
        self.segments.get(name).map_or(NULL_ATTRIBUTE_VALUE, |segment| segment.attribute(id))
    }

    pub(crate) fn version(&self, name: &str, key: &Bytes) -> Option<i64> {
        self.segments.get(name).and_then(|segment| segment.entries.get(key)).map(|(version, _)| *version)
    }

    /// The length of the segment that a session appends to, and the session's last number.
    pub(crate) fn session(&self, session: SessionId) -> Option<(u64, i64)> {
        let session = self.sessions.get(&session)?;
        let name = session.segment.as_ref().map(|(name, _)| name);
        let length = name.and_then(|name| self.segments.get(name)).map_or(0, Segment::length);
        Some((length, session.last))
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn end_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    pub(crate) fn disconnect(&mut self, connection: ConnectionId) {
        self.sessions.retain(|session, _| session.connection != connection);
        self.segments.retain(|_, segment| {
            !matches!(segment.kind, SegmentKind::Transient { connection: owner, .. } if owner == connection.0)
        });
    }

    /// The container was opened anew: connections and what lives with them are gone.
    pub(crate) fn reopen(&mut self, epoch: u64) {
        self.sessions.clear();
        self.segments.retain(|_, segment| !matches!(segment.kind, SegmentKind::Transient { .. }));
        self.epoch = epoch;
    }

    pub(crate) fn append(&mut self, put: &Put) -> Result<Answer, Refusal> {
        let session = self.sessions.get_mut(&put.session).ok_or(Refusal::NoSession)?;
        if let Some(failed) = &session.failed {
            return Err(failed.clone());
        }
        let (name, birth) = session.segment.clone().expect("only failed sessions have no segment");
        let segment = self.segments.get_mut(&name).filter(|segment| segment.birth == birth);
        let outcome = match segment {
            None => Err(Refusal::NoSuchSegment),
            Some(segment) if segment.sealed => Err(Refusal::Sealed),
            Some(segment)
                if segment.attribute(session.writer) != session.last || put.number <= session.last =>
            {
                Err(Refusal::InvalidEventNumber)
            }
            Some(segment) => match put.expected_offset {
                Some(at) if at >= 0 && u64::try_from(at) != Ok(segment.length()) => {
                    Err(Refusal::ConditionFailed)
                }
                _ => {
                    segment.data.extend_from_slice(&put.data);
                    segment.events += u64::from(put.events);
                    segment.set_attribute(session.writer.0, put.number);
                    Ok(Answer::Appended { previous: session.last, length: segment.length() })
                }
            },
        };
        match &outcome {
            Ok(_) => session.last = put.number,
            Err(Refusal::ConditionFailed) => {}
            Err(refusal) => session.failed = Some(refusal.clone()),
        }
        outcome
    }

    /// Judges a request.
    pub(crate) fn judge(&mut self, request: &Request, now_ms: i64) -> Result<Answer, Refusal> {
        match request {
            Request::Create { name, kind, policy, rollover_bytes } => {
                self.create(name, *kind, *policy, (*rollover_bytes, now_ms))
            }
            Request::Seal { name } => {
                let segment = self.stream(name)?;
                if std::mem::replace(&mut segment.sealed, true) {
                    return Err(Refusal::Sealed);
                }
                Ok(Answer::Done)
            }
            Request::Delete { name, table, must_be_empty } => self.delete(name, *table, *must_be_empty),
            Request::Truncate { name, offset } => {
                let segment = self.stream(name)?;
                let offset = u64::try_from(*offset).map_err(|_negative| ILLEGAL)?;
                if offset < segment.start || offset > segment.length() {
                    return Err(Refusal::Truncated { start: segment.start });
                }
                segment.start = offset;
                Ok(Answer::Done)
            }
            Request::UpdatePolicy { name, policy } => {
                self.open_stream(name)?.policy = *policy;
                Ok(Answer::Done)
            }
            Request::GetAttribute { name, attribute } => {
                let segment = self.segments.get(name).ok_or(Refusal::NoSuchSegment)?;
                Ok(Answer::Attribute(segment.attribute(*attribute)))
            }
            Request::UpdateAttribute { name, attribute, new_value, expected } => {
                let update = AttributeUpdate {
                    attribute_id: *attribute,
                    update_type: AttributeUpdateType::ReplaceIfEquals,
                    new_value: *new_value,
                    old_value: *expected,
                };
                let updated = update_all(self.open_stream(name)?, &[update])?;
                Ok(Answer::AttributeUpdated(updated))
            }
            Request::Merge { target, source, updates } => self.merge(target, source, updates),
            Request::MergeBatch { target, sources } => self.merge_batch(target, sources),
            Request::SetupAppend { session, name, writer } => self.set_up(*session, name, *writer),
            Request::TableUpdate { name, puts, expected_length } => {
                self.update_table(name, puts, *expected_length)
            }
            Request::TableRemove { name, keys, expected_length } => {
                self.remove_keys(name, keys, *expected_length)
            }
        }
    }

    fn create(
        &mut self,
        name: &str,
        kind: SegmentKind,
        policy: Policy,
        (rollover_bytes, created_ms): (i64, i64),
    ) -> Result<Answer, Refusal> {
        if self.segments.contains_key(name) {
            return Err(Refusal::AlreadyExists);
        }
        let kind = match kind {
            SegmentKind::Transient { connection, .. } => {
                SegmentKind::Transient { connection, epoch: self.epoch }
            }
            kind => kind,
        };
        self.births += 1;
        let segment = Segment {
            birth: self.births,
            kind,
            policy,
            rollover_bytes,
            created_ms,
            start: 0,
            data: Vec::new(),
            sealed: false,
            events: 0,
            attributes: BTreeMap::new(),
            entries: BTreeMap::new(),
            table_length: 0,
        };
        self.segments.insert(name.to_owned(), segment);
        Ok(Answer::Done)
    }

    fn stream(&mut self, name: &str) -> Result<&mut Segment, Refusal> {
        let segment = self.segments.get_mut(name).ok_or(Refusal::NoSuchSegment)?;
        if segment.kind.is_table() { Err(ILLEGAL) } else { Ok(segment) }
    }

    fn open_stream(&mut self, name: &str) -> Result<&mut Segment, Refusal> {
        let segment = self.stream(name)?;
        if segment.sealed { Err(Refusal::Sealed) } else { Ok(segment) }
    }

    fn delete(&mut self, name: &str, table: bool, must_be_empty: bool) -> Result<Answer, Refusal> {
        let segment = self.segments.get(name).ok_or(Refusal::NoSuchSegment)?;
        if segment.kind.is_table() != table {
            return Err(ILLEGAL);
        }
        if must_be_empty && matches!(segment.kind, SegmentKind::FixedTable { .. }) {
            return Err(Refusal::Unsupported(""));
        }
        if must_be_empty && !segment.entries.is_empty() {
            return Err(Refusal::TableNotEmpty);
        }
        self.segments.remove(name);
        Ok(Answer::Done)
    }

    fn set_up(&mut self, session: SessionId, name: &str, writer: Uuid) -> Result<Answer, Refusal> {
        let found = self.stream(name).map(|segment| (segment.birth, segment.attribute(writer)));
        let (opened, answer) = match found {
            Ok((birth, last)) => {
                let segment = Some((name.to_owned(), birth));
                (Session { segment, writer, last, failed: None }, Ok(Answer::SetUp { last }))
            }
            Err(why) => {
                let failed = Some(why.clone());
                (Session { segment: None, writer, last: 0, failed }, Err(why))
            }
        };
        self.sessions.insert(session, opened);
        answer
    }

    fn check_source(&self, target: &str, source: &str) -> Result<(), Refusal> {
        let segment = &self.segments[source];
        if source == target || segment.kind.is_table() || segment.start > 0 {
            return Err(ILLEGAL);
        }
        Ok(())
    }

    fn move_over(&mut self, target: &str, source: &str) -> u64 {
        let source = self.segments.remove(source).expect("looked up");
        let target = self.segments.get_mut(target).expect("looked up");
        target.events += match source.kind {
            SegmentKind::Transient { .. } => u64::from(!source.data.is_empty()),
            _ => source.events,
        };
        target.data.extend_from_slice(&source.data);
        target.length()
    }

    fn merge(&mut self, target: &str, source: &str, updates: &[AttributeUpdate]) -> Result<Answer, Refusal> {
        if !self.segments.contains_key(source) {
            return Err(Refusal::NoSuchSegment);
        }
        self.open_stream(target)?;
        self.check_source(target, source)?;
        if !update_all(self.open_stream(target)?, updates)? {
            return Ok(Answer::AttributeUpdated(false));
        }
        Ok(Answer::Merged(self.move_over(target, source)))
    }

    fn merge_batch(&mut self, target: &str, sources: &[String]) -> Result<Answer, Refusal> {
        self.open_stream(target)?;
        for source in sources.iter().filter(|source| self.segments.contains_key(*source)) {
            self.check_source(target, source)?;
        }
        let mut lengths = Vec::new();
        for source in sources {
            lengths.push(if self.segments.contains_key(source) {
                self.move_over(target, source)
            } else {
                self.segments[target].length()
            });
        }
        Ok(Answer::BatchMerged(lengths))
    }

    fn table(&mut self, name: &str, expected_length: Option<i64>) -> Result<&mut Segment, Refusal> {
        let segment = self.segments.get_mut(name).ok_or(Refusal::NoSuchSegment)?;
        if !segment.kind.is_table() {
            return Err(ILLEGAL);
        }
        let length = segment.table_length;
        match expected_length {
            Some(expected) if u64::try_from(expected) != Ok(length) => {
                Err(Refusal::Truncated { start: length })
            }
            _ => Ok(segment),
        }
    }

    fn update_table(
        &mut self,
        name: &str,
        puts: &[TablePut],
        expected_length: Option<i64>,
    ) -> Result<Answer, Refusal> {
        let table = self.table(name, expected_length)?;
        judge_keys(table, puts.iter().map(|put| (&put.key, put.condition)))?;
        let mut versions = Vec::new();
        for put in puts {
            let version = table.table_length;
            table.table_length += (TABLE_ENTRY_OVERHEAD_BYTES + put.key.len() + put.value.len()) as u64;
            let version = i64::try_from(version).unwrap();
            table.entries.insert(put.key.clone(), (version, put.value.clone()));
            versions.push(version);
        }
        Ok(Answer::TableUpdated(versions))
    }

    fn remove_keys(
        &mut self,
        name: &str,
        keys: &[(Bytes, TableCondition)],
        expected_length: Option<i64>,
    ) -> Result<Answer, Refusal> {
        let table = self.table(name, expected_length)?;
        judge_keys(table, keys.iter().map(|(key, condition)| (key, *condition)))?;
        for (key, _) in keys {
            if table.entries.remove(key).is_some() {
                table.table_length += (TABLE_ENTRY_OVERHEAD_BYTES + key.len()) as u64;
            }
        }
        Ok(Answer::Done)
    }
}

/// Judges the conditions of a batch, all against the state before it.
fn judge_keys<'a>(
    table: &Segment,
    keys: impl Iterator<Item = (&'a Bytes, TableCondition)> + Clone,
) -> Result<(), Refusal> {
    let fits = |key: &Bytes| match table.kind {
        SegmentKind::FixedTable { key_bytes } => key.len() == usize::from(key_bytes),
        _ => !key.is_empty(),
    };
    if !keys.clone().all(|(key, _)| fits(key)) {
        return Err(ILLEGAL);
    }
    for (key, condition) in keys {
        let present = table.entries.get(key).map(|(version, _)| *version);
        match (condition, present) {
            (TableCondition::Any, _) | (TableCondition::Absent, None) => {}
            (TableCondition::Version(wanted), Some(version)) if wanted == version => {}
            (TableCondition::Version(_), None) if table.kind == SegmentKind::HashTable => {
                return Err(Refusal::KeyDoesNotExist);
            }
            _ => return Err(Refusal::KeyBadVersion),
        }
    }
    Ok(())
}

/// Applies all updates, or none if a condition does not hold; each sees those before it.
fn update_all(segment: &mut Segment, updates: &[AttributeUpdate]) -> Result<bool, Refusal> {
    let mut after = segment.attributes.clone();
    for update in updates {
        let id = update.attribute_id.0;
        if id >> 64 == 0x8000_0000_0000_0000 {
            return Err(ILLEGAL);
        }
        let was = after.get(&id).copied();
        let value = match update.update_type {
            AttributeUpdateType::None if was.is_some() => return Ok(false),
            AttributeUpdateType::ReplaceIfGreater if was.is_some_and(|was| was >= update.new_value) => {
                return Ok(false);
            }
            AttributeUpdateType::ReplaceIfEquals
                if was.unwrap_or(NULL_ATTRIBUTE_VALUE) != update.old_value =>
            {
                return Ok(false);
            }
            AttributeUpdateType::Accumulate => was.unwrap_or(0).wrapping_add(update.new_value),
            _ => update.new_value,
        };
        if value == NULL_ATTRIBUTE_VALUE {
            after.remove(&id);
        } else {
            after.insert(id, value);
        }
    }
    segment.attributes = after;
    Ok(true)
}
