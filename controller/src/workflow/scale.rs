//! Scale: new segments, the new epoch, old segments sealed, then the new epoch is the active one.
//!
//! The epoch and the rows of the sealed segments are written before any segment is sealed, so whoever sees a segment
//! sealed finds its successors.

use std::sync::Arc;

use super::create::shape;
use super::rows::{OWN_SCALE, Rows};
use super::{Engine, Error, Progress};
use crate::record::name::{epoch_key, sealed_key, segment};
use crate::record::stream::{Head, ScaleRow, SealedRow};
use crate::segment_client::Expect;
use crate::store::{Batch, StreamTable};
use crate::stream::{Admission, EpochRecord, ScaleOrigin, SegmentId, StreamState, Transition, Workflow};

impl Engine {
    /// Carries out a pending scale.
    pub(super) async fn scale(&self, table: &StreamTable, rows: &mut Rows) -> Result<Progress, Error> {
        let Some(pending) = rows.scale.row.pending.clone() else { return Ok(Progress::Rest) };
        if pending.origin == ScaleOrigin::Policy && rows.config.row.pending.is_some() {
            // It belongs to an update, which carries it out.
            return Ok(Progress::Rest);
        }
        match Workflow::Scale.admit(rows.head.row.state) {
            Admission::Wait => return Ok(Progress::More),
            Admission::Refused | Admission::Done => {
                let head = rows.head.row;
                rows.step(table, head, (&OWN_SCALE, ScaleRow::default()), Batch::new()).await?;
                return Ok(Progress::Rest);
            }
            Admission::Start(Some(state)) => rows.enter(table, state).await?,
            Admission::Start(None) => {}
        }
        let start = table.epoch(pending.active_epoch).await?;
        let active = table.epoch(rows.head.row.active_epoch).await?;
        let Some(transition) = pending.migrate(&start, &active)? else {
            let head = Head { state: StreamState::Active, ..rows.head.row };
            rows.step(table, head, (&OWN_SCALE, ScaleRow::default()), Batch::new()).await?;
            return Ok(Progress::Rest);
        };
        if transition != pending {
            let row = ScaleRow { pending: Some(transition.clone()) };
            let head = rows.head.row;
            rows.step(table, head, (&OWN_SCALE, row), Batch::new()).await?;
        }
        self.turn_epoch(table, rows, &transition, StreamState::Active).await?;
        Ok(Progress::Rest)
    }

    /// Replaces segments of the active epoch as `transition` says and leaves the stream in `state`.
    pub(super) async fn turn_epoch(
        &self,
        table: &StreamTable,
        rows: &mut Rows,
        transition: &Transition,
        state: StreamState,
    ) -> Result<(), Error> {
        let active = table.epoch(rows.head.row.active_epoch).await?;
        let config = rows.config.row.pending.as_ref().unwrap_or(&rows.config.row.current);
        self.create_segments(table, &transition.create, shape(config)).await?;
        let next = Arc::new(transition.apply(&active)?);
        table.table().write(epoch_batch(&next, &transition.seal, None)).await?;
        table.remember_epoch(&next);
        let lengths = self.seal_segments(table, &transition.seal).await?;
        let head = Head { state, active_epoch: next.epoch };
        let sealed = sealed_batch(next.epoch, &transition.seal, Some(&lengths));
        rows.step(table, head, (&OWN_SCALE, ScaleRow::default()), sealed).await
    }

    /// Seals segments and returns their lengths in bytes, in the same order.
    pub(super) async fn seal_segments(
        &self,
        table: &StreamTable,
        ids: &[SegmentId],
    ) -> Result<Vec<i64>, Error> {
        let names: Vec<String> = ids.iter().map(|id| segment(&table.scope, &table.stream, *id)).collect();
        let segments = self.store.segments();
        self.each(names.iter().map(|name| segments.seal_segment(name)).collect()).await?;
        let infos = self.each(names.iter().map(|name| segments.segment_info(name)).collect()).await?;
        Ok(infos.into_iter().map(|info| info.length).collect())
    }
}

/// An epoch together with the rows of the segments that it seals. Written again it is the same.
pub(super) fn epoch_batch(epoch: &EpochRecord, sealed: &[SegmentId], lengths: Option<&[i64]>) -> Batch {
    Batch::new().put(epoch_key(epoch.epoch), epoch, Expect::Any).and(sealed_batch(
        epoch.epoch,
        sealed,
        lengths,
    ))
}

/// The rows of segments that were sealed in `epoch`.
pub(super) fn sealed_batch(epoch: i32, sealed: &[SegmentId], lengths: Option<&[i64]>) -> Batch {
    sealed.iter().enumerate().fold(Batch::new(), |batch, (index, id)| {
        let length = lengths.and_then(|lengths| lengths.get(index)).copied();
        batch.put(sealed_key(*id), &SealedRow { epoch, length }, Expect::Any)
    })
}
