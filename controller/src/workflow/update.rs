//! Change of a stream's configuration, which may replace its segments.

use super::create::shape;
use super::rows::{OWN_CONFIG, OWN_SCALE, Rows};
use super::{Engine, Error, Progress};
use crate::record::name::{Kind, segment};
use crate::record::scope::StreamRow;
use crate::record::stream::{ConfigRow, Head, ScaleRow};
use crate::store::{Batch, StreamTable, Versioned};
use crate::stream::epoch::scale::change_policy;
use crate::stream::{Admission, ScaleOrigin, StreamConfig, StreamState, Workflow};

impl Engine {
    /// Puts a pending configuration in force. `found` is the stream's row in its scope.
    pub(super) async fn update(
        &self,
        table: &StreamTable,
        rows: &mut Rows,
        found: &Versioned<StreamRow>,
    ) -> Result<Progress, Error> {
        let ConfigRow { current, pending: Some(pending) } = rows.config.row.clone() else {
            return Ok(Progress::Rest);
        };
        match Workflow::Update.admit(rows.head.row.state) {
            Admission::Wait => return Ok(Progress::More),
            Admission::Refused | Admission::Done => {
                let row = ConfigRow { current, pending: None };
                let head = rows.head.row;
                rows.step(table, head, (&OWN_CONFIG, row), Batch::new()).await?;
                return Ok(Progress::Rest);
            }
            Admission::Start(Some(state)) => rows.enter(table, state).await?,
            Admission::Start(None) => {}
        }
        self.change_count(table, rows, &pending).await?;
        self.change_policies(table, rows, &pending).await?;
        self.change_listing(table, found, &pending).await?;
        let head = Head { state: StreamState::Active, ..rows.head.row };
        let row = ConfigRow { current: pending, pending: None };
        rows.step(table, head, (&OWN_CONFIG, row), Batch::new()).await?;
        Ok(Progress::Rest)
    }

    /// Replaces all segments if the new policy wants another number of them.
    ///
    /// What replaces them is written down first, in the place of any scale that is pending.
    async fn change_count(
        &self,
        table: &StreamTable,
        rows: &mut Rows,
        config: &StreamConfig,
    ) -> Result<(), Error> {
        let active = table.epoch(rows.head.row.active_epoch).await?;
        let begun =
            rows.scale.row.pending.clone().filter(|pending| {
                pending.origin == ScaleOrigin::Policy && pending.active_epoch == active.epoch
            });
        let transition = if let Some(transition) = begun {
            transition
        } else {
            let now_ms = self.store.now_ms();
            let Some(transition) = change_policy(&active, &config.scaling, now_ms)? else { return Ok(()) };
            let row = ScaleRow { pending: Some(transition.clone()) };
            let head = rows.head.row;
            rows.step(table, head, (&OWN_SCALE, row), Batch::new()).await?;
            transition
        };
        self.turn_epoch(table, rows, &transition, StreamState::Updating).await
    }

    /// Tells the stores for which load the active segments are to be watched.
    async fn change_policies(
        &self,
        table: &StreamTable,
        rows: &Rows,
        config: &StreamConfig,
    ) -> Result<(), Error> {
        let active = table.epoch(rows.head.row.active_epoch).await?;
        let name = |new: &crate::stream::Segment| segment(&table.scope, &table.stream, new.id());
        let names: Vec<String> = active.segments.iter().map(name).collect();
        let shape = shape(config);
        let segments = self.store.segments();
        self.each(names.iter().map(|name| segments.update_policy(name, shape)).collect()).await.map(drop)
    }

    /// Keeps the copy in the scope's table, by which streams are found by tag.
    async fn change_listing(
        &self,
        table: &StreamTable,
        found: &Versioned<StreamRow>,
        config: &StreamConfig,
    ) -> Result<(), Error> {
        if found.row.config == *config {
            return Ok(());
        }
        let row = StreamRow { config: config.clone(), ..found.row.clone() };
        let key = (Kind::Stream, table.stream.as_str());
        self.store.write_in_scope(&table.scope, key, row, found.unchanged()).await.map(drop)
    }
}
