//! A calm world in which one thing goes wrong, for each thing that may and each moment at which it may.
//!
//! The world without any blow tells how many calls there are to disk and store; every one of them is a moment.

use super::fate::relent;
use super::machine::{Crash, Machine, Setup};
use super::run::{Outcome, Violation, run_plot};
use crate::container::{MemoryLimits, Rules};
use crate::read::ReadConfig;
use crate::sim::store::Fault;
use std::time::Duration;
use tokio::time::Instant;

/// The seed of everything but the blow.
const SEED: u64 = 41;
/// How long the calm lasts.
const LASTS: Duration = Duration::from_millis(2_500);
/// Long enough for a call to have its effect.
const EFFECT: Duration = Duration::from_millis(3);

/// What goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// Power fails right before this call to the disk.
    PowerOff(u64),
    /// This sync fails, and the process ends; what it wrote is there for whoever does not look closely.
    FailedSync(u64),
    /// This change of the store meets a fault.
    Fault(u64, Fault),
    /// And power fails when it is done, or has come to nothing.
    FaultAndPowerCut(u64, Fault),
}

/// What goes wrong in a world.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plot {
    Storm,
    Calm,
    Blow(Blow),
}

/// How a machine in a calm world is set up: so that all kinds of calls come soon.
pub(super) fn setup() -> (Setup, Duration) {
    let setup = Setup {
        containers: 1,
        log_budget_bytes: 64 << 20,
        cache_bytes: 1 << 20,
        read: ReadConfig { cache_bytes: 1 << 20, inflight_bytes: 8 << 20 },
        call_timeout: Duration::from_secs(3),
        rules: Rules {
            own_bytes: 16 << 10,
            object_bytes: 64 << 10,
            packed_bytes: 64 << 10,
            age: Duration::from_millis(300),
        },
        limits: MemoryLimits::default(),
        grace: super::fate::TRAVEL_MAX + Duration::from_secs(1),
    };
    (setup, LASTS)
}

/// Every blow at every moment of the calm world.
///
/// # Errors
/// [`Violation`] if that world breaks a promise by itself.
pub fn blows() -> Result<Vec<Blow>, Violation> {
    let calm = run_plot(SEED, Plot::Calm, false).0?;
    let mut blows = Vec::new();
    blows.extend((0..calm.disk_calls).map(Blow::PowerOff));
    // Every other call is a sync.
    blows.extend((0..calm.disk_calls / 2).map(Blow::FailedSync));
    for change in 0..calm.store_changes {
        blows.extend(Fault::ALL.map(|fault| Blow::Fault(change, fault)));
        let cut = [Fault::Swallowed, Fault::Unanswered];
        blows.extend(cut.map(|fault| Blow::FaultAndPowerCut(change, fault)));
    }
    Ok(blows)
}

/// Runs the calm world with one blow.
///
/// # Errors
/// [`Violation`] for the first promise that is broken.
pub fn run_blow(blow: Blow) -> Result<Outcome, Violation> {
    run_plot(SEED, Plot::Blow(blow), false).0
}

/// Prepares a blow, before the machine starts.
pub(super) fn prepare(machine: &Machine, plot: Plot) {
    match plot {
        Plot::Storm | Plot::Calm => {}
        Plot::Blow(Blow::PowerOff(call)) => machine.disk.power_off_after(call),
        Plot::Blow(Blow::FailedSync(sync)) => machine.disk.fail_sync_after(sync),
        Plot::Blow(Blow::Fault(change, fault) | Blow::FaultAndPowerCut(change, fault)) => {
            machine.objects.fail_change(change, fault);
        }
    }
}

/// Starts the machine; a blow that falls while it does so ends that process.
pub(super) fn start(machine: &mut Machine) {
    if machine.start().is_err() {
        relent(machine);
    }
}

/// Lets the calm world go on until `end`.
pub(super) async fn pass(machine: &mut Machine, plot: Plot, end: Instant) {
    let cut_at = match plot {
        Plot::Blow(Blow::FaultAndPowerCut(change, _)) => Some(change),
        _ => None,
    };
    let mut is_due = cut_at.is_some();
    while Instant::now() < end {
        tokio::select! { biased;
            () = machine.broken() => {
                let synced = matches!(plot, Plot::Blow(Blow::FailedSync(sync)) if sync.is_multiple_of(2));
                machine.crash(if synced { Crash::Kill } else { Crash::PowerCut });
                start(machine);
            }
            () = tokio::time::sleep(EFFECT) => {}
        }
        if is_due && cut_at.is_some_and(|change| machine.objects.changes_asked() > change) {
            is_due = false;
            tokio::time::sleep(EFFECT).await;
            machine.crash(Crash::PowerCut);
            start(machine);
        }
    }
}
