//! The plan of a destruction: what depends on the named datasets, and the order.
//!
//! Clones depend on their origin snapshot. Children, snapshots and bookmarks depend on their file system or
//! volume. A dataset is destroyed after all that depend on it.

use std::collections::{HashMap, HashSet};

use engine::dataset::Dataset;

use crate::{Error, Result};

/// The scope of a destruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DestroyScope {
    /// Also children; for a snapshot those of the same name of all descendants.
    pub(super) recursive: bool,
    /// Also clones, wherever they are.
    pub(super) clones: bool,
    /// Destroy snapshots with clones when their last clone is destroyed.
    pub(super) defer: bool,
}

/// The names to destroy, in their order. `all`: all datasets of the pool.
pub(super) fn plan_destroy(all: &[Dataset], name: &str, doom: DestroyScope) -> Result<Vec<String>> {
    doomed_all(all, &resolve_targets(all, name, doom)?, name, doom)
}

/// The names to destroy for `targets`, in their order. `name`: the user's word.
pub(super) fn doomed_all(
    all: &[Dataset],
    targets: &[String],
    name: &str,
    doom: DestroyScope,
) -> Result<Vec<String>> {
    let known = targets.iter().map(String::as_str).collect();
    let view = DestroyPlanner { dependents: map_dependents(all), scope: doom, targets: known };
    let mut order = DestroyOrder::default();
    for target in targets {
        view.visit(target, &mut order);
        if !order.blockers.is_empty() {
            return Err(blocked_error(all, target, &order));
        }
    }
    let own = order.names.iter().position(|doomed| !doomed.contains(['/', '@', '#']));
    if let Some(at) = own {
        let own = order.names.remove(at);
        // the root file system stays, empty
        if own != name {
            return Err(Error::refused_error(format!(
                "'{own}', the pool's own file system, is a clone of a snapshot in '{name}': promote it"
            )));
        }
    }
    Ok(order.names)
}

/// The datasets that a name means: `FS`, `FS#MARK`, `FS@SNAP`, `FS@A,B%C`.
fn resolve_targets(all: &[Dataset], name: &str, doom: DestroyScope) -> Result<Vec<String>> {
    let Some((head, parts)) = name.split_once('@') else {
        let exists = all.iter().any(|dataset| dataset.name == name);
        let missing = || engine::Error::NoSuchDataset { name: name.to_owned() };
        return if exists { Ok(vec![name.to_owned()]) } else { Err(missing().into()) };
    };
    let below = format!("{head}/");
    let is_meant =
        |other: &str| other == head || (doom.recursive && other.starts_with(below.as_str()));
    let mut found = Vec::new();
    for (head, snapshots) in snapshots_by_head(all) {
        if !is_meant(head) {
            continue;
        }
        for part in parts.split(',') {
            let chosen = select_range(&snapshots, part);
            found.extend(chosen.iter().map(|chosen| format!("{head}@{chosen}")));
        }
    }
    if found.is_empty() {
        return Err(engine::Error::NoSuchDataset { name: name.to_owned() }.into());
    }
    Ok(found)
}

/// The file systems and volumes that have snapshots, in the order of `all`, and their snapshots.
fn snapshots_by_head(all: &[Dataset]) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for dataset in all {
        let Some((head, part)) = dataset.name.split_once('@') else { continue };
        let at = *places.entry(head).or_insert_with(|| {
            found.push((head, Vec::new()));
            found.len() - 1
        });
        if let Some((_, snapshots)) = found.get_mut(at) {
            snapshots.push(part);
        }
    }
    found
}

/// `A` or `A%C`, either end of which may be left out, among snapshots from the oldest to the
/// newest.
fn select_range<'a>(snapshots: &[&'a str], part: &str) -> Vec<&'a str> {
    let at = |wanted: &str| snapshots.iter().position(|name| *name == wanted);
    let (from, to) = match part.split_once('%') {
        None => (at(part), at(part)),
        Some((from, to)) => (
            if from.is_empty() { Some(0) } else { at(from) },
            if to.is_empty() { snapshots.len().checked_sub(1) } else { at(to) },
        ),
    };
    match (from, to) {
        (Some(from), Some(to)) => snapshots.get(from..=to).unwrap_or_default().to_vec(),
        _ => Vec::new(),
    }
}

/// The datasets that depend on each dataset.
pub(super) fn map_dependents(all: &[Dataset]) -> HashMap<&str, Vec<&str>> {
    let mut found: HashMap<&str, Vec<&str>> = HashMap::new();
    for dataset in all {
        let name = dataset.name.as_str();
        if let Some(at) = name.rfind(['@', '#', '/']) {
            found.entry(name.get(..at).unwrap_or(name)).or_default().push(name);
        }
        if let Some(origin) = dataset.property_value("origin").filter(|origin| origin.contains('@'))
        {
            found.entry(origin).or_default().push(name);
        }
    }
    found
}

struct DestroyPlanner<'a> {
    dependents: HashMap<&'a str, Vec<&'a str>>,
    scope: DestroyScope,
    targets: HashSet<&'a str>,
}

#[derive(Default)]
struct DestroyOrder {
    visited: HashSet<String>,
    names: Vec<String>,
    /// Dependents that are not to be destroyed, and whether each is a clone.
    blockers: Vec<(String, bool)>,
}

impl DestroyPlanner<'_> {
    /// Whether a dataset lies below one of the targets.
    fn is_below_target(&self, name: &str) -> bool {
        let mut above = name.match_indices('/').filter_map(|(at, _)| name.get(..at));
        above.any(|above| self.targets.contains(above))
    }

    /// Adds what depends on `name`, then `name`. Notes dependents that the scope leaves out.
    fn visit(&self, name: &str, order: &mut DestroyOrder) {
        if !order.visited.insert(name.to_owned()) {
            return;
        }
        for dependent in self.dependents.get(name).into_iter().flatten() {
            let is_clone = name.contains('@');
            let is_target = self.targets.contains(dependent);
            if is_clone && self.scope.defer && !self.scope.clones {
                continue;
            }
            let goes = is_target
                || order.visited.contains(*dependent)
                || (if is_clone { self.scope.clones } else { self.scope.recursive })
                || dependent.contains('#');
            let implied = is_clone && self.scope.recursive && self.is_below_target(dependent);
            if goes || implied {
                self.visit(dependent, order);
            } else {
                order.blockers.push(((*dependent).to_owned(), is_clone));
            }
        }
        order.names.push(name.to_owned());
    }
}

/// The refusal to destroy `target`, in the words of zfs(8), with all datasets that keep it.
fn blocked_error(all: &[Dataset], target: &str, order: &DestroyOrder) -> Error {
    let kind = all.iter().find(|dataset| dataset.name == target);
    let kind = kind.map_or("dataset", |dataset| dataset.kind.as_str());
    // children are reported first: -R covers them as well
    let has_children = order.blockers.iter().any(|(_, is_clone)| !is_clone);
    let (what, option) = if has_children { ("children", "-r") } else { ("dependent clones", "-R") };
    let listed = order.blockers.iter().filter(|(_, is_clone)| *is_clone != has_children);
    let listed: Vec<&str> = listed.map(|(name, _)| name.as_str()).collect();
    Error::refused_error(format!(
        "cannot destroy '{target}': {kind} has {what}\nuse '{option}' to destroy the following datasets:\n{}",
        listed.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use engine::KeyState;
    use engine::dataset::{Dataset, Property};

    use super::{DestroyScope, plan_destroy};

    fn sample_datasets() -> Vec<Dataset> {
        [
            ("tank", None),
            ("tank@a", None),
            ("tank@b", None),
            ("tank@c", None),
            ("tank/x", None),
            ("tank/x@a", None),
            ("tank/x#m", None),
            ("tank/x/deep", None),
            ("tank/heir", Some("tank/x@a")),
            ("tank/heir@z", None),
        ]
        .map(|(name, origin)| Dataset {
            name: name.to_owned(),
            kind: if name.contains('@') { "snapshot" } else { "filesystem" }.to_owned(),
            key: KeyState::None,
            properties: origin
                .map(|origin: &str| Property {
                    name: "origin".to_owned(),
                    value: origin.to_owned(),
                    source: "-".to_owned(),
                    received: None,
                })
                .into_iter()
                .collect(),
        })
        .to_vec()
    }

    fn plan(name: &str, recursive: bool, clones: bool) -> Result<Vec<String>, String> {
        let doom = DestroyScope { recursive, clones, defer: false };
        plan_destroy(&sample_datasets(), name, doom).map_err(|why| why.to_string())
    }

    #[test]
    fn dependents_go_first_or_are_named() {
        assert_eq!(
            plan("tank/x", false, false).unwrap_err(),
            "cannot destroy 'tank/x': filesystem has children\n\
             use '-r' to destroy the following datasets:\ntank/x@a\ntank/x/deep"
        );
        assert_eq!(
            plan("tank/x", true, false).unwrap_err(),
            "cannot destroy 'tank/x': filesystem has dependent clones\n\
             use '-R' to destroy the following datasets:\ntank/heir"
        );
        assert_eq!(
            plan("tank/x", true, true).unwrap(),
            ["tank/heir@z", "tank/heir", "tank/x@a", "tank/x#m", "tank/x/deep", "tank/x"]
        );
        assert_eq!(plan("tank/x/deep", false, false).unwrap(), ["tank/x/deep"]);
    }

    #[test]
    fn snapshots_are_named_by_ranges() {
        assert_eq!(plan("tank@a%b", false, false).unwrap(), ["tank@a", "tank@b"]);
        assert_eq!(plan("tank@%", false, false).unwrap(), ["tank@a", "tank@b", "tank@c"]);
        assert_eq!(plan("tank@c,a", false, false).unwrap(), ["tank@c", "tank@a"]);
        assert!(plan("tank@none", false, false).is_err());
        assert!(plan("tank@a", true, false).unwrap_err().contains("tank/heir"));
    }

    #[test]
    fn the_pools_own_file_system_stays() {
        let names = plan("tank", true, false).unwrap();
        assert!(!names.contains(&"tank".to_owned()) && names.contains(&"tank/heir".to_owned()));
    }
}
