//! The properties set on one object: the ZAP of a directory or a snapshot.
//!
//! ```text
//! compression           a value that was set here
//! compression$recvd     a value that came with a send stream; one set here goes before it
//! compression$inherit   what came with the stream does not count: inherit
//! compression$iuv       a value that old versions would not know; it goes before the others
//! ```
//!
//! Numbers are one integer of 8 bytes, texts are bytes with a NUL.

use std::collections::HashMap;

use dmu::Objset;
use units::ObjectId;
use zap::{Zap, ZapValue};

use crate::Result;
use crate::dir::open_zap;
use crate::property::is_known_index;

/// A value as it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyValue {
    /// A number; where the property has words, that of the word.
    Number(u64),
    /// A text.
    Text(String),
}

/// A property that counts in the place where it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalProperty {
    pub(crate) name: String,
    pub(crate) value: PropertyValue,
    pub(crate) is_received: bool,
}

/// All that count, in the table's order.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalProperties {
    pub(crate) entries: Vec<LocalProperty>,
    index: HashMap<String, usize>,
    /// Received values, also those that are overridden.
    received: HashMap<String, PropertyValue>,
}

impl LocalProperties {
    pub(crate) fn read(mos: &Objset, id: ObjectId) -> Result<Self> {
        Ok(Self::from_entries(read_table(mos, id)?))
    }

    /// The values that were received, whether they count or not.
    pub(crate) fn read_received(
        mos: &Objset,
        id: ObjectId,
    ) -> Result<Vec<(String, PropertyValue)>> {
        let received = |(name, value): (String, PropertyValue)| {
            Some((name.strip_suffix("$recvd")?.to_owned(), value))
        };
        Ok(read_table(mos, id)?.into_iter().filter_map(received).collect())
    }

    pub(crate) fn from_entries(raw: Vec<(String, PropertyValue)>) -> Self {
        let known: HashMap<String, PropertyValue> = raw.iter().cloned().collect();
        let has = |name: &str, suffix: &str| known.contains_key(&format!("{name}{suffix}"));
        let mut found = Self::default();
        for (entry, value) in raw {
            let (name, suffix) = match entry.find('$') {
                Some(cut) => entry.split_at_checked(cut).unwrap_or((&entry, "")),
                None => (&*entry, ""),
            };
            if suffix == "$recvd" {
                found.received.insert(name.to_owned(), value.clone());
            }
            let (counts, received) = match suffix {
                "" => (!has(name, "$iuv"), false),
                "$recvd" => (!has(name, "") && !has(name, "$inherit"), true),
                "$iuv" => (is_known_index(name, &value), false),
                _ => (false, false),
            };
            if counts && !found.index.contains_key(name) {
                found.index.insert(name.to_owned(), found.entries.len());
                found.entries.push(LocalProperty {
                    name: name.to_owned(),
                    value,
                    is_received: received,
                });
            }
        }
        found
    }

    pub(crate) fn get(&self, name: &str) -> Option<&LocalProperty> {
        self.index.get(name).and_then(|at| self.entries.get(*at))
    }

    /// The value that came with a send stream, whether it counts or not.
    pub(crate) fn received(&self, name: &str) -> Option<&PropertyValue> {
        self.received.get(name)
    }
}

/// The entries of a table of properties, with the suffixes of their names.
fn read_table(mos: &Objset, id: ObjectId) -> Result<Vec<(String, PropertyValue)>> {
    let mut found = Vec::new();
    for entry in open_zap(mos, id)?.iter().flat_map(Zap::entries) {
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        found.extend(PropertyValue::from_zap_value(&entry.value).map(|value| (name, value)));
    }
    Ok(found)
}

impl PropertyValue {
    fn from_zap_value(value: &ZapValue) -> Option<Self> {
        if value.int_size() == 1 {
            let bytes = value.bytes();
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            let text = bytes.get(..end).unwrap_or_default();
            return Some(Self::Text(String::from_utf8_lossy(text).into_owned()));
        }
        value.integers().next().map(Self::Number)
    }
}

#[cfg(test)]
mod tests {
    use super::{LocalProperties, PropertyValue};

    fn properties_from(entries: &[(&str, u64)]) -> LocalProperties {
        let lay = |(name, value): &(&str, u64)| ((*name).to_owned(), PropertyValue::Number(*value));
        LocalProperties::from_entries(entries.iter().map(lay).collect())
    }

    #[test]
    fn local_values_override_received_ones() {
        let found = properties_from(&[("atime$recvd", 0), ("exec", 1), ("exec$recvd", 0)]);
        assert!(found.get("atime").unwrap().is_received);
        let exec = found.get("exec").unwrap();
        assert!(!exec.is_received && exec.value == PropertyValue::Number(1));
        assert_eq!(found.received("exec"), Some(&PropertyValue::Number(0)));
        let found = properties_from(&[("atime$recvd", 0), ("atime$inherit", 0), ("x$y", 4)]);
        assert!(found.entries.is_empty());
        assert_eq!(found.received("atime"), Some(&PropertyValue::Number(0)));
    }

    #[test]
    fn known_newer_value_overrides_the_old_one() {
        let found = properties_from(&[("compression", 15), ("compression$iuv", 16)]);
        assert_eq!(found.get("compression").unwrap().value, PropertyValue::Number(16));
        // an unknown one hides the old one, which is not in effect any more
        let found = properties_from(&[("compression", 15), ("compression$iuv", 99)]);
        assert!(found.get("compression").is_none());
    }
}
