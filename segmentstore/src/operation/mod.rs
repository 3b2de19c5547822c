//! What is asked of a container, what it decides, and what it answers.
//!
//! A [`Request`] asks; a [`Record`] says what was decided and is what the log holds; an [`Answer`] or [`Refusal`] is
//! what the asker hears once the state it was judged by is durable. Nothing here judges or changes anything.

mod extent;
mod record;
mod request;

pub use extent::{Extent, read_stored, write_stored};
pub use record::{
    APPENDED_HEADER_BYTES, Policy, RECORD_VERSION, Record, RecordError, SegmentKind, TableChange, read_kind,
    write_kind,
};
pub use request::{
    Answer, Append, AppendReply, AppendTag, Call, ConnectionId, Operation, Refusal, Request, SessionId,
    TableCondition, TablePut,
};
