//! A stream segment's name, taken apart.

use super::EPOCH;
use std::fmt;
use std::str::FromStr;

/// A segment of a stream: its number, and the stream epoch in which it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(i64);

impl SegmentId {
    /// Joins a number and an epoch.
    ///
    /// # Panics
    /// If either is negative.
    pub fn new(number: i32, epoch: i32) -> Self {
        assert!(number >= 0 && epoch >= 0, "segment {number} of epoch {epoch}");
        Self((i64::from(epoch) << 32) | i64::from(number))
    }

    /// Takes the number that the controller's calls carry. It may come from a peer, so either half may be negative.
    pub const fn from_raw(raw: i64) -> Self {
        Self(raw)
    }

    /// The number that the controller's calls carry.
    pub const fn raw(self) -> i64 {
        self.0
    }

    /// The segment's number, unique in its stream and epoch.
    pub const fn number(self) -> i32 {
        let [.., a, b, c, d] = self.0.to_be_bytes();
        i32::from_be_bytes([a, b, c, d])
    }

    /// The stream epoch in which the segment was created.
    pub const fn epoch(self) -> i32 {
        let [a, b, c, d, ..] = self.0.to_be_bytes();
        i32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{EPOCH}{}", self.number(), self.epoch())
    }
}

/// A stream in its scope, written `scope/stream`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName {
    /// The scope; empty in names of old streams that had none.
    pub scope: String,
    /// The stream's name in the scope.
    pub stream: String,
}

impl StreamName {
    /// Names a stream in a scope.
    pub fn new(scope: impl Into<String>, stream: impl Into<String>) -> Self {
        Self { scope: scope.into(), stream: stream.into() }
    }

    /// Names a segment of this stream.
    pub fn segment(&self, id: SegmentId) -> SegmentName {
        SegmentName { stream: self.clone(), id }
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scope.is_empty() {
            write!(f, "{}/", self.scope)?;
        }
        f.write_str(&self.stream)
    }
}

/// A text that is not the name it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the name of a {what}")]
pub struct NameError {
    /// What was expected.
    pub what: &'static str,
    /// What was found.
    pub text: String,
}

impl FromStr for StreamName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (scope, stream) = text.split_once('/').unwrap_or(("", text));
        let malformed =
            stream.is_empty() || stream.contains('/') || text.starts_with('/') || text.contains('#');
        if malformed {
            return Err(NameError { what: "stream", text: text.to_owned() });
        }
        Ok(Self::new(scope, stream))
    }
}

/// A stream segment's qualified name, written `scope/stream/number.#epoch.epoch`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The stream.
    pub stream: StreamName,
    /// Which of its segments.
    pub id: SegmentId,
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.id)
    }
}

impl FromStr for SegmentName {
    type Err = NameError;

    /// Reads a name; one without an epoch is of epoch 0. Names of transactions and transient segments are refused.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            let (stream, segment) = text.rsplit_once('/')?;
            let (number, epoch) = segment.split_once(EPOCH).unwrap_or((segment, "0"));
            let id = SegmentId::new(natural(number)?, natural(epoch)?);
            Some(Self { stream: stream.parse().ok()?, id })
        };
        parse().ok_or_else(|| NameError { what: "stream segment", text: text.to_owned() })
    }
}

/// Reads a decimal number in its only spelling: no sign, no leading zero.
fn natural(text: &str) -> Option<i32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}
