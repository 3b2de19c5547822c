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

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [StreamState; 8] = [
        StreamState::Creating,
        StreamState::Active,
        StreamState::Updating,
        StreamState::Scaling,
        StreamState::Committing,
        StreamState::Truncating,
        StreamState::Sealing,
        StreamState::Sealed,
    ];
    const WORKFLOWS: [Workflow; 7] = [
        Workflow::Create,
        Workflow::Update,
        Workflow::Scale,
        Workflow::Truncate,
        Workflow::Commit,
        Workflow::Seal,
        Workflow::Delete,
    ];

    #[test]
    fn transitions_are_those_of_the_specification() {
        let allowed = |from: StreamState| -> Vec<StreamState> {
            STATES.into_iter().filter(|to| *to != from && from.allows(*to)).collect()
        };
        assert_eq!(allowed(StreamState::Creating), [StreamState::Active]);
        assert_eq!(allowed(StreamState::Active), STATES[2..]);
        for busy in &STATES[2..6] {
            assert_eq!(allowed(*busy), [StreamState::Active]);
        }
        assert_eq!(allowed(StreamState::Sealing), [StreamState::Sealed]);
        assert_eq!(allowed(StreamState::Sealed), []);
    }

    #[test]
    fn workflows_start_only_by_allowed_transitions() {
        for (workflow, state) in WORKFLOWS.into_iter().flat_map(|w| STATES.map(|state| (w, state))) {
            if let Admission::Start(Some(next)) = workflow.admit(state) {
                assert!(state.allows(next), "{workflow:?} {state:?}");
            }
        }
    }

    #[test]
    fn one_workflow_is_at_work_in_each_state() {
        for state in &STATES[2..6] {
            let at_work = |workflow: &Workflow| matches!(workflow.admit(*state), Admission::Start(_));
            let waits = |workflow: &Workflow| workflow.admit(*state) == Admission::Wait;
            assert_eq!(WORKFLOWS.iter().filter(|workflow| at_work(workflow)).count(), 1, "{state:?}");
            assert_eq!(WORKFLOWS.iter().filter(|workflow| waits(workflow)).count(), 4, "{state:?}");
        }
    }

    #[test]
    fn commits_drain_while_a_stream_is_sealed_and_nothing_else_starts() {
        for workflow in [Workflow::Update, Workflow::Scale, Workflow::Truncate] {
            assert_eq!(workflow.admit(StreamState::Sealing), Admission::Refused);
            assert_eq!(workflow.admit(StreamState::Sealed), Admission::Refused);
        }
        assert_eq!(Workflow::Commit.admit(StreamState::Sealing), Admission::Start(None));
        assert_eq!(Workflow::Seal.admit(StreamState::Sealing), Admission::Start(None));
        assert_eq!(Workflow::Seal.admit(StreamState::Sealed), Admission::Done);
    }

    #[test]
    fn deletion_needs_a_sealed_or_half_made_stream() {
        let may = |state: &StreamState| Workflow::Delete.admit(*state) == Admission::Start(None);
        let states: Vec<StreamState> = STATES.into_iter().filter(may).collect();
        assert_eq!(states, [StreamState::Creating, StreamState::Sealed]);
    }
}
