//! Pieces against the plainest model: one log address for each byte.

use super::*;
use crate::types::ObjectId;
use proptest::collection::vec;
use proptest::prelude::*;

const HEADER: u64 = 24;

/// A log that records are laid into, batch by batch, and what it holds of whom.
#[derive(Default)]
struct Log {
    end: u64,
    batch: u64,
    /// Data of append records: where, whose, from which offset, how long.
    data: Vec<(u64, SegmentId, u64, u64)>,
}

impl Log {
    fn begin_batch(&mut self) {
        self.end = self.end.next_multiple_of(4096) + 4096;
        self.batch = self.end;
    }

    /// Lays down an append record behind `gap` bytes of other records of the batch.
    fn append(&mut self, segment: SegmentId, offset: u64, length: u64, gap: u64) -> AppendPlace {
        let body = self.end + gap + HEADER;
        let data = body + u64::from(APPENDED_HEADER_BYTES);
        self.data.push((data, segment, offset, length));
        self.end = data + length;
        AppendPlace { batch: LogAddress(self.batch), body: LogAddress(body), record_header_bytes: HEADER }
    }

    /// The addresses of a piece's bytes, found as a reader finds them.
    fn bytes(&self, piece: &Piece) -> Vec<u64> {
        match piece.source {
            Source::Place { data } => (data.0..data.0 + piece.length).collect(),
            Source::Records { first, span, segment, offset } => {
                let wanted = offset..offset + piece.length;
                let inside = |(data, of, _, length): &&(u64, SegmentId, u64, u64)| {
                    *of == segment && *data >= first.0 && data + length <= first.0 + u64::from(span)
                };
                let mut found = Vec::new();
                for (data, _, from, length) in self.data.iter().filter(inside) {
                    let bytes = (*from..from + length).zip(*data..);
                    found.extend(bytes.filter(|(offset, _)| wanted.contains(offset)).map(|(_, at)| at));
                }
                found
            }
            Source::Extent { stored, skip } => {
                let from = in_object(stored.object.counter) + u64::from(skip);
                (from..from + piece.length).collect()
            }
        }
    }
}

/// Where the first byte of an object lies, apart from all addresses of the log.
fn in_object(counter: u32) -> u64 {
    1 << 63 | u64::from(counter) << 32
}

/// All of an object, as a piece.
fn extent(counter: u32, offset: u64, length: u64) -> Piece {
    let object = ObjectId { epoch: 1, counter };
    let stored = Stored { object, at: 64, length: length.try_into().unwrap(), first_block: 0, crc: 0 };
    Piece { offset, length, source: Source::Extent { stored, skip: 0 } }
}

/// A segment: its pieces, and the address of each of its bytes from `start` on.
struct Segment {
    id: SegmentId,
    pieces: Pieces,
    start: u64,
    length: u64,
    addresses: Vec<u64>,
    /// Where appends began.
    boundaries: Vec<u64>,
}

impl Segment {
    fn new(id: u64) -> Self {
        let pieces = Pieces::default();
        Self { id: SegmentId(id), pieces, start: 0, length: 0, addresses: Vec::new(), boundaries: Vec::new() }
    }

    fn check(&self, log: &Log) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.pieces.prove(self.start, self.length), Ok(()));
        let covered = self.pieces.iter().next().map_or(self.length, |first| first.offset);
        prop_assert!(covered <= self.start || self.start == self.length);
        let found: Vec<u64> = self.pieces.iter().flat_map(|piece| log.bytes(piece)).collect();
        let skip = usize::try_from(covered).unwrap();
        prop_assert_eq!(&found, &self.addresses[skip.min(self.addresses.len())..]);
        let places = self.pieces.iter().filter(|piece| piece.is_place());
        prop_assert_eq!(self.pieces.placed(), places.map(|piece| piece.length).sum::<u64>());
        for offset in [self.start, self.start + (self.length - self.start) / 2, self.length, self.length + 1]
        {
            let piece = self.pieces.find(offset);
            prop_assert_eq!(piece.is_some(), (self.start..self.length).contains(&offset));
            prop_assert!(piece.is_none_or(|piece| (piece.offset..piece.end()).contains(&offset)));
            prop_assert_eq!(self.pieces.from(offset).next().copied(), piece);
            let boundary = self.pieces.boundary(offset);
            prop_assert!(boundary.is_none_or(|at| at >= offset && self.boundaries.contains(&at)));
            let is_place = |at: &u64| *at < 1 << 63;
            let (from, half) = (self.start, offset.min(self.length));
            let lies = &self.addresses[usize::try_from(from).unwrap()..usize::try_from(half).unwrap()];
            prop_assert_eq!(self.pieces.are_places(from, half), lies.iter().all(is_place));
            let stored = lies.iter().take_while(|at| !is_place(at)).count() as u64;
            prop_assert_eq!(self.pieces.stored_upto(from).min(half), from + stored);
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append { segment: usize, length: u64, gap: u64 },
    NewBatch,
    Truncate { segment: usize, permille: u64 },
    Merge { target: usize, source: usize },
    Store { segment: usize, from: u64, to: u64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![4 => 1..200_u64, 1 => 3900..4300_u64];
    let gap = prop_oneof![3 => Just(0), 2 => 1..300_u64, 1 => 10_000..80_000_u64];
    prop_oneof![
        12 => (0..3_usize, length, gap)
            .prop_map(|(segment, length, gap)| Step::Append { segment, length, gap }),
        2 => Just(Step::NewBatch),
        1 => (0..3_usize, 0..=1000_u64).prop_map(|(segment, permille)| Step::Truncate { segment, permille }),
        2 => (0..3_usize, 0..3_usize).prop_map(|(target, source)| Step::Merge { target, source }),
        3 => (0..3_usize, 0..1000_u64, 0..=1000_u64)
            .prop_map(|(segment, from, to)| Step::Store { segment, from, to }),
    ]
}

/// Takes a step; keeps count of the addresses that the log must not let go.
fn take(step: &Step, segments: &mut [Segment], log: &mut Log, next: &mut u64, needed: &mut Vec<LogAddress>) {
    let mut forget = |address: LogAddress| {
        let at = needed.iter().position(|other| *other == address).expect("only what was needed is dropped");
        needed.swap_remove(at);
    };
    match *step {
        Step::NewBatch => log.begin_batch(),
        Step::Append { segment, length, gap } => {
            let segment = &mut segments[segment];
            let place = log.append(segment.id, segment.length, length, gap);
            match segment.pieces.append(segment.id, segment.length, length, place) {
                Added::New(address) => needed.push(address),
                Added::Joined(was, is) => {
                    forget(was);
                    needed.push(is);
                }
            }
            let data = place.body.0 + u64::from(APPENDED_HEADER_BYTES);
            segment.boundaries.push(segment.length);
            segment.addresses.extend(data..data + length);
            segment.length += length;
        }
        Step::Truncate { segment, permille } => {
            let segment = &mut segments[segment];
            segment.start += (segment.length - segment.start) * permille / 1000;
            segment.pieces.truncate(segment.start, |piece| piece.address().into_iter().for_each(&mut forget));
        }
        Step::Store { segment, from, to } => {
            let segment = &mut segments[segment];
            let at = |permille: u64| segment.start + (segment.length - segment.start) * permille / 1000;
            let (from, to) = (at(from.min(to)), at(from.max(to)));
            if from == to {
                return;
            }
            *next += 1;
            let counter = u32::try_from(*next).unwrap();
            let mut kept = Vec::new();
            segment.pieces.replace(
                extent(counter, from, to - from),
                |piece| piece.address().into_iter().for_each(&mut forget),
                |part| kept.extend(part.address()),
            );
            needed.extend(kept);
            segment.pieces.truncate(segment.start, |piece| {
                let at = needed.iter().position(|other| Some(*other) == piece.address());
                if let Some(at) = at {
                    needed.swap_remove(at);
                }
            });
            for (address, at) in
                segment.addresses[usize::try_from(from).unwrap()..].iter_mut().zip(0..to - from)
            {
                *address = in_object(counter) + at;
            }
            segment.boundaries.extend([from, to]);
        }
        Step::Merge { target, source } => {
            if target == source || segments[source].start > 0 {
                return;
            }
            *next += 1;
            let moved = std::mem::replace(&mut segments[source], Segment::new(*next));
            let target = &mut segments[target];
            target.pieces.adopt(moved.pieces, target.length);
            target.boundaries.extend(moved.boundaries.iter().map(|at| at + target.length));
            target.addresses.extend(moved.addresses);
            target.length += moved.length;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn pieces_agree_with_one_address_for_each_byte(steps in vec(any_step(), 0..80)) {
        let mut log = Log::default();
        log.begin_batch();
        let mut segments: Vec<Segment> = (0..3).map(Segment::new).collect();
        let (mut next, mut needed) = (2, Vec::new());
        for step in &steps {
            take(step, &mut segments, &mut log, &mut next, &mut needed);
            for segment in &segments {
                segment.check(&log)?;
            }
        }
        let mut held: Vec<LogAddress> =
            segments.iter().flat_map(|segment| segment.pieces.iter().filter_map(Piece::address)).collect();
        held.sort_unstable();
        needed.sort_unstable();
        prop_assert_eq!(held, needed);
    }

    #[test]
    fn extents_lie_over_places_wherever_both_are(
        appends in vec((1..60_u64, 0..30_u64, any::<bool>()), 0..30),
        stored in vec((1..40_u64, 0..40_u64), 0..20),
    ) {
        let mut log = Log::default();
        log.begin_batch();
        let (id, mut places, mut at) = (SegmentId(1), Pieces::default(), 0);
        let mut expected = std::collections::BTreeMap::new();
        for (length, hole, new_batch) in appends {
            if new_batch {
                log.begin_batch();
            }
            at += hole;
            let place = log.append(id, at, length, 0);
            places.append(id, at, length, place);
            let data = place.body.0 + u64::from(APPENDED_HEADER_BYTES);
            expected.extend((at..at + length).zip(data..));
            at += length;
        }
        let (mut extents, mut at) = (Vec::new(), 0);
        for ((length, hole), counter) in stored.into_iter().zip(1..) {
            at += hole;
            extents.push(extent(counter, at, length));
            expected.extend((at..at + length).zip(in_object(counter)..));
            at += length;
        }
        let all = places.with_extents(extents);
        let found: Vec<(u64, u64)> =
            all.iter().flat_map(|piece| (piece.offset..).zip(log.bytes(piece))).collect();
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        let places = all.iter().filter(|piece| piece.is_place());
        prop_assert_eq!(all.placed(), places.map(|piece| piece.length).sum::<u64>());
    }

    #[test]
    fn a_lost_piece_is_found_out(lengths in vec(1..100_u64, 2..20), lost in any::<proptest::sample::Index>()) {
        let mut log = Log::default();
        let mut segment = Segment::new(1);
        for length in lengths {
            log.begin_batch();
            take(
                &Step::Append { segment: 0, length, gap: 0 },
                std::slice::from_mut(&mut segment),
                &mut log,
                &mut 0,
                &mut Vec::new(),
            );
        }
        let lost = lost.index(segment.pieces.list.len());
        segment.pieces.list.remove(lost);
        prop_assert!(segment.pieces.prove(0, segment.length).is_err());
    }
}

#[test]
fn small_appends_of_one_batch_share_a_piece() {
    let mut log = Log::default();
    log.begin_batch();
    let mut pieces = Pieces::default();
    for n in 0..1000 {
        let place = log.append(SegmentId(1), n * 100, 100, 0);
        pieces.append(SegmentId(1), n * 100, 100, place);
    }
    assert_eq!(pieces.iter().count(), 1);
    log.begin_batch();
    let place = log.append(SegmentId(1), 100_000, 100, 0);
    pieces.append(SegmentId(1), 100_000, 100, place);
    assert_eq!(pieces.iter().count(), 2, "a piece never reaches beyond its batch");
}

#[test]
fn piece_joins_nothing_that_a_merge_brought() {
    let mut log = Log::default();
    log.begin_batch();
    let (mut source, mut target) = (Pieces::default(), Pieces::default());
    source.append(SegmentId(2), 0, 10, log.append(SegmentId(2), 0, 10, 0));
    target.adopt(source, 0);
    let place = log.append(SegmentId(1), 10, 10, 0);
    assert!(matches!(target.append(SegmentId(1), 10, 10, place), Added::New(_)));
}
