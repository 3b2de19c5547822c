//! The hashes that clients, controller and segment stores must agree on.
//!
//! All are MurmurHash3 (x64, 128 bits) with the Java hash of a word as its seed, of which the first 64 bits count. They
//! place things; they protect nothing.
//!
//! # Source
//! Pravega's `HashHelper`, Guava's `murmur3_128` and `Hashing.consistentHash`.

/// Java's `"EventRouter".hashCode()`, sign-extended.
const EVENT_ROUTER: u64 = 1_741_865_571;
/// Java's `"KeyValueTableRouter".hashCode()`, -2,020,233,499, sign-extended.
const TABLE_ROUTER: u64 = 0xffff_ffff_8795_aee5;
/// Java's `"SegmentToContainerMapper".hashCode()`.
const CONTAINER_MAPPER: u64 = 1_661_405_012;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;
const HALF_BYTES: usize = 8;

/// Returns the position of a routing key in the key space, `0.0 <= position < 1.0`.
pub fn routing_position(routing_key: &str) -> f64 {
    position(murmur3(EVENT_ROUTER, utf16_le(routing_key)))
}

/// Returns the position of a key-value table's primary key in the key space, `0.0 <= position < 1.0`.
pub fn table_key_position(primary_key: &[u8]) -> f64 {
    position(murmur3(TABLE_ROUTER, primary_key.iter().copied()))
}

/// Returns the position that `text` has under the hash seeded by the Java hash of `seed`, `0.0 <= position < 1.0`.
///
/// A reader chooses the segment to release by this, with its own id as the seed.
pub fn seeded_position(seed: &str, text: &str) -> f64 {
    position(seeded_hash(seed, text))
}

/// Returns the first 64 bits of the hash of `text`, seeded by the Java hash of `seed`.
pub fn seeded_hash(seed: &str, text: &str) -> u64 {
    murmur3(i64::from(java_hash(seed)).cast_unsigned(), utf16_le(text))
}

/// Returns which of `containers` holds the segment with this qualified name.
///
/// A segment, its transactions, its transient segments and its namesakes of other epochs share a container.
///
/// # Panics
/// If there are no containers.
pub fn container_of(segment: &str, containers: u32) -> u32 {
    consistent_hash(murmur3(CONTAINER_MAPPER, utf16_le(crate::name::primary(segment))), containers)
}

/// Returns the bucket of `hash`, so that a change from n to n + 1 buckets moves one in n + 1 only.
///
/// # Panics
/// If there are no buckets.
pub fn consistent_hash(hash: u64, buckets: u32) -> u32 {
    assert!(buckets > 0, "no bucket to choose");
    let mut state = hash;
    let mut candidate = 0;
    loop {
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let [a, b, c, d, ..] = (state >> 1).to_be_bytes();
        let draw = f64::from(u32::from_be_bytes([a, b, c, d]) + 1) / f64::from(1_u32 << 31);
        let next = f64::from(candidate + 1) / draw;
        if next >= f64::from(buckets) {
            return candidate;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 <= next < buckets")]
        {
            candidate = next as u32;
        }
    }
}

/// Returns Java's `String.hashCode` of `text`.
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

fn utf16_le(text: &str) -> impl Iterator<Item = u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes)
}

/// The upper 52 bits as the fraction of a number in `1.0..2.0`, less one.
fn position(hash: u64) -> f64 {
    f64::from_bits(0x3ff0_0000_0000_0000 | (hash >> 12)) - 1.0
}

/// Returns the first half of the 128-bit hash.
fn murmur3(seed: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    let mut lanes = [seed, seed];
    let mut halves = [[0_u8; HALF_BYTES]; 2];
    let mut filled = 0;
    let mut length = 0_u64;
    for byte in bytes {
        halves[filled / HALF_BYTES][filled % HALF_BYTES] = byte;
        filled += 1;
        length += 1;
        if filled == 2 * HALF_BYTES {
            mix(&mut lanes, halves.map(u64::from_le_bytes));
            halves = [[0; HALF_BYTES]; 2];
            filled = 0;
        }
    }
    let [low, high] = halves.map(u64::from_le_bytes);
    // A zero half scrambles to zero, as the reference's empty tail does.
    let [mut first, mut second] =
        [lanes[0] ^ scramble_low(low) ^ length, lanes[1] ^ scramble_high(high) ^ length];
    first = first.wrapping_add(second);
    second = second.wrapping_add(first);
    finish(first).wrapping_add(finish(second))
}

fn mix(lanes: &mut [u64; 2], [low, high]: [u64; 2]) {
    let [first, second] = lanes;
    *first ^= scramble_low(low);
    *first = first.rotate_left(27).wrapping_add(*second).wrapping_mul(5).wrapping_add(0x52dc_e729);
    *second ^= scramble_high(high);
    *second = second.rotate_left(31).wrapping_add(*first).wrapping_mul(5).wrapping_add(0x3849_5ab5);
}

fn scramble_low(lane: u64) -> u64 {
    lane.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn scramble_high(lane: u64) -> u64 {
    lane.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut lane: u64) -> u64 {
    lane = (lane ^ (lane >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    lane = (lane ^ (lane >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    lane ^ (lane >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_java_hashes_of_their_words() {
        let seed = |word| i64::from(java_hash(word)).cast_unsigned();
        assert_eq!(seed("EventRouter"), EVENT_ROUTER);
        assert_eq!(seed("KeyValueTableRouter"), TABLE_ROUTER);
        assert_eq!(seed("SegmentToContainerMapper"), CONTAINER_MAPPER);
        assert_eq!(java_hash("SegmentAttribute"), 817_748_169);
        assert_eq!(java_hash("StreamTags"), 798_692_313);
    }

    #[test]
    fn routing_keys_lie_where_clients_put_them() {
        let hundred = "x".repeat(100);
        let vectors = [
            ("", 0x3dbd_de94_66a2_f7cf, 0.241_178_427_916_235_23),
            ("a", 0xf182_1733_1898_dfc0, 0.943_391_275_381_688_4),
            ("hello", 0xa8a1_a07b_a5f6_3abf, 0.658_716_230_571_337),
            ("key-7", 0xd460_e18d_0a94_7288, 0.829_603_287_633_817_5),
            ("routing-key-42", 0x9056_ee20_462e_b436, 0.563_826_449_279_242_6),
            ("0123456789abcdef", 0x2a45_43ba_6cb0_ae0e, 0.165_119_393_361_865_1),
            ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", 0x022a_cea6_f2a1_737f, 0.008_465_686_568_006_836),
            (hundred.as_str(), 0xe081_77cd_b1e0_59ae, 0.876_975_524_633_850_2),
            ("sensor/eu-west-1/device:000042", 0x173e_968e_5880_475a, 0.090_798_768_761_033_88),
            ("café", 0xbdb9_74a2_43d9_9eaa, 0.741_111_077_895_629_8),
            ("日本語キー", 0x1236_6b00_e56d_5022, 0.071_142_852_515_028_61),
            ("😀key", 0xe274_44cd_a618_2fe6, 0.884_586_620_528_438_5),
        ];
        for (key, hash, position) in vectors {
            assert_eq!(murmur3(EVENT_ROUTER, utf16_le(key)), hash, "{key}");
            assert_eq!(routing_position(key).to_bits(), f64::to_bits(position), "{key}");
        }
        for (key, position) in [
            ("key-1", 0.382_916_253_976_053_8),
            ("é", 0.668_827_206_963_224_2),
            ("€", 0.921_180_546_716_848_8),
            ("😀", 0.775_025_591_217_116_4),
        ] {
            assert_eq!(routing_position(key).to_bits(), f64::to_bits(position), "{key}");
        }
    }

    #[test]
    fn table_keys_lie_where_clients_put_them() {
        for (key, position) in [
            (&b""[..], 0.423_527_020_200_222_15),
            (b"key1", 0.011_579_266_115_581_355),
            (b"hello world", 0.951_010_231_954_209_1),
            (&[1, 2, 3, 4], 0.022_915_216_405_436_478),
        ] {
            assert_eq!(table_key_position(key).to_bits(), f64::to_bits(position), "{key:?}");
        }
    }

    #[test]
    fn readers_order_their_segments_as_java_does() {
        let position = |segment| seeded_position("r1", segment);
        assert_eq!(position("sc/st/0.#epoch.0").to_bits(), 0.909_417_084_876_589_f64.to_bits());
        assert_eq!(position("sc/st/1.#epoch.0").to_bits(), 0.394_272_829_507_937_85_f64.to_bits());
    }

    #[test]
    fn containers_are_those_of_the_reference() {
        for (segment, container) in [
            ("scope/stream/0", 3),
            ("scope/stream/1", 3),
            ("a/b/2", 2),
            ("sc/st/0", 3),
            ("sc/st/1", 2),
            ("_system/_tables/scopes", 3),
            ("sc/st/1.#epoch.7", 2),
            ("sc/st/1.#epoch.7#transaction.00000001000200038004000000000005", 2),
        ] {
            assert_eq!(container_of(segment, 4), container, "{segment}");
        }
    }

    #[test]
    fn one_more_bucket_moves_hashes_only_into_it() {
        for hash in (0..1000_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            for buckets in 1..20 {
                let (before, after) = (consistent_hash(hash, buckets), consistent_hash(hash, buckets + 1));
                assert!(before < buckets);
                assert!(after == before || after == buckets);
            }
        }
    }
}
