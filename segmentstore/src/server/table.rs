//! Requests on table segments.

use super::append::answer_or_close;
use super::connection::{Close, Connection};
use super::reply::{self, Asked, signed};
use crate::operation::{Answer, Policy, Request, SegmentKind, TableCondition, TablePut};
use crate::read::{TableRead, TableReadError, View};
use bytes::Bytes;
use dhara_stdx::budget::BytePermit;
use dhara_wire::codec::Blob;
use dhara_wire::command::{
    Command, CreateTableSegment, DeleteTableSegment, IteratorArgs, OperationUnsupported, ReadTable,
    ReadTableEntries, ReadTableEntriesDelta, ReadTableKeys, RemoveTableKeys, TableEntriesDeltaRead,
    TableEntriesRead, TableEntriesUpdated, TableKeysRead, TableKeysRemoved, TableRead as TableReadReply,
    UpdateTableEntries,
};
use dhara_wire::limits::{
    KEY_NO_VERSION, KEY_NOT_EXISTS, NULL_TABLE_SEGMENT_OFFSET, TABLE_FIXED_KEY_BYTES_MAX,
};
use std::sync::Arc;
use tracing::warn;

/// A read of a table, as it was asked.
pub(super) enum TableQuestion {
    Get(ReadTable),
    Keys(ReadTableKeys),
    Entries(ReadTableEntries),
    Delta(ReadTableEntriesDelta),
}

impl TableQuestion {
    fn asked(&self) -> (i64, &str) {
        match self {
            Self::Get(ask) => (ask.request_id, &ask.segment),
            Self::Keys(ask) => (ask.request_id, &ask.segment),
            Self::Entries(ask) => (ask.request_id, &ask.segment),
            Self::Delta(ask) => (ask.request_id, &ask.segment),
        }
    }

    async fn answer(self, table: TableRead<'_>) -> Result<Command, TableReadError> {
        match self {
            Self::Get(ReadTable { request_id, segment, keys, .. }) => {
                let entries = table.get(keys).await?;
                Ok(TableReadReply { request_id, segment, entries }.into())
            }
            Self::Keys(ReadTableKeys { request_id, segment, suggested_key_count, args, .. }) => {
                let IteratorArgs { continuation_token, from_key, to_key, .. } = args;
                let page =
                    table.iterate(&continuation_token, &from_key, &to_key, suggested_key_count).await?;
                let keys: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
                let token = keys.last().map_or(continuation_token, |key| key.key.clone());
                Ok(TableKeysRead { request_id, segment, keys, continuation_token: Blob(token) }.into())
            }
            Self::Entries(ReadTableEntries { request_id, segment, suggested_entry_count, args, .. }) => {
                let IteratorArgs { continuation_token, from_key, to_key, .. } = args;
                let page =
                    table.iterate(&continuation_token, &from_key, &to_key, suggested_entry_count).await?;
                let entries = page.entries;
                let token = entries.last().map_or(continuation_token, |entry| entry.key.key.clone());
                Ok(TableEntriesRead { request_id, segment, entries, continuation_token: Blob(token) }.into())
            }
            Self::Delta(ReadTableEntriesDelta {
                request_id,
                segment,
                from_position,
                suggested_entry_count,
                ..
            }) => {
                let page = table.delta(from_position, suggested_entry_count).await?;
                Ok(TableEntriesDeltaRead {
                    request_id,
                    segment,
                    entries: page.entries,
                    // No update is ever compacted away.
                    should_clear: false,
                    reached_end: page.reached_end,
                    last_position: signed(page.position),
                }
                .into())
            }
        }
    }
}

impl Connection {
    pub(super) async fn create_table(&mut self, command: CreateTableSegment) -> Result<(), Close> {
        let CreateTableSegment { request_id, segment, key_length, rollover_size_bytes, .. } = command;
        if segment.is_empty() {
            self.illegal(request_id, segment, "segment name is empty");
            return Ok(());
        }
        if key_length > TABLE_FIXED_KEY_BYTES_MAX {
            self.illegal(request_id, segment, "key length is above 256");
            return Ok(());
        }
        let kind = match u16::try_from(key_length) {
            Ok(key_bytes) if key_bytes > 0 => SegmentKind::FixedTable { key_bytes },
            _ => SegmentKind::HashTable,
        };
        let (name, container) = self.container_of(&segment)?;
        let rollover_bytes = rollover_size_bytes.max(0);
        let request = Request::Create { name, kind, policy: Policy::default(), rollover_bytes };
        self.create(&container, request, Asked { request_id, segment, offset: -1 }).await
    }

    pub(super) async fn delete_table(&mut self, command: DeleteTableSegment) -> Result<(), Close> {
        let DeleteTableSegment { request_id, segment, must_be_empty, .. } = command;
        self.delete(request_id, segment, true, must_be_empty).await
    }

    /// `permit` is for the memory of the entries, until the reply.
    pub(super) async fn update_table(
        &mut self,
        command: UpdateTableEntries,
        permit: Option<BytePermit>,
    ) -> Result<(), Close> {
        let UpdateTableEntries { request_id, segment, entries, table_segment_offset, .. } = command;
        let mut puts = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(condition) = condition(entry.key.version) else {
                self.illegal(request_id, segment, "key version is below -1");
                return Ok(());
            };
            puts.push(TablePut { key: entry.key.key, value: entry.value, condition });
        }
        let (name, container) = self.container_of(&segment)?;
        let request =
            Request::TableUpdate { name, puts, expected_length: expected_length(table_segment_offset) };
        let asked = Asked { request_id, segment, offset: table_segment_offset };
        self.ask(&container, request, asked, move |answer, _| {
            drop(permit);
            match answer {
                Answer::TableUpdated(updated_versions) => {
                    Some(TableEntriesUpdated { request_id, updated_versions }.into())
                }
                _ => None,
            }
        })
        .await
    }

    /// `permit` is for the memory of the keys, until the reply.
    pub(super) async fn remove_table_keys(
        &mut self,
        command: RemoveTableKeys,
        permit: Option<BytePermit>,
    ) -> Result<(), Close> {
        let RemoveTableKeys { request_id, segment, keys, table_segment_offset, .. } = command;
        let mut conditional: Vec<(Bytes, TableCondition)> = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(condition) = condition(key.version) else {
                self.illegal(request_id, segment, "key version is below -1");
                return Ok(());
            };
            conditional.push((key.key, condition));
        }
        let (name, container) = self.container_of(&segment)?;
        let request = Request::TableRemove {
            name,
            keys: conditional,
            expected_length: expected_length(table_segment_offset),
        };
        let asked = Asked { request_id, segment, offset: table_segment_offset };
        self.ask(&container, request, asked, move |_, Asked { request_id, segment, .. }| {
            drop(permit);
            Some(TableKeysRemoved { request_id, segment }.into())
        })
        .await
    }

    /// Reads a table in a task of its own, so that other requests of the connection go on. `permit` is for the memory of what
    /// was asked, until the reply.
    pub(super) fn read_table(
        &mut self,
        question: TableQuestion,
        permit: Option<BytePermit>,
    ) -> Result<(), Close> {
        let (request_id, segment) = question.asked();
        let segment = segment.to_owned();
        let (container, view) = self.find(&segment)?;
        let Some(view) = view else {
            self.missing(request_id, segment, -1);
            return Ok(());
        };
        let (outbox, places) = (Arc::clone(&self.outbox), Arc::clone(&self.table_reads));
        drop(self.reads.spawn(async move {
            // Never closed, so there is a place in the end.
            let _place = places.acquire_owned().await;
            let command = answer(question, &view, container.index()).await;
            outbox.room().await;
            match command {
                Ok(command) => outbox.push_large(|out| command.encode(out)),
                Err(error) => answer_or_close(&outbox, failed(request_id, segment, &error)),
            }
            drop(permit);
        }));
        Ok(())
    }
}

async fn answer(
    question: TableQuestion,
    view: &View,
    index: &crate::index::Index,
) -> Result<Command, TableReadError> {
    question.answer(TableRead::new(view, index)?).await
}

fn failed(request_id: i64, segment: String, error: &TableReadError) -> Option<Command> {
    match error {
        TableReadError::Illegal(why) => Some(reply::illegal(request_id, segment, why)),
        TableReadError::Unsupported(operation) => Some(
            OperationUnsupported {
                request_id,
                operation_name: (*operation).to_owned(),
                server_stack_trace: String::new(),
            }
            .into(),
        ),
        error => {
            warn!(segment, %error, "read table");
            None
        }
    }
}

/// A key version as a condition; `None` for one that the protocol does not have.
fn condition(version: i64) -> Option<TableCondition> {
    match version {
        KEY_NO_VERSION => Some(TableCondition::Any),
        KEY_NOT_EXISTS => Some(TableCondition::Absent),
        version if version >= 0 => Some(TableCondition::Version(version)),
        _ => None,
    }
}

fn expected_length(offset: i64) -> Option<i64> {
    Some(offset).filter(|offset| *offset != NULL_TABLE_SEGMENT_OFFSET)
}
