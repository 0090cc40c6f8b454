//! What goes with what is to be destroyed, and in which order.
//!
//! On a snapshot its clones depend; on a file system or volume what is below it, its snapshots and
//! its bookmarks. Whatever depends on something goes before it.

use std::collections::{HashMap, HashSet};

use engine::dataset::Dataset;

use crate::{Error, Result};

/// How far destruction may go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doom {
    /// To what is below; from a snapshot to those of its name below.
    pub(super) recursive: bool,
    /// To clones, wherever they are.
    pub(super) clones: bool,
    /// Snapshots with clones go when those have gone.
    pub(super) later: bool,
}

/// The names that go, in their order. `all` are all datasets of the pool.
pub(super) fn doomed(all: &[Dataset], name: &str, doom: Doom) -> Result<Vec<String>> {
    let targets = targets(all, name, doom)?;
    let view = View { dependents: dependents(all), doom, targets: &targets };
    let mut order = Order::default();
    for target in &targets {
        view.visit(target, &mut order)?;
    }
    let own = order.names.iter().position(|doomed| !doomed.contains(['/', '@', '#']));
    if let Some(at) = own {
        let own = order.names.remove(at);
        // the pool has no other: where all that is in it is to go, it stays, empty
        if own != name {
            return Err(Error::refused(format!(
                "'{own}', the pool's own file system, is a clone of what is in '{name}': promote it"
            )));
        }
    }
    Ok(order.names)
}

/// What is named: `FS`, `FS#MARK`, `FS@SNAP`, `FS@A,B%C`.
fn targets(all: &[Dataset], name: &str, doom: Doom) -> Result<Vec<String>> {
    let Some((head, parts)) = name.split_once('@') else {
        let exists = all.iter().any(|dataset| dataset.name == name);
        let missing = || engine::Error::NoSuchDataset { name: name.to_owned() };
        return if exists { Ok(vec![name.to_owned()]) } else { Err(missing().into()) };
    };
    let below = format!("{head}/");
    let heads = all.iter().map(|dataset| dataset.name.as_str()).filter(|other| {
        !other.contains(['@', '#'])
            && (*other == head || (doom.recursive && other.starts_with(&below)))
    });
    let mut found = Vec::new();
    for head in heads {
        let snapshots: Vec<&str> = all
            .iter()
            .filter_map(|dataset| dataset.name.strip_prefix(head)?.strip_prefix('@'))
            .collect();
        for part in parts.split(',') {
            let chosen = range(&snapshots, part);
            found.extend(chosen.iter().map(|chosen| format!("{head}@{chosen}")));
        }
    }
    if found.is_empty() {
        return Err(engine::Error::NoSuchDataset { name: name.to_owned() }.into());
    }
    Ok(found)
}

/// `A` or `A%C`, either end of which may be left out, among snapshots from the oldest to the
/// newest.
fn range<'a>(snapshots: &[&'a str], part: &str) -> Vec<&'a str> {
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

/// Who depends on whom.
fn dependents(all: &[Dataset]) -> HashMap<&str, Vec<&str>> {
    let mut found: HashMap<&str, Vec<&str>> = HashMap::new();
    for dataset in all {
        let name = dataset.name.as_str();
        if let Some(at) = name.rfind(['@', '#', '/']) {
            found.entry(name.get(..at).unwrap_or(name)).or_default().push(name);
        }
        if let Some(origin) = dataset.value("origin").filter(|origin| origin.contains('@')) {
            found.entry(origin).or_default().push(name);
        }
    }
    found
}

struct View<'a> {
    dependents: HashMap<&'a str, Vec<&'a str>>,
    doom: Doom,
    targets: &'a [String],
}

#[derive(Default)]
struct Order {
    seen: HashSet<String>,
    names: Vec<String>,
}

impl View<'_> {
    /// Adds what depends on `name`, then `name`.
    fn visit(&self, name: &str, order: &mut Order) -> Result<()> {
        if !order.seen.insert(name.to_owned()) {
            return Ok(());
        }
        for dependent in self.dependents.get(name).into_iter().flatten() {
            let is_clone = name.contains('@');
            let is_target = self.targets.iter().any(|target| target == dependent);
            if is_clone && self.doom.later && !self.doom.clones {
                continue;
            }
            let goes = is_target
                || order.seen.contains(*dependent)
                || (if is_clone { self.doom.clones } else { self.doom.recursive })
                || dependent.contains('#');
            let inside = self.targets.iter().any(|target| {
                dependent.strip_prefix(target.as_str()).is_some_and(|rest| rest.starts_with('/'))
            });
            let implied = is_clone && inside && self.doom.recursive;
            if !goes && !implied {
                let (what, switch) = if is_clone { ("clone", "-R") } else { ("dependent", "-r") };
                return Err(Error::refused(format!(
                    "'{name}' has the {what} '{dependent}': use {switch} to destroy it as well"
                )));
            }
            self.visit(dependent, order)?;
        }
        order.names.push(name.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use engine::KeyState;
    use engine::dataset::{Dataset, Property};

    use super::{Doom, doomed};

    fn all() -> Vec<Dataset> {
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
            kind: String::new(),
            key: KeyState::None,
            properties: origin
                .map(|origin: &str| Property {
                    name: "origin".to_owned(),
                    value: origin.to_owned(),
                    source: "-".to_owned(),
                })
                .into_iter()
                .collect(),
        })
        .to_vec()
    }

    fn go(name: &str, recursive: bool, clones: bool) -> Result<Vec<String>, String> {
        let doom = Doom { recursive, clones, later: false };
        doomed(&all(), name, doom).map_err(|why| why.to_string())
    }

    #[test]
    fn what_depends_goes_first_or_is_named() {
        assert!(go("tank/x", false, false).unwrap_err().contains("use -r"));
        assert!(go("tank/x", true, false).unwrap_err().contains("use -R"));
        assert_eq!(
            go("tank/x", true, true).unwrap(),
            ["tank/heir@z", "tank/heir", "tank/x@a", "tank/x#m", "tank/x/deep", "tank/x"]
        );
        assert_eq!(go("tank/x/deep", false, false).unwrap(), ["tank/x/deep"]);
    }

    #[test]
    fn snapshots_are_named_by_ranges() {
        assert_eq!(go("tank@a%b", false, false).unwrap(), ["tank@a", "tank@b"]);
        assert_eq!(go("tank@%", false, false).unwrap(), ["tank@a", "tank@b", "tank@c"]);
        assert_eq!(go("tank@c,a", false, false).unwrap(), ["tank@c", "tank@a"]);
        assert!(go("tank@none", false, false).is_err());
        assert!(go("tank@a", true, false).unwrap_err().contains("tank/heir"));
    }

    #[test]
    fn the_pools_own_file_system_stays() {
        let names = go("tank", true, false).unwrap();
        assert!(!names.contains(&"tank".to_owned()) && names.contains(&"tank/heir".to_owned()));
    }
}
