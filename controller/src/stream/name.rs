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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_are_plain_and_leave_room_for_prefixes() {
        for name in ["a", "0", "A.b-c.9", "..", &"x".repeat(USER_CHARS_MAX)] {
            assert!(is_user_name(name) && is_stored_name(name) && is_user_scope(name), "{name}");
            assert!(is_stored_name(&mark_stream(name)) && is_stored_name(&reader_group_stream(name)));
        }
        for name in ["", "_a", "a_b", "a/b", "ä", "a b", "a#b", &"x".repeat(USER_CHARS_MAX + 1)] {
            assert!(!is_user_name(name), "{name}");
        }
    }

    #[test]
    fn stored_names_may_have_one_leading_underscore() {
        assert!(is_stored_name("_system") && is_stored_name("_RGgroup"));
        for name in ["", "_", "__a", "_a_b", &"x".repeat(STORED_CHARS_MAX + 1)] {
            assert!(!is_stored_name(name), "{name}");
        }
        assert!(is_user_scope(&"x".repeat(STORED_CHARS_MAX)) && !is_user_scope("_system"));
    }

    #[test]
    fn internal_streams_are_named_after_what_they_serve() {
        assert_eq!(reader_group_stream("g"), "_RGg");
        assert_eq!(reader_group_of("_RGg"), Some("g"));
        assert_eq!(reader_group_of("g"), None);
        assert_eq!(mark_stream("s"), "_MARKs");
        assert!(is_mark_stream("_MARKs") && !is_mark_stream("_RGs"));
        assert!(is_internal("_MARKs") && !is_internal("s"));
        assert_eq!(subscriber("scope", "g"), "scope/g");
    }
}
