//! Replies on their way to one connection.
//!
//! Anyone may push; the connection's writer takes everything at once, so that the replies of one turn leave together.
//! What waits here is bounded by whoever asks: the reading side stops while it is too much.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The connection reads no further request while this much waits.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Memory for small replies that a connection keeps while none waits.
const IDLE_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    /// Something waits, or the connection closes.
    filled: Notify,
    /// What waited was taken.
    taken: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    chunks: Vec<Bytes>,
    /// Small replies that follow the chunks.
    small: BytesMut,
    bytes: usize,
    /// Some of it was read from long-term storage.
    cold: bool,
    /// Nothing is pushed any more; what waits still leaves.
    closing: bool,
}

/// Replies that leave together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) chunks: Vec<Bytes>,
    /// Some of it was read from long-term storage.
    pub(super) cold: bool,
}

impl Outbox {
    /// Encodes a reply that may be large, without holding up whoever else has one meanwhile.
    pub(super) fn push_large(&self, encode: impl FnOnce(&mut BytesMut)) {
        let mut reply = BytesMut::new();
        encode(&mut reply);
        self.push_chunks(|_| {}, vec![reply.freeze()], b"", false);
    }

    /// Encodes a reply behind those that wait.
    pub(super) fn push(&self, encode: impl FnOnce(&mut BytesMut)) {
        {
            let mut waiting = self.waiting.lock();
            if waiting.closing {
                return;
            }
            let before = waiting.small.len();
            encode(&mut waiting.small);
            waiting.bytes += waiting.small.len() - before;
        }
        self.filled.notify_one();
    }

    /// Adds a reply whose middle is handed over without a copy; `cold` if that was read from long-term storage.
    pub(super) fn push_chunks(
        &self,
        head: impl FnOnce(&mut BytesMut),
        chunks: Vec<Bytes>,
        tail: &[u8],
        cold: bool,
    ) {
        {
            let mut waiting = self.waiting.lock();
            if waiting.closing {
                return;
            }
            let before = waiting.small.len();
            head(&mut waiting.small);
            waiting.bytes += waiting.small.len() - before + tail.len();
            waiting.bytes += chunks.iter().map(Bytes::len).sum::<usize>();
            let small = waiting.small.split().freeze();
            if !small.is_empty() {
                waiting.chunks.push(small);
            }
            waiting.chunks.extend(chunks);
            waiting.small.extend_from_slice(tail);
            waiting.cold |= cold;
        }
        self.filled.notify_one();
    }

    /// Lets what waits leave, then closes the connection.
    pub(super) fn close(&self) {
        self.waiting.lock().closing = true;
        self.filled.notify_one();
        self.taken.notify_waiters();
    }

    /// Waits until nothing is pushed any more.
    pub(super) async fn closed(&self) {
        loop {
            let taken = self.taken.notified();
            let mut taken = std::pin::pin!(taken);
            taken.as_mut().enable();
            if self.is_closing() {
                return;
            }
            taken.await;
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.waiting.lock().closing
    }

    /// Takes everything that waits; `None` once closed and empty. One task at a time may wait here.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn take(&self) -> Option<Taken> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                if waiting.bytes > 0 {
                    waiting.bytes = 0;
                    let mut chunks = std::mem::take(&mut waiting.chunks);
                    if !waiting.small.is_empty() {
                        chunks.push(waiting.small.split().freeze());
                    }
                    if waiting.small.capacity() > IDLE_BYTES_MAX {
                        // The block that a large burst took is not kept for the next one.
                        waiting.small = BytesMut::new();
                    }
                    let cold = std::mem::take(&mut waiting.cold);
                    drop(waiting);
                    self.taken.notify_waiters();
                    return Some(Taken { chunks, cold });
                }
                if waiting.closing {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// Waits until the replies that wait are few enough for another request.
    pub(super) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            let mut taken = std::pin::pin!(taken);
            taken.as_mut().enable();
            {
                let waiting = self.waiting.lock();
                if waiting.bytes < WAITING_BYTES_MAX || waiting.closing {
                    return;
                }
            }
            taken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;
    use futures_util::FutureExt;
    use std::task::Poll;

    /// What leaves now; pending while nothing waits, ready with `None` once the outbox has ended.
    fn taken(outbox: &Outbox) -> Poll<Option<Vec<u8>>> {
        match outbox.take().now_or_never() {
            Some(taken) => Poll::Ready(taken.map(|taken| taken.chunks.concat())),
            None => Poll::Pending,
        }
    }

    #[test]
    fn replies_leave_in_the_order_in_which_they_were_pushed() {
        let outbox = Outbox::default();
        assert_eq!(taken(&outbox), Poll::Pending, "nothing waits");
        outbox.push(|out| out.put_slice(b"one "));
        outbox.push_chunks(
            |out| out.put_slice(b"head "),
            vec![Bytes::from_static(b"data ")],
            b"tail ",
            false,
        );
        outbox.push(|out| out.put_slice(b"last"));
        assert_eq!(taken(&outbox), Poll::Ready(Some(b"one head data tail last".to_vec())));
        assert_eq!(taken(&outbox), Poll::Pending, "each leaves once");
    }

    #[test]
    fn chunks_are_handed_over_without_a_copy() {
        let outbox = Outbox::default();
        let data = Bytes::from(vec![7; 1000]);
        outbox.push_chunks(|out| out.put_slice(b"head"), vec![data.clone()], b"", false);
        let chunks = outbox.take().now_or_never().flatten().unwrap().chunks;
        assert!(chunks.iter().any(|chunk| chunk.as_ptr() == data.as_ptr()));
    }

    #[test]
    fn cold_reply_marks_what_leaves_with_it_and_no_more() {
        let outbox = Outbox::default();
        let cold = || outbox.take().now_or_never().flatten().unwrap().cold;
        outbox.push_chunks(|_| {}, vec![Bytes::from_static(b"cold")], b"", true);
        outbox.push(|out| out.put_slice(b"ack"));
        assert!(cold());
        outbox.push_chunks(|_| {}, vec![Bytes::from_static(b"hot")], b"", false);
        assert!(!cold());
    }

    #[test]
    fn idle_connection_keeps_no_block_of_a_large_reply() {
        let outbox = Outbox::default();
        outbox.push(|out| out.put_bytes(1, 1 << 20));
        outbox.push_large(|out| out.put_slice(b"large"));
        let Poll::Ready(Some(all)) = taken(&outbox) else { panic!("nothing waits") };
        assert_eq!((all.len(), all.ends_with(b"large")), ((1 << 20) + 5, true));
        assert!(outbox.waiting.lock().small.capacity() <= IDLE_BYTES_MAX);
    }

    #[test]
    fn closed_outbox_gives_what_waits_and_takes_nothing_more() {
        let outbox = Outbox::default();
        outbox.push(|out| out.put_slice(b"before"));
        outbox.close();
        outbox.push(|out| out.put_slice(b"behind"));
        outbox.push_chunks(|out| out.put_slice(b"behind"), vec![], b"it", false);
        assert_eq!(taken(&outbox), Poll::Ready(Some(b"before".to_vec())));
        assert_eq!(taken(&outbox), Poll::Ready(None));
        assert_eq!(outbox.closed().now_or_never(), Some(()));
    }

    #[test]
    fn room_is_back_once_what_waits_was_taken() {
        let outbox = Outbox::default();
        outbox.push(|out| out.put_bytes(0, WAITING_BYTES_MAX - 1));
        assert_eq!(outbox.room().now_or_never(), Some(()));
        outbox.push_chunks(|_| {}, vec![Bytes::from_static(b"1")], b"", false);
        let mut room = std::pin::pin!(outbox.room());
        assert_eq!(room.as_mut().now_or_never(), None);
        assert!(outbox.take().now_or_never().flatten().is_some());
        assert_eq!(room.now_or_never(), Some(()), "whoever waited for room has it");
    }

    #[tokio::test]
    async fn writer_that_waits_is_woken_by_a_reply_and_by_the_end() {
        let outbox = std::sync::Arc::new(Outbox::default());
        let (first, second) = (std::sync::Arc::clone(&outbox), std::sync::Arc::clone(&outbox));
        let waiting = tokio::spawn(async move { first.take().await.map(|taken| taken.chunks.concat()) });
        tokio::task::yield_now().await;
        outbox.push(|out| out.put_slice(b"reply"));
        assert_eq!(waiting.await.unwrap(), Some(b"reply".to_vec()));
        let waiting = tokio::spawn(async move { second.take().await });
        tokio::task::yield_now().await;
        outbox.close();
        assert_eq!(waiting.await.unwrap(), None);
    }
}
