//! What the server answers.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use chrono::DateTime;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, StatusCode, header};

use super::bucket::Object;
use super::line::Line;
use super::xml;

/// Bytes of an answer that go out at once.
const PIECE_BYTES: usize = 64 << 10;

/// Why a call is refused, in S3's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum S3Error {
    AccessDenied,
    EntityTooSmall,
    InvalidArgument,
    InvalidPart,
    InvalidRange,
    MalformedXml,
    NoSuchBucket,
    NoSuchKey,
    NoSuchUpload,
    NotImplemented,
    NotModified,
    PreconditionFailed,
    /// What a fault says.
    Status(u16),
}

impl S3Error {
    fn code(self) -> &'static str {
        match self {
            Self::AccessDenied | Self::Status(403) => "AccessDenied",
            Self::EntityTooSmall => "EntityTooSmall",
            Self::InvalidArgument => "InvalidArgument",
            Self::InvalidPart => "InvalidPart",
            Self::InvalidRange => "InvalidRange",
            Self::MalformedXml => "MalformedXML",
            Self::NoSuchBucket => "NoSuchBucket",
            Self::NoSuchKey => "NoSuchKey",
            Self::NoSuchUpload => "NoSuchUpload",
            Self::NotImplemented => "NotImplemented",
            Self::NotModified => "NotModified",
            Self::PreconditionFailed => "PreconditionFailed",
            Self::Status(409) => "ConditionalRequestConflict",
            Self::Status(503) => "SlowDown",
            Self::Status(_) => "InternalError",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::AccessDenied => StatusCode::FORBIDDEN,
            Self::EntityTooSmall | Self::InvalidArgument | Self::InvalidPart | Self::MalformedXml => {
                StatusCode::BAD_REQUEST
            }
            Self::InvalidRange => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::NoSuchBucket | Self::NoSuchKey | Self::NoSuchUpload => StatusCode::NOT_FOUND,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::NotModified => StatusCode::NOT_MODIFIED,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::Status(status) => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// An answer before it is sent.
#[derive(Debug)]
pub(super) struct Answer {
    response: Response<()>,
    body: Bytes,
    /// For `HEAD`: a length without the bytes.
    is_head: bool,
}

impl Answer {
    fn new(status: StatusCode, body: Bytes) -> Self {
        let mut response = Response::new(());
        *response.status_mut() = status;
        Self { response, body, is_head: false }
    }

    /// Done, and nothing to say.
    pub(super) fn done() -> Self {
        Self::new(StatusCode::OK, Bytes::new())
    }

    /// Gone, and nothing to say.
    pub(super) fn gone() -> Self {
        Self::new(StatusCode::NO_CONTENT, Bytes::new())
    }

    /// Stored under this tag.
    pub(super) fn stored(e_tag: &str) -> Self {
        Self::done().with(header::ETAG, e_tag)
    }

    /// A document.
    pub(super) fn xml(body: String) -> Self {
        Self::new(StatusCode::OK, body.into()).with(header::CONTENT_TYPE, "application/xml")
    }

    /// A refusal.
    pub(super) fn error(error: S3Error) -> Self {
        let mut document = xml::Document::new();
        document.open("Error");
        document.leaf("Code", error.code());
        document.leaf("Message", error.code());
        document.close("Error");
        let mut answer = Self::xml(document.finish());
        *answer.response.status_mut() = error.status();
        if error == S3Error::NotModified {
            answer.body = Bytes::new();
        }
        answer
    }

    /// An object, or the part of it in `part`.
    pub(super) fn object(object: &Object, part: Option<std::ops::Range<usize>>) -> Self {
        let length = object.bytes.len();
        let answer = match part {
            None => Self::new(StatusCode::OK, object.bytes.clone()),
            Some(part) => {
                let range = format!("bytes {}-{}/{length}", part.start, part.end.saturating_sub(1));
                Self::new(StatusCode::PARTIAL_CONTENT, object.bytes.slice(part))
                    .with(header::CONTENT_RANGE, &range)
            }
        };
        let modified = DateTime::from_timestamp_millis(object.modified_ms).unwrap_or_default();
        answer
            .with(header::ETAG, &object.e_tag)
            .with(header::ACCEPT_RANGES, "bytes")
            .with(header::LAST_MODIFIED, &modified.format("%a, %d %b %Y %H:%M:%S GMT").to_string())
    }

    /// The same, of which `HEAD` gets everything but the bytes.
    pub(super) fn head(mut self) -> Self {
        self.is_head = true;
        self
    }

    fn with(mut self, name: header::HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.response.headers_mut().insert(name, value);
        }
        self
    }

    /// Sends it: with a pause before each piece, and if it is to be torn, the line breaks in the middle.
    pub(super) fn into_response(self, pause: Duration, torn: Option<Line>) -> Response {
        let length = self.body.len();
        let answer = self.with(header::CONTENT_LENGTH, &length.to_string());
        let (is_head, body) = (answer.is_head, answer.body);
        let body = match torn {
            _ if is_head => Body::empty(),
            None if pause.is_zero() => Body::from(body),
            None => in_pieces(body, pause, None),
            Some(line) => in_pieces(body.slice(..length / 2), pause, Some(line)),
        };
        answer.response.map(|()| body)
    }
}

fn in_pieces(body: Bytes, pause: Duration, then_cut: Option<Line>) -> Body {
    let pieces = stream::unfold((body, then_cut), move |(mut body, then_cut)| async move {
        tokio::time::sleep(pause).await;
        if body.is_empty() {
            let line = then_cut?;
            line.cut();
            let broken = Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            return Some((broken, (body, None)));
        }
        let piece = body.split_to(PIECE_BYTES.min(body.len()));
        Some((Ok(piece), (body, then_cut)))
    });
    Body::from_stream(pieces.boxed())
}
