//! How much traffic segments have: what automatic scaling is decided by.
//!
//! A [`Meter`] follows one segment, in the unit of its scaling policy. It counts in ticks of the wall time that its
//! caller gives: the one that stands in the records of appends, so that no append reads a clock. Nothing here decides
//! whether a rate is too high; that is the controller's part.

mod meter;
#[cfg(test)]
mod tests;

pub use meter::{Meter, Rates, TICK_MS, WINDOWS_S, tick_of};

/// What a scaling policy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Units of 1,024 bytes.
    Kib,
    /// Events.
    Event,
}

impl Unit {
    /// The unit of Pravega's scale type byte; `None` if segments with it are not scaled.
    pub fn of(scale_type: i8) -> Option<Self> {
        match scale_type {
            1 => Some(Self::Kib),
            2 => Some(Self::Event),
            _ => None,
        }
    }

    /// So many events that take up so many bytes, in this unit.
    #[allow(clippy::cast_precision_loss, reason = "more than 2^53 of anything need not be exact")]
    pub fn amount(self, events: u64, bytes: u64) -> f64 {
        match self {
            Self::Kib => bytes as f64 / 1024.0,
            Self::Event => events as f64,
        }
    }
}
