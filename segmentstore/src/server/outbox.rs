//! Replies on their way to one connection.
//!
//! Anyone may push; the connection's writer takes everything at once, so that the replies of one turn leave in one
//! vectored write. What waits here is bounded by whoever asks: the reading side stops while it is too much.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The connection reads no further request while this much waits.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

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
    /// Nothing is pushed any more; what waits still leaves.
    closing: bool,
}

impl Outbox {
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

    /// Adds a reply whose middle is handed over without a copy.
    pub(super) fn push_chunks(&self, head: impl FnOnce(&mut BytesMut), chunks: Vec<Bytes>, tail: &[u8]) {
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
            waiting.chunks.push(small);
            waiting.chunks.extend(chunks);
            waiting.small.extend_from_slice(tail);
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
    pub(super) async fn take(&self) -> Option<Vec<Bytes>> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                if waiting.bytes > 0 {
                    waiting.bytes = 0;
                    let mut chunks = std::mem::take(&mut waiting.chunks);
                    if !waiting.small.is_empty() {
                        chunks.push(waiting.small.split().freeze());
                    }
                    drop(waiting);
                    self.taken.notify_waiters();
                    return Some(chunks);
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
