//! What an operator does to scopes and streams, from the controller's calls and the stores' answers.

use crate::controller::{ControllerError, Refusal, SegmentWithRange, StreamSettings};
use crate::core::Core;
use crate::segment::{RequestError, SegmentState};
use dhara_wire::name::{SegmentId, StreamName};
use dhara_wire::range::KeyRange;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Pauses between questions whether a scale is done.
const SCALE_PAUSE_MIN: Duration = Duration::from_millis(10);
const SCALE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Requests in flight at once.
const REQUESTS_MAX: usize = 16;

/// Creates, changes and lists scopes and streams.
#[derive(Clone, Debug)]
pub struct Admin {
    core: Arc<Core>,
}

/// A stream as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamInfo {
    /// Its settings.
    pub settings: StreamSettings,
    /// Whether it takes no more events.
    pub sealed: bool,
    /// The segments that take events, by range.
    pub segments: Vec<SegmentInfo>,
    /// Offsets of its head: of each segment that is read first, −1 for one whose predecessors come first.
    pub head: BTreeMap<SegmentId, i64>,
}

/// A segment as it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentInfo {
    /// The segment and its keys.
    pub segment: SegmentWithRange,
    /// Where it stands; `None` if its store does not have it.
    pub state: Option<SegmentState>,
}

impl Admin {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Creates `scope`; false if it is there already.
    ///
    /// # Errors
    /// [`RequestError::Controller`].
    /// # Cancel safety
    /// Dropped early: the scope may or may not be created.
    pub async fn create_scope(&self, scope: &str) -> Result<bool, RequestError> {
        Ok(self.core.controller.create_scope(scope).await?)
    }

    /// Deletes the empty `scope`; false if there is none.
    ///
    /// # Errors
    /// [`RequestError::Controller`]; a scope with streams is refused.
    /// # Cancel safety
    /// Dropped early: the scope may or may not be deleted.
    pub async fn delete_scope(&self, scope: &str) -> Result<bool, RequestError> {
        Ok(self.core.controller.delete_scope(scope).await?)
    }

    /// Whether `scope` exists.
    ///
    /// # Errors
    /// [`RequestError::Controller`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn scope_exists(&self, scope: &str) -> Result<bool, RequestError> {
        Ok(self.core.controller.scope_exists(scope).await?)
    }

    /// All scopes, by name.
    ///
    /// # Errors
    /// [`RequestError::Controller`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn scopes(&self) -> Result<Vec<String>, RequestError> {
        let mut scopes = Vec::new();
        let mut token = String::new();
        loop {
            let page = self.core.controller.list_scopes(&token).await?;
            if page.items.is_empty() {
                scopes.sort();
                return Ok(scopes);
            }
            scopes.extend(page.items);
            token = page.token;
        }
    }

    /// The streams of `scope`, by name; only those that carry `tag` if there is one. The server's own, whose names
    /// begin with `_`, are among them.
    ///
    /// # Errors
    /// [`RequestError::Controller`]; a missing scope is refused.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn streams(&self, scope: &str, tag: Option<&str>) -> Result<Vec<StreamName>, RequestError> {
        let mut streams = Vec::new();
        let mut token = String::new();
        loop {
            let page = self.core.controller.list_streams(scope, tag, &token).await?;
            if page.items.is_empty() {
                streams.sort();
                return Ok(streams);
            }
            streams.extend(page.items);
            token = page.token;
        }
    }

    /// Creates `stream`; false if it is there already, whatever its settings.
    ///
    /// # Errors
    /// [`RequestError::Controller`]; a missing scope is refused.
    /// # Cancel safety
    /// Dropped early: the stream may or may not be created.
    pub async fn create_stream(
        &self,
        stream: &StreamName,
        settings: &StreamSettings,
    ) -> Result<bool, RequestError> {
        Ok(self.core.controller.create_stream(stream, settings).await?)
    }

    /// Replaces the settings of `stream` as a whole.
    ///
    /// # Errors
    /// [`RequestError::Controller`].
    /// # Cancel safety
    /// Dropped early: the settings may or may not be replaced.
    pub async fn update_stream(
        &self,
        stream: &StreamName,
        settings: &StreamSettings,
    ) -> Result<(), RequestError> {
        Ok(self.core.controller.update_stream(stream, settings).await?)
    }

    /// Ends `stream` for writers; sealing twice is no error.
    ///
    /// # Errors
    /// [`RequestError::Controller`].
    /// # Cancel safety
    /// Dropped early: the stream may or may not be sealed.
    pub async fn seal_stream(&self, stream: &StreamName) -> Result<(), RequestError> {
        Ok(self.core.controller.seal_stream(stream).await?)
    }

    /// Deletes the sealed `stream`; false if there is none.
    ///
    /// # Errors
    /// [`RequestError::Controller`]; a stream that is not sealed is refused.
    /// # Cancel safety
    /// Dropped early: the stream may or may not be deleted.
    pub async fn delete_stream(&self, stream: &StreamName) -> Result<bool, RequestError> {
        Ok(self.core.controller.delete_stream(stream).await?)
    }

    /// Gives up everything before `cut`.
    ///
    /// # Errors
    /// [`RequestError::Controller`].
    /// # Cancel safety
    /// Dropped early: the stream may or may not be truncated.
    pub async fn truncate_stream(
        &self,
        stream: &StreamName,
        cut: &BTreeMap<SegmentId, i64>,
    ) -> Result<(), RequestError> {
        Ok(self.core.controller.truncate_stream(stream, cut).await?)
    }

    /// The cut after everything that is in `stream` now.
    ///
    /// # Errors
    /// [`RequestError::Controller`] or [`RequestError::Segment`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn tail_cut(&self, stream: &StreamName) -> Result<BTreeMap<SegmentId, i64>, RequestError> {
        let segments = self.segments(stream).await?;
        let offset = |info: &SegmentInfo| (info.segment.id, info.state.map_or(0, |state| state.length));
        Ok(segments.iter().map(offset).collect())
    }

    /// Everything there is to know about `stream`.
    ///
    /// # Errors
    /// [`RequestError::Controller`] or [`RequestError::Segment`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn stream_info(&self, stream: &StreamName) -> Result<StreamInfo, RequestError> {
        let settings = self.core.controller.stream_settings(stream).await?;
        let segments = self.segments(stream).await?;
        let head = self.core.controller.head_cut(stream).await?;
        Ok(StreamInfo { settings, sealed: segments.is_empty(), segments, head })
    }

    /// Replaces the segments `sealed` of `stream` by new ones with `ranges`, and waits until that is done.
    ///
    /// # Errors
    /// [`RequestError::Controller`]; segments that take no events, or ranges of other keys, are refused.
    /// # Cancel safety
    /// Dropped early: the scale may or may not go on.
    pub async fn scale_stream(
        &self,
        stream: &StreamName,
        sealed: &[SegmentId],
        ranges: &[KeyRange],
    ) -> Result<(), RequestError> {
        let controller = &self.core.controller;
        let epoch = controller.start_scale(stream, sealed, ranges).await?;
        let mut pause = SCALE_PAUSE_MIN;
        while !controller.scale_is_done(stream, epoch).await? {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SCALE_PAUSE_MAX);
        }
        Ok(())
    }

    /// Replaces all segments of `stream` by `count` of the same width, and waits until that is done.
    ///
    /// # Errors
    /// [`RequestError::Controller`]; a sealed stream is refused.
    /// # Cancel safety
    /// Dropped early: the scale may or may not go on.
    pub async fn scale_stream_to(&self, stream: &StreamName, count: u32) -> Result<(), RequestError> {
        let current = self.core.controller.current_segments(stream).await?;
        if current.is_empty() {
            let subject = stream.to_string();
            return Err(ControllerError::Refused { subject, refusal: Refusal::Sealed }.into());
        }
        let sealed: Vec<_> = current.iter().map(|segment| segment.id).collect();
        self.scale_stream(stream, &sealed, &KeyRange::ALL.split(count)).await
    }

    async fn segments(&self, stream: &StreamName) -> Result<Vec<SegmentInfo>, RequestError> {
        let current = self.core.controller.current_segments(stream).await?;
        let asked = stream::iter(current).map(|segment| async move {
            let state = self.core.segments.state(&stream.segment(segment.id)).await?;
            Ok::<_, RequestError>(SegmentInfo { segment, state })
        });
        asked.buffered(REQUESTS_MAX).try_collect().await
    }
}
