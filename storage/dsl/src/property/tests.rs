//! Words and numbers, against each other and against known values.

use super::table::{PROPERTIES, PropertyAttr, find_property};
use super::{ValueFormat, index_word};
use crate::local_properties::PropertyValue;

fn format_number(name: &str, number: u64) -> Option<String> {
    find_property(name).unwrap().format.format_value(&PropertyValue::Number(number))
}

#[test]
fn values_are_printed_as_zfs_prints_them() {
    for (name, number, text) in [
        ("compression", 16, "zstd"),
        ("compression", 16 + (19 << 7), "zstd-19"),
        ("compression", 16 + (103 << 7), "zstd-fast"),
        ("compression", 16 + (123 << 7), "zstd-fast-1000"),
        ("compression", 10, "gzip"),
        ("dedup", 257, "verify"),
        ("dedup", 256 + 14, "blake3,verify"),
        ("xattr", 2, "on"),
        ("volmode", 1, "full"),
        ("redundant_metadata", 3, "none"),
        ("compressratio", 213, "2.13"),
        ("compressratio", 1205, "12.05"),
        ("filesystem_limit", u64::MAX, "none"),
        ("quota", 0, "0"),
    ] {
        assert_eq!(format_number(name, number).as_deref(), Some(text), "{name}");
    }
    assert_eq!(format_number("compression", 99), None);
}

#[test]
fn names_are_unique_and_defaults_have_words() {
    for (at, row) in PROPERTIES.iter().enumerate() {
        assert!(PROPERTIES.iter().skip(at + 1).all(|other| other.name != row.name), "{}", row.name);
        if let (ValueFormat::Index(words), super::DefaultValue::Number(number)) =
            (row.format, row.default)
        {
            let told = row.attr == PropertyAttr::ReadOnly || row.name == "version";
            assert!(told || index_word(words, number).is_some(), "{}", row.name);
        }
    }
}
