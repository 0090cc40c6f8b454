//! Words and numbers, against each other and against known values.

use super::table::{Flavor, TABLE, find};
use super::{Form, word};
use crate::settings::Setting;

fn written(name: &str, number: u64) -> Option<String> {
    find(name).unwrap().form.write(&Setting::Number(number))
}

#[test]
fn every_kind_of_value_is_written_as_zfs_does() {
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
        assert_eq!(written(name, number).as_deref(), Some(text), "{name}");
    }
    assert_eq!(written("compression", 99), None);
}

#[test]
fn names_are_unique_and_defaults_have_words() {
    for (at, row) in TABLE.iter().enumerate() {
        assert!(TABLE.iter().skip(at + 1).all(|other| other.name != row.name), "{}", row.name);
        if let (Form::Index(words), super::Fallback::Number(number)) = (row.form, row.fallback) {
            let told = row.flavor == Flavor::ReadOnly || row.name == "version";
            assert!(told || word(words, number).is_some(), "{}", row.name);
        }
    }
}
