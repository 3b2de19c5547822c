//! Writers of one connection: setups, append blocks, and the answers to appends.

use super::connection::{Close, Connection};
use super::outbox::Outbox;
use super::reply::{self, Asked};
use crate::container::ContainerHandle;
use crate::operation::{
    Answer, Append, AppendReply, AppendTag, Operation, Policy, Refusal, Request, SegmentKind, SessionId,
};
use bytes::{BufMut, Bytes, BytesMut};
use dhara_stdx::budget::BytePermit;
use dhara_wire::block::BlockAssembler;
use dhara_wire::codec::Uuid;
use dhara_wire::command::{
    AppendBlock, AppendBlockEnd, AppendSetup, Command, ConditionalAppend, ConditionalBlockEnd,
    ConditionalCheckFailed, CreateTransientSegment, DataAppended, InvalidEventNumber, SetupAppend,
};
use std::collections::HashMap;
use std::sync::Arc;
use tracing::debug;

/// The writers set up on a connection.
pub(super) struct Writers {
    next_session: u32,
    by_id: HashMap<Uuid, Writer>,
    pub(super) blocks: BlockAssembler,
    /// Memory that the open block occupies.
    block_permit: Option<BytePermit>,
    replies: Arc<dyn AppendReply>,
}

struct Writer {
    session: SessionId,
    segment: Arc<str>,
    container: ContainerHandle,
}

/// Everything of an append but its writer.
struct Received {
    number: i64,
    request_id: i64,
    data: Bytes,
    events: u32,
    expected_offset: Option<i64>,
    permit: Option<BytePermit>,
}

impl Writers {
    pub(super) fn new(outbox: Arc<Outbox>) -> Self {
        let replies = Arc::new(Acks { outbox });
        Self {
            next_session: 0,
            by_id: HashMap::new(),
            blocks: BlockAssembler::new(),
            block_permit: None,
            replies,
        }
    }

    fn append(&self, writer: Uuid, received: Received) -> Result<(ContainerHandle, Operation), Close> {
        let known = self.by_id.get(&writer).ok_or(Close("an append without a setup"))?;
        if received.number < 0 {
            return Err(Close("an event number is negative"));
        }
        let tag = AppendTag {
            session: known.session,
            writer,
            segment: Arc::clone(&known.segment),
            number: received.number,
            request_id: received.request_id,
        };
        let append = Append {
            tag,
            data: received.data,
            events: received.events,
            expected_offset: received.expected_offset,
            reply: Arc::clone(&self.replies),
            permit: received.permit,
        };
        Ok((known.container.clone(), Operation::Append(append)))
    }
}

impl Connection {
    pub(super) async fn setup_append(&mut self, command: SetupAppend) -> Result<(), Close> {
        let SetupAppend { request_id, writer_id, segment, .. } = command;
        let name = dhara_wire::name::canonical(&segment).into_owned();
        let container = self.shared.containers.of(&name).ok_or(Close("the container is not open"))?;
        self.visit(&container);
        let session = SessionId { connection: self.id, number: self.writers.next_session };
        self.writers.next_session =
            self.writers.next_session.checked_add(1).ok_or(Close("too many setups on one connection"))?;
        let writer = Writer { session, segment: Arc::from(segment.as_str()), container: container.clone() };
        if let Some(earlier) = self.writers.by_id.insert(writer_id, writer) {
            send(&earlier.container, Operation::EndSession(earlier.session)).await?;
        }
        let request = Request::SetupAppend { session, name, writer: writer_id };
        let asked = Asked { request_id, segment, offset: -1 };
        self.ask(&container, request, asked, move |answer, asked| match answer {
            Answer::SetUp { last } => {
                let segment = asked.segment;
                Some(AppendSetup { request_id, segment, writer_id, last_event_number: last }.into())
            }
            _ => None,
        })
        .await
    }

    pub(super) fn append_block(
        &mut self,
        command: AppendBlock,
        permit: Option<BytePermit>,
    ) -> Result<(), Close> {
        if !self.writers.by_id.contains_key(&command.writer_id) {
            return Err(Close("an append without a setup"));
        }
        self.writers.block_permit = permit;
        self.writers.blocks.begin(command).map_err(malformed)
    }

    pub(super) async fn append_block_end(
        &mut self,
        command: AppendBlockEnd,
        permit: Option<BytePermit>,
    ) -> Result<(), Close> {
        let append = self.writers.blocks.end(command).map_err(malformed)?;
        let mut held = self.writers.block_permit.take();
        match (&mut held, permit) {
            (Some(held), Some(permit)) => held.merge(permit),
            (None, permit) => held = permit,
            (Some(_), None) => {}
        }
        let received = Received {
            number: append.last_event_number,
            request_id: append.request_id,
            data: append.data,
            // The assembler refuses anything below 1.
            events: u32::try_from(append.num_events).unwrap_or(1),
            expected_offset: None,
            permit: held,
        };
        self.submit_append(append.writer_id, received).await
    }

    pub(super) async fn conditional_append(
        &mut self,
        command: ConditionalAppend,
        permit: Option<BytePermit>,
    ) -> Result<(), Close> {
        let ConditionalAppend { writer_id, event_number, expected_offset, event, request_id } = command;
        let mut data = BytesMut::with_capacity(8 + event.0.len());
        data.put_i32(0);
        data.put_u32(u32::try_from(event.0.len()).unwrap_or(u32::MAX));
        data.extend_from_slice(&event.0);
        let received = Received {
            number: event_number,
            request_id,
            data: data.freeze(),
            events: 1,
            expected_offset: Some(expected_offset),
            permit,
        };
        self.submit_append(writer_id, received).await
    }

    pub(super) async fn conditional_block_end(
        &mut self,
        command: ConditionalBlockEnd,
        permit: Option<BytePermit>,
    ) -> Result<(), Close> {
        let ConditionalBlockEnd { writer_id, event_number, expected_offset, data, request_id } = command;
        let received = Received {
            number: event_number,
            request_id,
            data: data.0,
            events: 1,
            expected_offset: Some(expected_offset),
            permit,
        };
        self.submit_append(writer_id, received).await
    }

    async fn submit_append(&mut self, writer: Uuid, received: Received) -> Result<(), Close> {
        let (container, append) = self.writers.append(writer, received)?;
        send(&container, append).await
    }

    pub(super) async fn create_transient(&mut self, command: CreateTransientSegment) -> Result<(), Close> {
        let CreateTransientSegment { request_id, writer_id, parent_segment, .. } = command;
        let random = Uuid(self.shared.entropy.uuid());
        let segment = dhara_wire::name::transient(&parent_segment, writer_id, random);
        let name = dhara_wire::name::canonical(&segment).into_owned();
        let container = self.shared.containers.of(&name).ok_or(Close("the container is not open"))?;
        self.visit(&container);
        // The container fills in its epoch.
        let kind = SegmentKind::Transient { connection: self.id.0, epoch: 0 };
        let request = Request::Create { name, kind, policy: Policy::default(), rollover_bytes: 0 };
        self.create(&container, request, Asked { request_id, segment, offset: -1 }).await
    }
}

fn malformed(error: dhara_wire::block::BlockError) -> Close {
    debug!(%error, "append block");
    Close("a block is malformed")
}

/// Hands an operation to its container; one that has ended makes the client come again.
pub(super) async fn send(container: &ContainerHandle, operation: Operation) -> Result<(), Close> {
    container.send(operation).await.map_err(|_closed| Close("the container has ended"))
}

/// Sends a reply, or closes where there is none to send.
pub(super) fn answer_or_close(outbox: &Outbox, command: Option<Command>) {
    match command {
        Some(command) => outbox.push(|out| command.encode(out)),
        None => outbox.close(),
    }
}

/// Answers appends; the containers call it in the order of each session's appends.
struct Acks {
    outbox: Arc<Outbox>,
}

impl AppendReply for Acks {
    fn appended(&self, append: &AppendTag, outcome: Result<Answer, Refusal>) {
        let AppendTag { writer, number, request_id, .. } = *append;
        match outcome {
            Ok(Answer::Appended { previous, length }) => self.outbox.push(|out| {
                DataAppended {
                    writer_id: writer,
                    event_number: number,
                    previous_event_number: previous,
                    request_id,
                    current_segment_write_offset: reply::signed(length),
                }
                .encode(out);
            }),
            Err(Refusal::ConditionFailed) => self.outbox.push(|out| {
                ConditionalCheckFailed { writer_id: writer, event_number: number, request_id }.encode(out);
            }),
            Err(Refusal::InvalidEventNumber) => {
                self.outbox.push(|out| {
                    let server_stack_trace = String::new();
                    InvalidEventNumber {
                        writer_id: writer,
                        request_id,
                        server_stack_trace,
                        event_number: number,
                    }
                    .encode(out);
                });
                self.outbox.close();
            }
            Err(refusal) => {
                // A sealed segment's answer carries the number of the append that hit it.
                let offset = if refusal == Refusal::Sealed { number } else { -1 };
                let asked = Asked { request_id, segment: append.segment.to_string(), offset };
                answer_or_close(&self.outbox, reply::refused(asked, &refusal));
            }
            Ok(_) => self.outbox.close(),
        }
    }
}
