//! One run: a machine, those who use it, what goes wrong, and the reckoning at the end.

use super::actor::{self, Lane, Looked};
use super::book::Book;
use super::fate::{Fate, TRAVEL_MAX, fair, relent};
use super::front::Scene;
use super::inspect::{Inspector, audit, portrait};
use super::machine::{Crash, Machine, Setup, words};
use super::matrix::{self, Plot};
use super::{few, one_of};
use crate::container::{MemoryLimits, Rules};
use crate::read::ReadConfig;
use crate::sim::Trace;
use dhara_stdx::{Entropy, SeededEntropy};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Wall time at the beginning.
const UNIX_MS: i64 = 1_790_000_000_000;
/// How long everything may take to come to rest once nothing goes wrong any more.
const REST_MAX: Duration = Duration::from_mins(4);
/// How often open containers are looked at.
const INSPECT: Duration = Duration::from_millis(700);

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// One number for every call to disk and store, with its time and its order.
    pub hash: u64,
    /// How many of those there were.
    pub steps: u64,
    /// How often something went wrong.
    pub blows: u64,
    /// Events that were seen where they belong.
    pub events: u64,
    /// Simulated time.
    pub lasted: Duration,
    /// Changing calls to the disk of the last process before it came to rest.
    pub disk_calls: u64,
    /// Changing calls to the object store until then.
    pub store_changes: u64,
}

/// A promise that was broken in a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}: {what}")]
pub struct Violation {
    /// The run's seed, which brings it about again.
    pub seed: u64,
    /// Which promise.
    pub what: String,
}

/// Runs the world of a seed from its beginning to its end.
///
/// # Errors
/// [`Violation`] for the first promise that is broken.
pub fn run(seed: u64) -> Result<Outcome, Violation> {
    run_traced(seed, false).0
}

/// As [`run`]; also returns the text of each step if `keeps`.
pub fn run_traced(seed: u64, keeps: bool) -> (Result<Outcome, Violation>, Vec<String>) {
    run_plot(seed, Plot::Storm, keeps)
}

/// Runs a world in which this goes wrong.
pub(super) fn run_plot(seed: u64, plot: Plot, keeps: bool) -> (Result<Outcome, Violation>, Vec<String>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_time().start_paused(true).build() {
        Ok(runtime) => runtime,
        Err(error) => return (Err(Violation { seed, what: error.to_string() }), Vec::new()),
    };
    let mut lines = Vec::new();
    let lived = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let trace = Trace::new(keeps);
            let lived = live(seed, plot, trace.clone()).await;
            lines = trace.lines();
            lived
        })
    }));
    let lived = lived.unwrap_or_else(|panicked| Err(words(panicked)));
    (lived.map_err(|what| Violation { seed, what }), lines)
}

/// Those who use the machine.
struct Cast {
    scene: Scene,
    lanes: Vec<Arc<Lane>>,
    acting: Vec<(String, JoinHandle<()>)>,
}

impl Cast {
    fn act(&mut self, who: String, acts: impl Future<Output = ()> + Send + 'static) {
        self.acting.push((who, tokio::spawn(acts)));
    }

    fn new(scene: Scene, setup: Setup, chance: &SeededEntropy) -> Self {
        let mut cast = Self { scene, lanes: Vec::new(), acting: Vec::new() };
        let part = || SeededEntropy::new(chance.next_u64());
        let ids = Arc::new(AtomicU32::new(10_000));
        for number in 0..=u32::from(setup.containers) {
            let container = u16::try_from(number % u32::from(setup.containers)).unwrap_or(0);
            let lane = Lane::new(container, number);
            cast.lanes.push(Arc::clone(&lane));
            let scene = cast.scene.clone();
            cast.act(format!("owner of lane {number}"), Arc::clone(&lane).own(scene.clone(), part()));
            cast.act(format!("keeper of lane {number}"), Arc::clone(&lane).retain(scene.clone(), part()));
            for writer in 0..=few(chance, 3) {
                let id = number * 10 + writer + 1;
                let writes = actor::writer(scene.clone(), Arc::clone(&lane), id, part());
                cast.act(format!("writer {id}"), writes);
            }
            let commits = actor::transactions(scene.clone(), Arc::clone(&lane), Arc::clone(&ids), part());
            cast.act(format!("transactions of lane {number}"), commits);
            let sends = actor::transients(scene.clone(), lane, Arc::clone(&ids), part());
            cast.act(format!("transient segments of lane {number}"), sends);
            cast.act(format!("table {number}"), actor::table(scene.clone(), container, number, part()));
            cast.act(format!("phoenix {number}"), actor::phoenix(scene, container, number, part()));
        }
        for container in 0..setup.containers {
            let flushes = actor::flushes(cast.scene.clone(), container, part());
            cast.act(format!("flushes of container {container}"), flushes);
        }
        let lane = Lane::of_one(0, "rivals");
        for writer in 1..4 {
            let rivals = actor::rivals(cast.scene.clone(), Arc::clone(&lane), writer, part());
            cast.act(format!("rival {writer}"), rivals);
        }
        cast.act("keeper of rivals".into(), Arc::clone(&lane).retain(cast.scene.clone(), part()));
        cast.lanes.push(lane);
        cast
    }

    /// Waits until everybody has come to rest.
    async fn rest(&mut self) -> Result<(), String> {
        let end = Instant::now() + REST_MAX;
        for (who, acting) in std::mem::take(&mut self.acting) {
            match tokio::time::timeout_at(end, acting).await {
                Ok(Ok(())) => {}
                Ok(Err(died)) => return Err(format!("{who}: {}", words(died.into_panic()))),
                Err(_elapsed) => return Err(format!("{who} does not come to rest")),
            }
        }
        Ok(())
    }

    fn books(&self) -> impl Iterator<Item = (u16, Arc<Mutex<Book>>)> {
        self.lanes.iter().flat_map(|lane| lane.books().into_iter().map(|book| (lane.container(), book)))
    }

    /// Everything that was promised is there; returns what readers can learn of each container.
    async fn reckon(&self, containers: u16) -> Result<Vec<BTreeMap<String, String>>, String> {
        for (container, book) in self.books() {
            loop {
                let handle = self.scene.dial(container).await.handle;
                match actor::read_all(&handle, &book).await {
                    Looked::Whole(checked) => break checked?,
                    Looked::Part => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        }
        let mut portraits = Vec::new();
        for container in 0..containers {
            let handle = self.scene.dial(container).await.handle;
            portraits.push(portrait(&handle).await?);
        }
        Ok(portraits)
    }
}

/// How the machine of a storm is set up, and how long the storm lasts.
fn any_setup(chance: &SeededEntropy) -> (Setup, Duration) {
    let setup = Setup {
        containers: one_of(chance, [1, 2]),
        log_budget_bytes: one_of(chance, [12, 24, 64]) << 20,
        cache_bytes: one_of(chance, [64 << 10, 1 << 20]),
        read: ReadConfig {
            cache_bytes: one_of(chance, [0, 100 << 10, 2 << 20]),
            inflight_bytes: one_of(chance, [4 << 20, 16 << 20]),
        },
        call_timeout: Duration::from_secs(3 + chance.below(27)),
        rules: Rules {
            own_bytes: one_of(chance, [32, 100]) << 10,
            object_bytes: one_of(chance, [100, 400]) << 10,
            packed_bytes: one_of(chance, [50, 400]) << 10,
            age: Duration::from_secs(1 + chance.below(15)),
        },
        limits: MemoryLimits {
            places_max: one_of(chance, [100, 1_000, 100_000]),
            overlay_bytes_max: one_of(chance, [16 << 10, 128 << 10, 64 << 20]),
        },
        grace: TRAVEL_MAX + Duration::from_millis(500 + chance.below(15_000)),
    };
    (setup, Duration::from_secs(8 + chance.below(25)))
}

async fn live(seed: u64, plot: Plot, trace: Trace) -> Result<Outcome, String> {
    let begin = Instant::now();
    let chance = SeededEntropy::new(seed);
    let (setup, lasts) = match plot {
        Plot::Storm => any_setup(&chance),
        Plot::Calm | Plot::Blow(_) => matrix::setup(),
    };
    trace.note(format_args!("{setup:?}"));
    let mut machine = Machine::new(chance.next_u64(), setup, trace.clone(), UNIX_MS);
    machine.objects.set_weather(fair());
    matrix::prepare(&machine, plot);
    matrix::start(&mut machine);
    let scene = Scene {
        front: Arc::clone(&machine.front),
        court: machine.court.clone(),
        trace: trace.clone(),
        rest: CancellationToken::new(),
    };
    let mut cast = Cast::new(scene, setup, &chance);
    let inspecting = tokio::spawn(inspect(cast.scene.clone(), setup.containers));
    let mut fate = Fate::new(chance.next_u64());
    let court = machine.court.clone();
    let lived = tokio::select! { biased;
        // A broken promise ends the run; nothing can starve behind it.
        () = court.guilty() => Err(String::new()),
        lived = async {
            match plot {
                Plot::Storm => fate.rule(&mut machine, begin + lasts).await,
                Plot::Calm | Plot::Blow(_) => matrix::pass(&mut machine, plot, begin + lasts).await,
            }
            let counts = (machine.disk.calls(), machine.objects.changes_asked());
            come_to_rest(&mut machine, &mut cast).await.map(|()| counts)
        } => lived,
    };
    inspecting.abort();
    let (disk_calls, store_changes) = court.verdict().map_or(lived, Err)?;
    let events = cast.books().map(|(_, book)| u64::try_from(book.lock().events()).unwrap_or(0)).sum();
    Ok(Outcome {
        hash: trace.hash(),
        steps: trace.events(),
        blows: fate.blows,
        events,
        lasted: begin.elapsed(),
        disk_calls,
        store_changes,
    })
}

/// The rest, and the reckoning.
async fn come_to_rest(machine: &mut Machine, cast: &mut Cast) -> Result<(), String> {
    relent(machine);
    cast.scene.rest.cancel();
    cast.rest().await?;
    let containers = machine.setup.containers;
    settle(machine, cast).await?;
    let before = cast.reckon(containers).await?;
    machine.crash(Crash::PowerCut);
    start(machine)?;
    let after = cast.reckon(containers).await?;
    same(&before, &after, "a power cut at rest")?;
    if !machine.stop(Duration::from_mins(2)).await {
        return Err("the process does not stop in order".into());
    }
    start(machine)?;
    let stopped = cast.reckon(containers).await?;
    same(&before, &stopped, "a stop in order")?;
    if !machine.stop(Duration::from_mins(2)).await {
        return Err("the process does not stop in order again".into());
    }
    // What was aborted goes when the runtime gets to it.
    tokio::time::sleep(Duration::from_secs(20)).await;
    // One that looks at open containers lives on.
    match Handle::current().metrics().num_alive_tasks() {
        0 | 1 => Ok(()),
        alive => Err(format!("{alive} tasks outlive the process")),
    }
}

/// All bytes come to lie in objects, and all objects in which nothing lies go.
async fn settle(machine: &Machine, cast: &Cast) -> Result<(), String> {
    let end = Instant::now() + REST_MAX;
    for container in 0..machine.setup.containers {
        let mut waits_for = "a flush".to_owned();
        while let Some(what) = unsettled(machine, cast, container, end).await {
            waits_for = what.unwrap_or(waits_for);
            if Instant::now() >= end {
                return Err(format!("container {container} does not settle: {waits_for}"));
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
    Ok(())
}

/// What a container has not done yet, if that can be said.
async fn unsettled(machine: &Machine, cast: &Cast, container: u16, end: Instant) -> Option<Option<String>> {
    let client = cast.scene.dial(container).await;
    match tokio::time::timeout_at(end, client.flush()).await {
        Ok(true) => audit(&client.handle, container, &machine.objects).err().map(Some),
        Ok(false) | Err(_) => Some(None),
    }
}

fn start(machine: &mut Machine) -> Result<(), String> {
    machine.start().map_err(|error| format!("the log does not open: {error}, {error:?}"))
}

/// Transient segments go with their owners; everything else stays as it was.
fn same(
    before: &[BTreeMap<String, String>],
    after: &[BTreeMap<String, String>],
    what: &str,
) -> Result<(), String> {
    for (before, after) in before.iter().zip(after) {
        let lasting = before.iter().filter(|(name, _)| !name.starts_with("transient/"));
        for (name, text) in lasting {
            if after.get(name) != Some(text) {
                return Err(format!("{what} made of {name} {text} {:?}", after.get(name)));
            }
        }
        if let Some(name) = after.keys().find(|name| !before.contains_key(*name)) {
            return Err(format!("{what} made {name}"));
        }
    }
    Ok(())
}

async fn inspect(scene: Scene, containers: u16) {
    let mut inspector = Inspector::default();
    loop {
        tokio::time::sleep(INSPECT).await;
        scene.court.check(inspector.look(&scene.front, containers));
    }
}
