//! Calls about reader groups and subscribers.

use dhara_wire::codec::Uuid;
use dhara_wire::controller as proto;
use tonic::Status;

use super::Rpc;
use super::convert::{cut, stream_info, stream_name};
use crate::service::{GroupCreated, GroupDeleted, GroupUpdated, Reported, ServiceError, SubscriberReport};
use crate::stream::StreamCut;
use crate::stream::group::{GroupConfig, GroupId, GroupRecord, GroupRetention, StreamName};

impl Rpc {
    pub(super) async fn create_reader_group(
        &self,
        request: proto::ReaderGroupConfiguration,
    ) -> Result<proto::CreateReaderGroupResponse, Status> {
        use proto::create_reader_group_response::Status as Answer;
        let name = (request.scope.as_str(), request.reader_group_name.as_str());
        let id = group_id(&request.reader_group_id);
        let (status, config) = match self.service.create_group(name, id, group_config(&request)).await? {
            GroupCreated::Exists(record) => (Answer::Success, Some(group_message(name, &record))),
            GroupCreated::ScopeNotFound => (Answer::ScopeNotFound, None),
            GroupCreated::InvalidName => (Answer::InvalidRgName, None),
            GroupCreated::Failed => (Answer::Failure, None),
        };
        Ok(proto::CreateReaderGroupResponse { status: status.into(), config })
    }

    pub(super) async fn get_reader_group_config(
        &self,
        request: proto::ReaderGroupInfo,
    ) -> Result<proto::ReaderGroupConfigResponse, Status> {
        use proto::reader_group_config_response::Status as Answer;
        let name = (request.scope.as_str(), request.reader_group.as_str());
        let (status, config) = match self.service.group(name.0, name.1).await? {
            Some(record) => (Answer::Success, group_message(name, &record)),
            None => (Answer::RgNotFound, proto::ReaderGroupConfiguration::default()),
        };
        Ok(proto::ReaderGroupConfigResponse { config: Some(config), status: status.into() })
    }

    pub(super) async fn update_reader_group(
        &self,
        request: proto::ReaderGroupConfiguration,
    ) -> Result<proto::UpdateReaderGroupResponse, Status> {
        use proto::update_reader_group_response::Status as Answer;
        let name = (request.scope.as_str(), request.reader_group_name.as_str());
        let generation = request.generation;
        let known = (group_id(&request.reader_group_id), generation);
        let (status, generation) =
            match self.service.update_group(name, known, group_config(&request)).await? {
                GroupUpdated::Done(generation) => (Answer::Success, generation),
                GroupUpdated::NotFound => (Answer::RgNotFound, generation),
                GroupUpdated::Mismatch => (Answer::InvalidConfig, generation),
                GroupUpdated::Failed => (Answer::Failure, generation),
            };
        Ok(proto::UpdateReaderGroupResponse { status: status.into(), generation })
    }

    pub(super) async fn delete_reader_group(
        &self,
        request: proto::ReaderGroupInfo,
    ) -> Result<proto::DeleteReaderGroupStatus, Status> {
        use proto::delete_reader_group_status::Status as Answer;
        let id = group_id(&request.reader_group_id);
        let status = match self.service.delete_group((&request.scope, &request.reader_group), id).await? {
            GroupDeleted::Done => Answer::Success,
            GroupDeleted::NotFound => Answer::RgNotFound,
            GroupDeleted::Failed => Answer::Failure,
        };
        Ok(proto::DeleteReaderGroupStatus { status: status.into() })
    }

    pub(super) async fn list_subscribers(
        &self,
        request: proto::StreamInfo,
    ) -> Result<proto::SubscribersResponse, Status> {
        use proto::subscribers_response::Status as Answer;
        let (status, subscribers) = match self.service.subscribers(&request.scope, &request.stream).await? {
            Some(subscribers) => (Answer::Success, subscribers),
            None => (Answer::StreamNotFound, Vec::new()),
        };
        Ok(proto::SubscribersResponse { subscribers, status: status.into() })
    }

    pub(super) async fn update_subscriber_stream_cut(
        &self,
        request: proto::SubscriberStreamCut,
    ) -> Result<proto::UpdateSubscriberStatus, Status> {
        use proto::update_subscriber_status::Status as Answer;
        let stream_cut = super::required("stream cut", request.stream_cut)?;
        let (scope, stream) = stream_name(stream_cut.stream_info)?;
        let report = SubscriberReport {
            subscriber: request.subscriber,
            id: group_id(&request.reader_group_id)?,
            generation: request.generation,
            cut: cut(stream_cut.cut),
        };
        let status = match self.service.report((&scope, &stream), report).await? {
            Reported::Done => Answer::Success,
            Reported::StreamNotFound => Answer::StreamNotFound,
            Reported::SubscriberNotFound => Answer::SubscriberNotFound,
            Reported::InvalidCut => Answer::StreamCutNotValid,
            Reported::GenerationMismatch => Answer::GenerationMismatch,
        };
        Ok(proto::UpdateSubscriberStatus { status: status.into() })
    }
}

/// Reads the textual form of a UUID: groups of 8, 4, 4, 4 and 12 hexadecimal digits.
fn group_id(text: &str) -> Result<GroupId, ServiceError> {
    let lengths = text.split('-').map(str::len);
    let digits: String = text.split('-').collect();
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && lengths.eq([8, 4, 4, 4, 12]);
    let id = if plain { u128::from_str_radix(&digits, 16).ok() } else { None };
    id.map(GroupId).ok_or_else(|| ServiceError::Invalid(format!("reader group id {text:?} is no UUID")))
}

fn group_config(message: &proto::ReaderGroupConfiguration) -> Result<GroupConfig, ServiceError> {
    let cuts = |messages: &[proto::StreamCut]| {
        let entry = |message: &proto::StreamCut| {
            let info = message.stream_info.clone().unwrap_or_default();
            let entries = message.cut.iter().map(|(id, offset)| (*id, *offset));
            (StreamName { scope: info.scope, stream: info.stream }, cut(entries))
        };
        messages.iter().map(entry).collect()
    };
    let retention = GroupRetention::from_raw(message.retention_type);
    Ok(GroupConfig {
        refresh_ms: message.group_refresh_time_millis,
        checkpoint_interval_ms: message.automatic_checkpoint_interval_millis,
        checkpoints_max: message.max_outstanding_checkpoint_request,
        retention: retention.map_err(|error| ServiceError::Invalid(error.to_string()))?,
        starting: cuts(&message.starting_stream_cuts),
        ending: cuts(&message.ending_stream_cuts),
        rollover_bytes: message.rollover_size_bytes,
    })
}

/// The message of a group. Its rollover size is not told, as clients expect.
fn group_message((scope, group): (&str, &str), record: &GroupRecord) -> proto::ReaderGroupConfiguration {
    let cuts = |cuts: &std::collections::BTreeMap<StreamName, StreamCut>| {
        let message = |(name, cut): (&StreamName, &StreamCut)| proto::StreamCut {
            stream_info: Some(stream_info(&name.scope, &name.stream)),
            cut: cut.raw().collect(),
        };
        cuts.iter().map(message).collect()
    };
    let config = &record.config;
    proto::ReaderGroupConfiguration {
        scope: scope.to_owned(),
        reader_group_name: group.to_owned(),
        group_refresh_time_millis: config.refresh_ms,
        automatic_checkpoint_interval_millis: config.checkpoint_interval_ms,
        max_outstanding_checkpoint_request: config.checkpoints_max,
        retention_type: config.retention.raw(),
        generation: record.generation,
        reader_group_id: Uuid(record.id.0).to_string(),
        starting_stream_cuts: cuts(&config.starting),
        ending_stream_cuts: cuts(&config.ending),
        rollover_size_bytes: 0,
    }
}
