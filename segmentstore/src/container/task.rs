//! The container's task: admit, hand to the log, apply what is durable, publish, answer.
//!
//! Replies wait in one queue behind the sequence number of the last record staged when they were judged, refusals
//! too, so nobody hears of a state that a crash could take back, and each writer hears in the order it asked.

use super::flush::Flush;
use super::park::{Park, Waiter};
use super::pressure::{Adds, MemoryLimits, Pressure, Stock};
use super::publish::{Publisher, RecordPlace};
use super::regroup::{Regroup, Regrouped};
use super::rows::{Loaded, RowValue, Seen, index_rows, newest};
use super::tiering::{Deleted, Tiering, Uploaded};
use crate::index::{Index, IndexError};
use crate::log::{BATCH_BYTES_MAX, BatchBuilder, Durable, DurableWatch, Log, LogError, LogWriter};
use crate::log::{RECORD_BYTES_MAX, RECORD_HEADER_BYTES};
use crate::operation::{
    APPENDED_HEADER_BYTES, Answer, Append, AppendReply, AppendTag, Call, ConnectionId, Operation,
    RECORD_VERSION, Record, Refusal, Request, SessionId,
};
use crate::state::{Effect, RowChange, RowKey, State};
use crate::types::{ContainerId, SegmentId, SequenceNumber};
use dhara_stdx::budget::BytePermit;
use dhara_stdx::chain;
use dhara_stdx::clock::Clock;
use dhara_wire::limits::NULL_ATTRIBUTE_VALUE;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Operations taken from the inbox in one turn.
const TURN_OPERATIONS_MAX: usize = 1_024;
/// Largest data of an append: what one record holds. Two frames that make up one append may bring more.
const APPEND_BYTES_MAX: usize = RECORD_BYTES_MAX - RECORD_HEADER_BYTES - APPENDED_HEADER_BYTES as usize;
/// What a record of table changes takes besides them.
const CHANGES_HEADER_BYTES: usize = RECORD_HEADER_BYTES + 4 * 8 + 4;
/// What a change takes there besides key and value.
const CHANGE_BYTES: usize = 4 + 8 + 8 + 4;
/// Records applied in one turn: about 500 µs.
const SLICE_RECORDS_MAX: usize = 512;
/// Records admitted but not yet applied; also operations in line for a row, and replies that wait.
const IN_FLIGHT_RECORDS_MAX: usize = 65_536;
/// The data of those records; also that of operations in line.
const IN_FLIGHT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a container that stops waits for its index: long-term storage may be away, and who stops a server seldom gives
/// it more than ten seconds.
const LAST_FLUSH: Duration = Duration::from_secs(5);
/// And for its log, which may be full with nothing left to free.
const LAST_FRAMES: Duration = Duration::from_secs(5);
/// How often a quiet container looks after its index.
const TICK: Duration = Duration::from_millis(250);

/// Why a container ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The log failed; every container on it ends.
    #[error("log of container {container}")]
    Log {
        /// The container.
        container: ContainerId,
        /// What the log reported.
        #[source]
        source: LogError,
    },
    /// The index failed, or another owner has it.
    #[error("index of container {container}")]
    Index {
        /// The container.
        container: ContainerId,
        /// What the index reported.
        #[source]
        source: IndexError,
    },
}

/// What spawned work tells the task.
pub(super) enum Event {
    /// A row for operation `number`, looked up while the index had this generation.
    Loaded { number: u64, key: RowKey, value: RowValue, generation: u64 },
    /// A row for operation `number` could not be had in time.
    LoadFailed { number: u64 },
    /// An index flush ended.
    Flushed(Result<SequenceNumber, IndexError>),
    /// An object is up.
    Uploaded(Uploaded),
    /// A regrouped object is up, or could not be made.
    Regrouped(Regrouped),
    /// Dead objects were deleted, or could not be.
    ObjectsDeleted(Deleted),
    /// A sweep found rows to remove; none means that it is done.
    Swept(Result<Vec<crate::index::Row>, IndexError>),
}

struct InFlight {
    sequence: SequenceNumber,
    record: Record,
    /// Offset of the record's body in its batch.
    body: u32,
    bytes: usize,
}

/// An outcome on its way to whoever asked.
enum Reply {
    Append {
        tag: AppendTag,
        reply: Arc<dyn AppendReply>,
        outcome: Result<Answer, Refusal>,
        /// Memory that the append occupies; given back with its reply.
        permit: Option<BytePermit>,
    },
    Call {
        call: Call,
        outcome: Result<Answer, Refusal>,
    },
}

impl Reply {
    /// The container ended before the outcome was certain.
    fn unavailable(mut self) -> Self {
        let (Self::Append { outcome, .. } | Self::Call { outcome, .. }) = &mut self;
        *outcome = Err(Refusal::Unavailable);
        self
    }
}

pub(super) struct Task {
    /// Dropped before the publisher, as `run` closes them.
    pub(super) inbox: Inbox,
    pub(super) id: ContainerId,
    pub(super) state: State,
    pub(super) index: Index,
    pub(super) log: Arc<dyn Log>,
    pub(super) writer: Box<dyn LogWriter>,
    pub(super) durable: DurableWatch,
    pub(super) batch: BatchBuilder,
    pub(super) publisher: Publisher,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) storage: Handle,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) event_sender: mpsc::Sender<Event>,
    pub(super) stop: CancellationToken,
    pub(super) flush: Flush,
    pub(super) tiering: Tiering,
    pub(super) regroup: Regroup,
    pub(super) work: Work,
}

/// What is on its way through the container.
pub(super) struct Work {
    pub(super) pressure: Pressure,
    pub(super) loaded: Loaded,
    park: Park,
    /// Operations of this turn, the next one last.
    turn: Vec<Operation>,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
    due: VecDeque<Durable>,
    replies: VecDeque<(SequenceNumber, Reply)>,
    sessions: HashMap<ConnectionId, Vec<SessionId>>,
    now_ms: i64,
    /// Reused from turn to turn.
    pub(super) records: Vec<(SequenceNumber, Record)>,
    effects: Vec<Effect>,
    changes: Vec<RowChange>,
}

impl Work {
    pub(super) fn new(limits: MemoryLimits) -> Self {
        Self {
            pressure: Pressure::new(limits),
            loaded: Loaded::default(),
            park: Park::default(),
            turn: Vec::with_capacity(TURN_OPERATIONS_MAX),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            due: VecDeque::new(),
            replies: VecDeque::new(),
            sessions: HashMap::new(),
            now_ms: 0,
            records: Vec::new(),
            effects: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Everybody who waits hears `Unavailable`.
    fn refuse_all(&mut self) {
        for (_, reply) in std::mem::take(&mut self.replies) {
            deliver(reply.unavailable());
        }
        for waiter in self.park.drain() {
            match waiter {
                Waiter::Append(append) => refuse(Operation::Append(append)),
                Waiter::Call(request, call) => refuse(Operation::Call(request, call)),
                Waiter::EndSession(_) => {}
            }
        }
        self.pressure.take_all().for_each(refuse);
        self.turn.drain(..).rev().for_each(refuse);
    }
}

/// However the container's task ends, by a panic too: connections outlive it, and nobody else would tell them.
impl Drop for Work {
    fn drop(&mut self) {
        self.refuse_all();
    }
}

/// Operations on their way to the task.
pub(super) struct Inbox(pub(super) mpsc::Receiver<Operation>);

/// As for [`Work`].
impl Drop for Inbox {
    fn drop(&mut self) {
        self.0.close();
        while let Ok(operation) = self.0.try_recv() {
            refuse(operation);
        }
    }
}

impl Task {
    /// Runs until stopped or failed; then everything that waits hears `Unavailable`.
    pub(super) async fn run(mut self) -> Result<(), Failure> {
        let ended = self.serve().await;
        let ended = match ended {
            Ok(()) => self.drain().await,
            failed => failed,
        };
        if let Err(failure) = &ended {
            // At once, since to close what it has may take a while.
            warn!(container = %self.id, error = chain(failure), "container ends");
        }
        // In this order: who finds no segment looks whether the container is closed.
        self.inbox.0.close();
        self.publisher.close();
        self.work.refuse_all();
        // Waits for whoever has a place in the inbox already and is about to fill it.
        while let Some(operation) = self.inbox.0.recv().await {
            refuse(operation);
        }
        // Whoever has something to report must not wait for a task that does not listen any more.
        self.events.close();
        self.tiering.end().await;
        self.index.close().await;
        self.writer.close();
        ended
    }

    async fn serve(&mut self) -> Result<(), Failure> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let (apply, may_admit) = (!self.work.due.is_empty(), self.may_admit());
            // A full line takes no more, but it has to move on.
            let line_is_due = may_admit && self.work.pressure.has_due(Instant::now());
            let may_take = may_admit && self.work.pressure.may_take();
            // The tick is rare and short, and bounds what waits in memory. Then durable records: they free memory and
            // answer clients. Each turn is bounded, and new operations have theirs after each slice.
            tokio::select! { biased;
                () = self.stop.cancelled() => return Ok(()),
                _ = tick.tick() => self.upkeep()?,
                durable = self.durable.next() => self.take_durable(durable)?,
                Some(event) = self.events.recv() => self.take_event(event)?,
                () = std::future::ready(()), if apply => self.apply_slice()?,
                () = std::future::ready(()), if line_is_due => self.admit_turn()?,
                taken = self.inbox.0.recv_many(&mut self.work.turn, TURN_OPERATIONS_MAX), if may_take => {
                    if taken == 0 {
                        return Ok(());
                    }
                    self.admit_turn()?;
                }
            }
            if apply {
                // Between slices new operations get in, so that the log is never idle behind an apply.
                if self.may_admit() {
                    while self.work.pressure.may_take()
                        && self.work.turn.len() < TURN_OPERATIONS_MAX
                        && let Ok(operation) = self.inbox.0.try_recv()
                    {
                        self.work.turn.push(operation);
                    }
                    self.admit_turn()?;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Stops admitting, waits until everything staged is applied and answered, then flushes the index if it lets itself be.
    async fn drain(&mut self) -> Result<(), Failure> {
        self.submit()?;
        let last = Instant::now() + LAST_FRAMES;
        while !self.work.in_flight.is_empty() {
            if self.work.due.is_empty() {
                let Ok(durable) = tokio::time::timeout_at(last, self.durable.next()).await else {
                    warn!(container = %self.id, "the log is full: what it could not take in time is refused");
                    return Ok(());
                };
                self.take_durable(durable)?;
            }
            self.apply_slice()?;
        }
        if let Ok(flushed) = tokio::time::timeout(LAST_FLUSH, self.flush_now()).await {
            return flushed;
        }
        // The log keeps what is missing there, and the next start reads it.
        warn!(container = %self.id, "the index could not be flushed in time, the next start takes longer");
        Ok(())
    }

    fn may_admit(&mut self) -> bool {
        if self.work.pressure.is_on() {
            self.look_for_room();
        }
        self.work.in_flight.len() < IN_FLIGHT_RECORDS_MAX
            && self.work.in_flight_bytes < IN_FLIGHT_BYTES_MAX
            && self.work.replies.len() < IN_FLIGHT_RECORDS_MAX
            && self.work.park.len() < IN_FLIGHT_RECORDS_MAX
            && self.work.park.bytes() < IN_FLIGHT_BYTES_MAX
    }

    fn look_for_room(&mut self) {
        let stock = Stock {
            log_is_full: self.log.room().admissible_bytes == 0,
            places: self.publisher.marks.places(),
            overlay_bytes: self.flush.overlay_bytes,
        };
        self.work.pressure.look(stock, Instant::now());
    }

    fn take_durable(&mut self, durable: Result<Vec<Durable>, LogError>) -> Result<(), Failure> {
        let durable = durable.map_err(|source| Failure::Log { container: self.id, source })?;
        for batch in &durable {
            self.publisher.marks.batch(batch.address, batch.first);
        }
        self.work.due.extend(durable);
        Ok(())
    }

    fn take_event(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Loaded { number, key, value, generation } => {
                let Some(value) = newest(&self.index, &key, value, generation) else {
                    self.load(number, vec![key]);
                    return Ok(());
                };
                if self.work.park.get(number).is_none() {
                    return Ok(());
                }
                self.work.loaded.pin(key.clone(), value);
                self.work.park.loaded(number, key);
                self.unpark(number);
                self.submit()
            }
            Event::LoadFailed { number } => {
                self.work.park.fail(number);
                self.unpark(number);
                self.submit()
            }
            Event::Flushed(flushed) => {
                self.flushed(flushed)?;
                self.answer_asked()
            }
            Event::Uploaded(uploaded) => self.uploaded(uploaded),
            Event::Regrouped(made) => self.regrouped(made),
            Event::ObjectsDeleted(deleted) => self.objects_deleted(deleted),
            Event::Swept(swept) => self.swept(swept),
        }
    }

    fn admit_turn(&mut self) -> Result<(), Failure> {
        self.work.now_ms = self.clock.wall_ms();
        self.look_for_room();
        let now = Instant::now();
        for _nth in 0..TURN_OPERATIONS_MAX {
            let Some(operation) = self.work.pressure.next_due(now) else { break };
            self.take(operation)?;
        }
        self.work.turn.reverse();
        while let Some(operation) = self.work.turn.pop() {
            if let Some(operation) = self.work.pressure.hold(operation, now) {
                self.take(operation)?;
            }
        }
        self.submit()
    }

    fn take(&mut self, operation: Operation) -> Result<(), Failure> {
        self.receive(operation)?;
        if self.batch.len() >= BATCH_BYTES_MAX { self.submit() } else { Ok(()) }
    }

    /// Hands the batch to the log.
    pub(super) fn submit(&mut self) -> Result<(), Failure> {
        while let Some(batch) = self.batch.take() {
            self.flush.logged_bytes += batch.len();
            self.writer.append(batch).map_err(|source| Failure::Log { container: self.id, source })?;
            self.look_for_room();
        }
        Ok(())
    }

    fn receive(&mut self, operation: Operation) -> Result<(), Failure> {
        match operation {
            Operation::Append(append) => match self.line_of(append.tag.session) {
                Some(name) => drop(self.work.park.park(Waiter::Append(append), vec![name], 0)),
                None => self.judge_append(append),
            },
            Operation::Call(request, call) => self.receive_call(request, call),
            Operation::EndSession(session) => match self.line_of(session) {
                Some(name) => drop(self.work.park.park(Waiter::EndSession(session), vec![name], 0)),
                None => self.end_session(session),
            },
            Operation::Disconnected(connection) => self.disconnect(connection),
            Operation::FlushToStorage(call) => return self.flush_all(call),
        }
        Ok(())
    }

    /// The name in whose line an operation of this session must stand, if there is a line.
    fn line_of(&self, session: SessionId) -> Option<String> {
        if self.work.park.is_empty() {
            return None;
        }
        let pending = self.work.park.pending_session(session);
        let name = pending.or_else(|| self.state.session_name(session))?;
        self.work.park.blocks(&[name]).then(|| name.to_owned())
    }

    fn receive_call(&mut self, request: Request, call: Call) {
        let names = request.names();
        let missing = {
            let rows = Seen { index: &self.index, loaded: &self.work.loaded };
            self.state.missing(&request, &rows)
        };
        if missing.is_empty() && !self.work.park.blocks(&names) {
            self.judge_call(&request, call);
            return;
        }
        let names = names.into_iter().map(str::to_owned).collect();
        let number = self.work.park.park(Waiter::Call(request, call), names, missing.len());
        self.load(number, missing);
    }

    fn load(&self, number: u64, missing: Vec<RowKey>) {
        for key in missing {
            let (index, events) = (self.index.clone(), self.event_sender.clone());
            // The load ends by its time-out; its event finds no receiver if the container has ended.
            drop(self.storage.spawn(async move {
                let event = super::flush::load_row(&index, number, key).await;
                let _ended = events.send(event).await;
            }));
        }
    }

    /// Judges everything in line that may be judged now, beginning with operation `number`.
    fn unpark(&mut self, number: u64) {
        let mut candidates = vec![number];
        while let Some(number) = candidates.pop() {
            if !self.work.park.ready(number) {
                continue;
            }
            // The state may have changed since the rows were asked for: a name may lead to another segment now.
            let waiting = self.work.park.get(number).filter(|parked| !parked.failed);
            if let Some(Waiter::Call(request, _)) = waiting.map(|parked| &parked.waiter) {
                let rows = Seen { index: &self.index, loaded: &self.work.loaded };
                let missing = self.state.missing(request, &rows);
                if !missing.is_empty() {
                    self.work.park.expect(number, missing.len());
                    self.load(number, missing);
                    continue;
                }
            }
            let Some((parked, next)) = self.work.park.take(number) else { continue };
            match parked.waiter {
                Waiter::Append(append) => self.judge_append(append),
                Waiter::EndSession(session) => self.end_session(session),
                Waiter::Call(..) if parked.abandoned => {}
                Waiter::Call(_, call) if parked.failed => {
                    self.answer(Reply::Call { call, outcome: Err(Refusal::Unavailable) });
                }
                Waiter::Call(request, call) => self.judge_call(&request, call),
            }
            for key in &parked.pinned {
                self.work.loaded.unpin(key);
            }
            candidates.extend(next);
        }
    }

    fn judge_append(&mut self, append: Append) {
        let judged = if self.work.pressure.refuses(Adds::APPEND) {
            // None of the session's later appends may be stored without this one.
            Err(self.state.fail_session(append.tag.session, Refusal::Unavailable))
        } else if append.data.len() > APPEND_BYTES_MAX {
            Err(self.state.fail_session(append.tag.session, Refusal::Illegal("append is too large")))
        } else {
            self.state.admit_append(&append, self.work.now_ms)
        };
        let outcome = judged.map(|(record, answer)| {
            let sequence = SequenceNumber(self.state.next_sequence().0 - 1);
            self.stage(sequence, record);
            answer
        });
        let Append { tag, reply, permit, .. } = append;
        self.answer(Reply::Append { tag, reply, outcome, permit });
    }

    fn judge_call(&mut self, request: &Request, call: Call) {
        let mut records = std::mem::take(&mut self.work.records);
        let mut outcome = if self.work.pressure.refuses(Adds::of(request)) {
            Err(Refusal::Unavailable)
        } else if record_bytes(request) > RECORD_BYTES_MAX {
            Err(Refusal::Illegal("table batch is too large"))
        } else {
            let rows = Seen { index: &self.index, loaded: &self.work.loaded };
            self.state.admit(request, &rows, self.work.now_ms, &mut records)
        };
        // A refused setup is a session too: it repeats its refusal.
        if let Request::SetupAppend { session, .. } = request {
            let is_new = matches!(outcome, Ok(Answer::SetUp { last: NULL_ATTRIBUTE_VALUE }));
            if is_new && self.work.pressure.refuses(Adds::WRITER) {
                outcome = Err(self.state.fail_session(*session, Refusal::Unavailable));
            }
            self.work.sessions.entry(session.connection).or_default().push(*session);
        }
        self.stage_all(records);
        self.answer(Reply::Call { call, outcome });
    }

    pub(super) fn stage_all(&mut self, mut records: Vec<(SequenceNumber, Record)>) {
        for (sequence, record) in records.drain(..) {
            self.stage(sequence, record);
        }
        self.work.records = records;
    }

    /// Encodes a decided record into the batch and remembers it until it is durable.
    fn stage(&mut self, sequence: SequenceNumber, record: Record) {
        let bytes = record.weight();
        let body = self.batch.record(sequence, record.kind(), RECORD_VERSION, |out| record.encode(out));
        self.work.in_flight_bytes += bytes;
        self.work.in_flight.push_back(InFlight { sequence, record, body, bytes });
    }

    /// Answers once the state that the outcome was judged by is durable.
    fn answer(&mut self, reply: Reply) {
        let judged_by = SequenceNumber(self.state.next_sequence().0 - 1);
        if judged_by <= self.state.applied_upto() {
            deliver(reply);
        } else {
            self.work.replies.push_back((judged_by, reply));
        }
    }

    fn end_session(&mut self, session: SessionId) {
        self.state.end_session(session);
        if let Some(sessions) = self.work.sessions.get_mut(&session.connection) {
            sessions.retain(|open| *open != session);
        }
        self.index_changes();
    }

    fn disconnect(&mut self, connection: ConnectionId) {
        self.work.pressure.leave(connection).into_iter().for_each(refuse);
        self.work.park.abandon(connection);
        let sessions = self.work.sessions.remove(&connection).unwrap_or_default();
        let mut records = std::mem::take(&mut self.work.records);
        self.state.admit_disconnect(connection, &sessions, &mut records);
        self.stage_all(records);
        self.index_changes();
    }

    pub(super) fn stage_new_epoch(&mut self, given_up: Vec<SegmentId>) -> Result<(), Failure> {
        let mut records = Vec::new();
        self.state.admit_given_up(given_up, &mut records);
        self.state.admit_new_epoch(&mut records);
        self.stage_all(records);
        self.submit()
    }

    /// Applies a bounded number of durable records, publishes them, then answers.
    fn apply_slice(&mut self) -> Result<(), Failure> {
        let mut room = SLICE_RECORDS_MAX;
        while let Some(batch) = self.work.due.front().copied() {
            while room > 0
                && let Some(next) = self.work.in_flight.pop_front_if(|next| next.sequence <= batch.last)
            {
                room -= 1;
                self.work.in_flight_bytes -= next.bytes;
                let mut effects = std::mem::take(&mut self.work.effects);
                effects.clear();
                self.state.apply(next.sequence, &next.record, &mut effects);
                // Readers of a table trust its published length to be indexed.
                self.index_changes();
                let place =
                    RecordPlace { batch: batch.address, body: batch.address.offset(next.body.into()) };
                self.publisher.carry_out(&self.state, &effects, place);
                self.work.effects = effects;
            }
            if self.work.in_flight.front().is_some_and(|next| next.sequence <= batch.last) {
                break;
            }
            self.work.due.pop_front();
        }
        self.publisher.wake();
        self.flush.look(&self.index);
        let applied_upto = self.state.applied_upto();
        while let Some((_, reply)) = self.work.replies.pop_front_if(|(after, _)| *after <= applied_upto) {
            deliver(reply);
        }
        self.tiering_applied()
    }

    /// Hands the state's row changes to the index.
    pub(super) fn index_changes(&mut self) {
        self.state.take_changes(&mut self.work.changes);
        if self.work.changes.is_empty() {
            return;
        }
        let changes = std::mem::take(&mut self.work.changes);
        self.flush.note(&changes);
        let rows = index_rows(changes, &mut self.work.loaded);
        self.index.apply(rows, self.state.applied_upto());
    }

    fn upkeep(&mut self) -> Result<(), Failure> {
        self.flush_if_due();
        self.sweep_if_due();
        self.tier_if_due()
    }

    pub(super) fn log_opened(&self, took: Duration) {
        info!(
            container = %self.id,
            segments = self.state.segments().count(),
            took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "container opened"
        );
    }
}

/// How large a table batch's record can get; nothing else that is asked can outgrow one.
fn record_bytes(request: &Request) -> usize {
    let changes: usize = match request {
        Request::TableUpdate { puts, .. } => {
            puts.iter().map(|put| CHANGE_BYTES + put.key.len() + put.value.len()).sum()
        }
        Request::TableRemove { keys, .. } => keys.iter().map(|(key, _)| CHANGE_BYTES + key.len()).sum(),
        _ => 0,
    };
    CHANGES_HEADER_BYTES + changes
}

fn deliver(reply: Reply) {
    match reply {
        Reply::Append { tag, reply, outcome, permit } => {
            reply.appended(&tag, outcome);
            drop(permit);
        }
        Reply::Call { call, outcome } => call(outcome),
    }
}

fn refuse(operation: Operation) {
    match operation {
        Operation::Append(append) => append.reply.appended(&append.tag, Err(Refusal::Unavailable)),
        Operation::Call(_, call) | Operation::FlushToStorage(call) => call(Err(Refusal::Unavailable)),
        Operation::EndSession(_) | Operation::Disconnected(_) => {}
    }
}
