//! Gzip, for the text of stream cuts: reads any, writes without compressing.
//!
//! Cuts are small and rarely written as text, so plain stored blocks do; every reader of the format takes them.
//!
//! # Source
//! RFC 1951 and RFC 1952.

/// What a text may unpack to at most, bytes, however small it came.
const UNPACKED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of a stored block.
const STORED_BYTES_MAX: usize = 0xffff;
/// Most bits of a code.
const CODE_BITS_MAX: usize = 15;
const LENGTH_BASES: [usize; 29] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
    227, 258,
];
const LENGTH_BITS: [u32; 29] =
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCE_BASES: [usize; 30] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073,
    4097, 6145, 8193, 12289, 16385, 24577,
];
/// The order in which the lengths of the code-length code are written.
const CODE_LENGTH_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Packs `bytes`.
pub(crate) fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut rest = bytes;
    loop {
        let (block, later) = rest.split_at(rest.len().min(STORED_BYTES_MAX));
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(later.is_empty()));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    out.extend_from_slice(&crc32(bytes).to_le_bytes());
    out.extend_from_slice(&length_mod(bytes).to_le_bytes());
    out
}

/// Unpacks one member; `None` if it is damaged or unpacks to more than 16 MiB.
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Bits { bytes: skip_header(packed)?, held: 0, count: 0 };
    let mut out = Vec::new();
    loop {
        let is_last = bits.take(1)? == 1;
        match bits.take(2)? {
            0 => stored(&mut bits, &mut out)?,
            1 => compressed(&mut bits, &mut out, &fixed_literals(), &Code::new(&[5; 30]))?,
            2 => {
                let (literals, distances) = dynamic_codes(&mut bits)?;
                compressed(&mut bits, &mut out, &literals, &distances)?;
            }
            _ => return None,
        }
        if is_last {
            break;
        }
    }
    let trailer = bits.bytes.get(..8)?;
    let expected = [crc32(&out).to_le_bytes(), length_mod(&out).to_le_bytes()].concat();
    (trailer == expected).then_some(out)
}

/// Skips the member's header with what its flags announce.
fn skip_header(packed: &[u8]) -> Option<&[u8]> {
    let (header, mut rest) = packed.split_at_checked(10)?;
    let flags = header[3];
    if header[..3] != [0x1f, 0x8b, 8] || flags & 0xe0 != 0 {
        return None;
    }
    if flags & 4 != 0 {
        let (length, after) = rest.split_at_checked(2)?;
        rest = after.get(usize::from(u16::from_le_bytes([length[0], length[1]]))..)?;
    }
    for text in [8, 16] {
        if flags & text != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & 2 != 0 { rest.get(2..) } else { Some(rest) }
}

/// Bits, least significant first.
struct Bits<'a> {
    bytes: &'a [u8],
    held: u32,
    count: u32,
}

impl Bits<'_> {
    /// Takes at most 16 bits.
    fn take(&mut self, count: u32) -> Option<usize> {
        while self.count < count {
            let (byte, rest) = self.bytes.split_first()?;
            self.held |= u32::from(*byte) << self.count;
            self.count += 8;
            self.bytes = rest;
        }
        let taken = self.held & ((1 << count) - 1);
        self.held >>= count;
        self.count -= count;
        usize::try_from(taken).ok()
    }

    /// Drops the rest of the byte begun. Never more than one byte is held.
    fn align(&mut self) {
        self.held = 0;
        self.count = 0;
    }
}

/// A canonical prefix code.
struct Code {
    /// How many codes have each length.
    counts: [usize; CODE_BITS_MAX + 1],
    /// The symbols in the order of their codes.
    symbols: Vec<usize>,
}

impl Code {
    fn new(lengths: &[usize]) -> Self {
        let mut counts = [0; CODE_BITS_MAX + 1];
        for length in lengths {
            counts[*length] += 1;
        }
        counts[0] = 0;
        let mut symbols: Vec<usize> = (0..lengths.len()).filter(|symbol| lengths[*symbol] > 0).collect();
        symbols.sort_by_key(|symbol| lengths[*symbol]);
        Self { counts, symbols }
    }

    fn next(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for count in &self.counts[1..] {
            code |= bits.take(1)?;
            if code < first + count {
                // An over-subscribed code lets `code` fall behind `first`.
                return self.symbols.get(index + code.checked_sub(first)?).copied();
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

fn fixed_literals() -> Code {
    let mut lengths = [8; 288];
    lengths[144..256].fill(9);
    lengths[256..280].fill(7);
    Code::new(&lengths)
}

fn dynamic_codes(bits: &mut Bits<'_>) -> Option<(Code, Code)> {
    let (literals, distances, lengths_sent) = (bits.take(5)? + 257, bits.take(5)? + 1, bits.take(4)? + 4);
    let mut code_lengths = [0; 19];
    for at in &CODE_LENGTH_ORDER[..lengths_sent] {
        code_lengths[*at] = bits.take(3)?;
    }
    let code = Code::new(&code_lengths);
    let mut lengths = Vec::with_capacity(literals + distances);
    while lengths.len() < literals + distances {
        let (length, times) = match code.next(bits)? {
            16 => (*lengths.last()?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length, 1),
        };
        lengths.resize(lengths.len() + times, length);
    }
    if lengths.len() > literals + distances {
        return None;
    }
    Some((Code::new(&lengths[..literals]), Code::new(&lengths[literals..])))
}

fn stored(bits: &mut Bits<'_>, out: &mut Vec<u8>) -> Option<()> {
    bits.align();
    let (header, rest) = bits.bytes.split_at_checked(4)?;
    let length = u16::from_le_bytes([header[0], header[1]]);
    if length != !u16::from_le_bytes([header[2], header[3]]) {
        return None;
    }
    let (block, rest) = rest.split_at_checked(usize::from(length))?;
    bits.bytes = rest;
    out.extend_from_slice(block);
    (out.len() <= UNPACKED_BYTES_MAX).then_some(())
}

fn compressed(bits: &mut Bits<'_>, out: &mut Vec<u8>, literals: &Code, distances: &Code) -> Option<()> {
    loop {
        let symbol = literals.next(bits)?;
        if symbol == 256 {
            return Some(());
        }
        if let Ok(literal) = u8::try_from(symbol) {
            out.push(literal);
        } else {
            let at = symbol - 257;
            let length = LENGTH_BASES.get(at)? + bits.take(LENGTH_BITS[at])?;
            let at = distances.next(bits)?;
            let distance_bits = u32::try_from((at / 2).saturating_sub(1)).ok()?;
            let distance = DISTANCE_BASES.get(at)? + bits.take(distance_bits)?;
            let from = out.len().checked_sub(distance)?;
            // What is copied may begin to repeat itself.
            for i in from..from + length {
                out.push(out[i]);
            }
        }
        if out.len() > UNPACKED_BYTES_MAX {
            return None;
        }
    }
}

/// The length modulo 2^32.
fn length_mod(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len() & 0xffff_ffff).unwrap_or(u32::MAX)
}

fn crc32(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 },
        )
    });
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A text with a code of its own, packed by zlib.
    const DYNAMIC: &str = concat!(
        "H4sIAAAAAAAA/62R221EMRBCG0LKDPPedlLCpn+F28F+rPxnCwwHe71/f95/L4ODCCQKjcHi4Lp0OOEBT3jBGz7whR9ooDQEA0ywwAYHXPAQhnCELAOR",
        "iEI0YhCLOKQhHUmkfkxkIRs5yEUeylCOIipQClSoRg1qUaek3z3x2dG/N8p/ttg5EalWPWaqeZSPysxOoFlCMOdqK4UJ4lL40nrFtlxYz3PF99aftm6N",
        "Zai/d4lOsVf8TR7iuKIzXCHwXqFvjpylsUFbCq6TGqnr5EBvEZ/jCPfuPKCliXtWupjDtV7RrfwaJEd6G+HfulG+cPFOUvkYocadCqnAspmNltlQZWtd",
        "G5fds2KNqCRTxVP9dOOj18xQsNzVrlURT5BZYmRmWJUlNuofXjpbQoQCAAA="
    );

    #[test]
    fn compressed_texts_are_unpacked() {
        let list =
            |value: &dyn Fn(u64) -> u64| (0..60).map(|i| value(i).to_string()).collect::<Vec<_>>().join(",");
        let epochs = list(&|i| if i < 40 { 0 } else { 3 });
        let text = format!("0:sc/st:{}:{epochs}:{}", list(&|i| i), list(&|i| i * i * 977 % 100_003));
        let packed = crate::base64::decode(DYNAMIC).unwrap();
        assert_eq!(unpack(&packed).unwrap(), text.as_bytes());
    }

    #[test]
    fn damage_is_seen() {
        let packed = pack(b"abcabcabc");
        for at in (0..3).chain(10..packed.len()) {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x40;
            assert!(unpack(&damaged).is_none() || at == 10, "{at}");
            assert!(unpack(&packed[..at]).is_none());
        }
    }

    #[test]
    fn long_texts_take_several_blocks() {
        let text = vec![7; 2 * STORED_BYTES_MAX + 1];
        assert_eq!(unpack(&pack(&text)), Some(text));
    }

    proptest! {
        #[test]
        fn bytes_survive(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(unpack(&pack(&bytes)), Some(bytes));
        }

        #[test]
        fn mutated_texts_are_refused_without_panic(mutations in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..5)) {
            let mut packed = crate::base64::decode(DYNAMIC).unwrap();
            for (at, byte) in mutations {
                let at = at.index(packed.len());
                packed[at] = byte;
            }
            let _text = unpack(&packed);
        }
    }
}
