//! What scopes, streams, groups, tables, writers and readers may be called.

use crate::limits::{SCOPE_NAME_CHARS_MAX, STREAM_NAME_CHARS_MAX};

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// It has no character.
    #[error("name is empty")]
    Empty,
    /// It has too many characters.
    #[error("name has {chars} characters, more than {max}")]
    Long {
        /// Characters of the name.
        chars: usize,
        /// Characters allowed.
        max: usize,
    },
    /// A character is none of `A-Z a-z 0-9 . -`.
    #[error("name holds {character:?}")]
    Character {
        /// The first such character.
        character: char,
    },
}

/// Checks the name that a user gives a scope.
///
/// # Errors
/// [`RuleError`] for what is wrong first.
pub fn check_scope(name: &str) -> Result<(), RuleError> {
    check(name, SCOPE_NAME_CHARS_MAX)
}

/// Checks the name that a user gives a stream, reader group, table, writer or reader.
///
/// # Errors
/// [`RuleError`] for what is wrong first.
pub fn check_stream(name: &str) -> Result<(), RuleError> {
    check(name, STREAM_NAME_CHARS_MAX)
}

/// Checks the name of a scope or stream as it is stored: Pravega's own begin with `_`.
///
/// # Errors
/// [`RuleError`] for what is wrong first.
pub fn check_stored(name: &str) -> Result<(), RuleError> {
    let rest = name.strip_prefix('_').unwrap_or(name);
    check(rest, SCOPE_NAME_CHARS_MAX - (name.len() - rest.len()))
}

fn check(name: &str, max: usize) -> Result<(), RuleError> {
    if name.is_empty() {
        return Err(RuleError::Empty);
    }
    if let Some(character) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))) {
        return Err(RuleError::Character { character });
    }
    let chars = name.len();
    if chars > max { Err(RuleError::Long { chars, max }) } else { Ok(()) }
}
