//! Calls about key-value tables and about the times of writers.

use dhara_wire::controller as proto;
use tonic::Status;

use super::Rpc;
use super::convert::{cut, segment_ranges, stream_name, token_text};
use crate::record::name::Kind;
use crate::record::scope::KeyValueTableConfig;
use crate::service::{TableCreation, TableDeletion};
use crate::stream::watermark::Note;

impl Rpc {
    pub(super) async fn create_key_value_table(
        &self,
        request: proto::KeyValueTableConfig,
    ) -> Result<proto::CreateKeyValueTableStatus, Status> {
        use proto::create_key_value_table_status::Status as Answer;
        let config = KeyValueTableConfig {
            partitions: u32::try_from(request.partition_count).unwrap_or_default(),
            primary_key_bytes: request.primary_key_length,
            secondary_key_bytes: request.secondary_key_length,
            rollover_bytes: request.rollover_size_bytes,
        };
        let status = match self.service.create_table((&request.scope, &request.kvt_name), config).await? {
            TableCreation::Created => Answer::Success,
            TableCreation::Exists => Answer::TableExists,
            TableCreation::ScopeNotFound => Answer::ScopeNotFound,
            TableCreation::InvalidName => Answer::InvalidTableName,
            TableCreation::Failed => Answer::Failure,
        };
        Ok(proto::CreateKeyValueTableStatus { status: status.into() })
    }

    pub(super) async fn get_current_segments_key_value_table(
        &self,
        request: proto::KeyValueTableInfo,
    ) -> Result<proto::SegmentRanges, Status> {
        let segments = self.service.table_segments(&request.scope, &request.kvt_name).await?;
        Ok(segment_ranges(&request.scope, &request.kvt_name, &segments))
    }

    pub(super) async fn list_key_value_tables_in_scope(
        &self,
        request: proto::KvTablesInScopeRequest,
    ) -> Result<proto::KvTablesInScopeResponse, Status> {
        use proto::kv_tables_in_scope_response::Status as Answer;
        let scope = request.scope.unwrap_or_default().scope;
        let after = token_text(request.continuation_token);
        let page = self.service.list_in_scope(&scope, Kind::Table, &after).await?;
        let status = if page.is_some() { Answer::Success } else { Answer::ScopeNotFound };
        let (names, next) = page.map(|page| (page.names, page.token)).unwrap_or_default();
        let info = |kvt_name| proto::KeyValueTableInfo { scope: scope.clone(), kvt_name };
        Ok(proto::KvTablesInScopeResponse {
            kvtables: names.into_iter().map(info).collect(),
            continuation_token: Some(proto::ContinuationToken { token: next }),
            status: status.into(),
        })
    }

    pub(super) async fn get_key_value_table_configuration(
        &self,
        request: proto::KeyValueTableInfo,
    ) -> Result<proto::KeyValueTableConfigResponse, Status> {
        use proto::key_value_table_config_response::Status as Answer;
        let found = self.service.table_config(&request.scope, &request.kvt_name).await?;
        let status = if found.is_some() { Answer::Success } else { Answer::TableNotFound };
        let message = |config: KeyValueTableConfig| proto::KeyValueTableConfig {
            scope: request.scope.clone(),
            kvt_name: request.kvt_name.clone(),
            partition_count: i32::try_from(config.partitions).unwrap_or(i32::MAX),
            primary_key_length: config.primary_key_bytes,
            secondary_key_length: config.secondary_key_bytes,
            rollover_size_bytes: config.rollover_bytes,
        };
        let config = Some(found.map(message).unwrap_or_default());
        Ok(proto::KeyValueTableConfigResponse { config, status: status.into() })
    }

    pub(super) async fn delete_key_value_table(
        &self,
        request: proto::KeyValueTableInfo,
    ) -> Result<proto::DeleteKvTableStatus, Status> {
        use proto::delete_kv_table_status::Status as Answer;
        let status = match self.service.delete_table(&request.scope, &request.kvt_name).await? {
            TableDeletion::Deleted => Answer::Success,
            TableDeletion::NotFound => Answer::TableNotFound,
            TableDeletion::Failed => Answer::Failure,
        };
        Ok(proto::DeleteKvTableStatus { status: status.into() })
    }

    pub(super) async fn note_timestamp_from_writer(
        &self,
        request: proto::TimestampFromWriter,
    ) -> Result<proto::TimestampResponse, Status> {
        use proto::timestamp_response::Status as Answer;
        let position = super::required("position", request.position)?;
        let (scope, stream) = stream_name(position.stream_info)?;
        let note = (cut(position.cut), request.timestamp);
        let result = match self.service.note_time((&scope, &stream), &request.writer, note).await? {
            Note::Moved(_) | Note::Unchanged => Answer::Success,
            Note::InvalidTime => Answer::InvalidTime,
            Note::InvalidPosition => Answer::InvalidPosition,
        };
        Ok(proto::TimestampResponse { result: result.into() })
    }

    pub(super) async fn remove_writer(
        &self,
        request: proto::RemoveWriterRequest,
    ) -> Result<proto::RemoveWriterResponse, Status> {
        use proto::remove_writer_response::Status as Answer;
        let (scope, stream) = stream_name(request.stream)?;
        let known = self.service.remove_writer(&scope, &stream, &request.writer).await?;
        let result = if known { Answer::Success } else { Answer::UnknownWriter };
        Ok(proto::RemoveWriterResponse { result: result.into() })
    }
}
