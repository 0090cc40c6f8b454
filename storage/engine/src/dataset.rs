//! Datasets and their properties, as plain data.

use dsl::DatasetKind;

pub use dsl::property::{Effects, PROPERTIES, PropertyDef, ValueFormat, find_property};

pub use crate::owner_properties::{OwnerKind, OwnerUsage};

use crate::keys::{KeyState, key_state};
use crate::{Error, Event, RescuePool, Result, owner_properties};

/// A property.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Property {
    /// Its name; one with a colon is a user's own.
    pub name: String,
    /// Its value, numbers in full.
    pub value: String,
    /// Where it is set: "-" (a fact), "default", "local", "received", "inherited from NAME"; "temporary":
    /// it is mounted so.
    pub source: String,
    /// The value that came with a send stream, also where another one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<String>,
}

/// A file system, volume, snapshot or bookmark.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Dataset {
    /// Its full name.
    pub name: String,
    /// "filesystem", "volume", "snapshot" or "bookmark".
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it can be read.
    pub key: KeyState,
    /// All its properties, in the order of `zfs get all`, then the user's own by name.
    pub properties: Vec<Property>,
}

/// The selection of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct DatasetQuery {
    /// These kinds only; none: all.
    pub kinds: Vec<String>,
    /// The number of levels below the target; none: all.
    pub depth: Option<usize>,
    /// These properties only; none: all.
    pub properties: Vec<String>,
}

/// The prefix of the property that gives the bytes written since a snapshot.
const WRITTEN_SINCE_PREFIX: &str = "written@";

/// Whether datasets of some kind have a property of that name, or users may give them one. Owners
/// go by their numbers (`userused@1000`).
pub fn is_property(name: &str) -> bool {
    dsl::property::is_known(name)
        || owner_properties::parse(name).is_some()
        || name.strip_prefix(WRITTEN_SINCE_PREFIX).is_some_and(|snapshot| !snapshot.is_empty())
}

/// Whether the change of a property has that effect. User properties have none.
pub fn has_effect(property: &str, effect: Effects) -> bool {
    find_property(property).is_some_and(|row| row.effects().contains(effect))
}

/// The names of the properties whose change has that effect.
pub fn properties_with(effect: Effects) -> impl Iterator<Item = &'static str> {
    PROPERTIES.iter().filter(move |row| row.effects().contains(effect)).map(PropertyDef::name)
}

/// Whether users may set that property on datasets of a kind ("filesystem", "volume").
pub fn is_settable(name: &str, kind: &str) -> bool {
    let kind = if kind == "volume" { DatasetKind::Volume } else { DatasetKind::Filesystem };
    dsl::property::is_settable(name, kind).is_ok()
}

impl Dataset {
    /// A property's value.
    pub fn property_value(&self, name: &str) -> Option<&str> {
        let found = self.properties.iter().find(|property| property.name == name);
        found.map(|property| property.value.as_str())
    }
}

impl RescuePool {
    /// Calls `show` with the dataset `target` and its descendants, each file system or volume
    /// followed by its snapshots and bookmarks. Unreadable ones are reported to `trouble`.
    pub fn list_datasets(
        &self,
        target: &str,
        wanted: &DatasetQuery,
        show: &mut dyn FnMut(Dataset),
        trouble: &mut dyn FnMut(Event),
    ) -> Result<()> {
        list_datasets(self.tree(), &self.full_name(target), wanted, show, trouble)
    }
}

/// Shows the dataset `target` and all below it.
pub(crate) fn list_datasets(
    tree: &dsl::DatasetTree,
    target: &str,
    wanted: &DatasetQuery,
    show: &mut dyn FnMut(Dataset),
    trouble: &mut dyn FnMut(Event),
) -> Result<()> {
    let found = tree.find(target).map_err(|error| Error::from_dsl_error(target, &error))?;
    // a dataset that is being received is listed where it is named
    if target.contains(['@', '#', '%']) {
        show(describe_dataset(&found, wanted)?);
        return Ok(());
    }
    let is_wanted = |path: &str| is_within(path, target, wanted.depth);
    for head in tree.heads_matching(&is_wanted) {
        let head = match head {
            Ok(head) => head,
            Err(error) => {
                let (dataset, why) = (target.to_owned(), error.to_string());
                trouble(Event::UnreadableDataset { dataset, why });
                continue;
            }
        };
        if wanted.matches_kind(DatasetKind::Filesystem) || wanted.matches_kind(DatasetKind::Volume)
        {
            list_one(&head, wanted, show, trouble);
        }
        // the records of thousands of snapshots are not read for nothing
        let lists = |kind| wanted.matches_kind(kind) && is_wanted(&format!("{}@", head.name()));
        let snapshots =
            if lists(DatasetKind::Snapshot) { head.snapshots() } else { Ok(Vec::new()) };
        let bookmarks =
            if lists(DatasetKind::Bookmark) { head.bookmarks() } else { Ok(Vec::new()) };
        for found in [snapshots, bookmarks] {
            match found {
                Ok(found) => {
                    for dataset in &found {
                        list_one(dataset, wanted, show, trouble);
                    }
                }
                Err(error) => {
                    let (dataset, why) = (target.to_owned(), error.to_string());
                    trouble(Event::UnreadableDataset { dataset, why });
                }
            }
        }
    }
    Ok(())
}

/// Shows one dataset if it is of a kind that is wanted.
fn list_one(
    dataset: &dsl::Dataset,
    wanted: &DatasetQuery,
    show: &mut dyn FnMut(Dataset),
    trouble: &mut dyn FnMut(Event),
) {
    let failed = |why: String| Event::UnreadableDataset { dataset: dataset.name(), why };
    match dataset.kind() {
        Ok(kind) if !wanted.matches_kind(kind) => {}
        Ok(_) => match describe_dataset(dataset, wanted) {
            Ok(described) => show(described),
            Err(error) => trouble(failed(error.to_string())),
        },
        Err(error) => trouble(failed(error.to_string())),
    }
}

impl DatasetQuery {
    fn matches_kind(&self, kind: DatasetKind) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind.name())
    }
}

/// Whether a name is the target or lies at most so deep below it. A snapshot or bookmark lies one
/// name below its dataset.
fn is_within(name: &str, target: &str, depth: Option<usize>) -> bool {
    let Some(rest) = name.strip_prefix(target) else { return false };
    let below = rest.matches(['/', '@', '#']).count();
    (rest.is_empty() || rest.starts_with(['/', '@', '#']))
        && depth.is_none_or(|depth| below <= depth)
}

fn describe_dataset(dataset: &dsl::Dataset, wanted: &DatasetQuery) -> Result<Dataset> {
    let name = dataset.name();
    let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
    let found = if wanted.properties.is_empty() {
        dataset.properties().map_err(failed)?
    } else {
        let names: Vec<&str> = wanted.properties.iter().map(String::as_str).collect();
        dataset.select_properties(&names).map_err(failed)?.into_iter().flatten().collect()
    };
    let owners =
        wanted.properties.iter().filter_map(|name| Some((name, owner_properties::parse(name)?)));
    let owners: Result<Vec<_>> = owners
        .map(|(name, fact)| owner_properties::read_owner_property(dataset, name, fact))
        .collect();
    let since = wanted.properties.iter().filter_map(|name| written_since(dataset, name));
    let plain = |found: dsl::Property| Property {
        name: found.name,
        value: found.value,
        source: found.source.to_string(),
        received: found.received,
    };
    Ok(Dataset {
        kind: dataset.kind().map_err(failed)?.name().to_owned(),
        key: key_state(dataset),
        properties: found
            .into_iter()
            .map(plain)
            .chain(owners?.into_iter().flatten())
            .chain(since)
            .collect(),
        name,
    })
}

/// Bytes written since a snapshot, the property `written@SNAPSHOT`; SNAPSHOT is a full name or the
/// part after the @. Its source is "local", as in OpenZFS. None: it is another property, or no older snapshot has that name.
fn written_since(dataset: &dsl::Dataset, property: &str) -> Option<Property> {
    let snapshot = property.strip_prefix(WRITTEN_SINCE_PREFIX)?;
    let name = dataset.name();
    let head = name.split('@').next()?;
    let part = match snapshot.split_once('@') {
        Some((other, part)) => (other == head).then_some(part)?,
        None => snapshot,
    };
    let before = dataset.tree().find(&format!("{head}@{part}")).ok()?;
    let (before, now) = (before.phys()?, dataset.phys()?);
    if name.contains('@') && now.creation_txg <= before.creation_txg {
        return None;
    }
    let written = dataset.written_since(before).ok()?;
    let (name, value) = (property.to_owned(), written.to_string());
    Some(Property { name, value, source: "local".to_owned(), received: None })
}

#[cfg(test)]
mod tests {
    use super::is_within;

    #[test]
    fn depth_counts_names() {
        assert!(is_within("tank/a@s", "tank", None));
        assert!(is_within("tank/a", "tank", Some(1)) && !is_within("tank/a@s", "tank", Some(1)));
        assert!(!is_within("tank2", "tank", None) && is_within("tank", "tank", Some(0)));
    }
}
