//! Readers of what was written earlier, and one that asks how a segment is.

use super::told::{Progress, Told};
use crate::ledger::chance::Chance;
use crate::ledger::{Entry, whole_events};
use crate::session::Session;
use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::time::{Instant, sleep};

/// Most appends that are read in one go.
const APPENDS_MAX: u64 = 64;
/// How long to wait for the first appends.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// How often the probe asks.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Reads random places of all segments and compares them with what was written there.
///
/// # Errors
/// At the first wrong byte.
pub(super) async fn run(
    all: Vec<(String, Progress)>,
    store: String,
    mut chance: Chance,
    stop: channel::Receiver<bool>,
    told: Told,
) -> Result<()> {
    let mut session = Session::open(&store).await?.context("gone")?;
    while !*stop.borrow() {
        let (segment, progress) = &all[usize::try_from(chance.within(0..all.len() as u64))?];
        let count = usize::try_from(chance.within(1..APPENDS_MAX))?;
        let Some((from, first, end)) = progress.some(&mut chance, count) else {
            sleep(FIRST_WAIT).await;
            continue;
        };
        let asked = Instant::now();
        let mut data = BytesMut::from(session.read_range(segment, from, end).await?);
        told.read_back(asked.elapsed());
        let entries = whole_events(&mut data).with_context(|| format!("{segment} from {from} to {end}"))?;
        ensure!(data.is_empty(), "{segment}: half an event before {end}");
        progress.check(&entries)?;
        for (number, Entry { number: found, .. }) in (first..).zip(entries) {
            ensure!(number == found, "{segment} from {from}: event {found} in the place of {number}");
        }
    }
    Ok(())
}

/// Asks for the state of a segment once a second.
///
/// # Errors
/// If the server does not tell.
pub(super) async fn probe(
    segments: Vec<String>,
    store: String,
    mut stop: channel::Receiver<bool>,
    told: Told,
) -> Result<()> {
    let mut session = Session::open(&store).await?.context("gone")?;
    for segment in segments.iter().cycle() {
        let asked = Instant::now();
        session.info(segment).await?.context("gone")?;
        told.probed(asked.elapsed());
        tokio::select! {
            biased;
            // That the other side is gone says the same.
            _stop = stop.wait_for(|stop| *stop) => break,
            () = sleep(PROBE_EVERY) => {}
        }
    }
    Ok(())
}
