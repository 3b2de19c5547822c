//! Reader groups as the controller keeps them, and their positions as subscribers of streams.
//!
//! The controller knows a group's configuration, not its readers: those live in the group's own state stream.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::cut::{CutOrder, StreamCut, ValidCut};

/// Rollover size in bytes of a group's state stream unless another is given.
pub const STATE_ROLLOVER_BYTES: i64 = 4 * 1024 * 1024;

/// Id of a reader group, a UUID as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId(pub u128);

/// How a group holds back the truncation of its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupRetention {
    /// Not at all.
    None,
    /// Up to the cut that its application reports.
    Manual,
    /// Up to its last checkpoint.
    Automatic,
}

/// A stream as a group knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamName {
    /// Scope of the stream.
    pub scope: String,
    /// Name within the scope.
    pub stream: String,
}

/// Configuration of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// Milliseconds between two looks of a reader at the group's state.
    pub refresh_ms: i64,
    /// Milliseconds between two automatic checkpoints.
    pub checkpoint_interval_ms: i64,
    /// Most checkpoints under way at once.
    pub checkpoints_max: i32,
    /// How the group holds back truncation.
    pub retention: GroupRetention,
    /// Where reading starts, by stream; an empty cut is the head of the stream.
    pub starting: BTreeMap<StreamName, StreamCut>,
    /// Where reading ends, by stream; an empty cut is no end.
    pub ending: BTreeMap<StreamName, StreamCut>,
    /// Rollover size in bytes of the state stream as it came; 0 leaves it to [`STATE_ROLLOVER_BYTES`].
    pub rollover_bytes: i64,
}

/// State of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupState {
    /// Recorded; its state stream and subscriptions may not be there yet.
    Creating,
    /// At rest.
    Active,
    /// Its subscriptions and state stream are being removed.
    Deleting,
}

/// Row of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRecord {
    /// Id that tells it from earlier groups of the name.
    pub id: GroupId,
    /// Number of updates so far.
    pub generation: i64,
    /// Its state.
    pub state: GroupState,
    /// Its configuration.
    pub config: GroupConfig,
    /// Subscriptions that are still being changed; kept here so that a repetition changes the same ones.
    pub pending: Option<SubscriptionChange>,
}

/// Why a configuration is not acceptable. All of these are invalid arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupConfigError {
    /// The retention type is none of the three.
    #[error("reading reader group retention type {0}")]
    Retention(i32),
    /// No stream is read.
    #[error("configuring a reader group without streams")]
    NoStreams,
    /// The number of checkpoints under way must be positive.
    #[error("configuring a reader group with {0} checkpoints")]
    Checkpoints(i32),
    /// The rollover size is negative.
    #[error("configuring a reader group with a rollover size of {0} bytes")]
    Rollover(i64),
}

/// What a create call leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupCreation {
    /// Write this row and do the work.
    Start(GroupRecord),
    /// A group of the name is being created; drive its creation to its end and answer with it.
    Resume,
    /// A group of the name is there; answer SUCCESS with it.
    Exists,
    /// A group of the name is being deleted; answer FAILURE.
    Deleting,
}

/// What an update call leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupUpdate {
    /// Write this row and change the subscriptions.
    Start(GroupRecord),
    /// Id or generation is another; answer INVALID_CONFIG.
    Mismatch,
    /// The group is busy; answer FAILURE.
    Busy,
}

/// What a delete call leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupDeletion {
    /// Write this row, or find it written, and do the work.
    Start(GroupRecord),
    /// The group of the name has another id; answer RG_NOT_FOUND.
    OtherId,
}

/// Streams to which subscriptions are added and from which they are removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscriptionChange {
    /// Streams that stay or become subscribed: the subscription is written with the group's generation.
    pub subscribe: BTreeSet<StreamName>,
    /// Streams that are no longer subscribed.
    pub unsubscribe: BTreeSet<StreamName>,
}

/// Row of a subscription of one group to one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Id of the group.
    pub id: GroupId,
    /// Generation of the group's configuration.
    pub generation: i64,
    /// The last cut it reported; before the first the cut where it starts, empty if that is the head of the stream.
    pub cut: StreamCut,
}

/// What a subscriber's report leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Write this row and answer SUCCESS.
    Moved(Subscription),
    /// The cut is the one recorded; answer SUCCESS.
    Unchanged,
    /// Another id; answer SUBSCRIBER_NOT_FOUND.
    OtherId,
    /// Another generation; answer GENERATION_MISMATCH.
    OtherGeneration,
    /// Behind the one recorded; answer STREAM_CUT_NOT_VALID.
    Behind(CutOrder),
}

impl GroupRetention {
    /// Reads the type from its number on the wire.
    ///
    /// # Errors
    /// [`GroupConfigError::Retention`] if it is none of the three.
    pub const fn from_raw(raw: i32) -> Result<Self, GroupConfigError> {
        match raw {
            0 => Ok(Self::None),
            1 => Ok(Self::Manual),
            2 => Ok(Self::Automatic),
            other => Err(GroupConfigError::Retention(other)),
        }
    }

    /// Returns the number of the type on the wire.
    pub const fn raw(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Manual => 1,
            Self::Automatic => 2,
        }
    }
}

impl GroupConfig {
    /// Checks the fields that have limits.
    ///
    /// # Errors
    /// [`GroupConfigError`] naming the first that is not acceptable.
    pub fn check(&self) -> Result<(), GroupConfigError> {
        if self.starting.is_empty() {
            return Err(GroupConfigError::NoStreams);
        }
        if self.checkpoints_max <= 0 {
            return Err(GroupConfigError::Checkpoints(self.checkpoints_max));
        }
        if self.rollover_bytes < 0 {
            return Err(GroupConfigError::Rollover(self.rollover_bytes));
        }
        Ok(())
    }

    /// Returns the streams to which the group subscribes.
    pub fn subscribed(&self) -> BTreeSet<StreamName> {
        match self.retention {
            GroupRetention::None => BTreeSet::new(),
            GroupRetention::Manual | GroupRetention::Automatic => self.starting.keys().cloned().collect(),
        }
    }
}

impl GroupRecord {
    /// Decides a create call, `existing` being the row of the name.
    ///
    /// `fresh` is the id to take if the caller leaves the choice to the server by an id of zero.
    pub fn create(
        existing: Option<&Self>,
        config: GroupConfig,
        asked: GroupId,
        fresh: GroupId,
    ) -> GroupCreation {
        match existing.map(|record| record.state) {
            Some(GroupState::Creating) => GroupCreation::Resume,
            Some(GroupState::Active) => GroupCreation::Exists,
            Some(GroupState::Deleting) => GroupCreation::Deleting,
            None => {
                let id = if asked == GroupId::default() { fresh } else { asked };
                let change =
                    SubscriptionChange { subscribe: config.subscribed(), ..SubscriptionChange::default() };
                let state = GroupState::Creating;
                GroupCreation::Start(Self { id, generation: 0, state, config, pending: Some(change) })
            }
        }
    }

    /// Decides an update call.
    pub fn update(&self, id: GroupId, generation: i64, config: GroupConfig) -> GroupUpdate {
        if id != self.id || generation != self.generation {
            return GroupUpdate::Mismatch;
        }
        if self.state != GroupState::Active || self.pending.is_some() {
            return GroupUpdate::Busy;
        }
        let subscribe = config.subscribed();
        let unsubscribe = self.config.subscribed().difference(&subscribe).cloned().collect();
        let pending = Some(SubscriptionChange { subscribe, unsubscribe });
        let generation = self.generation + 1;
        GroupUpdate::Start(Self { id, generation, state: self.state, config, pending })
    }

    /// Decides a delete call; the generation does not matter.
    ///
    /// An update that was under way is overtaken: what it was about to remove is removed as well.
    pub fn delete(&self, id: GroupId) -> GroupDeletion {
        if id != self.id {
            return GroupDeletion::OtherId;
        }
        let mut unsubscribe = self.config.subscribed();
        unsubscribe.extend(self.pending.iter().flat_map(|change| change.unsubscribe.iter().cloned()));
        let pending = Some(SubscriptionChange { unsubscribe, ..SubscriptionChange::default() });
        GroupDeletion::Start(Self { state: GroupState::Deleting, pending, ..self.clone() })
    }

    /// Returns the row once creation or update is done.
    #[must_use]
    pub fn settled(&self) -> Self {
        Self { state: GroupState::Active, pending: None, ..self.clone() }
    }

    /// Returns the subscription of the group to one of its streams, `previous` being the row that is there.
    ///
    /// A subscriber stands where its configuration starts, so that retention waits for it before it first reports.
    /// That holds after each update, because an update sets the readers back to the start. A row of this very
    /// generation is kept: it may have reported since.
    pub fn subscription(&self, stream: &StreamName, previous: Option<&Subscription>) -> Subscription {
        let same = |row: &&Subscription| row.id == self.id && row.generation == self.generation;
        previous.filter(same).cloned().unwrap_or_else(|| Subscription {
            id: self.id,
            generation: self.generation,
            cut: self.config.starting.get(stream).cloned().unwrap_or_default(),
        })
    }
}

impl Subscription {
    /// Decides a subscriber's report of `cut`; `previous` is the recorded cut, checked, unless that is empty.
    pub fn report(
        &self,
        id: GroupId,
        generation: i64,
        cut: &ValidCut,
        previous: Option<&ValidCut>,
    ) -> Report {
        if id != self.id {
            return Report::OtherId;
        }
        if generation != self.generation {
            return Report::OtherGeneration;
        }
        match previous.map_or(CutOrder::EqualOrAfter, |previous| cut.compare(previous)) {
            CutOrder::EqualOrAfter if cut.to_cut() == self.cut => Report::Unchanged,
            CutOrder::EqualOrAfter => Report::Moved(Self { cut: cut.to_cut(), ..self.clone() }),
            order => Report::Behind(order),
        }
    }
}
