//! The life of a stream and which workflow may start when.
//!
//! The state row with its version is what keeps two workflows from changing one stream at once.

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamState {
    /// Records exist, segments may not.
    Creating,
    /// At rest.
    Active,
    /// Configuration is being replaced.
    Updating,
    /// Segments are being replaced.
    Scaling,
    /// Transactions are being merged.
    Committing,
    /// Data before a cut is being dropped.
    Truncating,
    /// Open transactions are being ended, then the segments sealed.
    Sealing,
    /// Nothing is active any more.
    Sealed,
}

/// Work that changes a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workflow {
    /// Drive a creation to its end.
    Create,
    /// Replace the configuration.
    Update,
    /// Replace segments.
    Scale,
    /// Drop data before a cut.
    Truncate,
    /// Merge transactions.
    Commit,
    /// End the stream.
    Seal,
    /// Remove the stream.
    Delete,
}

/// Whether a workflow may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It starts, or goes on after a crash, with the stream in this state; `None` leaves the state alone.
    Start(Option<StreamState>),
    /// Another workflow is at work; the request waits for its turn.
    Wait,
    /// The stream will never come back to a state in which it could start.
    Refused,
    /// Nothing is left to do.
    Done,
}

impl StreamState {
    /// Whether a stream in this state may go to `next`.
    pub fn allows(self, next: Self) -> bool {
        use StreamState::{Active, Creating, Sealed, Sealing};
        match self {
            _ if self == next => true,
            Active => next != Creating,
            Creating | Self::Scaling | Self::Truncating | Self::Committing | Self::Updating => next == Active,
            Sealing => next == Sealed,
            Sealed => false,
        }
    }

    /// Whether queries about segments are answered; before creation is complete they are not.
    pub fn is_queryable(self) -> bool {
        self != Self::Creating
    }

    /// Whether transactions may begin and scales be asked for.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Creating | Self::Sealing | Self::Sealed)
    }
}

impl Workflow {
    /// Returns the state in which the stream is while the workflow is at work.
    pub fn working_state(self) -> Option<StreamState> {
        match self {
            Self::Create => Some(StreamState::Creating),
            Self::Update => Some(StreamState::Updating),
            Self::Scale => Some(StreamState::Scaling),
            Self::Truncate => Some(StreamState::Truncating),
            Self::Commit => Some(StreamState::Committing),
            Self::Seal => Some(StreamState::Sealing),
            Self::Delete => None,
        }
    }

    /// Decides whether the workflow may start, or go on, in `state`.
    pub fn admit(self, state: StreamState) -> Admission {
        match (self, state) {
            (Self::Create, StreamState::Creating)
            | (Self::Delete, StreamState::Creating | StreamState::Sealed)
            // Commit calls that were answered before the seal are still carried out.
            | (Self::Commit, StreamState::Sealing) => Admission::Start(None),
            (Self::Create, _) | (Self::Seal, StreamState::Sealed) => Admission::Done,
            (Self::Delete, _) | (_, StreamState::Sealed) => Admission::Refused,
            (_, StreamState::Sealing) if self != Self::Seal => Admission::Refused,
            (_, StreamState::Active) => Admission::Start(self.working_state()),
            _ if self.working_state() == Some(state) => Admission::Start(None),
            _ => Admission::Wait,
        }
    }
}
