//! Sessions: a writer set up on a connection, and its appends.

use super::attribute::Attribute;
use super::{RowChange, Rows, State};
use crate::operation::{Answer, Append, ConnectionId, Record, Refusal, SessionId};
use crate::types::{SegmentId, SequenceNumber};
use dhara_wire::codec::Uuid;

/// A writer set up on a connection.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) segment: SegmentId,
    /// Name of the segment, canonical.
    pub(super) name: Box<str>,
    pub(super) writer: Uuid,
    /// Number of the last append admitted, or what the setup found.
    last: i64,
    /// What every append gets until the next setup.
    failed: Option<Refusal>,
}

impl State {
    pub(super) fn admit_setup(
        &mut self,
        session: SessionId,
        name: &str,
        writer: Uuid,
        rows: &dyn Rows,
    ) -> Result<Answer, Refusal> {
        match self.open_session(session, name, writer, rows) {
            Ok(last) => Ok(Answer::SetUp { last }),
            Err(refusal) => {
                // Appends sent before this answer arrived must hear the same.
                let failed = Some(refusal.clone());
                let segment = SegmentId(0);
                self.sessions
                    .insert(session, Session { segment, name: name.into(), writer, last: 0, failed });
                Err(refusal)
            }
        }
    }

    fn open_session(
        &mut self,
        session: SessionId,
        name: &str,
        writer: Uuid,
        rows: &dyn Rows,
    ) -> Result<i64, Refusal> {
        let id = self.stream(name)?;
        if super::attribute::is_core(writer) {
            return Err(Refusal::Illegal("writer id belongs to the store"));
        }
        let segment = self.segments.get_mut(&id).ok_or(Refusal::NoSuchSegment)?;
        let last = segment.attribute(writer, rows).ok_or(Refusal::Unavailable)?;
        segment.attributes.entry(writer).or_insert(Attribute::loaded(last)).sessions += 1;
        let opened = Session { segment: id, name: name.into(), writer, last, failed: None };
        let replaced = self.sessions.insert(session, opened);
        assert!(replaced.is_none(), "session numbers are never used again");
        Ok(last)
    }

    /// Ends one session, when its writer sets up anew or its connection ends.
    pub fn end_session(&mut self, session: SessionId) {
        if let Some(ended) = self.sessions.remove(&session)
            && ended.segment != SegmentId(0)
        {
            self.unpin(ended.segment, ended.writer);
        }
    }

    fn unpin(&mut self, id: SegmentId, writer: Uuid) {
        let applied_upto = self.applied_upto();
        let Some(segment) = self.segments.get_mut(&id) else { return };
        let Some(resident) = segment.attributes.get_mut(&writer) else { return };
        assert!(resident.sessions > 0, "a session pins its writer");
        resident.sessions -= 1;
        if resident.sessions == 0 && resident.staged_by <= applied_upto {
            let change = RowChange::Attribute { segment: id, attribute: writer, value: resident.applied };
            if resident.dirty {
                self.changes.push(change);
            }
            segment.attributes.remove(&writer);
        }
    }

    /// Judges an append against its session.
    ///
    /// # Errors
    /// The refusal; except for a failed condition the session repeats it until its writer sets up again.
    pub fn admit_append(&mut self, append: &Append, now_ms: i64) -> Result<(Record, Answer), Refusal> {
        let session = self.sessions.get_mut(&append.tag.session).ok_or(Refusal::NoSession)?;
        if let Some(refusal) = &session.failed {
            return Err(refusal.clone());
        }
        let judged = match self.segments.get_mut(&session.segment) {
            Some(segment) => judge(session, segment, append),
            None => Err(Refusal::NoSuchSegment),
        };
        match judged {
            Ok(offset) => Ok(self.stage_append(append, offset, now_ms)),
            Err(Refusal::ConditionFailed) => Err(Refusal::ConditionFailed),
            Err(refusal) => {
                session.failed = Some(refusal.clone());
                Err(refusal)
            }
        }
    }

    /// Refuses an append for a reason outside the state; its session repeats the refusal until its writer sets up
    /// again. Returns what the append hears: an earlier refusal stays.
    pub fn fail_session(&mut self, session: SessionId, refusal: Refusal) -> Refusal {
        match self.sessions.get_mut(&session) {
            Some(session) => session.failed.get_or_insert(refusal).clone(),
            None => Refusal::NoSession,
        }
    }

    fn stage_append(&mut self, append: &Append, offset: u64, now_ms: i64) -> (Record, Answer) {
        let by = self.next;
        self.next = by.next();
        let number = append.tag.number;
        let session = self.sessions.get_mut(&append.tag.session).unwrap_or_else(|| unreachable!("judged"));
        let (id, writer, previous) = (session.segment, session.writer, session.last);
        session.last = number;
        let segment = self.segments.get_mut(&id).unwrap_or_else(|| unreachable!("judged"));
        segment.staged.length = offset + append.data.len() as u64;
        segment.staged.events += u64::from(append.events);
        segment.staged.modified_ms = now_ms;
        let length = segment.staged.length;
        if let Some(resident) = segment.attributes.get_mut(&writer) {
            resident.staged = number;
            resident.staged_by = by;
        }
        let data = append.data.clone();
        let record = Record::Appended {
            segment: id,
            offset,
            events: append.events,
            time_ms: now_ms,
            writer,
            number,
            data,
        };
        (record, Answer::Appended { previous, length })
    }

    /// Ends all sessions of a connection; its transient segments go by records of their own.
    pub(super) fn end_connection(
        &mut self,
        connection: ConnectionId,
        sessions: &[SessionId],
        records: &mut Vec<(SequenceNumber, Record)>,
    ) {
        for session in sessions {
            assert_eq!(session.connection, connection, "a connection ends its own sessions");
            self.end_session(*session);
        }
        self.delete_transients(|owner, _| owner == connection.0, records);
    }
}

/// The offset of an append, or why it cannot be. Checks go in Pravega's order: sealed, number, offset.
fn judge(session: &Session, segment: &super::Segment, append: &Append) -> Result<u64, Refusal> {
    if !segment.staged.exists {
        return Err(Refusal::NoSuchSegment);
    }
    if segment.staged.sealed {
        return Err(Refusal::Sealed);
    }
    let stored = segment.attributes.get(&session.writer).map(|resident| resident.staged);
    if stored != Some(session.last) || append.tag.number <= session.last {
        return Err(Refusal::InvalidEventNumber);
    }
    let offset = segment.staged.length;
    match append.expected_offset {
        Some(expected) if expected >= 0 && u64::try_from(expected) != Ok(offset) => {
            Err(Refusal::ConditionFailed)
        }
        _ if offset > i64::MAX as u64 - append.data.len() as u64 => Err(Refusal::Illegal("segment is full")),
        _ => Ok(offset),
    }
}
