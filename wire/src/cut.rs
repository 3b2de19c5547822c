//! Stream cuts: an offset in each segment of a complete cover of the key space, and how clients write them down.
//!
//! # Source
//! Pravega's `StreamCutImpl`, write version 1.

use crate::base64;
use crate::codec::{DecodeError, Reader, Wire};
use crate::gzip;
use crate::name::{SegmentId, StreamName};
use crate::serializer::{
    Object, get_compact_int, get_compact_long, get_compact_signed, put_compact_int, put_compact_long,
    put_compact_signed, put_object,
};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

/// The offset of a segment that is read completely, or not begun yet.
pub const CUT_OFFSET_DONE: i64 = -1;
/// The text of the cut that bounds nothing.
const UNBOUNDED: &str = "UNBOUNDED";
/// The version that is written. Version 0 differs in its offsets only, which cannot be negative.
const VERSION: u8 = 1;

/// Why bytes or text are no stream cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// The bytes are no envelope.
    #[error("reading a stream cut")]
    Decode(#[from] DecodeError),
    /// The version is younger than what is known.
    #[error("stream cut of version {version}")]
    Version {
        /// The version.
        version: u8,
    },
    /// The text is not base64 of gzip.
    #[error("stream cut is not base64 of gzip")]
    Packing,
    /// What was packed is no cut, or names no stream or segment that could be.
    #[error("stream cut is malformed")]
    Malformed,
}

/// An offset in each of some segments of a stream. Where a cut may also bound nothing, an `Option` is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamCut {
    /// The stream.
    pub stream: StreamName,
    /// The offsets; [`CUT_OFFSET_DONE`] for a segment that is read completely or not begun yet.
    pub offsets: BTreeMap<SegmentId, i64>,
}

impl StreamCut {
    /// Encodes a cut; one that bounds nothing takes no byte.
    ///
    /// # Panics
    /// If an offset is below -1 or above 2^61 - 2, or the id of a segment is negative.
    pub fn encode(cut: Option<&Self>) -> Bytes {
        let mut out = BytesMut::new();
        if let Some(cut) = cut {
            put_object(&mut out, VERSION, &[&|out| cut.put(out)]);
        }
        out.freeze()
    }

    /// Decodes a cut; no bytes bound nothing.
    ///
    /// # Errors
    /// [`CutError`].
    pub fn decode(bytes: Bytes) -> Result<Option<Self>, CutError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let object = Object::get(&mut Reader::new(bytes))?;
        let get_offset = match object.version {
            0 => get_compact_long,
            VERSION => get_compact_signed,
            version => return Err(CutError::Version { version }),
        };
        let from = &mut object.revision(0).ok_or(CutError::Malformed)?;
        let stream = String::get(from)?.parse().map_err(|_name| CutError::Malformed)?;
        let count = get_compact_int(from)?;
        let mut offsets = BTreeMap::new();
        for _ in 0..count {
            let id = SegmentId::from_raw(get_compact_long(from)?);
            offsets.insert(id, get_offset(from)?);
        }
        Ok(Some(Self { stream, offsets }))
    }

    fn put(&self, out: &mut BytesMut) {
        self.stream.to_string().put(out);
        put_compact_int(out, i32::try_from(self.offsets.len()).unwrap_or(i32::MAX));
        for (id, offset) in &self.offsets {
            put_compact_long(out, id.raw());
            put_compact_signed(out, *offset);
        }
    }

    /// Writes a cut as text. Other writers give other texts of the same cut, so texts must not be compared.
    pub fn to_text(cut: Option<&Self>) -> String {
        let Some(cut) = cut else { return UNBOUNDED.to_owned() };
        let list = |part: &dyn Fn((&SegmentId, &i64)) -> i64| {
            cut.offsets.iter().map(|entry| part(entry).to_string()).collect::<Vec<_>>().join(",")
        };
        let numbers = list(&|(id, _)| i64::from(id.number()));
        let epochs = list(&|(id, _)| i64::from(id.epoch()));
        let offsets = list(&|(_, offset)| *offset);
        base64::encode(&gzip::pack(format!("0:{}:{numbers}:{epochs}:{offsets}", cut.stream).as_bytes()))
    }

    /// Reads a cut from text.
    ///
    /// # Errors
    /// [`CutError`].
    pub fn from_text(text: &str) -> Result<Option<Self>, CutError> {
        if text == UNBOUNDED {
            return Ok(None);
        }
        let packed = base64::decode(text).ok_or(CutError::Packing)?;
        let plain = String::from_utf8(gzip::unpack(&packed).ok_or(CutError::Packing)?);
        Self::from_plain(&plain.map_err(|_text| CutError::Packing)?).map(Some).ok_or(CutError::Malformed)
    }

    /// Reads `version:scope/stream:numbers:epochs:offsets`.
    fn from_plain(text: &str) -> Option<Self> {
        let [_version, stream, numbers, epochs, offsets] =
            text.split(':').collect::<Vec<_>>().try_into().ok()?;
        let list =
            |text: &str| text.split(',').map(|item| item.trim().parse().ok()).collect::<Option<Vec<i64>>>();
        let (numbers, epochs, offsets) = (list(numbers)?, list(epochs)?, list(offsets)?);
        if numbers.len() != epochs.len() || numbers.len() != offsets.len() {
            return None;
        }
        let natural = |number: i64| i32::try_from(number).ok().filter(|number| *number >= 0);
        let entry =
            |((number, epoch), offset)| Some((SegmentId::new(natural(number)?, natural(epoch)?), offset));
        let offsets = numbers.into_iter().zip(epochs).zip(offsets).map(entry).collect::<Option<_>>()?;
        Some(Self { stream: stream.parse().ok()?, offsets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `sc/st` with 100 in segment 0 and segment 2 of epoch 1 read completely.
    fn cut() -> StreamCut {
        let offsets = [(SegmentId::new(0, 0), 100), (SegmentId::new(2, 1), CUT_OFFSET_DONE)];
        StreamCut { stream: StreamName::new("sc", "st"), offsets: offsets.into() }
    }

    #[test]
    fn bytes_are_those_of_java() {
        let bytes = b"\0\x01\x01\0\0\0\0\x14\0\x05sc/st\x02\0\x20\x64\xc0\0\0\x01\0\0\0\x02\x80";
        assert_eq!(StreamCut::encode(Some(&cut())), &bytes[..]);
        assert_eq!(StreamCut::decode(Bytes::from_static(bytes)), Ok(Some(cut())));
        let old = b"\0\0\x01\0\0\0\0\x0b\0\x05sc/st\x01\0\x40\x64";
        let read = StreamCut::decode(Bytes::from_static(old)).unwrap().unwrap();
        assert_eq!(read.offsets, [(SegmentId::new(0, 0), 100)].into());
    }

    #[test]
    fn text_of_java_is_read() {
        let text = "H4sIAAAAAAAA/zOwKk7WLy6xMtAxAmJDK0MDAx1dQwB70AonFgAAAA==";
        assert_eq!(StreamCut::from_text(text), Ok(Some(cut())));
        assert_eq!(StreamCut::from_plain("0:sc/st:0, 2: 0,1:100 ,-1"), Some(cut()));
    }

    #[test]
    fn cut_that_bounds_nothing_takes_no_byte() {
        assert_eq!(StreamCut::encode(None), Bytes::new());
        assert_eq!(StreamCut::decode(Bytes::new()), Ok(None));
        assert_eq!(StreamCut::from_text(&StreamCut::to_text(None)), Ok(None));
    }

    #[test]
    fn other_texts_are_no_cuts() {
        assert_eq!(StreamCut::from_text("sc/st"), Err(CutError::Packing));
        for text in [
            "",
            "0:sc/st:0:0",
            "0:sc/st:0,1:0:5",
            "0:sc/st:-1:0:5",
            "0:sc/st:x:0:5",
            "0::0:0:5",
            "0:sc/st:0:0:5:6",
        ] {
            let packed = base64::encode(&gzip::pack(text.as_bytes()));
            assert_eq!(StreamCut::from_text(&packed), Err(CutError::Malformed), "{text}");
        }
    }

    proptest! {
        #[test]
        fn cuts_survive_bytes_and_text(offsets in prop::collection::btree_map(any::<(u16, u16)>(), -1..1_i64 << 60, 1..9)) {
            let id = |(number, epoch)| SegmentId::new(i32::from(number), i32::from(epoch));
            let offsets = offsets.into_iter().map(|(key, offset)| (id(key), offset)).collect();
            let cut = Some(StreamCut { stream: StreamName::new("sc", "st"), offsets });
            prop_assert_eq!(StreamCut::decode(StreamCut::encode(cut.as_ref())), Ok(cut.clone()));
            prop_assert_eq!(StreamCut::from_text(&StreamCut::to_text(cut.as_ref())), Ok(cut));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _cut = StreamCut::decode(Bytes::from(bytes));
        }
    }
}
