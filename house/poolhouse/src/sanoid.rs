//! `poolhouse policy import`: the policies of sanoid.conf as sections of config.toml.
//!
//! A section of sanoid.conf is a dataset, or `[template_NAME]`. The values of a dataset come from, each over the one
//! before: sanoid's defaults with `[template_default]`, the nearest dataset above it with `recursive`, its templates
//! in their order, its own lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// Kinds of snapshots, and how many sanoid keeps without a setting.
const KEEPS: [(&str, u64); 5] =
    [("hourly", 48), ("daily", 90), ("weekly", 0), ("monthly", 6), ("yearly", 0)];
/// Settings without a counterpart, and the consequence.
const UNKNOWN: [(&str, &str); 6] = [
    ("frequently", "no snapshots are taken more often than hourly"),
    ("pre_snapshot_script", "no script runs before a snapshot"),
    ("post_snapshot_script", "no script runs after a snapshot"),
    ("pruning_script", "no script runs after a snapshot is destroyed"),
    ("prune_defer", "surplus snapshots are destroyed however full the pool is"),
    ("skip_children", "its descendants have its policy if recursive is true"),
];

/// Print the policies of sanoid.conf as sections of config.toml
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Templates are resolved, so that each section is complete. Nothing is changed: append the output to
config.toml, and stop sanoid's timer (`systemctl disable --now sanoid.timer`), so that snapshots are not taken twice.
Snapshots that sanoid took count, since the names are the same. Settings without a counterpart are warnings.

Examples:
  poolhouse policy import
  poolhouse policy import /mnt/old/etc/sanoid/sanoid.conf >>/etc/poolhouse/config.toml"
)]
pub(crate) struct ImportArgs {
    /// The file
    #[arg(default_value = "/etc/sanoid/sanoid.conf")]
    file: PathBuf,
}

type Section = BTreeMap<String, String>;

/// A section `[[policy]]`.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Policy {
    dataset: String,
    recursive: bool,
    keep: Vec<(&'static str, u64)>,
    autosnap: bool,
    autoprune: bool,
}

impl ImportArgs {
    /// Prints the policies.
    pub(crate) fn run(&self, json: bool) -> CommandResult {
        let text = std::fs::read_to_string(&self.file).map_err(|why| {
            Failure::usage(format!("cannot read '{}': {why}", self.file.display()))
        })?;
        let (policies, warnings) = import(&text).map_err(|why| self.failure(&why))?;
        for why in &warnings {
            print::warning(why);
        }
        if json {
            print::json(&policies)?;
            return Ok(Outcome::Complete);
        }
        print::line(&format!("# the policies of {}", display(&self.file)))?;
        policies.iter().try_for_each(|policy| print::line(&policy.to_toml()))?;
        Ok(Outcome::Complete)
    }

    fn failure(&self, why: &str) -> Failure {
        Failure::usage(format!("'{}': {why}", self.file.display()))
    }
}

/// A path on one line.
fn display(path: &Path) -> String {
    path.display().to_string().replace(['\n', '\r'], "?")
}

impl Policy {
    fn to_toml(&self) -> String {
        let Self { dataset, recursive, keep, autosnap, autoprune } = self;
        let kept: Vec<String> =
            keep.iter().map(|(kind, count)| format!("{kind} = {count}\n")).collect();
        format!(
            "\n[[policy]]\ndataset = {dataset:?}\nrecursive = {recursive}\n{}autosnap = {autosnap}\n\
             autoprune = {autoprune}",
            kept.concat()
        )
    }
}

/// The policies of a file, and warnings about settings that have no counterpart.
fn import(text: &str) -> Result<(Vec<Policy>, Vec<String>), String> {
    let sections = read_sections(text)?;
    let (mut policies, mut warnings) = (Vec::new(), Vec::new());
    let is_dataset = |name: &&String| !name.starts_with("template_") && *name != "version";
    for name in sections.keys().filter(is_dataset) {
        let values = resolve(&sections, name)?;
        let text = |key: &str| values.get(key).map_or("", String::as_str);
        for (key, consequence) in UNKNOWN {
            if !matches!(text(key), "" | "0") && (key != "skip_children" || is_yes(text(key))) {
                warnings.push(format!("[{name}]: '{key}' has no counterpart: {consequence}"));
            }
        }
        let mut keep = Vec::new();
        for (kind, _) in KEEPS {
            let count = text(kind);
            let count =
                count.parse().map_err(|_| format!("[{name}]: {kind} = {count} is not a number"))?;
            keep.push((kind, count));
        }
        let recursive = is_yes(text("recursive")) || text("recursive") == "zfs";
        let (autosnap, autoprune) = (is_yes(text("autosnap")), is_yes(text("autoprune")));
        let dataset = Some(text("path")).filter(|path| !path.is_empty()).unwrap_or(name).to_owned();
        policies.push(Policy { dataset: dataset.clone(), recursive, keep, autosnap, autoprune });
        if is_yes(text("process_children_only")) {
            // of two sections with one dataset the later one counts for the dataset itself
            let keep = KEEPS.map(|(kind, _)| (kind, 0)).to_vec();
            let recursive = false;
            policies.push(Policy { dataset, recursive, keep, autosnap: false, autoprune: false });
        }
    }
    Ok((policies, warnings))
}

/// The values of a dataset.
fn resolve(sections: &BTreeMap<String, Section>, name: &str) -> Result<Section, String> {
    let mut values: Section =
        KEEPS.iter().map(|(kind, count)| ((*kind).to_owned(), count.to_string())).collect();
    values.extend(
        [("autosnap", "1"), ("autoprune", "yes")].map(|(k, v)| (k.to_owned(), v.to_owned())),
    );
    values.extend(sections.get("template_default").cloned().unwrap_or_default());
    let mut above = name;
    while let Some((parent, _)) = above.rsplit_once('/') {
        above = parent;
        if !sections.contains_key(parent) {
            continue;
        }
        let of_parent = resolve(sections, parent)?;
        if of_parent.get("recursive").is_some_and(|value| is_yes(value)) {
            values = of_parent;
            values.retain(|key, _| {
                !["path", "process_children_only", "use_template"].contains(&key.as_str())
            });
            break;
        }
    }
    let own = sections.get(name).cloned().unwrap_or_default();
    for template in own.get("use_template").map_or("", String::as_str).split(',') {
        let template = template.trim();
        if !template.is_empty() {
            let found = sections.get(&format!("template_{template}"));
            values.extend(
                found
                    .ok_or_else(|| format!("[{name}]: there is no [template_{template}]"))?
                    .clone(),
            );
        }
    }
    values.extend(own);
    Ok(values)
}

fn is_yes(value: &str) -> bool {
    ["1", "yes", "true", "on"].contains(&value.to_ascii_lowercase().as_str())
}

/// The sections of an ini file.
fn read_sections(text: &str) -> Result<BTreeMap<String, Section>, String> {
    let mut sections: BTreeMap<String, Section> = BTreeMap::new();
    let mut current: Option<String> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let name = name.trim().to_owned();
            sections.entry(name.clone()).or_default();
            current = Some(name);
            continue;
        }
        let pair = line.split_once('=').zip(current.as_ref());
        let Some(((key, value), section)) = pair else {
            return Err(format!("line {number} is neither [SECTION] nor KEY = VALUE in a section"));
        };
        let value = value.split([';', '#']).next().unwrap_or_default().trim();
        if let Some(section) = sections.get_mut(section) {
            section.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::import;

    const FILE: &str = "
[tank/photos]
\tuse_template = production, demo   # in this order
\thourly = 12
[tank/vm]
recursive = zfs
process_children_only = yes
use_template = production
[tank/vm/scratch]
daily = 1
autosnap = no
[template_production]
frequently = 4
hourly = 36
daily = 30
[template_demo]
daily = 60
[template_default]
monthly = 3
";

    #[test]
    fn templates_are_resolved_in_sanoids_order() {
        let (policies, warnings) = import(FILE).unwrap();
        let keep = |hourly, daily| {
            [("hourly", hourly), ("daily", daily), ("weekly", 0), ("monthly", 3), ("yearly", 0)]
        };
        let [photos, vm, vm_itself, scratch] = &policies[..] else { panic!("{policies:?}") };
        assert_eq!((photos.dataset.as_str(), photos.recursive), ("tank/photos", false));
        assert_eq!(photos.keep, keep(12, 60));
        assert!(photos.autosnap && photos.autoprune);
        assert_eq!((vm.dataset.as_str(), vm.recursive), ("tank/vm", true));
        assert_eq!(vm.keep, keep(36, 30));
        assert!(vm_itself.dataset == vm.dataset && !vm_itself.autosnap && !vm_itself.recursive);
        // recursive = zfs leaves no settings to descendants
        assert_eq!(scratch.keep, keep(48, 1));
        assert!(!scratch.autosnap && warnings.len() == 2, "{warnings:?}");
        let toml = photos.to_toml();
        assert!(
            toml.contains("[[policy]]\ndataset = \"tank/photos\"\n") && toml.contains("daily = 60")
        );
    }

    #[test]
    fn descendants_inherit_from_a_recursive_section() {
        let text = "[tank]\nrecursive = yes\nhourly = 7\n[tank/a/b]\ndaily = 2\n";
        let (policies, _) = import(text).unwrap();
        let below = policies.iter().find(|it| it.dataset == "tank/a/b").unwrap();
        assert!(below.recursive && below.keep[..2] == [("hourly", 7), ("daily", 2)]);
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, part) in [
            ("hourly = 3", "line 1"),
            ("[a]\nx", "line 2"),
            ("[a]\nuse_template = b", "no [template_b]"),
            ("[a]\nhourly = many", "hourly = many"),
        ] {
            let why = import(text).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
