//! Which datasets a command is about: what `zfs list` and `zfs get` have in common.

use api::{ListDatasets, ListMounts};
use engine::dataset::{Dataset, DatasetQuery, PROPERTIES, Property, find_property};

use super::owner_property::{is_owner_property, with_owner_id};
use crate::daemon::DaemonArgs;
use crate::outcome::{Failure, Outcome};
use crate::property_values::{check_unique, parse_types};

/// The sort keys.
const CREATETXG: &str = "createtxg";
/// Bytes of a list of clones.
const MAX_CLONES_LEN: usize = 8191;

/// Which datasets.
#[derive(clap::Args, Debug)]
pub(super) struct SelectArgs {
    /// Include descendants
    #[arg(short = 'r')]
    recursive: bool,
    /// Include descendants down to this depth
    #[arg(short = 'd', value_name = "DEPTH")]
    depth: Option<usize>,
    /// Only these: filesystem, volume, snapshot, bookmark, all
    #[arg(short = 't', value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
}

impl SelectArgs {
    /// Gets the datasets `names` or all, with these properties. A path stands for its file system. Descendants are included
    /// with -r and -d, or without names; snapshots and bookmarks with -t, or by name.
    pub(super) fn query(
        &self,
        names: &[String],
        properties: &[String],
        usual: &[&str],
        asking: &DaemonArgs,
    ) -> Result<(Vec<Dataset>, Outcome), Failure> {
        let names: Vec<String> =
            names.iter().map(|name| dataset_of(name, asking)).collect::<Result<_, _>>()?;
        let names = names.as_slice();
        let all = names.is_empty();
        let depth = match self.depth {
            Some(depth) => Some(depth),
            // the snapshots of a dataset count as below it
            None if self.recursive || all => None,
            None if !self.types.is_empty() && self.is_for_snapshots()? => Some(1),
            None => Some(0),
        };
        let named = |name: &String| name.contains(['@', '#']);
        let kinds = match (self.types.is_empty(), names.iter().any(named)) {
            (false, _) => parse_types(&self.types)?,
            (true, true) => Vec::new(),
            (true, false) => usual.iter().map(|kind| (*kind).to_owned()).collect(),
        };
        let mut numbered = Vec::new();
        for name in properties {
            // no dataset has a property of an owner that the system does not know
            if let Some(with_id) = check_property(name)? {
                numbered.push((with_id, name));
            }
        }
        let mut wanted = DatasetQuery { kinds, depth, properties: Vec::new() };
        wanted.properties.extend(numbered.iter().map(|(with_id, _)| with_id.clone()));
        if numbered.is_empty() && !properties.is_empty() {
            // none at all would mean all
            wanted.properties.push("type".to_owned());
        }
        let (mut found, outcome) = query_each(names, wanted, asking)?;
        found.iter_mut().flat_map(|dataset| &mut dataset.properties).for_each(cut_clones);
        // the reply names an owner as the request did
        for dataset in &mut found {
            let mut asked = numbered.clone();
            for property in &mut dataset.properties {
                if let Some(at) = asked.iter().position(|(id, _)| *id == property.name) {
                    property.name.clone_from(asked.remove(at).1);
                }
            }
        }
        // with -t snapshot and no -r: those of the dataset, without descendants
        let flat = depth == Some(1) && self.depth.is_none();
        let stays = |dataset: &Dataset| {
            !flat
                || names.iter().any(|name| {
                    let rest = dataset.name.strip_prefix(name.as_str());
                    rest.is_some_and(|rest| !rest.starts_with('/'))
                })
        };
        Ok((found.into_iter().filter(stays).collect(), outcome))
    }

    /// Whether snapshots or bookmarks are requested.
    fn is_for_snapshots(&self) -> Result<bool, Failure> {
        let kinds = parse_types(&self.types)?;
        Ok(kinds.is_empty() || kinds.iter().any(|kind| kind == "snapshot" || kind == "bookmark"))
    }
}

/// The dataset of a target. A path stands for the file system that is mounted there.
pub(super) fn dataset_of(target: &str, asking: &DaemonArgs) -> Result<String, Failure> {
    if !target.starts_with(['/', '.']) {
        return Ok(target.to_owned());
    }
    let path =
        std::fs::canonicalize(target).map_err(|why| Failure::usage(format!("{target}: {why}")))?;
    let mounts = asking.request(&ListMounts {})?;
    let holding = mounts.into_iter().filter(|(_, mountpoint)| path.starts_with(mountpoint));
    let innermost = holding.max_by_key(|(_, mountpoint)| mountpoint.as_os_str().len());
    let (dataset, _) = innermost.ok_or_else(|| {
        Failure::usage(format!("{target}: no file system of a pool is mounted there"))
    })?;
    Ok(dataset)
}

/// Cuts a list of clones where zfs(8) cuts it, which scripts that compare it know.
fn cut_clones(property: &mut Property) {
    if property.name == "clones" {
        let end = property.value.floor_char_boundary(MAX_CLONES_LEN);
        property.value.truncate(end);
    }
}

/// Gets datasets. The failure of one is printed and does not stop the others.
fn query_each(
    names: &[String],
    mut wanted: DatasetQuery,
    asking: &DaemonArgs,
) -> Result<(Vec<Dataset>, Outcome), Failure> {
    let ask = |names: &[String], wanted: &DatasetQuery| -> Result<Vec<Dataset>, Failure> {
        asking.request(&ListDatasets::new(names.to_vec(), wanted.clone()))
    };
    let [_, _, ..] = names else { return Ok((ask(names, &wanted)?, Outcome::Complete)) };
    let (mut found, mut outcome) = (Vec::new(), Outcome::Complete);
    let all =
        wanted.properties.is_empty() || wanted.properties.iter().any(|name| name == CREATETXG);
    if !all {
        wanted.properties.push(CREATETXG.to_owned());
    }
    for name in names.chunks(1) {
        match ask(name, &wanted) {
            Ok(more) => found.extend(more),
            Err(why) => {
                why.report();
                outcome = Outcome::Incomplete;
            }
        }
    }
    sort_and_dedup(&mut found);
    if !all {
        for dataset in &mut found {
            dataset.properties.retain(|property| property.name != CREATETXG);
        }
    }
    Ok((found, outcome))
}

/// Each once and by name, in the order of a full list; snapshots follow their dataset.
fn sort_and_dedup(found: &mut Vec<Dataset>) {
    found.sort_by_cached_key(|dataset| {
        let (head, part) = dataset.name.split_once('@').unwrap_or((&dataset.name, ""));
        let age = dataset.property_value(CREATETXG).and_then(|txg| txg.parse::<u64>().ok());
        (head.to_owned(), !part.is_empty(), age, part.to_owned())
    });
    found.dedup_by(|one, other| one.name == other.name);
}

/// A property that there is, with its owner's number; none: the system does not know the owner.
pub(super) fn check_property(name: &str) -> Result<Option<String>, Failure> {
    if is_owner_property(name) {
        return Ok(with_owner_id(name).ok());
    }
    if engine::dataset::is_property(name) {
        return Ok(Some(name.to_owned()));
    }
    Err(Failure::usage(format!("bad property list: invalid property '{name}'")))
}

/// The full name of a property that is set or inherited, which must be in small letters.
pub(super) fn canonical_name(name: &str) -> String {
    match expand_property(name).as_slice() {
        [one] => one.clone(),
        _ => name.to_owned(),
    }
}

/// Properties of a dataset by their full names. None may be given twice.
pub(crate) fn canonical_properties(
    properties: &[(String, String)],
) -> Result<Vec<(String, String)>, Failure> {
    let full = |(name, value): &(String, String)| {
        Ok((with_owner_id(&canonical_name(name))?, value.clone()))
    };
    let all: Vec<_> = properties.iter().map(full).collect::<Result<_, Failure>>()?;
    check_unique(&all)?;
    Ok(all)
}

/// A property by its full name, or all that a name stands for.
pub(super) fn expand_property(name: &str) -> Vec<String> {
    if name == "space" {
        let space = ["name", "available", "used", "usedbysnapshots", "usedbydataset"];
        let more = ["usedbyrefreservation", "usedbychildren"];
        return space.into_iter().chain(more).map(str::to_owned).collect();
    }
    let full = PROPERTIES.iter().find(|row| row.column() == name);
    vec![full.map_or(name, |row| row.name()).to_owned()]
}

/// The head of the column of a property, in small letters.
pub(super) fn column_name(property: &str) -> &str {
    find_property(property).map_or(property, |row| row.column())
}

#[cfg(test)]
mod tests {
    use engine::dataset::{PROPERTIES, Property};

    use super::{cut_clones, expand_property};

    #[test]
    fn long_clone_list_is_cut() {
        let property = |value: String| Property {
            name: "clones".to_owned(),
            value,
            source: "-".to_owned(),
            received: None,
        };
        let mut long = property("tank/clone,".repeat(1000));
        cut_clones(&mut long);
        assert_eq!(long.value.len(), 8191);
        let mut short = property("tank/a,tank/b".to_owned());
        cut_clones(&mut short);
        assert_eq!(short.value, "tank/a,tank/b");
    }

    #[test]
    fn every_column_name_leads_to_a_property() {
        for row in PROPERTIES.iter().filter(|row| row.column() != row.name()) {
            assert_eq!(expand_property(row.column()), [row.name()]);
            let capital = row.column().to_uppercase();
            assert_eq!(expand_property(&capital), [capital]);
        }
        assert_eq!(expand_property("refreserv"), ["refreservation"]);
    }
}
