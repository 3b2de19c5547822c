use super::rule::{RuleError, check_scope, check_stored, check_stream};
use super::*;
use proptest::prelude::*;

const TXN: &str = "sc/st/0.#epoch.0#transaction.00000001000200038004000000000005";
const TXN_ID: Uuid = Uuid(0x0000_0001_0002_0003_8004_0000_0000_0005);

#[test]
fn segment_name_is_scope_stream_number_and_epoch() {
    let name: SegmentName = "sc/st/7.#epoch.5".parse().unwrap();
    assert_eq!(name, StreamName::new("sc", "st").segment(SegmentId::new(7, 5)));
    assert_eq!(name.id.raw(), 21_474_836_487);
    assert_eq!(name.to_string(), "sc/st/7.#epoch.5");
    assert_eq!("sc/st/7".parse::<SegmentName>().unwrap().id, SegmentId::new(7, 0));
    let unscoped: SegmentName = "st/7.#epoch.1".parse().unwrap();
    assert_eq!(unscoped.stream, StreamName::new("", "st"));
    assert_eq!(unscoped.to_string(), "st/7.#epoch.1");
}

#[test]
fn other_texts_are_no_segment_names() {
    for text in [
        "",
        "/",
        "sc",
        "7",
        "/7",
        "//7",
        "/st/7",
        "sc//7",
        "a/b/c/7",
        "sc/st/",
        "sc/st/-1",
        "sc/st/+1",
        "sc/st/07",
        "sc/st/7.#epoch.",
        "sc/st/7.#epoch.01",
        "sc/st/7.#epoch.2147483648",
        "sc/st/7#index",
        TXN,
    ] {
        assert!(text.parse::<SegmentName>().is_err(), "{text}");
    }
}

#[test]
fn transaction_name_carries_parent_and_id() {
    assert_eq!(transaction("sc/st/0.#epoch.0", TXN_ID), TXN);
    assert!(is_transaction(TXN) && !is_transient(TXN));
    assert_eq!(parent(TXN), Some("sc/st/0.#epoch.0"));
    assert_eq!(transaction_id(TXN), Some(TXN_ID));
    assert_eq!(transaction_id("sc/st/0#transaction.+0000001000200038004000000000005"), None);
    assert_eq!(transaction_id("sc/st/0#transaction.é0000001000200038004000000000005"), None);
    assert!(!is_transaction("sc/st/0#transaction.0000000100020003800400000000000"));
}

#[test]
fn transient_name_carries_parent_and_writer() {
    let name = transient("sc/st/0.#epoch.0", Uuid(1), Uuid(2));
    assert_eq!(
        name,
        "sc/st/0.#epoch.0#transient.00000000000000000000000000000001.00000000000000000000000000000002"
    );
    assert!(is_transient(&name) && !is_transaction(&name));
    assert_eq!(parent(&name), Some("sc/st/0.#epoch.0"));
    assert_eq!(canonical(&name), name);
}

#[test]
fn primary_name_has_no_epoch_and_no_suffix() {
    for (name, expected) in [
        (TXN, "sc/st/0"),
        ("sc/st/0.#epoch.9", "sc/st/0"),
        ("sc/st/0", "sc/st/0"),
        ("sc/t_kvtable/0.#epoch.0", "sc/t_kvtable/0"),
        ("_system/_tables/scopes", "_system/_tables/scopes"),
    ] {
        assert_eq!(primary(name), expected);
    }
}

#[test]
fn transaction_has_one_canonical_name_in_all_epochs() {
    let canonical_name = "sc/st/0#transaction.00000001000200038004000000000005";
    assert_eq!(canonical(TXN), canonical_name);
    assert_eq!(canonical(&TXN.replace("epoch.0", "epoch.3")), canonical_name);
    assert_eq!(canonical(canonical_name), canonical_name);
    assert_eq!(canonical("sc/st/0.#epoch.3"), "sc/st/0.#epoch.3");
}

#[test]
fn only_stream_segments_of_users_are_user_segments() {
    assert!(is_user_segment("sc/st/0.#epoch.0"));
    for name in
        ["st/0.#epoch.0", "sc/_RGg/0.#epoch.0", "sc/t_kvtable/0.#epoch.0", "sc/st/0.#epoch.0#index", TXN]
    {
        assert!(!is_user_segment(name), "{name}");
    }
}

#[test]
fn derived_streams_name_what_they_serve() {
    assert_eq!(table_of_stream(&table_stream("t")), Some("t"));
    assert_eq!(reader_group_of_stream(&reader_group_stream("g")), Some("g"));
    assert_eq!(stream_of_mark(&mark_stream("s")), Some("s"));
    assert_eq!(table_of_stream("s").or(reader_group_of_stream("s")).or(stream_of_mark("s")), None);
}

#[test]
fn names_are_letters_digits_dots_and_dashes_of_limited_length() {
    assert_eq!(check_stream("a.B-9"), Ok(()));
    assert_eq!(check_stream(""), Err(RuleError::Empty));
    for character in ['_', '/', '#', 'é', ' '] {
        assert_eq!(check_stream(&format!("a{character}")), Err(RuleError::Character { character }));
    }
    assert_eq!(check_stream(&"a".repeat(250)), Ok(()));
    assert_eq!(check_stream(&"a".repeat(251)), Err(RuleError::Long { chars: 251, max: 250 }));
    assert_eq!(check_scope(&"a".repeat(255)), Ok(()));
    assert!(check_scope(&"a".repeat(256)).is_err());
    assert_eq!(check_stored(&format!("_{}", "a".repeat(254))), Ok(()));
    assert!(check_stored(&format!("_{}", "a".repeat(255))).is_err());
    assert_eq!(check_stored("_"), Err(RuleError::Empty));
    assert!(check_stored("__a").is_err());
}

proptest! {
    #[test]
    fn segment_names_survive_their_text(scope in "[a-z.-]{0,5}", stream in "_?[a-z.-]{1,5}", id: (u16, u16)) {
        let name = StreamName::new(scope, stream).segment(SegmentId::new(i32::from(id.0), i32::from(id.1)));
        prop_assert_eq!(name.to_string().parse(), Ok(name));
    }

    #[test]
    fn any_text_is_taken_without_panic(text in "(sc/|st/|[0-9]|\\.#epoch\\.|#transaction\\.|#transient\\.|[0-9a-f]{32}|.){0,8}") {
        prop_assert!(text.starts_with(primary(&text)));
        if parent(&text).is_some_and(|parent| parent.parse::<SegmentName>().is_ok()) {
            let spelling = canonical(&text);
            prop_assert_eq!(primary(&spelling), primary(&text));
        }
        prop_assert!(text.parse::<SegmentName>().is_err() || parent(&text).is_none());
    }
}
