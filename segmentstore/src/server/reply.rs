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

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(refusal: &Refusal) -> Option<Command> {
        refused(Asked { request_id: 7, segment: "s/t/0".to_owned(), offset: 42 }, refusal)
    }

    #[test]
    fn refusals_are_told_with_id_segment_and_offset_of_the_request() {
        let (request_id, segment, server_stack_trace) = (7, "s/t/0".to_owned(), String::new());
        let missing = NoSuchSegment {
            request_id,
            segment: segment.clone(),
            server_stack_trace: server_stack_trace.clone(),
            offset: 42,
        };
        assert_eq!(reply(&Refusal::NoSuchSegment), Some(missing.into()));
        let sealed = SegmentIsSealed {
            request_id,
            segment: segment.clone(),
            server_stack_trace: server_stack_trace.clone(),
            offset: 42,
        };
        assert_eq!(reply(&Refusal::Sealed), Some(sealed.into()));
        let truncated =
            SegmentIsTruncated { request_id, segment, start_offset: 9, server_stack_trace, offset: 42 };
        assert_eq!(reply(&Refusal::Truncated { start: 9 }), Some(truncated.into()));
    }

    #[test]
    fn each_refusal_has_the_reply_that_clients_expect() {
        let codes = [
            (Refusal::AlreadyExists, 52),
            (Refusal::Sealed, 51),
            (Refusal::NoSuchSegment, 53),
            (Refusal::Truncated { start: 0 }, 56),
            (Refusal::Unsupported("x"), 57),
            (Refusal::TableNotEmpty, 80),
            (Refusal::KeyDoesNotExist, 81),
            (Refusal::KeyBadVersion, 82),
        ];
        for (refusal, code) in codes {
            assert_eq!(reply(&refusal).map(|command| command.code()), Some(code), "{refusal:?}");
        }
        let Some(Command::ErrorMessage(message)) = reply(&Refusal::Illegal("why")) else {
            panic!("no message")
        };
        assert_eq!((message.request_id, message.error_code, message.message.as_str()), (7, 0, "why"));
    }

    #[test]
    fn what_a_client_should_try_again_closes_the_connection() {
        for refusal in [Refusal::Unavailable, Refusal::InvalidEventNumber, Refusal::NoSession] {
            assert_eq!(reply(&refusal), None, "{refusal:?}");
        }
    }

    #[test]
    fn lengths_beyond_the_protocol_are_its_largest() {
        assert_eq!(signed(5), 5);
        assert_eq!(signed(u64::MAX), i64::MAX);
    }
}
