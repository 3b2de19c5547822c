//! Calls about whole streams.

use super::{Controller, ControllerError, Refusal, StreamSettings, found, refused, stream_info};
use dhara_wire::controller::{StreamCut, create_stream_status, delete_stream_status, update_stream_status};
use dhara_wire::name::{SegmentId, StreamName};
use std::collections::BTreeMap;

impl Controller {
    /// Creates `stream`; false if it is there already, whatever its settings.
    ///
    /// # Errors
    /// [`ControllerError`]; a missing scope is [`Refusal::ScopeNotFound`].
    /// # Cancel safety
    /// Dropped early: the stream may or may not be created.
    pub async fn create_stream(
        &self,
        stream: &StreamName,
        settings: &StreamSettings,
    ) -> Result<bool, ControllerError> {
        use create_stream_status::Status;
        let config = settings.to_wire(stream);
        let call = |mut service: super::Service| {
            let config = config.clone();
            async move { service.create_stream(config).await }
        };
        match self.call("createStream", call).await?.status() {
            Status::Success => Ok(true),
            Status::StreamExists => Ok(false),
            Status::ScopeNotFound => refused(stream, Refusal::ScopeNotFound),
            Status::InvalidStreamName => refused(stream, Refusal::InvalidName),
            Status::Failure => refused(stream, Refusal::Failure),
        }
    }

    /// Replaces the settings of `stream` as a whole.
    ///
    /// # Errors
    /// [`ControllerError`].
    /// # Cancel safety
    /// Dropped early: the settings may or may not be replaced.
    pub async fn update_stream(
        &self,
        stream: &StreamName,
        settings: &StreamSettings,
    ) -> Result<(), ControllerError> {
        let config = settings.to_wire(stream);
        let call = |mut service: super::Service| {
            let config = config.clone();
            async move { service.update_stream(config).await }
        };
        updated(stream, self.call("updateStream", call).await?.status())
    }

    /// Gives up everything before `cut`, which names an offset in each segment of a whole cover of the key space.
    ///
    /// # Errors
    /// [`ControllerError`]; a cut that is none, or lies before an earlier one, is [`Refusal::Failure`].
    /// # Cancel safety
    /// Dropped early: the stream may or may not be truncated.
    pub async fn truncate_stream(
        &self,
        stream: &StreamName,
        cut: &BTreeMap<SegmentId, i64>,
    ) -> Result<(), ControllerError> {
        let cut = cut.iter().map(|(id, offset)| (id.raw(), *offset)).collect();
        let request = StreamCut { stream_info: Some(stream_info(stream)), cut };
        let call = |mut service: super::Service| {
            let request = request.clone();
            async move { service.truncate_stream(request).await }
        };
        updated(stream, self.call("truncateStream", call).await?.status())
    }

    /// Ends `stream` for writers; readers go on to its end. Sealing twice is no error.
    ///
    /// # Errors
    /// [`ControllerError`].
    /// # Cancel safety
    /// Dropped early: the stream may or may not be sealed.
    pub async fn seal_stream(&self, stream: &StreamName) -> Result<(), ControllerError> {
        let info = stream_info(stream);
        let call = |mut service: super::Service| {
            let info = info.clone();
            async move { service.seal_stream(info).await }
        };
        updated(stream, self.call("sealStream", call).await?.status())
    }

    /// Deletes the sealed `stream`; false if there is none.
    ///
    /// # Errors
    /// [`ControllerError`]; a stream that still takes appends is [`Refusal::NotSealed`].
    /// # Cancel safety
    /// Dropped early: the stream may or may not be deleted.
    pub async fn delete_stream(&self, stream: &StreamName) -> Result<bool, ControllerError> {
        use delete_stream_status::Status;
        let info = stream_info(stream);
        let call = |mut service: super::Service| {
            let info = info.clone();
            async move { service.delete_stream(info).await }
        };
        match self.call("deleteStream", call).await?.status() {
            Status::Success => Ok(true),
            Status::StreamNotFound => Ok(false),
            Status::StreamNotSealed => refused(stream, Refusal::NotSealed),
            Status::Failure => refused(stream, Refusal::Failure),
        }
    }

    /// Whether `stream` exists.
    ///
    /// # Errors
    /// [`ControllerError`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn stream_exists(&self, stream: &StreamName) -> Result<bool, ControllerError> {
        let info = stream_info(stream);
        let call = |mut service: super::Service| {
            let info = info.clone();
            async move { service.check_stream_exists(info).await }
        };
        Ok(self.call("checkStreamExists", call).await?.exists)
    }

    /// The settings of `stream`.
    ///
    /// # Errors
    /// [`ControllerError`]; a missing stream is [`Refusal::StreamNotFound`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn stream_settings(&self, stream: &StreamName) -> Result<StreamSettings, ControllerError> {
        let info = stream_info(stream);
        let call = |mut service: super::Service| {
            let info = info.clone();
            async move { service.get_stream_configuration(info).await }
        };
        let config = found(stream, self.call("getStreamConfiguration", call).await)?;
        Ok(StreamSettings::from_wire(config))
    }
}

fn updated(stream: &StreamName, status: update_stream_status::Status) -> Result<(), ControllerError> {
    use update_stream_status::Status;
    match status {
        Status::Success => Ok(()),
        Status::StreamNotFound => refused(stream, Refusal::StreamNotFound),
        Status::ScopeNotFound => refused(stream, Refusal::ScopeNotFound),
        Status::StreamSealed => refused(stream, Refusal::Sealed),
        Status::Failure => refused(stream, Refusal::Failure),
    }
}
