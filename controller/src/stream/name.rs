//! What scopes and streams may be called, and who owns a name.
//!
//! The rules are the wire's, and so is how internal streams are named.

use dhara_wire::name::rule;
pub use dhara_wire::name::{mark_stream, reader_group_stream};

/// The controller's own scope.
pub const SYSTEM_SCOPE: &str = "_system";

/// Whether the name may be stored for a scope or stream: users' names, and internal ones with a leading underscore.
pub fn is_stored_name(name: &str) -> bool {
    rule::check_stored(name).is_ok()
}

/// Whether a user may give the name to a scope.
pub fn is_user_scope(name: &str) -> bool {
    rule::check_scope(name).is_ok()
}

/// Whether a user may give the name to a stream, reader group, table, writer or reader.
pub fn is_user_name(name: &str) -> bool {
    rule::check_stream(name).is_ok()
}

/// Whether the name belongs to the system rather than to a user.
pub fn is_internal(name: &str) -> bool {
    name.starts_with('_')
}

/// Returns the name under which reader group `group` subscribes to streams.
pub fn subscriber(scope: &str, group: &str) -> String {
    format!("{scope}/{group}")
}

#[cfg(test)]
mod tests {
    use dhara_wire::limits::{SCOPE_NAME_CHARS_MAX, STREAM_NAME_CHARS_MAX};

    use super::*;

    #[test]
    fn user_names_are_plain_and_leave_room_for_prefixes() {
        for name in ["a", "0", "A.b-c.9", "..", &"x".repeat(STREAM_NAME_CHARS_MAX)] {
            assert!(is_user_name(name) && is_stored_name(name) && is_user_scope(name), "{name}");
            assert!(is_stored_name(&mark_stream(name)) && is_stored_name(&reader_group_stream(name)));
        }
        for name in ["", "_a", "a_b", "a/b", "ä", "a b", "a#b", &"x".repeat(STREAM_NAME_CHARS_MAX + 1)] {
            assert!(!is_user_name(name), "{name}");
        }
    }

    #[test]
    fn stored_names_may_have_one_leading_underscore() {
        assert!(is_stored_name("_system") && is_stored_name("_RGgroup"));
        for name in ["", "_", "__a", "_a_b", &"x".repeat(SCOPE_NAME_CHARS_MAX + 1)] {
            assert!(!is_stored_name(name), "{name}");
        }
        assert!(is_user_scope(&"x".repeat(SCOPE_NAME_CHARS_MAX)) && !is_user_scope(SYSTEM_SCOPE));
    }

    #[test]
    fn internal_names_are_told_by_their_underscore() {
        assert!(is_internal(&mark_stream("s")) && is_internal(SYSTEM_SCOPE) && !is_internal("s"));
        assert_eq!(subscriber("scope", "g"), "scope/g");
    }
}
