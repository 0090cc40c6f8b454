//! Properties: what is set, and the facts, as `zfs get all -p` prints them.
//!
//! A value comes from the first place that has one: the snapshot, its directory, then, if the
//! property is inherited, the directories above; or else it is the default. Facts come from the
//! dataset's records. What depends on a system that has the pool imported (`mounted`, and what
//! mount options override) is told as of a pool that is not.

mod facts;
mod names;
mod parse;
mod space;
mod table;

use std::collections::HashSet;
use std::sync::Arc;

use facts::{Facts, Wanted};
pub use parse::{is_settable, parse, parse_once};
pub use space::available;
use table::{BOOKMARK, FILESYSTEM, Fallback, Flavor, Form, Row, SNAPSHOT, TABLE, VOLUME};

use crate::settings::{Set, Setting, Settings};
use crate::{Dataset, Kind, Result};

/// Where a property's value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// It is a fact (`-`).
    Fact,
    /// Nothing is set (`default`).
    Default,
    /// It is set here (`local`).
    Local,
    /// It came with a send stream (`received`).
    Received,
    /// It is set in the dataset of this name (`inherited from NAME`).
    Inherited(String),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fact => f.write_str("-"),
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
    pub source: Source,
}

/// Whether there is a property of that name: a native one, or one of the form of a user's own.
pub fn is_known(name: &str) -> bool {
    table::find(name).is_some() || name.contains(':')
}

/// Whether a property of words knows the word for this number. Others do not have such numbers.
pub(crate) fn knows_index(name: &str, value: &Setting) -> bool {
    match (table::find(name).map(|row| row.form), value) {
        (Some(Form::Index(words)), Setting::Number(number)) => word(words, *number).is_some(),
        _ => false,
    }
}

/// Whether a directory below has what is set here, too.
pub(crate) fn is_inherited(name: &str) -> bool {
    table::find(name).is_none_or(Row::is_inherited)
}

/// What a property has that is set nowhere.
pub(crate) fn fallback(name: &str) -> Option<Setting> {
    match table::find(name)?.fallback {
        Fallback::None => None,
        Fallback::Number(number) => Some(Setting::Number(number)),
        Fallback::Text(text) => Some(Setting::Text(text.to_owned())),
    }
}

fn word(words: &[(&'static str, u64)], number: u64) -> Option<&'static str> {
    words.iter().find(|(_, known)| *known == number).map(|(word, _)| *word)
}

impl Dataset {
    /// All properties, native ones first and in the order of `zfs get all`, then the user's own.
    ///
    /// What cannot be read (of a locked dataset, or a damaged one) is left out.
    pub fn properties(&self) -> Result<Vec<Property>> {
        let view = View::new(self, &|_| true)?;
        let mut found: Vec<Property> = TABLE.iter().filter_map(|row| view.native(row)).collect();
        found.extend(view.own());
        Ok(found)
    }

    /// One property, native or the user's own; `None` where the dataset has none of that name.
    pub fn property(&self, name: &str) -> Result<Option<Property>> {
        Ok(self.select(&[name])?.pop().flatten())
    }

    /// Some properties, each in the place of its name. Much cheaper than all of them.
    pub fn select(&self, names: &[&str]) -> Result<Vec<Option<Property>>> {
        let view = View::new(self, &|name| names.contains(&name))?;
        let own: Vec<Property> = view.own().collect();
        let find = |name: &&str| match table::find(name) {
            Some(row) => view.native(row),
            None => own.iter().find(|property| property.name == *name).cloned(),
        };
        Ok(names.iter().map(find).collect())
    }

    /// What is set for a property: in the dataset, or for inherited ones above.
    pub(crate) fn setting(&self, name: &str) -> Result<Option<(Setting, Source)>> {
        let inherited = table::find(name).is_none_or(Row::is_inherited);
        let layers = layers(self)?;
        for layer in &layers {
            if layer.above && !inherited {
                break;
            }
            if let Some(set) = layer.settings.get(name) {
                return Ok(Some((set.value.clone(), layer.source(set))));
            }
        }
        Ok(None)
    }
}

/// What is set in one place, as a dataset sees it.
struct Layer {
    settings: Arc<Settings>,
    place: String,
    /// Whether the place is not the dataset itself.
    above: bool,
}

impl Layer {
    fn source(&self, set: &Set) -> Source {
        if self.above {
            Source::Inherited(self.place.clone())
        } else if set.received {
            Source::Received
        } else {
            Source::Local
        }
    }
}

/// The places where something may be set, nearest first.
fn layers(dataset: &Dataset) -> Result<Vec<Layer>> {
    let mut layers = Vec::new();
    let Some(phys) = dataset.phys() else { return Ok(layers) };
    if phys.is_snapshot() {
        let settings = Arc::new(Settings::read(dataset.tree().mos(), phys.properties)?);
        layers.push(Layer { settings, place: dataset.name(), above: false });
    }
    for dir in dataset.dir().upwards() {
        let above = dir.id() != dataset.dir().id() || phys.is_snapshot();
        let (settings, place) = (dir.settings()?, dir.path().to_owned());
        layers.push(Layer { settings, place, above });
    }
    Ok(layers)
}

/// A dataset with all that its properties come from.
struct View<'a> {
    dataset: &'a Dataset,
    kinds: u8,
    layers: Vec<Layer>,
    facts: Facts,
}

impl<'a> View<'a> {
    fn new(dataset: &'a Dataset, wanted: Wanted<'_>) -> Result<Self> {
        let kind = dataset.kind().unwrap_or(Kind::Filesystem);
        let volume = kind == Kind::Volume
            || (kind == Kind::Snapshot
                && dataset.content_kind().ok() == Some(ondisk::objset::Kind::Volume));
        let head = if volume { VOLUME } else { FILESYSTEM };
        let kinds = match kind {
            Kind::Bookmark => BOOKMARK,
            Kind::Snapshot => SNAPSHOT | head,
            Kind::Filesystem | Kind::Volume => head,
        };
        let layers = layers(dataset)?;
        let facts = Facts::of(dataset, kind, volume, wanted);
        Ok(Self { dataset, kinds, layers, facts })
    }

    /// Whether this kind of dataset has the property; a snapshot has only what what it is a
    /// snapshot of has, too.
    fn has(&self, row: &Row) -> bool {
        if self.kinds & SNAPSHOT == 0 {
            return row.kinds & self.kinds != 0;
        }
        let heads = row.kinds & (FILESYSTEM | VOLUME);
        row.kinds & SNAPSHOT != 0 && (heads == 0 || heads & self.kinds != 0)
    }

    fn set(&self, row: &Row) -> Option<(Setting, Source)> {
        let layers = self.layers.iter().take_while(|layer| !layer.above || row.is_inherited());
        layers
            .filter_map(|layer| layer.settings.get(row.name).map(|set| (layer, set)))
            .map(|(layer, set)| (set.value.clone(), layer.source(set)))
            .next()
    }

    fn native(&self, row: &Row) -> Option<Property> {
        if !self.has(row) {
            return None;
        }
        let (value, source) = match self.facts.get(row.name) {
            Some(fact) => (fact.clone(), self.fact_source(row, fact)),
            None => self.set(row).or_else(|| self.fallback(row))?,
        };
        let value = if row.name == "mountpoint" {
            self.mountpoint(&value, &source)
        } else {
            row.form.write(&value)?
        };
        Some(Property { name: row.name.to_owned(), value, source })
    }

    /// Facts have no source; but of some it is said where they were set.
    fn fact_source(&self, row: &Row, fact: &Setting) -> Source {
        // no limit may be what was set
        let limits = ["quota", "refquota", "reservation", "refreservation"];
        if let (true, Some((_, source))) = (limits.contains(&row.name), self.set(row)) {
            return source;
        }
        let is_default = match row.fallback {
            Fallback::Number(number) => *fact == Setting::Number(number),
            Fallback::Text(text) => *fact == Setting::Text(text.to_owned()),
            Fallback::None => false,
        };
        if is_default && row.flavor != Flavor::ReadOnly {
            return Source::Default;
        }
        match row.name {
            "quota" | "refquota" | "reservation" | "refreservation" | "volsize"
            | "filesystem_count" | "snapshot_count" => Source::Local,
            _ => Source::Fact,
        }
    }

    fn fallback(&self, row: &Row) -> Option<(Setting, Source)> {
        // a fact that is not there is not told
        let limit = row.form == Form::Limit;
        if self.kinds == BOOKMARK || (row.flavor == Flavor::ReadOnly && !limit) {
            return None;
        }
        // chosen when the file system was made, and kept where only its key leads
        if self.facts.lacks_content && facts::CONTENT.contains(&row.name) {
            return None;
        }
        let value = match row.fallback {
            Fallback::None => return None,
            Fallback::Number(number) => Setting::Number(number),
            Fallback::Text(text) => Setting::Text(text.to_owned()),
        };
        Some((value, Source::Default))
    }

    /// A path is extended by the way from where it is set to the dataset.
    fn mountpoint(&self, value: &Setting, source: &Source) -> String {
        let Setting::Text(set) = value else { return "/".to_owned() };
        if !set.starts_with('/') {
            return set.clone();
        }
        let path = self.dataset.dir().path();
        let below = match source {
            Source::Local | Source::Received | Source::Fact => "",
            Source::Inherited(from) => path.strip_prefix(&**from).unwrap_or_default(),
            Source::Default => path,
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
    fn own(&self) -> impl Iterator<Item = Property> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for layer in &self.layers {
            for set in layer.settings.all.iter().filter(|set| set.name.contains(':')) {
                if !seen.insert(set.name.clone()) {
                    continue;
                }
                let value = match &set.value {
                    Setting::Text(text) => text.clone(),
                    Setting::Number(number) => number.to_string(),
                };
                let (name, source) = (set.name.clone(), layer.source(set));
                found.push(Property { name, value, source });
            }
        }
        found.into_iter()
    }
}

impl Form {
    fn write(self, value: &Setting) -> Option<String> {
        Some(match (self, value) {
            (Self::Ratio, Setting::Number(number)) => {
                let (whole, part) = (number.checked_div(100)?, number.checked_rem(100)?);
                format!("{whole}.{part:02}")
            }
            (Self::Limit, Setting::Number(u64::MAX)) => "none".to_owned(),
            (Self::Number | Self::Limit, Setting::Number(number)) => number.to_string(),
            (Self::Index(words), Setting::Number(number)) => word(words, *number)?.to_owned(),
            (Self::Text, Setting::Text(text)) => text.clone(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
