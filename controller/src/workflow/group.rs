//! Reader groups: the state stream that readers share, and the group's subscriptions.

use std::sync::Arc;

use super::{Engine, Error, Progress};
use crate::record::name::Kind;
use crate::store::{StoreError, Versioned};
use crate::stream::group::{GroupRecord, GroupState, STATE_ROLLOVER_BYTES, StreamName, SubscriptionChange};
use crate::stream::name::{reader_group_stream, subscriber};
use crate::stream::{ScalingPolicy, StreamConfig};

impl Engine {
    /// Does what is left of a group's creation, update or deletion.
    pub(super) async fn pass_group(self: &Arc<Self>, scope: &str, group: &str) -> Result<Progress, Error> {
        let found = match self.store.find_in_scope::<GroupRecord>(scope, Kind::Group, group).await {
            Err(StoreError::NotFound(_)) => None,
            other => other?,
        };
        let Some(found) = found else { return Ok(Progress::Rest) };
        match (found.row.state, &found.row.pending) {
            (GroupState::Deleting, pending) => {
                self.unsubscribe((scope, group), pending.as_ref()).await?;
                self.delete_stream(scope, &reader_group_stream(group)).await?;
                self.store.remove_in_scope(scope, (Kind::Group, group), found.unchanged()).await?;
            }
            (GroupState::Active, None) => {}
            (state, pending) => {
                if state == GroupState::Creating {
                    self.create_state(scope, group, &found.row).await?;
                }
                self.subscribe((scope, group), &found, pending.as_ref()).await?;
                self.unsubscribe((scope, group), pending.as_ref()).await?;
                let key = (Kind::Group, group);
                self.store.write_in_scope(scope, key, found.row.settled(), found.unchanged()).await?;
            }
        }
        Ok(Progress::Rest)
    }

    async fn create_state(
        self: &Arc<Self>,
        scope: &str,
        group: &str,
        record: &GroupRecord,
    ) -> Result<(), Error> {
        let mut config = StreamConfig::new(ScalingPolicy::fixed(1));
        config.rollover_bytes = if record.config.rollover_bytes > 0 {
            record.config.rollover_bytes
        } else {
            STATE_ROLLOVER_BYTES
        };
        self.create_stream(scope, &reader_group_stream(group), config).await
    }

    async fn subscribe(
        &self,
        (scope, group): (&str, &str),
        found: &Versioned<GroupRecord>,
        change: Option<&SubscriptionChange>,
    ) -> Result<(), Error> {
        let name = subscriber(scope, group);
        for stream in change.iter().flat_map(|change| &change.subscribe) {
            let Some(opened) = self.subscribed(stream).await? else { continue };
            let change = |subscribers: &mut std::collections::BTreeMap<_, _>| {
                let row = found.row.subscription(stream, subscribers.get(&name));
                subscribers.insert(name.clone(), row.clone()) != Some(row)
            };
            opened.table.change_subscribers(change).await?;
        }
        Ok(())
    }

    async fn unsubscribe(
        &self,
        (scope, group): (&str, &str),
        change: Option<&SubscriptionChange>,
    ) -> Result<(), Error> {
        let name = subscriber(scope, group);
        for stream in change.iter().flat_map(|change| &change.unsubscribe) {
            let Some(opened) = self.subscribed(stream).await? else { continue };
            opened.table.change_subscribers(|subscribers| subscribers.remove(&name).is_some()).await?;
        }
        Ok(())
    }

    /// A stream that a group reads, unless it has been deleted meanwhile.
    async fn subscribed(&self, stream: &StreamName) -> Result<Option<crate::store::Opened>, Error> {
        match self.store.open(&stream.scope, &stream.stream).await {
            Ok(opened) => Ok(Some(opened)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
