//! Creation of a stream: rows, segments, the mark stream, then it is open.

use std::sync::Arc;

use dhara_wire::limits::SCOPE_NAME_CHARS_MAX;
use dhara_wire::name::stream_of_mark;

use super::rows::Rows;
use super::{Engine, Error, Progress};
use crate::record::name::{Kind, segment};
use crate::record::scope::{Presence, StreamRow};
use crate::segment_client::{Expect, SegmentShape};
use crate::store::{StoreError, StreamTable};
use crate::stream::name::mark_stream;
use crate::stream::{EpochRecord, ScalingPolicy, Segment, StreamConfig, StreamState};

/// The stream of watermarks of a stream. A mark stream has none, nor has one whose name leaves no room for it.
pub(super) fn mark_of(stream: &str) -> Option<String> {
    let mark = mark_stream(stream);
    (stream_of_mark(stream).is_none() && mark.len() <= SCOPE_NAME_CHARS_MAX).then_some(mark)
}

/// What segments of a stream with this configuration are created with.
pub(super) fn shape(config: &StreamConfig) -> SegmentShape {
    let (scale_type, rate) = config.scaling.segment_policy();
    SegmentShape { scale_type, rate, rollover_bytes: config.rollover_bytes }
}

impl Engine {
    /// Does what is left of a creation. The row in the scope is the intent.
    pub(super) async fn create(
        self: &Arc<Self>,
        table: &Arc<StreamTable>,
        row: &StreamRow,
    ) -> Result<Progress, Error> {
        self.store.segments().create_table(table.table().name(), 0, 0).await?;
        let mut rows = self.first_rows(table, row).await?;
        let epoch = table.epoch(rows.head.row.active_epoch).await?;
        let (segments, mark) = tokio::join!(
            self.create_segments(table, &epoch.segments, shape(&row.config)),
            self.create_mark(table)
        );
        segments?;
        mark?;
        rows.enter(table, StreamState::Active).await?;
        Ok(Progress::More)
    }

    /// Writes the rows of a new stream, or finds them written.
    async fn first_rows(&self, table: &StreamTable, row: &StreamRow) -> Result<Rows, Error> {
        let epoch = EpochRecord::first(row.config.scaling.segments_min(), row.first_number, row.created_ms)?;
        match table.table().write(Rows::first(&row.config, &epoch)).await {
            Ok(_versions) => {}
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        Rows::read(table).await?.ok_or(StoreError::NotReady)
    }

    /// Creates segments of a stream.
    pub(super) async fn create_segments(
        &self,
        table: &StreamTable,
        segments: &[Segment],
        shape: SegmentShape,
    ) -> Result<(), Error> {
        let names: Vec<String> =
            segments.iter().map(|new| segment(&table.scope, &table.stream, new.id())).collect();
        let creates = names.iter().map(|name| self.store.segments().create_segment(name, shape));
        self.each(creates.collect()).await.map(drop)
    }

    /// Creates the stream into which the watermarks of a stream are written.
    async fn create_mark(self: &Arc<Self>, table: &StreamTable) -> Result<(), Error> {
        let Some(mark) = mark_of(&table.stream) else { return Ok(()) };
        let config = StreamConfig::new(ScalingPolicy::fixed(1));
        let row = self.record_stream(&table.scope, &mark, config).await?;
        let mark = self.store.stream_table(&table.scope, &mark, row.id);
        Box::pin(self.create(&mark, &row)).await.map(drop)
    }

    /// Records that a stream is to be created, or finds the record of the name.
    pub(super) async fn record_stream(
        &self,
        scope: &str,
        stream: &str,
        config: StreamConfig,
    ) -> Result<StreamRow, Error> {
        if let Some(found) = self.store.find_stream(scope, stream).await? {
            return Ok(found.row);
        }
        let row = self.fresh_stream(scope, stream, config).await?;
        match self.store.write_in_scope(scope, (Kind::Stream, stream), row, Expect::Absent).await {
            Ok(written) => Ok(written.row),
            Err(error) if error.is_conflict() => {
                let found = self.store.find_stream(scope, stream).await?;
                Ok(found.ok_or(StoreError::NotFound("stream"))?.row)
            }
            Err(error) => Err(error),
        }
    }

    /// The row of a stream that does not exist yet.
    pub(crate) async fn fresh_stream(
        &self,
        scope: &str,
        stream: &str,
        config: StreamConfig,
    ) -> Result<StreamRow, Error> {
        let first_number = self.store.first_number(Kind::Stream, scope, stream).await?;
        let (id, created_ms) = (self.store.fresh_id(), self.store.now_ms());
        Ok(StreamRow { id, presence: Presence::Live, created_ms, first_number, config })
    }
}
