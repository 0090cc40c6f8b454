//! Values of properties as users write them.

use super::table::{FILESYSTEM, PropertyAttr, PropertyDef, VOLUME, ValueFormat, find_property};
use crate::local_properties::PropertyValue;
use crate::{DatasetKind, Error, Result};

/// Bytes of a name and of a user's value.
const MAX_NAME_LEN: usize = 255;
const MAX_VALUE_LEN: usize = 8191;

/// Parses a text as a value of a property, if it is one and can be set.
pub fn parse_value(name: &str, kind: DatasetKind, text: &str) -> Result<PropertyValue> {
    let bad = |why| Error::InvalidValue { property: name.to_owned(), why };
    let not_a_number = || Error::NotANumber { value: text.to_owned() };
    if text.len() > MAX_VALUE_LEN {
        return Err(bad("must not be longer than 8191 bytes"));
    }
    let Some(row) = find_settable(name, kind)? else {
        return Ok(PropertyValue::Text(text.to_owned()));
    };
    let value = match row.format {
        ValueFormat::Index(words) => {
            let found = words.iter().find(|(word, _)| *word == text);
            let unknown =
                || Error::UnknownWord { property: name.to_owned(), words: value_help(name, words) };
            PropertyValue::Number(found.ok_or_else(unknown)?.1)
        }
        ValueFormat::Limit if text == "none" => PropertyValue::Number(u64::MAX),
        ValueFormat::Limit => PropertyValue::Number(text.parse().map_err(|_| not_a_number())?),
        format if format.is_plain_number() && text == "none" => PropertyValue::Number(0),
        ValueFormat::Number
        | ValueFormat::Space
        | ValueFormat::SpaceLimit
        | ValueFormat::Bytes
        | ValueFormat::Date => match units::parse_binary(text) {
            None => return Err(not_a_number()),
            Some(0) if matches!(name, "quota" | "refquota") => {
                return Err(bad("must not be 0: use 'none' for no limit"));
            }
            Some(number) => PropertyValue::Number(number),
        },
        ValueFormat::Text => PropertyValue::Text(text.to_owned()),
        ValueFormat::Ratio => return Err(bad("is readonly")),
    };
    check_value(row, &value).map_err(bad)?;
    Ok(value)
}

/// The words of a property as zfs(8) lists them: those in common use, in its order.
fn value_help(name: &str, words: &[(&str, u64)]) -> String {
    let known = match name {
        "acltype" => "off | nfsv4 | posix",
        "checksum" => "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3",
        "compression" => {
            "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | \
             zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]"
        }
        "dedup" => {
            "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | \
             blake3[,verify]"
        }
        "aclinherit" => "discard | noallow | restricted | passthrough | passthrough-x",
        "redundant_metadata" => "all | most | some | none",
        "snapdir" => "disabled | hidden | visible",
        "canmount" => "on | off | noauto",
        "volmode" => "default | full | geom | dev | none",
        "xattr" => "on | off | dir | sa",
        _ if words.iter().any(|(word, _)| *word == "on") => "on | off",
        _ => "",
    };
    match known {
        "" => words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" | "),
        known => known.to_owned(),
    }
}

/// The number of a word for a property that is chosen when a dataset is made.
pub fn parse_create_only(name: &str, text: &str) -> Option<u64> {
    let row = find_property(name).filter(|row| row.attr == PropertyAttr::OneTime)?;
    let ValueFormat::Index(words) = row.format else { return None };
    words.iter().find(|(word, _)| *word == text).map(|(_, number)| *number)
}

/// Whether a property is chosen when a dataset is created, and never after that.
pub fn is_create_only(name: &str) -> bool {
    find_property(name)
        .is_some_and(|row| matches!(row.attr, PropertyAttr::OneTime | PropertyAttr::OneTimeDefault))
}

/// Whether users may set a property on datasets of a kind; or why not.
pub fn is_settable(name: &str, kind: DatasetKind) -> Result<()> {
    find_settable(name, kind).map(drop)
}

fn find_settable(name: &str, kind: DatasetKind) -> Result<Option<&'static PropertyDef>> {
    let bad = |why| Error::InvalidProperty { property: name.to_owned(), why };
    let Some(row) = find_property(name) else {
        let letter = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b":-._".contains(&byte)
        };
        return match name {
            _ if !name.contains(':') => Err(bad("there is no such property")),
            _ if name.len() > MAX_NAME_LEN => Err(bad("its name is longer than 255 bytes")),
            _ if !name.bytes().all(letter) => {
                Err(bad("a user's own has only lower-case letters, digits and : - . _"))
            }
            _ => Ok(None),
        };
    };
    if matches!(
        row.attr,
        PropertyAttr::ReadOnly | PropertyAttr::OneTime | PropertyAttr::OneTimeDefault
    ) {
        return Err(Error::ReadOnlyProperty { property: name.to_owned() });
    }
    if name == "version" {
        return Err(bad("the format of a file system is not chosen, and goes up only"));
    }
    let has = match kind {
        DatasetKind::Filesystem => row.dataset_kinds & FILESYSTEM != 0,
        DatasetKind::Volume => row.dataset_kinds & VOLUME != 0,
        DatasetKind::Snapshot | DatasetKind::Bookmark => false,
    };
    if has { Ok(Some(row)) } else { Err(Error::NotApplicable { property: name.to_owned() }) }
}

/// Whether users could set a property on datasets of a kind to a value, which came from elsewhere.
pub fn check_stored_value(name: &str, kind: DatasetKind, value: &PropertyValue) -> Result<()> {
    let bad = |why| Error::InvalidProperty { property: name.to_owned(), why };
    if kind == DatasetKind::Snapshot && name.contains(':') {
        return Ok(());
    }
    let Some(row) = find_settable(name, kind)? else {
        return match value {
            PropertyValue::Text(text) if text.len() <= MAX_VALUE_LEN => Ok(()),
            _ => Err(bad("a user's own is a text of at most 8191 bytes")),
        };
    };
    match (row.format, value) {
        (ValueFormat::Index(words), PropertyValue::Number(number)) => {
            let is_known = words.iter().any(|(_, known)| known == number);
            is_known.then_some(()).ok_or_else(|| bad("its value is not known to this version"))?;
        }
        (ValueFormat::Text, PropertyValue::Text(_)) => {}
        (format, PropertyValue::Number(_))
            if format == ValueFormat::Limit || format.is_plain_number() => {}
        _ => return Err(bad("its value is of another type")),
    }
    check_value(row, value).map_err(bad)
}

/// Whether the property may have this number.
fn check_value(row: &PropertyDef, value: &PropertyValue) -> std::result::Result<(), &'static str> {
    let number = match value {
        PropertyValue::Number(number) => number,
        PropertyValue::Text(text) => return check_text(row, text),
    };
    let power = number.is_power_of_two();
    match row.name {
        "recordsize" if !power || !(512..=16 << 20).contains(number) => {
            Err("must be power of 2 from 512B to 16M")
        }
        "special_small_blocks" if *number != 0 && (!power || !(512..=1 << 20).contains(number)) => {
            Err("must be zero or a power of 2 from 512B to 1M")
        }
        _ => Ok(()),
    }
}

fn check_text(row: &PropertyDef, text: &str) -> std::result::Result<(), &'static str> {
    match row.name {
        "mlslabel" if text != "none" => {
            Err("must be none: labels of security levels are not kept here")
        }
        "mountpoint" if !text.starts_with('/') && !matches!(text, "none" | "legacy") => {
            Err("must be an absolute path, 'none', or 'legacy'")
        }
        _ => Ok(()),
    }
}
