//! Exponentially weighted rates of one segment.
//!
//! Time passes in ticks. At the end of each, an average moves towards the rate of that tick by `1 − e^(−tick/window)`;
//! ticks without traffic are made up for in one step when somebody looks. An average that starts at 0 is too low until
//! it has seen its window, so it is divided by the weight of the ticks that the segment has lived through: a young
//! segment shows the mean of its life.

/// Length of a tick.
pub const TICK_MS: i64 = 5_000;
/// Windows of the averages, seconds: a fast one, then 2, 5, 10 and 20 minutes.
pub const WINDOWS_S: [f64; 5] = [10.0, 120.0, 300.0, 600.0, 1200.0];

/// Averages by [`WINDOWS_S`], in the meter's unit per second.
pub type Rates = [f64; WINDOWS_S.len()];

const TICK_S: f64 = 5.0;

/// Follows the traffic of one segment.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// The tick that is not over yet.
    tick: i64,
    /// Ticks that ended since the segment was created.
    ended: i64,
    /// What came in this tick.
    pending: f64,
    /// Averages over the ticks that ended, as if nothing had come before the segment was created.
    averages: Rates,
}

/// The number of the tick at a wall time, ms since 1970.
pub fn tick_of(wall_ms: i64) -> i64 {
    wall_ms.div_euclid(TICK_MS)
}

/// What is left of an average after so many ticks without traffic.
fn kept(ticks: i64, window_s: f64) -> f64 {
    (-count(ticks) * TICK_S / window_s).exp()
}

/// The weight of the last so many ticks in an average; 1 less the above, without its loss of digits near 0.
fn weight(ticks: i64, window_s: f64) -> f64 {
    -(-count(ticks) * TICK_S / window_s).exp_m1()
}

/// After 2^32 ticks, 680 years, nothing is left of any average.
fn count(ticks: i64) -> f64 {
    u32::try_from(ticks.max(0)).unwrap_or(u32::MAX).into()
}

impl Meter {
    /// Begins with a segment created at this wall time, ms since 1970.
    pub fn new(created_ms: i64) -> Self {
        Self { tick: tick_of(created_ms), ended: 0, pending: 0.0, averages: Rates::default() }
    }

    /// Goes on with a segment of which is only known how much came between its creation and its last change: takes it as
    /// spread evenly over that time.
    pub fn seeded(created_ms: i64, amount: f64, changed_ms: i64) -> Self {
        let mut meter = Self::new(created_ms);
        meter.note(created_ms, amount, changed_ms);
        meter
    }

    /// Counts what comes now and was written from `since_ms` on, spread evenly over the ticks from then to now: for the
    /// whole of a transaction that is its life, for everything else no time at all. No tick lies before the segment's
    /// creation.
    pub fn note(&mut self, since_ms: i64, amount: f64, now_ms: i64) {
        self.pass(tick_of(now_ms));
        let ended = self.tick.saturating_sub(tick_of(since_ms)).clamp(0, self.ended);
        if ended == 0 {
            self.pending += amount;
            return;
        }
        let share = amount / (count(ended) + 1.0);
        self.pending += share;
        for (average, window) in self.averages.iter_mut().zip(WINDOWS_S) {
            *average += share / TICK_S * weight(ended, window);
        }
    }

    /// The averages as of now, over the ticks that ended; 0 in a segment's first tick.
    pub fn rates(&self, now_ms: i64) -> Rates {
        let mut then = *self;
        then.pass(tick_of(now_ms));
        for (average, window) in then.averages.iter_mut().zip(WINDOWS_S) {
            let lived = weight(then.ended, window);
            *average = if lived > 0.0 { *average / lived } else { 0.0 };
        }
        then.averages
    }

    /// Ends ticks up to this one. A clock that goes back ends none, and counting goes on from there.
    fn pass(&mut self, tick: i64) {
        let passed = tick.saturating_sub(self.tick);
        self.tick = tick;
        if passed <= 0 {
            return;
        }
        self.ended = self.ended.saturating_add(passed);
        let rate = std::mem::take(&mut self.pending) / TICK_S;
        for (average, window) in self.averages.iter_mut().zip(WINDOWS_S) {
            *average += (rate - *average) * weight(1, window);
            *average *= kept(passed - 1, window);
        }
    }
}
