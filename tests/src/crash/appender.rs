//! Writers of one segment each: pipelined append blocks in all shapes, and conditional appends.

use crate::ledger::chance::Chance;
use crate::ledger::{Ledger, entries, event, writer_id};
use crate::session::{NEVER_WROTE, Session, Shape, append};
use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, Bytes};
use dhara_wire::command::{Command, ConditionalAppend, DataAppended, Event};
use std::collections::{BTreeMap, VecDeque};

/// Appends in flight at a time.
const WINDOW: usize = 64;
/// Most events of one append.
const EVENTS_MAX: u64 = 12;

/// What a writer remembers over crashes.
#[derive(Clone, Debug)]
pub(super) struct Appender {
    /// Its number in the ledger.
    pub(super) writer: u64,
    /// Where it writes.
    pub(super) segment: String,
    /// Highest number ever sent.
    pub(super) sent: i64,
    /// Highest number ever acknowledged.
    pub(super) acked: i64,
    /// Whether it writes on conditions, alone on its segment.
    pub(super) conditional: bool,
}

/// One append of random size and shape, of the events after `after`; returns the number of the last.
pub(super) fn random_append(
    chance: &mut Chance,
    writer: u64,
    after: i64,
    request_id: i64,
) -> (i64, Vec<Command>) {
    let count = i64::try_from(chance.within(1..EVENTS_MAX + 1)).unwrap_or(1);
    let events: Vec<Bytes> = (after + 1..=after + count).map(|number| event(writer, number)).collect();
    let shape = match chance.within(0..4) {
        0 => Shape::Alone,
        1 => Shape::Exact,
        2 => Shape::Padded,
        _ => Shape::Straddle,
    };
    (after + count, append(shape, writer_id(writer), &events, after + count, request_id))
}

/// Checks an ack, which covers every append of `due` up to its number, and takes them out; returns its number.
///
/// # Errors
/// If an ack is repeated, covers nothing that is due, or goes to somebody else.
pub(super) fn take_ack(ack: &DataAppended, writer: u64, acked: i64, due: &mut VecDeque<i64>) -> Result<i64> {
    ensure!(ack.writer_id == writer_id(writer), "writer {writer} got the ack of another");
    let covered = due.iter().position(|number| *number == ack.event_number);
    let covered =
        covered.with_context(|| format!("writer {writer}: ack of {}, due {due:?}", ack.event_number))?;
    due.drain(..=covered);
    let previous = if ack.previous_event_number == NEVER_WROTE { 0 } else { ack.previous_event_number };
    ensure!(previous == acked, "writer {writer}: previous number {previous}, acked before {acked}");
    Ok(ack.event_number)
}

impl Appender {
    /// A writer that has not written yet.
    pub(super) fn new(writer: u64, segment: &str, conditional: bool) -> Self {
        Self { writer, segment: segment.to_owned(), sent: 0, acked: 0, conditional }
    }

    /// Writes until the server is gone.
    ///
    /// # Errors
    /// If the server breaks a promise.
    pub(super) async fn run(&mut self, store: &str, chance: Chance) -> Result<()> {
        let Some(mut session) = Session::open(store).await? else { return Ok(()) };
        let Some(last) = session.setup(&self.segment, writer_id(self.writer)).await? else { return Ok(()) };
        let last = if last == NEVER_WROTE { 0 } else { last };
        ensure!(last >= self.acked, "writer {}: set up at {last}, acked {}", self.writer, self.acked);
        ensure!(last <= self.sent, "writer {}: set up at {last}, sent only {}", self.writer, self.sent);
        self.acked = last;
        if self.conditional {
            self.run_conditional(session, chance).await
        } else {
            self.run_pipelined(session, chance).await
        }
    }

    async fn run_pipelined(&mut self, mut session: Session, mut chance: Chance) -> Result<()> {
        let mut next = self.acked;
        let mut due = VecDeque::new();
        loop {
            while due.len() < WINDOW {
                let request_id = session.request_id();
                let (last, frames) = random_append(&mut chance, self.writer, next, request_id);
                next = last;
                self.sent = self.sent.max(last);
                due.push_back(last);
                for frame in frames {
                    session.send(frame).await?;
                }
            }
            match session.reply().await? {
                None => return Ok(()),
                Some(Command::DataAppended(ack)) => {
                    self.acked = take_ack(&ack, self.writer, self.acked, &mut due)?;
                }
                Some(other) => bail!("writer {}: {other:?}", self.writer),
            }
        }
    }

    async fn run_conditional(&mut self, mut session: Session, mut chance: Chance) -> Result<()> {
        let Some(info) = session.info(&self.segment).await? else { return Ok(()) };
        let mut length = info.write_offset;
        loop {
            let number = self.acked + 1;
            let wrong = chance.once_in(8);
            let framed = event(self.writer, number);
            let request = ConditionalAppend {
                writer_id: writer_id(self.writer),
                event_number: number,
                expected_offset: if wrong { length + 1 } else { length },
                event: Event(framed.slice(8..)),
                request_id: session.request_id(),
            };
            if !wrong {
                self.sent = self.sent.max(number);
            }
            match session.ask(request).await? {
                None => return Ok(()),
                Some(Command::ConditionalCheckFailed(_)) if wrong => {}
                Some(Command::DataAppended(ack)) if !wrong => {
                    self.acked = take_ack(&ack, self.writer, self.acked, &mut VecDeque::from([number]))?;
                    length += i64::try_from(framed.remaining())?;
                    let at = ack.current_segment_write_offset;
                    ensure!(at == length, "writer {}: acked at {at}, due {length}", self.writer);
                }
                Some(other) => bail!("writer {} (wrong offset: {wrong}): {other:?}", self.writer),
            }
        }
    }
}

/// All writers of plain segments, and how far each segment was read.
#[derive(Debug, Default)]
pub(super) struct Appenders {
    /// The writers.
    pub(super) writers: Vec<Appender>,
    ledgers: BTreeMap<String, (i64, Ledger)>,
}

impl Appenders {
    /// Writers of three segments of `scope`: two pipelined ones on each of two, a conditional one alone on the third.
    pub(super) fn new(scope: &str) -> Self {
        let segment = |n: u32| format!("{scope}/plain/{n}.#epoch.0");
        let mut writers: Vec<Appender> =
            (1..=4).map(|n| Appender::new(n, &segment(u32::from(n > 2)), false)).collect();
        writers.push(Appender::new(5, &segment(2), true));
        Self { writers, ledgers: BTreeMap::new() }
    }

    /// Creates the segments.
    ///
    /// # Errors
    /// If it cannot.
    pub(super) async fn create(&self, store: &str) -> Result<()> {
        let mut session = Session::open(store).await?.context("gone")?;
        for writer in &self.writers {
            session.create(&writer.segment).await?;
        }
        Ok(())
    }

    /// Reads what is new, or everything, and compares it with what was sent and acked.
    ///
    /// # Errors
    /// At the first broken promise.
    pub(super) async fn verify(&mut self, store: &str, everything: bool) -> Result<i64> {
        if everything {
            self.ledgers.clear();
        }
        let mut session = Session::open(store).await?.context("gone")?;
        for writer in &self.writers {
            self.ledgers.entry(writer.segment.clone()).or_default();
        }
        for (segment, (position, ledger)) in &mut self.ledgers {
            let data = session.read(segment, *position).await?;
            *position += i64::try_from(data.len())?;
            let taken = entries(data).and_then(|entries| ledger.take(&entries));
            taken.with_context(|| format!("segment {segment} before offset {position}"))?;
        }
        let mut events = 0;
        for writer in &mut self.writers {
            let ledger = &self.ledgers[&writer.segment].1;
            ledger.check(writer.writer, writer.acked, writer.sent)?;
            let stored = session.setup(&writer.segment, writer_id(writer.writer)).await?.context("gone")?;
            let last = ledger.last(writer.writer);
            let agrees = stored == last || (stored == NEVER_WROTE && last == 0);
            ensure!(agrees, "writer {}: set up at {stored}, the data ends at {last}", writer.writer);
            events += last;
        }
        Ok(events)
    }
}
