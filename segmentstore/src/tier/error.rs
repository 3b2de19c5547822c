//! What can go wrong with an object, told apart by what a caller does next.

use std::time::Duration;

use dhara_stdx::Retry;

use crate::types::ObjectId;

/// Why bytes are not the object, or the part of one, that they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The footer is longer than the bytes at hand: the last `needed` bytes of the object hold it.
    #[error("footer needs the last {needed} bytes of the object")]
    Cut {
        /// How many bytes to read from the end.
        needed: u64,
    },
    /// No object ends or begins like this.
    #[error("{part} without its magic")]
    Magic {
        /// Header or trailer.
        part: &'static str,
    },
    /// An object of another version of the format.
    #[error("object of version {version}")]
    Version {
        /// The version found.
        version: u16,
    },
    /// Header or footer do not match their own checksum.
    #[error("{part} does not match its checksum")]
    Checksum {
        /// Header or footer.
        part: &'static str,
    },
    /// The checksum is right, the content makes no sense.
    #[error("{what}")]
    Shape {
        /// What does not fit.
        what: &'static str,
    },
    /// A range of several blocks cannot be checked without the footer of its object.
    #[error("range of several blocks without a footer to check it by")]
    NoFooter,
    /// These bytes are not those that were put.
    #[error("block {block} does not match its checksum")]
    Block {
        /// The block's number among those of its object.
        block: u32,
    },
}

/// Why the object store did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// There is no such object.
    #[error("object {id} is not there")]
    NotFound {
        /// The object.
        id: ObjectId,
    },
    /// No answer came in time; a put or a delete may have happened, or may happen yet.
    #[error("{doing}: no answer within {limit:?}")]
    TimedOut {
        /// What was being done.
        doing: &'static str,
        /// How long was waited.
        limit: Duration,
    },
    /// The store refused, or cannot be reached.
    #[error("{doing}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// What the store said.
        #[source]
        source: object_store::Error,
    },
    /// The store answered with other bytes than were put.
    #[error("object {id} is not what was put")]
    Malformed {
        /// The object.
        id: ObjectId,
        /// What is wrong with it.
        #[source]
        source: ObjectError,
    },
    /// The store answered with fewer or more bytes than asked for.
    #[error("object {id}: asked for {asked} bytes, got {got}")]
    Length {
        /// The object.
        id: ObjectId,
        /// How many bytes were asked for.
        asked: u64,
        /// How many came.
        got: u64,
    },
}

impl TierError {
    /// What the caller may do. No call is ever [`Retry::Unknown`]: an object that is put or deleted again is the same
    /// object, or is gone all the same. A refusal for want of rights counts as safe, since rights are given back.
    pub fn retry(&self) -> Retry {
        use object_store::Error as E;
        match self {
            Self::NotFound { .. }
            | Self::Malformed { .. }
            | Self::Store {
                source:
                    E::InvalidPath { .. }
                    | E::NotImplemented { .. }
                    | E::NotSupported { .. }
                    | E::UnknownConfigurationKey { .. },
                ..
            } => Retry::Never,
            Self::TimedOut { .. } | Self::Store { .. } | Self::Length { .. } => Retry::Safe,
        }
    }
}
