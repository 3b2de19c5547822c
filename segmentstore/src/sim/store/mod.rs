//! An object store in memory that fails the way stores do, repeatably by its seed.
//!
//! A call travels, has its effect, and travels back. [`Weather`] says how long that takes and how many calls are lost
//! on either way; [`SimObjectStore::fail_change`] picks single ones. A caller that gives up does not stop its call: a
//! change may have its effect long after whoever asked for it has died. Every change is remembered, so that
//! [`SimObjectStore::as_after`] gives the store as it was between any two of them.

mod calls;

use super::Trace;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use dhara_stdx::{Entropy, SeededEntropy};
use object_store::path::Path;
use object_store::{Attributes, ObjectMeta, PutMode};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Name that errors of this store carry.
const STORE_NAME: &str = "sim";

/// Whether the store answers at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// It does.
    #[default]
    None,
    /// Every call fails at once, without effect.
    Refuses,
    /// No call is ever answered, none has an effect.
    Silent,
}

/// How calls fare from now on. The default is a store that answers at once and never fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Whether it answers at all.
    pub outage: Outage,
    /// How long a call takes, microseconds; half of it before its effect.
    pub latency_us: Range<u64>,
    /// Of 1,000 calls, so many take `slow` longer.
    pub slow_permille: u64,
    /// How much longer.
    pub slow: Duration,
    /// No call is longer on its way to the store than this.
    pub travel_max: Option<Duration>,
    /// Of 1,000 calls, so many fail before their effect.
    pub refused_permille: u64,
    /// Of 1,000 changes, so many have their effect and are answered with an error.
    pub reply_lost_permille: u64,
    /// Of 1,000 conditional puts, so many are told of a conflict that is none.
    pub conflict_permille: u64,
    /// Listings show the store as it was this long ago.
    pub list_lag: Duration,
    /// Bytes that all objects may have together.
    pub capacity_bytes: Option<u64>,
}

/// What becomes of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error, no effect.
    Refused,
    /// A conflict is reported, no effect.
    Conflict,
    /// No answer, no effect.
    Swallowed,
    /// An effect, and an error.
    ReplyLost,
    /// An effect, and no answer.
    Unanswered,
}

impl Fault {
    /// Each of them.
    pub const ALL: [Self; 5] =
        [Self::Refused, Self::Conflict, Self::Swallowed, Self::ReplyLost, Self::Unanswered];
}

/// The store. Clones are the same store.
#[derive(Clone)]
pub struct SimObjectStore {
    shared: Arc<Shared>,
    /// The line that calls go by; none is never cut.
    cut: Option<CancellationToken>,
}

/// The line of one process to its store: once it is cut, all calls end at once, and those that were on their way
/// arrive or not.
#[derive(Clone, Debug)]
pub struct Line {
    store: SimObjectStore,
    cut: CancellationToken,
}

impl Line {
    /// The store at the end of this line.
    pub fn store(&self) -> SimObjectStore {
        self.store.clone()
    }

    /// Cuts the line, as the death of its process does.
    pub fn cut(&self) {
        self.cut.cancel();
    }
}

struct Shared {
    chance: SeededEntropy,
    trace: Trace,
    start: Instant,
    start_at: DateTime<Utc>,
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
struct Object {
    data: Bytes,
    tag: u64,
    at: DateTime<Utc>,
    attributes: Attributes,
}

impl Object {
    fn e_tag(&self) -> String {
        format!("\"{}\"", self.tag)
    }

    fn meta(&self, location: &Path) -> ObjectMeta {
        ObjectMeta {
            location: location.clone(),
            last_modified: self.at,
            size: u64::try_from(self.data.len()).unwrap_or(u64::MAX),
            e_tag: Some(self.e_tag()),
            version: None,
        }
    }
}

/// One change that took effect.
#[derive(Clone, Debug)]
struct Change {
    at: DateTime<Utc>,
    location: Path,
    object: Option<Object>,
}

#[derive(Debug, Default)]
struct State {
    weather: Weather,
    objects: BTreeMap<Path, Object>,
    bytes: u64,
    tags: u64,
    history: Vec<Change>,
    /// Calls that arrived or will.
    calls: u64,
    /// Of those, the ones that would change something.
    changes: u64,
    /// Faults by the number of the change.
    faults: BTreeMap<u64, Fault>,
}

/// What lies before a call.
#[derive(Clone, Copy, Debug)]
struct Course {
    number: u64,
    there: Duration,
    back: Duration,
    fault: Option<Fault>,
    /// It has its effect even if nobody waits for the answer any more.
    arrives_alone: bool,
}

impl SimObjectStore {
    /// An empty store whose clock shows `unix_ms` now and then goes with tokio's.
    pub fn new(seed: u64, unix_ms: i64, trace: Trace) -> Self {
        Self::holding(seed, DateTime::from_timestamp_millis(unix_ms).unwrap_or_default(), trace, Vec::new())
    }

    fn holding(seed: u64, start_at: DateTime<Utc>, trace: Trace, history: Vec<Change>) -> Self {
        let mut state = State { objects: objects_of(&history), history, ..State::default() };
        state.bytes = state.objects.values().map(bytes_of).sum();
        state.tags = state.objects.values().map(|object| object.tag).max().unwrap_or(0);
        let chance = SeededEntropy::new(seed);
        let shared = Shared { chance, trace, start: Instant::now(), start_at, state: Mutex::new(state) };
        Self { shared: Arc::new(shared), cut: None }
    }

    /// A line of its own to this store, for one process.
    pub fn line(&self) -> Line {
        let cut = CancellationToken::new();
        let store = Self { shared: Arc::clone(&self.shared), cut: Some(cut.clone()) };
        Line { store, cut }
    }

    /// Changes how calls fare that arrive from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.shared.state.lock().weather = weather;
    }

    /// How calls fare.
    pub fn weather(&self) -> Weather {
        self.shared.state.lock().weather.clone()
    }

    /// The `nth` call from now on that would change something (0 is the next) meets this fault.
    pub fn fail_change(&self, nth: u64, fault: Fault) {
        let mut state = self.shared.state.lock();
        let number = state.changes + nth;
        state.faults.insert(number, fault);
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.shared.state.lock().calls
    }

    /// How many calls there were that would change something.
    pub fn changes_asked(&self) -> u64 {
        self.shared.state.lock().changes
    }

    /// How many changes took effect.
    pub fn changes(&self) -> usize {
        self.shared.state.lock().history.len()
    }

    /// Names and lengths of all objects.
    pub fn objects(&self) -> BTreeMap<Path, u64> {
        let state = self.shared.state.lock();
        state.objects.iter().map(|(location, object)| (location.clone(), bytes_of(object))).collect()
    }

    /// All bytes of an object, past every fault.
    pub fn content(&self, location: &Path) -> Option<Bytes> {
        self.shared.state.lock().objects.get(location).map(|object| object.data.clone())
    }

    /// Flips every bit of `at` of an object; false if it has no such byte.
    pub fn rot(&self, location: &Path, at: usize) -> bool {
        let mut state = self.shared.state.lock();
        let Some(object) = state.objects.get_mut(location) else { return false };
        let mut data = object.data.to_vec();
        let Some(byte) = data.get_mut(at) else { return false };
        *byte = !*byte;
        object.data = data.into();
        true
    }

    /// Takes an object away, past every fault; false if there is none.
    pub fn lose(&self, location: &Path) -> bool {
        let at = self.shared.now();
        self.shared.state.lock().set(at, location, None)
    }

    /// Another store that holds what this one held after its first `changes` changes.
    #[must_use]
    pub fn as_after(&self, changes: usize, seed: u64) -> Self {
        let history = self.shared.state.lock().history.iter().take(changes).cloned().collect();
        Self::holding(seed, self.shared.now(), self.shared.trace.clone(), history)
    }
}

impl fmt::Debug for SimObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimObjectStore").field("calls", &self.calls()).finish_non_exhaustive()
    }
}

impl fmt::Display for SimObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(STORE_NAME)
    }
}

impl Shared {
    fn now(&self) -> DateTime<Utc> {
        self.start_at + TimeDelta::from_std(self.start.elapsed()).unwrap_or_default()
    }

    /// Decides a call's course. Chance is drawn alike for every call, so that one more fault moves no other.
    fn set_out(&self, changes: bool, conditional: bool) -> Course {
        let draws: [u64; 6] = std::array::from_fn(|_| self.chance.next_u64());
        let [latency, slow, refused, lost, conflict, alone] = draws;
        let mut state = self.state.lock();
        let number = state.calls;
        state.calls += 1;
        let weather = &state.weather;
        let hits = |draw: u64, permille: u64| draw % 1_000 < permille;
        let span = weather.latency_us.end.saturating_sub(weather.latency_us.start).max(1);
        let mut there = Duration::from_micros(weather.latency_us.start + latency % span) / 2;
        let mut back = there;
        if hits(slow, weather.slow_permille) {
            let late = if slow & (1 << 32) == 0 { &mut there } else { &mut back };
            *late += weather.slow;
        }
        there = weather.travel_max.map_or(there, |most| there.min(most));
        let mut fault = None;
        if conditional && hits(conflict, weather.conflict_permille) {
            fault = Some(Fault::Conflict);
        } else if changes && hits(lost, weather.reply_lost_permille) {
            fault = Some(Fault::ReplyLost);
        } else if hits(refused, weather.refused_permille) {
            fault = Some(Fault::Refused);
        }
        if changes {
            let change = state.changes;
            state.changes += 1;
            fault = state.faults.remove(&change).or(fault);
        }
        Course { number, there, back, fault, arrives_alone: alone % 2 == 0 }
    }
}

fn bytes_of(object: &Object) -> u64 {
    u64::try_from(object.data.len()).unwrap_or(u64::MAX)
}

fn objects_of(history: &[Change]) -> BTreeMap<Path, Object> {
    let mut objects = BTreeMap::new();
    for Change { location, object, .. } in history {
        match object {
            Some(object) => drop(objects.insert(location.clone(), object.clone())),
            None => drop(objects.remove(location)),
        }
    }
    objects
}

impl State {
    /// Puts an object in place of what is there, or takes that away; false if nothing changed.
    fn set(&mut self, at: DateTime<Utc>, location: &Path, object: Option<Object>) -> bool {
        if object.is_none() && !self.objects.contains_key(location) {
            return false;
        }
        let before = self.objects.get(location).map_or(0, bytes_of);
        self.bytes = self.bytes - before + object.as_ref().map_or(0, bytes_of);
        match &object {
            Some(object) => drop(self.objects.insert(location.clone(), object.clone())),
            None => drop(self.objects.remove(location)),
        }
        self.history.push(Change { at, location: location.clone(), object });
        true
    }

    fn put(
        &mut self,
        at: DateTime<Utc>,
        location: &Path,
        (data, attributes): (Bytes, Attributes),
        mode: &PutMode,
    ) -> object_store::Result<String> {
        let path = location.to_string();
        let present = self.objects.get(location);
        match (mode, present) {
            (PutMode::Overwrite, _) | (PutMode::Create, None) => {}
            (PutMode::Create, Some(_)) => {
                return Err(object_store::Error::AlreadyExists { path, source: "object is there".into() });
            }
            (PutMode::Update(version), present) => {
                if present.map(Object::e_tag) != version.e_tag || version.e_tag.is_none() {
                    let source = "object has another tag".into();
                    return Err(object_store::Error::Precondition { path, source });
                }
            }
        }
        let before = present.map_or(0, bytes_of);
        let after = self.bytes - before + u64::try_from(data.len()).unwrap_or(u64::MAX);
        if self.weather.capacity_bytes.is_some_and(|capacity| after > capacity) {
            return Err(generic("no space left"));
        }
        self.tags += 1;
        let object = Object { data, tag: self.tags, at, attributes };
        let e_tag = object.e_tag();
        self.set(at, location, Some(object));
        Ok(e_tag)
    }

    fn find(&self, location: &Path) -> object_store::Result<&Object> {
        let missing =
            || object_store::Error::NotFound { path: location.to_string(), source: "no such object".into() };
        self.objects.get(location).ok_or_else(missing)
    }

    /// The objects that a listing of `prefix` shows at `now`.
    fn listed(&self, prefix: Option<&Path>, now: DateTime<Utc>) -> Vec<ObjectMeta> {
        let lag = TimeDelta::from_std(self.weather.list_lag).unwrap_or_default();
        let below = |location: &Path| {
            prefix.is_none_or(|prefix| {
                location.prefix_match(prefix).is_some_and(|mut rest| rest.next().is_some())
            })
        };
        let show = |objects: &BTreeMap<Path, Object>| {
            let shown = objects.iter().filter(|(location, _)| below(location));
            shown.map(|(location, object)| object.meta(location)).collect()
        };
        if lag.is_zero() {
            return show(&self.objects);
        }
        let old = self.history.partition_point(|change| change.at <= now - lag);
        show(&objects_of(&self.history[..old]))
    }
}

fn generic(why: &'static str) -> object_store::Error {
    object_store::Error::Generic { store: STORE_NAME, source: why.into() }
}

#[cfg(test)]
mod tests;
