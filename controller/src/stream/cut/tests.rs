use std::collections::BTreeSet;

use proptest::prelude::*;

use super::truncation::{self, Truncation, TruncationError, TruncationRecord, segments_between};
use super::*;
use crate::stream::epoch::scale::ScaleRequest;
use crate::stream::sample::{Change, History, Reader, any_history, any_steps, id};

/// The history of the conformance transcripts: 2 segments, split of the first, two merges with a split.
fn four_epochs() -> History {
    let mut history = History::new(2, 0);
    for (seal, ranges) in [
        (vec![id(0, 0)], vec![(0.0, 0.25), (0.25, 0.5)]),
        (vec![id(1, 3), id(0, 1)], vec![(0.25, 1.0)]),
        (vec![id(1, 2), id(2, 4)], vec![(0.0, 0.5), (0.5, 1.0)]),
    ] {
        history.scale(&ScaleRequest { seal, ranges });
    }
    history
}

fn cut(entries: &[(SegmentId, i64)]) -> StreamCut {
    StreamCut(entries.iter().copied().collect())
}

fn place(history: &History, cut: &StreamCut) -> PlacedCut {
    cut.place(Epochs::new(&history.epochs)).unwrap()
}

fn check(history: &History, cut: &StreamCut) -> Result<ValidCut, CutError> {
    let needed = cut.epochs(history.active().epoch)?;
    let rows = needed.iter().map(|epoch| history.epochs[usize::try_from(*epoch).unwrap()].clone());
    cut.check(Epochs::new(&rows.collect::<Vec<_>>()))
}

fn between(history: &History, from: &StreamCut, to: &StreamCut) -> Result<BTreeSet<SegmentId>, Reversed> {
    let segments =
        segments_between(&place(history, from), &place(history, to), Epochs::new(&history.epochs))?;
    Ok(segments.iter().map(Segment::id).collect())
}

/// Validity key by key, as section 3.9 of the specification lists its rules.
fn is_valid_by_keys(history: &History, cut: &StreamCut) -> bool {
    let all = history.segments();
    if !cut.0.keys().all(|id| all.contains_key(id)) {
        return false;
    }
    let of = |future: bool| {
        let entries = cut.0.iter().filter(move |(_, offset)| (**offset == FUTURE) == future);
        entries.map(|(id, _)| all[id]).collect::<Vec<Segment>>()
    };
    let (normal, future) = (of(false), of(true));
    if normal.is_empty() {
        return false;
    }
    let newer = |future: &Segment| normal.iter().all(|n| !n.overlaps(future) || future.id() > n.id());
    if !future.iter().all(newer) {
        return false;
    }
    let oldest = cut.0.keys().map(|id| id.epoch()).min().unwrap();
    history.keys().into_iter().all(|key| {
        let holds = |segment: &&Segment| segment.range.low() <= key && key < segment.range.high();
        match normal.iter().filter(holds).count() {
            0 => {}
            over => return over == 1,
        }
        let epochs = history.epochs.iter().filter(|epoch| epoch.epoch >= oldest);
        let mut path = epochs.map(|epoch| epoch.segments.iter().find(holds).unwrap());
        for segment in &mut path {
            if future.contains(segment) {
                return true;
            }
            if normal.iter().any(|n| n.overlaps(segment) && segment.id() >= n.id()) {
                return false;
            }
        }
        false
    })
}

/// A reader after each of two batches of steps.
fn two_readers(
    history: &History,
    first: &[(usize, Option<i64>)],
    more: &[(usize, Option<i64>)],
) -> (Reader, Reader) {
    let mut earlier = Reader::at_start(history);
    earlier.walk(history, first);
    let mut later = earlier.clone();
    later.walk(history, more);
    (earlier, later)
}

proptest! {
    #[test]
    fn wherever_readers_stand_is_a_valid_cut(history in any_history(), steps in any_steps(40)) {
        let (_, reader) = two_readers(&history, &[], &steps);
        let cut = reader.cut();
        prop_assert_eq!(check(&history, &cut).map(|valid| valid.to_cut()), Ok(cut));
    }

    #[test]
    fn later_cuts_of_a_reader_are_after_earlier_ones(
        history in any_history(), first in any_steps(30), more in any_steps(30),
    ) {
        let (earlier, later) = two_readers(&history, &first, &more);
        let (from, to) = (place(&history, &earlier.cut()), place(&history, &later.cut()));
        prop_assert_eq!(to.compare(&from), CutOrder::EqualOrAfter);
        let back = from.compare(&to);
        prop_assert_eq!(back, if from == to { CutOrder::EqualOrAfter } else { CutOrder::Before });
    }

    #[test]
    fn segments_between_are_those_not_read_before_and_reached_after(
        history in any_history(), first in any_steps(30), more in any_steps(30),
    ) {
        let (earlier, later) = two_readers(&history, &first, &more);
        let reached = later.done.iter().chain(later.at.keys()).copied().collect::<BTreeSet<_>>();
        let expected: BTreeSet<SegmentId> = reached.difference(&earlier.done).copied().collect();
        prop_assert_eq!(between(&history, &earlier.cut(), &later.cut()), Ok(expected));
    }

    #[test]
    fn validity_agrees_with_the_rules_key_by_key(
        history in any_history(), steps in any_steps(30),
        changes in proptest::collection::vec((0usize..64, 0usize..4, 0usize..64), 0..4),
    ) {
        let (_, reader) = two_readers(&history, &[], &steps);
        let mut cut = reader.cut();
        let all: Vec<SegmentId> = history.segments().into_keys().collect();
        for (at, kind, other) in changes {
            let Some(id) = cut.0.keys().nth(at % cut.0.len().max(1)).copied() else { break };
            match kind {
                0 => { cut.0.remove(&id); }
                1 => { cut.0.insert(id, FUTURE); }
                2 => { cut.0.insert(all[other % all.len()], 3); }
                _ => { cut.0.insert(all[other % all.len()], FUTURE); }
            }
        }
        let valid = check(&history, &cut);
        prop_assert_eq!(valid.is_ok(), is_valid_by_keys(&history, &cut), "{:?} {:?}", cut, valid);
    }

    /// Invariant 43: the head never goes back, and a truncation deletes each segment before it exactly once.
    #[test]
    fn truncation_moves_forward_and_deletes_what_was_read(
        history in any_history(), batches in proptest::collection::vec(any_steps(12), 1..5),
    ) {
        let epochs = Epochs::new(&history.epochs);
        let mut reader = Reader::at_start(&history);
        let mut head = ValidCut::start_of(&history.epochs[0]);
        let mut record = TruncationRecord::default();
        let mut deleted = BTreeSet::new();
        for batch in &batches {
            reader.walk(&history, batch);
            let cut = check(&history, &reader.cut()).unwrap();
            match truncation::truncate(&record, &head, &cut, epochs).unwrap() {
                Truncation::Done => prop_assert_eq!(&record.cut, &cut.to_cut()),
                Truncation::Running => prop_assert!(false, "no truncation is left running"),
                Truncation::Start(next) => {
                    let again = truncation::truncate(&next, &head, &cut, epochs);
                    prop_assert_eq!(again, Ok(Truncation::Running));
                    for id in &next.delete {
                        prop_assert!(deleted.insert(*id), "deleted once");
                    }
                    record = next.completed();
                    if head != cut {
                        let back = truncation::truncate(&record, &cut, &head, epochs);
                        prop_assert_eq!(back, Err(TruncationError::Behind(CutOrder::Before)));
                    }
                    head = cut;
                }
            }
            prop_assert_eq!(&deleted, &reader.done);
        }
    }
}

#[test]
fn validity_is_that_of_the_transcripts() {
    let history = four_epochs();
    let cases: [(&[(SegmentId, i64)], bool); 18] = [
        (&[(id(0, 0), 0), (id(0, 1), 0)], true),
        (&[(id(3, 5), 0), (id(3, 6), 0)], true),
        (&[(id(0, 0), 0), (id(2, 4), 0)], false),
        (&[(id(1, 2), 3), (id(1, 3), 4), (id(0, 1), 5)], true),
        (&[(id(0, 0), 0)], false),
        (&[(id(0, 1), 0)], false),
        (&[(id(0, 0), 0), (id(0, 1), 0), (id(1, 2), 0)], false),
        (&[(id(3, 5), 0), (id(2, 4), 0)], false),
        (&[(id(1, 2), 0), (id(0, 1), 0)], false),
        (&[(id(1, 2), 0), (id(1, 3), -1), (id(0, 1), 0)], true),
        (&[(id(1, 2), 5), (id(1, 3), 5), (id(0, 1), 5), (id(2, 4), -1)], true),
        (&[(id(1, 2), 5), (id(0, 1), 5), (id(2, 4), -1)], true),
        (&[(id(1, 2), 5), (id(2, 4), 5), (id(3, 5), -1)], true),
        (&[(id(0, 0), -1), (id(0, 1), 0), (id(1, 2), 0)], false),
        (&[(id(0, 0), -2), (id(0, 1), 0)], true),
        (&[(id(3, 5), -1), (id(3, 6), -1)], false),
        (&[(id(0, 0), 0), (id(0, 9), 0)], false),
        (&[], false),
    ];
    for (entries, valid) in cases {
        let answer = check(&history, &cut(entries));
        assert_eq!(answer.is_ok(), valid, "{entries:?} {answer:?}");
    }
}

#[test]
fn made_up_epochs_are_refused_before_any_row_is_loaded() {
    for raw in [i64::MAX, id(9, 1).raw(), -1, i64::MIN] {
        let cut = StreamCut::from_raw([(0, 0), (raw, 0)]);
        assert_eq!(cut.epochs(3), Err(CutError::UnknownEpoch(SegmentId::from_raw(raw))));
    }
    assert_eq!(cut(&[(id(1, 2), 0), (id(2, 4), 0)]).epochs(3), Ok(vec![1, 2]));
    assert_eq!(cut(&[(id(1, 2), 0), (id(5, 4), 0)]).epochs(7), Ok(vec![1, 5]));
    assert_eq!(cut(&[(id(1, 2), FUTURE), (id(4, 4), 0)]).epochs(7), Ok(vec![1, 2, 3, 4]));
    assert_eq!(StreamCut::default().epochs(3), Err(CutError::NoPosition));
}

#[test]
fn segments_between_are_those_of_the_transcripts() {
    let history = four_epochs();
    let cut = |ids: &[SegmentId]| StreamCut(ids.iter().map(|id| (*id, 0)).collect());
    let [s0, s1, s2, s3, s4, s5, s6] = [id(0, 0), id(0, 1), id(1, 2), id(1, 3), id(2, 4), id(3, 5), id(3, 6)];
    let cases: [(&[SegmentId], &[SegmentId], &[SegmentId]); 8] = [
        (&[s0, s1], &[s5, s6], &[s0, s1, s2, s3, s4, s5, s6]),
        (&[s0, s1], &[s2, s3, s1], &[s0, s1, s2, s3]),
        (&[s2, s3, s1], &[s5, s6], &[s1, s2, s3, s4, s5, s6]),
        (&[s0, s1], &[s2, s4], &[s0, s1, s2, s3, s4]),
        (&[s2, s4], &[s5, s6], &[s2, s4, s5, s6]),
        // Cuts that do not make sense are answered all the same.
        (&[s0, s4], &[s5, s6], &[s2, s4, s5, s6]),
        (&[s0], &[s5, s6], &[s0, s1, s2, s3, s4, s5, s6]),
        (&[s0, s1], &[s5], &[s0, s1, s2, s3, s4, s5, s6]),
    ];
    for (from, to, expected) in cases {
        let expected = expected.iter().copied().collect();
        assert_eq!(between(&history, &cut(from), &cut(to)), Ok(expected), "{from:?} {to:?}");
    }
    assert_eq!(between(&history, &cut(&[s5, s6]), &cut(&[s0, s1])), Err(Reversed(CutOrder::Before)));
    let crossing = between(&history, &cut(&[s0, s4]), &cut(&[s2, s3, s1]));
    assert_eq!(crossing, Err(Reversed(CutOrder::Overlaps)));
}

#[test]
fn one_future_segment_is_a_bound_for_questions() {
    let history = History::new(1, 0);
    let found = between(&history, &cut(&[(id(0, 0), FUTURE)]), &cut(&[(id(0, 0), 2000)]));
    assert_eq!(found, Ok([id(0, 0)].into()));
}

#[test]
fn segment_being_read_before_a_merge_lies_between() {
    let mut history = History::new(2, 0);
    history.change(&Change::Scale { at: 0, count: 2, bounds: vec![] });
    let (s1, merged) = (id(0, 1), id(1, 2));
    let from = cut(&[(s1, 10), (merged, FUTURE)]);
    assert_eq!(between(&history, &from, &cut(&[(merged, 0)])), Ok([s1, merged].into()));
    let later = cut(&[(s1, 100), (merged, FUTURE)]);
    assert_eq!(place(&history, &later).compare(&place(&history, &from)), CutOrder::EqualOrAfter);
    assert_eq!(place(&history, &from).compare(&place(&history, &later)), CutOrder::Before);
}

#[test]
fn truncation_refuses_a_cut_behind_the_head_and_a_second_one_at_once() {
    let history = History::new(2, 0);
    let epochs = Epochs::new(&history.epochs);
    let head = check(&history, &cut(&[(id(0, 0), 32), (id(0, 1), 16)])).unwrap();
    let back = check(&history, &cut(&[(id(0, 0), 16), (id(0, 1), 16)])).unwrap();
    let aside = check(&history, &cut(&[(id(0, 0), 16), (id(0, 1), 20)])).unwrap();
    let record = TruncationRecord { cut: head.to_cut(), ..TruncationRecord::default() };
    let truncate = |record, cut| truncation::truncate(record, &head, cut, epochs);
    assert_eq!(truncate(&record, &head), Ok(Truncation::Done));
    assert_eq!(truncate(&record, &back), Err(TruncationError::Behind(CutOrder::Before)));
    assert_eq!(truncate(&record, &aside), Err(TruncationError::Behind(CutOrder::Overlaps)));
    let running = TruncationRecord { updating: true, ..record.clone() };
    assert_eq!(truncate(&running, &back), Err(TruncationError::Running));
}
