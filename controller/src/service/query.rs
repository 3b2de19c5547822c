//! Questions about the segments of a stream.

use super::{Outcome, Service, ServiceError, check_present, may_exist};
use crate::store::Opened;
use crate::stream::name::is_stored_name;
use crate::stream::truncation::epochs_between;
use crate::stream::{
    EpochRecord, Epochs, PlacedCut, Segment, SegmentId, StreamCut, StreamState, Successor, TruncationRecord,
    ValidCut, segments_between, successors,
};

/// Segments with their ranges, ordered by range.
pub(crate) type Ranges = Vec<Segment>;

impl Service {
    /// Finds a stream.
    pub(super) async fn open(&self, scope: &str, stream: &str) -> Outcome<Opened> {
        check_present("scope", scope)?;
        check_present("stream", stream)?;
        if !is_stored_name(scope) || !may_exist(stream) {
            return Err(ServiceError::NotFound("stream"));
        }
        Ok(self.store.open(scope, stream).await?)
    }

    /// Finds a stream that has its segments.
    pub(super) async fn open_created(&self, scope: &str, stream: &str) -> Outcome<Opened> {
        let opened = self.open(scope, stream).await?;
        if opened.head.row.state.is_queryable() {
            Ok(opened)
        } else {
            Err(crate::store::StoreError::NotReady.into())
        }
    }

    /// Segments that can be written; none if the stream is sealed.
    pub(crate) async fn current_segments(&self, scope: &str, stream: &str) -> Outcome<Ranges> {
        let opened = self.open_created(scope, stream).await?;
        let head = opened.head.row;
        if head.state == StreamState::Sealed {
            return Ok(Vec::new());
        }
        Ok(opened.table.epoch(head.active_epoch).await?.segments.clone())
    }

    /// Segments of one epoch.
    pub(crate) async fn epoch_segments(&self, scope: &str, stream: &str, epoch: i32) -> Outcome<Ranges> {
        let opened = self.open_created(scope, stream).await?;
        if epoch < 0 {
            return Err(ServiceError::Invalid(format!("epoch {epoch} is negative")));
        }
        if epoch > opened.head.row.active_epoch {
            return Err(ServiceError::NotFound("epoch"));
        }
        Ok(opened.table.epoch(epoch).await?.segments.clone())
    }

    /// The head of a stream: segments and offsets where its data begins.
    pub(crate) async fn head_segments(&self, scope: &str, stream: &str) -> Outcome<StreamCut> {
        let opened = self.open_created(scope, stream).await?;
        head_cut(&opened).await
    }

    /// Successors of a segment, none if it is active or ended with its stream.
    pub(crate) async fn successors(
        &self,
        scope: &str,
        stream: &str,
        id: SegmentId,
    ) -> Outcome<Vec<Successor>> {
        let opened = self.open_created(scope, stream).await?;
        if id.epoch() < 0 || id.epoch() > opened.head.row.active_epoch {
            return Err(ServiceError::NotFound("segment"));
        }
        let sealed = opened.table.sealed(id).await?;
        let Some(sealed) = sealed else {
            let created = opened.table.epoch(id.epoch()).await?;
            return created.segment(id).map(|_active| Vec::new()).ok_or(ServiceError::NotFound("segment"));
        };
        let before = opened.table.epoch(sealed.row.epoch - 1).await?;
        let after = opened.table.epoch(sealed.row.epoch).await?;
        let segment = before.segment(id).ok_or(ServiceError::NotFound("segment"))?;
        Ok(successors(segment, &after, &before))
    }

    /// Segments with data between two cuts, ordered by id.
    pub(crate) async fn between(
        &self,
        scope: &str,
        stream: &str,
        (from, to): (StreamCut, StreamCut),
    ) -> Outcome<Vec<SegmentId>> {
        let opened = self.open_created(scope, stream).await?;
        if from.0.is_empty() && to.0.is_empty() {
            return Err(ServiceError::Invalid(String::from("both stream cuts are empty")));
        }
        let active = opened.head.row.active_epoch;
        let from = if from.0.is_empty() {
            PlacedCut::start_of(&*opened.table.epoch(0).await?)
        } else {
            self.place(&opened, &from).await?
        };
        let to = if to.0.is_empty() {
            PlacedCut::end_of(&*opened.table.epoch(active).await?)
        } else {
            self.place(&opened, &to).await?
        };
        let records = opened.table.epochs(epochs_between(&from, &to)).await?;
        let between = segments_between(&from, &to, Epochs::new(&records))
            .map_err(|error| ServiceError::Invalid(error.to_string()))?;
        Ok(between.iter().map(Segment::id).collect())
    }

    /// Whether a segment can be written.
    pub(crate) async fn is_active(&self, scope: &str, stream: &str, id: SegmentId) -> Outcome<bool> {
        Ok(self.current_segments(scope, stream).await?.iter().any(|segment| segment.id() == id))
    }

    /// Whether a cut makes sense.
    pub(crate) async fn is_valid_cut(&self, scope: &str, stream: &str, cut: StreamCut) -> Outcome<bool> {
        let opened = self.open_created(scope, stream).await?;
        Ok(self.check_cut(&opened, &cut).await?.is_some())
    }

    /// Checks a cut; `None` if it makes no sense.
    pub(super) async fn check_cut(&self, opened: &Opened, cut: &StreamCut) -> Outcome<Option<ValidCut>> {
        let Ok(range) = cut.epochs(opened.head.row.active_epoch) else { return Ok(None) };
        let records = opened.table.epochs(range).await?;
        Ok(cut.check(Epochs::new(&records)).ok())
    }

    async fn place(&self, opened: &Opened, cut: &StreamCut) -> Outcome<PlacedCut> {
        let invalid = |error: crate::stream::CutError| ServiceError::Invalid(error.to_string());
        let range = cut.epochs(opened.head.row.active_epoch).map_err(invalid)?;
        let records: Vec<EpochRecord> = opened.table.epochs(range).await?;
        cut.place(Epochs::new(&records)).map_err(invalid)
    }
}

/// The cut at which the data of a stream begins.
async fn head_cut(opened: &Opened) -> Outcome<StreamCut> {
    let record = opened.table.truncation().await?.map(|found| found.row).unwrap_or_default();
    head_of(opened, &record).await
}

/// The cut at which the data of a stream with this truncation begins.
pub(super) async fn head_of(opened: &Opened, record: &TruncationRecord) -> Outcome<StreamCut> {
    if record.cut.0.is_empty() {
        Ok(ValidCut::start_of(&*opened.table.epoch(0).await?).to_cut())
    } else {
        Ok(record.cut.clone())
    }
}
