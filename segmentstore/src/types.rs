//! The numbers of a segment store, each with a type so that no two can be mixed up.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A container of this store, `0..count`; the count is fixed when the store is created.
    ContainerId(u16)
}
number! {
    /// Fences owners of a container; rises by at least one each time it is opened.
    ContainerEpoch(u64)
}
number! {
    /// Position of a record among all records of its container: 1 for the first, then +1 each, for ever.
    SequenceNumber(u64)
}
number! {
    /// Where a byte lies in a container's log. Opaque, but later bytes of one log have larger addresses.
    LogAddress(u64)
}
number! {
    /// A segment's own number: the sequence number of the record that created it, never used again.
    SegmentId(u64)
}

/// An object of a container: the epoch that wrote it, and its number among that epoch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The container epoch.
    pub epoch: u32,
    /// Counts the objects of the epoch, from 0.
    pub counter: u32,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}", self.epoch, self.counter)
    }
}

/// A range of bytes in an object, as it was stored: whole blocks, the last of which may be short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The object.
    pub object: ObjectId,
    /// Where its first byte lies in the object.
    pub at: u32,
    /// How many bytes, > 0.
    pub length: u32,
    /// Number of its first block among those of the object.
    pub first_block: u32,
    /// CRC-32 of the block if it is the only one; else the object's footer has them, and this is 0.
    pub crc: u32,
}

impl SequenceNumber {
    /// The sequence number that follows this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl LogAddress {
    /// The address `bytes` further on in the same log file.
    #[must_use]
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}
