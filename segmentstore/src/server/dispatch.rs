//! From a decoded command to the room that answers it.

use super::append::{answer_or_close, send};
use super::connection::{Close, Connection};
use super::reply::{self, Asked, signed};
use super::table::TableQuestion;
use crate::container::ContainerHandle;
use crate::operation::{Answer, Operation, Policy, Refusal, Request, SegmentKind};
use dhara_stdx::budget::BytePermit;
use dhara_wire::command::{
    ChunkInfo, Command, CreateSegment, DeleteSegment, FlushToStorage, GetSegmentAttribute, Hello, KeepAlive,
    ListStorageChunks, MergeSegments, MergeSegmentsBatch, MergedSource, SealSegment, SegmentAttribute,
    SegmentAttributeUpdated, SegmentCreated, SegmentDeleted, SegmentPolicyUpdated, SegmentSealed,
    SegmentTruncated, SegmentsBatchMerged, SegmentsMerged, StorageChunksListed, StorageFlushed,
    TruncateSegment, UpdateSegmentAttribute, UpdateSegmentPolicy,
};
use dhara_wire::limits::{OLDEST_WIRE_VERSION, WIRE_VERSION};
use std::sync::Arc;

impl Connection {
    pub(super) async fn dispatch(
        &mut self,
        command: Command,
        permit: Option<BytePermit>,
    ) -> Result<(), Close> {
        match command {
            Command::AppendBlock(command) => self.append_block(command, permit),
            Command::AppendBlockEnd(command) => self.append_block_end(command, permit).await,
            Command::ConditionalAppend(command) => self.conditional_append(command, permit).await,
            Command::ConditionalBlockEnd(command) => self.conditional_block_end(command, permit).await,
            Command::SetupAppend(command) => self.setup_append(command).await,
            Command::CreateTransientSegment(command) => self.create_transient(command).await,
            Command::Hello(command) => self.hello(&command),
            Command::KeepAlive(_) => {
                self.outbox.push(|out| KeepAlive {}.encode(out));
                Ok(())
            }
            Command::ReadSegment(command) => self.read_segment(command),
            Command::GetStreamSegmentInfo(command) => self.segment_info(command),
            Command::LocateOffset(command) => self.locate_offset(command),
            Command::GetTableSegmentInfo(command) => self.table_info(command),
            Command::ReadTable(command) => self.read_table(TableQuestion::Get(command), permit),
            Command::ReadTableKeys(command) => self.read_table(TableQuestion::Keys(command), permit),
            Command::ReadTableEntries(command) => self.read_table(TableQuestion::Entries(command), permit),
            Command::ReadTableEntriesDelta(command) => self.read_table(TableQuestion::Delta(command), permit),
            Command::UpdateTableEntries(command) => self.update_table(command, permit).await,
            Command::RemoveTableKeys(command) => self.remove_table_keys(command, permit).await,
            Command::CreateTableSegment(command) => self.create_table(command).await,
            Command::DeleteTableSegment(command) => self.delete_table(command).await,
            command => self.change_segment(command).await,
        }
    }

    async fn change_segment(&mut self, command: Command) -> Result<(), Close> {
        match command {
            Command::CreateSegment(command) => self.create_segment(command).await,
            Command::SealSegment(SealSegment { request_id, segment, .. }) => {
                let (name, container) = self.container_of(&segment)?;
                let asked = Asked { request_id, segment, offset: -1 };
                self.ask(&container, Request::Seal { name }, asked, |_, asked| {
                    Some(SegmentSealed { request_id: asked.request_id, segment: asked.segment }.into())
                })
                .await
            }
            Command::DeleteSegment(DeleteSegment { request_id, segment, .. }) => {
                self.delete(request_id, segment, false, false).await
            }
            Command::TruncateSegment(TruncateSegment { request_id, segment, truncation_offset, .. }) => {
                let (name, container) = self.container_of(&segment)?;
                let asked = Asked { request_id, segment, offset: truncation_offset };
                let request = Request::Truncate { name, offset: truncation_offset };
                self.ask(&container, request, asked, |_, asked| {
                    Some(SegmentTruncated { request_id: asked.request_id, segment: asked.segment }.into())
                })
                .await
            }
            Command::UpdateSegmentPolicy(command) => self.update_policy(command).await,
            Command::GetSegmentAttribute(command) => self.get_attribute(command).await,
            Command::UpdateSegmentAttribute(command) => self.update_attribute(command).await,
            Command::MergeSegments(command) => self.merge(command).await,
            Command::MergeSegmentsBatch(command) => self.merge_batch(command).await,
            Command::FlushToStorage(command) => self.flush_to_storage(&command).await,
            Command::ReadLoad(command) => self.read_load(&command),
            Command::ListStorageChunks(command) => self.list_storage_chunks(command),
            _ => Err(Close("a client may not send this")),
        }
    }

    /// Answers every Hello with ours; a peer without a common version is closed after it.
    fn hello(&mut self, hello: &Hello) -> Result<(), Close> {
        self.outbox.push(|out| {
            Hello { high_version: WIRE_VERSION, low_version: OLDEST_WIRE_VERSION }.encode(out);
        });
        if hello.low_version > WIRE_VERSION || hello.high_version < OLDEST_WIRE_VERSION {
            return Err(Close("there is no common wire version"));
        }
        Ok(())
    }

    /// The canonical name of a segment and its container.
    pub(super) fn container_of(&self, segment: &str) -> Result<(String, ContainerHandle), Close> {
        let name = dhara_wire::name::canonical(segment).into_owned();
        let container = self.shared.containers.of(&name).ok_or(Close("the container is not open"))?;
        Ok((name, container))
    }

    /// Hands a request to its container; `success` makes the reply of an answer, or closes by making none.
    pub(super) async fn ask(
        &self,
        container: &ContainerHandle,
        request: Request,
        asked: Asked,
        success: impl FnOnce(Answer, Asked) -> Option<Command> + Send + 'static,
    ) -> Result<(), Close> {
        let outbox = Arc::clone(&self.outbox);
        let call = move |outcome: Result<Answer, Refusal>| {
            let command = match outcome {
                Ok(answer) => success(answer, asked),
                Err(refusal) => reply::refused(asked, &refusal),
            };
            answer_or_close(&outbox, command);
        };
        send(container, Operation::Call(request, Box::new(call))).await
    }

    async fn create_segment(&mut self, command: CreateSegment) -> Result<(), Close> {
        let CreateSegment { request_id, segment, target_rate, scale_type, rollover_size_bytes, .. } = command;
        if segment.is_empty() {
            self.illegal(request_id, segment, "segment name is empty");
            return Ok(());
        }
        let (name, container) = self.container_of(&segment)?;
        let request = Request::Create {
            name,
            kind: SegmentKind::Stream,
            policy: Policy { scale_type, target_rate },
            rollover_bytes: rollover_size_bytes.max(0),
        };
        self.create(&container, request, Asked { request_id, segment, offset: -1 }).await
    }

    pub(super) async fn create(
        &self,
        container: &ContainerHandle,
        request: Request,
        asked: Asked,
    ) -> Result<(), Close> {
        self.ask(container, request, asked, |_, Asked { request_id, segment, .. }| {
            Some(SegmentCreated { request_id, segment }.into())
        })
        .await
    }

    pub(super) async fn delete(
        &self,
        request_id: i64,
        segment: String,
        table: bool,
        must_be_empty: bool,
    ) -> Result<(), Close> {
        let (name, container) = self.container_of(&segment)?;
        let request = Request::Delete { name, table, must_be_empty };
        let asked = Asked { request_id, segment, offset: -1 };
        self.ask(&container, request, asked, |_, Asked { request_id, segment, .. }| {
            Some(SegmentDeleted { request_id, segment }.into())
        })
        .await
    }

    async fn update_policy(&self, command: UpdateSegmentPolicy) -> Result<(), Close> {
        let UpdateSegmentPolicy { request_id, segment, target_rate, scale_type, .. } = command;
        let (name, container) = self.container_of(&segment)?;
        let request = Request::UpdatePolicy { name, policy: Policy { scale_type, target_rate } };
        let asked = Asked { request_id, segment, offset: -1 };
        self.ask(&container, request, asked, |_, Asked { request_id, segment, .. }| {
            Some(SegmentPolicyUpdated { request_id, segment }.into())
        })
        .await
    }

    async fn get_attribute(&self, command: GetSegmentAttribute) -> Result<(), Close> {
        let GetSegmentAttribute { request_id, segment, attribute_id, .. } = command;
        let (name, container) = self.container_of(&segment)?;
        let request = Request::GetAttribute { name, attribute: attribute_id };
        let asked = Asked { request_id, segment, offset: -1 };
        self.ask(&container, request, asked, move |answer, _| match answer {
            Answer::Attribute(value) => Some(SegmentAttribute { request_id, value }.into()),
            _ => None,
        })
        .await
    }

    async fn update_attribute(&self, command: UpdateSegmentAttribute) -> Result<(), Close> {
        let UpdateSegmentAttribute { request_id, segment, attribute_id, new_value, expected_value, .. } =
            command;
        let (name, container) = self.container_of(&segment)?;
        let request =
            Request::UpdateAttribute { name, attribute: attribute_id, new_value, expected: expected_value };
        let asked = Asked { request_id, segment, offset: -1 };
        self.ask(&container, request, asked, move |answer, _| attribute_updated(request_id, &answer)).await
    }

    async fn flush_to_storage(&self, command: &FlushToStorage) -> Result<(), Close> {
        let FlushToStorage { container_id, request_id, .. } = *command;
        let container =
            self.shared.containers.get(container_id).ok_or(Close("there is no such container"))?;
        let outbox = Arc::clone(&self.outbox);
        let call = move |outcome: Result<Answer, Refusal>| {
            answer_or_close(&outbox, outcome.ok().map(|_done| StorageFlushed { request_id }.into()));
        };
        send(&container, Operation::FlushToStorage(Box::new(call))).await
    }

    fn list_storage_chunks(&self, command: ListStorageChunks) -> Result<(), Close> {
        let ListStorageChunks { segment, request_id, .. } = command;
        let (container, view) = self.find(&segment)?;
        let Some(view) = view else {
            self.missing(request_id, segment, -1);
            return Ok(());
        };
        let chunks = view.extents().into_iter().map(|extent| {
            let stored = extent.stored;
            ChunkInfo {
                length_in_metadata: extent.length.into(),
                length_in_storage: stored.length.into(),
                start_offset: signed(extent.offset),
                chunk_name: container.cold().name_of(stored.object),
                exists_in_storage: true,
            }
        });
        let listed = StorageChunksListed { request_id, chunks: chunks.collect() };
        self.outbox.push(|out| listed.encode(out));
        Ok(())
    }

    async fn merge(&self, command: MergeSegments) -> Result<(), Close> {
        let MergeSegments { request_id, target, source, attribute_updates, .. } = command;
        let (target_name, container) = self.container_of(&target)?;
        let source_name = dhara_wire::name::canonical(&source).into_owned();
        let request = Request::Merge { target: target_name, source: source_name, updates: attribute_updates };
        // Clients expect the source to be named, whichever segment was at fault.
        let asked = Asked { request_id, segment: source, offset: -1 };
        self.ask(&container, request, asked, move |answer, asked| match answer {
            Answer::Merged(length) => {
                let new_target_write_offset = signed(length);
                let source = asked.segment;
                Some(SegmentsMerged { request_id, target, source, new_target_write_offset }.into())
            }
            answer => attribute_updated(request_id, &answer),
        })
        .await
    }

    async fn merge_batch(&self, command: MergeSegmentsBatch) -> Result<(), Close> {
        let MergeSegmentsBatch { request_id, target, sources, .. } = command;
        let (target_name, container) = self.container_of(&target)?;
        let names = sources.iter().map(|source| dhara_wire::name::canonical(source).into_owned()).collect();
        let request = Request::MergeBatch { target: target_name, sources: names };
        let asked = Asked { request_id, segment: target, offset: -1 };
        self.ask(&container, request, asked, move |answer, asked| {
            let Answer::BatchMerged(lengths) = answer else { return None };
            let merged = sources
                .into_iter()
                .zip(lengths)
                .map(|(source, length)| MergedSource { source, new_target_write_offset: signed(length) })
                .collect();
            Some(SegmentsBatchMerged { request_id, target: asked.segment, merged }.into())
        })
        .await
    }
}

fn attribute_updated(request_id: i64, answer: &Answer) -> Option<Command> {
    match answer {
        Answer::AttributeUpdated(success) => {
            Some(SegmentAttributeUpdated { request_id, success: *success }.into())
        }
        _ => None,
    }
}
