//! What can go wrong in a log, told apart by what a caller does next.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dhara_stdx::Retry;

use crate::types::{ContainerId, LogAddress, SequenceNumber};

/// Why a log, or one container's part of it, cannot go on. Cheap to clone: every waiter gets a copy.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Another process has the folder.
    #[error("log folder {path} is in use by another process")]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// The disk refused; after a write or a sync the log is closed and must be opened anew.
    #[error("{doing} {path}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// Bytes that were acked are there but do not verify; the files are left as they are.
    #[error("{path} is damaged at byte {offset}: {what}")]
    Rotten {
        /// The file.
        path: PathBuf,
        /// Where it stops making sense.
        offset: u64,
        /// What did not verify.
        what: &'static str,
    },
    /// Records that must be there are not: a file is missing, or the log ends before it should.
    #[error("log lost records of container {container}: expected record {expected}, found {found}")]
    Lost {
        /// The container.
        container: ContainerId,
        /// The record that is needed.
        expected: SequenceNumber,
        /// The record found in its place.
        found: SequenceNumber,
    },
    /// A file of another log, another version, or another count of containers.
    #[error("{path} does not belong to this log: {what}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// The budget, or the disk, is used up.
    #[error("log is full")]
    Full,
    /// A batch that no log file can hold.
    #[error("batch of {bytes} bytes is larger than a log file")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// A later `open` of the container has ended this writer.
    #[error("writer of container {container} was replaced by a later one")]
    Fenced {
        /// The container.
        container: ContainerId,
    },
    /// The address was never durable, or its file has been let go.
    #[error("no log bytes at address {address}")]
    Gone {
        /// The address.
        address: LogAddress,
    },
    /// The log was closed.
    #[error("log is closed")]
    Closed,
    /// No container of this number.
    #[error("log has no container {container}")]
    NoContainer {
        /// The container.
        container: ContainerId,
    },
}

impl LogError {
    /// Keeps `source` with what was being done to `path`.
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source: Arc::new(source) }
    }

    /// Damage found in `path`.
    pub(super) fn rotten(path: &Path, offset: u64, what: &'static str) -> Self {
        Self::Rotten { path: path.to_owned(), offset, what }
    }

    /// What a caller may do: an append whose outcome is `Unknown` is settled by opening the container again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Full => Retry::Safe,
            Self::Io { .. } | Self::Fenced { .. } | Self::Closed => Retry::Unknown,
            _ => Retry::Never,
        }
    }
}
