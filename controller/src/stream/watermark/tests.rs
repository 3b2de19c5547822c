use proptest::prelude::*;

use super::*;
use crate::stream::sample::{Change, History, any_history, id, range};

fn mark(time: i64, entries: &[(SegmentId, i64)]) -> WriterMark {
    WriterMark { time, position: StreamCut(entries.iter().copied().collect()), alive: true }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn moved(note: Note) -> WriterMark {
    match note {
        Note::Moved(mark) => mark,
        other => panic!("not moved: {other:?}"),
    }
}

/// Runs cycles over one history, keeping what a controller keeps.
struct Emitter {
    history: History,
    writers: BTreeMap<String, WriterMark>,
    previous: Option<Watermark>,
    silent_since_ms: BTreeMap<String, i64>,
    timeout_ms: i64,
}

impl Emitter {
    fn new(history: History, timeout_ms: i64) -> Self {
        let (writers, silent_since_ms) = (BTreeMap::new(), BTreeMap::new());
        Self { history, writers, previous: None, silent_since_ms, timeout_ms }
    }

    fn note(&mut self, writer: &str, time: i64, entries: &[(SegmentId, i64)]) {
        let noted = mark(time, entries);
        let note = WriterMark::note(self.writers.get(writer), noted.position, time);
        self.writers.insert(writer.to_owned(), moved(note));
    }

    fn cycle(&mut self, now_ms: i64) -> Outcome {
        let cycle = Cycle {
            previous: self.previous.as_ref(),
            silent_since_ms: &self.silent_since_ms,
            timeout_ms: self.timeout_ms,
            now_ms,
            epochs: Epochs::new(&self.history.epochs),
        };
        let outcome = cycle.run(&self.writers);
        self.previous = outcome.emit.clone().or(self.previous.take());
        self.silent_since_ms = outcome.silent_since_ms.clone();
        outcome
    }
}

#[test]
fn encoding_is_that_of_java() {
    let position = [(id(0, 0), (range(0.0, 1.0), 64))].into();
    let watermark = Watermark { lower: 1000, upper: 2000, position };
    let bytes = hex("00000100 00000039 00000000000003e8 00000000000007d0 01 0000010000000018
         0000000000000000 0000000000000000 3ff0000000000000 0000000000000040");
    assert_eq!(watermark.encode(), bytes);
    assert_eq!(Watermark::decode(&bytes), Ok(watermark));
}

#[test]
fn later_revisions_are_passed_over() {
    let watermark = Watermark { lower: 1, upper: 2, position: BTreeMap::new() };
    let mut bytes = watermark.encode();
    bytes[2] = 2;
    bytes.extend(hex("01 00000002 abcd"));
    assert_eq!(Watermark::decode(&bytes), Ok(watermark));
}

proptest! {
    #[test]
    fn encoding_round_trips_and_no_cut_or_mutation_panics(
        lower in any::<i64>(), upper in any::<i64>(), count in 0i32..300, at in 0usize..4000, byte in any::<u8>(),
    ) {
        let entry = |number: i32| (id(7, number), (range(0.25, 0.5), i64::from(number)));
        let watermark = Watermark { lower, upper, position: (0..count).map(entry).collect() };
        let mut bytes = watermark.encode();
        prop_assert_eq!(Watermark::decode(&bytes), Ok(watermark));
        let cut = at % bytes.len();
        prop_assert!(Watermark::decode(&bytes[..cut]).is_err());
        bytes[cut] = byte;
        drop(Watermark::decode(&bytes));
    }

    #[test]
    fn emitted_position_covers_the_key_space_and_never_goes_back(
        history in any_history(),
        notes in proptest::collection::vec((0usize..3, 0usize..64, 0i64..50, 0usize..64), 1..20),
    ) {
        let keys = history.keys();
        let all: Vec<SegmentId> = history.segments().into_keys().collect();
        let mut emitter = Emitter::new(history, 0);
        for (time, (writer, at, offset, epoch)) in notes.into_iter().enumerate() {
            let time = i64::try_from(time).unwrap();
            let epoch = &emitter.history.epochs[epoch % emitter.history.epochs.len()];
            let mut position: StreamCut =
                StreamCut(epoch.segments.iter().map(|segment| (segment.id(), offset)).collect());
            position.0.insert(all[at % all.len()], offset);
            position.0.insert(id(1, 999), 1);
            let writer = writer.to_string();
            if let Note::Moved(mark) = WriterMark::note(emitter.writers.get(&writer), position, time) {
                emitter.writers.insert(writer, mark);
            }
            let before = emitter.previous.clone();
            let Some(emitted) = emitter.cycle(time).emit else { continue };
            for key in &keys {
                let holds = |range: &KeyRange| range.low() <= *key && *key < range.high();
                let over = |mark: &Watermark| -> Vec<(SegmentId, i64)> {
                    let entries = mark.position.iter().filter(|(_, (range, _))| holds(range));
                    entries.map(|(id, (_, offset))| (*id, *offset)).collect()
                };
                let now = over(&emitted);
                prop_assert_eq!(now.len(), 1);
                prop_assert!(before.as_ref().is_none_or(|before| over(before) <= now));
            }
            prop_assert!(emitted.lower <= emitted.upper);
            prop_assert!(before.is_none_or(|before| before.lower < emitted.lower));
        }
    }
}

#[test]
fn notes_are_judged_as_in_the_transcripts() {
    let (s0, s1) = (id(0, 0), id(0, 1));
    let note = |last: &WriterMark, time, a, b| {
        WriterMark::note(Some(last), StreamCut([(s0, a), (s1, b)].into()), time)
    };
    let first = mark(100, &[(s0, 0), (s1, 0)]);
    assert_eq!(note(&first, 100, 0, 0), Note::Unchanged);
    let second = moved(note(&first, 200, 10, 10));
    assert_eq!(note(&second, 150, 10, 10), Note::InvalidTime);
    let third = moved(note(&second, 200, 20, 20));
    assert_eq!(note(&third, 200, 10, 20), Note::InvalidPosition);
    assert_eq!(note(&third, 300, 5, 30), Note::InvalidPosition);
    assert!(matches!(note(&third.removed(), 200, 20, 20), Note::Moved(WriterMark { alive: true, .. })));
    assert_eq!(note(&third.removed(), 50, 20, 20), Note::InvalidTime);
    assert_eq!(WriterMark::note(None, StreamCut::default(), 1), Note::InvalidPosition);
}

#[test]
fn watermark_waits_for_every_active_writer() {
    let mut emitter = Emitter::new(History::new(1, 0), 100);
    emitter.note("a", 1, &[(id(0, 0), 10)]);
    emitter.note("b", 5, &[(id(0, 0), 30)]);
    let first = emitter.cycle(0).emit.unwrap();
    assert_eq!((first.lower, first.upper), (1, 5));
    assert_eq!(first.position, [(id(0, 0), (KeyRange::FULL, 30))].into());
    emitter.note("b", 9, &[(id(0, 0), 40)]);
    assert_eq!(emitter.cycle(10).emit, None, "a has not moved");
    assert_eq!(emitter.cycle(109).emit, None);
    let outcome = emitter.cycle(110);
    assert_eq!(outcome.inactive, ["a"]);
    assert_eq!(outcome.emit.map(|mark| (mark.lower, mark.upper)), Some((9, 9)));
}

#[test]
fn removed_writer_holds_nothing_back() {
    let mut emitter = Emitter::new(History::new(1, 0), 1_000_000);
    emitter.note("a", 1, &[(id(0, 0), 10)]);
    emitter.cycle(0);
    let removed = emitter.writers["a"].removed();
    emitter.writers.insert("a".to_owned(), removed);
    emitter.note("b", 2, &[(id(0, 0), 20)]);
    assert_eq!(emitter.cycle(1).emit.map(|mark| mark.lower), Some(2));
}

#[test]
fn stream_without_active_writers_is_idle() {
    let mut emitter = Emitter::new(History::new(1, 0), 0);
    emitter.note("a", 1, &[(id(0, 0), 10)]);
    assert!(!emitter.cycle(0).idle);
    let outcome = emitter.cycle(1);
    assert!(outcome.idle && outcome.emit.is_none());
    assert_eq!(outcome.inactive, ["a"]);
}

#[test]
fn position_in_a_successor_completes_its_siblings() {
    let mut history = History::new(1, 0);
    history.change(&Change::Scale { at: 0, count: 1, bounds: vec![0.5] });
    let mut emitter = Emitter::new(history, 0);
    emitter.note("a", 1, &[(id(0, 0), 10)]);
    emitter.note("b", 1, &[(id(1, 2), 3)]);
    let emitted = emitter.cycle(0).emit.unwrap();
    let expected = [(id(1, 1), (range(0.5, 1.0), 0)), (id(1, 2), (range(0.0, 0.5), 3))];
    assert_eq!(emitted.position, expected.into());
}
