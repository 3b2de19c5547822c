//! A writer of events: pipelines appends, reconnects, sends again what was not acknowledged, and moves on when its
//! segment is sealed.

use super::lane::Lane;
use super::pen::{Pen, Standing};
use crate::operation::Refusal;
use crate::world::front::{Client, Scene};
use crate::world::{few, one_of};
use dhara_stdx::SeededEntropy;
use std::sync::Arc;
use std::time::Duration;

/// Bytes on their way at one time.
const WINDOW_BYTES: u64 = 48 << 10;
/// Appends on their way at one time.
const WINDOW_APPENDS: usize = 64;

/// What a writer does when its connection is of no use any more.
enum Then {
    Reconnect,
    MoveOn,
    Rest,
}

/// Writes until the scene ends and everything is acknowledged.
pub(in crate::world) async fn writer(scene: Scene, lane: Arc<Lane>, id: u32, chance: SeededEntropy) {
    let mut done = 0;
    loop {
        let Some((number, book)) = lane.open().filter(|(number, _)| *number > done) else {
            if !scene.pause(Duration::from_millis(50)).await {
                return;
            }
            continue;
        };
        let mut pen = Pen::new(id, Arc::clone(&book), scene.court.clone());
        loop {
            let client = scene.dial(lane.container).await;
            let then = match pen.set_up(&client).await {
                Ok(()) => write(&scene, &mut pen, &client, &chance).await,
                Err(Refusal::Unavailable) => Then::Reconnect,
                Err(Refusal::NoSuchSegment) if book.lock().may_be_gone => Then::MoveOn,
                Err(refusal) => {
                    scene.court.accuse(format!("writer {id} cannot set up: {refusal:?}"));
                    return;
                }
            };
            client.hang_up().await;
            match then {
                Then::Reconnect => tokio::time::sleep(Duration::from_millis(10 + chance.below(300))).await,
                Then::MoveOn => break,
                Then::Rest => return,
            }
        }
        done = number;
    }
}

async fn write(scene: &Scene, pen: &mut Pen, client: &Client, chance: &SeededEntropy) -> Then {
    // Each connection has a temper of its own: bursts, or one by one.
    let pause_us_max = one_of(chance, [3_000, 40_000, 200_000, 800_000]);
    loop {
        match pen.standing() {
            Standing::Good => {}
            Standing::Lost => return Then::Reconnect,
            Standing::Refused(Refusal::Sealed | Refusal::NoSuchSegment) => return Then::MoveOn,
            Standing::Refused(refusal) => {
                scene.court.accuse(format!("a writer is refused: {refusal:?}"));
                return Then::Rest;
            }
        }
        let rests = scene.rest.is_cancelled();
        if rests && pen.open() == 0 {
            return Then::Rest;
        }
        if pen.send_again(client).await {
            continue;
        }
        if rests || pen.bytes_open() > WINDOW_BYTES || pen.open() >= WINDOW_APPENDS {
            pen.changed().await;
            continue;
        }
        if chance.below(400) == 0 {
            return Then::Reconnect;
        }
        let count = match chance.below(20) {
            0 => 0,
            1..15 => 1,
            _ => 1 + few(chance, 5),
        };
        pen.append(client, count, one_of(chance, [1, 2, 3])).await;
        let pause = Duration::from_micros(chance.below(pause_us_max));
        tokio::select! { biased;
            // Heard or not, the writer goes on at once; the scene's end is looked at above.
            () = tokio::time::sleep(pause) => {}
            () = scene.rest.cancelled() => {}
        }
    }
}
