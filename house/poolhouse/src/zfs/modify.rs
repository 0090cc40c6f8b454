//! `poolhouse zfs set`, `inherit`, `rollback`, `promote` and `rename`.

use api::{InheritProperty, PromoteClone, RenameDataset, RollbackDataset, SetProperties};

use super::owner_property::with_owner_id;
use super::select::{canonical_name, check_property};
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure};
use crate::property_values::{check_unique, parse_assignment};

/// Set properties
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs set compression=zstd recordsize=1M tank/media
  poolhouse zfs set userquota@anna=200G tank/home
  poolhouse zfs set org.example:owner=grandma tank/photos tank/letters")]
pub(super) struct SetArgs {
    /// Do not mount, unmount or remount anything
    #[arg(short = 'u')]
    keep_mounts: bool,
    /// NAME=VALUE..., then the datasets
    #[arg(value_name = "NAME=VALUE... DATASET", required = true, num_args = 2..)]
    words: Vec<String>,
}

/// Printed where a property is set and a file system that it concerns is not mounted or shared any more.
const NOT_REMOUNTED: &str = "property may be set but unable to remount filesystem";

/// Names and values.
type PropertyList = Vec<(String, String)>;

impl SetArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (properties, names) = self.split_words()?;
        check_unique(&properties)?;
        let subject = format!("cannot set property for '{}'", names.join("', '"));
        let done = asking.create_mounted(
            &SetProperties { names, properties, keep_mounts: self.keep_mounts },
            NOT_REMOUNTED,
        );
        done.map_err(|why| why.with_subject(|| subject))
    }

    /// Properties have a =, and names of datasets do not.
    fn split_words(&self) -> Result<(PropertyList, Vec<String>), Failure> {
        let first = self.words.iter().position(|word| !word.contains('='));
        let (settings, names) = self.words.split_at(first.unwrap_or(self.words.len()));
        if settings.is_empty() || names.is_empty() {
            return Err(Failure::usage("NAME=VALUE and a dataset are wanted"));
        }
        let settings = settings.iter().map(|text| {
            let (property, value) = parse_assignment(text).map_err(Failure::usage)?;
            Ok((with_owner_id(&canonical_name(&property))?, value))
        });
        Ok((settings.collect::<Result<_, Failure>>()?, names.to_vec()))
    }
}

/// Let a property be inherited
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zfs inherit -r compression tank/media")]
pub(super) struct InheritArgs {
    /// In the datasets below, too
    #[arg(short = 'r')]
    recursive: bool,
    /// Revert to the received value, if any
    #[arg(short = 'S')]
    received: bool,
    /// The property
    property: String,
    /// The datasets
    #[arg(value_name = "DATASET", required = true)]
    names: Vec<String>,
}

impl InheritArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let property = canonical_name(&self.property);
        let call = InheritProperty {
            names: self.names.clone(),
            property: check_property(&property)?.unwrap_or(property),
            recursive: self.recursive,
            received: self.received,
        };
        asking.create_mounted(&call, NOT_REMOUNTED)
    }
}

/// Go back to a snapshot
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Later changes are lost. The snapshot must be the newest, or -r destroys the newer
ones. Mounted file systems stay mounted: open files get the content of the snapshot.

Example:
  poolhouse zfs rollback tank/photos@monday"
)]
pub(super) struct RollbackArgs {
    /// Destroy newer snapshots and bookmarks
    #[arg(short = 'r')]
    destroy_newer: bool,
    /// And their clones
    #[arg(short = 'R')]
    destroy_clones: bool,
    /// Force: unmount clones that are destroyed, even if files are open
    #[arg(short = 'f')]
    force: bool,
    /// FS@NAME
    snapshot: String,
}

impl RollbackArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (snapshot, newer, clones) =
            (self.snapshot.clone(), self.destroy_newer, self.destroy_clones);
        asking.execute(&RollbackDataset {
            snapshot,
            destroy_newer: newer,
            destroy_clones: clones,
            force: self.force,
        })
    }
}

/// Make a clone the one that its origin depends on
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zfs promote tank/trial")]
pub(super) struct PromoteArgs {
    /// The clone
    name: String,
}

impl PromoteArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        asking.execute(&PromoteClone { name: self.name.clone() })
    }
}

/// Give a dataset or snapshot another name
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
#[command(after_help = "Examples:
  poolhouse zfs rename tank/photos tank/pictures
  poolhouse zfs rename -u tank/photos tank/pictures   it stays mounted at /tank/photos
  poolhouse zfs rename -r tank@monday @tuesday")]
pub(super) struct RenameArgs {
    /// Make those above the new name that are not there
    #[arg(short = 'p', conflicts_with = "recursive")]
    parents: bool,
    /// The snapshots of that name below, too
    #[arg(short = 'r')]
    recursive: bool,
    /// Force: unmount even if files are open
    #[arg(short = 'f')]
    force: bool,
    /// Leave file systems mounted where they are
    #[arg(short = 'u', conflicts_with_all = ["recursive", "parents"])]
    keep_mounts: bool,
    /// Present name
    from: String,
    /// New name
    to: String,
}

impl RenameArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (from, recursive) = (self.from.clone(), self.recursive);
        if recursive && !from.contains('@') {
            return Err(Failure::usage("-r is for snapshots"));
        }
        if self.parents && from.contains('@') {
            return Err(Failure::usage("-p cannot be used when renaming a snapshot"));
        }
        let to = resolve_new_name(&from, &self.to)?;
        let call = RenameDataset {
            name: from,
            to,
            recursive,
            parents: self.parents,
            force: self.force,
            keep_mounts: self.keep_mounts,
        };
        asking.create_mounted(&call, "it is renamed, but not mounted or shared again")
    }
}

/// The new name, or for a snapshot the part after the @: the user may give the whole name, @NAME or
/// NAME.
fn resolve_new_name(from: &str, to: &str) -> Result<String, Failure> {
    let Some((head, _)) = from.split_once('@') else { return Ok(to.to_owned()) };
    match to.split_once('@') {
        None => Ok(to.to_owned()),
        Some((new, part)) if new.is_empty() || new == head => Ok(part.to_owned()),
        Some(_) => {
            let what = format!("cannot rename to '{to}': snapshots must be part of same dataset");
            Err(engine::Error::Refused { what }.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SetArgs, resolve_new_name};

    #[test]
    fn a_snapshot_is_renamed_within_its_dataset() {
        let name = |from, to| resolve_new_name(from, to).map_err(|_| ());
        for to in ["tank@b", "@b", "b"] {
            assert_eq!(name("tank@a", to), Ok("b".to_owned()), "{to}");
        }
        assert_eq!(name("tank@a", "other@b"), Err(()));
        assert_eq!(name("tank/a", "tank/b"), Ok("tank/b".to_owned()));
    }

    #[test]
    fn properties_come_first_then_datasets() {
        let parts = |text: &str| {
            let words = text.split(' ').map(str::to_owned).collect();
            SetArgs { keep_mounts: false, words }.split_words().map_err(|_| ())
        };
        let (settings, names) = parts("a=b c=d=e tank tank/x").unwrap();
        assert_eq!(settings[1], ("c".to_owned(), "d=e".to_owned()));
        assert_eq!(names, ["tank", "tank/x"]);
        assert!(parts("a=b c=d").is_err() && parts("tank tank").is_err());
    }
}
