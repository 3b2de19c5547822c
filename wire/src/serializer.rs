//! The envelope and primitives in which Java clients store positions, cuts and reader-group state.
//!
//! An object is a version and revisions, each behind its length, so that a reader skips what is younger than it.
//! Integers, text, UUIDs and booleans are those of [`crate::codec`]; the compact integers are here.
//!
//! # Source
//! Pravega's `VersionedSerializer` and `RevisionDataOutput`.

use crate::codec::{DecodeError, Reader, Wire};
use bytes::{BufMut, Bytes, BytesMut};

/// Largest value of a compact `i64`.
pub const COMPACT_LONG_MAX: i64 = 0x3fff_ffff_ffff_fffe;
/// Largest value of a compact `i32`.
pub const COMPACT_INT_MAX: i32 = 0x3fff_fffe;
/// Largest magnitude of a compact signed `i64`.
const COMPACT_SIGNED_MAX: i64 = 0x1fff_ffff_ffff_fffe;
/// The only format of the envelope.
const FORMAT: u8 = 0;

/// Writes the body of one revision.
pub type PutRevision<'a> = &'a dyn Fn(&mut BytesMut);

/// Writes an object of `version` with the bodies that `revisions` write, in order.
///
/// # Panics
/// If there are more than 127 revisions.
pub fn put_object(out: &mut BytesMut, version: u8, revisions: &[PutRevision<'_>]) {
    assert!(revisions.len() <= 127, "{} revisions", revisions.len());
    out.put_u8(FORMAT);
    put_version(out, version, revisions);
}

/// Writes an object of one of many types.
///
/// # Panics
/// If there are more than 127 revisions.
pub fn put_typed_object(out: &mut BytesMut, type_id: u8, version: u8, revisions: &[PutRevision<'_>]) {
    assert!(revisions.len() <= 127, "{} revisions", revisions.len());
    out.put_u8(FORMAT);
    out.put_u8(type_id);
    put_version(out, version, revisions);
}

fn put_version(out: &mut BytesMut, version: u8, revisions: &[PutRevision<'_>]) {
    out.put_u8(version);
    out.put_u8(u8::try_from(revisions.len()).unwrap_or(u8::MAX));
    for (id, revision) in (0..).zip(revisions) {
        out.put_u8(id);
        let start = out.len();
        out.put_u32(0);
        revision(out);
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// An object as read: its version, and the bodies of its revisions, known or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The version; versions are incompatible with each other.
    pub version: u8,
    revisions: Vec<Bytes>,
}

impl Object {
    /// Reads an object; what follows it is left.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are too few or no envelope.
    pub fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        get_format(from)?;
        Self::get_version(from)
    }

    /// Reads an object of one of many types; returns the type's id beside it.
    ///
    /// # Errors
    /// As [`Object::get`].
    pub fn get_typed(from: &mut Reader) -> Result<(u8, Self), DecodeError> {
        get_format(from)?;
        Ok((get_u8(from)?, Self::get_version(from)?))
    }

    /// A reader over the body of the revision, which may hold more than is known; `None` if the writer was older.
    pub fn revision(&self, id: usize) -> Option<Reader> {
        self.revisions.get(id).cloned().map(Reader::new)
    }

    fn get_version(from: &mut Reader) -> Result<Self, DecodeError> {
        let version = get_u8(from)?;
        let count =
            usize::try_from(i8::get(from)?).map_err(|_negative| DecodeError::Malformed { what: "object" })?;
        let mut revisions = Vec::with_capacity(count);
        for id in 0..count {
            if usize::from(get_u8(from)?) != id {
                return Err(DecodeError::Malformed { what: "revision" });
            }
            let length = from.length()?;
            revisions.push(from.take(length)?);
        }
        Ok(Self { version, revisions })
    }
}

fn get_format(from: &mut Reader) -> Result<(), DecodeError> {
    if get_u8(from)? == FORMAT { Ok(()) } else { Err(DecodeError::Malformed { what: "format" }) }
}

fn get_u8(from: &mut Reader) -> Result<u8, DecodeError> {
    i8::get(from).map(i8::cast_unsigned)
}

/// Writes `0..=COMPACT_INT_MAX` in 1, 2 or 4 bytes.
///
/// # Panics
/// If `value` is outside.
pub fn put_compact_int(out: &mut BytesMut, value: i32) {
    assert!((0..=COMPACT_INT_MAX).contains(&value), "{value} has no compact form");
    let [.., high, low] = value.to_be_bytes();
    match value {
        0..0x80 => out.put_u8(low),
        0x80..0x4000 => out.put_slice(&[high | 0x80, low]),
        _ => out.put_u32(value.cast_unsigned() | 0xc000_0000),
    }
}

/// Reads what [`put_compact_int`] writes, in any of its widths.
///
/// # Errors
/// [`DecodeError::Short`] if the bytes are too few.
pub fn get_compact_int(from: &mut Reader) -> Result<i32, DecodeError> {
    let first = get_u8(from)?;
    let width = match first >> 6 {
        0 | 1 => return Ok(i32::from(first)),
        2 => 2,
        _ => 4,
    };
    let value = get_rest(from, first & 0x3f, width)?;
    i32::try_from(value).map_err(|_large| DecodeError::Malformed { what: "compact number" })
}

/// Writes `0..=COMPACT_LONG_MAX` in 1, 2, 4 or 8 bytes.
///
/// # Panics
/// If `value` is outside.
pub fn put_compact_long(out: &mut BytesMut, value: i64) {
    assert!((0..=COMPACT_LONG_MAX).contains(&value), "{value} has no compact form");
    let class: u64 = match value {
        0..0x40 => 0,
        0x40..0x4000 => 1,
        0x4000..0x4000_0000 => 2,
        _ => 3,
    };
    let bytes = 1_usize << class;
    let shifted = (class << (8 * bytes - 2)) | value.cast_unsigned();
    out.put_slice(&shifted.to_be_bytes()[8 - bytes..]);
}

/// Reads what [`put_compact_long`] writes, in any of its widths.
///
/// # Errors
/// [`DecodeError::Short`] if the bytes are too few.
pub fn get_compact_long(from: &mut Reader) -> Result<i64, DecodeError> {
    let first = get_u8(from)?;
    get_rest(from, first & 0x3f, 1 << (first >> 6))
}

/// Writes a number of at most 61 bits and its sign in 1, 2, 4 or 8 bytes.
///
/// # Panics
/// If `value` is outside `-(2^61 - 1)..=2^61 - 2`.
pub fn put_compact_signed(out: &mut BytesMut, value: i64) {
    let magnitude = if value < 0 { !value } else { value };
    assert!(magnitude <= COMPACT_SIGNED_MAX, "{value} has no compact form");
    let class: u64 = match magnitude {
        0..0x20 => 0,
        0x20..0x2000 => 1,
        0x2000..0x2000_0000 => 2,
        _ => 3,
    };
    let bytes = 1_usize << class;
    let sign = u64::from(value < 0) << (8 * bytes - 1);
    let shifted = sign | (class << (8 * bytes - 3)) | magnitude.cast_unsigned();
    out.put_slice(&shifted.to_be_bytes()[8 - bytes..]);
}

/// Reads what [`put_compact_signed`] writes, in any of its widths.
///
/// # Errors
/// [`DecodeError`] if the bytes are too few or the magnitude too large.
pub fn get_compact_signed(from: &mut Reader) -> Result<i64, DecodeError> {
    let first = get_u8(from)?;
    let magnitude = get_rest(from, first & 0x1f, 1 << ((first >> 5) & 3))?;
    if magnitude > COMPACT_SIGNED_MAX {
        return Err(DecodeError::Malformed { what: "compact number" });
    }
    Ok(if first & 0x80 == 0 { magnitude } else { !magnitude })
}

/// Reads the bytes after the first of a compact number of `width` bytes; `first` without its prefix.
fn get_rest(from: &mut Reader, first: u8, width: usize) -> Result<i64, DecodeError> {
    let rest = from.take(width - 1)?;
    Ok(rest.iter().fold(i64::from(first), |value, byte| (value << 8) | i64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written<T>(put: impl Fn(&mut BytesMut, T), value: T) -> BytesMut {
        let mut out = BytesMut::new();
        put(&mut out, value);
        out
    }

    #[test]
    fn compact_numbers_are_those_of_java() {
        for (value, bytes) in [
            (127, &[0x7f_u8][..]),
            (128, &[0x80, 0x80]),
            (300, &[0x81, 0x2c]),
            (16383, &[0xbf, 0xff]),
            (16384, &[0xc0, 0, 0x40, 0]),
            (COMPACT_INT_MAX, &[0xff, 0xff, 0xff, 0xfe]),
        ] {
            assert_eq!(written(put_compact_int, value), bytes, "{value}");
        }
        for (value, bytes) in [
            (63, &[0x3f_u8][..]),
            (64, &[0x40, 0x40]),
            (16383, &[0x7f, 0xff]),
            (16384, &[0x80, 0, 0x40, 0]),
            ((1 << 30) - 1, &[0xbf, 0xff, 0xff, 0xff]),
            (1 << 30, &[0xc0, 0, 0, 0, 0x40, 0, 0, 0]),
            (0x1_0000_0007, &[0xc0, 0, 0, 1, 0, 0, 0, 7]),
            (COMPACT_LONG_MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]),
        ] {
            assert_eq!(written(put_compact_long, value), bytes, "{value}");
        }
        for (value, bytes) in [
            (31, &[0x1f_u8][..]),
            (32, &[0x20, 0x20]),
            (-1, &[0x80]),
            (-32, &[0x9f]),
            (-33, &[0xa0, 0x20]),
            (8191, &[0x3f, 0xff]),
            (8192, &[0x40, 0, 0x20, 0]),
            (-8192, &[0xbf, 0xff]),
            (-8193, &[0xc0, 0, 0x20, 0]),
            (536_870_911, &[0x5f, 0xff, 0xff, 0xff]),
            (536_870_912, &[0x60, 0, 0, 0, 0x20, 0, 0, 0]),
            (-536_870_913, &[0xe0, 0, 0, 0, 0x20, 0, 0, 0]),
        ] {
            assert_eq!(written(put_compact_signed, value), bytes, "{value}");
        }
    }

    #[test]
    fn younger_revisions_are_skipped_and_missing_ones_told() {
        let mut out = BytesMut::new();
        put_typed_object(&mut out, 2, 0, &[&|out| "r1".to_owned().put(out), &|out| out.put_u8(9)]);
        assert_eq!(out, &b"\0\x02\0\x02\0\0\0\0\x04\0\x02r1\x01\0\0\0\x01\x09"[..]);
        let (type_id, object) = Object::get_typed(&mut Reader::new(out.freeze())).unwrap();
        assert_eq!((type_id, object.version), (2, 0));
        assert_eq!(String::get(&mut object.revision(0).unwrap()), Ok("r1".to_owned()));
        assert!(object.revision(2).is_none());
    }

    #[test]
    fn what_is_no_envelope_is_an_error() {
        for bytes in [
            &b""[..],
            b"\x01\0\0",
            b"\0\0\x80",
            b"\0\0\x01\x01\0\0\0\0",
            b"\0\0\x01\0\0\0\0\x01",
            b"\0\0\x01\0\xff\xff\xff\xff",
        ] {
            assert!(Object::get(&mut Reader::new(Bytes::from_static(bytes))).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn compact_numbers_survive(int in 0..=COMPACT_INT_MAX, long in 0..=COMPACT_LONG_MAX, signed in -COMPACT_SIGNED_MAX..=COMPACT_SIGNED_MAX, shift in 0..62_u32) {
            let (int, long, signed) = (int >> shift.min(30), long >> shift, signed >> shift);
            let mut out = written(put_compact_int, int);
            put_compact_long(&mut out, long);
            put_compact_signed(&mut out, signed);
            let from = &mut Reader::new(out.freeze());
            prop_assert_eq!(get_compact_int(from), Ok(int));
            prop_assert_eq!(get_compact_long(from), Ok(long));
            prop_assert_eq!(get_compact_signed(from), Ok(signed));
            prop_assert_eq!(from.remaining(), 0);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let reader = || Reader::new(Bytes::from(bytes.clone()));
            let _object = Object::get(&mut reader());
            let _typed = Object::get_typed(&mut reader());
            let _numbers = (get_compact_int(&mut reader()), get_compact_long(&mut reader()), get_compact_signed(&mut reader()));
        }
    }
}
