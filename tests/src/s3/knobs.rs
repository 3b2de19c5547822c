//! What the server is to do wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use super::call::Kind;

/// Settings of a running server; all zero, it does everything right at once.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// Time before each call is looked at.
    pub latency: Duration,
    /// Time before each 64 KiB of an answer.
    pub slow_body: Duration,
    /// Whether it serves at all.
    pub outage: Outage,
    /// Whether it refuses every key.
    pub deny: bool,
    /// Most entries of a page of a list, if not 1,000.
    pub page: Option<usize>,
    /// Calls to go wrong; the first fault that fits a call is taken.
    pub faults: Vec<Fault>,
}

/// How the server does not serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// It serves.
    #[default]
    None,
    /// It answers everything with 503.
    Errors,
    /// It takes every call and never answers.
    Silence,
}

/// Calls that go wrong.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which calls.
    pub calls: Calls,
    /// Only keys that contain this.
    pub key: String,
    /// How many such calls go right first.
    pub skip: usize,
    /// How many go wrong then.
    pub times: usize,
    /// How.
    pub what: What,
}

/// Which calls a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// All.
    Any,
    /// Those that read an object.
    Reads,
    /// Those that write an object: puts, parts and completions.
    Writes,
    /// Those that delete.
    Deletes,
    /// Lists.
    Lists,
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Nothing is done, and this status is answered.
    Status(u16),
    /// The connection breaks in the middle: of the body that is sent up, and nothing is stored, or of the answer.
    Torn,
    /// It is done, and the connection breaks before the answer.
    Lost,
}

impl Fault {
    /// The next call of this kind goes wrong like this.
    pub fn next(calls: Calls, what: What) -> Self {
        Self::times(1, calls, what)
    }

    /// The next `times` calls of this kind go wrong like this.
    pub fn times(times: usize, calls: Calls, what: What) -> Self {
        Self { calls, key: String::new(), skip: 0, times, what }
    }
}

impl Knobs {
    /// Takes the fault that a call meets, if any.
    pub(super) fn fault(&mut self, kind: Kind, key: &str) -> Option<What> {
        let fits = |fault: &Fault| fault.times > 0 && fault.calls.cover(kind) && key.contains(&fault.key);
        let fault = self.faults.iter_mut().find(|fault| fits(fault))?;
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.times -= 1;
        Some(fault.what)
    }
}

impl Calls {
    fn cover(self, kind: Kind) -> bool {
        match self {
            Self::Any => true,
            Self::Reads => matches!(kind, Kind::Get | Kind::Head),
            Self::Writes => matches!(kind, Kind::Put | Kind::Part | Kind::Complete),
            Self::Deletes => matches!(kind, Kind::Delete | Kind::DeleteMany),
            Self::Lists => kind == Kind::List,
        }
    }
}

/// How often the server was called, by kind of call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    calls: BTreeMap<&'static str, u64>,
}

impl Counts {
    pub(super) fn add(&mut self, kind: Kind) {
        *self.calls.entry(kind.name()).or_default() += 1;
    }

    /// Calls of one kind: `get`, `head`, `put`, `delete`, `delete-many`, `list`, `create`, `part`, `complete`,
    /// `abort`, `make-bucket`, `other`.
    pub fn of(&self, kind: &str) -> u64 {
        self.calls.get(kind).copied().unwrap_or(0)
    }

    /// Calls that a provider charges as writes: `put`, `create`, `part` and `complete`.
    pub fn writes(&self) -> u64 {
        ["put", "create", "part", "complete"].iter().map(|kind| self.of(kind)).sum()
    }
}
