//! Every limit that a client can meet, and the sentinels of the protocol. All layers use these.

/// Largest frame a server accepts, header included, bytes.
pub const FRAME_BYTES_MAX: usize = 0x00ff_ffff;
/// Largest payload of a frame that a server accepts, bytes.
pub const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - 8;
/// Largest payload both official clients accept in a reply, bytes.
pub const REPLY_PAYLOAD_BYTES_MAX: usize = 0x00ff_ffff;
/// Largest event payload that goes into one append, bytes.
pub const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most elements of a list in a command; the smallest entries of a full table update are fewer.
pub const LIST_ELEMENTS_MAX: usize = 1 << 20;
/// Newest wire version; announced in Hello.
pub const WIRE_VERSION: i32 = 17;
/// Oldest wire version still understood.
pub const OLDEST_WIRE_VERSION: i32 = 5;
/// Most bytes one read returns.
pub const READ_BYTES_MAX: usize = 2 * 1024 * 1024;
/// A read asks for at least this many bytes.
pub const READ_BYTES_MIN: usize = 8;
/// Largest key of a hash table, bytes.
pub const TABLE_KEY_BYTES_MAX: usize = 8 * 1024;
/// Largest `17 + key + value` of a table entry, bytes.
pub const TABLE_ENTRY_BYTES_MAX: usize = 1024 * 1024;
/// What a table entry takes in its table's address space besides key and value, bytes.
pub const TABLE_ENTRY_OVERHEAD_BYTES: usize = 17;
/// Largest key of a fixed-length table, bytes.
pub const TABLE_FIXED_KEY_BYTES_MAX: i32 = 256;
/// A table page ends at or above this many bytes.
pub const TABLE_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// A page of segment loads ends at or above this many bytes.
pub const LOAD_PAGE_BYTES: usize = 1024 * 1024;
/// Longest that a request for segment loads waits, ms.
pub const LOAD_WAIT_MS_MAX: u64 = 60_000;
/// Most attributes a transient segment may carry.
pub const TRANSIENT_ATTRIBUTES_MAX: usize = 16;
/// Most characters of a scope's name.
pub const SCOPE_NAME_CHARS_MAX: usize = 255;
/// Most characters of a stream's, group's or table's name given by a user.
pub const STREAM_NAME_CHARS_MAX: usize = 250;

/// The value of an attribute that is not set.
pub const NULL_ATTRIBUTE_VALUE: i64 = i64::MIN;
/// A table key without a condition.
pub const KEY_NO_VERSION: i64 = i64::MIN;
/// A table key that must not, or does not, exist.
pub const KEY_NOT_EXISTS: i64 = -1;
/// No condition on a table segment's length.
pub const NULL_TABLE_SEGMENT_OFFSET: i64 = -1;
