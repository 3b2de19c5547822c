//! Random requests, crashes, flushes and slow rows, against the model.

use super::*;
use crate::index::key;
use crate::read::TableRead;
use crate::read::decode_row;
use crate::state::tests::model::{Model, Segment, plain};
use crate::state::tests::ops::{self, Clients, Op, any_op};
use crate::types::SegmentId;
use dhara_wire::command::{TableEntry, TableKey};
use proptest::collection::vec;
use proptest::prelude::*;

/// How a container comes to its end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The power fails.
    PowerCut(u64),
    /// The power fails after some more calls to the disk.
    PowerFails(u64, u64),
    /// The container alone dies; its log goes on.
    Death,
    /// In order.
    Stop,
    /// An index flush fails, with or without effect.
    Flush(bool),
}

#[derive(Clone, Debug)]
enum Step {
    Do(Op),
    /// The log writes a frame.
    Turn,
    Settle,
    /// The index is flushed as of what is applied.
    Flush,
    /// Everything is brought to objects, and the index flushed.
    Tier,
    /// Time goes by.
    Pass,
    /// Writes of the index stop, or go on.
    Writes(bool),
    End(End),
    /// Look-ups stop, or go on.
    Gets(bool),
    /// One look-up goes on.
    LetPass(usize),
}

fn any_end() -> impl Strategy<Value = End> {
    prop_oneof![
        4 => any::<u64>().prop_map(End::PowerCut),
        2 => (0..6_u64, any::<u64>()).prop_map(|(calls, seed)| End::PowerFails(calls, seed)),
        2 => Just(End::Death),
        1 => Just(End::Stop),
        1 => any::<bool>().prop_map(End::Flush),
    ]
}

fn any_crashing_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => any_op().prop_map(Step::Do),
        10 => Just(Step::Turn),
        4 => Just(Step::Settle),
        2 => Just(Step::Flush),
        3 => Just(Step::Tier),
        1 => Just(Step::Pass),
        1 => any::<bool>().prop_map(Step::Writes),
        2 => any_end().prop_map(Step::End),
    ]
}

fn any_slow_step() -> impl Strategy<Value = Step> {
    let lasting = any_op()
        .prop_filter("a lost connection does not wait in line", |op| !matches!(op, Op::Disconnect { .. }));
    prop_oneof![
        40 => lasting.prop_map(Step::Do),
        10 => Just(Step::Turn),
        2 => Just(Step::Settle),
        2 => Just(Step::Flush),
        3 => any::<bool>().prop_map(Step::Gets),
        12 => any::<usize>().prop_map(Step::LetPass),
    ]
}

/// A container beside its model.
struct Storm {
    world: World,
    running: Running,
    clients: Clients,
    /// The model after each operation since the container opened, and before the first.
    models: Vec<Model>,
    /// What each operation must hear; none where nothing is said.
    expected: Vec<Option<Outcome>>,
}

impl Storm {
    async fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let running = world.open().await;
        let models = vec![Model::new(running.handle.index().epoch())];
        Self { world, running, clients: Clients::default(), models, expected: Vec::new() }
    }

    async fn act(&mut self, op: &Op) {
        self.world.clock.advance(1);
        let now_ms = self.world.clock.wall_ms();
        let mut model = self.models.last().unwrap().clone();
        for what in self.clients.resolve(op, &model) {
            let expected = match &what {
                Do::Request(request) => Some(model.judge(request, now_ms)),
                Do::Append(put, _) => Some(model.append(put)),
                Do::EndSession(session) => {
                    model.end_session(*session);
                    None
                }
                Do::Disconnect(connection) => {
                    model.disconnect(*connection);
                    None
                }
            };
            self.running.send(self.expected.len(), &what).await;
            self.expected.push(expected);
            self.models.push(model.clone());
        }
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Do(op) => self.act(op).await,
            Step::Turn => drop(self.running.log.log.turn()),
            Step::Settle => self.running.settle().await,
            Step::Flush => self.running.flush_applied().await,
            Step::Tier => {
                let unheard = Operation::FlushToStorage(Box::new(|_| {}));
                self.running.handle.send(unheard).await.unwrap();
                self.running.idle().await;
            }
            Step::Pass => self.running.pass(TICK).await,
            Step::Writes(true) => self.running.writes.open(),
            Step::Writes(false) => self.running.writes.shut(),
            Step::Gets(true) => self.running.gets.open(),
            Step::Gets(false) => self.running.gets.shut(),
            Step::LetPass(at) => drop(self.running.gets.let_one_pass(*at)),
            Step::End(_) => unreachable!("taken by the caller"),
        }
    }

    /// Checks what was heard so far: each outcome as expected, and each once.
    fn check_heard(&self) -> Vec<usize> {
        let heard = self.running.heard.all();
        for (number, outcome) in &heard {
            let outcome = plain(outcome.clone());
            if outcome != Err(Refusal::Unavailable) {
                assert_eq!(Some(outcome), self.expected[*number], "operation {number}");
            }
        }
        let numbers: Vec<usize> = heard.iter().map(|(number, _)| *number).collect();
        let mut once = numbers.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), numbers.len(), "each is answered once");
        numbers
    }

    /// The newest operation that was acknowledged or refused for what it is.
    fn acknowledged(&self) -> usize {
        let heard = self.running.heard.all();
        let certain = heard.iter().filter(|(_, outcome)| *outcome != Err(Refusal::Unavailable));
        certain.map(|(number, _)| number + 1).max().unwrap_or(0)
    }

    /// Everything sent is answered once all gates are open.
    async fn finish(&self) {
        self.running.gets.open();
        self.running.writes.open();
        self.running.settle().await;
        let heard = self.check_heard();
        let due = (0..).zip(&self.expected).filter(|(_, expected)| expected.is_some());
        let due: Vec<usize> = due.map(|(number, _)| number).collect();
        let mut heard = heard;
        heard.sort_unstable();
        assert_eq!(heard, due, "everyone is answered");
        assert!(self.acknowledged() == due.last().map_or(0, |last| last + 1));
        assert_eq!(self.running.differs(self.models.last().unwrap(), true).await, None);
    }

    /// Ends the container one way or the other, opens it again, and goes on from what it remembers.
    async fn end(&mut self, end: End) {
        let mut seed = 0;
        match end {
            End::PowerCut(with) => seed = with,
            End::PowerFails(calls, with) => {
                seed = with;
                self.world.disk.power_off_after(calls);
                self.running.settle().await;
            }
            End::Death | End::Stop => {}
            End::Flush(effect) => {
                let fault = if effect { WriteFault::AnswerLost } else { WriteFault::Refused };
                *self.running.fault.lock() = Some(fault);
                self.running.writes.open();
                self.running.flush_applied().await;
                *self.running.fault.lock() = None;
            }
        }
        let stopped = matches!(end, End::Stop);
        if stopped {
            self.running.writes.open();
            self.running.stop.cancel();
            for _ in 0..4 {
                self.running.settle().await;
            }
            self.finish_stopped();
        }
        let acknowledged = self.acknowledged();
        self.check_heard();
        self.reopen(matches!(end, End::PowerCut(_) | End::PowerFails(..)).then_some(seed)).await;
        let reopened = self.running.handle.index().epoch();
        let mut found = None;
        for (number, model) in self.models.iter().enumerate().rev() {
            let mut model = model.clone();
            model.reopen(reopened);
            if number >= acknowledged && self.running.differs(&model, false).await.is_none() {
                found = Some(model);
                break;
            }
        }
        let Some(found) = found else {
            let mut wanted = self.models[acknowledged].clone();
            wanted.reopen(reopened);
            panic!(
                "operations up to {acknowledged} of {} were acknowledged, but after {end:?} {}",
                self.expected.len(),
                self.running.differs(&wanted, false).await.unwrap_or_default()
            );
        };
        self.models = vec![found];
        self.expected.clear();
        self.clients.lose_all();
    }

    fn finish_stopped(&self) {
        assert!(self.running.task.is_finished(), "a container stops");
        let answered = self.check_heard().len();
        assert_eq!(answered, self.expected.iter().flatten().count(), "a stop answers everyone");
        let heard = self.running.heard.all();
        assert!(heard.iter().all(|(_, outcome)| *outcome != Err(Refusal::Unavailable)));
    }

    async fn reopen(&mut self, power_cut: Option<u64>) {
        let log = Arc::clone(&self.running.log);
        if let Some(seed) = power_cut {
            self.world.disk = self.world.disk.crash(seed);
        }
        self.running.task.abort();
        while !self.running.task.is_finished() {
            tokio::task::yield_now().await;
        }
        let log = if power_cut.is_some() { self.world.open_log() } else { log };
        self.running = self.world.open_on(&log, 0).await.unwrap_or_else(|error| panic!("{error:?}"));
    }
}

impl Running {
    /// Flushes what is applied; what is on its way to the log stays there.
    async fn flush_applied(&self) {
        self.idle().await;
        self.log.full.store(true, Ordering::SeqCst);
        tokio::time::advance(TICK).await;
        self.idle().await;
        self.log.full.store(false, Ordering::SeqCst);
        // A container that found the log full looks again at its next tick.
        tokio::time::advance(TICK).await;
        self.idle().await;
    }

    /// How what readers see differs from the model; for a container at rest. Rows of the attributes of writers are
    /// looked at only where no `sessions` are open, which keep what is newer.
    async fn differs(&self, model: &Model, sessions: bool) -> Option<String> {
        for name in ops::all_names() {
            let view = self.handle.views().find(&name);
            let expected = model.segments.get(&name);
            let (Some(view), Some(expected)) = (&view, expected) else {
                if view.is_some() || expected.is_some() {
                    return Some(format!("{name} is there: {}", view.is_some()));
                }
                continue;
            };
            let core = view.core();
            let numbers = (core.start, core.length, core.sealed, core.events, core.entries, core.policy);
            let length = expected.length();
            let entries = expected.entries.len() as u64;
            let wanted = (expected.start, length, expected.sealed, expected.events, entries, expected.policy);
            if numbers != wanted || view.kind != expected.kind {
                return Some(format!(
                    "{name} is {:?} {numbers:?}, not {:?} {wanted:?}",
                    view.kind, expected.kind
                ));
            }
            if view.kind.is_table() {
                if let Some(entries) = self.table_differs(&name, expected).await {
                    return Some(entries);
                }
            } else {
                let content = self.content(&name).await.unwrap();
                let start = usize::try_from(expected.start).unwrap();
                if content != expected.data[start..] {
                    return Some(format!("{name} holds other bytes"));
                }
            }
            if let Some(rows) = self.rows_differ(view.id, expected, sessions).await {
                return Some(format!("{name} has {rows}"));
            }
        }
        None
    }

    /// Reads a table as its clients do, page by page.
    async fn table_differs(&self, name: &str, expected: &Segment) -> Option<String> {
        let view = self.handle.views().find(name).unwrap();
        let read = TableRead::new(&view, self.handle.index()).unwrap();
        let nothing = Bytes::new();
        let mut found = Vec::new();
        loop {
            let token = found.last().map_or_else(Bytes::new, |entry: &TableEntry| entry.key.key.clone());
            let fixed = matches!(view.kind, SegmentKind::FixedTable { .. });
            let page =
                read.iterate(if fixed { &nothing } else { &token }, &nothing, &nothing, 2).await.unwrap();
            let end = page.entries.is_empty() || fixed;
            found.extend(
                if fixed { read.iterate(&nothing, &nothing, &nothing, 100).await.unwrap() } else { page }
                    .entries,
            );
            if end {
                break;
            }
        }
        let entry = |(key, (version, value)): (&Bytes, &(i64, Bytes))| TableEntry {
            key: TableKey { key: key.clone(), version: *version },
            value: value.clone(),
        };
        let wanted: Vec<TableEntry> = expected.entries.iter().map(entry).collect();
        if found != wanted {
            return Some(format!("{name} iterates over {found:?}, not {wanted:?}"));
        }
        if view.kind == SegmentKind::HashTable {
            for from in [0, expected.table_length / 2, expected.table_length] {
                let (mut position, mut changed) = (from, Vec::new());
                loop {
                    let page = read.delta(i64::try_from(position).unwrap(), 2).await.unwrap();
                    changed.extend(page.entries);
                    position = page.position;
                    if page.reached_end {
                        break;
                    }
                }
                changed.sort_by(|one, other| one.key.key.cmp(&other.key.key));
                let since = |entry: &&TableEntry| u64::try_from(entry.key.version).unwrap() >= from;
                let wanted: Vec<TableEntry> = wanted.iter().filter(since).cloned().collect();
                if changed != wanted {
                    return Some(format!("{name} changed since {from}: {changed:?}, not {wanted:?}"));
                }
            }
        }
        None
    }

    async fn rows_differ(&self, id: SegmentId, expected: &Segment, sessions: bool) -> Option<String> {
        let index = self.handle.index();
        for key in ops::all_keys() {
            let row = index.get(&key::table_key(id, &key)).await.unwrap();
            let entry = row.map(|row| decode_row(row).unwrap());
            if entry.as_ref() != expected.entries.get(&key) {
                return Some(format!("{entry:?} for {key:?}"));
            }
        }
        for attribute in ops::all_attributes().filter(|attribute| !sessions || attribute.0 >> 64 != 0) {
            let row = index.get(&key::attribute(id, &attribute.0.to_be_bytes())).await.unwrap();
            let value = row.map(|row| i64::from_le_bytes(row.as_ref().try_into().unwrap()));
            if value.as_ref() != expected.attributes.get(&attribute.0) {
                return Some(format!("{value:?} for {attribute:?}"));
            }
        }
        None
    }
}

fn live_ids(running: &Running) -> Vec<SegmentId> {
    let names = ops::all_names().chain((0..4).map(rest));
    names.filter_map(|name| Some(running.handle.views().find(&name)?.id)).collect()
}

/// Names of segments that only make the index flush.
fn rest(number: usize) -> String {
    format!("rest/{number}")
}

/// All is written, swept, and found again; no row of a segment that is gone is left.
async fn check_rest(storm: &mut Storm) {
    // What the sweeper removes joins the flush of the next record.
    for number in 0..4 {
        storm
            .running
            .request(storm.expected.len() + number, create(&rest(number), SegmentKind::Stream))
            .await;
        storm.running.settle().await;
        storm.running.flush().await;
    }
    storm.running.heard.0.lock().retain(|(number, _)| *number < storm.expected.len());
    assert!(!storm.running.handle.is_closed());
    let live = live_ids(&storm.running);
    for row_key in storm.world.rows[0].rows().keys() {
        for kind in [key::Kind::Segment, key::Kind::Attribute, key::Kind::TableKey, key::Kind::TableVersion] {
            if let Some((id, _)) = key::parse_of_segment(kind, row_key) {
                assert!(live.contains(&id), "a row of {id} outlived it");
            }
        }
    }
    storm.running.heard.0.lock().retain(|(number, _)| *number < storm.expected.len());
    storm.end(End::PowerCut(7)).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Invariants 7, 9, 10, 12, 16, 18, 19 and 20: each step waits for its rows, so that records are in the order of
    /// the operations, and what a crash leaves is all up to one of them.
    #[test]
    fn nothing_acknowledged_is_lost_or_doubled(seed in any::<u32>(), steps in vec(any_crashing_step(), 0..150)) {
        on_paused_clock(async {
            let mut storm = Storm::new(seed.into()).await;
            for step in &steps {
                match step {
                    Step::End(end) => storm.end(*end).await,
                    step => storm.take(step).await,
                }
                storm.running.idle().await;
                let heard = storm.check_heard();
                assert!(heard.is_sorted(), "answers keep the order of the records");
            }
            storm.finish().await;
            check_rest(&mut storm).await;
        });
    }

    /// Invariants 8, 13 and 26: whatever is cold, each segment's operations are judged in the order of their arrival.
    #[test]
    fn slow_rows_change_no_outcome(seed in any::<u32>(), steps in vec(any_slow_step(), 0..150)) {
        on_paused_clock(async {
            let mut storm = Storm::new(seed.into()).await;
            for step in &steps {
                storm.take(step).await;
                if !matches!(step, Step::Do(_)) {
                    storm.running.idle().await;
                }
                storm.check_heard();
            }
            storm.finish().await;
            check_rest(&mut storm).await;
        });
    }
}
