//! Primitive encodings of the segment store protocol: big-endian integers, modified UTF-8, blobs and lists.
//!
//! Decoding never panics and never allocates more than the bytes it was given.

use crate::limits::LIST_ELEMENTS_MAX;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Why bytes could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The payload ends inside a mandatory field.
    #[error("payload ends {missing} bytes early")]
    Short {
        /// Bytes that the field still needed.
        missing: usize,
    },
    /// A length or count is negative, or promises more than the payload holds.
    #[error("length {length} is outside 0..={max}")]
    Length {
        /// The length as it stood in the payload.
        length: i64,
        /// The largest length that could be true here.
        max: usize,
    },
    /// Text is neither standard nor Java's modified UTF-8.
    #[error("text is not modified UTF-8")]
    Text,
    /// The type code is not one of the protocol, or is retired.
    #[error("unknown command code {code}")]
    Code {
        /// The code as it stood in the frame.
        code: i32,
    },
    /// A nested element has an illegal type or shape.
    #[error("malformed {what}")]
    Malformed {
        /// The element's name in the protocol.
        what: &'static str,
    },
}

/// The unread rest of a payload; blobs come out as slices of it, without a copy.
#[derive(Debug)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// Reads from the start of `payload`.
    pub fn new(payload: Bytes) -> Self {
        Self { rest: payload }
    }

    /// Number of bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `length` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if fewer are left.
    pub fn take(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        self.need(length)?;
        Ok(self.rest.split_to(length))
    }

    /// Takes everything that is left.
    pub fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    /// Reads an `i32` that counts bytes or elements which must still follow.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if it is negative or larger than the bytes left.
    pub fn length(&mut self) -> Result<usize, DecodeError> {
        let length = i32::get(self)?;
        let max = self.remaining();
        match usize::try_from(length) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(DecodeError::Length { length: i64::from(length), max }),
        }
    }

    fn need(&self, length: usize) -> Result<(), DecodeError> {
        match length.checked_sub(self.rest.len()) {
            None | Some(0) => Ok(()),
            Some(missing) => Err(DecodeError::Short { missing }),
        }
    }
}

/// A value with one encoding in the protocol.
pub trait Wire: Sized {
    /// No encoding is shorter.
    const BYTES_MIN: usize = 1;

    /// Appends the encoding of `self` to `out`.
    fn put(&self, out: &mut BytesMut);
    /// Reads a value.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are too few or not an encoding of this type.
    fn get(from: &mut Reader) -> Result<Self, DecodeError>;
}

impl Wire for i8 {
    fn put(&self, out: &mut BytesMut) {
        out.put_i8(*self);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        from.need(1)?;
        Ok(from.rest.get_i8())
    }
}

impl Wire for bool {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(u8::from(*self));
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(i8::get(from)? != 0)
    }
}

impl Wire for i32 {
    fn put(&self, out: &mut BytesMut) {
        out.put_i32(*self);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        from.need(4)?;
        Ok(from.rest.get_i32())
    }
}

impl Wire for i64 {
    const BYTES_MIN: usize = 8;

    fn put(&self, out: &mut BytesMut) {
        out.put_i64(*self);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        from.need(8)?;
        Ok(from.rest.get_i64())
    }
}

/// A UUID as a number: its most significant 64 bits come first on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub u128);

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            n >> 96,
            (n >> 80) & 0xffff,
            (n >> 64) & 0xffff,
            (n >> 48) & 0xffff,
            n & 0xffff_ffff_ffff
        )
    }
}

impl Wire for Uuid {
    fn put(&self, out: &mut BytesMut) {
        out.put_u128(self.0);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        from.need(16)?;
        Ok(Self(from.rest.get_u128()))
    }
}

/// Bytes behind an `i32` length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blob(pub Bytes);

impl Wire for Blob {
    fn put(&self, out: &mut BytesMut) {
        put_length(self.0.len(), out);
        out.extend_from_slice(&self.0);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        let length = from.length()?;
        Ok(Self(from.take(length)?))
    }
}

/// All bytes up to the end of the frame, without a length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest(pub Bytes);

impl Wire for Rest {
    fn put(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.0);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self(from.take_rest()))
    }
}

impl Wire for String {
    const BYTES_MIN: usize = 2;

    fn put(&self, out: &mut BytesMut) {
        put_text(self, out);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        from.need(2)?;
        let length = usize::from(from.rest.get_u16());
        get_text(&from.take(length)?)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut BytesMut) {
        put_length(self.len(), out);
        for item in self {
            item.put(out);
        }
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        let length = i32::get(from)?;
        // What a list takes in memory is bounded by what came, whatever count stands before it.
        let max = (from.remaining() / T::BYTES_MIN).min(LIST_ELEMENTS_MAX);
        let count = usize::try_from(length).ok().filter(|count| *count <= max);
        let count = count.ok_or(DecodeError::Length { length: i64::from(length), max })?;
        let mut items = Self::with_capacity(count);
        for _ in 0..count {
            items.push(T::get(from)?);
        }
        Ok(items)
    }
}

/// Writes `length` as the `i32` that precedes blobs and lists.
///
/// # Panics
/// If `length` does not fit an `i32`; no frame can hold so much, so only a bug can bring it here.
pub(crate) fn put_length(length: usize, out: &mut BytesMut) {
    assert!(length <= 0x7fff_ffff, "length {length} does not fit an i32");
    out.put_i32(i32::try_from(length).unwrap_or(i32::MAX));
}

/// Writes text as Java's modified UTF-8, cut at a character if it would not fit 65,535 bytes.
fn put_text(text: &str, out: &mut BytesMut) {
    let start = out.len();
    out.put_u16(0);
    if u16::try_from(text.len()).is_ok() && text.bytes().all(|b| b != 0 && b < 0xf0) {
        out.extend_from_slice(text.as_bytes());
    } else {
        put_modified(text, start + 2 + usize::from(u16::MAX), out);
    }
    let length = u16::try_from(out.len() - start - 2).unwrap_or(u16::MAX);
    out[start..start + 2].copy_from_slice(&length.to_be_bytes());
}

fn put_modified(text: &str, end_max: usize, out: &mut BytesMut) {
    let mut encoded = [0_u8; 6];
    for character in text.chars() {
        let length = encode_modified(character, &mut encoded);
        if out.len() + length > end_max {
            break;
        }
        out.extend_from_slice(&encoded[..length]);
    }
}

/// Encodes one character; returns how many bytes of `into` it took.
fn encode_modified(character: char, into: &mut [u8; 6]) -> usize {
    if character == '\0' {
        into[..2].copy_from_slice(&[0xc0, 0x80]);
        return 2;
    }
    if u32::from(character) < 0x1_0000 {
        return character.encode_utf8(into).len();
    }
    let mut units = [0_u16; 2];
    character.encode_utf16(&mut units);
    for (i, unit) in units.into_iter().enumerate() {
        let [high, low] = unit.to_be_bytes();
        into[3 * i] = 0xe0 | (high >> 4);
        into[3 * i + 1] = 0x80 | ((high & 0x0f) << 2) | (low >> 6);
        into[3 * i + 2] = 0x80 | (low & 0x3f);
    }
    6
}

/// Reads standard or modified UTF-8: peers of both kinds are about.
fn get_text(bytes: &[u8]) -> Result<String, DecodeError> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(text.to_owned());
    }
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((unit, used)) = decode_unit(rest) {
        units.push(unit);
        rest = &rest[used..];
    }
    if !rest.is_empty() {
        return Err(DecodeError::Text);
    }
    String::from_utf16(&units).map_err(|_not_paired| DecodeError::Text)
}

/// Decodes one UTF-16 unit of one to three bytes; `None` at the end or at an illegal byte.
fn decode_unit(bytes: &[u8]) -> Option<(u16, usize)> {
    let continued = |i: usize| bytes.get(i).filter(|b| **b & 0xc0 == 0x80).map(|b| u16::from(b & 0x3f));
    match *bytes.first()? {
        first @ 0x01..=0x7f => Some((u16::from(first), 1)),
        first @ 0xc0..=0xdf => Some(((u16::from(first & 0x1f) << 6) | continued(1)?, 2)),
        first @ 0xe0..=0xef => {
            Some(((u16::from(first & 0x0f) << 12) | (continued(1)? << 6) | continued(2)?, 3))
        }
        _ => None,
    }
}
