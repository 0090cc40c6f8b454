//! Properties, set or computed, as `zfs get all -p` prints them.
//!
//! A value comes from the first place that has one: the snapshot, its directory, then, if the
//! property is inherited, the directories above; or else it is the default. Computed values come
//! from the dataset's records. Values that depend on the importing system (`mounted`, and
//! properties that mount options override) are those of an exported pool.

mod available;
mod computed;
mod index_words;
mod parse;
mod table;

use std::collections::HashSet;
use std::sync::Arc;

pub use available::available_space;
use computed::{ComputedValues, PropertyFilter};
pub use parse::{check_stored_value, is_create_only, is_settable, parse_create_only, parse_value};
use table::{BOOKMARK, DefaultValue, FILESYSTEM, PropertyAttr, SNAPSHOT, VOLUME};
pub use table::{Effects, PROPERTIES, PropertyDef, ValueFormat, find_property};

use crate::local_properties::{LocalProperties, LocalProperty, PropertyValue};
use crate::{Dataset, DatasetKind, Result};

/// Where a property's value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PropertySource {
    /// It is a fact (`-`).
    Computed,
    /// It is not set (`default`).
    Default,
    /// It is set here (`local`).
    Local,
    /// It came with a send stream (`received`).
    Received,
    /// It is set in the dataset of this name (`inherited from NAME`).
    Inherited(String),
}

impl std::fmt::Display for PropertySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Computed => f.write_str("-"),
            Self::Default => f.write_str("default"),
            Self::Local => f.write_str("local"),
            Self::Received => f.write_str("received"),
            Self::Inherited(from) => write!(f, "inherited from {from}"),
        }
    }
}

/// A property of a dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Property {
    /// Its name; with a colon in it, it is a user's own.
    pub name: String,
    /// Its value as `zfs get -p` prints it: numbers in full.
    pub value: String,
    /// Where it comes from.
    pub source: PropertySource,
    /// The value that came with a send stream, also where another one counts.
    pub received: Option<String>,
}

/// Whether the property exists: a native one, or one with the form of a user property.
pub fn is_known(name: &str) -> bool {
    find_property(name).is_some() || name.contains(':')
}

/// Whether a property of words knows the word for this number. Others do not have such numbers.
pub(crate) fn is_known_index(name: &str, value: &PropertyValue) -> bool {
    match (find_property(name).map(|row| row.format), value) {
        (Some(ValueFormat::Index(words)), PropertyValue::Number(number)) => {
            index_word(words, *number).is_some()
        }
        _ => false,
    }
}

/// Whether directories below inherit the value.
pub fn is_inheritable(name: &str) -> bool {
    find_property(name).is_none_or(PropertyDef::is_inheritable)
}

/// The value of a property that is not set.
pub(crate) fn default_value(name: &str) -> Option<PropertyValue> {
    match find_property(name)?.default {
        DefaultValue::None => None,
        DefaultValue::Number(number) => Some(PropertyValue::Number(number)),
        DefaultValue::Text(text) => Some(PropertyValue::Text(text.to_owned())),
    }
}

fn index_word(words: &[(&'static str, u64)], number: u64) -> Option<&'static str> {
    words.iter().find(|(_, known)| *known == number).map(|(word, _)| *word)
}

impl Dataset {
    /// All properties, native ones first and in the order of `zfs get all`, then the user's own.
    ///
    /// Unreadable values (of a locked dataset, or a damaged one) are left out.
    pub fn properties(&self) -> Result<Vec<Property>> {
        let view = PropertyView::new(self, &|_| true)?;
        let mut found: Vec<Property> =
            PROPERTIES.iter().filter_map(|row| view.native_property(row)).collect();
        found.extend(view.user_properties());
        Ok(found)
    }

    /// One property, native or the user's own; `None` where the dataset has none of that name.
    pub fn property(&self, name: &str) -> Result<Option<Property>> {
        Ok(self.select_properties(&[name])?.pop().flatten())
    }

    /// Some properties, each in the place of its name. Much cheaper than all of them.
    pub fn select_properties(&self, names: &[&str]) -> Result<Vec<Option<Property>>> {
        let view = PropertyView::new(self, &|name| names.contains(&name))?;
        let own: Vec<Property> = view.user_properties().collect();
        let find = |name: &&str| match find_property(name) {
            Some(row) => view.native_property(row),
            None => own.iter().find(|property| property.name == *name).cloned(),
        };
        Ok(names.iter().map(find).collect())
    }

    /// The set value of a property: of the dataset, or for inherited ones of a dataset above.
    pub(crate) fn effective_value(
        &self,
        name: &str,
    ) -> Result<Option<(PropertyValue, PropertySource)>> {
        let inherited = find_property(name).is_none_or(PropertyDef::is_inheritable);
        let layers = property_layers(self)?;
        for layer in &layers {
            if layer.is_ancestor && !inherited {
                break;
            }
            if let Some(set) = layer.properties.get(name) {
                return Ok(Some((set.value.clone(), layer.source(set))));
            }
        }
        Ok(None)
    }
}

/// The values set in one place, as the dataset sees them.
struct PropertyLayer {
    properties: Arc<LocalProperties>,
    dataset_name: String,
    /// Whether the place is not the dataset itself.
    is_ancestor: bool,
}

impl PropertyLayer {
    fn source(&self, set: &LocalProperty) -> PropertySource {
        if self.is_ancestor {
            PropertySource::Inherited(self.dataset_name.clone())
        } else if set.is_received {
            PropertySource::Received
        } else {
            PropertySource::Local
        }
    }
}

/// The places where something may be set, nearest first.
fn property_layers(dataset: &Dataset) -> Result<Vec<PropertyLayer>> {
    let mut layers = Vec::new();
    let Some(phys) = dataset.phys() else { return Ok(layers) };
    if phys.is_snapshot() {
        let settings = Arc::new(LocalProperties::read(dataset.tree().mos(), phys.properties)?);
        layers.push(PropertyLayer {
            properties: settings,
            dataset_name: dataset.name(),
            is_ancestor: false,
        });
    }
    for dir in dataset.dir().ancestors() {
        let above = dir.id() != dataset.dir().id() || phys.is_snapshot();
        let (settings, place) = (dir.local_properties()?, dir.path().to_owned());
        layers.push(PropertyLayer {
            properties: settings,
            dataset_name: place,
            is_ancestor: above,
        });
    }
    Ok(layers)
}

/// A dataset with all that its properties come from.
struct PropertyView<'a> {
    dataset: &'a Dataset,
    kind_mask: u8,
    layers: Vec<PropertyLayer>,
    computed: ComputedValues,
}

impl<'a> PropertyView<'a> {
    fn new(dataset: &'a Dataset, wanted: PropertyFilter<'_>) -> Result<Self> {
        let kind = dataset.kind().unwrap_or(DatasetKind::Filesystem);
        let volume = kind == DatasetKind::Volume
            || (kind == DatasetKind::Snapshot
                && dataset.objset_kind().ok() == Some(ondisk::objset::Kind::Volume));
        let head = if volume { VOLUME } else { FILESYSTEM };
        let kinds = match kind {
            DatasetKind::Bookmark => BOOKMARK,
            DatasetKind::Snapshot => SNAPSHOT | head,
            DatasetKind::Filesystem | DatasetKind::Volume => head,
        };
        let layers = property_layers(dataset)?;
        let facts = ComputedValues::compute(dataset, kind, volume, wanted);
        Ok(Self { dataset, kind_mask: kinds, layers, computed: facts })
    }

    /// Whether this kind of dataset has the property. A snapshot has only properties that its
    /// dataset has too.
    fn has_property(&self, row: &PropertyDef) -> bool {
        if self.kind_mask & SNAPSHOT == 0 {
            return row.dataset_kinds & self.kind_mask != 0;
        }
        let heads = row.dataset_kinds & (FILESYSTEM | VOLUME);
        row.dataset_kinds & SNAPSHOT != 0 && (heads == 0 || heads & self.kind_mask != 0)
    }

    fn set_value(&self, row: &PropertyDef) -> Option<(PropertyValue, PropertySource)> {
        let layers =
            self.layers.iter().take_while(|layer| !layer.is_ancestor || row.is_inheritable());
        layers
            .filter_map(|layer| layer.properties.get(row.name).map(|set| (layer, set)))
            .map(|(layer, set)| (set.value.clone(), layer.source(set)))
            .next()
    }

    fn native_property(&self, row: &PropertyDef) -> Option<Property> {
        if !self.has_property(row) {
            return None;
        }
        let (value, source) = match self.computed.get(row.name) {
            Some(fact) => (fact.clone(), self.computed_source(row, fact)),
            None => self.set_value(row).or_else(|| self.default_value(row))?,
        };
        let value = if row.name == "mountpoint" {
            self.resolve_mountpoint(&value, &source)
        } else {
            row.format.format_value(&value)?
        };
        let received = self.received_value(row.name).and_then(|value| match (row.name, value) {
            ("mountpoint", PropertyValue::Text(path)) => Some(path.clone()),
            _ => row.format.format_value(value),
        });
        Some(Property { name: row.name.to_owned(), value, source, received })
    }

    /// The value of the dataset itself that came with a send stream.
    fn received_value(&self, name: &str) -> Option<&PropertyValue> {
        let own = self.layers.iter().find(|layer| !layer.is_ancestor)?;
        own.properties.received(name)
    }

    /// Computed values have no source; but some have one in `zfs get`.
    fn computed_source(&self, row: &PropertyDef, fact: &PropertyValue) -> PropertySource {
        // the set value may be `none`
        let limits = ["quota", "refquota", "reservation", "refreservation"];
        if let (true, Some((_, source))) = (limits.contains(&row.name), self.set_value(row)) {
            return source;
        }
        let is_default = match row.default {
            DefaultValue::Number(number) => *fact == PropertyValue::Number(number),
            DefaultValue::Text(text) => *fact == PropertyValue::Text(text.to_owned()),
            DefaultValue::None => false,
        };
        if is_default && row.attr != PropertyAttr::ReadOnly {
            return PropertySource::Default;
        }
        match row.name {
            "quota" | "refquota" | "reservation" | "refreservation" | "volsize"
            | "filesystem_count" | "snapshot_count" => PropertySource::Local,
            _ => PropertySource::Computed,
        }
    }

    fn default_value(&self, row: &PropertyDef) -> Option<(PropertyValue, PropertySource)> {
        // a missing fact is left out
        let limit = row.format == ValueFormat::Limit;
        if self.kind_mask == BOOKMARK || (row.attr == PropertyAttr::ReadOnly && !limit) {
            return None;
        }
        // chosen when the file system was made, and kept where only its key leads
        if self.computed.content_unreadable && computed::CONTENT_PROPERTIES.contains(&row.name) {
            return None;
        }
        let value = match row.default {
            DefaultValue::None => return None,
            DefaultValue::Number(number) => PropertyValue::Number(number),
            DefaultValue::Text(text) => PropertyValue::Text(text.to_owned()),
        };
        Some((value, PropertySource::Default))
    }

    /// A path is extended by the way from where it is set to the dataset.
    fn resolve_mountpoint(&self, value: &PropertyValue, source: &PropertySource) -> String {
        let PropertyValue::Text(set) = value else { return "/".to_owned() };
        if !set.starts_with('/') {
            return set.clone();
        }
        let path = self.dataset.dir().path();
        let below = match source {
            PropertySource::Local | PropertySource::Received | PropertySource::Computed => "",
            PropertySource::Inherited(from) => path.strip_prefix(&**from).unwrap_or_default(),
            PropertySource::Default => path,
        };
        let below = below.strip_prefix('/').unwrap_or(below);
        let base = if set == "/" { "" } else { &**set };
        match (base, below) {
            ("", "") => "/".to_owned(),
            (_, "") => base.to_owned(),
            _ => format!("{base}/{below}"),
        }
    }

    /// The user's own properties, the nearest value of each.
    fn user_properties(&self) -> impl Iterator<Item = Property> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for layer in &self.layers {
            for set in layer.properties.entries.iter().filter(|set| set.name.contains(':')) {
                if !seen.insert(set.name.clone()) {
                    continue;
                }
                let plain = |value: &PropertyValue| match value {
                    PropertyValue::Text(text) => text.clone(),
                    PropertyValue::Number(number) => number.to_string(),
                };
                let (name, source) = (set.name.clone(), layer.source(set));
                let received = self.received_value(&name).map(plain);
                found.push(Property { name, value: plain(&set.value), source, received });
            }
        }
        found.into_iter()
    }
}

impl ValueFormat {
    /// Whether it is a number as it is, whatever its unit.
    fn is_plain_number(self) -> bool {
        matches!(self, Self::Number | Self::Space | Self::SpaceLimit | Self::Bytes | Self::Date)
    }

    /// Whether its column is aligned to the right, as zfs(8) aligns numbers that are no dates.
    pub fn is_right_aligned(self) -> bool {
        matches!(self, Self::Ratio | Self::Limit) || (self.is_plain_number() && self != Self::Date)
    }

    /// The longest word, in letters; 0: it has no words.
    pub fn word_width(self) -> usize {
        match self {
            Self::Index(words) => words.iter().map(|(word, _)| word.len()).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn format_value(self, value: &PropertyValue) -> Option<String> {
        Some(match (self, value) {
            (Self::Ratio, PropertyValue::Number(number)) => {
                let (whole, part) = (number.checked_div(100)?, number.checked_rem(100)?);
                format!("{whole}.{part:02}")
            }
            (Self::Limit, PropertyValue::Number(u64::MAX)) => "none".to_owned(),
            (Self::Index(words), PropertyValue::Number(number)) => {
                index_word(words, *number)?.to_owned()
            }
            (Self::Text, PropertyValue::Text(text)) => text.clone(),
            (format, PropertyValue::Number(number))
                if format == Self::Limit || format.is_plain_number() =>
            {
                number.to_string()
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
