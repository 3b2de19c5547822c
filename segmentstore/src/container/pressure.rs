//! What the container is short of, and who waits for it: pure.
//!
//! What adds to something that is short waits in line, then is refused; what frees space, or adds to something else,
//! goes on. A line keeps the order of those that depend on each other: appends and what opens or ends their sessions,
//! and calls that change the same tables and attributes.

use crate::operation::{ConnectionId, Operation, Request, SegmentKind};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// How long operations wait for what is short before they are refused.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is held in line at most, operations and their bytes.
pub(super) const LINE_MAX: usize = 65_536;
const LINE_BYTES_MAX: usize = 64 << 20;

/// How much a container keeps in memory of what long-term storage has not taken yet.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// Places of data that lies in the log only, each some 100 bytes; from here on appends wait.
    pub places_max: u64,
    /// Rows that no flush has written; from here on what adds rows waits, and from twice as many bytes on everything,
    /// since even known writers, one row each, can be that many.
    pub overlay_bytes_max: usize,
}

impl Default for MemoryLimits {
    /// 2 Mi places, 128 MiB of rows.
    fn default() -> Self {
        Self { places_max: 2 << 20, overlay_bytes_max: 128 << 20 }
    }
}

/// What an operation adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Adds {
    /// Bytes to the log, beyond what is reserved for those that free space.
    log: bool,
    /// Places of a segment's bytes.
    places: bool,
    /// Rows to the index.
    rows: bool,
}

impl Adds {
    const NOTHING: Self = Self { log: false, places: false, rows: false };
    pub(super) const APPEND: Self = Self { log: true, places: true, rows: false };
    /// A writer that the segment has not heard of.
    pub(super) const WRITER: Self = Self { rows: true, ..Self::NOTHING };

    pub(super) fn of(request: &Request) -> Self {
        match request {
            Request::Create { .. } | Request::TableUpdate { .. } | Request::UpdateAttribute { .. } => {
                Self { log: true, rows: true, ..Self::NOTHING }
            }
            // What is removed leaves a row that says so until the next flush.
            Request::TableRemove { .. } => Self { rows: true, ..Self::NOTHING },
            _ => Self::NOTHING,
        }
    }
}

/// Whose order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Sessions,
    Calls,
}

impl Lane {
    fn of(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::Append(_)
            | Operation::EndSession(_)
            | Operation::Call(Request::SetupAppend { .. }, _) => Some(Self::Sessions),
            Operation::Call(request, _) if Adds::of(request) != Adds::NOTHING => Some(Self::Calls),
            Operation::Call(..) | Operation::Disconnected(_) | Operation::FlushToStorage(_) => None,
        }
    }
}

/// How much there is of what may become short.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stock {
    /// The log takes no more.
    pub(super) log_is_full: bool,
    pub(super) places: u64,
    pub(super) overlay_bytes: usize,
}

/// Those of a lane who wait, and since when.
type Line = VecDeque<(Instant, Operation)>;

/// What is short, since when, and who waits for it.
#[derive(Debug)]
pub(super) struct Pressure {
    limits: MemoryLimits,
    log: Option<Instant>,
    places: Option<Instant>,
    rows: Option<Instant>,
    /// Not even those may be admitted that add little.
    overlay_is_at_its_end: bool,
    sessions: Line,
    calls: Line,
    /// Of all in line.
    bytes: usize,
}

impl Pressure {
    pub(super) fn new(limits: MemoryLimits) -> Self {
        let (sessions, calls) = (VecDeque::new(), VecDeque::new());
        let (log, places, rows) = (None, None, None);
        Self { limits, log, places, rows, overlay_is_at_its_end: false, sessions, calls, bytes: 0 }
    }

    /// Takes note of what there is.
    pub(super) fn look(&mut self, stock: Stock, now: Instant) {
        let MemoryLimits { places_max, overlay_bytes_max } = self.limits;
        let note = |since: &mut Option<Instant>, short: bool| *since = short.then(|| since.unwrap_or(now));
        note(&mut self.log, stock.log_is_full);
        note(&mut self.places, stock.places >= places_max);
        note(&mut self.rows, stock.overlay_bytes >= overlay_bytes_max);
        self.overlay_is_at_its_end = stock.overlay_bytes >= overlay_bytes_max.saturating_mul(2);
    }

    /// Whether anything is short.
    pub(super) fn is_on(&self) -> bool {
        self.log.is_some() || self.places.is_some() || self.rows.is_some()
    }

    /// Whether objects should be made early, so that there are fewer places.
    pub(super) fn wants_tiering(&self, places: u64) -> bool {
        places > self.limits.places_max / 2
    }

    /// Whether an operation that adds `adds` has to be refused if it is judged now.
    pub(super) fn refuses(&self, adds: Adds) -> bool {
        self.short_of(adds).next().is_some()
    }

    /// Whether more operations may be taken at all.
    pub(super) fn may_take(&self) -> bool {
        !self.overlay_is_at_its_end
            && self.sessions.len() + self.calls.len() < LINE_MAX
            && self.bytes < LINE_BYTES_MAX
    }

    /// Whether some in line are to be judged: what they wait for is there again, or they have waited long enough.
    pub(super) fn has_due(&self, now: Instant) -> bool {
        [&self.sessions, &self.calls].iter().any(|line| self.is_due(line, now))
    }

    /// Takes the next that is due.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<Operation> {
        let line = match (self.is_due(&self.sessions, now), self.is_due(&self.calls, now)) {
            (true, _) => &mut self.sessions,
            (false, true) => &mut self.calls,
            (false, false) => return None,
        };
        let (_since, operation) = line.pop_front()?;
        self.bytes -= bytes(&operation);
        Some(operation)
    }

    /// Takes what waits of a connection that has ended, so that its end need not wait and nothing is made for it later.
    pub(super) fn leave(&mut self, connection: ConnectionId) -> Vec<Operation> {
        let mut gone = Vec::new();
        for line in [&mut self.sessions, &mut self.calls] {
            for (since, operation) in std::mem::take(line) {
                if ends_with(&operation, connection) {
                    self.bytes -= bytes(&operation);
                    gone.push(operation);
                } else {
                    line.push_back((since, operation));
                }
            }
        }
        gone
    }

    /// Takes all.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Operation> + use<> {
        self.bytes = 0;
        let (sessions, calls) = (std::mem::take(&mut self.sessions), std::mem::take(&mut self.calls));
        sessions.into_iter().chain(calls).map(|(_since, operation)| operation)
    }

    /// Puts an operation in line if it has to wait; else gives it back.
    pub(super) fn hold(&mut self, operation: Operation, now: Instant) -> Option<Operation> {
        let waits = self.waits(adds(&operation), now, now);
        let line = match Lane::of(&operation) {
            Some(Lane::Sessions) => &mut self.sessions,
            Some(Lane::Calls) => &mut self.calls,
            None => return Some(operation),
        };
        if line.is_empty() && !waits {
            return Some(operation);
        }
        self.bytes += bytes(&operation);
        line.push_back((now, operation));
        None
    }

    fn is_due(&self, line: &Line, now: Instant) -> bool {
        line.front().is_some_and(|(since, first)| !self.waits(adds(first), *since, now))
    }

    fn short_of(&self, adds: Adds) -> impl Iterator<Item = Instant> + use<> {
        [(adds.log, self.log), (adds.places, self.places), (adds.rows, self.rows)]
            .into_iter()
            .filter_map(|(adds, since)| since.filter(|_since| adds))
    }

    /// Whether something that it adds to is short, or nothing may be admitted, and neither that shortage nor its own
    /// waiting has lasted too long. That it counts both keeps a shortage that comes and goes from making anybody wait for ever.
    fn waits(&self, adds: Adds, since: Instant, now: Instant) -> bool {
        let lately = |since: Instant| now.duration_since(since) < PATIENCE;
        let missing = self.overlay_is_at_its_end || self.refuses(adds);
        missing && lately(since) && self.short_of(adds).all(lately)
    }
}

fn adds(operation: &Operation) -> Adds {
    match operation {
        Operation::Append(_) => Adds::APPEND,
        Operation::Call(request, _) => Adds::of(request),
        Operation::EndSession(_) | Operation::Disconnected(_) | Operation::FlushToStorage(_) => Adds::NOTHING,
    }
}

/// Whether an operation is of no use, or does harm, once this connection has ended.
fn ends_with(operation: &Operation, connection: ConnectionId) -> bool {
    match operation {
        Operation::Append(append) => append.tag.session.connection == connection,
        Operation::EndSession(session) | Operation::Call(Request::SetupAppend { session, .. }, _) => {
            session.connection == connection
        }
        Operation::Call(Request::Create { kind: SegmentKind::Transient { connection: of, .. }, .. }, _) => {
            ConnectionId(*of) == connection
        }
        Operation::Call(..) | Operation::Disconnected(_) | Operation::FlushToStorage(_) => false,
    }
}

fn bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Append(append) => append.data.len(),
        Operation::Call(Request::TableUpdate { puts, .. }, _) => {
            puts.iter().map(|put| put.key.len() + put.value.len()).sum()
        }
        Operation::Call(Request::TableRemove { keys, .. }, _) => keys.iter().map(|(key, _)| key.len()).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Answer, Append, AppendReply, AppendTag, Refusal, SessionId};
    use bytes::Bytes;
    use dhara_wire::codec::Uuid;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::sync::Arc;

    struct Nobody;

    impl AppendReply for Nobody {
        fn appended(&self, _: &AppendTag, _: Result<Answer, Refusal>) {}
    }

    /// Which kind an operation is of, and what it is known by here.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Append,
        End,
        Put,
        Remove,
        Seal,
    }

    fn operation(kind: Kind, number: u32) -> Operation {
        let session = SessionId { connection: ConnectionId(0), number };
        let (name, expected_length) = (number.to_string(), None);
        let call = |request| Operation::Call(request, Box::new(drop));
        match kind {
            Kind::End => Operation::EndSession(session),
            Kind::Put => call(Request::TableUpdate { name, puts: Vec::new(), expected_length }),
            Kind::Remove => call(Request::TableRemove { name, keys: Vec::new(), expected_length }),
            Kind::Seal => call(Request::Seal { name }),
            Kind::Append => {
                let (writer, segment, number) = (Uuid(0), Arc::from("s"), 0);
                Operation::Append(Append {
                    tag: AppendTag { session, writer, segment, number, request_id: 0 },
                    data: Bytes::from_static(b"data"),
                    events: 1,
                    expected_offset: None,
                    reply: Arc::new(Nobody),
                    permit: None,
                })
            }
        }
    }

    fn number_of(operation: &Operation) -> u32 {
        match operation {
            Operation::Append(append) => append.tag.session.number,
            Operation::EndSession(session) => session.number,
            Operation::Call(request, _) => request.names()[0].parse().unwrap(),
            other => panic!("{other:?} is of no kind"),
        }
    }

    /// What happens next, after some time.
    #[derive(Clone, Debug)]
    enum Step {
        Comes(Kind),
        Stock { log_is_full: bool, places: u64, overlay_bytes: usize },
    }

    fn any_step() -> impl Strategy<Value = (Step, u64)> {
        let kinds = prop_oneof![
            Just(Kind::Append),
            Just(Kind::End),
            Just(Kind::Put),
            Just(Kind::Remove),
            Just(Kind::Seal)
        ];
        let stock = (any::<bool>(), 0_u64..20, 0_usize..250);
        let step = prop_oneof![
            4 => kinds.prop_map(Step::Comes),
            1 => stock.prop_map(|(log_is_full, places, overlay_bytes)| {
                Step::Stock { log_is_full, places, overlay_bytes }
            }),
        ];
        (step, prop_oneof![9 => 0_u64..500, 1 => 0_u64..40_000])
    }

    proptest! {
        #[test]
        fn lanes_keep_their_order_and_nobody_waits_longer_than_patience(steps in vec(any_step(), 1..200)) {
            let mut pressure = Pressure::new(MemoryLimits { places_max: 10, overlay_bytes_max: 100 });
            let mut now = Instant::now();
            let mut came: Vec<(Kind, Instant)> = Vec::new();
            let mut judged: Vec<u32> = Vec::new();
            for (step, millis) in steps {
                // The container looks after its line four times a second.
                let end = now + Duration::from_millis(millis);
                while now < end {
                    now = end.min(now + Duration::from_millis(250));
                    while let Some(due) = pressure.next_due(now) {
                        judged.push(number_of(&due));
                    }
                    prop_assert!(!pressure.has_due(now));
                }
                match step {
                    Step::Stock { log_is_full, places, overlay_bytes } => {
                        pressure.look(Stock { log_is_full, places, overlay_bytes }, now);
                    }
                    Step::Comes(kind) => {
                        let number = u32::try_from(came.len()).unwrap();
                        came.push((kind, now));
                        let held = pressure.hold(operation(kind, number), now);
                        prop_assert!(kind != Kind::Seal || held.is_some(), "it adds nothing");
                        judged.extend(held.as_ref().map(number_of));
                    }
                }
                for (number, (kind, since)) in (0..).zip(&came) {
                    let waits = !judged.contains(&number);
                    prop_assert!(!waits || now - *since < PATIENCE + Duration::from_millis(250), "{kind:?}");
                }
            }
            pressure.look(Stock { log_is_full: false, places: 0, overlay_bytes: 0 }, now);
            prop_assert!(!pressure.is_on());
            judged.extend(std::iter::from_fn(|| pressure.next_due(now)).map(|due| number_of(&due)));
            prop_assert!(pressure.take_all().next().is_none());
            prop_assert_eq!(pressure.bytes, 0);
            for lane in [[Kind::Append, Kind::End], [Kind::Put, Kind::Remove]] {
                let of_lane = |number: &u32| lane.contains(&came[*number as usize].0);
                let judged: Vec<u32> = judged.iter().copied().filter(of_lane).collect();
                prop_assert!(judged.is_sorted(), "{lane:?}: {judged:?}");
            }
            judged.sort_unstable();
            prop_assert!(judged.into_iter().eq(0..u32::try_from(came.len()).unwrap()), "each once");
        }
    }

    #[test]
    fn a_full_line_takes_no_more() {
        let mut pressure = Pressure::new(MemoryLimits::default());
        let now = Instant::now();
        pressure.look(Stock { log_is_full: true, places: 0, overlay_bytes: 0 }, now);
        for number in 0..u32::try_from(LINE_MAX).unwrap() {
            assert!(pressure.may_take());
            assert!(pressure.hold(operation(Kind::Append, number), now).is_none());
        }
        assert!(!pressure.may_take());
        assert!(!pressure.has_due(now + PATIENCE - Duration::from_millis(1)));
        for number in 0..u32::try_from(LINE_MAX).unwrap() {
            assert_eq!(pressure.next_due(now + PATIENCE).as_ref().map(number_of), Some(number));
        }
        assert!(pressure.may_take() && pressure.refuses(Adds::APPEND));
    }
}
