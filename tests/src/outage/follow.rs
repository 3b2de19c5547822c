//! A reader that follows a writer at the tail.

use super::told::{Progress, Told};
use crate::ledger::{Ledger, whole_events};
use crate::session::Session;
use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use dhara_wire::command::{Command, ReadSegment};

/// Bytes asked for at a time.
const READ_BYTES: i32 = 1 << 20;

/// Reads until the writer has ended and all that it wrote is read.
///
/// # Errors
/// If a byte is wrong, missing or out of place.
pub(super) async fn run(segment: String, store: String, progress: Progress, told: Told) -> Result<()> {
    let mut session = Session::open(&store).await?.context("gone")?;
    let (mut at, mut rest, mut ledger) = (0, BytesMut::new(), Ledger::default());
    loop {
        let request = ReadSegment {
            segment: segment.clone(),
            offset: at,
            suggested_length: READ_BYTES,
            delegation_token: String::new(),
            request_id: session.request_id(),
        };
        session.send(request).await?;
        let reply = tokio::select! {
            biased;
            reply = session.reply() => reply?.context("gone")?,
            () = progress.read_all(at) => return Ok(()),
        };
        match reply {
            Command::SegmentRead(read) if read.offset == at => {
                at += i64::try_from(read.data.0.len())?;
                rest.extend_from_slice(&read.data.0);
            }
            other => bail!("following {segment} at {at}: {other:?}"),
        }
        let entries = whole_events(&mut rest)?;
        progress.check(&entries)?;
        ledger.take(&entries).with_context(|| format!("following {segment} before {at}"))?;
        if let Some(entry) = entries.last() {
            progress.seen(entry.number).into_iter().for_each(|delay| told.followed(delay));
        }
    }
}
