//! Damage by chance that a seed repeats.

use dhara_stdx::entropy::{Entropy, SeededEntropy};

pub(crate) struct Chance(SeededEntropy);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededEntropy::new(seed))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Below `end`, which is greater than 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.below(end as u64)).unwrap()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    pub(crate) fn bytes(&mut self, end: usize) -> Vec<u8> {
        let length = self.below(end);
        (0..length).map(|_| self.byte()).collect()
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A sample damaged in up to three places, or, now and then, bytes that never were one.
    pub(crate) fn damaged(&mut self, samples: &[Vec<u8>]) -> Vec<u8> {
        if self.below(16) == 0 {
            return self.bytes(300);
        }
        let mut bytes = self.one_of(samples).clone();
        for _ in 0..self.below(4) {
            self.damage(&mut bytes);
        }
        bytes
    }

    /// Damages bytes in one place, in one of the ways in which formats go wrong.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            bytes.push(self.byte());
        }
        let at = self.below(bytes.len());
        match self.below(8) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.byte(),
            2 => bytes.truncate(at),
            3 => bytes.extend(self.bytes(16)),
            4 => {
                let length = self.below(bytes.len() - at).min(64);
                let again = bytes[at..at + length].to_vec();
                bytes.splice(at..at, again);
            }
            _ => self.put_number(&mut bytes[at..]),
        }
    }

    /// Writes a number that lengths and counts are afraid of.
    fn put_number(&mut self, to: &mut [u8]) {
        let near = self.below(40) as u64;
        let number = *self.one_of(&[0, 1, near, 0x7fff_ffff, 0xffff_ffff, u64::MAX, 1 << 63, 0x00ff_ffff]);
        let width = *self.one_of(&[1, 2, 4, 8]);
        let bytes = if self.below(2) == 0 {
            number.to_le_bytes()[..width].to_vec()
        } else {
            number.to_be_bytes()[8 - width..].to_vec()
        };
        for (to, from) in to.iter_mut().zip(bytes) {
            *to = from;
        }
    }
}
