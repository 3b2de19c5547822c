use super::*;
use crate::stream::cut::Epochs;
use crate::stream::sample::{History, id};

const ID: GroupId = GroupId(7);

fn stream(name: &str) -> StreamName {
    StreamName { scope: "scope".to_owned(), stream: name.to_owned() }
}

fn names(names: &[&str]) -> BTreeSet<StreamName> {
    names.iter().map(|name| stream(name)).collect()
}

fn config(retention: GroupRetention, streams: &[&str]) -> GroupConfig {
    let cuts: BTreeMap<StreamName, StreamCut> =
        streams.iter().map(|name| (stream(name), StreamCut::default())).collect();
    GroupConfig {
        refresh_ms: 3000,
        checkpoint_interval_ms: 30_000,
        checkpoints_max: 3,
        retention,
        starting: cuts.clone(),
        ending: cuts,
        rollover_bytes: 0,
    }
}

fn created(config: GroupConfig) -> GroupRecord {
    match GroupRecord::create(None, config, ID, GroupId(9)) {
        GroupCreation::Start(record) => record,
        other => panic!("not created: {other:?}"),
    }
}

fn updated(record: &GroupRecord, config: GroupConfig) -> GroupRecord {
    match record.update(record.id, record.generation, config) {
        GroupUpdate::Start(record) => record,
        other => panic!("not updated: {other:?}"),
    }
}

#[test]
fn configuration_needs_streams_and_checkpoints() {
    assert_eq!(config(GroupRetention::None, &["s"]).check(), Ok(()));
    assert_eq!(config(GroupRetention::None, &[]).check(), Err(GroupConfigError::NoStreams));
    let none = GroupConfig { checkpoints_max: 0, ..config(GroupRetention::None, &["s"]) };
    assert_eq!(none.check(), Err(GroupConfigError::Checkpoints(0)));
    let small = GroupConfig { rollover_bytes: -1, ..config(GroupRetention::None, &["s"]) };
    assert_eq!(small.check(), Err(GroupConfigError::Rollover(-1)));
    for raw in 0..3 {
        assert_eq!(GroupRetention::from_raw(raw).map(GroupRetention::raw), Ok(raw));
    }
    assert_eq!(GroupRetention::from_raw(3), Err(GroupConfigError::Retention(3)));
}

#[test]
fn creation_takes_the_callers_id_or_a_fresh_one() {
    let record = created(config(GroupRetention::Manual, &["s", "t"]));
    assert_eq!((record.id, record.generation, record.state), (ID, 0, GroupState::Creating));
    assert_eq!(record.pending.as_ref().unwrap().subscribe, names(&["s", "t"]));
    let zero = GroupRecord::create(None, record.config.clone(), GroupId(0), GroupId(9));
    assert!(matches!(zero, GroupCreation::Start(GroupRecord { id: GroupId(9), .. })));
}

#[test]
fn second_creation_finds_the_first() {
    let record = created(config(GroupRetention::None, &["s"]));
    let again = |record: &GroupRecord| {
        GroupRecord::create(Some(record), config(GroupRetention::Manual, &["t"]), GroupId(1), GroupId(2))
    };
    assert_eq!(again(&record), GroupCreation::Resume);
    assert_eq!(again(&record.settled()), GroupCreation::Exists);
    let deleting = GroupRecord { state: GroupState::Deleting, ..record };
    assert_eq!(again(&deleting), GroupCreation::Deleting);
}

#[test]
fn update_needs_id_and_generation_and_one_at_a_time() {
    let record = created(config(GroupRetention::None, &["s"])).settled();
    let next = config(GroupRetention::Automatic, &["s"]);
    assert_eq!(record.update(GroupId(8), 0, next.clone()), GroupUpdate::Mismatch);
    assert_eq!(record.update(ID, 9, next.clone()), GroupUpdate::Mismatch);
    let changed = updated(&record, next.clone());
    assert_eq!(changed.generation, 1);
    assert_eq!(changed.update(ID, 1, next.clone()), GroupUpdate::Busy);
    assert_eq!(changed.settled().update(ID, 0, next), GroupUpdate::Mismatch);
}

#[test]
fn update_changes_subscriptions_by_streams_and_retention() {
    let change = |from: GroupConfig, to: GroupConfig| updated(&created(from).settled(), to).pending.unwrap();
    let (none, manual) = (GroupRetention::None, GroupRetention::Manual);
    let automatic = GroupRetention::Automatic;
    let more = change(config(none, &["s"]), config(manual, &["s", "t"]));
    assert_eq!((more.subscribe, more.unsubscribe), (names(&["s", "t"]), names(&[])));
    let fewer = change(config(manual, &["s", "t"]), config(automatic, &["t"]));
    assert_eq!((fewer.subscribe, fewer.unsubscribe), (names(&["t"]), names(&["s"])));
    let gone = change(config(automatic, &["t"]), config(none, &["s", "t"]));
    assert_eq!((gone.subscribe, gone.unsubscribe), (names(&[]), names(&["t"])));
}

#[test]
fn deletion_looks_at_the_id_only_and_takes_over_an_update() {
    let record = created(config(GroupRetention::Manual, &["s", "t"])).settled();
    assert_eq!(record.delete(GroupId(8)), GroupDeletion::OtherId);
    let updating = updated(&record, config(GroupRetention::Manual, &["t"]));
    let GroupDeletion::Start(deleting) = updating.delete(ID) else { panic!("not deleted") };
    assert_eq!(deleting.state, GroupState::Deleting);
    assert_eq!(deleting.pending.as_ref().unwrap().unsubscribe, names(&["s", "t"]));
    assert_eq!(deleting.delete(ID), GroupDeletion::Start(deleting.clone()), "a repetition does the same");
}

#[test]
fn subscription_starts_where_each_generation_starts() {
    let start = StreamCut([(id(0, 0), 5)].into());
    let mut from_five = config(GroupRetention::Manual, &["s"]);
    from_five.starting.insert(stream("s"), start.clone());
    let record = created(from_five.clone()).settled();
    let first = record.subscription(&stream("s"), None);
    assert_eq!(first, Subscription { id: ID, generation: 0, cut: start.clone() });
    let reported = Subscription { cut: StreamCut([(id(0, 0), 90)].into()), ..first };
    assert_eq!(record.subscription(&stream("s"), Some(&reported)), reported, "a repetition keeps the report");
    let reset = updated(&record, from_five);
    let again = reset.subscription(&stream("s"), Some(&reported));
    assert_eq!(again, Subscription { id: ID, generation: 1, cut: start });
}

#[test]
fn reports_move_forward_only() {
    let history = History::new(2, 0);
    let check =
        |a, b| StreamCut([(id(0, 0), a), (id(0, 1), b)].into()).check(Epochs::new(&history.epochs)).unwrap();
    let last = check(10, 10);
    let subscription = Subscription { id: ID, generation: 1, cut: last.to_cut() };
    let report = |id, generation, cut| subscription.report(id, generation, &cut, Some(&last));
    assert_eq!(report(ID, 1, check(10, 10)), Report::Unchanged);
    assert_eq!(report(ID, 1, check(5, 10)), Report::Behind(CutOrder::Before));
    assert_eq!(report(ID, 1, check(5, 20)), Report::Behind(CutOrder::Overlaps));
    assert_eq!(report(GroupId(8), 1, check(20, 20)), Report::OtherId);
    assert_eq!(report(ID, 0, check(20, 20)), Report::OtherGeneration);
    let moved = Subscription { cut: check(20, 10).to_cut(), ..subscription.clone() };
    assert_eq!(report(ID, 1, check(20, 10)), Report::Moved(moved));
    let fresh = Subscription { cut: StreamCut::default(), ..subscription };
    assert!(matches!(fresh.report(ID, 1, &check(0, 0), None), Report::Moved(_)));
}
