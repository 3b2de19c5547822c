//! An object store in memory that counts, holds and falsifies reads.

use super::*;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use std::fmt;
use tokio::sync::watch;

/// What becomes of a read of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// One bit of the answer is flipped.
    Rot,
    /// It is refused.
    Refuse,
}

#[derive(Debug)]
pub(super) struct TestStore {
    inner: InMemory,
    asked: Mutex<Asked>,
    held: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Asked {
    /// Reads of ranges: whose, and how many bytes.
    ranges: Vec<(String, u64)>,
    footers: usize,
    under_way: Vec<u64>,
    most_at_once: usize,
    fault: Option<(Fault, usize)>,
}

impl Default for TestStore {
    fn default() -> Self {
        Self { inner: InMemory::new(), asked: Mutex::default(), held: watch::Sender::new(false) }
    }
}

impl TestStore {
    /// Lets no read pass from now on.
    pub(super) fn hold(&self) {
        self.held.send_replace(true);
    }

    pub(super) fn let_go(&self) {
        self.held.send_replace(false);
    }

    /// The next `count` reads of ranges fail.
    pub(super) fn fail(&self, fault: Fault, count: usize) {
        self.asked.lock().fault = Some((fault, count));
    }

    /// Reads of ranges so far.
    pub(super) fn ranges(&self) -> usize {
        self.asked.lock().ranges.len()
    }

    pub(super) fn ranges_of(&self, id: ObjectId) -> usize {
        let name = format!("{:08x}", id.counter);
        self.asked.lock().ranges.iter().filter(|(path, _)| path.ends_with(&name)).count()
    }

    /// Reads of footers so far.
    pub(super) fn footers(&self) -> usize {
        self.asked.lock().footers
    }

    /// Bytes of all ranges asked for so far.
    pub(super) fn bytes_asked(&self) -> u64 {
        self.asked.lock().ranges.iter().map(|(_, bytes)| bytes).sum()
    }

    pub(super) fn bytes_under_way(&self) -> u64 {
        self.asked.lock().under_way.iter().sum()
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.asked.lock().most_at_once
    }

    async fn read_range(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = self.inner.get_opts(location, options).await?;
        let fault = {
            let mut asked = self.asked.lock();
            let fault = asked.fault.as_mut().filter(|(_, left)| *left > 0);
            fault.map(|(fault, left)| {
                *left -= 1;
                *fault
            })
        };
        match fault {
            None => Ok(result),
            Some(Fault::Refuse) => Err(Error::Generic { store: "test", source: "refused".into() }),
            Some(Fault::Rot) => {
                let (meta, range, attributes) =
                    (result.meta.clone(), result.range.clone(), result.attributes.clone());
                let extensions = std::mem::take(&mut result.extensions);
                let mut bytes = result.bytes().await?.to_vec();
                bytes[7] ^= 0x10;
                let payload = Box::pin(futures_util::stream::once(async { Ok(Bytes::from(bytes)) }));
                Ok(GetResult {
                    payload: GetResultPayload::Stream(payload),
                    meta,
                    range,
                    attributes,
                    extensions,
                })
            }
        }
    }
}

impl fmt::Display for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "counting {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for TestStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let bytes = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.end - range.start),
            _ => None,
        };
        {
            let mut asked = self.asked.lock();
            match bytes {
                Some(bytes) => {
                    asked.ranges.push((location.to_string(), bytes));
                    asked.under_way.push(bytes);
                    asked.most_at_once = asked.most_at_once.max(asked.under_way.len());
                }
                None => asked.footers += 1,
            }
        }
        let mut held = self.held.subscribe();
        held.wait_for(|held| !held).await.expect("the store outlives its reads");
        let Some(bytes) = bytes else { return self.inner.get_opts(location, options).await };
        let result = self.read_range(location, options).await;
        let mut asked = self.asked.lock();
        let at = asked.under_way.iter().position(|under_way| *under_way == bytes).unwrap();
        asked.under_way.remove(at);
        result
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
