//! Transactions: begin, ping, commit, abort, and how they ended.

use std::sync::Arc;

use super::{Outcome, Service, ServiceError, check_present, may_exist};
use crate::record::name::transaction_segment;
use crate::record::stream::Head;
use crate::segment_client::{Expect, SegmentShape};
use crate::store::{StoreError, StreamTable, Versioned, WorkItem};
use crate::stream::name::is_stored_name;
use crate::stream::transaction::{Commit, Ending, Ping};
use crate::stream::{EpochRecord, Segment, StreamState, Transaction, TransactionId, TransactionState};
use crate::workflow::Runner;

/// A transaction that has begun.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    /// Its id.
    pub(crate) id: TransactionId,
    /// Segments under the ids by which clients name their parts in the transaction.
    pub(crate) segments: Vec<Segment>,
}

/// Outcome of a commit or abort call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionEnding {
    /// The transaction is on its way there, or has arrived.
    Accepted,
    /// It is on its way to the other end.
    Refused,
    /// There is no such stream.
    StreamNotFound,
    /// There is no such transaction.
    NotFound,
}

/// Outcome of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pinged {
    /// The lease runs anew.
    Renewed,
    /// The lease asked for is longer than leases are.
    LeaseTooLarge,
    /// The transaction would live too long.
    MaxExecutionTimeExceeded,
    /// It is committed or about to be.
    Committed,
    /// It is aborted or about to be.
    Aborted,
    /// There is no such transaction.
    Unknown,
}

/// To which end a transaction is brought.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// Commit, with the writer and its time if it told them.
    Commit(Option<(String, i64)>),
    /// Abort.
    Abort,
}

/// Where a transaction is looked for.
#[derive(Debug)]
struct Place {
    table: Arc<StreamTable>,
    runner: Arc<Runner>,
}

impl Service {
    /// Begins a transaction: its row, then its segments.
    pub(crate) async fn begin(&self, scope: &str, stream: &str, lease_ms: i64) -> Outcome<Begun> {
        check_present("scope", scope)?;
        check_present("stream", stream)?;
        let invalid =
            |error: crate::stream::transaction::LeaseOutOfRange| ServiceError::Invalid(error.to_string());
        let lease = self.config.leases.check(lease_ms).map_err(invalid);
        let place = self.place_of(scope, stream).await?;
        lease?;
        match self.try_begin(&place, lease_ms).await {
            Err(ServiceError::Store(error)) if error.is_missing() => {
                self.store.forget_stream(scope, stream);
                let place = self.place_of(scope, stream).await?;
                self.try_begin(&place, lease_ms).await
            }
            other => other,
        }
    }

    async fn try_begin(&self, place: &Place, lease_ms: i64) -> Outcome<Begun> {
        let Place { table, runner } = place;
        let head = self.open_head(table).await?;
        let active = table.epoch(head.active_epoch).await?;
        self.store.work().announce(&runner.item).await?;
        let id = TransactionId::new(active.reference_epoch, self.store.transaction_numbers().next().await?);
        let row = Transaction::begin(id, lease_ms, self.config.leases, self.store.now_ms())
            .map_err(|error| ServiceError::Invalid(error.to_string()))?;
        let written = table.write_transaction(row, Expect::Absent).await?;
        self.engine.note(runner, written.clone());
        // The state is read after the row is there: a seal either sees the row or is seen.
        let (created, head) = tokio::join!(self.create_parts(table, &active, id), table.head());
        let open = created.is_ok()
            && head.as_ref().is_ok_and(|head| head.as_ref().is_some_and(|h| h.row.state.is_open()));
        if !open {
            self.withdraw(place, written).await?;
            created?;
            head?;
            return Err(ServiceError::Precondition("the stream is sealed"));
        }
        let named = |part: &Segment| Segment { epoch: id.epoch(), ..*part };
        Ok(Begun { id, segments: active.segments.iter().map(named).collect() })
    }

    /// The state of a stream that takes transactions, from memory if it is known.
    async fn open_head(&self, table: &StreamTable) -> Outcome<Head> {
        let known = table.last_head().filter(|head| head.state.is_open());
        let head = match known {
            Some(head) => head,
            None => table.head().await?.ok_or(StoreError::NotReady)?.row,
        };
        match head.state {
            StreamState::Creating => Err(StoreError::NotReady.into()),
            state if state.is_open() => Ok(head),
            _ => Err(ServiceError::Precondition("the stream is sealed")),
        }
    }

    async fn create_parts(
        &self,
        table: &StreamTable,
        epoch: &EpochRecord,
        id: TransactionId,
    ) -> Result<(), StoreError> {
        let create = async |part: &Segment| {
            let name = transaction_segment(&table.scope, &table.stream, part.number, id);
            self.store.segments().create_segment(&name, SegmentShape::default()).await
        };
        futures_util::future::try_join_all(epoch.segments.iter().map(create)).await?;
        Ok(())
    }

    /// Takes back a transaction that nobody has heard of.
    async fn withdraw(&self, place: &Place, written: Versioned<Transaction>) -> Outcome<()> {
        if let Ending::Start(aborting) = written.row.abort() {
            let noted = place.table.write_transaction(aborting, written.unchanged()).await?;
            self.engine.note(&place.runner, noted);
            self.engine.ask(&place.runner);
        }
        Ok(())
    }

    /// Renews the lease of a transaction.
    pub(crate) async fn ping(
        &self,
        (scope, stream): (&str, &str),
        id: TransactionId,
        lease_ms: i64,
    ) -> Outcome<Pinged> {
        check_present("scope", scope)?;
        check_present("stream", stream)?;
        loop {
            let found = match self.place_of(scope, stream).await {
                Ok(place) => self.find(&place, id).await?.map(|found| (place, found)),
                Err(ServiceError::NotFound(_)) => None,
                Err(error) => return Err(error),
            };
            let Some((place, found)) = found else {
                return Ok(match self.store.completed(scope, stream, id).await? {
                    Some(TransactionState::Committed) => Pinged::Committed,
                    Some(_) => Pinged::Aborted,
                    None => Pinged::Unknown,
                });
            };
            let renewed = match found.row.ping(lease_ms, self.config.leases, self.store.now_ms()) {
                Ping::Renewed(renewed) => renewed,
                Ping::LeaseOutOfRange(error) if lease_ms > error.max_ms => return Ok(Pinged::LeaseTooLarge),
                Ping::LeaseOutOfRange(error) => return Err(ServiceError::Invalid(error.to_string())),
                Ping::MaxExecutionTimeExceeded => return Ok(Pinged::MaxExecutionTimeExceeded),
                Ping::Committed => return Ok(Pinged::Committed),
                Ping::Aborted => return Ok(Pinged::Aborted),
            };
            if let Some(written) = self.write(&place, renewed, &found).await? {
                self.engine.note(&place.runner, written);
                return Ok(Pinged::Renewed);
            }
        }
    }

    /// Brings a transaction to an end. The answer says that this is decided; the work follows.
    pub(crate) async fn end(
        &self,
        (scope, stream): (&str, &str),
        id: TransactionId,
        end: End,
    ) -> Outcome<TransactionEnding> {
        check_present("scope", scope)?;
        check_present("stream", stream)?;
        loop {
            let place = match self.place_of(scope, stream).await {
                Err(ServiceError::NotFound(_)) => return Ok(TransactionEnding::StreamNotFound),
                other => other?,
            };
            let Some(found) = self.find(&place, id).await? else {
                return Ok(match (self.store.completed(scope, stream, id).await?, &end) {
                    (Some(TransactionState::Committed), End::Commit(_))
                    | (Some(TransactionState::Aborted), End::Abort) => TransactionEnding::Accepted,
                    (Some(_), _) => TransactionEnding::Refused,
                    (None, _) => TransactionEnding::NotFound,
                });
            };
            let now_ms = self.store.now_ms();
            let ending = match &end {
                End::Commit(mark) => {
                    let order = place.runner.next_order(now_ms);
                    found.row.commit(Commit { order, called_ms: now_ms, mark: mark.clone() })
                }
                End::Abort => found.row.abort(),
            };
            let row = match ending {
                Ending::Start(row) => row,
                Ending::Already => return Ok(TransactionEnding::Accepted),
                Ending::Refused(_) => return Ok(TransactionEnding::Refused),
            };
            self.store.work().announce(&place.runner.item).await?;
            if let Some(written) = self.write(&place, row, &found).await? {
                self.engine.note(&place.runner, written);
                self.engine.ask(&place.runner);
                return Ok(TransactionEnding::Accepted);
            }
        }
    }

    /// The state of a transaction; `None` if nothing is known of it.
    pub(crate) async fn transaction_state(
        &self,
        (scope, stream): (&str, &str),
        id: TransactionId,
    ) -> Outcome<Option<TransactionState>> {
        check_present("scope", scope)?;
        check_present("stream", stream)?;
        match self.place_of(scope, stream).await {
            Ok(place) => match place.table.transaction(id).await {
                Ok(Some(found)) => return Ok(Some(found.row.state)),
                Ok(None) => {}
                Err(error) if error.is_missing() => self.store.forget_stream(scope, stream),
                Err(error) => return Err(error.into()),
            },
            Err(ServiceError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(self.store.completed(scope, stream, id).await?)
    }

    /// Transactions of a stream that ended within the last day, newest first.
    pub(crate) async fn completed_transactions(
        &self,
        scope: &str,
        stream: &str,
    ) -> Outcome<Vec<(TransactionId, TransactionState)>> {
        check_present("scope", scope)?;
        check_present("stream", stream)?;
        let Some(found) = self.store.find_stream(scope, stream).await? else { return Ok(Vec::new()) };
        // Those of an earlier stream of the name are kept as long, but are not this stream's.
        Ok(self.store.list_completed(scope, stream, found.row.created_ms).await?)
    }

    async fn place_of(&self, scope: &str, stream: &str) -> Outcome<Place> {
        if !is_stored_name(scope) || !may_exist(stream) {
            return Err(ServiceError::NotFound("stream"));
        }
        let table = self.store.stream(scope, stream).await?;
        Ok(Place { table, runner: self.engine.runner(&WorkItem::stream(scope, stream)) })
    }

    /// A transaction that is not completed: as this process knows it, else as its row says.
    async fn find(&self, place: &Place, id: TransactionId) -> Outcome<Option<Versioned<Transaction>>> {
        if let Some(known) = place.runner.open(id) {
            return Ok(Some(known));
        }
        match place.table.transaction(id).await {
            Err(error) if error.is_missing() => {
                self.store.forget_stream(&place.table.scope, &place.table.stream);
                Ok(None)
            }
            other => Ok(other?),
        }
    }

    /// Writes a transaction that is still as it was found; `None` if it is not.
    async fn write(
        &self,
        place: &Place,
        row: Transaction,
        found: &Versioned<Transaction>,
    ) -> Outcome<Option<Versioned<Transaction>>> {
        match place.table.write_transaction(row, found.unchanged()).await {
            Ok(written) => Ok(Some(written)),
            Err(error) if error.is_conflict() || error.is_missing() => {
                place.runner.forget(found.row.id);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
