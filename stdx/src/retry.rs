//! What a caller may do after an error.

/// Says whether the same call may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nothing happened; the same call may be made again.
    Safe,
    /// It may have happened; find out before calling again.
    Unknown,
    /// The same call would fail again.
    Never,
}
