//! What the server holds: objects, and uploads that are not objects yet. Pure: no time, no net.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Bound;

use bytes::{Bytes, BytesMut};

use super::answer::S3Error;

/// Every part but the last has at least so many bytes.
const PART_BYTES_MIN: usize = 5 << 20;

/// All buckets of a server.
#[derive(Debug, Default)]
pub struct Buckets {
    buckets: BTreeMap<String, Bucket>,
    uploads: u64,
}

#[derive(Debug, Default)]
struct Bucket {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
}

/// A stored object.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) bytes: Bytes,
    /// Of its bytes alone, in quotes, as S3's own.
    pub(super) e_tag: String,
    pub(super) modified_ms: i64,
}

#[derive(Debug)]
struct Upload {
    key: String,
    parts: BTreeMap<u32, Bytes>,
}

/// On what a write depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    /// That there is no such object.
    Missing,
    /// That it has this tag.
    Tag(String),
}

/// How an object is written.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) condition: Condition,
    pub(super) now_ms: i64,
}

/// What a list is to show.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub(super) prefix: String,
    pub(super) delimiter: Option<String>,
    /// Only what comes after this.
    pub(super) after: Option<String>,
    pub(super) limit: usize,
}

/// A page of a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<(String, Object)>,
    pub(super) prefixes: Vec<String>,
    /// Where the next page goes on.
    pub(super) next: Option<String>,
}

impl Buckets {
    pub(super) fn with(bucket: &str) -> Self {
        let mut buckets = Self::default();
        buckets.make(bucket);
        buckets
    }

    /// Makes a bucket; that it is there already is no error.
    pub fn make(&mut self, bucket: &str) {
        self.buckets.entry(bucket.to_owned()).or_default();
    }

    /// The keys of a bucket with the lengths of their objects.
    pub fn keys(&self, bucket: &str) -> Vec<(String, usize)> {
        let objects = self.buckets.get(bucket).into_iter().flat_map(|bucket| &bucket.objects);
        objects.map(|(key, object)| (key.clone(), object.bytes.len())).collect()
    }

    /// Uploads that were begun and neither completed nor given up.
    pub fn open_uploads(&self, bucket: &str) -> usize {
        self.buckets.get(bucket).map_or(0, |bucket| bucket.uploads.len())
    }

    /// Flips a bit of an object, as a bad disk does; its tag stays. False if there is no such byte.
    pub fn rot(&mut self, bucket: &str, key: &str, at: usize) -> bool {
        let object = self.buckets.get_mut(bucket).and_then(|bucket| bucket.objects.get_mut(key));
        let Some(object) = object.filter(|object| at < object.bytes.len()) else { return false };
        let mut bytes = BytesMut::from(&object.bytes[..]);
        bytes[at] ^= 1;
        object.bytes = bytes.freeze();
        true
    }

    fn bucket(&self, bucket: &str) -> Result<&Bucket, S3Error> {
        self.buckets.get(bucket).ok_or(S3Error::NoSuchBucket)
    }

    fn bucket_mut(&mut self, bucket: &str) -> Result<&mut Bucket, S3Error> {
        self.buckets.get_mut(bucket).ok_or(S3Error::NoSuchBucket)
    }

    pub(super) fn get(&self, bucket: &str, key: &str) -> Result<&Object, S3Error> {
        self.bucket(bucket)?.objects.get(key).ok_or(S3Error::NoSuchKey)
    }

    /// Stores an object if the condition holds, and returns its tag.
    pub(super) fn put(
        &mut self,
        (bucket, key): (&str, &str),
        bytes: Bytes,
        write: &Write,
    ) -> Result<String, S3Error> {
        self.bucket_mut(bucket)?.store(key, bytes, write)
    }

    /// Deletes an object; that it is not there is no error.
    pub(super) fn delete(&mut self, bucket: &str, key: &str) -> Result<(), S3Error> {
        self.bucket_mut(bucket)?.objects.remove(key);
        Ok(())
    }

    pub(super) fn list(&self, bucket: &str, listing: &Listing) -> Result<Page, S3Error> {
        Ok(self.bucket(bucket)?.list(listing))
    }

    /// Begins an upload in parts, and returns its id.
    pub(super) fn create(&mut self, bucket: &str, key: &str) -> Result<String, S3Error> {
        self.uploads += 1;
        let id = format!("upload-{}", self.uploads);
        let upload = Upload { key: key.to_owned(), parts: BTreeMap::new() };
        self.bucket_mut(bucket)?.uploads.insert(id.clone(), upload);
        Ok(id)
    }

    /// Takes a part, and returns its tag.
    pub(super) fn part(
        &mut self,
        (bucket, key): (&str, &str),
        upload: &str,
        number: u32,
        bytes: Bytes,
    ) -> Result<String, S3Error> {
        let upload = self.bucket_mut(bucket)?.uploads.get_mut(upload).filter(|upload| upload.key == key);
        let tag = e_tag(&bytes);
        upload.ok_or(S3Error::NoSuchUpload)?.parts.insert(number, bytes);
        Ok(tag)
    }

    /// Makes an object of the parts with these numbers and tags, if the condition holds, and returns its tag.
    pub(super) fn complete(
        &mut self,
        (bucket, key): (&str, &str),
        upload: &str,
        parts: &[(u32, String)],
        write: &Write,
    ) -> Result<String, S3Error> {
        let bucket = self.bucket_mut(bucket)?;
        let open = bucket.uploads.get(upload).filter(|upload| upload.key == key);
        let bytes = open.ok_or(S3Error::NoSuchUpload)?.join(parts)?;
        let tag = bucket.store(key, bytes, write)?;
        bucket.uploads.remove(upload);
        Ok(tag)
    }

    /// Gives an upload up.
    pub(super) fn abort(&mut self, bucket: &str, upload: &str) -> Result<(), S3Error> {
        let gone = self.bucket_mut(bucket)?.uploads.remove(upload);
        gone.map(|_upload| ()).ok_or(S3Error::NoSuchUpload)
    }
}

impl Bucket {
    fn store(&mut self, key: &str, bytes: Bytes, write: &Write) -> Result<String, S3Error> {
        match (&write.condition, self.objects.get(key)) {
            (Condition::Missing, Some(_)) => return Err(S3Error::PreconditionFailed),
            (Condition::Tag(_), None) => return Err(S3Error::NoSuchKey),
            (Condition::Tag(tag), Some(object)) if *tag != object.e_tag => {
                return Err(S3Error::PreconditionFailed);
            }
            _ => {}
        }
        let e_tag = e_tag(&bytes);
        let object = Object { bytes, e_tag: e_tag.clone(), modified_ms: write.now_ms };
        self.objects.insert(key.to_owned(), object);
        Ok(e_tag)
    }

    fn list(&self, listing: &Listing) -> Page {
        let from = match &listing.after {
            Some(after) if *after >= listing.prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(listing.prefix.as_str()),
        };
        let mut page = Page::default();
        let mut last: Option<String> = None;
        for (key, object) in self.objects.range::<str, _>((from, Bound::Unbounded)) {
            let Some(rest) = key.strip_prefix(&listing.prefix) else { break };
            let group = listing.delimiter.as_ref().and_then(|delimiter| {
                rest.find(delimiter.as_str()).map(|at| &key[..listing.prefix.len() + at + delimiter.len()])
            });
            let is_shown = |group: &str| {
                page.prefixes.last().is_some_and(|last| last == group)
                    || listing.after.as_ref().is_some_and(|after| after.starts_with(group))
            };
            if group.is_some_and(is_shown) {
                continue;
            }
            if page.objects.len() + page.prefixes.len() == listing.limit {
                page.next = last;
                break;
            }
            last = Some(group.unwrap_or(key).to_owned());
            match group {
                Some(group) => page.prefixes.push(group.to_owned()),
                None => page.objects.push((key.clone(), object.clone())),
            }
        }
        page
    }
}

impl Upload {
    fn join(&self, parts: &[(u32, String)]) -> Result<Bytes, S3Error> {
        let ascends = parts.is_sorted_by(|a, b| a.0 < b.0);
        if parts.is_empty() || !ascends {
            return Err(S3Error::InvalidPart);
        }
        let mut bytes = BytesMut::new();
        for (at, (number, tag)) in parts.iter().enumerate() {
            let part = self.parts.get(number).filter(|part| e_tag(part) == *tag);
            let part = part.ok_or(S3Error::InvalidPart)?;
            if at + 1 < parts.len() && part.len() < PART_BYTES_MIN {
                return Err(S3Error::EntityTooSmall);
            }
            bytes.extend_from_slice(part);
        }
        Ok(bytes.freeze())
    }
}

/// A tag that equal bytes share and others do not.
fn e_tag(bytes: &[u8]) -> String {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        hasher.write(bytes);
        hasher.finish()
    };
    format!("\"{:016x}{:016x}\"", half(0), half(1))
}
