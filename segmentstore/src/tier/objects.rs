//! The objects of one container in an object store.
//!
//! One call here is one attempt with a time limit; the caller decides about the next. No name is ever written with
//! two contents, so nothing is ever put on a condition, and a lost answer is settled by the next attempt.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::time::timeout;

use super::builder::BuiltObject;
use super::error::{ObjectError, TierError};
use super::format::Footer;
use crate::types::{ContainerId, ObjectId};

/// Time that a call may take whatever its size.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// A store that moves fewer bytes in a second counts as one that does not answer.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Objects above this are put in parts.
const PARTS_ABOVE_BYTES: u64 = 16 << 20;
/// Bytes of a part; some stores want all parts but the last to be equal.
const PART_BYTES: usize = 8 << 20;
/// Parts on their way at once.
const PARTS_AT_ONCE: usize = 4;
/// Chunks below this are joined on their way out: each costs a call of the system, which takes longer than its copy.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// Bytes of an object's end that are read first, in the hope that the footer is no longer.
const TAIL_BYTES: u64 = 64 << 10;

/// The objects of one container; clones share the store.
#[derive(Clone)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "objects below {} of {}", self.prefix, self.store)
    }
}

impl Objects {
    /// Names the objects of `container` in `store`; asks it nothing.
    pub fn new(store: Arc<dyn ObjectStore>, container: ContainerId) -> Self {
        Self { store, prefix: Path::from(format!("v1/c{:04x}/objects", container.0)) }
    }

    /// Puts an object whole. Copies its small chunks, so it does not belong on a thread that clients wait for.
    ///
    /// # Errors
    /// [`TierError`]; then it may be there or not, and may be put again.
    /// # Cancel safety
    /// Dropped early, the object may be there; parts that were uploaded may stay with the store until it clears them.
    pub async fn put(&self, object: &BuiltObject) -> Result<(), TierError> {
        self.put_patiently(object, 1).await
    }

    /// As [`Self::put`], with `patience` times as much time for a store that is slow.
    ///
    /// # Errors
    /// As [`Self::put`].
    /// # Cancel safety
    /// As [`Self::put`].
    pub async fn put_patiently(&self, object: &BuiltObject, patience: u32) -> Result<(), TierError> {
        const DOING: &str = "put an object";
        let path = self.path(object.id);
        let limit = limit_of(object.bytes).saturating_mul(patience);
        if object.bytes <= PARTS_ABOVE_BYTES {
            let put = self.store.put(&path, join(&object.payload));
            return bounded(DOING, limit, put).await.map(|_result| ());
        }
        let mut upload = bounded(DOING, CALL_LIMIT, self.store.put_multipart(&path)).await?;
        let put = bounded(DOING, limit, put_parts(&mut *upload, &object.payload)).await;
        if put.is_err() {
            // So that no parts stay behind; if even this gets no answer, the store's own rules clear them.
            let _tried = bounded("give an upload up", CALL_LIMIT, upload.abort()).await;
        }
        put
    }

    /// Reads `length` bytes of an object from `at` on. They are not checked: see [`super::verify`].
    ///
    /// # Errors
    /// [`TierError::NotFound`] if there is no such object.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn range(&self, id: ObjectId, at: u64, length: u64) -> Result<Bytes, TierError> {
        let path = self.path(id);
        let read = self.store.get_range(&path, at..at.saturating_add(length));
        let bytes = bounded("read a range", limit_of(length), read).await.map_err(|e| missing(e, id))?;
        expect_length(id, length, &bytes)?;
        Ok(bytes)
    }

    /// Reads pieces of `lengths` bytes, each > 0, that lie back to back in an object, the first at `at`, by one request. They are not
    /// checked: see [`super::verify`]. None shares memory with anything else.
    ///
    /// # Errors
    /// [`TierError::NotFound`] if there is no such object.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn pieces(&self, id: ObjectId, at: u64, lengths: &[u32]) -> Result<Vec<Bytes>, TierError> {
        let path = self.path(id);
        let mut end = at;
        let ranges: Vec<_> = lengths
            .iter()
            .map(|&length| {
                let start = end;
                end = end.saturating_add(length.into());
                start..end
            })
            .collect();
        let read = self.store.get_ranges(&path, &ranges);
        let read = bounded("read a range", limit_of(end - at), read).await;
        let mut pieces = read.map_err(|error| missing(error, id))?;
        if pieces.len() != ranges.len() {
            let got = pieces.iter().map(|piece| piece.len() as u64).sum();
            return Err(TierError::Length { id, asked: end - at, got });
        }
        // Stores join what is asked for and cut one answer. All are looked at before one is copied: the last slice of an
        // answer looks like all of it once the others are gone.
        let shared: Vec<bool> = pieces.iter().map(|piece| !piece.is_unique()).collect();
        for ((piece, range), shared) in pieces.iter_mut().zip(&ranges).zip(shared) {
            expect_length(id, range.end - range.start, piece)?;
            if shared {
                *piece = Bytes::copy_from_slice(piece);
            }
        }
        Ok(pieces)
    }

    /// Reads the footer of an object and checks it.
    ///
    /// # Errors
    /// [`TierError::NotFound`] if there is no such object, [`TierError::Malformed`] if it is not what was put.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn footer(&self, id: ObjectId) -> Result<Footer, TierError> {
        let malformed = |source| TierError::Malformed { id, source };
        let (tail, object_bytes) = self.tail(id, TAIL_BYTES).await?;
        let footer = match Footer::decode(&tail) {
            Err(ObjectError::Cut { needed }) if needed <= object_bytes => {
                let (tail, _) = self.tail(id, needed).await?;
                Footer::decode(&tail).map_err(malformed)?
            }
            decoded => decoded.map_err(malformed)?,
        };
        if footer.id != id || footer.object_bytes() != object_bytes {
            return Err(malformed(ObjectError::Shape { what: "the footer is of another object" }));
        }
        Ok(footer)
    }

    /// Deletes an object. That it is not there is no error.
    ///
    /// # Errors
    /// [`TierError`]; then it may be there or not, and may be deleted again.
    /// # Cancel safety
    /// Dropped early, the object may be there or not.
    pub async fn delete(&self, id: ObjectId) -> Result<(), TierError> {
        let path = self.path(id);
        let deleted = bounded("delete an object", CALL_LIMIT, self.store.delete(&path)).await;
        match deleted.map_err(|error| missing(error, id)) {
            Err(TierError::NotFound { .. }) => Ok(()),
            deleted => deleted,
        }
    }

    /// Lists all objects with their lengths, by name. For tools: the container itself knows its objects.
    ///
    /// # Errors
    /// [`TierError`] if the store stops answering.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list(&self) -> Result<Vec<(ObjectId, u64)>, TierError> {
        const DOING: &str = "list objects";
        let mut listed = self.store.list(Some(&self.prefix));
        let mut found = Vec::new();
        while let Some(meta) = bounded(DOING, CALL_LIMIT, async { listed.next().await.transpose() }).await? {
            // Other names are not ours.
            if let Some(id) = self.id_of(&meta.location) {
                found.push((id, meta.size));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Returns the last `bytes` of an object, or all of it if it is shorter, and its length.
    async fn tail(&self, id: ObjectId, bytes: u64) -> Result<(Bytes, u64), TierError> {
        let path = self.path(id);
        let read = async {
            let options = GetOptions { range: Some(GetRange::Suffix(bytes)), ..GetOptions::default() };
            match self.store.get_opts(&path, options).await {
                // Azure cannot count from the end.
                Err(Error::NotSupported { .. }) => {
                    let size = self.store.head(&path).await?.size;
                    Ok((self.store.get_range(&path, size.saturating_sub(bytes)..size).await?, size))
                }
                Err(error) => Err(error),
                Ok(result) => {
                    let size = result.meta.size;
                    Ok((result.bytes().await?, size))
                }
            }
        };
        let (tail, size) =
            bounded("read a footer", limit_of(bytes), read).await.map_err(|e| missing(e, id))?;
        expect_length(id, bytes.min(size), &tail)?;
        Ok((tail, size))
    }

    /// Where an object stands in its store.
    pub fn path(&self, id: ObjectId) -> Path {
        self.prefix.clone().join(format!("e{:08x}", id.epoch)).join(format!("{:08x}", id.counter))
    }

    fn id_of(&self, location: &Path) -> Option<ObjectId> {
        let mut parts = location.prefix_match(&self.prefix)?;
        let (epoch, counter) = (parts.next()?, parts.next()?);
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        let id = ObjectId {
            epoch: number(epoch.as_ref().strip_prefix('e')?)?,
            counter: number(counter.as_ref())?,
        };
        // Only the very name that this object gets: none is longer, or in capitals.
        (self.path(id) == *location).then_some(id)
    }
}

/// Uploads all parts and puts them together.
async fn put_parts(upload: &mut dyn MultipartUpload, payload: &PutPayload) -> object_store::Result<()> {
    stream::iter(split(payload, PART_BYTES))
        .map(|part| upload.put_part(join(&part)))
        .buffer_unordered(PARTS_AT_ONCE)
        .try_collect::<()>()
        .await?;
    upload.complete().await.map(|_result| ())
}

/// Cuts a payload into parts of `part_bytes`, the last of which may be shorter, and copies nothing.
fn split(payload: &PutPayload, part_bytes: usize) -> Vec<PutPayload> {
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut left = part_bytes;
    for chunk in payload {
        let mut chunk = chunk.clone();
        while !chunk.is_empty() {
            let now = chunk.split_to(left.min(chunk.len()));
            left -= now.len();
            part.push(now);
            if left == 0 {
                parts.push(std::mem::take(&mut part).into_iter().collect());
                left = part_bytes;
            }
        }
    }
    if !part.is_empty() {
        parts.push(part.into_iter().collect());
    }
    parts
}

/// Joins runs of small chunks, by a copy of theirs alone.
fn join(payload: &PutPayload) -> PutPayload {
    let is_small = |chunk: &Bytes| chunk.len() < CHUNK_BYTES_MIN;
    // One allocation for all runs, so that many short ones waste nothing.
    let small_bytes = payload.iter().filter(|chunk| is_small(chunk)).map(Bytes::len).sum();
    let mut small = BytesMut::with_capacity(small_bytes);
    let mut chunks = Vec::new();
    for chunk in payload {
        if is_small(chunk) {
            small.extend_from_slice(chunk);
            continue;
        }
        if !small.is_empty() {
            chunks.push(small.split().freeze());
        }
        chunks.push(chunk.clone());
    }
    if !small.is_empty() {
        chunks.push(small.freeze());
    }
    chunks.into_iter().collect()
}

fn limit_of(bytes: u64) -> Duration {
    CALL_LIMIT + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

async fn bounded<T>(
    doing: &'static str,
    limit: Duration,
    call: impl Future<Output = object_store::Result<T>>,
) -> Result<T, TierError> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(|source| TierError::Store { doing, source }),
        Err(_elapsed) => Err(TierError::TimedOut { doing, limit }),
    }
}

/// Tells apart that the object of a read or a delete is not there.
fn missing(error: TierError, id: ObjectId) -> TierError {
    match error {
        TierError::Store { source: Error::NotFound { .. }, .. } => TierError::NotFound { id },
        error => error,
    }
}

fn expect_length(id: ObjectId, asked: u64, bytes: &Bytes) -> Result<(), TierError> {
    let got = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if got == asked { Ok(()) } else { Err(TierError::Length { id, asked, got }) }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn any_payload() -> impl Strategy<Value = PutPayload> {
        let length = prop_oneof![0_usize..10, 4_090_usize..4_100, 0_usize..20_000];
        vec((length, any::<u8>()), 0..12).prop_map(|chunks| {
            chunks.into_iter().map(|(length, byte)| Bytes::from(vec![byte; length])).collect()
        })
    }

    fn bytes(payloads: &[PutPayload]) -> Vec<u8> {
        payloads.iter().flatten().flatten().copied().collect()
    }

    proptest! {
        #[test]
        fn parts_are_equal_but_the_last_and_hold_everything(payload in any_payload(), part_bytes in 1_usize..9_000) {
            let parts = split(&payload, part_bytes);
            prop_assert_eq!(bytes(&parts), bytes(&[payload]));
            let (last, others) = parts.split_last().map_or((0, &[][..]), |(last, others)| (last.content_length(), others));
            prop_assert!(others.iter().all(|part| part.content_length() == part_bytes) && last <= part_bytes);
        }

        #[test]
        fn small_chunks_are_joined_and_no_others_copied(payload in any_payload()) {
            let joined = join(&payload);
            let is_small = |chunk: &&Bytes| chunk.len() < CHUNK_BYTES_MIN;
            let chunks: Vec<&Bytes> = joined.iter().collect();
            for pair in chunks.windows(2) {
                prop_assert!(pair.iter().any(|chunk| !is_small(chunk)), "neighbours are joined");
            }
            let kept: Vec<*const u8> = chunks.iter().map(|chunk| chunk.as_ptr()).collect();
            for chunk in payload.iter().filter(|chunk| !is_small(chunk)) {
                prop_assert!(kept.contains(&chunk.as_ptr()), "a large chunk is not copied");
            }
            prop_assert_eq!(bytes(&[joined]), bytes(&[payload]));
        }
    }
}
