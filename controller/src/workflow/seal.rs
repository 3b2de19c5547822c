//! Seal: open transactions are dropped, committed ones merged, then the segments are sealed for good.

use std::sync::Arc;

use super::rows::{OWN_SEAL, Rows};
use super::{Engine, Error, Progress, Runner};
use crate::record::stream::{Head, SealRow};
use crate::store::{Batch, StreamTable};
use crate::stream::transaction::Ending;
use crate::stream::{Admission, Segment, StreamState, Workflow};

impl Engine {
    /// Seals the stream if that has been asked for.
    pub(super) async fn seal(
        &self,
        runner: &Arc<Runner>,
        table: &StreamTable,
        rows: &mut Rows,
    ) -> Result<Progress, Error> {
        if !rows.seal.row.asked {
            return Ok(Progress::Rest);
        }
        match Workflow::Seal.admit(rows.head.row.state) {
            Admission::Wait => return Ok(Progress::More),
            Admission::Refused | Admission::Done => {
                let head = rows.head.row;
                rows.step(table, head, (&OWN_SEAL, SealRow { asked: false }), Batch::new()).await?;
                return Ok(Progress::Rest);
            }
            Admission::Start(Some(state)) => rows.enter(table, state).await?,
            Admission::Start(None) => {}
        }
        if !self.end_transactions(runner, table).await? {
            return Ok(Progress::More);
        }
        let active = table.epoch(rows.head.row.active_epoch).await?;
        let ids: Vec<_> = active.segments.iter().map(Segment::id).collect();
        self.seal_segments(table, &ids).await?;
        // Other intents are refused from here on; the pass that follows clears them.
        let head = Head { state: StreamState::Sealed, ..rows.head.row };
        rows.step(table, head, (&OWN_SEAL, SealRow { asked: false }), Batch::new()).await?;
        Ok(Progress::More)
    }

    /// Turns open transactions towards their end; whether none is left.
    ///
    /// Whoever begins a transaction looks at the state after writing its row, so from the moment the stream is being
    /// sealed every row is either found here or withdrawn there.
    async fn end_transactions(&self, runner: &Arc<Runner>, table: &StreamTable) -> Result<bool, Error> {
        let transactions = table.sweep().await?.transactions;
        let none_left = transactions.is_empty();
        for transaction in transactions {
            let noted = match transaction.row.abort() {
                Ending::Start(aborting) => table.write_transaction(aborting, transaction.unchanged()).await?,
                Ending::Already | Ending::Refused(_) => transaction,
            };
            self.note(runner, noted);
        }
        Ok(none_left)
    }
}
