//! Transactions: each whole or never, in the order of their commit calls.

use super::streams::Stream;
use crate::ledger::chance::Chance;
use crate::ledger::{entries, event, runs, writer_id};
use crate::session::{Session, Shape, append};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use dhara_wire::codec::Uuid;
use dhara_wire::command::Command;
use dhara_wire::controller::txn_state::State;
use dhara_wire::name;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longer than any round, so that no transaction ends by itself.
const LEASE: Duration = Duration::from_mins(1);
/// A commit taken must end within this time of a quiet system.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often its end is asked for.
const POLL: Duration = Duration::from_millis(5);
/// Parts of a transaction have numbers of their own: first number of the ledger, and room for each one's parts.
const FIRST_RUN: u64 = 1_000_000;
const PARTS_MAX: u64 = 16;

/// What its owner knows of the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing was asked.
    Open,
    /// A commit was asked; the answer is not known.
    CommitAsked,
    /// The commit was taken.
    Committed,
    /// An abort was asked.
    Aborted,
}

#[derive(Clone, Debug)]
struct Transaction {
    id: Uuid,
    /// Events of each part; a part is what goes to one segment.
    parts: Vec<i64>,
    end: End,
}

/// All transactions ever begun.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    all: Vec<Transaction>,
    /// Transactions below this index are settled.
    settled: usize,
}

fn run_number(transaction: usize, part: usize) -> u64 {
    let (transaction, part) = (u64::try_from(transaction).unwrap_or(0), u64::try_from(part).unwrap_or(0));
    FIRST_RUN + transaction * PARTS_MAX + part
}

impl Transactions {
    /// Begins, writes and ends transactions until the server is gone.
    ///
    /// # Errors
    /// If the server breaks a promise.
    pub(crate) async fn run(&mut self, mut stream: Stream, store: &str, mut chance: Chance) -> Result<()> {
        let Some(mut session) = Session::open(store).await? else { return Ok(()) };
        loop {
            let Some((id, segments)) = stream.begin(LEASE).await? else { return Ok(()) };
            ensure!(segments.len() <= usize::try_from(PARTS_MAX)?, "more segments than parts");
            ensure!(self.all.iter().all(|other| other.id != id), "transaction id {id} came twice");
            let index = self.all.len();
            let parts =
                segments.iter().map(|_| i64::try_from(chance.within(1..6))).collect::<Result<Vec<_>, _>>()?;
            self.all.push(Transaction { id, parts: parts.clone(), end: End::Open });
            for (part, (segment, events)) in segments.iter().zip(parts).enumerate() {
                let segment = name::transaction(&stream.name.segment(segment.id).to_string(), id);
                if !write(&mut session, &segment, run_number(index, part), events).await? {
                    return Ok(());
                }
            }
            let commit = !chance.once_in(4);
            self.all[index].end = if commit { End::CommitAsked } else { End::Aborted };
            match stream.end(id, commit).await? {
                None => return Ok(()),
                Some(false) => bail!("ending transaction {id} (commit: {commit}) was refused"),
                Some(true) if commit => self.all[index].end = End::Committed,
                Some(true) => {}
            }
            if chance.once_in(3) && commit && !await_end(&mut stream, id).await? {
                return Ok(());
            }
        }
    }

    /// Waits for what was asked, reads the whole stream and compares.
    ///
    /// # Errors
    /// At the first broken promise.
    pub(crate) async fn verify(&mut self, stream: &mut Stream, store: &str) -> Result<usize> {
        let mut committed = vec![true; self.all.len()];
        for (index, transaction) in self.all.iter_mut().enumerate() {
            let visible = match transaction.end {
                End::Open | End::Aborted => false,
                End::Committed if index < self.settled => true,
                End::Committed | End::CommitAsked => {
                    settle(stream, transaction.id, transaction.end == End::Committed).await?
                }
            };
            if transaction.end == End::CommitAsked {
                transaction.end = if visible { End::Committed } else { End::Open };
            }
            committed[index] = visible;
        }
        self.settled = self.all.len();
        let mut due = BTreeMap::new();
        for (index, transaction) in self.all.iter().enumerate().filter(|(index, _)| committed[*index]) {
            for (part, events) in transaction.parts.iter().enumerate() {
                due.insert(run_number(index, part), *events);
            }
        }
        let mut session = Session::open(store).await?.context("gone")?;
        let mut seen = BTreeMap::new();
        for id in stream.all().await? {
            let segment = stream.name.segment(id).to_string();
            let data = session.read(&segment, 0).await?;
            let found = entries(data).and_then(|entries| runs(&entries, |run| due.get(&run).copied()));
            for run in found.with_context(|| format!("segment {segment}"))? {
                ensure!(seen.insert(run, id).is_none(), "run {run} stands in two segments");
            }
        }
        let missing: Vec<&u64> = due.keys().filter(|run| !seen.contains_key(run)).collect();
        ensure!(missing.is_empty(), "committed runs are not there: {missing:?}");
        Ok(committed.iter().filter(|visible| **visible).count())
    }
}

/// Writes one part; false if the server is gone.
async fn write(session: &mut Session, segment: &str, run: u64, events: i64) -> Result<bool> {
    if session.setup(segment, writer_id(run)).await?.is_none() {
        return Ok(false);
    }
    let data: Vec<Bytes> = (1..=events).map(|number| event(run, number)).collect();
    let request_id = session.request_id();
    for frame in append(Shape::Alone, writer_id(run), &data, events, request_id) {
        session.send(frame).await?;
    }
    match session.reply().await? {
        None => Ok(false),
        Some(Command::DataAppended(ack)) if ack.event_number == events => Ok(true),
        Some(other) => bail!("writing to {segment}: {other:?}"),
    }
}

/// Waits until a commit that was taken is done; false if the server is gone.
async fn await_end(stream: &mut Stream, id: Uuid) -> Result<bool> {
    let end = Instant::now() + COMMIT_TIMEOUT;
    loop {
        match stream.state(id).await? {
            None => return Ok(false),
            Some(State::Committed) => return Ok(true),
            Some(State::Committing) => {}
            Some(other) => bail!("transaction {id} was committed and is {other:?}"),
        }
        ensure!(Instant::now() < end, "transaction {id} is still committing");
        sleep(POLL).await;
    }
}

/// Whether a transaction is committed, waiting for a commit under way.
async fn settle(stream: &mut Stream, id: Uuid, taken: bool) -> Result<bool> {
    match stream.state(id).await?.context("the controller is gone")? {
        State::Committed | State::Committing => await_end(stream, id).await,
        other if taken => bail!("the commit of transaction {id} was taken; it is {other:?}"),
        _ => Ok(false),
    }
}
