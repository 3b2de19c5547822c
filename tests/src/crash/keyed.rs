//! Writers by key on a stream that is split and merged under them.

use super::appender::{random_append, take_ack};
use super::streams::{Range, Stream};
use crate::ledger::chance::Chance;
use crate::ledger::{Ledger, entries, writer_id};
use crate::session::{NEVER_WROTE, Session};
use anyhow::{Context, Result, bail, ensure};
use dhara_wire::command::Command;
use dhara_wire::hash::routing_position;
use dhara_wire::name::SegmentId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::sleep;

/// Appends in flight at a time.
const WINDOW: usize = 16;
/// Below this a range is not split any more.
const WIDTH_MIN: f64 = 0.01;
/// How often the progress of a scale is asked for.
const POLL: Duration = Duration::from_millis(2);

/// A writer of one key.
#[derive(Clone, Debug)]
pub(super) struct Keyed {
    writer: u64,
    position: f64,
    sent: i64,
    acked: i64,
    /// Last number in the data when the writers stood still.
    stored: i64,
}

impl Keyed {
    fn new(writer: u64) -> Self {
        Self { writer, position: routing_position(&format!("key {writer}")), sent: 0, acked: 0, stored: 0 }
    }

    /// Its number in the ledger.
    pub(super) fn writer(&self) -> u64 {
        self.writer
    }

    /// Writes, from segment to segment, until the server is gone.
    ///
    /// # Errors
    /// If the server breaks a promise.
    pub(super) async fn run(&mut self, mut stream: Stream, store: &str, mut chance: Chance) -> Result<()> {
        self.acked = self.stored;
        let Some(current) = stream.current().await? else { return Ok(()) };
        let mut segment = self.choose(&current)?;
        loop {
            let Some(mut session) = Session::open(store).await? else { return Ok(()) };
            if !self.write(&mut session, &stream, segment, &mut chance).await? {
                return Ok(());
            }
            // The segment is sealed: from here on it must have successors.
            let Some(next) = stream.successors(segment).await? else { return Ok(()) };
            ensure!(!next.is_empty(), "{segment:?} is sealed and has no successor");
            segment = self.choose(&next)?;
        }
    }

    fn choose(&self, ranges: &[Range]) -> Result<SegmentId> {
        let mine = ranges.iter().find(|range| range.low <= self.position && self.position < range.high);
        Ok(mine.with_context(|| format!("nobody has position {} in {ranges:?}", self.position))?.id)
    }

    /// Writes to one segment; true once it is sealed, false if the server is gone.
    async fn write(
        &mut self,
        session: &mut Session,
        stream: &Stream,
        id: SegmentId,
        chance: &mut Chance,
    ) -> Result<bool> {
        let segment = stream.name.segment(id).to_string();
        let Some(last) = session.setup(&segment, writer_id(self.writer)).await? else { return Ok(false) };
        // What this segment has of the writer, or nothing if all of it lies in earlier ones.
        let mut first = last;
        if last == NEVER_WROTE {
            first = 0;
        } else {
            ensure!(last >= self.acked && last <= self.sent, "writer {}: set up at {last}", self.writer);
            self.acked = last;
        }
        let mut next = self.acked;
        let mut due = VecDeque::new();
        let mut acked_here = first;
        let mut sealed = false;
        loop {
            while !sealed && due.len() < WINDOW {
                let request_id = session.request_id();
                let (last, frames) = random_append(chance, self.writer, next, request_id);
                next = last;
                self.sent = self.sent.max(last);
                due.push_back(last);
                for frame in frames {
                    session.send(frame).await?;
                }
            }
            if due.is_empty() {
                return Ok(true);
            }
            match session.reply().await? {
                None => return Ok(false),
                Some(Command::DataAppended(ack)) => {
                    ensure!(!sealed, "writer {}: an ack after the segment was sealed", self.writer);
                    acked_here = take_ack(&ack, self.writer, acked_here, &mut due)?;
                    self.acked = acked_here;
                }
                Some(Command::SegmentIsSealed(_)) => {
                    sealed = true;
                    due.pop_front();
                }
                Some(other) => bail!("writer {}: {other:?}", self.writer),
            }
        }
    }
}

/// Splits and merges until the server is gone; the number of scales that ended.
///
/// # Errors
/// If the server breaks a promise.
pub(super) async fn scale(mut stream: Stream, mut chance: Chance) -> Result<u32> {
    let mut scales = 0;
    loop {
        let Some(current) = stream.current().await? else { return Ok(scales) };
        let at = usize::try_from(chance.within(0..u64::try_from(current.len())?))?;
        let wide = current[at].high - current[at].low > WIDTH_MIN && current.len() < 8;
        let (sealed, new) = if wide && (current.len() == 1 || chance.once_in(2)) {
            let middle = f64::midpoint(current[at].low, current[at].high);
            (vec![current[at]], vec![(current[at].low, middle), (middle, current[at].high)])
        } else if current.len() > 1 {
            let at = at.min(current.len() - 2);
            (current[at..at + 2].to_vec(), vec![(current[at].low, current[at + 1].high)])
        } else {
            continue;
        };
        match stream.scale(&sealed, &new).await? {
            None => return Ok(scales),
            Some(None) => {}
            Some(Some(epoch)) => loop {
                match stream.is_scaled(epoch).await? {
                    None => return Ok(scales),
                    Some(true) => break,
                    Some(false) => {}
                }
                sleep(POLL).await;
            },
        }
        scales += 1;
        sleep(Duration::from_millis(chance.within(1..40))).await;
    }
}

/// All writers of the scaled stream, and how far its segments were read.
#[derive(Debug)]
pub(super) struct KeyedWriters {
    /// The writers.
    pub(super) writers: Vec<Keyed>,
    ledger: Ledger,
    positions: BTreeMap<i64, i64>,
}

impl KeyedWriters {
    /// Three writers with keys of their own.
    pub(super) fn new() -> Self {
        Self {
            writers: (101..=103).map(Keyed::new).collect(),
            ledger: Ledger::default(),
            positions: BTreeMap::new(),
        }
    }

    /// Reads what is new, or everything, segment after segment, and compares.
    ///
    /// # Errors
    /// At the first broken promise.
    pub(super) async fn verify(&mut self, stream: &mut Stream, store: &str, everything: bool) -> Result<i64> {
        if everything {
            self.ledger = Ledger::default();
            self.positions.clear();
        }
        let mut session = Session::open(store).await?.context("gone")?;
        for id in stream.all().await? {
            let segment = stream.name.segment(id).to_string();
            let position = self.positions.entry(id.raw()).or_insert(0);
            let data = session.read(&segment, *position).await?;
            *position += i64::try_from(data.len())?;
            let taken = entries(data).and_then(|entries| self.ledger.take(&entries));
            taken.with_context(|| format!("segment {segment} before offset {position}"))?;
        }
        let mut events = 0;
        for writer in &mut self.writers {
            self.ledger.check(writer.writer, writer.acked, writer.sent)?;
            writer.stored = self.ledger.last(writer.writer);
            events += writer.stored;
        }
        Ok(events)
    }
}
