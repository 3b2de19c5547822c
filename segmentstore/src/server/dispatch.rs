//! From a decoded command to the room that answers it.

use super::append::{answer_or_close, send};
use super::connection::{Close, Connection};
use super::reply::{self, Asked, signed};
use super::table::TableQuestion;
use crate::container::ContainerHandle;
use crate::operation::{Answer, Operation, Policy, Refusal, Request, SegmentKind};
use dhara_stdx::budget::BytePermit;
use dhara_wire::command::{
    Command, CreateSegment, DeleteSegment, GetSegmentAttribute, Hello, KeepAlive, MergeSegments,
    MergeSegmentsBatch, MergedSource, SealSegment, SegmentAttribute, SegmentAttributeUpdated, SegmentCreated,
    SegmentDeleted, SegmentPolicyUpdated, SegmentSealed, SegmentTruncated, SegmentsBatchMerged,
    SegmentsMerged, TruncateSegment, UpdateSegmentAttribute, UpdateSegmentPolicy,
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
            Command::ReadTable(command) => self.read_table(TableQuestion::Get(command)).await,
            Command::ReadTableKeys(command) => self.read_table(TableQuestion::Keys(command)).await,
            Command::ReadTableEntries(command) => self.read_table(TableQuestion::Entries(command)).await,
            Command::ReadTableEntriesDelta(command) => self.read_table(TableQuestion::Delta(command)).await,
            Command::UpdateTableEntries(command) => self.update_table(command).await,
            Command::RemoveTableKeys(command) => self.remove_table_keys(command).await,
            Command::CreateTableSegment(command) => self.create_table(command).await,
            Command::DeleteTableSegment(command) => self.delete_table(command).await,
            command => self.change_segment(command).await,
        }
    }

    async fn change_segment(&mut self, command: Command) -> Result<(), Close> {
        match command {
            Command::CreateSegment(command) => {
                let CreateSegment {
                    request_id, segment, target_rate, scale_type, rollover_size_bytes, ..
                } = command;
                let policy = Policy { scale_type, target_rate };
                self.create(request_id, segment, SegmentKind::Stream, policy, rollover_size_bytes).await
            }
            Command::SealSegment(SealSegment { request_id, segment, .. }) => {
                let success = |request_id, segment| SegmentSealed { request_id, segment }.into();
                self.change(request_id, segment, -1, |name| Request::Seal { name }, success).await
            }
            Command::DeleteSegment(DeleteSegment { request_id, segment, .. }) => {
                self.delete(request_id, segment, false, false).await
            }
            Command::TruncateSegment(TruncateSegment { request_id, segment, truncation_offset, .. }) => {
                let success = |request_id, segment| SegmentTruncated { request_id, segment }.into();
                let request = |name| Request::Truncate { name, offset: truncation_offset };
                self.change(request_id, segment, truncation_offset, request, success).await
            }
            Command::UpdateSegmentPolicy(command) => {
                let UpdateSegmentPolicy { request_id, segment, target_rate, scale_type, .. } = command;
                let policy = Policy { scale_type, target_rate };
                let success = |request_id, segment| SegmentPolicyUpdated { request_id, segment }.into();
                self.change(request_id, segment, -1, |name| Request::UpdatePolicy { name, policy }, success)
                    .await
            }
            Command::GetSegmentAttribute(command) => self.get_attribute(command).await,
            Command::UpdateSegmentAttribute(command) => self.update_attribute(command).await,
            Command::MergeSegments(command) => self.merge(command).await,
            Command::MergeSegmentsBatch(command) => self.merge_batch(command).await,
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

    /// Sends a request whose success has nothing to tell.
    async fn change(
        &mut self,
        request_id: i64,
        segment: String,
        offset: i64,
        request: impl FnOnce(String) -> Request,
        success: impl FnOnce(i64, String) -> Command + Send + 'static,
    ) -> Result<(), Close> {
        let (name, container) = self.container_of(&segment)?;
        let outbox = Arc::clone(&self.outbox);
        let call = move |outcome: Result<Answer, Refusal>| {
            let command = match outcome {
                Ok(_) => Some(success(request_id, segment)),
                Err(refusal) => reply::refused(&Asked { request_id, segment: &segment, offset }, &refusal),
            };
            answer_or_close(&outbox, command);
        };
        send(&container, Operation::Call(request(name), Box::new(call))).await
    }

    pub(super) async fn create(
        &mut self,
        request_id: i64,
        segment: String,
        kind: SegmentKind,
        policy: Policy,
        rollover_bytes: i64,
    ) -> Result<(), Close> {
        if segment.is_empty() {
            self.illegal(request_id, segment, "segment name is empty");
            return Ok(());
        }
        let success = |request_id, segment| SegmentCreated { request_id, segment }.into();
        let rollover_bytes = rollover_bytes.max(0);
        let request = |name| Request::Create { name, kind, policy, rollover_bytes };
        self.change(request_id, segment, -1, request, success).await
    }

    pub(super) async fn delete(
        &mut self,
        request_id: i64,
        segment: String,
        table: bool,
        must_be_empty: bool,
    ) -> Result<(), Close> {
        let success = |request_id, segment| SegmentDeleted { request_id, segment }.into();
        let request = |name| Request::Delete { name, table, must_be_empty };
        self.change(request_id, segment, -1, request, success).await
    }

    async fn get_attribute(&mut self, command: GetSegmentAttribute) -> Result<(), Close> {
        let GetSegmentAttribute { request_id, segment, attribute_id, .. } = command;
        let (name, container) = self.container_of(&segment)?;
        let outbox = Arc::clone(&self.outbox);
        let call = move |outcome: Result<Answer, Refusal>| {
            let command = match outcome {
                Ok(Answer::Attribute(value)) => Some(SegmentAttribute { request_id, value }.into()),
                Ok(_) => None,
                Err(refusal) => {
                    reply::refused(&Asked { request_id, segment: &segment, offset: -1 }, &refusal)
                }
            };
            answer_or_close(&outbox, command);
        };
        let request = Request::GetAttribute { name, attribute: attribute_id };
        send(&container, Operation::Call(request, Box::new(call))).await
    }

    async fn update_attribute(&mut self, command: UpdateSegmentAttribute) -> Result<(), Close> {
        let UpdateSegmentAttribute { request_id, segment, attribute_id, new_value, expected_value, .. } =
            command;
        let (name, container) = self.container_of(&segment)?;
        let outbox = Arc::clone(&self.outbox);
        let call = move |outcome: Result<Answer, Refusal>| {
            let command = match outcome {
                Ok(Answer::AttributeUpdated(success)) => {
                    Some(SegmentAttributeUpdated { request_id, success }.into())
                }
                Ok(_) => None,
                Err(refusal) => {
                    reply::refused(&Asked { request_id, segment: &segment, offset: -1 }, &refusal)
                }
            };
            answer_or_close(&outbox, command);
        };
        let request =
            Request::UpdateAttribute { name, attribute: attribute_id, new_value, expected: expected_value };
        send(&container, Operation::Call(request, Box::new(call))).await
    }

    async fn merge(&mut self, command: MergeSegments) -> Result<(), Close> {
        let MergeSegments { request_id, target, source, attribute_updates, .. } = command;
        let (target_name, container) = self.container_of(&target)?;
        let source_name = dhara_wire::name::canonical(&source).into_owned();
        let outbox = Arc::clone(&self.outbox);
        let call = move |outcome: Result<Answer, Refusal>| {
            let command = match outcome {
                Ok(Answer::Merged(length)) => {
                    let new_target_write_offset = signed(length);
                    Some(SegmentsMerged { request_id, target, source, new_target_write_offset }.into())
                }
                Ok(Answer::AttributeUpdated(success)) => {
                    Some(SegmentAttributeUpdated { request_id, success }.into())
                }
                Ok(_) => None,
                // Clients expect the source to be named, whichever segment was at fault.
                Err(refusal) => reply::refused(&Asked { request_id, segment: &source, offset: -1 }, &refusal),
            };
            answer_or_close(&outbox, command);
        };
        let request = Request::Merge { target: target_name, source: source_name, updates: attribute_updates };
        send(&container, Operation::Call(request, Box::new(call))).await
    }

    async fn merge_batch(&mut self, command: MergeSegmentsBatch) -> Result<(), Close> {
        let MergeSegmentsBatch { request_id, target, sources, .. } = command;
        let (target_name, container) = self.container_of(&target)?;
        let source_names =
            sources.iter().map(|source| dhara_wire::name::canonical(source).into_owned()).collect();
        let outbox = Arc::clone(&self.outbox);
        let call = move |outcome: Result<Answer, Refusal>| {
            let command = match outcome {
                Ok(Answer::BatchMerged(lengths)) => {
                    let merged = sources
                        .into_iter()
                        .zip(lengths)
                        .map(|(source, length)| MergedSource {
                            source,
                            new_target_write_offset: signed(length),
                        })
                        .collect();
                    Some(SegmentsBatchMerged { request_id, target, merged }.into())
                }
                Ok(_) => None,
                Err(refusal) => reply::refused(&Asked { request_id, segment: &target, offset: -1 }, &refusal),
            };
            answer_or_close(&outbox, command);
        };
        let request = Request::MergeBatch { target: target_name, sources: source_names };
        send(&container, Operation::Call(request, Box::new(call))).await
    }
}
