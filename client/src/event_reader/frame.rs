//! Cutting a segment's bytes into events.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes before each event: type code 0 and length.
const HEADER_BYTES: usize = 8;

/// Bytes of a segment from an event's beginning on. Events that lie whole in one read are slices of it.
#[derive(Debug, Default)]
pub(super) struct EventBuffer {
    whole: Bytes,
    /// The beginning of an event whose rest is still to come; `whole` is empty meanwhile.
    part: BytesMut,
}

/// The bytes are not those of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoEvent;

impl EventBuffer {
    /// Adds the next bytes of the segment. Every whole event must have been taken.
    pub(super) fn push(&mut self, data: Bytes) {
        if self.whole.is_empty() && self.part.is_empty() {
            self.whole = data;
            return;
        }
        if !self.whole.is_empty() {
            self.part = BytesMut::from(&self.whole[..]);
            self.whole = Bytes::new();
        }
        self.part.extend_from_slice(&data);
        if length(&self.part).is_ok_and(|length| length.is_some_and(|length| self.part.len() >= length)) {
            self.whole = std::mem::take(&mut self.part).freeze();
        }
    }

    /// Takes the next whole event and the number of bytes that it fills in the segment.
    pub(super) fn take(&mut self) -> Result<Option<(Bytes, usize)>, NoEvent> {
        let from = if self.whole.is_empty() { &self.part[..] } else { &self.whole[..] };
        match length(from)? {
            Some(length) if self.whole.len() >= length => {
                let mut event = self.whole.split_to(length);
                event.advance(HEADER_BYTES);
                Ok(Some((event, length)))
            }
            _ => Ok(None),
        }
    }

    /// Forgets what is there, since reading goes on elsewhere.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The bytes that the event at the front of `bytes` fills, once its header is there.
fn length(bytes: &[u8]) -> Result<Option<usize>, NoEvent> {
    let Some(mut header) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
    let (code, length) = (header.get_i32(), header.get_i32());
    match usize::try_from(length) {
        Ok(length) if code == 0 => Ok(Some(HEADER_BYTES + length)),
        _ => Err(NoEvent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;
    use proptest::prelude::*;

    fn framed(events: &[Vec<u8>]) -> Bytes {
        let mut bytes = BytesMut::new();
        for event in events {
            bytes.put_i32(0);
            bytes.put_i32(i32::try_from(event.len()).unwrap());
            bytes.put_slice(event);
        }
        bytes.freeze()
    }

    proptest! {
        #[test]
        fn events_survive_any_cut_of_their_bytes(
            events in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            cuts in proptest::collection::vec(1_usize..60, 1..40),
        ) {
            let mut bytes = framed(&events);
            let mut buffer = EventBuffer::default();
            let mut taken = Vec::new();
            let mut cuts = cuts.iter().cycle();
            while !bytes.is_empty() {
                let cut = *cuts.next().unwrap();
                buffer.push(bytes.split_to(cut.min(bytes.len())));
                while let Some((event, filled)) = buffer.take().unwrap() {
                    prop_assert_eq!(filled, event.len() + HEADER_BYTES);
                    taken.push(event.to_vec());
                }
            }
            prop_assert_eq!(taken, events);
        }
    }

    #[test]
    fn other_type_code_is_no_event() {
        let mut buffer = EventBuffer::default();
        buffer.push(Bytes::from_static(b"\0\0\0\x01\0\0\0\0"));
        assert_eq!(buffer.take(), Err(NoEvent));
        let mut buffer = EventBuffer::default();
        buffer.push(Bytes::from_static(b"\0\0\0\0\xff\0\0\0"));
        assert_eq!(buffer.take(), Err(NoEvent));
    }
}
