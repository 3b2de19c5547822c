//! Ends of transactions: commit rounds and aborts.
//!
//! A round is written down before anything is merged, with all that decides what it does. A transaction's row goes
//! after its data is merged or dropped and its end is recorded, so a question about it meets one or the other.

use std::sync::Arc;

use futures_util::stream as streams;
use futures_util::{FutureExt, StreamExt};
use tracing::warn;

use super::rows::{OWN_COMMIT, Rows};
use super::scale::{epoch_batch, sealed_batch};
use super::{Engine, Error, Progress, Runner};
use crate::record::name::{segment, transaction_key, transaction_segment};
use crate::record::stream::{CommitRow, Head};
use crate::segment_client::{Expect, SegmentError, SegmentShape};
use crate::store::{Batch, StoreError, StreamTable, WorkItem};
use crate::stream::transaction::{Ending, Merge, MergePlan, Rolling, Round, next_round};
use crate::stream::watermark::Note;
use crate::stream::{
    Admission, EpochRecord, Segment, StreamCut, StreamState, TransactionId, TransactionState, Workflow,
};

/// Most transactions dropped side by side.
const ABORTS_MAX: usize = 16;
/// Time after which a lease is looked at again that could not be ended, in milliseconds.
const LEASE_RETRY_MS: i64 = 5_000;

impl Engine {
    /// Merges the next transactions in the order of their commit calls, or those of a round that was begun.
    pub(super) async fn commit(
        &self,
        runner: &Arc<Runner>,
        table: &StreamTable,
        rows: &mut Rows,
    ) -> Result<Progress, Error> {
        let queue = runner.committing();
        if rows.commit.row.pending.is_none() && queue.is_empty() {
            return Ok(Progress::Rest);
        }
        let state = match Workflow::Commit.admit(rows.head.row.state) {
            Admission::Wait => return Ok(Progress::More),
            Admission::Refused | Admission::Done => {
                // The stream was sealed without them: their rows are left over from before.
                runner.committed(&queue);
                return Ok(Progress::Rest);
            }
            Admission::Start(state) => state.unwrap_or(rows.head.row.state),
        };
        let round = if let Some(round) = rows.commit.row.pending.clone() {
            round
        } else {
            let Some(round) = self.decide_round(table, rows, &queue).await? else {
                return Ok(Progress::Rest);
            };
            let head = Head { state, ..rows.head.row };
            let row = CommitRow { pending: Some(round.clone()) };
            rows.step(table, head, (&OWN_COMMIT, row), Batch::new()).await?;
            round
        };
        let begun = table.epoch(round.epoch).await?;
        let from = round.rolling.map_or(rows.head.row.active_epoch, |start| start.active_epoch);
        let active = table.epoch(from).await?;
        let resting = if state == StreamState::Committing { StreamState::Active } else { state };
        match round.plan(&begun, &active)? {
            MergePlan::Direct(merges) => {
                let ids = &round.transactions;
                let (merged, recorded) =
                    tokio::join!(self.merge(table, &merges), self.record_commits(table, ids));
                recorded?;
                self.note_times(runner, table, ids, (&merges, &merged?)).await?;
                self.finish_round(table, rows, &round, Head { state: resting, ..rows.head.row }).await?;
            }
            MergePlan::Rolling(rolling) => {
                let (last, merged) = self.roll(table, &active, &rolling).await?;
                self.note_times(runner, table, &round.transactions, (&rolling.merges, &merged)).await?;
                self.record_commits(table, &round.transactions).await?;
                self.finish_round(table, rows, &round, Head { state: resting, active_epoch: last }).await?;
            }
        }
        runner.committed(&round.transactions);
        Ok(if runner.committing().is_empty() { Progress::Rest } else { Progress::Backlog })
    }

    async fn decide_round(
        &self,
        table: &StreamTable,
        rows: &Rows,
        queue: &[TransactionId],
    ) -> Result<Option<Round>, Error> {
        let Some(round) = next_round(queue) else { return Ok(None) };
        let begun = table.epoch(round.epoch).await?;
        let active = table.epoch(rows.head.row.active_epoch).await?;
        Ok(Some(round.decided(&begun, &active, self.store.now_ms())))
    }

    /// Keeps the times that writers told with their commit calls, each with the position after the transaction.
    async fn note_times(
        &self,
        runner: &Runner,
        table: &StreamTable,
        ids: &[TransactionId],
        (merges, offsets): (&[Merge], &[Vec<i64>]),
    ) -> Result<(), Error> {
        for (place, (writer, time)) in runner.marks(ids) {
            let position = merges.iter().zip(offsets);
            let position = position.filter_map(|(merge, offsets)| Some((merge.target, *offsets.get(place)?)));
            let position = StreamCut(position.collect());
            // What the writer has noted since by itself is newer and stays.
            let _note: Note = table.note_writer(&writer, &position, time).await?;
        }
        Ok(())
    }

    /// Merges into several segments side by side. Sources that are gone have been merged before. Returns for each
    /// merge an offset behind each of its sources.
    async fn merge(&self, table: &StreamTable, merges: &[Merge]) -> Result<Vec<Vec<i64>>, Error> {
        let (scope, stream) = (&table.scope, &table.stream);
        let name = |(parent, id): &(crate::stream::SegmentId, TransactionId)| {
            transaction_segment(scope, stream, parent.number(), *id)
        };
        let requests: Vec<(String, Vec<String>)> = merges
            .iter()
            .map(|merge| (segment(scope, stream, merge.target), merge.sources.iter().map(name).collect()))
            .collect();
        self.each(requests.iter().map(|(target, sources)| self.merge_into(target, sources).boxed()).collect())
            .await
    }

    /// Merges into one segment. If it is sealed, a rolling round has come this far before: its segments are sealed
    /// after the last merge.
    async fn merge_into(&self, target: &str, sources: &[String]) -> Result<Vec<i64>, SegmentError> {
        let segments = self.store.segments();
        match segments.merge(target, sources.to_vec()).await {
            Err(SegmentError::Sealed { .. }) => {
                let length = segments.segment_info(target).await?.length;
                Ok(vec![length; sources.len()])
            }
            other => other,
        }
    }

    async fn record_commits(&self, table: &StreamTable, ids: &[TransactionId]) -> Result<(), Error> {
        self.store.complete((&table.scope, &table.stream), ids, TransactionState::Committed).await
    }

    /// Adds the two epochs of a rolling round; returns the number of the second, and what the merges returned.
    async fn roll(
        &self,
        table: &StreamTable,
        active: &EpochRecord,
        rolling: &Rolling,
    ) -> Result<(i32, Vec<Vec<i64>>), Error> {
        let (merged_into, next) = (&rolling.epochs.transactions, &rolling.epochs.active);
        let ids = |epoch: &EpochRecord| epoch.segments.iter().map(Segment::id).collect::<Vec<_>>();
        let (old, duplicates) = (ids(active), ids(merged_into));
        let shape = SegmentShape::default();
        self.create_segments(table, &merged_into.segments, shape).await?;
        let merged = self.merge(table, &rolling.merges).await?;
        let duplicate_lengths = self.seal_segments(table, &duplicates).await?;
        let config = table.config().await?.row.current;
        self.create_segments(table, &next.segments, super::create::shape(&config)).await?;
        let batch = epoch_batch(merged_into, &old, None).and(epoch_batch(
            next,
            &duplicates,
            Some(&duplicate_lengths),
        ));
        table.table().write(batch).await?;
        let lengths = self.seal_segments(table, &old).await?;
        table.table().write(sealed_batch(merged_into.epoch, &old, Some(&lengths))).await?;
        Ok((next.epoch, merged))
    }

    /// Takes the transactions of a round away and lets the stream go.
    async fn finish_round(
        &self,
        table: &StreamTable,
        rows: &mut Rows,
        round: &Round,
        head: Head,
    ) -> Result<(), Error> {
        let keys = round.transactions.iter().map(|id| (transaction_key(*id).into(), Expect::Any)).collect();
        if round.rolling.is_some() {
            // A rolling round that lost its row first would be rolled again.
            table.table().remove(keys).await?;
            return rows.step(table, head, (&OWN_COMMIT, CommitRow::default()), Batch::new()).await;
        }
        let (removed, stepped) = tokio::join!(
            table.table().remove(keys),
            rows.step(table, head, (&OWN_COMMIT, CommitRow::default()), Batch::new()),
        );
        removed?;
        stepped
    }

    /// Drops the transactions that are to be aborted. The state of the stream does not matter.
    pub(super) async fn abort(&self, runner: &Arc<Runner>, table: &StreamTable) -> Result<Progress, Error> {
        let aborts = runner.aborting().into_iter().map(|id| {
            async move {
                match self.abort_one(table, id).await {
                    // Without its epoch nothing of it was ever there.
                    Ok(()) | Err(StoreError::NotFound(_)) => runner.aborted(id),
                    Err(error) => return Err(error),
                }
                Ok(())
            }
            .boxed()
        });
        let aborts: Vec<_> = aborts.collect();
        let outcomes: Vec<Result<(), Error>> = streams::iter(aborts).buffered(ABORTS_MAX).collect().await;
        outcomes.into_iter().collect::<Result<(), Error>>()?;
        Ok(Progress::Rest)
    }

    async fn abort_one(&self, table: &StreamTable, id: TransactionId) -> Result<(), Error> {
        let begun = table.epoch(id.epoch()).await?;
        let name = |part: &Segment| transaction_segment(&table.scope, &table.stream, part.number, id);
        let names: Vec<String> = begun.segments.iter().map(name).collect();
        let segments = self.store.segments();
        let deletes = self.each(names.iter().map(|name| segments.delete_segment(name)).collect());
        let key = (table.scope.as_str(), table.stream.as_str());
        let ids = [id];
        let (deleted, recorded) =
            tokio::join!(deletes, self.store.complete(key, &ids, TransactionState::Aborted));
        deleted?;
        recorded?;
        table.table().remove(vec![(transaction_key(id).into(), Expect::Any)]).await
    }

    /// Aborts transactions whose leases have ended. A lease that was renewed meanwhile is looked at again later.
    pub(crate) async fn end_leases(self: &Arc<Self>) {
        let now_ms = self.store.now_ms();
        while let Some((_at_ms, item, id)) = self.pop_due(now_ms) {
            let runner = self.runner(&item);
            let Some(known) = runner.open(id) else { continue };
            if !known.row.is_expired(self.serving_since_ms, now_ms) {
                self.leases.lock().insert((known.row.abort_at_ms(self.serving_since_ms), item, id));
                continue;
            }
            if let Err(error) = self.end_lease(&runner, id, now_ms).await {
                // The others are not to wait for this one.
                warn!(scope = item.scope, stream = item.name, %error, "ending the lease of a transaction");
                self.leases.lock().insert((now_ms.saturating_add(LEASE_RETRY_MS), item, id));
            }
        }
    }

    fn pop_due(&self, now_ms: i64) -> Option<(i64, WorkItem, TransactionId)> {
        let mut leases = self.leases.lock();
        if leases.first().is_some_and(|(at_ms, _, _)| *at_ms <= now_ms) { leases.pop_first() } else { None }
    }

    /// Aborts one transaction, unless its row says that it has been pinged or has ended.
    async fn end_lease(
        self: &Arc<Self>,
        runner: &Arc<Runner>,
        id: TransactionId,
        now_ms: i64,
    ) -> Result<(), Error> {
        let opened = match self.store.open(&runner.item.scope, &runner.item.name).await {
            Err(StoreError::NotFound(_)) => {
                runner.clear();
                return Ok(());
            }
            other => other?,
        };
        let found = opened.table.transaction(id).await?;
        runner.forget(id);
        let Some(found) = found else { return Ok(()) };
        let ending = if found.row.is_expired(self.serving_since_ms, now_ms) {
            found.row.abort()
        } else {
            Ending::Already
        };
        let noted = match ending {
            Ending::Start(aborting) => {
                match opened.table.write_transaction(aborting, found.unchanged()).await {
                    // It was pinged or ended at this very moment.
                    Err(error) if error.is_conflict() => found,
                    other => other?,
                }
            }
            Ending::Already | Ending::Refused(_) => found,
        };
        self.note(runner, noted);
        self.ask(runner);
        Ok(())
    }
}
