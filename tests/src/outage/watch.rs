//! What the server takes of memory and disk while it works.

use super::told::Told;
use crate::session::Session;
use anyhow::{Context, Result, bail};
use dhara_wire::command::{Command, ListStorageChunks};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Looks until it is dropped, or the process is gone.
pub(super) async fn run(pid: u32, data: PathBuf, told: Told) {
    while let Ok(memory) = anonymous_bytes(pid) {
        told.looked(memory, folder_bytes(&data.join("log")));
        sleep(LOOK_EVERY).await;
    }
}

/// Memory of the process that no file stands behind, bytes: maps of the log are the page cache's.
fn anonymous_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib << 10)
}

/// Bytes of the files in a folder; a file that goes away meanwhile has none.
fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = folder.read_dir() else { return 0 };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// How many of a segment's bytes long-term storage has.
///
/// # Errors
/// If the server refuses to tell.
pub(super) async fn stored(session: &mut Session, segment: &str) -> Result<i64> {
    let request = ListStorageChunks {
        segment: segment.to_owned(),
        delegation_token: String::new(),
        request_id: session.request_id(),
    };
    match session.ask(request).await?.context("gone")? {
        Command::StorageChunksListed(listed) => {
            Ok(listed.chunks.iter().map(|chunk| chunk.length_in_metadata).sum())
        }
        other => bail!("asking what is stored of {segment}: {other:?}"),
    }
}
