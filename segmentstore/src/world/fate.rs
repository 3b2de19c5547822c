//! What goes wrong in a simulated world, and when: decided by its seed.

use super::machine::{Crash, Machine};
use crate::sim::store::{Outage, Weather};
use dhara_stdx::SeededEntropy;
use std::time::Duration;
use tokio::time::Instant;

/// How long a process gets to end in order.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest time that a call is on its way: objects are deleted later than that, or one whose put comes late would stay
/// for good.
pub(super) const TRAVEL_MAX: Duration = Duration::from_secs(3);

/// Weather in which nothing fails.
pub(super) fn fair() -> Weather {
    Weather { latency_us: 500..4_000, travel_max: Some(TRAVEL_MAX), ..Weather::default() }
}

/// Decides.
pub(super) struct Fate {
    chance: SeededEntropy,
    pub(super) blows: u64,
}

impl Fate {
    pub(super) fn new(seed: u64) -> Self {
        Self { chance: SeededEntropy::new(seed), blows: 0 }
    }

    fn below(&self, below: u64) -> u64 {
        self.chance.below(below)
    }

    /// Deals blows until `end`.
    pub(super) async fn rule(&mut self, machine: &mut Machine, end: Instant) {
        let mut fair_at = Instant::now();
        while Instant::now() < end {
            let next = Instant::now() + Duration::from_millis(200 + self.below(6_000));
            tokio::select! { biased;
                () = machine.broken() => self.go_on(machine, self.any_crash()).await,
                () = tokio::time::sleep_until(next.min(end)) => {}
            }
            if fair_at <= Instant::now() {
                machine.objects.set_weather(fair());
                machine.disk.set_capacity(u64::MAX);
            }
            self.blows += 1;
            let lasts = Duration::from_millis(500 + self.below(20_000));
            match self.below(20) {
                0..3 => self.go_on(machine, Crash::PowerCut).await,
                3 => self.go_on(machine, Crash::Kill).await,
                // Power fails amid whatever the disk is doing then.
                4..6 => machine.disk.power_off_after(self.below(12)),
                6 => machine.disk.fail_sync_after(self.below(6)),
                7..9 => machine.kill_container(self.any_container(machine)),
                9..11 => machine.replace_owner(self.any_container(machine)),
                11 => self.stop(machine).await,
                12 => machine.clock.jump(i64::try_from(self.below(7_200_000)).unwrap_or(0) - 3_600_000),
                13 => {
                    machine.disk.set_capacity((2 + self.below(6)) << 20);
                    fair_at = Instant::now() + lasts;
                }
                _ => {
                    let weather = self.any_weather();
                    machine.trace.note(format_args!("{weather:?} for {lasts:?}"));
                    machine.objects.set_weather(weather);
                    fair_at = Instant::now() + lasts;
                }
            }
        }
    }

    fn any_container(&self, machine: &Machine) -> u16 {
        u16::try_from(self.below(machine.setup.containers.into())).unwrap_or(0)
    }

    fn any_crash(&self) -> Crash {
        if self.below(2) == 0 { Crash::PowerCut } else { Crash::Kill }
    }

    fn any_weather(&self) -> Weather {
        let fair = fair();
        match self.below(8) {
            0 => Weather { outage: Outage::Refuses, ..fair },
            1 => Weather { outage: Outage::Silent, ..fair },
            2 => Weather { refused_permille: 300, ..fair },
            3 => Weather { reply_lost_permille: 400, ..fair },
            4 => Weather { conflict_permille: 300, ..fair },
            5 => Weather { slow_permille: 200, slow: Duration::from_secs(1 + self.below(40)), ..fair },
            6 => Weather { capacity_bytes: Some(self.below(60_000)), ..fair },
            _ => Weather {
                latency_us: 1_000..900_000,
                refused_permille: 50,
                reply_lost_permille: 50,
                conflict_permille: 50,
                list_lag: Duration::from_secs(self.below(30)),
                ..fair
            },
        }
    }

    async fn stop(&mut self, machine: &mut Machine) {
        machine.stop(PATIENCE).await;
        self.start(machine);
    }

    /// Ends the process, and starts the next one; power may fail again before that has opened its log.
    pub(super) async fn go_on(&self, machine: &mut Machine, crash: Crash) {
        machine.crash(crash);
        // What died must be gone before its successor looks around.
        tokio::time::sleep(Duration::from_millis(self.below(2_000))).await;
        self.start(machine);
    }

    fn start(&self, machine: &mut Machine) {
        machine.disk.set_capacity(u64::MAX);
        for _ in 0..self.below(4).saturating_sub(1) {
            machine.disk.power_off_after(self.below(20));
            if machine.start().is_ok() {
                return;
            }
            machine.crash(Crash::PowerCut);
        }
        if machine.start().is_ok() {
            return;
        }
        // Something was to befall the disk that came true only now.
        machine.crash(Crash::PowerCut);
        if let Err(error) = machine.start() {
            machine.court.accuse(format!("the log does not open: {error}, {error:?}"));
        }
    }
}

/// Makes an end of all that goes wrong.
pub(super) fn relent(machine: &mut Machine) {
    machine.objects.set_weather(fair());
    machine.disk.set_capacity(u64::MAX);
    machine.crash(Crash::PowerCut);
    if let Err(error) = machine.start() {
        machine.court.accuse(format!("the log does not open: {error}, {error:?}"));
    }
}
