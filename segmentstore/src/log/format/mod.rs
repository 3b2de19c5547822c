//! Bytes of the log at rest, as docs/formats.md draws them: files, frames, floors and records. Pure: nothing here
//! reads or writes a disk.

pub(in crate::log) mod file;
pub(in crate::log) mod floor;
pub(in crate::log) mod frame;
pub(in crate::log) mod record;
