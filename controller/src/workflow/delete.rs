//! Deletion of a stream: its segments, its mark stream, its rows, and its place in the scope last.

use std::collections::BTreeSet;

use super::create::mark_of;
use super::{Engine, Error, Progress};
use crate::record::name::{Kind, segment, stream_table};
use crate::record::scope::{Presence, StreamRow};
use crate::store::Versioned;
use crate::stream::{EpochRecord, Segment};

impl Engine {
    /// Does what is left of a deletion.
    pub(super) async fn delete(
        &self,
        scope: &str,
        stream: &str,
        found: &Versioned<StreamRow>,
    ) -> Result<Progress, Error> {
        let table = self.store.stream_table(scope, stream, found.row.id);
        let epochs = match table.head().await {
            Ok(Some(head)) => table.epochs(0..=head.row.active_epoch).await?,
            Ok(None) => Vec::new(),
            Err(error) if error.is_missing() => Vec::new(),
            Err(error) => return Err(error),
        };
        if let Some(last) = epochs.last() {
            self.store.remember_number(Kind::Stream, scope, stream, last.highest_number()).await?;
        }
        self.delete_segments(scope, stream, &epochs).await?;
        self.delete_mark(scope, stream).await?;
        self.store.forget_stream(scope, stream);
        self.store.segments().delete_table(&stream_table(found.row.id)).await?;
        self.store.remove_in_scope(scope, (Kind::Stream, stream), found.unchanged()).await?;
        Ok(Progress::More)
    }

    async fn delete_segments(&self, scope: &str, stream: &str, epochs: &[EpochRecord]) -> Result<(), Error> {
        let ids: BTreeSet<_> = epochs.iter().flat_map(|epoch| &epoch.segments).map(Segment::id).collect();
        let names: Vec<String> = ids.into_iter().map(|id| segment(scope, stream, id)).collect();
        let segments = self.store.segments();
        self.each(names.iter().map(|name| segments.delete_segment(name)).collect()).await.map(drop)
    }

    /// Deletes the stream of watermarks. It is written by this controller alone, so it need not be sealed first.
    async fn delete_mark(&self, scope: &str, stream: &str) -> Result<(), Error> {
        let Some(mark) = mark_of(stream) else { return Ok(()) };
        let Some(found) = self.store.find_stream(scope, &mark).await? else { return Ok(()) };
        let leaving = self.mark_leaving(scope, &mark, found).await?;
        Box::pin(self.delete(scope, &mark, &leaving)).await.map(drop)
    }

    /// Says in a stream's row that it is to be deleted. From here on it is no longer found.
    pub(crate) async fn mark_leaving(
        &self,
        scope: &str,
        stream: &str,
        found: Versioned<StreamRow>,
    ) -> Result<Versioned<StreamRow>, Error> {
        self.store.forget_stream(scope, stream);
        if found.row.presence == Presence::Leaving {
            return Ok(found);
        }
        let expect = found.unchanged();
        let row = StreamRow { presence: Presence::Leaving, ..found.row };
        self.store.write_in_scope(scope, (Kind::Stream, stream), row, expect).await
    }
}
