//! How rows are written: fields in order, big-endian, no names; texts, lists and maps behind a 32-bit count.
//!
//! A row starts with one byte naming its format, so that a later format can tell the old one apart. Decoding checks
//! every length against the bytes that are left and never panics.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Format byte of the rows written today.
const FORMAT: u8 = 1;

/// A row that cannot be read: foreign format, cut short, or trailing bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reading a controller row: {0}")]
pub(crate) struct CorruptRow(pub(crate) &'static str);

/// A value that is stored as a whole row.
pub(crate) trait Row: Field {
    /// Writes the row with its format byte.
    fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        out.put_u8(FORMAT);
        self.put(&mut out);
        out.freeze()
    }

    /// Reads a row written by [`Row::to_bytes`].
    fn from_bytes(bytes: &Bytes) -> Result<Self, CorruptRow> {
        let mut from = bytes.clone();
        if u8::get(&mut from)? != FORMAT {
            return Err(CorruptRow("unknown format"));
        }
        let row = Self::get(&mut from)?;
        if from.has_remaining() { Err(CorruptRow("trailing bytes")) } else { Ok(row) }
    }
}

/// A value inside a row.
pub(crate) trait Field: Sized {
    /// Appends the value.
    fn put(&self, out: &mut BytesMut);
    /// Takes the value off the front.
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow>;
}

/// Implements [`Field`] for a struct, field by field in the order given.
macro_rules! fields {
    ($($type:ty { $($field:ident),* $(,)? })*) => { $(
        impl $crate::record::codec::Field for $type {
            fn put(&self, out: &mut ::bytes::BytesMut) {
                $( $crate::record::codec::Field::put(&self.$field, out); )*
            }
            fn get(from: &mut ::bytes::Bytes) -> Result<Self, $crate::record::codec::CorruptRow> {
                Ok(Self { $( $field: $crate::record::codec::Field::get(from)? ),* })
            }
        }
    )* };
}

/// Implements [`Field`] for an enum without data as one byte.
macro_rules! tags {
    ($($type:ty { $($variant:ident = $tag:literal),* $(,)? })*) => { $(
        impl $crate::record::codec::Field for $type {
            fn put(&self, out: &mut ::bytes::BytesMut) {
                let tag: u8 = match self { $( Self::$variant => $tag, )* };
                $crate::record::codec::Field::put(&tag, out);
            }
            fn get(from: &mut ::bytes::Bytes) -> Result<Self, $crate::record::codec::CorruptRow> {
                match <u8 as $crate::record::codec::Field>::get(from)? {
                    $( $tag => Ok(Self::$variant), )*
                    _ => Err($crate::record::codec::CorruptRow("unknown tag")),
                }
            }
        }
    )* };
}

pub(crate) use {fields, tags};

/// Says that `from` must hold `bytes` more bytes.
fn need(from: &Bytes, bytes: usize) -> Result<(), CorruptRow> {
    if from.remaining() < bytes { Err(CorruptRow("cut short")) } else { Ok(()) }
}

macro_rules! numbers {
    ($($type:ty, $bytes:literal, $put:ident, $get:ident;)*) => { $(
        impl Field for $type {
            fn put(&self, out: &mut BytesMut) {
                out.$put(*self);
            }
            fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
                need(from, $bytes)?;
                Ok(from.$get())
            }
        }
    )* };
}

numbers! {
    u8, 1, put_u8, get_u8;
    u32, 4, put_u32, get_u32;
    i32, 4, put_i32, get_i32;
    u64, 8, put_u64, get_u64;
    i64, 8, put_i64, get_i64;
    u128, 16, put_u128, get_u128;
    f64, 8, put_f64, get_f64;
}

impl Field for bool {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(u8::from(*self));
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CorruptRow("unknown tag")),
        }
    }
}

/// Writes the number of elements or bytes that follow; rows stay far below 4 GiB.
fn put_count(count: usize, out: &mut BytesMut) {
    out.put_u32(u32::try_from(count).unwrap_or(u32::MAX));
}

/// Reads a number of elements or bytes; each takes at least one byte, so it cannot exceed what is left.
fn get_count(from: &mut Bytes) -> Result<usize, CorruptRow> {
    let count = usize::try_from(u32::get(from)?).unwrap_or(usize::MAX);
    need(from, count)?;
    Ok(count)
}

impl Field for String {
    fn put(&self, out: &mut BytesMut) {
        put_count(self.len(), out);
        out.put_slice(self.as_bytes());
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        let bytes = get_count(from)?;
        let text = from.split_to(bytes);
        Self::from_utf8(text.to_vec()).map_err(|_invalid| CorruptRow("no UTF-8"))
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut BytesMut) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        if bool::get(from)? { T::get(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, out: &mut BytesMut) {
        self.as_ref().put(out);
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        T::get(from).map(Self::new)
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        Ok((A::get(from)?, B::get(from)?))
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut BytesMut) {
        put_count(self.len(), out);
        for item in self {
            item.put(out);
        }
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        (0..get_count(from)?).map(|_index| T::get(from)).collect()
    }
}

impl<T: Field + Ord> Field for BTreeSet<T> {
    fn put(&self, out: &mut BytesMut) {
        put_count(self.len(), out);
        for item in self {
            item.put(out);
        }
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        (0..get_count(from)?).map(|_index| T::get(from)).collect()
    }
}

impl<K: Field + Ord, V: Field> Field for BTreeMap<K, V> {
    fn put(&self, out: &mut BytesMut) {
        put_count(self.len(), out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        (0..get_count(from)?).map(|_index| <(K, V)>::get(from)).collect()
    }
}
