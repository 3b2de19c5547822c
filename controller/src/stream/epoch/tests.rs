use std::collections::BTreeMap;

use proptest::prelude::*;

use super::scale::{
    self, ScaleError, ScaleOrigin, ScaleRefusal, ScaleRequest, ScaleStatus, ScaleTerms, Transition,
};
use super::*;
use crate::stream::config::{RatePolicy, ScalingPolicy};
use crate::stream::sample::{Change, History, any_history, id, range};
use crate::stream::state::StreamState;

const TERMS: ScaleTerms =
    ScaleTerms { state: StreamState::Active, segments_min: 1, origin: ScaleOrigin::Manual, now_ms: 2000 };

fn submit(history: &History, seal: &[SegmentId], ranges: &[(f64, f64)]) -> Result<Transition, ScaleError> {
    let request = ScaleRequest { seal: seal.to_vec(), ranges: ranges.to_vec() };
    scale::submit(history.active(), None, &request, TERMS)
}

fn scaled(history: &mut History, seal: &[SegmentId], ranges: &[(f64, f64)]) {
    history.scale(&ScaleRequest { seal: seal.to_vec(), ranges: ranges.to_vec() });
}

fn ids(epoch: &EpochRecord) -> Vec<SegmentId> {
    epoch.segments.iter().map(Segment::id).collect()
}

fn successor_ids(history: &History, asked: SegmentId) -> Vec<(SegmentId, Vec<SegmentId>)> {
    let segment = history.segments()[&asked];
    history.successors(&segment).into_iter().map(|next| (next.segment.id(), next.predecessors)).collect()
}

proptest! {
    /// Invariant 35.
    #[test]
    fn every_epoch_covers_the_key_space_with_bounds_that_never_change(history in any_history()) {
        let mut known = BTreeMap::new();
        for (number, epoch) in history.epochs.iter().enumerate() {
            prop_assert_eq!(usize::try_from(epoch.epoch).unwrap(), number);
            let mut low = 0.0f64;
            for segment in &epoch.segments {
                prop_assert_eq!(segment.range.low().to_bits(), low.to_bits());
                prop_assert!(segment.range.low() < segment.range.high());
                low = segment.range.high();
                prop_assert_eq!(*known.entry(segment.id()).or_insert(*segment), *segment);
                prop_assert!(segment.epoch <= epoch.epoch);
            }
            prop_assert_eq!(low.to_bits(), 1.0f64.to_bits());
            let numbers: BTreeSet<i32> = epoch.segments.iter().map(|segment| segment.number).collect();
            prop_assert_eq!(numbers.len(), epoch.segments.len());
        }
        let times: Vec<i64> = history.epochs.iter().map(|epoch| epoch.created_ms).collect();
        prop_assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// Invariant 36: what a client asks once it sees a segment sealed.
    #[test]
    fn successors_take_over_all_keys_and_name_all_predecessors(history in any_history()) {
        for segment in history.segments().values() {
            let successors = history.successors(segment);
            prop_assert_eq!(successors.is_empty(), history.active().segment(segment.id()).is_some());
            for key in history.keys().into_iter().filter(|key| holds(segment, *key)) {
                let over = successors.iter().filter(|next| holds(&next.segment, key)).count();
                prop_assert_eq!(over, usize::from(!successors.is_empty()));
            }
            for next in &successors {
                prop_assert!(next.segment.id() > segment.id());
                prop_assert!(next.predecessors.contains(&segment.id()));
                for predecessor in &next.predecessors {
                    let after = history.successors(&history.segments()[predecessor]);
                    prop_assert!(after.iter().any(|other| other == next), "both sides know each other");
                }
            }
        }
    }

    #[test]
    fn segment_numbers_rise_above_all_earlier_ones(history in any_history()) {
        let mut seen = BTreeSet::new();
        let mut highest = -1;
        for epoch in &history.epochs {
            for segment in epoch.segments.iter().filter(|segment| segment.epoch == epoch.epoch) {
                prop_assert!(seen.insert(segment.id()), "an id is used once");
                let copied = history.epochs[..seen_before(epoch)].iter().any(|old| old.numbered(segment.number)
                    .is_some_and(|original| original.range == segment.range));
                prop_assert!(segment.number > highest || copied);
            }
            highest = highest.max(epoch.highest_number());
        }
        prop_assert_eq!(history.active().highest_number(), highest);
    }

    #[test]
    fn scale_with_any_bound_moved_is_refused(
        history in any_history(), at in 0usize..64, count in 1usize..4,
        bounds in proptest::collection::vec(0.01..0.99f64, 0..4), moved in 0usize..16, up in any::<bool>(),
    ) {
        let mut request = history.request(at, count, &bounds);
        prop_assert!(scale::submit(history.active(), None, &request, TERMS).is_ok());
        let edge = moved % (request.ranges.len() * 2);
        let (low, high) = &mut request.ranges[edge / 2];
        let bound = if edge % 2 == 0 { low } else { high };
        *bound = if up { bound.next_up() } else { bound.next_down() };
        let error = scale::submit(history.active(), None, &request, TERMS).unwrap_err();
        let refused = matches!(error, ScaleError::NotCovering | ScaleError::InvalidRange { .. });
        prop_assert!(refused, "{error}");
    }
}

fn holds(segment: &Segment, key: f64) -> bool {
    segment.range.low() <= key && key < segment.range.high()
}

fn seen_before(epoch: &EpochRecord) -> usize {
    usize::try_from(epoch.epoch).unwrap()
}

#[test]
fn first_epoch_divides_the_key_space_equally() {
    let epoch = EpochRecord::first(3, 0, 7).unwrap();
    let ranges: Vec<KeyRange> = epoch.segments.iter().map(|segment| segment.range).collect();
    assert_eq!(ranges, [range(0.0, 1.0 / 3.0), range(1.0 / 3.0, 2.0 / 3.0), range(2.0 / 3.0, 1.0)]);
    assert_eq!(ids(&epoch), [id(0, 0), id(0, 1), id(0, 2)]);
}

#[test]
fn recreated_stream_goes_on_with_new_numbers() {
    let mut history = History::new(1, 0);
    scaled(&mut history, &[id(0, 0)], &[(0.0, 0.5), (0.5, 1.0)]);
    scaled(&mut history, &[id(1, 1), id(1, 2)], &[(0.0, 1.0)]);
    let again = EpochRecord::first(1, history.active().highest_number() + 1, 9).unwrap();
    assert_eq!(ids(&again), [id(0, 4)]);
}

#[test]
fn numbers_follow_the_order_in_which_ranges_are_given() {
    let mut history = History::new(1, 0);
    scaled(&mut history, &[id(0, 0)], &[(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]);
    let transition = submit(&history, &[id(1, 1), id(1, 2), id(1, 3)], &[(0.6, 0.75), (0.0, 0.6)]).unwrap();
    let created: Vec<_> = transition.create.iter().map(|segment| (segment.id(), segment.range)).collect();
    assert_eq!(created, [(id(2, 5), range(0.6, 0.75)), (id(2, 6), range(0.0, 0.6))]);
    history.apply(&transition);
    assert_eq!(ids(history.active()), [id(2, 6), id(2, 5), id(1, 4)]);
}

#[test]
fn successors_of_merge_and_split_are_those_of_the_specification() {
    let mut history = History::new(2, 0);
    scaled(&mut history, &[id(0, 0), id(0, 1)], &[(0.0, 1.0)]);
    assert_eq!(id(1, 2).raw(), 4_294_967_298);
    let merged = vec![(id(1, 2), vec![id(0, 0), id(0, 1)])];
    assert_eq!(successor_ids(&history, id(0, 0)), merged);
    assert_eq!(successor_ids(&history, id(0, 1)), merged);
    scaled(&mut history, &[id(1, 2)], &[(0.0, 0.5), (0.5, 1.0)]);
    let split = vec![(id(2, 3), vec![id(1, 2)]), (id(2, 4), vec![id(1, 2)])];
    assert_eq!(successor_ids(&history, id(1, 2)), split);
}

#[test]
fn rolling_adds_two_epochs_that_keep_numbers_and_ranges() {
    let mut history = History::new(2, 0);
    scaled(&mut history, &[id(0, 0)], &[(0.0, 0.25), (0.25, 0.5)]);
    history.change(&Change::Roll(0));
    assert_eq!(ids(&history.epochs[2]), [id(2, 0), id(2, 1)]);
    assert_eq!(ids(&history.epochs[3]), [id(3, 2), id(3, 3), id(3, 1)]);
    let references: Vec<i32> = history.epochs.iter().map(|epoch| epoch.reference_epoch).collect();
    assert_eq!(references, [0, 1, 0, 1]);
    assert_eq!(successor_ids(&history, id(0, 1)), [(id(2, 1), vec![id(0, 1)])]);
    assert_eq!(successor_ids(&history, id(1, 3)), [(id(2, 0), vec![id(1, 2), id(1, 3)])]);
    let split = [(id(3, 2), vec![id(2, 0)]), (id(3, 3), vec![id(2, 0)])];
    assert_eq!(successor_ids(&history, id(2, 0)), split);
    let check = |epoch| scale::check_scale(epoch, history.active(), StreamState::Active, None);
    let [success, in_progress] = [ScaleStatus::Success, ScaleStatus::InProgress];
    let expected = [success, in_progress, success, in_progress, ScaleStatus::InvalidInput];
    assert_eq!([0, 1, 2, 3, 4].map(check), expected);
}

#[test]
fn splits_and_merges_are_counted_over_the_history() {
    let mut history = History::new(2, 0);
    scaled(&mut history, &[id(0, 0)], &[(0.0, 0.25), (0.25, 0.5)]);
    assert_eq!((history.active().splits, history.active().merges), (1, 0));
    scaled(&mut history, &[id(1, 3), id(0, 1)], &[(0.25, 1.0)]);
    assert_eq!((history.active().splits, history.active().merges), (1, 1));
    scaled(&mut history, &[id(1, 2), id(2, 4)], &[(0.0, 0.5), (0.5, 1.0)]);
    assert_eq!((history.active().splits, history.active().merges), (2, 2));
}

/// Segments to seal, bounds to create, and how the refusal is reported.
type Case<'a> = (&'a [SegmentId], &'a [(f64, f64)], ScaleRefusal);

#[test]
fn refusals_are_reported_as_the_specification_says() {
    use ScaleRefusal::{Failure, InvalidArgument, PreconditionFailed};
    let history = History::new(2, 0);
    let cases: [Case<'_>; 16] = [
        (&[id(0, 7)], &[(0.0, 0.5)], PreconditionFailed),
        (&[id(1, 0)], &[(0.0, 0.5)], PreconditionFailed),
        (&[SegmentId::from_raw(-1)], &[(0.0, 0.5)], PreconditionFailed),
        (&[id(0, 0), id(0, 7)], &[(0.0, 0.5)], PreconditionFailed),
        (&[id(0, 0)], &[(0.0, 0.2), (0.3, 0.5)], Failure),
        (&[id(0, 0)], &[(0.0, 0.3), (0.2, 0.5)], Failure),
        (&[id(0, 0)], &[(0.0, 0.6)], Failure),
        (&[id(0, 0)], &[(0.5, 1.0)], Failure),
        (&[id(0, 1)], &[(0.5, 1.5)], Failure),
        (&[id(0, 0)], &[(f64::NAN, 0.5)], Failure),
        (&[id(0, 0)], &[(0.5, 0.0)], Failure),
        (&[id(0, 0), id(0, 0)], &[(0.0, 0.25), (0.25, 0.5)], Failure),
        (&[id(0, 0)], &[(0.0, 0.25), (0.0, 0.5)], InvalidArgument),
        (&[], &[(0.0, 0.5)], InvalidArgument),
        (&[id(0, 0)], &[], InvalidArgument),
        (&[], &[], InvalidArgument),
    ];
    for (seal, ranges, refusal) in cases {
        let error = submit(&history, seal, ranges).unwrap_err();
        assert_eq!(error.refusal(), refusal, "{error}");
    }
}

#[test]
fn scale_below_the_minimum_is_refused() {
    let history = History::new(2, 0);
    let request = ScaleRequest { seal: vec![id(0, 0), id(0, 1)], ranges: vec![(0.0, 1.0)] };
    let terms = ScaleTerms { segments_min: 2, ..TERMS };
    let error = scale::submit(history.active(), None, &request, terms).unwrap_err();
    assert_eq!(error, ScaleError::BelowMinimum { count: 1, min: 2 });
    assert_eq!(error.refusal(), ScaleRefusal::PreconditionFailed);
}

#[test]
fn scale_above_the_maximum_is_refused() {
    let history = History::new(1, 0);
    let part = |index| KeyRange::equal_part(index, 10_001);
    let ranges: Vec<(f64, f64)> = (0..10_001).map(|index| (part(index).low(), part(index).high())).collect();
    let error = submit(&history, &[id(0, 0)], &ranges).unwrap_err();
    assert_eq!(error, ScaleError::TooMany { count: 10_001 });
}

#[test]
fn pending_scale_answers_its_own_request_and_refuses_others() {
    let history = History::new(2, 0);
    let pending = submit(&history, &[id(0, 0)], &[(0.0, 0.25), (0.25, 0.5)]).unwrap();
    let ask = |seal: Vec<SegmentId>, ranges: Vec<(f64, f64)>| {
        scale::submit(history.active(), Some(&pending), &ScaleRequest { seal, ranges }, TERMS)
    };
    assert_eq!(ask(vec![id(0, 0)], vec![(0.25, 0.5), (0.0, 0.25)]).unwrap(), pending);
    let other = ask(vec![id(0, 1)], vec![(0.5, 1.0)]).unwrap_err();
    assert_eq!(other, ScaleError::Pending { active_epoch: 0 });
}

#[test]
fn sealed_stream_refuses_scale() {
    let history = History::new(1, 0);
    for state in [StreamState::Sealing, StreamState::Sealed, StreamState::Creating] {
        let request = ScaleRequest { seal: vec![id(0, 0)], ranges: vec![(0.0, 1.0)] };
        let terms = ScaleTerms { state, ..TERMS };
        let error = scale::submit(history.active(), None, &request, terms).unwrap_err();
        assert_eq!(error, ScaleError::State(state));
    }
}

#[test]
fn unfinished_scale_is_in_progress_until_its_record_is_cleared() {
    let mut history = History::new(1, 0);
    let transition = submit(&history, &[id(0, 0)], &[(0.0, 0.5), (0.5, 1.0)]).unwrap();
    let check = |history: &History, state, pending: Option<&Transition>| {
        scale::check_scale(0, history.active(), state, pending)
    };
    assert_eq!(check(&history, StreamState::Scaling, Some(&transition)), ScaleStatus::InProgress);
    history.apply(&transition);
    assert_eq!(check(&history, StreamState::Scaling, Some(&transition)), ScaleStatus::InProgress);
    assert_eq!(check(&history, StreamState::Scaling, None), ScaleStatus::InProgress);
    assert_eq!(check(&history, StreamState::Active, None), ScaleStatus::Success);
}

#[test]
fn manual_scale_moves_to_the_duplicate_of_its_epoch_and_an_automatic_one_is_dropped() {
    let mut history = History::new(1, 0);
    scaled(&mut history, &[id(0, 0)], &[(0.0, 0.5), (0.5, 1.0)]);
    let start = history.active().clone();
    let pending = submit(&history, &[id(1, 1)], &[(0.0, 0.25), (0.25, 0.5)]).unwrap();
    assert_eq!(pending.migrate(&start, &start).unwrap().as_ref(), Some(&pending));
    history.change(&Change::Roll(0));
    let moved = pending.migrate(&start, history.active()).unwrap().unwrap();
    assert_eq!(moved.seal, [id(3, 1)]);
    assert_eq!(moved.create.iter().map(Segment::id).collect::<Vec<_>>(), [id(4, 3), id(4, 4)]);
    history.apply(&moved);
    assert_eq!(ids(history.active()), [id(4, 3), id(4, 4), id(3, 2)]);
    let automatic = Transition { origin: ScaleOrigin::Auto, ..pending.clone() };
    assert_eq!(automatic.migrate(&start, &history.epochs[3]).unwrap(), None);
    assert_eq!(pending.migrate(&start, history.active()).unwrap(), None, "already done");
}

#[test]
fn policy_change_replaces_all_segments_only_when_the_count_must_change() {
    let mut history = History::new(1, 0);
    let change = |history: &History, policy| scale::change_policy(history.active(), &policy, 2000).unwrap();
    let by_rate = |segments_min| ScalingPolicy::ByEvents(RatePolicy { rate: 50, factor: 3, segments_min });
    assert_eq!(change(&history, ScalingPolicy::fixed(1)), None);
    let raised = change(&history, by_rate(3)).unwrap();
    history.apply(&raised);
    assert_eq!(ids(history.active()), [id(1, 1), id(1, 2), id(1, 3)]);
    assert_eq!(change(&history, by_rate(2)), None, "automatic policies are never lowered at once");
    history.apply(&change(&history, ScalingPolicy::fixed(2)).unwrap());
    assert_eq!(ids(history.active()), [id(2, 4), id(2, 5)]);
}

#[test]
fn numbering_ends_before_it_wraps() {
    assert_eq!(EpochRecord::first(2, i32::MAX, 0), Err(Exhausted));
    assert!(EpochRecord::first(1, i32::MAX, 0).is_ok());
    let last = EpochRecord { epoch: i32::MAX, ..EpochRecord::first(1, 0, 0).unwrap() };
    assert_eq!(last.rolled(&last, 0), Err(Exhausted));
}
