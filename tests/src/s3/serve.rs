//! Takes calls, lets knobs spoil them, and does them.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use chrono::DateTime;
use dhara_stdx::net;
use futures_util::StreamExt;
use http::header;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, S3Error};
use super::bucket::{Condition, Listing, Object, Page, Write};
use super::call::{Call, Kind, Part};
use super::knobs::{Outage, What};
use super::line::{Line, LineListener};
use super::xml::{Document, elements, text};
use super::{Life, Shared};

/// Entries of a page of a list, as S3 has them.
const PAGE: usize = 1_000;

/// Listens at `addr` until the token that it returns is cancelled.
pub(super) async fn listen(addr: SocketAddr, shared: Arc<Shared>) -> anyhow::Result<Life> {
    let listener = net::listen(addr).await.context("listen")?;
    let addr = listener.local_addr()?;
    let end = CancellationToken::new();
    let lines = LineListener { listener, life: end.clone() };
    let router = Router::new().fallback(handle).with_state(shared);
    let service = router.into_make_service_with_connect_info::<Line>();
    let ended = end.clone();
    let serving = tokio::spawn(async move {
        tokio::select! {
            // The end first: it comes once.
            biased;
            () = ended.cancelled() => {}
            _never = axum::serve(lines, service).into_future() => {}
        }
    });
    Ok(Life { addr, end, serving })
}

async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let knobs = shared.knobs.lock().clone();
    let call = match Call::new(&parts.method, &parts.uri, parts.headers) {
        Ok(call) => call,
        Err(error) => return Answer::error(error).into_response(knobs.slow_body, None),
    };
    shared.counts.lock().add(call.kind);
    tokio::time::sleep(knobs.latency).await;
    if knobs.outage == Outage::Silence {
        line.gone().await;
    }
    let fault = shared.knobs.lock().fault(call.kind, &call.key);
    let is_read = matches!(call.kind, Kind::Get | Kind::Head | Kind::List);
    let torn = (fault == Some(What::Torn) && is_read).then(|| line.clone());
    let is_torn_upload = fault == Some(What::Torn) && !is_read;
    // A refusal too comes after the whole body, or the client would see a broken connection instead.
    let Some(body) = read(body, is_torn_upload).await else {
        line.cut();
        return Answer::done().into_response(knobs.slow_body, None);
    };
    let refusal = match (knobs.outage, knobs.deny, fault) {
        (Outage::Errors, ..) => Some(S3Error::Status(503)),
        (_, true, _) => Some(S3Error::AccessDenied),
        (_, _, Some(What::Status(status))) => Some(S3Error::Status(status)),
        _ => None,
    };
    let answer = match refusal {
        Some(error) => Err(error),
        None => answer(&shared, &call, body, knobs.page.unwrap_or(PAGE)),
    };
    if fault == Some(What::Lost) && refusal.is_none() {
        line.cut();
    }
    let answer = answer.unwrap_or_else(Answer::error);
    let answer = if call.kind == Kind::Head { answer.head() } else { answer };
    answer.into_response(knobs.slow_body, torn)
}

/// Reads a body; `None` if it is torn, by the client or because it is to be.
async fn read(body: Body, is_torn: bool) -> Option<Bytes> {
    let mut pieces = body.into_data_stream();
    let mut bytes = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece.ok()?);
        if is_torn {
            return None;
        }
    }
    (!is_torn).then(|| bytes.freeze())
}

/// Does a call, all of it under one lock.
fn answer(shared: &Shared, call: &Call, body: Bytes, page: usize) -> Result<Answer, S3Error> {
    let at = (call.bucket.as_str(), call.key.as_str());
    let upload = call.query("uploadId").unwrap_or_default();
    let write = || Ok(Write { condition: condition(call)?, now_ms: shared.clock.wall_ms() });
    let mut buckets = shared.buckets.lock();
    if call.is_chunk_signed() {
        return Err(S3Error::NotImplemented);
    }
    match call.kind {
        Kind::Get | Kind::Head => read_object(call, buckets.get(at.0, at.1)?),
        Kind::Put => {
            let tag = buckets.put(at, body, &write()?)?;
            Ok(Answer::stored(&tag))
        }
        Kind::Delete => buckets.delete(at.0, at.1).map(|()| Answer::gone()),
        Kind::DeleteMany => {
            let mut document = Document::new();
            document.open("DeleteResult");
            for object in elements(as_text(&body)?, "Object") {
                let key = text(object, "Key").ok_or(S3Error::MalformedXml)?;
                buckets.delete(at.0, &key)?;
                document.open("Deleted");
                document.leaf("Key", &key);
                document.close("Deleted");
            }
            document.close("DeleteResult");
            Ok(Answer::xml(document.finish()))
        }
        Kind::List => list(call, page, |listing| buckets.list(at.0, listing)),
        Kind::Create => {
            let id = buckets.create(at.0, at.1)?;
            Ok(result("InitiateMultipartUploadResult", call, &[("UploadId", &id)]))
        }
        Kind::Part => {
            let number = call.query("partNumber").and_then(|number| number.parse().ok());
            let number = number.ok_or(S3Error::InvalidArgument)?;
            let tag = buckets.part(at, upload, number, body)?;
            Ok(Answer::stored(&tag))
        }
        Kind::Complete => {
            let parts = parts(as_text(&body)?)?;
            let tag = buckets.complete(at, upload, &parts, &write()?)?;
            Ok(result("CompleteMultipartUploadResult", call, &[("ETag", &tag)]))
        }
        Kind::Abort => buckets.abort(at.0, upload).map(|()| Answer::gone()),
        Kind::MakeBucket => {
            buckets.make(at.0);
            Ok(Answer::done())
        }
        Kind::Other => Err(S3Error::NotImplemented),
    }
}

fn read_object(call: &Call, object: &Object) -> Result<Answer, S3Error> {
    if call.header(header::IF_MATCH).is_some_and(|tag| tag != object.e_tag && tag != "*") {
        return Err(S3Error::PreconditionFailed);
    }
    if call.header(header::IF_NONE_MATCH).is_some_and(|tag| tag == object.e_tag || tag == "*") {
        return Err(S3Error::NotModified);
    }
    let length = object.bytes.len();
    let part = match call.part() {
        None => None,
        Some(Part::Last(bytes)) => Some(length.saturating_sub(bytes)..length),
        Some(Part::From(from)) => Some(from..length),
        Some(Part::Between(from, to)) => Some(from..length.min(to.saturating_add(1))),
    };
    if part.as_ref().is_some_and(|part| part.start >= part.end) {
        return Err(S3Error::InvalidRange);
    }
    Ok(Answer::object(object, part))
}

fn condition(call: &Call) -> Result<Condition, S3Error> {
    match (call.header(header::IF_NONE_MATCH), call.header(header::IF_MATCH)) {
        (None, None) => Ok(Condition::None),
        (Some("*"), None) => Ok(Condition::Missing),
        (None, Some(tag)) => Ok(Condition::Tag(tag.to_owned())),
        _ => Err(S3Error::NotImplemented),
    }
}

fn list(
    call: &Call,
    page: usize,
    find: impl FnOnce(&Listing) -> Result<Page, S3Error>,
) -> Result<Answer, S3Error> {
    if call.query("list-type") != Some("2") {
        return Err(S3Error::NotImplemented);
    }
    let asked = call.query("max-keys").and_then(|keys| keys.parse().ok()).unwrap_or(PAGE);
    let after = call.query("continuation-token").or_else(|| call.query("start-after"));
    let listing = Listing {
        prefix: call.query("prefix").unwrap_or_default().to_owned(),
        delimiter: call.query("delimiter").filter(|text| !text.is_empty()).map(str::to_owned),
        after: after.map(str::to_owned),
        limit: asked.min(page),
    };
    let found = find(&listing)?;
    let mut document = Document::new();
    document.open("ListBucketResult");
    document.leaf("Name", &call.bucket);
    document.leaf("Prefix", &listing.prefix);
    document.leaf("KeyCount", &(found.objects.len() + found.prefixes.len()).to_string());
    document.leaf("MaxKeys", &listing.limit.to_string());
    document.leaf("IsTruncated", if found.next.is_some() { "true" } else { "false" });
    if let Some(next) = &found.next {
        document.leaf("NextContinuationToken", next);
    }
    for (key, object) in &found.objects {
        let modified = DateTime::from_timestamp_millis(object.modified_ms).unwrap_or_default();
        document.open("Contents");
        document.leaf("Key", key);
        document.leaf("LastModified", &modified.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string());
        document.leaf("ETag", &object.e_tag);
        document.leaf("Size", &object.bytes.len().to_string());
        document.leaf("StorageClass", "STANDARD");
        document.close("Contents");
    }
    for prefix in &found.prefixes {
        document.open("CommonPrefixes");
        document.leaf("Prefix", prefix);
        document.close("CommonPrefixes");
    }
    document.close("ListBucketResult");
    Ok(Answer::xml(document.finish()))
}

/// The answer to a step of an upload in parts.
fn result(name: &str, call: &Call, fields: &[(&str, &str)]) -> Answer {
    let mut document = Document::new();
    document.open(name);
    document.leaf("Bucket", &call.bucket);
    document.leaf("Key", &call.key);
    for (field, value) in fields {
        document.leaf(field, value);
    }
    document.close(name);
    Answer::xml(document.finish())
}

fn parts(document: &str) -> Result<Vec<(u32, String)>, S3Error> {
    let part = |part| {
        let number = text(part, "PartNumber")?.parse().ok()?;
        Some((number, text(part, "ETag")?))
    };
    elements(document, "Part").map(|element| part(element).ok_or(S3Error::MalformedXml)).collect()
}

fn as_text(body: &Bytes) -> Result<&str, S3Error> {
    std::str::from_utf8(body).map_err(|_not_utf8| S3Error::MalformedXml)
}
