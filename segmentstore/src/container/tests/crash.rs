//! Crashes and recoveries.

use super::*;

#[test]
fn containers_whose_batches_share_a_frame_keep_their_own_bytes() {
    // Found by reading: a piece of small appends was carried over the batches of another container, whose segments
    // have the same ids.
    on_paused_clock(async {
        let mut world = World::new(21);
        let log = world.open_log();
        let both = [world.open_on(&log, 0).await.unwrap(), world.open_on(&log, 1).await.unwrap()];
        for running in &both {
            running.request(0, create("s", SegmentKind::Stream)).await;
            running.request(1, set_up(session(1, 1), "s")).await;
        }
        both[0].settle().await;
        // Each container hands over a batch in turn, and all of them go into one frame.
        for event in 1..=3 {
            for (running, data) in both.iter().zip([&[b'a'; 300], &[b'b'; 300]]) {
                running.append(2, session(1, 1), event, data).await;
                running.idle().await;
            }
        }
        both[0].settle().await;
        let expected = [vec![b'a'; 900], vec![b'b'; 900]];
        let contents = |both: &[Running; 2]| both.each_ref().map(|running| running.content("s").unwrap());
        assert_eq!(contents(&both), expected);
        let disk = world.disk.crash(1);
        for running in both {
            running.task.abort();
            drop(running.task.await);
        }
        drop(log);
        world.disk = disk;
        let log = world.open_log();
        let both = [world.open_on(&log, 0).await.unwrap(), world.open_on(&log, 1).await.unwrap()];
        assert_eq!(contents(&both), expected);
    });
}
