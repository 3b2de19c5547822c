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
