//! Reader groups, and their positions as subscribers of streams.

use tokio::time::sleep;

use super::{CONFLICT_PAUSE, Outcome, Service, ServiceError, check_present};
use crate::record::name::Kind;
use crate::segment_client::Expect;
use crate::store::{StoreError, Versioned, WorkItem};
use crate::stream::StreamCut;
use crate::stream::group::{
    GroupConfig, GroupCreation, GroupDeletion, GroupId, GroupRecord, GroupState, GroupUpdate, Report,
};
use crate::stream::name::{is_stored_name, is_user_name};

/// Outcome of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupCreated {
    /// There is a group of the name, new or not.
    Exists(Box<GroupRecord>),
    /// There is no such scope.
    ScopeNotFound,
    /// The name is against the rules.
    InvalidName,
    /// It could not be done.
    Failed,
}

/// Outcome of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupUpdated {
    /// Done; the group has this generation now.
    Done(i64),
    /// There is no such group.
    NotFound,
    /// Id or generation is another.
    Mismatch,
    /// It is busy.
    Failed,
}

/// Outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupDeleted {
    /// Deleted.
    Done,
    /// There is no such group, or it has another id.
    NotFound,
    /// It could not be done; trying again may help.
    Failed,
}

/// Outcome of a subscriber's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    /// Recorded.
    Done,
    /// There is no such stream.
    StreamNotFound,
    /// There is no such subscriber, or it has another id.
    SubscriberNotFound,
    /// The cut makes no sense or is behind the last one.
    InvalidCut,
    /// The group has another generation.
    GenerationMismatch,
}

/// A subscriber's report as it came.
#[derive(Debug, Clone)]
pub(crate) struct SubscriberReport {
    /// Name of the subscriber.
    pub(crate) subscriber: String,
    /// Id of its group.
    pub(crate) id: GroupId,
    /// Generation of the group that it knows.
    pub(crate) generation: i64,
    /// Where it is.
    pub(crate) cut: StreamCut,
}

fn group_item(scope: &str, group: &str) -> WorkItem {
    WorkItem { kind: Kind::Group, scope: scope.to_owned(), name: group.to_owned() }
}

fn checked(config: Result<GroupConfig, ServiceError>) -> Outcome<GroupConfig> {
    let config = config?;
    config.check().map_err(|error| ServiceError::Invalid(error.to_string()))?;
    Ok(config)
}

impl Service {
    /// Creates a group with its state stream and subscriptions, or finds one of the name.
    pub(crate) async fn create_group(
        &self,
        (scope, group): (&str, &str),
        id: Result<GroupId, ServiceError>,
        config: Result<GroupConfig, ServiceError>,
    ) -> Outcome<GroupCreated> {
        check_present("scope", scope)?;
        if !is_user_name(group) {
            return Ok(GroupCreated::InvalidName);
        }
        let (id, config) = (id?, checked(config)?);
        if !is_stored_name(scope) || !self.is_scope_open(scope).await? {
            return Ok(GroupCreated::ScopeNotFound);
        }
        loop {
            match self.try_create_group((scope, group), id, &config).await {
                // Somebody else was faster; what they wrote decides.
                Err(ServiceError::Store(error)) if error.is_conflict() => sleep(CONFLICT_PAUSE).await,
                other => return other,
            }
        }
    }

    async fn try_create_group(
        &self,
        (scope, group): (&str, &str),
        id: GroupId,
        config: &GroupConfig,
    ) -> Outcome<GroupCreated> {
        for stream in config.subscribed() {
            match self.open(&stream.scope, &stream.stream).await {
                Ok(_) => {}
                Err(ServiceError::NotFound(_)) => return Ok(GroupCreated::Failed),
                Err(error) => return Err(error),
            }
        }
        let (item, key) = (group_item(scope, group), (Kind::Group, group));
        let found = self.find_group(scope, group).await?;
        let fresh = GroupId(self.store.fresh_id());
        match GroupRecord::create(found.as_ref().map(|found| &found.row), config.clone(), id, fresh) {
            GroupCreation::Deleting => return Ok(GroupCreated::Failed),
            GroupCreation::Exists | GroupCreation::Resume => {}
            GroupCreation::Start(record) => {
                self.store.work().announce(&item).await?;
                match self.store.write_in_scope(scope, key, record, Expect::Absent).await {
                    Err(error) if error.is_missing() => return Ok(GroupCreated::ScopeNotFound),
                    Err(error) => return Err(error.into()),
                    Ok(written) if !self.is_scope_open(scope).await? => {
                        self.store.remove_in_scope(scope, key, written.unchanged()).await?;
                        return Ok(GroupCreated::ScopeNotFound);
                    }
                    Ok(_) => {}
                }
            }
        }
        if !found.is_some_and(|found| found.row.state == GroupState::Active) {
            self.turn(&item).await?;
        }
        Ok(match self.find_group(scope, group).await? {
            Some(found) if found.row.state == GroupState::Active => GroupCreated::Exists(Box::new(found.row)),
            _ => GroupCreated::Failed,
        })
    }

    async fn find_group(&self, scope: &str, group: &str) -> Outcome<Option<Versioned<GroupRecord>>> {
        Ok(self.store.find_in_scope(scope, Kind::Group, group).await?)
    }

    /// A group that is there; `None` if there is none in the scope, an error if there is no such scope.
    pub(crate) async fn group(&self, scope: &str, group: &str) -> Outcome<Option<GroupRecord>> {
        check_present("scope", scope)?;
        check_present("reader group", group)?;
        if !is_stored_name(scope) {
            return Err(ServiceError::NotFound("scope"));
        }
        if !is_user_name(group) {
            return Ok(None);
        }
        let found = self.find_group(scope, group).await?;
        Ok(found.map(|found| found.row).filter(|row| row.state == GroupState::Active))
    }

    /// Replaces the configuration of a group.
    pub(crate) async fn update_group(
        &self,
        (scope, group): (&str, &str),
        (id, generation): (Result<GroupId, ServiceError>, i64),
        config: Result<GroupConfig, ServiceError>,
    ) -> Outcome<GroupUpdated> {
        if self.group(scope, group).await?.is_none() {
            return Ok(GroupUpdated::NotFound);
        }
        let (id, config) = (id?, checked(config)?);
        let Some(found) = self.find_group(scope, group).await? else { return Ok(GroupUpdated::NotFound) };
        let record = match found.row.update(id, generation, config) {
            GroupUpdate::Start(record) => record,
            GroupUpdate::Mismatch => return Ok(GroupUpdated::Mismatch),
            GroupUpdate::Busy => return Ok(GroupUpdated::Failed),
        };
        let (item, next) = (group_item(scope, group), record.generation);
        self.store.work().announce(&item).await?;
        match self.store.write_in_scope(scope, (Kind::Group, group), record, found.unchanged()).await {
            Err(error) if error.is_conflict() => return Ok(GroupUpdated::Failed),
            other => drop(other?),
        }
        self.turn(&item).await?;
        let settled = self.find_group(scope, group).await?;
        let done =
            |found: Versioned<GroupRecord>| found.row.generation >= next && found.row.pending.is_none();
        Ok(if settled.is_some_and(done) { GroupUpdated::Done(next) } else { GroupUpdated::Failed })
    }

    /// Deletes a group with its state stream and subscriptions.
    pub(crate) async fn delete_group(
        &self,
        (scope, group): (&str, &str),
        id: Result<GroupId, ServiceError>,
    ) -> Outcome<GroupDeleted> {
        check_present("scope", scope)?;
        check_present("reader group", group)?;
        if !is_stored_name(scope) {
            return Err(ServiceError::NotFound("scope"));
        }
        let Some(found) = self.find_group(scope, group).await? else { return Ok(GroupDeleted::NotFound) };
        // An id that cannot be read is no group's.
        let Ok(id) = id else { return Ok(GroupDeleted::NotFound) };
        let item = group_item(scope, group);
        if found.row.state == GroupState::Deleting && found.row.id != id {
            return Ok(GroupDeleted::NotFound);
        }
        if found.row.state != GroupState::Deleting {
            let GroupDeletion::Start(record) = found.row.delete(id) else {
                return Ok(GroupDeleted::NotFound);
            };
            self.store.work().announce(&item).await?;
            match self.store.write_in_scope(scope, (Kind::Group, group), record, found.unchanged()).await {
                Err(error) if error.is_conflict() => return Ok(GroupDeleted::Failed),
                other => drop(other?),
            }
        }
        self.turn(&item).await?;
        let left = self.find_group(scope, group).await?;
        Ok(match left {
            Some(found) if found.row.id == id => GroupDeleted::Failed,
            _ => GroupDeleted::Done,
        })
    }

    /// Names of the subscribers of a stream; `None` if there is no such stream.
    pub(crate) async fn subscribers(&self, scope: &str, stream: &str) -> Outcome<Option<Vec<String>>> {
        check_present("scope", scope)?;
        check_present("stream", stream)?;
        match self.open(scope, stream).await {
            Ok(opened) => {
                let found = opened.table.subscribers().await?;
                Ok(Some(found.map(|found| found.row.into_keys().collect()).unwrap_or_default()))
            }
            // A missing scope is told apart from a missing stream.
            Err(ServiceError::NotFound(_)) if self.scope_exists(scope).await? => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records how far a subscriber has read.
    pub(crate) async fn report(
        &self,
        (scope, stream): (&str, &str),
        report: SubscriberReport,
    ) -> Outcome<Reported> {
        let opened = match self.open_created(scope, stream).await {
            Err(ServiceError::NotFound(_)) => return Ok(Reported::StreamNotFound),
            other => other?,
        };
        loop {
            let Some(found) = opened.table.subscribers().await? else {
                return Ok(Reported::SubscriberNotFound);
            };
            let Some(row) = found.row.get(&report.subscriber) else {
                return Ok(Reported::SubscriberNotFound);
            };
            if row.id != report.id {
                return Ok(Reported::SubscriberNotFound);
            }
            if row.generation != report.generation {
                return Ok(Reported::GenerationMismatch);
            }
            let Some(cut) = self.check_cut(&opened, &report.cut).await? else {
                return Ok(Reported::InvalidCut);
            };
            let previous = self.check_cut(&opened, &row.cut).await?;
            let moved = match row.report(report.id, report.generation, &cut, previous.as_ref()) {
                Report::Moved(moved) => moved,
                Report::Unchanged => return Ok(Reported::Done),
                Report::OtherId => return Ok(Reported::SubscriberNotFound),
                Report::OtherGeneration => return Ok(Reported::GenerationMismatch),
                Report::Behind(_) => return Ok(Reported::InvalidCut),
            };
            let expect = found.unchanged();
            let mut rows = found.row;
            rows.insert(report.subscriber.clone(), moved);
            match opened.table.write_subscribers(&rows, expect).await {
                Err(StoreError::Conflict { .. }) => {}
                other => {
                    other?;
                    return Ok(Reported::Done);
                }
            }
        }
    }
}
