//! Any command with any fields, for property tests of this crate and of others.

use super::*;
use proptest::prelude::*;

/// Any value of a field, for [`any_command`].
pub(super) trait AnyValue: Sized {
    fn any_value() -> BoxedStrategy<Self>;
}

macro_rules! any_value {
    ($($type:ty = $strategy:expr;)*) => {
        $(impl AnyValue for $type {
            fn any_value() -> BoxedStrategy<Self> {
                $strategy.boxed()
            }
        })*
    };
}

any_value! {
    i8 = any::<i8>();
    i32 = any::<i32>();
    i64 = any::<i64>();
    bool = any::<bool>();
    Uuid = any::<u128>().prop_map(Uuid);
    String = prop_oneof![
        50 => any::<String>(),
        5 => Just("a\0é€😀".to_owned()),
        1 => Just("x".repeat(65_535)),
    ];
    Bytes = prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    Blob = Bytes::any_value().prop_map(Blob);
    Rest = Bytes::any_value().prop_map(Rest);
    Event = Bytes::any_value().prop_map(Event);
    TableKey = (Bytes::any_value(), any::<i64>()).prop_map(|(key, version)| {
        let version = if key.is_empty() { crate::limits::KEY_NO_VERSION } else { version };
        TableKey { key, version }
    });
    TableEntry = (TableKey::any_value(), Bytes::any_value()).prop_map(|(key, value)| TableEntry { key, value });
    IteratorArgs = [(); 4].map(|()| Bytes::any_value()).prop_map(|[continuation_token, prefix_filter, from_key, to_key]| {
        IteratorArgs { continuation_token, prefix_filter, from_key, to_key }
    });
    AttributeUpdateType = prop_oneof![
        Just(AttributeUpdateType::None),
        Just(AttributeUpdateType::Replace),
        Just(AttributeUpdateType::ReplaceIfGreater),
        Just(AttributeUpdateType::Accumulate),
        Just(AttributeUpdateType::ReplaceIfEquals),
    ];
    AttributeUpdate = (Uuid::any_value(), AttributeUpdateType::any_value(), any::<i64>(), any::<i64>())
        .prop_map(|(attribute_id, update_type, new_value, old_value)| {
            AttributeUpdate { attribute_id, update_type, new_value, old_value }
        });
    MergedSource = (any::<String>(), any::<i64>())
        .prop_map(|(source, new_target_write_offset)| MergedSource { source, new_target_write_offset });
    ChunkInfo = (any::<[i64; 3]>(), any::<String>(), any::<bool>()).prop_map(|(numbers, chunk_name, exists_in_storage)| {
        let [length_in_metadata, length_in_storage, start_offset] = numbers;
        ChunkInfo { length_in_metadata, length_in_storage, start_offset, chunk_name, exists_in_storage }
    });
    SegmentLoad = (any::<String>(), any::<i8>(), any::<i32>(), any::<[u64; 5]>(), any::<i64>()).prop_map(
        |(segment, scale_type, target_rate, rates, age_ms)| {
            let rates = rates.map(|bits| Rate(f64::from_bits(bits)));
            SegmentLoad { segment, scale_type, target_rate, rates, age_ms }
        },
    );
}

impl<T: AnyValue + std::fmt::Debug + 'static> AnyValue for Vec<T> {
    fn any_value() -> BoxedStrategy<Self> {
        prop::collection::vec(T::any_value(), 0..4).boxed()
    }
}
