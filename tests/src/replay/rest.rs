//! One HTTP request at a time, written out by hand: what the transcripts say is sent as it stands.

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(150);

/// Sends a request to `base` (`http://HOST:PORT`) and returns status and body; a body that is no JSON is a text.
///
/// # Errors
/// If nobody listens or the answer is no HTTP.
pub async fn request(
    base: &str,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &str,
) -> Result<(u16, Json)> {
    let address = base.strip_prefix("http://").context("http only")?.trim_end_matches('/');
    #[allow(clippy::disallowed_methods, reason = "these tests are a stranger to the server: real sockets")]
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        write!(text, "{name}: {value}\r\n")?;
    }
    if !body.is_empty() || matches!(method, "POST" | "PUT") {
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            text.push_str("Content-Type: application/json\r\n");
        }
        write!(text, "Content-Length: {}\r\n", body.len())?;
    }
    text.push_str("\r\n");
    text.push_str(body);
    let mut answer = Vec::new();
    timeout(ANSWER_TIMEOUT, async {
        stream.write_all(text.as_bytes()).await?;
        stream.read_to_end(&mut answer).await
    })
    .await
    .context("no answer in time")??;
    parse(&answer)
}

fn parse(answer: &[u8]) -> Result<(u16, Json)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no end of headers")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let status = head.split_whitespace().nth(1).context("no status")?.parse()?;
    let rest = &answer[end + 4..];
    let body = if head.contains("transfer-encoding: chunked") { unchunk(rest)? } else { rest.to_vec() };
    let json = match serde_json::from_slice(&body) {
        Ok(json) => json,
        Err(_not_json) if body.is_empty() => Json::Null,
        Err(_not_json) => Json::String(String::from_utf8_lossy(&body).into_owned()),
    };
    Ok((status, json))
}

fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").context("a chunk has a size line")?;
        let digits = std::str::from_utf8(&rest[..end])?.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16)?;
        if size == 0 {
            return Ok(body);
        }
        let start = end + 2;
        let Some(chunk) = rest.get(start..start + size) else { bail!("a chunk is cut short") };
        body.extend_from_slice(chunk);
        rest = rest.get(start + size + 2..).context("a chunk is not ended")?;
    }
}
