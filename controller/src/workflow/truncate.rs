//! Truncation: segments before the cut are deleted, those in it truncated.

use super::rows::{OWN_TRUNCATION, Rows};
use super::{Engine, Error, Progress};
use crate::record::name::segment;
use crate::record::stream::Head;
use crate::segment_client::gone_is_fine;
use crate::store::{Batch, StreamTable};
use crate::stream::cut::FUTURE;
use crate::stream::{Admission, StreamState, Workflow};

impl Engine {
    /// Carries out a pending truncation.
    pub(super) async fn truncate(&self, table: &StreamTable, rows: &mut Rows) -> Result<Progress, Error> {
        let record = rows.truncation.row.clone();
        if !record.updating {
            return Ok(Progress::Rest);
        }
        match Workflow::Truncate.admit(rows.head.row.state) {
            Admission::Wait => return Ok(Progress::More),
            // The cut stays what it is: it was accepted, and all before it may be gone.
            Admission::Refused | Admission::Done => {
                self.truncate_segments(table, rows).await?;
                let head = rows.head.row;
                rows.step(table, head, (&OWN_TRUNCATION, record.completed()), Batch::new()).await?;
                return Ok(Progress::Rest);
            }
            Admission::Start(Some(state)) => rows.enter(table, state).await?,
            Admission::Start(None) => {}
        }
        self.truncate_segments(table, rows).await?;
        let head = Head { state: StreamState::Active, ..rows.head.row };
        rows.step(table, head, (&OWN_TRUNCATION, record.completed()), Batch::new()).await?;
        Ok(Progress::Rest)
    }

    async fn truncate_segments(&self, table: &StreamTable, rows: &Rows) -> Result<(), Error> {
        let record = &rows.truncation.row;
        let segments = self.store.segments();
        let name = |id| segment(&table.scope, &table.stream, id);
        let positions = record.cut.0.iter().filter(|(_id, offset)| **offset != FUTURE);
        let positions: Vec<(String, i64)> = positions.map(|(id, offset)| (name(*id), *offset)).collect();
        let truncate = async |name: &str, offset| gone_is_fine(segments.truncate_segment(name, offset).await);
        for (name, offset) in &positions {
            truncate(name, *offset).await?;
        }
        let names: Vec<String> = record.delete.iter().map(|id| name(*id)).collect();
        self.each(names.iter().map(|name| segments.delete_segment(name)).collect()).await.map(drop)
    }
}
