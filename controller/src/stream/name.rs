//! Names of scopes, streams, groups and tables, and the internal names derived from them.

/// Longest name as stored, in characters.
pub const STORED_CHARS_MAX: usize = 255;
/// Longest name that a user may give to a stream, group, table, writer or reader; the rest is kept for prefixes.
pub const USER_CHARS_MAX: usize = 250;
/// Starts the name of a reader group's state stream.
pub const READER_GROUP_PREFIX: &str = "_RG";
/// Starts the name of a stream's mark stream, which holds its watermarks.
pub const MARK_PREFIX: &str = "_MARK";
/// The controller's own scope.
pub const SYSTEM_SCOPE: &str = "_system";

/// Whether the name may be stored for a scope or stream: users' names, and internal ones with a leading underscore.
pub fn is_stored_name(name: &str) -> bool {
    name.len() <= STORED_CHARS_MAX && is_plain(name.strip_prefix('_').unwrap_or(name))
}

/// Whether a user may give the name to a scope.
pub fn is_user_scope(name: &str) -> bool {
    name.len() <= STORED_CHARS_MAX && is_plain(name)
}

/// Whether a user may give the name to a stream, reader group, table, writer or reader.
pub fn is_user_name(name: &str) -> bool {
    name.len() <= USER_CHARS_MAX && is_plain(name)
}

/// Whether the name belongs to the system rather than to a user.
pub fn is_internal(name: &str) -> bool {
    name.starts_with('_')
}

/// Returns the name of the stream that holds the state of reader group `group`.
pub fn reader_group_stream(group: &str) -> String {
    format!("{READER_GROUP_PREFIX}{group}")
}

/// Returns the reader group whose state `stream` holds.
pub fn reader_group_of(stream: &str) -> Option<&str> {
    stream.strip_prefix(READER_GROUP_PREFIX)
}

/// Returns the name of the stream that holds the watermarks of `stream`.
pub fn mark_stream(stream: &str) -> String {
    format!("{MARK_PREFIX}{stream}")
}

/// Whether the stream holds watermarks, and so has no mark stream of its own.
pub fn is_mark_stream(stream: &str) -> bool {
    stream.starts_with(MARK_PREFIX)
}

/// Returns the name under which reader group `group` subscribes to streams.
pub fn subscriber(scope: &str, group: &str) -> String {
    format!("{scope}/{group}")
}

/// One or more ASCII letters, digits, dots and hyphens.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-')
}
