//! The commands of the segment store protocol, each a struct with its fields in wire order.
//!
//! One table below gives code, name, direction and fields; encoding, decoding and the [`Command`] enum follow from it,
//! so a layout stands in exactly one place. Fields written `= (least, default)` are optional tails: a decoder takes
//! them as present if at least `least` payload bytes are left. Encoders write every field, since the official Rust
//! client cannot decode a reply without its tails.
//!
//! # Source
//! Wire version 17 of Pravega's segment store protocol (`WireCommands`).

#[cfg(any(test, feature = "proptest"))]
mod any;
mod parts;
#[cfg(test)]
mod tests;

pub use parts::{
    AttributeUpdate, AttributeUpdateType, ChunkInfo, Event, IteratorArgs, MergedSource, Rate, SegmentLoad,
    TableEntry, TableKey,
};

use crate::codec::{Blob, DecodeError, Reader, Rest, Uuid, Wire};
use bytes::{BufMut, Bytes, BytesMut};

/// Who may send a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A client or controller, to a segment store.
    Client,
    /// A segment store, in answer.
    Server,
    /// Either side.
    Both,
    /// Only inside the data of an [`AppendBlock`].
    Inner,
    /// A client, on the administration port only.
    Admin,
    /// A controller to a segment store of the same make; unknown to Pravega.
    Private,
}

/// Bytes of a frame's header: type and payload length, each an `i32`.
pub const FRAME_HEADER_BYTES: usize = 8;

macro_rules! field_get {
    ($from:ident, $type:ty) => {
        <$type as Wire>::get($from)?
    };
    ($from:ident, $type:ty, $least:literal, $default:expr) => {
        if $from.remaining() >= $least { <$type as Wire>::get($from)? } else { $default }
    };
}

macro_rules! request_id_of {
    ($command:expr, request_id) => {
        return Some($command.request_id)
    };
    ($command:expr, $other:ident) => {};
}

macro_rules! set_request_id_of {
    ($command:expr, request_id, $to:expr) => {
        $command.request_id = $to
    };
    ($command:expr, $other:ident, $to:expr) => {};
}

macro_rules! commands {
    ($(
        $(#[$doc:meta])*
        $code:literal $name:ident $direction:ident {
            $( $(#[$field_doc:meta])* $field:ident : $type:ty $(= ($least:literal, $default:expr))? ),* $(,)?
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name {
                $( $(#[$field_doc])* #[allow(missing_docs, reason = "the protocol's own field names")] pub $field: $type, )*
            }

            impl $name {
                /// The command's type code.
                pub const CODE: i32 = $code;

                fn put_payload(&self, _out: &mut BytesMut) {
                    $( self.$field.put(_out); )*
                }

                fn get_payload(_from: &mut Reader) -> Result<Self, DecodeError> {
                    $( let $field = field_get!(_from, $type $(, $least, $default)?); )*
                    Ok(Self { $( $field ),* })
                }

                #[allow(unreachable_code, reason = "the macro returns at the field called request_id")]
                fn id(&self) -> Option<i64> {
                    $( request_id_of!(self, $field); )*
                    None
                }

                fn set_id(&mut self, _id: i64) {
                    $( set_request_id_of!(self, $field, _id); )*
                }
            }

            impl From<$name> for Command {
                fn from(command: $name) -> Self {
                    Self::$name(command)
                }
            }
        )*

        /// Any command of the protocol.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Command {
            $( #[allow(missing_docs, reason = "see the struct of that name")] $name($name), )*
        }

        impl Command {
            /// The type code in the frame header.
            pub fn code(&self) -> i32 {
                match self { $( Self::$name(_) => $code, )* }
            }

            /// The command's name in the protocol.
            pub fn name(&self) -> &'static str {
                match self { $( Self::$name(_) => stringify!($name), )* }
            }

            /// Who may send this command.
            pub fn direction(&self) -> Direction {
                match self { $( Self::$name(_) => Direction::$direction, )* }
            }

            /// The request id that the command carries, if its layout has one.
            pub fn request_id(&self) -> Option<i64> {
                match self { $( Self::$name(command) => command.id(), )* }
            }

            /// Sets the request id, if the command's layout has one.
            pub fn set_request_id(&mut self, id: i64) {
                match self { $( Self::$name(command) => command.set_id(id), )* }
            }

            /// Decodes the payload of a frame with type `code`. Bytes after the known fields are ignored.
            ///
            /// # Errors
            /// [`DecodeError`] for an unknown code or a payload that does not hold the mandatory fields.
            pub fn decode(code: i32, payload: Bytes) -> Result<Self, DecodeError> {
                let from = &mut Reader::new(payload);
                match code {
                    $( $code => $name::get_payload(from).map(Self::$name), )*
                    _ => Err(DecodeError::Code { code }),
                }
            }

            /// Appends the whole frame, header included, to `out`.
            pub fn encode(&self, out: &mut BytesMut) {
                match self { $( Self::$name(command) => command.encode(out), )* }
            }
        }

        $(
            impl $name {
                /// Appends the whole frame, header included, to `out`.
                pub fn encode(&self, out: &mut BytesMut) {
                    let start = out.len();
                    out.put_i32($code);
                    out.put_i32(0);
                    self.put_payload(out);
                    let length = u32::try_from(out.len() - start - FRAME_HEADER_BYTES).unwrap_or(u32::MAX);
                    out[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
                }
            }
        )*

        /// Any command with any fields, for property tests.
        #[cfg(any(test, feature = "proptest"))]
        pub fn any_command() -> impl proptest::strategy::Strategy<Value = Command> {
            use proptest::strategy::{Just, Strategy};
            proptest::strategy::Union::new([$(
                (Just(()), $( <$type as any::AnyValue>::any_value(), )*)
                    .prop_map(|((), $( $field, )*)| Command::from($name { $( $field ),* }))
                    .boxed(),
            )*])
        }

        /// Every code of the protocol with its name and direction, in table order.
        pub const TABLE: &[(i32, &str, Direction)] = &[ $( ($code, stringify!($name), Direction::$direction), )* ];
    };
}

commands! {
    /// Version negotiation; each side's first frame.
    -127 Hello Both { high_version: i32, low_version: i32 }
    /// Sign of life; a server answers each with one of its own.
    100 KeepAlive Both {}

    /// Registers a writer on this connection.
    1 SetupAppend Client { request_id: i64, writer_id: Uuid, segment: String, delegation_token: String }
    /// Setup done; acknowledges everything up to `last_event_number`.
    2 AppendSetup Server { request_id: i64, segment: String, writer_id: Uuid, last_event_number: i64 }
    /// Block of event data; an [`AppendBlockEnd`] always follows.
    3 AppendBlock Client { writer_id: Uuid, data: Rest }
    /// Closes a block, or is a whole append by itself.
    4 AppendBlockEnd Client {
        writer_id: Uuid, size_of_whole_events: i32, data: Blob, num_events: i32, last_event_number: i64,
        request_id: i64 = (8, -1),
    }
    /// Appends one event if the segment's length equals `expected_offset`.
    5 ConditionalAppend Client {
        writer_id: Uuid, event_number: i64, expected_offset: i64, event: Event, request_id: i64 = (8, -1),
    }
    /// The same with raw bytes, to which no event header is added.
    89 ConditionalBlockEnd Client {
        writer_id: Uuid, event_number: i64, expected_offset: i64, data: Blob, request_id: i64,
    }
    /// Acknowledges all events in `(previous_event_number, event_number]`.
    7 DataAppended Server {
        writer_id: Uuid, event_number: i64, previous_event_number: i64 = (8, -1), request_id: i64 = (8, -1),
        current_segment_write_offset: i64 = (8, -1),
    }
    /// The conditional append did not apply.
    8 ConditionalCheckFailed Server { writer_id: Uuid, event_number: i64, request_id: i64 = (8, -1) }
    /// Filler in a block; skipped at top level.
    -1 Padding Inner { data: Rest }
    /// First part of an event whose rest is in the [`AppendBlockEnd`].
    -2 PartialEvent Inner { data: Rest }
    /// One event; never a frame of its own.
    0 TopLevelEvent Inner { data: Rest }

    /// Reads; waits at the tail.
    9 ReadSegment Client {
        segment: String, offset: i64, suggested_length: i32, delegation_token: String, request_id: i64 = (8, -1),
    }
    /// Data that starts exactly at the requested offset.
    10 SegmentRead Server {
        segment: String, offset: i64, at_tail: bool, end_of_segment: bool, data: Blob, request_id: i64 = (8, -1),
    }
    /// Asks for a segment's state.
    11 GetStreamSegmentInfo Client { request_id: i64, segment: String, delegation_token: String }
    /// A segment's state; `last_modified` in ms since 1970, `write_offset` is the length.
    12 StreamSegmentInfo Server {
        request_id: i64, segment: String, exists: bool, is_sealed: bool, is_deleted: bool, last_modified: i64,
        write_offset: i64, start_offset: i64 = (8, 0),
    }
    /// Finds an append boundary at or after `target_offset`.
    41 LocateOffset Client { request_id: i64, segment: String, target_offset: i64, delegation_token: String }
    /// Answers [`LocateOffset`].
    42 OffsetLocated Server { request_id: i64, segment: String, offset: i64 }

    /// Creates a segment.
    20 CreateSegment Client {
        request_id: i64, segment: String, target_rate: i32, scale_type: i8, delegation_token: String,
        rollover_size_bytes: i64 = (8, 0),
    }
    /// Answers [`CreateSegment`], [`CreateTransientSegment`] and [`CreateTableSegment`].
    21 SegmentCreated Server { request_id: i64, segment: String }
    /// Creates a segment that lives as long as this connection; the server chooses its name.
    40 CreateTransientSegment Client {
        request_id: i64, writer_id: Uuid, parent_segment: String, delegation_token: String,
    }
    /// Seals a segment.
    28 SealSegment Client { request_id: i64, segment: String, delegation_token: String }
    /// Answers [`SealSegment`].
    29 SegmentSealed Server { request_id: i64, segment: String }
    /// Deletes a segment.
    30 DeleteSegment Client { request_id: i64, segment: String, delegation_token: String }
    /// Answers [`DeleteSegment`] and [`DeleteTableSegment`].
    31 SegmentDeleted Server { request_id: i64, segment: String }
    /// Changes a segment's scale policy.
    32 UpdateSegmentPolicy Client {
        request_id: i64, segment: String, target_rate: i32, scale_type: i8, delegation_token: String,
    }
    /// Answers [`UpdateSegmentPolicy`].
    33 SegmentPolicyUpdated Server { request_id: i64, segment: String }
    /// Moves a segment's start.
    38 TruncateSegment Client {
        request_id: i64, segment: String, truncation_offset: i64, delegation_token: String,
    }
    /// Answers [`TruncateSegment`].
    39 SegmentTruncated Server { request_id: i64, segment: String }

    /// Asks for an attribute.
    34 GetSegmentAttribute Client {
        request_id: i64, segment: String, attribute_id: Uuid, delegation_token: String,
    }
    /// An attribute's value, or [`crate::limits::NULL_ATTRIBUTE_VALUE`].
    35 SegmentAttribute Server { request_id: i64, value: i64 }
    /// Compares and sets an attribute.
    36 UpdateSegmentAttribute Client {
        request_id: i64, segment: String, attribute_id: Uuid, new_value: i64, expected_value: i64,
        delegation_token: String,
    }
    /// Whether the attribute condition held; also the refusal of [`MergeSegments`].
    37 SegmentAttributeUpdated Server { request_id: i64, success: bool }
    /// Appends the whole of `source` to `target`, atomically.
    58 MergeSegments Client {
        request_id: i64, target: String, source: String, delegation_token: String,
        attribute_updates: Vec<AttributeUpdate> = (1, Vec::new()),
    }
    /// Answers [`MergeSegments`].
    59 SegmentsMerged Server {
        request_id: i64, target: String, source: String, new_target_write_offset: i64 = (1, -1),
    }
    /// Several merges, in order.
    90 MergeSegmentsBatch Client {
        request_id: i64, target: String, sources: Vec<String>, delegation_token: String,
    }
    /// Answers [`MergeSegmentsBatch`].
    91 SegmentsBatchMerged Server { request_id: i64, target: String, merged: Vec<MergedSource> }

    /// Creates a table segment; `key_length` > 0 fixes the length of its keys.
    70 CreateTableSegment Client {
        request_id: i64, segment: String, delegation_token: String, sorted_deprecated: bool = (1, false),
        key_length: i32 = (4, 0), rollover_size_bytes: i64 = (8, 0),
    }
    /// Deletes a table segment.
    71 DeleteTableSegment Client {
        request_id: i64, segment: String, must_be_empty: bool, delegation_token: String,
    }
    /// Asks for a table segment's state.
    68 GetTableSegmentInfo Client { request_id: i64, segment: String, delegation_token: String }
    /// A table segment's state.
    69 TableSegmentInfo Server {
        request_id: i64, segment: String, start_offset: i64, length: i64, entry_count: i64, key_length: i32,
    }
    /// Puts entries, optionally on conditions.
    74 UpdateTableEntries Client {
        request_id: i64, segment: String, delegation_token: String, entries: Vec<TableEntry>,
        table_segment_offset: i64 = (1, -1),
    }
    /// One version per entry, in order.
    75 TableEntriesUpdated Server { request_id: i64, updated_versions: Vec<i64> }
    /// Removes keys, optionally on conditions.
    76 RemoveTableKeys Client {
        request_id: i64, segment: String, delegation_token: String, keys: Vec<TableKey>,
        table_segment_offset: i64 = (1, -1),
    }
    /// Answers [`RemoveTableKeys`].
    77 TableKeysRemoved Server { request_id: i64, segment: String }
    /// Reads keys.
    78 ReadTable Client { request_id: i64, segment: String, delegation_token: String, keys: Vec<TableKey> }
    /// One entry per requested key, in order.
    79 TableRead Server { request_id: i64, segment: String, entries: Vec<TableEntry> }
    /// Iterates keys.
    83 ReadTableKeys Client {
        request_id: i64, segment: String, delegation_token: String, suggested_key_count: i32, args: IteratorArgs,
    }
    /// A page of keys; none means the end.
    84 TableKeysRead Server { request_id: i64, segment: String, keys: Vec<TableKey>, continuation_token: Blob }
    /// Iterates entries.
    85 ReadTableEntries Client {
        request_id: i64, segment: String, delegation_token: String, suggested_entry_count: i32, args: IteratorArgs,
    }
    /// A page of entries; none means the end.
    86 TableEntriesRead Server {
        request_id: i64, segment: String, entries: Vec<TableEntry>, continuation_token: Blob,
    }
    /// Asks for what changed since a position.
    88 ReadTableEntriesDelta Client {
        request_id: i64, segment: String, delegation_token: String, from_position: i64, suggested_entry_count: i32,
    }
    /// Answers [`ReadTableEntriesDelta`].
    87 TableEntriesDeltaRead Server {
        request_id: i64, segment: String, entries: Vec<TableEntry>, should_clear: bool, reached_end: bool,
        last_position: i64,
    }

    /// This server does not own the segment.
    50 WrongHost Server {
        request_id: i64, segment: String, correct_host: String, server_stack_trace: String = (1, String::new()),
    }
    /// The segment is sealed.
    51 SegmentIsSealed Server {
        request_id: i64, segment: String, server_stack_trace: String = (1, String::new()), offset: i64 = (8, -1),
    }
    /// The segment is there already.
    52 SegmentAlreadyExists Server {
        request_id: i64, segment: String, server_stack_trace: String = (1, String::new()),
    }
    /// There is no such segment.
    53 NoSuchSegment Server {
        request_id: i64, segment: String, server_stack_trace: String = (1, String::new()), offset: i64 = (8, -1),
    }
    /// The writer must set up again; the connection closes.
    55 InvalidEventNumber Server {
        writer_id: Uuid, request_id: i64, server_stack_trace: String = (1, String::new()),
        event_number: i64 = (8, -1),
    }
    /// The offset lies before the first readable one.
    56 SegmentIsTruncated Server {
        request_id: i64, segment: String, start_offset: i64, server_stack_trace: String = (1, String::new()),
        offset: i64 = (8, -1),
    }
    /// The server does not do this.
    57 OperationUnsupported Server {
        request_id: i64, operation_name: String, server_stack_trace: String = (1, String::new()),
    }
    /// The token does not permit this; `error_code` 1 if it has only expired, else 0.
    60 AuthTokenCheckFailed Server {
        request_id: i64, server_stack_trace: String = (1, String::new()), error_code: i32 = (4, -1),
    }
    /// The request is wrong; `error_code` 0 for an illegal argument.
    61 ErrorMessage Server { request_id: i64, segment: String, message: String, error_code: i32 }
    /// The table must be empty for this.
    80 TableSegmentNotEmpty Server { request_id: i64, segment: String, server_stack_trace: String }
    /// A conditional key does not exist.
    81 TableKeyDoesNotExist Server { request_id: i64, segment: String, server_stack_trace: String }
    /// A conditional key has another version.
    82 TableKeyBadVersion Server { request_id: i64, segment: String, server_stack_trace: String }

    /// Moves everything acknowledged so far in a container to long-term storage.
    -3 FlushToStorage Admin { container_id: i32, delegation_token: String, request_id: i64 }
    /// Answers [`FlushToStorage`].
    -4 StorageFlushed Server { request_id: i64 }
    /// Asks for the storage chunks of a segment.
    -5 ListStorageChunks Admin { segment: String, delegation_token: String, request_id: i64 }
    /// Answers [`ListStorageChunks`].
    -6 StorageChunksListed Server { request_id: i64, chunks: Vec<ChunkInfo> }

    /// Asks for the rates of a container's segments: all of them at once for a negative `cursor`, else those that had
    /// traffic since the reply that carried it, as soon as there are any, or after `wait_ms`.
    200 ReadLoad Private {
        request_id: i64, container_id: i32, cursor: i64,
        /// The `next` of the page before; −1 for the first page.
        after: i64,
        wait_ms: i32, delegation_token: String,
    }
    /// Answers [`ReadLoad`] with a page of segments in the order of their creation.
    201 LoadRead Server {
        request_id: i64, container_id: i32,
        /// How many containers the server has, numbered from 0.
        container_count: i32,
        cursor: i64,
        /// What to ask after for the next page; −1 if there is none.
        next: i64,
        loads: Vec<SegmentLoad>,
    }
}
