//! Memory of large payloads, used again once whoever got them has let go.
//!
//! A fresh buffer of a megabyte costs a page fault for every 4 KiB that the kernel copies into it, which took half of the
//! time of a client that reads as fast as it can.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// The latest large payloads that were given out, up to a number of bytes.
#[derive(Debug)]
pub(super) struct Spares {
    bytes_max: usize,
    /// Handles on what was given out, the latest last, each with the bytes of memory behind it.
    lent: VecDeque<(Bytes, usize)>,
    bytes: usize,
}

impl Spares {
    /// Remembers memory of at most `bytes_max`; of 0, nothing is used again.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, lent: VecDeque::new(), bytes: 0 }
    }

    /// An empty buffer with room for `bytes`.
    pub(super) fn take(&mut self, bytes: usize) -> BytesMut {
        let free = self.lent.iter().position(|(lent, capacity)| *capacity >= bytes && lent.is_unique());
        if let Some((lent, capacity)) = free.and_then(|free| self.lent.remove(free)) {
            self.bytes -= capacity;
            if let Ok(mut buffer) = lent.try_into_mut() {
                buffer.clear();
                // Copies nothing, and asks for memory only if the handle knew of more room than there is.
                buffer.reserve(bytes);
                return buffer;
            }
        }
        BytesMut::with_capacity(bytes)
    }

    /// What `buffer` holds, whose memory comes back by [`Self::take`] once it is dropped.
    pub(super) fn lend(&mut self, buffer: BytesMut) -> Bytes {
        let capacity = buffer.capacity();
        let given = buffer.freeze();
        if capacity <= self.bytes_max {
            self.lent.push_back((given.clone(), capacity));
            self.bytes += capacity;
        }
        while self.bytes > self.bytes_max
            && let Some((_lent, capacity)) = self.lent.pop_front()
        {
            self.bytes -= capacity;
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(spares: &mut Spares, bytes: usize, with: u8) -> Bytes {
        let mut buffer = spares.take(bytes);
        assert!(buffer.is_empty() && buffer.capacity() >= bytes);
        buffer.resize(bytes, with);
        spares.lend(buffer)
    }

    #[test]
    fn memory_comes_back_once_every_slice_of_it_is_dropped() {
        let mut spares = Spares::new(3000);
        let first = filled(&mut spares, 1000, 1);
        let (slice, place) = (first.slice(900..), first.as_ptr());
        drop(first);
        let second = filled(&mut spares, 1000, 2);
        assert_ne!(second.as_ptr(), place);
        assert_eq!(&slice[..], [1; 100]);
        drop(slice);
        // Less than before, and then as much as before in the same memory.
        for bytes in [10, 1000] {
            let third = filled(&mut spares, bytes, 3);
            assert_eq!(third.as_ptr(), place);
        }
        assert_eq!(&second[..], [2; 1000]);
    }

    #[test]
    fn no_more_is_kept_than_allowed() {
        let mut spares = Spares::new(3000);
        for _nth in 0..10 {
            let _given = filled(&mut spares, 3001, 1);
        }
        assert_eq!((spares.lent.len(), spares.bytes), (0, 0));
        let held: Vec<Bytes> = (0..10).map(|with| filled(&mut spares, 1000, with)).collect();
        assert_eq!((spares.lent.len(), spares.bytes), (3, 3000));
        for (with, held) in (0..10).zip(&held) {
            assert_eq!(&held[..], [with; 1000]);
        }
        drop(held);
        let large = filled(&mut spares, 2000, 5);
        assert_eq!((spares.lent.len(), spares.bytes), (2, 3000), "the oldest made room");
        assert_eq!(&large[..], [5; 2000]);
    }
}
