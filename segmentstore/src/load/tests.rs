use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Tells the same by walking through all ticks, one after the other.
#[derive(Clone, Default)]
struct Direct {
    created: i64,
    /// What came, by tick from the creation on.
    came: Vec<f64>,
}

impl Direct {
    fn slot(&mut self, tick: i64) -> &mut f64 {
        let at = usize::try_from((tick - self.created).max(0)).unwrap();
        if self.came.len() <= at {
            self.came.resize(at + 1, 0.0);
        }
        &mut self.came[at]
    }

    fn note(&mut self, since_ms: i64, amount: f64, now_ms: i64) {
        let ticks = tick_of(since_ms).max(self.created)..=tick_of(now_ms);
        let share = amount / f64::from(u32::try_from(ticks.clone().count()).unwrap());
        ticks.for_each(|tick| *self.slot(tick) += share);
    }

    /// The weighted mean of the rates of all ticks that ended.
    fn rates(&mut self, now_ms: i64) -> Rates {
        self.slot(tick_of(now_ms));
        let ended = &self.came[..self.came.len() - 1];
        WINDOWS_S.map(|window| {
            let (mut sum, mut weights, mut weight) = (0.0, 0.0, 1.0);
            for came in ended.iter().rev() {
                sum += weight * came / 5.0;
                weights += weight;
                weight *= f64::exp(-5.0 / window);
            }
            if weights > 0.0 { sum / weights } else { 0.0 }
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Note { amount: f64 },
    NoteSince { back_ms: i64, amount: f64 },
    Pass { ms: i64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0.0..1e6).prop_map(|amount| Step::Note { amount }),
        (0..2_000_000_i64, 0.0..1e6).prop_map(|(back_ms, amount)| Step::NoteSince { back_ms, amount }),
        (0..20_000_i64).prop_map(|ms| Step::Pass { ms }),
        (0..3_000_000_i64).prop_map(|ms| Step::Pass { ms }),
    ]
}

fn assert_close(got: Rates, want: Rates) -> Result<(), TestCaseError> {
    for (got, want) in got.into_iter().zip(want) {
        prop_assert!((got - want).abs() <= 1e-9 * want.max(1e-3), "{got} is not {want}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn meter_agrees_with_a_walk_through_all_ticks(created_ms in -20_000_i64..20_000, steps in vec(any_step(), 0..60)) {
        let (mut meter, mut direct) = (Meter::new(created_ms), Direct { created: tick_of(created_ms), came: Vec::new() });
        let mut now_ms = created_ms;
        for step in steps {
            match step {
                Step::Note { amount } => {
                    meter.note(now_ms, amount, now_ms);
                    *direct.slot(tick_of(now_ms)) += amount;
                }
                Step::NoteSince { back_ms, amount } => {
                    meter.note(now_ms - back_ms, amount, now_ms);
                    direct.note(now_ms - back_ms, amount, now_ms);
                }
                Step::Pass { ms } => now_ms += ms,
            }
            assert_close(meter.rates(now_ms), direct.rates(now_ms))?;
        }
    }

    #[test]
    fn seeded_meter_goes_on_like_one_that_saw_an_even_flow(
        lived in 0..2_000_i64, idle_ms in 0..3_000_000_i64, amount in 0.0..1e9,
    ) {
        let changed_ms = lived * TICK_MS;
        let mut saw = Meter::new(0);
        let share = amount / f64::from(u32::try_from(lived + 1).unwrap());
        (0..=lived).for_each(|tick| saw.note(tick * TICK_MS, share, tick * TICK_MS));
        let seeded = Meter::seeded(0, amount, changed_ms);
        assert_close(seeded.rates(changed_ms + idle_ms), saw.rates(changed_ms + idle_ms))?;
    }

    #[test]
    fn no_clock_makes_a_rate_negative_or_more_than_came(times in vec(any::<i64>(), 1..40)) {
        let mut meter = Meter::new(times[0]);
        let mut came = 0.0;
        for now_ms in times {
            meter.note(now_ms, 1.0, now_ms);
            meter.note(now_ms.saturating_sub(7_000), 1.0, now_ms);
            came += 2.0;
            for rate in meter.rates(now_ms) {
                prop_assert!((0.0..=came).contains(&rate), "{rate} of {came}");
            }
        }
    }
}

#[test]
fn steady_flow_shows_as_itself_from_the_first_tick_on() {
    let mut meter = Meter::new(0);
    assert!(meter.rates(0).iter().all(|rate| *rate < f64::MIN_POSITIVE), "no tick has ended");
    for second in 0..3_600 {
        meter.note(second * 1_000, 7.0, second * 1_000);
        if second >= 5 {
            for rate in meter.rates(second * 1_000) {
                assert!((rate - 7.0).abs() < 1e-9, "{rate} after {second} s");
            }
        }
    }
}

#[test]
fn silence_halves_a_rate_in_its_window_times_ln_2() {
    let mut meter = Meter::new(0);
    (0..7_200).for_each(|second| meter.note(second * 1_000, 100.0, second * 1_000));
    // 415 s lie nearest to 10 minutes times ln 2; the segment is old, so its own age weighs nothing.
    let rate = meter.rates(7_200_000 + 415_000)[3];
    assert!((rate - 50.0).abs() < 0.2, "{rate}");
    assert!(meter.rates(7_200_000 + 120_000)[0] < 1e-3, "the fast one forgets at once");
}

#[test]
fn clock_that_goes_back_stops_nothing() {
    let mut meter = Meter::new(0);
    meter.note(1_000_000_000, 50.0, 1_000_000_000);
    (0..100).for_each(|second| meter.note(second * 1_000, 10.0, second * 1_000));
    assert!((meter.rates(100_000)[0] - 10.0).abs() < 0.1);
}

#[test]
fn only_policies_by_rate_have_a_unit() {
    assert_eq!([0, 1, 2, 3, -1].map(Unit::of), [None, Some(Unit::Kib), Some(Unit::Event), None, None]);
    assert_eq!((Unit::Kib.amount(3, 2_560), Unit::Event.amount(3, 2_560)), (2.5, 3.0));
}
