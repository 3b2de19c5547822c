//! Judging requests against staged state.

use super::{Core, Judging, RowKey, Rows, Segment, State};
use crate::operation::{Answer, ConnectionId, Policy, Record, Refusal, Request, SegmentKind, SessionId};
use crate::types::{SegmentId, SequenceNumber};
use dhara_wire::command::{AttributeUpdate, AttributeUpdateType};

impl State {
    /// The rows that must be known before this request can be judged.
    pub fn missing(&self, request: &Request, rows: &dyn Rows) -> Vec<RowKey> {
        match request {
            Request::SetupAppend { name, writer, .. } => {
                self.missing_attributes(self.resolve(name), [*writer], rows)
            }
            Request::GetAttribute { name, attribute } | Request::UpdateAttribute { name, attribute, .. } => {
                self.missing_attributes(self.resolve(name), [*attribute], rows)
            }
            Request::Merge { target, updates, .. } => {
                let attributes = updates.iter().map(|update| update.attribute_id);
                self.missing_attributes(self.resolve(target), attributes, rows)
            }
            Request::TableUpdate { name, puts, .. } => {
                self.missing_keys(self.resolve(name), puts.iter().map(|put| &put.key), rows)
            }
            Request::TableRemove { name, keys, .. } => {
                self.missing_keys(self.resolve(name), keys.iter().map(|(key, _)| key), rows)
            }
            _ => Vec::new(),
        }
    }

    /// Judges a request for which nothing is [`missing`](Self::missing); appends what it decides to `records`.
    ///
    /// # Errors
    /// The refusal; then nothing has changed and no record was added.
    pub fn admit(
        &mut self,
        request: &Request,
        rows: &dyn Rows,
        now_ms: i64,
        records: &mut Vec<(SequenceNumber, Record)>,
    ) -> Result<Answer, Refusal> {
        let judging = &mut Judging { rows, now_ms, records };
        match request {
            Request::Create { .. } => self.admit_create(request, judging),
            Request::Seal { name } => self.admit_seal(name, judging),
            Request::Delete { name, table, must_be_empty } => {
                self.admit_delete(name, *table, *must_be_empty, judging)
            }
            Request::Truncate { name, offset } => self.admit_truncate(name, *offset, judging),
            Request::UpdatePolicy { name, policy } => self.admit_policy(name, *policy, judging),
            Request::GetAttribute { name, attribute } => self.admit_get_attribute(name, *attribute, rows),
            Request::UpdateAttribute { name, attribute, new_value, expected } => {
                let update = AttributeUpdate {
                    attribute_id: *attribute,
                    update_type: AttributeUpdateType::ReplaceIfEquals,
                    new_value: *new_value,
                    old_value: *expected,
                };
                self.admit_update_attribute(name, &update, judging)
            }
            Request::Merge { target, source, updates } => self.admit_merge(target, source, updates, judging),
            Request::MergeBatch { target, sources } => self.admit_merge_batch(target, sources, judging),
            Request::SetupAppend { session, name, writer } => self.admit_setup(*session, name, *writer, rows),
            Request::TableUpdate { name, puts, expected_length } => {
                self.admit_table_update(name, puts, *expected_length, judging)
            }
            Request::TableRemove { name, keys, expected_length } => {
                self.admit_table_remove(name, keys, *expected_length, judging)
            }
        }
    }

    /// Ends a connection: its sessions, and by records its transient segments.
    pub fn admit_disconnect(
        &mut self,
        connection: ConnectionId,
        sessions: &[SessionId],
        records: &mut Vec<(SequenceNumber, Record)>,
    ) {
        self.end_connection(connection, sessions, records);
    }

    /// Deletes the transient segments that an earlier epoch of this container left behind.
    pub fn admit_new_epoch(&mut self, records: &mut Vec<(SequenceNumber, Record)>) {
        let epoch = self.epoch.0;
        self.delete_transients(|_, owner_epoch| owner_epoch < epoch, records);
    }

    pub(super) fn delete_transients(
        &mut self,
        belongs: impl Fn(u64, u64) -> bool,
        records: &mut Vec<(SequenceNumber, Record)>,
    ) {
        let doomed: Vec<SegmentId> = self
            .transients
            .iter()
            .filter(|id| match self.segments.get(id) {
                Some(Segment { kind: SegmentKind::Transient { connection, epoch }, staged, .. }) => {
                    staged.exists && belongs(*connection, *epoch)
                }
                _ => false,
            })
            .copied()
            .collect();
        for id in doomed {
            self.stage_end(id);
            self.record(Record::Deleted { segment: id }, records);
        }
    }

    /// Numbers a decided record.
    pub(super) fn record(&mut self, record: Record, records: &mut Vec<(SequenceNumber, Record)>) {
        records.push((self.next, record));
        self.next = self.next.next();
    }

    /// A segment that holds bytes.
    pub(super) fn stream(&self, name: &str) -> Result<SegmentId, Refusal> {
        let id = self.resolve(name).ok_or(Refusal::NoSuchSegment)?;
        if self.segments[&id].kind.is_table() {
            return Err(Refusal::Illegal("a table segment does not offer this"));
        }
        Ok(id)
    }

    fn staged_mut(&mut self, id: SegmentId) -> &mut Core {
        match self.segments.get_mut(&id) {
            Some(segment) => &mut segment.staged,
            None => unreachable!("a resolved name leads to a segment"),
        }
    }

    fn admit_create(&mut self, request: &Request, judging: &mut Judging<'_>) -> Result<Answer, Refusal> {
        let Request::Create { name, kind, policy, rollover_bytes } = request else {
            unreachable!("called for creations")
        };
        let (kind, policy, rollover_bytes, time_ms) = (*kind, *policy, *rollover_bytes, judging.now_ms);
        if self.resolve(name).is_some() {
            return Err(Refusal::AlreadyExists);
        }
        let kind = match kind {
            SegmentKind::Transient { connection, .. } => {
                SegmentKind::Transient { connection, epoch: self.epoch.0 }
            }
            kind => kind,
        };
        let id = SegmentId(self.next.0);
        let record = Record::Created { name: name.clone(), kind, policy, rollover_bytes, time_ms };
        let mut segment = Segment::new(id, name.clone(), kind);
        (segment.rollover_bytes, segment.created_ms) = (rollover_bytes, time_ms);
        segment.staged = Core { exists: true, modified_ms: time_ms, policy, ..Core::default() };
        self.names.insert(name.clone(), id);
        self.insert(segment);
        self.record(record, judging.records);
        Ok(Answer::Done)
    }

    fn admit_seal(&mut self, name: &str, judging: &mut Judging<'_>) -> Result<Answer, Refusal> {
        let now_ms = judging.now_ms;
        let id = self.stream(name)?;
        let staged = self.staged_mut(id);
        if staged.sealed {
            return Err(Refusal::Sealed);
        }
        staged.sealed = true;
        staged.modified_ms = now_ms;
        self.record(Record::Sealed { segment: id, time_ms: now_ms }, judging.records);
        Ok(Answer::Done)
    }

    fn admit_delete(
        &mut self,
        name: &str,
        table: bool,
        must_be_empty: bool,
        judging: &mut Judging<'_>,
    ) -> Result<Answer, Refusal> {
        let id = self.resolve(name).ok_or(Refusal::NoSuchSegment)?;
        let segment = &self.segments[&id];
        if segment.kind.is_table() != table {
            return Err(Refusal::Illegal("segment is of the other kind"));
        }
        if must_be_empty && matches!(segment.kind, SegmentKind::FixedTable { .. }) {
            return Err(Refusal::Unsupported("DeleteTableSegment with mustBeEmpty"));
        }
        if must_be_empty && segment.staged.entries > 0 {
            return Err(Refusal::TableNotEmpty);
        }
        self.stage_end(id);
        self.record(Record::Deleted { segment: id }, judging.records);
        Ok(Answer::Done)
    }

    /// Ends a segment in staged state; its name is free at once.
    fn stage_end(&mut self, id: SegmentId) {
        let Some(segment) = self.segments.get_mut(&id) else { return };
        segment.staged.exists = false;
        self.names.remove(&segment.name);
    }

    fn admit_truncate(
        &mut self,
        name: &str,
        offset: i64,
        judging: &mut Judging<'_>,
    ) -> Result<Answer, Refusal> {
        let id = self.stream(name)?;
        let start = u64::try_from(offset).map_err(|_negative| Refusal::Illegal("offset is negative"))?;
        let staged = self.staged_mut(id);
        if start < staged.start || start > staged.length {
            return Err(Refusal::Truncated { start: staged.start });
        }
        if start > staged.start {
            staged.start = start;
            self.record(Record::Truncated { segment: id, start }, judging.records);
        }
        Ok(Answer::Done)
    }

    fn admit_policy(
        &mut self,
        name: &str,
        policy: Policy,
        judging: &mut Judging<'_>,
    ) -> Result<Answer, Refusal> {
        let id = self.stream(name)?;
        let staged = self.staged_mut(id);
        if staged.sealed {
            return Err(Refusal::Sealed);
        }
        staged.policy = policy;
        self.record(Record::PolicySet { segment: id, policy }, judging.records);
        Ok(Answer::Done)
    }

    fn admit_merge(
        &mut self,
        target: &str,
        source: &str,
        updates: &[AttributeUpdate],
        judging: &mut Judging<'_>,
    ) -> Result<Answer, Refusal> {
        let source = self.resolve(source).ok_or(Refusal::NoSuchSegment)?;
        let target = self.merge_target(target)?;
        self.check_source(target, source)?;
        let Some(changes) = self.judge_updates(target, updates, judging.rows)? else {
            return Ok(Answer::AttributeUpdated(false));
        };
        self.stage_attributes(target, &changes);
        let values = changes.iter().map(|change| (change.attribute, change.value)).collect();
        Ok(Answer::Merged(self.stage_merge(target, source, values, judging)))
    }

    fn admit_merge_batch(
        &mut self,
        target: &str,
        sources: &[String],
        judging: &mut Judging<'_>,
    ) -> Result<Answer, Refusal> {
        let target = self.merge_target(target)?;
        for source in sources.iter().filter_map(|source| self.resolve(source)) {
            self.check_source(target, source)?;
        }
        let lengths = sources
            .iter()
            .map(|source| match self.resolve(source) {
                Some(source) => self.stage_merge(target, source, Vec::new(), judging),
                None => self.segments[&target].staged.length,
            })
            .collect();
        Ok(Answer::BatchMerged(lengths))
    }

    fn merge_target(&self, name: &str) -> Result<SegmentId, Refusal> {
        let target = self.stream(name)?;
        if self.segments[&target].staged.sealed { Err(Refusal::Sealed) } else { Ok(target) }
    }

    fn check_source(&self, target: SegmentId, source: SegmentId) -> Result<(), Refusal> {
        let segment = &self.segments[&source];
        let room = i64::MAX as u64 - self.segments[&target].staged.length;
        match segment.kind {
            _ if source == target => Err(Refusal::Illegal("source and target are the same segment")),
            kind if kind.is_table() => Err(Refusal::Illegal("a table segment cannot be merged")),
            _ if segment.staged.start > 0 => Err(Refusal::Illegal("a truncated segment cannot be merged")),
            _ if segment.staged.length > room => Err(Refusal::Illegal("segment is full")),
            _ => Ok(()),
        }
    }

    fn stage_merge(
        &mut self,
        target: SegmentId,
        source: SegmentId,
        values: Vec<(dhara_wire::codec::Uuid, i64)>,
        judging: &mut Judging<'_>,
    ) -> u64 {
        let segment = &self.segments[&source];
        let length = segment.staged.length;
        // However many chunks a large event took, it is one event.
        let events = match segment.kind {
            SegmentKind::Transient { .. } => u64::from(length > 0),
            _ => segment.staged.events,
        };
        self.stage_end(source);
        let time_ms = judging.now_ms;
        let staged = self.staged_mut(target);
        let offset = staged.length;
        staged.length += length;
        staged.events += events;
        staged.modified_ms = time_ms;
        let after = staged.length;
        self.record(
            Record::Merged { target, source, offset, length, events, time_ms, values },
            judging.records,
        );
        after
    }
}
