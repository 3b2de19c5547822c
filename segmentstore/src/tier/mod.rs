//! The tier: ranges of segments as immutable objects of an object store.
//!
//! [`ObjectBuilder`] lays ranges out as an object and gives back where each came to lie; [`Objects`] puts it and
//! reads ranges of it again; [`verify`] tells whether what came is what was put. docs/formats.md draws an object.
//!
//! Objects are never changed, appended to or renamed, and no two share a name: the container epoch and a counter are
//! in it. So every call may be made again, whatever became of the one before. This room never decides what is
//! stored or when an object may go, and it never retries.

mod backend;
mod builder;
mod error;
mod folder;
mod format;
mod objects;
mod probe;
mod uploads;

pub use backend::{BackendError, BackendOptions, local_store, open_store};
pub use builder::{BuiltObject, ObjectBuilder};
pub use error::{ObjectError, TierError};
pub use format::{Footer, FooterRange, ObjectHeader, verify, verify_object};
pub use objects::Objects;
pub use probe::{ProbeError, probe};
pub use uploads::{Turn, Uploads};

/// Bytes of a block: what one CRC covers. A block belongs to one range, and the last of a range may be short.
pub const BLOCK_BYTES: u32 = 64 * 1024;
/// Most bytes of ranges in an object; with header and footer every position fits 32 bits.
pub const OBJECT_BYTES_MAX: u64 = 80 << 20;
/// Most ranges of an object, so that its footer stays small beside it.
pub const OBJECT_RANGES_MAX: usize = 64 * 1024;
/// A range keeps at most one boundary for each run of this many bytes.
pub const BOUNDARY_BYTES: u32 = 1 << 20;

#[cfg(test)]
mod tests;
