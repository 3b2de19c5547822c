//! Requests and answers.

use super::record::{Policy, SegmentKind};
use bytes::Bytes;
use dhara_stdx::budget::BytePermit;
use dhara_wire::codec::Uuid;
use dhara_wire::command::AttributeUpdate;
use std::fmt;
use std::sync::Arc;

/// A connection of this process, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A writer's setup on a connection; a new setup of the same writer is a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The connection that the session ends with.
    pub connection: ConnectionId,
    /// Number of the session on its connection.
    pub number: u32,
}

/// What comes of an append, to the connection that sent it.
pub trait AppendReply: Send + Sync {
    /// Tells the outcome of append `number` of a session. Called in the order of the session's appends.
    fn appended(&self, append: &AppendTag, outcome: Result<Answer, Refusal>);
}

/// What identifies an append to its sender.
#[derive(Clone, Debug)]
pub struct AppendTag {
    /// The session.
    pub session: SessionId,
    /// The session's writer.
    pub writer: Uuid,
    /// The segment as the setup spelled it.
    pub segment: Arc<str>,
    /// Number of the append's last event.
    pub number: i64,
    /// The request's id.
    pub request_id: i64,
}

/// The continuation of a request that is not an append.
pub type Call = Box<dyn FnOnce(Result<Answer, Refusal>) + Send>;

/// An append of one session.
pub struct Append {
    /// Who sent it.
    pub tag: AppendTag,
    /// The bytes to append; may be empty.
    pub data: Bytes,
    /// How many events they hold, ≥ 1.
    pub events: u32,
    /// The segment's length must equal this; negative is no condition.
    pub expected_offset: Option<i64>,
    /// Who hears the outcome.
    pub reply: Arc<dyn AppendReply>,
    /// Memory that the append occupies until its reply.
    pub permit: Option<BytePermit>,
}

/// Anything asked of a container.
pub enum Operation {
    /// The hot path.
    Append(Append),
    /// Everything else, with its continuation.
    Call(Request, Call),
    /// A writer sets up anew; its earlier session ends behind its appends.
    EndSession(SessionId),
    /// A connection ended: its sessions and transient segments go.
    Disconnected(ConnectionId),
    /// Everything acknowledged so far is to be found without the log.
    FlushToStorage(Call),
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append(append) => f.debug_tuple("Append").field(&append.tag).finish(),
            Self::Call(request, _) => f.debug_tuple("Call").field(request).finish(),
            Self::EndSession(session) => f.debug_tuple("EndSession").field(session).finish(),
            Self::FlushToStorage(_) => f.write_str("FlushToStorage"),
            Self::Disconnected(connection) => f.debug_tuple("Disconnected").field(connection).finish(),
        }
    }
}

/// Condition on a table key, judged against the state before the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableCondition {
    /// None.
    Any,
    /// The key must not exist.
    Absent,
    /// The key must exist with this version.
    Version(i64),
}

/// An entry to put.
#[derive(Clone, Debug)]
pub struct TablePut {
    /// Key, not empty.
    pub key: Bytes,
    /// Value, may be empty.
    pub value: Bytes,
    /// Condition on the key.
    pub condition: TableCondition,
}

/// A change asked for by name. Names are canonical.
#[derive(Clone, Debug)]
pub enum Request {
    /// Creates a segment of any kind.
    Create {
        /// Canonical name.
        name: String,
        /// What it is.
        kind: SegmentKind,
        /// Scale policy.
        policy: Policy,
        /// Rollover size, bytes; 0 is the store's default.
        rollover_bytes: i64,
    },
    /// Seals a stream segment.
    Seal {
        /// Canonical name.
        name: String,
    },
    /// Deletes a segment; `table` tells which kind is meant.
    Delete {
        /// Canonical name.
        name: String,
        /// A table is meant.
        table: bool,
        /// The table must have no entry.
        must_be_empty: bool,
    },
    /// Moves a segment's start.
    Truncate {
        /// Canonical name.
        name: String,
        /// New start.
        offset: i64,
    },
    /// Changes the scale policy.
    UpdatePolicy {
        /// Canonical name.
        name: String,
        /// New policy.
        policy: Policy,
    },
    /// Reads an attribute.
    GetAttribute {
        /// Canonical name.
        name: String,
        /// The attribute.
        attribute: Uuid,
    },
    /// Compares and sets an attribute.
    UpdateAttribute {
        /// Canonical name.
        name: String,
        /// The attribute.
        attribute: Uuid,
        /// New value; the null value unsets.
        new_value: i64,
        /// The value it must have; the null value if unset.
        expected: i64,
    },
    /// Appends the whole of `source` to `target`.
    Merge {
        /// Canonical name.
        target: String,
        /// Canonical name.
        source: String,
        /// Changes of the target's attributes, with their conditions.
        updates: Vec<AttributeUpdate>,
    },
    /// Several merges, in order; a source that is missing counts as merged.
    MergeBatch {
        /// Canonical name.
        target: String,
        /// Canonical names.
        sources: Vec<String>,
    },
    /// Opens a session.
    SetupAppend {
        /// The session to open.
        session: SessionId,
        /// Canonical name.
        name: String,
        /// The writer.
        writer: Uuid,
    },
    /// Puts entries.
    TableUpdate {
        /// Canonical name.
        name: String,
        /// The entries, in order.
        puts: Vec<TablePut>,
        /// The table's length must equal this.
        expected_length: Option<i64>,
    },
    /// Removes keys.
    TableRemove {
        /// Canonical name.
        name: String,
        /// Keys with their conditions.
        keys: Vec<(Bytes, TableCondition)>,
        /// The table's length must equal this.
        expected_length: Option<i64>,
    },
}

impl Request {
    /// The names of the segments whose earlier requests must be judged before this one.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Create { name, .. }
            | Self::Seal { name }
            | Self::Delete { name, .. }
            | Self::Truncate { name, .. }
            | Self::UpdatePolicy { name, .. }
            | Self::GetAttribute { name, .. }
            | Self::UpdateAttribute { name, .. }
            | Self::SetupAppend { name, .. }
            | Self::TableUpdate { name, .. }
            | Self::TableRemove { name, .. } => vec![name],
            Self::Merge { target, source, .. } => vec![target, source],
            Self::MergeBatch { target, sources } => {
                std::iter::once(target).chain(sources).map(String::as_str).collect()
            }
        }
    }
}

/// A success, as durable as the state it was judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done; there is nothing to tell.
    Done,
    /// An attribute's value, or the null value.
    Attribute(i64),
    /// Whether an attribute condition held.
    AttributeUpdated(bool),
    /// The session is open; the writer's last number.
    SetUp {
        /// Last event number stored for the writer, or the null value.
        last: i64,
    },
    /// The append was stored.
    Appended {
        /// Last number acknowledged before.
        previous: i64,
        /// Length of the segment right after.
        length: u64,
    },
    /// The merge is done; length of the target after it.
    Merged(u64),
    /// One target length per source, in order.
    BatchMerged(Vec<u64>),
    /// One version per entry.
    TableUpdated(Vec<i64>),
}

/// Why a request changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such segment.
    NoSuchSegment,
    /// The name is taken.
    AlreadyExists,
    /// The segment is sealed.
    Sealed,
    /// The offset is outside what the segment allows; its start, or the length that a table really has.
    Truncated {
        /// The value that would have been right.
        start: u64,
    },
    /// The writer's number does not fit.
    InvalidEventNumber,
    /// A conditional append found another length.
    ConditionFailed,
    /// The table has entries.
    TableNotEmpty,
    /// A key with a version does not exist.
    KeyDoesNotExist,
    /// A key has another version.
    KeyBadVersion,
    /// This kind of segment does not offer it.
    Unsupported(&'static str),
    /// The request cannot be right.
    Illegal(&'static str),
    /// The writer has no session; only a broken client asks so.
    NoSession,
    /// The container cannot serve now; the connection closes and the client tries again.
    Unavailable,
}
