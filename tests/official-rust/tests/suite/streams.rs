//! Scopes and streams: the controller as this client calls it.

use std::collections::{BTreeSet, HashMap};

use pravega_client_shared::{
    CToken, Retention, RetentionType, ScaleType, Scaling, Segment, StreamConfiguration, StreamCut,
};

use crate::world::{fixed, World};

#[tokio::test(flavor = "multi_thread")]
async fn scope_and_stream_are_created_once_and_deleted_once() {
    let world = World::new().await;
    let controller = world.factory.controller_client();
    assert!(!controller.create_scope(&world.scope).await.unwrap());
    assert!(controller.check_scope_exists(&world.scope).await.unwrap());
    let stream = world.stream("once", 1).await;
    assert!(!controller.create_stream(&fixed(&stream, 1, None)).await.unwrap());
    assert!(controller.check_stream_exists(&stream).await.unwrap());
    assert!(controller.delete_scope(&world.scope).await.is_err(), "not empty");
    assert!(controller.delete_stream(&stream).await.is_err(), "not sealed");
    world.seal(&stream).await;
    assert!(controller.delete_stream(&stream).await.unwrap());
    assert!(!controller.check_stream_exists(&stream).await.unwrap());
    assert!(!controller.delete_stream(&stream).await.unwrap());
    assert!(controller.delete_scope(&world.scope).await.unwrap());
    assert!(!controller.check_scope_exists(&world.scope).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_show_each_stream_once() {
    let world = World::new().await;
    let mut expected = BTreeSet::new();
    for number in 0..12 {
        let name = format!("listed-{number}");
        world.stream(&name, 1).await;
        expected.insert(name);
    }
    let (mut found, mut token) = (Vec::new(), CToken::empty());
    while let Some((page, next)) = world
        .factory
        .controller_client()
        .list_streams(&world.scope, &token)
        .await
        .unwrap()
    {
        found.extend(
            page.into_iter()
                .map(|s| s.stream.name)
                .filter(|name| !name.starts_with('_')),
        );
        token = next;
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_found_by_their_tags() {
    let world = World::new().await;
    let controller = world.factory.controller_client();
    for (name, tags) in [("a", vec!["red"]), ("b", vec!["red", "blue"]), ("c", vec!["blue"])] {
        let tags = tags.into_iter().map(str::to_owned).collect();
        let config = fixed(&world.name(name), 1, Some(tags));
        assert!(controller.create_stream(&config).await.unwrap());
    }
    let (mut found, mut token) = (BTreeSet::new(), CToken::empty());
    while let Some((page, next)) = controller
        .list_streams_for_tag(&world.scope, "red", &token)
        .await
        .unwrap()
    {
        found.extend(page.into_iter().map(|s| s.stream.name));
        token = next;
    }
    assert_eq!(found, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    let mut tags = controller.get_stream_tags(&world.name("b")).await.unwrap().unwrap();
    tags.sort();
    assert_eq!(tags, ["blue", "red"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_is_kept_and_updated() {
    let world = World::new().await;
    let controller = world.factory.controller_client();
    let stream = world.stream("configured", 2).await;
    assert_eq!(
        controller
            .get_stream_configuration(&stream)
            .await
            .unwrap()
            .scaling
            .min_num_segments,
        2
    );
    let scaling = Scaling {
        scale_type: ScaleType::ByRateInEventsPerSec,
        target_rate: 50,
        scale_factor: 3,
        min_num_segments: 2,
    };
    let retention = Retention {
        retention_type: RetentionType::Size,
        retention_param: 1_000_000,
    };
    let update = StreamConfiguration::new(stream.clone(), scaling, retention, Some(vec!["tag".to_owned()]));
    assert!(controller.update_stream(&update).await.unwrap());
    assert_eq!(controller.get_stream_configuration(&stream).await.unwrap(), update);
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_names_successors_and_keeps_epochs() {
    let world = World::new().await;
    let controller = world.factory.controller_client();
    let stream = world.stream("scaled", 2).await;
    let before = world.segments(&stream).await;
    world.split(&stream, 0).await;
    let after = world.segments(&stream).await;
    let bounds: Vec<_> = after.iter().map(|s| (s.0, s.1)).collect();
    assert_eq!(bounds, [(0.0, 0.25), (0.25, 0.5), (0.5, 1.0)]);
    assert_eq!(after[2].2, before[1].2, "the other segment stays");

    let successors = controller.get_successors(&before[0].2).await.unwrap();
    assert_eq!(successors.segment_with_predecessors.len(), 2);
    for predecessors in successors.segment_with_predecessors.values() {
        assert_eq!(predecessors, &[before[0].2.segment.clone()]);
    }
    let first = controller.get_epoch_segments(&stream, 0).await.unwrap();
    assert_eq!(first.key_segment_map.len(), 2);

    world.merge(&stream, 1).await;
    let bounds: Vec<_> = world.segments(&stream).await.iter().map(|s| (s.0, s.1)).collect();
    assert_eq!(bounds, [(0.0, 0.25), (0.25, 1.0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_of_unknown_or_gapped_ranges_is_refused() {
    let world = World::new().await;
    let controller = world.factory.controller_client();
    let stream = world.stream("refusing", 2).await;
    let before = world.segments(&stream).await;
    let first = [before[0].2.segment.clone()];
    for (sealed, ranges) in [
        (&first[..], &[(0.0, 0.2), (0.3, 0.5)][..]),
        (&first[..], &[(0.0, 0.3), (0.2, 0.5)][..]),
        (&first[..], &[(0.0, 1.0)][..]),
        (&[Segment::from(77)][..], &[(0.0, 0.5)][..]),
    ] {
        assert!(
            controller.scale_stream(&stream, sealed, ranges).await.is_err(),
            "{ranges:?}"
        );
    }
    assert_eq!(world.segments(&stream).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn truncation_moves_the_head() {
    let world = World::new().await;
    let controller = world.factory.controller_client();
    let stream = world.stream("truncated", 1).await;
    let mut writer = world.factory.create_event_writer(stream.clone());
    for number in 0..4u8 {
        // 8 bytes of header and 8 of data
        let _acknowledged = writer.write_event(vec![number; 8]).await;
    }
    writer.flush().await.unwrap();
    let cut = StreamCut::new(stream.clone(), HashMap::from([(0, 32)]));
    assert!(controller.truncate_stream(&cut).await.unwrap());
    let head = controller.get_head_segments(&stream).await.unwrap();
    assert_eq!(head.into_iter().collect::<Vec<_>>(), [(Segment::from(0), 32)]);
    let events = world.read_from_head("group", &stream, 2).await;
    assert_eq!(events, [vec![2; 8], vec![3; 8]]);
}
