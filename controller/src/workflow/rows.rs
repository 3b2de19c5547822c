//! The rows of a stream that its workflows change, read together and written in conditional steps.

use super::Error;
use crate::record::Row;
use crate::record::name::{COMMIT, CONFIG, HEAD, SCALE, SEAL, TRUNCATION, epoch_key};
use crate::record::stream::{CommitRow, ConfigRow, Head, ScaleRow, SealRow};
use crate::segment_client::Expect;
use crate::store::{Batch, StreamTable, Versioned};
use crate::stream::{EpochRecord, StreamConfig, StreamState, TruncationRecord};

/// The rows as they were read or written last.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    /// State.
    pub(crate) head: Versioned<Head>,
    /// Configuration.
    pub(crate) config: Versioned<ConfigRow>,
    /// Pending scale.
    pub(crate) scale: Versioned<ScaleRow>,
    /// Truncation.
    pub(crate) truncation: Versioned<TruncationRecord>,
    /// Commit round.
    pub(crate) commit: Versioned<CommitRow>,
    /// Wish to be sealed.
    pub(crate) seal: Versioned<SealRow>,
}

/// A row that one workflow owns: its key and its place among the [`Rows`].
pub(crate) struct Own<R: 'static> {
    key: &'static str,
    place: fn(&mut Rows) -> &mut Versioned<R>,
}

/// The row of updates.
pub(crate) const OWN_CONFIG: Own<ConfigRow> = Own { key: CONFIG, place: |rows| &mut rows.config };
/// The row of scales.
pub(crate) const OWN_SCALE: Own<ScaleRow> = Own { key: SCALE, place: |rows| &mut rows.scale };
/// The row of truncations.
pub(crate) const OWN_TRUNCATION: Own<TruncationRecord> =
    Own { key: TRUNCATION, place: |rows| &mut rows.truncation };
/// The row of commit rounds.
pub(crate) const OWN_COMMIT: Own<CommitRow> = Own { key: COMMIT, place: |rows| &mut rows.commit };
/// The row of the seal.
pub(crate) const OWN_SEAL: Own<SealRow> = Own { key: SEAL, place: |rows| &mut rows.seal };

impl Rows {
    /// Reads the rows in one request; `None` if they have not been written yet.
    pub(crate) async fn read(stream: &StreamTable) -> Result<Option<Self>, Error> {
        let keys = [HEAD, CONFIG, SCALE, TRUNCATION, COMMIT, SEAL].map(Into::into).to_vec();
        let table = stream.table();
        let found = table.get_entries(keys).await?;
        let rows = (
            table.decode_at(&found, 0)?,
            table.decode_at(&found, 1)?,
            table.decode_at(&found, 2)?,
            table.decode_at(&found, 3)?,
            table.decode_at(&found, 4)?,
            table.decode_at(&found, 5)?,
        );
        let (Some(head), Some(config), Some(scale), Some(truncation), Some(commit), Some(seal)) = rows else {
            return Ok(None);
        };
        Ok(Some(Self { head, config, scale, truncation, commit, seal }))
    }

    /// The batch that writes the rows of a new stream, unless somebody else has.
    pub(crate) fn first(config: &StreamConfig, epoch: &EpochRecord) -> Batch {
        let head = Head { state: StreamState::Creating, active_epoch: epoch.epoch };
        Batch::new()
            .put(HEAD, &head, Expect::Absent)
            .put(CONFIG, &ConfigRow { current: config.clone(), pending: None }, Expect::Absent)
            .put(SCALE, &ScaleRow::default(), Expect::Absent)
            .put(TRUNCATION, &TruncationRecord::default(), Expect::Absent)
            .put(COMMIT, &CommitRow::default(), Expect::Absent)
            .put(SEAL, &SealRow::default(), Expect::Absent)
            .put(epoch_key(epoch.epoch), epoch, Expect::Absent)
    }

    /// Changes the state alone.
    pub(crate) async fn enter(&mut self, stream: &StreamTable, state: StreamState) -> Result<(), Error> {
        let head = Head { state, ..self.head.row };
        let versions = stream.table().write(Batch::new().put(HEAD, &head, self.head.unchanged())).await?;
        self.head = Versioned { row: head, version: versions.first().copied().unwrap_or_default() };
        stream.note_head(head);
        Ok(())
    }

    /// Writes an intent: the row of one workflow alone.
    pub(crate) async fn intend<R: Row>(
        &mut self,
        stream: &StreamTable,
        own: &Own<R>,
        row: R,
    ) -> Result<(), Error> {
        let expect = (own.place)(self).unchanged();
        let versions = stream.table().write(Batch::new().put(own.key, &row, expect)).await?;
        *(own.place)(self) = Versioned { row, version: versions.first().copied().unwrap_or_default() };
        Ok(())
    }

    /// Changes the head, the row of one workflow and further rows, all or nothing.
    pub(crate) async fn step<R: Row>(
        &mut self,
        stream: &StreamTable,
        head: Head,
        (own, row): (&Own<R>, R),
        further: Batch,
    ) -> Result<(), Error> {
        let batch = Batch::new()
            .put(HEAD, &head, self.head.unchanged())
            .put(own.key, &row, (own.place)(self).unchanged())
            .and(further);
        let versions = stream.table().write(batch).await?;
        let version = |index: usize| versions.get(index).copied().unwrap_or_default();
        self.head = Versioned { row: head, version: version(0) };
        stream.note_head(head);
        *(own.place)(self) = Versioned { row, version: version(1) };
        Ok(())
    }
}
