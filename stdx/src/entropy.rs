//! Chance. A seeded source makes a run repeatable; the system's source makes ids that nobody can guess.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// Draws random numbers.
pub trait Entropy: Debug + Send + Sync {
    /// The next 64 random bits.
    fn next_u64(&self) -> u64;

    /// A random number shaped as a version 4 UUID.
    fn uuid(&self) -> u128 {
        let random = (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64());
        let version = random & !(0xf << 76) | (0x4 << 76);
        version & !(0x3 << 62) | (0x2 << 62)
    }
}

/// Random bits of the operating system.
#[derive(Debug)]
pub struct SystemEntropy {
    drawn: Mutex<Vec<u8>>,
}

/// Bytes drawn from the system at a time.
const DRAW_BYTES: usize = 1024;

impl SystemEntropy {
    /// Draws a first block, so that a machine without a random source is found at start and not later.
    ///
    /// # Errors
    /// Whatever the system's random source answers.
    pub fn new() -> io::Result<Self> {
        Ok(Self { drawn: Mutex::new(draw()?) })
    }

    /// The system's source as the handle that the rest of the house takes.
    ///
    /// # Errors
    /// As [`SystemEntropy::new`].
    pub fn handle() -> io::Result<Arc<dyn Entropy>> {
        Ok(Arc::new(Self::new()?))
    }
}

fn draw() -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut drawn = vec![0; DRAW_BYTES];
    #[allow(clippy::disallowed_methods, reason = "the random device is chance, not disk")]
    let mut source = std::fs::File::open("/dev/urandom")?;
    source.read_exact(&mut drawn)?;
    Ok(drawn)
}

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        let mut drawn = self.drawn.lock();
        if drawn.len() < 8 {
            let fresh = draw();
            assert!(fresh.is_ok(), "the random source that worked at start has gone: {fresh:?}");
            *drawn = fresh.unwrap_or_default();
        }
        let mut bytes = [0; 8];
        let at = drawn.len() - 8;
        bytes.copy_from_slice(&drawn[at..]);
        drawn.truncate(at);
        u64::from_le_bytes(bytes)
    }
}

/// Repeats the same numbers for the same seed (SplitMix64). Not for secrets.
///
/// # Source
/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<u64>);

impl SeededEntropy {
    /// Starts the sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// A number in `0..below`; 0 if `below` is 0.
    pub fn below(&self, below: u64) -> u64 {
        self.next_u64().checked_rem(below).unwrap_or(0)
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_entropy_repeats_itself() {
        let (one, two) = (SeededEntropy::new(7), SeededEntropy::new(7));
        assert!((0..100).all(|_| one.next_u64() == two.next_u64()));
        assert_ne!(SeededEntropy::new(7).next_u64(), SeededEntropy::new(8).next_u64());
    }

    #[test]
    fn uuid_is_shaped_as_version_4() {
        for source in [SystemEntropy::handle().unwrap(), Arc::new(SeededEntropy::new(1))] {
            let id = source.uuid();
            assert_eq!((id >> 76) & 0xf, 4);
            assert_eq!((id >> 62) & 0x3, 2);
        }
    }

    #[test]
    fn system_entropy_outlives_its_first_draw() {
        let source = SystemEntropy::new().unwrap();
        let drawn: std::collections::BTreeSet<u64> = (0..1000).map(|_| source.next_u64()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
