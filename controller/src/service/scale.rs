//! Scales asked for by callers, who ask again to learn whether they are done.

use super::{Outcome, Service, ServiceError};
use crate::record::stream::ScaleRow;
use crate::store::WorkItem;
use crate::stream::epoch::scale::{check_scale, submit};
use crate::stream::{
    ScaleError, ScaleOrigin, ScaleRefusal, ScaleRequest, ScaleStatus, ScaleTerms, Segment, StreamState,
};
use crate::workflow::{OWN_SCALE, Rows};

/// Outcome of a scale call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scaling {
    /// It has begun, now or earlier.
    Started {
        /// The active epoch from which it starts.
        epoch: i32,
        /// The segments it creates.
        segments: Vec<Segment>,
    },
    /// The request does not fit the present segments.
    PreconditionFailed,
    /// Refused.
    Failed,
}

impl Service {
    /// Begins to replace segments.
    pub(crate) async fn scale(
        &self,
        (scope, stream): (&str, &str),
        request: &ScaleRequest,
    ) -> Outcome<Scaling> {
        let item = WorkItem::stream(scope, stream);
        loop {
            let Some((opened, mut rows)) = self.open_rows(scope, stream).await? else {
                return Ok(Scaling::Failed);
            };
            let active = opened.table.epoch(rows.head.row.active_epoch).await?;
            let pending = rows.scale.row.pending.clone();
            let transition = match submit(&active, pending.as_ref(), request, self.terms(&rows)) {
                Ok(transition) => transition,
                Err(error) => return refused(&error),
            };
            if pending.is_none() {
                self.store.work().announce(&item).await?;
                let row = ScaleRow { pending: Some(transition.clone()) };
                match rows.intend(&opened.table, &OWN_SCALE, row).await {
                    Err(error) if error.is_conflict() => continue,
                    other => other?,
                }
            }
            self.engine.ask(&self.engine.runner(&item));
            return Ok(Scaling::Started { epoch: transition.active_epoch, segments: transition.create });
        }
    }

    fn terms(&self, rows: &Rows) -> ScaleTerms {
        ScaleTerms {
            state: if rows.seal.row.asked { StreamState::Sealing } else { rows.head.row.state },
            segments_min: rows.config.row.current.scaling.segments_min(),
            origin: ScaleOrigin::Manual,
            now_ms: self.store.now_ms(),
        }
    }

    /// Tells how far the scale is that was started while `epoch` was active.
    pub(crate) async fn check_scale(&self, scope: &str, stream: &str, epoch: i32) -> Outcome<ScaleStatus> {
        let found = self.open_rows(scope, stream).await?;
        if epoch < 0 {
            return Err(ServiceError::Invalid(format!("epoch {epoch} is negative")));
        }
        let Some((opened, rows)) = found else { return Ok(ScaleStatus::InvalidInput) };
        let active = opened.table.epoch(rows.head.row.active_epoch).await?;
        Ok(check_scale(epoch, &active, rows.head.row.state, rows.scale.row.pending.as_ref()))
    }
}

fn refused(error: &ScaleError) -> Outcome<Scaling> {
    match error.refusal() {
        ScaleRefusal::PreconditionFailed => Ok(Scaling::PreconditionFailed),
        ScaleRefusal::Failure => Ok(Scaling::Failed),
        ScaleRefusal::InvalidArgument => Err(ServiceError::Invalid(error.to_string())),
    }
}
