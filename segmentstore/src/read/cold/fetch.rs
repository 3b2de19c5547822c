//! One GET: units that lie back to back in an object, fetched, checked, and put where they are looked for.
//!
//! It runs as a task of its own, so it goes on for whoever else waits when a reader leaves. Bytes that are not what
//! was stored are fetched once more, footer and all; nothing that was not checked leaves this file.

use super::cache::Shared;
use super::unit::{Unit, UnitKey};
use super::{ColdError, ColdReader};
use crate::tier::{BLOCK_BYTES, Footer, TierError, verify};
use crate::types::ObjectId;
use bytes::Bytes;
use dhara_stdx::budget::BytePermit;
use dhara_stdx::chain;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tracing::{debug, warn};

/// When a GET that failed in a way that may be over soon is repeated.
const REPEAT_AFTER: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(200)];

/// What a GET brought, one entry for each of its units.
#[derive(Clone, Debug)]
pub(super) struct Brought {
    keys: Arc<[UnitKey]>,
    bytes: Arc<[Bytes]>,
}

/// The outcome of a GET, once there is one.
pub(super) type Landing = watch::Receiver<Option<Result<Brought, ColdError>>>;

/// Whose memory a GET fills.
#[derive(Debug)]
pub(super) enum Room {
    /// A reader's own, kept for it.
    Kept { permit: BytePermit, get: Option<OwnedSemaphorePermit> },
    /// That of reads that wait; the GET gets in line.
    Waited,
}

/// A GET that is announced and on its way.
#[derive(Debug)]
pub(super) struct Flight {
    reader: ColdReader,
    units: Vec<Unit>,
    keys: Arc<[UnitKey]>,
    room: Option<Room>,
    outcome: watch::Sender<Option<Result<Brought, ColdError>>>,
}

/// The unit that a GET brought, if it has landed well.
pub(super) fn brought(landing: &Landing, key: &UnitKey) -> Option<Bytes> {
    let outcome = landing.borrow();
    let Some(Ok(brought)) = outcome.as_ref() else { return None };
    let at = brought.keys.iter().position(|brought| brought == key)?;
    brought.bytes.get(at).cloned()
}

/// Waits for the outcome of a GET.
pub(super) async fn landed(landing: &mut Landing) -> Result<(), ColdError> {
    match landing.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.as_ref().map_or(Err(ColdError::Ended), |outcome| {
            outcome.as_ref().map(|_brought| ()).map_err(ColdError::clone)
        }),
        Err(_gone) => Err(ColdError::Ended),
    }
}

/// Starts a GET for the leading of `units`, which touch each other, that nobody has asked for yet; `None` if the
/// first is there or on its way by now.
pub(super) fn start(reader: &ColdReader, units: &[Unit], room: Room) -> Option<(Landing, usize)> {
    let shared = &reader.cache.0;
    let keys: Vec<UnitKey> = units.iter().map(|unit| unit.key(reader.container)).collect();
    let (outcome, landing) = watch::channel(None);
    let count = shared.announce(&keys, &landing, matches!(room, Room::Kept { .. }));
    if count == 0 {
        return None;
    }
    let flight = Flight {
        reader: reader.clone(),
        units: units[..count].to_vec(),
        keys: keys[..count].into(),
        room: Some(room),
        outcome,
    };
    shared.spawn(flight.run());
    Some((landing, count))
}

impl Flight {
    async fn run(mut self) {
        let shared = Arc::clone(&self.reader.cache.0);
        let (permit, get, waited) = match self.room.take() {
            Some(Room::Kept { permit, get }) => (Some(permit), get, None),
            Some(Room::Waited) | None => {
                (None, None, Some(shared.fetching.bytes.acquire(self.bytes()).await))
            }
        };
        let get = match get {
            Some(get) => Some(get),
            None => Arc::clone(&shared.gets).acquire_owned().await.ok(),
        };
        let brought = tokio::select! { biased;
            // Final; nothing can starve behind it.
            () = shared.stop.cancelled() => Err(ColdError::Ended),
            brought = self.fetch() => brought,
        };
        self.land(brought, permit);
        drop((get, waited));
    }

    fn bytes(&self) -> u64 {
        self.units.iter().map(|unit| u64::from(unit.length())).sum()
    }

    fn land(&self, brought: Result<Vec<Bytes>, ColdError>, permit: Option<BytePermit>) {
        let brought = brought.map(|bytes| Brought { keys: Arc::clone(&self.keys), bytes: bytes.into() });
        let bytes = brought.as_ref().ok().map(|brought| &brought.bytes[..]);
        self.reader.cache.0.land(&self.keys, bytes, permit);
        self.outcome.send_replace(Some(brought));
    }

    async fn fetch(&self) -> Result<Vec<Bytes>, ColdError> {
        let (mut waits, mut again) = (REPEAT_AFTER.iter(), false);
        loop {
            match self.attempt(again).await {
                Err(error) if error.is_wrong() && !again => {
                    // The cause may lie on the way, or in the footer that was kept.
                    warn!(error = chain(&error), "bytes are wrong, they are fetched again");
                    again = true;
                }
                // A read that fails ends its connection, and whatever else the client does there.
                Err(error)
                    if error.may_pass()
                        && let Some(wait) = waits.next() =>
                {
                    debug!(error = chain(&error), "bytes did not come, they are fetched again");
                    tokio::time::sleep(*wait).await;
                }
                done => return done,
            }
        }
    }

    async fn attempt(&self, again: bool) -> Result<Vec<Bytes>, ColdError> {
        let Some(first) = self.units.first() else { return Ok(Vec::new()) };
        let object = first.stored.object;
        let _pin = self.reader.pins.pin(object);
        let lengths: Vec<u32> = self.units.iter().map(Unit::length).collect();
        let read = self.reader.objects.pieces(object, first.at().into(), &lengths);
        let needs_footer = self.units.iter().any(|unit| unit.stored.length > BLOCK_BYTES);
        let footer = async {
            if needs_footer {
                self.reader.cache.0.footer(&self.reader, object, again).await.map(Some)
            } else {
                Ok(None)
            }
        };
        let read = async {
            read.await.map_err(|source| self.reader.failed(object, first.at(), self.bytes(), source))
        };
        let (footer, pieces) = tokio::try_join!(footer, read)?;
        self.check(footer.as_deref(), &pieces)?;
        Ok(pieces)
    }

    fn check(&self, footer: Option<&Footer>, pieces: &[Bytes]) -> Result<(), ColdError> {
        for (unit, piece) in self.units.iter().zip(pieces) {
            verify(&unit.stored, footer, unit.first_block(), piece).map_err(|source| ColdError::Wrong {
                object: self.reader.name_of(unit.stored.object),
                at: unit.at(),
                length: unit.length(),
                source,
            })?;
        }
        Ok(())
    }
}

impl Drop for Flight {
    /// Whoever waits for a GET that ends unheard, with its runtime, is not left waiting.
    fn drop(&mut self) {
        if self.outcome.borrow().is_none() {
            self.land(Err(ColdError::Ended), None);
        }
    }
}

impl Shared {
    /// The footer of an object, from the cache unless it is to be read `again`.
    pub(super) async fn footer(
        &self,
        reader: &ColdReader,
        object: ObjectId,
        again: bool,
    ) -> Result<Arc<Footer>, ColdError> {
        let key = (reader.container, object);
        if !again && let Some(footer) = self.footers.get(&key) {
            return Ok(footer);
        }
        let coming = self.footer_coming(key);
        let read = coming.get_or_init(|| async {
            let _pin = reader.pins.pin(object);
            let footer = reader.objects.footer(object).await;
            let footer = footer.map(Arc::new).map_err(|source| reader.failed(object, 0, 0, source))?;
            self.footers.insert(key, Arc::clone(&footer));
            Ok(footer)
        });
        read.await.clone()
    }
}

impl ColdReader {
    /// Why a call of the store gave nothing; of the object's end if `length` is 0.
    pub(super) fn failed(&self, object: ObjectId, at: u32, length: u64, source: TierError) -> ColdError {
        ColdError::Tier { object: self.name_of(object), at, length, source: Arc::new(source) }
    }
}
