//! What a request asks for.

use std::collections::BTreeMap;

use axum::extract::Query;
use http::{HeaderMap, Method, Uri, header};

use super::answer::S3Error;

/// Kind of a call, as S3 tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    Head,
    Put,
    Delete,
    DeleteMany,
    List,
    Create,
    Part,
    Complete,
    Abort,
    MakeBucket,
    Other,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::DeleteMany => "delete-many",
            Self::List => "list",
            Self::Create => "create",
            Self::Part => "part",
            Self::Complete => "complete",
            Self::Abort => "abort",
            Self::MakeBucket => "make-bucket",
            Self::Other => "other",
        }
    }
}

/// A request without its body.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) bucket: String,
    pub(super) key: String,
    query: BTreeMap<String, String>,
    headers: HeaderMap,
}

/// The part of an object that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    From(usize),
    Between(usize, usize),
    Last(usize),
}

impl Call {
    /// Reads a request line; path style only.
    pub(super) fn new(method: &Method, uri: &Uri, headers: HeaderMap) -> Result<Self, S3Error> {
        let Query(query) = Query::<BTreeMap<String, String>>::try_from_uri(uri)
            .map_err(|_rejection| S3Error::InvalidArgument)?;
        let path = decode(uri.path().trim_start_matches('/')).ok_or(S3Error::InvalidArgument)?;
        let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
        let has = |name: &str| query.contains_key(name);
        let kind = match (method.as_str(), key.is_empty()) {
            ("PUT", true) => Kind::MakeBucket,
            ("GET", true) => Kind::List,
            ("POST", true) if has("delete") => Kind::DeleteMany,
            ("GET", false) => Kind::Get,
            ("HEAD", false) => Kind::Head,
            // A copy, which nobody here needs.
            ("PUT", false) if headers.contains_key("x-amz-copy-source") => Kind::Other,
            ("PUT", false) if has("partNumber") => Kind::Part,
            ("PUT", false) => Kind::Put,
            ("POST", false) if has("uploads") => Kind::Create,
            ("POST", false) if has("uploadId") => Kind::Complete,
            ("DELETE", false) if has("uploadId") => Kind::Abort,
            ("DELETE", false) => Kind::Delete,
            _ => Kind::Other,
        };
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        Ok(Self { kind, bucket, key, query, headers })
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    pub(super) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether the body comes in signed pieces, which is not understood here.
    pub(super) fn is_chunk_signed(&self) -> bool {
        let hash = self.headers.get("x-amz-content-sha256").and_then(|value| value.to_str().ok());
        hash.is_some_and(|hash| hash.starts_with("STREAMING-"))
    }

    /// The part that `Range` asks for; a range that makes no sense is as if there were none.
    pub(super) fn part(&self) -> Option<Part> {
        let (from, to) = self.header(header::RANGE)?.strip_prefix("bytes=")?.split_once('-')?;
        match (from.is_empty(), to.is_empty()) {
            (true, _) => to.parse().ok().map(Part::Last),
            (false, true) => from.parse().ok().map(Part::From),
            (false, false) => {
                let (from, to) = (from.parse().ok()?, to.parse().ok()?);
                (from <= to).then_some(Part::Between(from, to))
            }
        }
    }
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}
