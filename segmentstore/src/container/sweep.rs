//! Removing the rows of segments that are gone, in bounded steps.

use super::task::{Event, Failure, Task};
use crate::index::{Index, IndexError, Row, key};
use crate::types::SegmentId;

/// Rows removed in one step.
const STEP_ROWS_MAX: usize = 4_096;
/// Bytes looked at in one step.
const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Doomed segments looked at in one step.
const STEP_SEGMENTS_MAX: usize = 256;

impl Task {
    pub(super) fn sweep_if_due(&mut self) {
        if !self.flush.sweep_due || self.flush.sweeping {
            return;
        }
        self.flush.sweeping = true;
        let (index, events) = (self.index.clone(), self.event_sender.clone());
        drop(self.storage.spawn(async move {
            let swept = find_rows(&index).await;
            let _ended = events.send(Event::Swept(swept)).await;
        }));
    }

    pub(super) fn swept(&mut self, swept: Result<Vec<Row>, IndexError>) -> Result<(), Failure> {
        let rows = swept.map_err(|source| Failure::Index { container: self.id, source })?;
        self.flush.sweeping = false;
        self.flush.sweep_due = !rows.is_empty();
        if !rows.is_empty() {
            self.index.apply(rows, self.state.applied_upto());
        }
        Ok(())
    }
}

/// The next rows to remove: those of doomed segments, or where none is left the mark of doom itself.
async fn find_rows(index: &Index) -> Result<Vec<Row>, IndexError> {
    let mut rows = Vec::new();
    let doomed = index.scan(key::all(key::Kind::Doomed), STEP_SEGMENTS_MAX, STEP_BYTES_MAX).await?;
    for (doomed_key, _) in doomed.rows {
        let Some((id, _)) = key::parse_of_segment(key::Kind::Doomed, &doomed_key) else { continue };
        let before = rows.len();
        rows_of(index, id, &mut rows).await?;
        if rows.len() == before {
            rows.push(Row::gone(doomed_key));
        }
        if rows.len() >= STEP_ROWS_MAX {
            break;
        }
    }
    Ok(rows)
}

async fn rows_of(index: &Index, id: SegmentId, rows: &mut Vec<Row>) -> Result<(), IndexError> {
    for kind in [key::Kind::Attribute, key::Kind::TableKey, key::Kind::TableVersion, key::Kind::Extent] {
        let room = STEP_ROWS_MAX.saturating_sub(rows.len());
        if room == 0 {
            return Ok(());
        }
        let page = index.scan(key::all_of_segment(kind, id), room, STEP_BYTES_MAX).await?;
        rows.extend(page.rows.into_iter().map(|(key, _)| Row::gone(key)));
    }
    Ok(())
}
