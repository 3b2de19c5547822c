//! Outcomes as commands of the protocol.

use crate::operation::Refusal;
use dhara_wire::command::{
    Command, ErrorMessage, NoSuchSegment, OperationUnsupported, SegmentAlreadyExists,
    SegmentAttributeUpdated, SegmentIsSealed, SegmentIsTruncated, TableKeyBadVersion, TableKeyDoesNotExist,
    TableSegmentNotEmpty,
};

/// `ErrorMessage` code for an illegal argument.
pub(super) const ILLEGAL_ARGUMENT: i32 = 0;

/// What a failed request is called in its reply.
pub(super) struct Asked {
    pub(super) request_id: i64,
    /// The segment as the request spelled it.
    pub(super) segment: String,
    /// The offset of the request, −1 where it has none.
    pub(super) offset: i64,
}

/// The reply to a refused request; `None` closes the connection, which every client takes as "try again".
pub(super) fn refused(asked: Asked, refusal: &Refusal) -> Option<Command> {
    let Asked { request_id, segment, offset } = asked;
    let server_stack_trace = String::new();
    Some(match refusal {
        Refusal::NoSuchSegment => NoSuchSegment { request_id, segment, server_stack_trace, offset }.into(),
        Refusal::AlreadyExists => SegmentAlreadyExists { request_id, segment, server_stack_trace }.into(),
        Refusal::Sealed => SegmentIsSealed { request_id, segment, server_stack_trace, offset }.into(),
        Refusal::Truncated { start } => {
            let start_offset = signed(*start);
            SegmentIsTruncated { request_id, segment, start_offset, server_stack_trace, offset }.into()
        }
        Refusal::TableNotEmpty => TableSegmentNotEmpty { request_id, segment, server_stack_trace }.into(),
        Refusal::KeyDoesNotExist => TableKeyDoesNotExist { request_id, segment, server_stack_trace }.into(),
        Refusal::KeyBadVersion => TableKeyBadVersion { request_id, segment, server_stack_trace }.into(),
        Refusal::Unsupported(operation) => {
            let operation_name = (*operation).to_owned();
            OperationUnsupported { request_id, operation_name, server_stack_trace }.into()
        }
        Refusal::Illegal(why) => illegal(request_id, segment, why),
        Refusal::ConditionFailed => SegmentAttributeUpdated { request_id, success: false }.into(),
        Refusal::InvalidEventNumber | Refusal::NoSession | Refusal::Unavailable => return None,
    })
}

/// The reply to a request that cannot be right.
pub(super) fn illegal(request_id: i64, segment: String, why: &str) -> Command {
    ErrorMessage { request_id, segment, message: why.to_owned(), error_code: ILLEGAL_ARGUMENT }.into()
}

/// A length or offset as the protocol writes it; no segment grows beyond.
pub(super) fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
