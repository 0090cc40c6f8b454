//! `poolhouse zfs set`, `inherit`, `rollback`, `promote` and `rename`.

use ::daemon::Request;

use super::owner::numbered;
use super::select::{canonical, known};
use crate::daemon::Asking;
use crate::outcome::{Done, Failure};
use crate::values::{once, setting};

/// Set properties
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs set compression=zstd recordsize=1M tank/media
  poolhouse zfs set userquota@anna=200G tank/home
  poolhouse zfs set org.example:owner=grandma tank/photos tank/letters")]
pub(super) struct Set {
    /// Mount nothing, and leave what is mounted where it is
    #[arg(short = 'u')]
    stays: bool,
    /// NAME=VALUE..., then the datasets
    #[arg(value_name = "NAME=VALUE... DATASET", required = true, num_args = 2..)]
    words: Vec<String>,
}

/// Names and values.
type Properties = Vec<(String, String)>;

impl Set {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        let (properties, names) = self.parts()?;
        once(&properties)?;
        asking.tell(&Request::Set { names, properties, keep_mounts: self.stays })
    }

    /// Properties have a =, and no dataset's name has one.
    fn parts(&self) -> Result<(Properties, Vec<String>), Failure> {
        let first = self.words.iter().position(|word| !word.contains('='));
        let (settings, names) = self.words.split_at(first.unwrap_or(self.words.len()));
        if settings.is_empty() || names.is_empty() {
            return Err(Failure::usage("NAME=VALUE and a dataset are wanted"));
        }
        let settings = settings.iter().map(|text| {
            let (property, value) = setting(text).map_err(Failure::usage)?;
            Ok((numbered(&canonical(&property))?, value))
        });
        Ok((settings.collect::<Result<_, Failure>>()?, names.to_vec()))
    }
}

/// Let a property be inherited
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse zfs inherit -r compression tank/media")]
pub(super) struct Inherit {
    /// In the datasets below, too
    #[arg(short = 'r')]
    recursive: bool,
    /// What came with a send stream counts again, if anything did
    #[arg(short = 'S')]
    received: bool,
    /// The property
    property: String,
    /// The datasets
    #[arg(value_name = "DATASET", required = true)]
    names: Vec<String>,
}

impl Inherit {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        let property = canonical(&self.property);
        asking.tell(&Request::Inherit {
            names: self.names.clone(),
            property: known(&property)?,
            recursive: self.recursive,
            received: self.received,
        })
    }
}

/// Go back to a snapshot
#[derive(clap::Args, Debug)]
#[command(
    after_help = "What was changed since is gone. It must be the newest, or -r destroys those that
are newer. Programs may stay in what is mounted: open files become what the snapshot has of them.

Example:
  poolhouse zfs rollback tank/photos@monday"
)]
pub(super) struct Rollback {
    /// Destroy newer snapshots and bookmarks
    #[arg(short = 'r')]
    newer: bool,
    /// And their clones
    #[arg(short = 'R')]
    clones: bool,
    /// Even while somebody uses clones that are destroyed, who then gets errors
    #[arg(short = 'f')]
    force: bool,
    /// FS@NAME
    snapshot: String,
}

impl Rollback {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        let (snapshot, newer, clones) = (self.snapshot.clone(), self.newer, self.clones);
        asking.tell(&Request::Rollback {
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
pub(super) struct Promote {
    /// The clone
    name: String,
}

impl Promote {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        asking.tell(&Request::Promote { name: self.name.clone() })
    }
}

/// Give a dataset or snapshot another name
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zfs rename tank/photos tank/pictures
  poolhouse zfs rename -r tank@monday @tuesday")]
pub(super) struct Rename {
    /// Make those above the new name that are not there
    #[arg(short = 'p', conflicts_with = "recursive")]
    parents: bool,
    /// The snapshots of that name below, too
    #[arg(short = 'r')]
    recursive: bool,
    /// Even while somebody uses the files, who then gets errors
    #[arg(short = 'f')]
    force: bool,
    /// What it is called
    from: String,
    /// What it is to be called
    to: String,
}

impl Rename {
    pub(super) fn run(&self, asking: &Asking) -> Done {
        let (from, recursive) = (self.from.clone(), self.recursive);
        if recursive && !from.contains('@') {
            return Err(Failure::usage("-r is for snapshots"));
        }
        let to = new_name(&from, &self.to)?;
        asking.tell(&Request::Rename {
            from,
            to,
            recursive,
            parents: self.parents,
            force: self.force,
        })
    }
}

/// What something is to be called, or of a snapshot what stands behind the @: people write the
/// whole name, @NAME or NAME.
fn new_name(from: &str, to: &str) -> Result<String, Failure> {
    let Some((head, _)) = from.split_once('@') else { return Ok(to.to_owned()) };
    match to.split_once('@') {
        None => Ok(to.to_owned()),
        Some((new, part)) if new.is_empty() || new == head => Ok(part.to_owned()),
        Some((new, _)) => {
            let what = format!("a snapshot of '{head}' cannot become one of '{new}'");
            Err(Failure::usage(what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Set, new_name};

    #[test]
    fn a_snapshot_is_renamed_within_its_dataset() {
        let name = |from, to| new_name(from, to).map_err(|_| ());
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
            Set { stays: false, words }.parts().map_err(|_| ())
        };
        let (settings, names) = parts("a=b c=d=e tank tank/x").unwrap();
        assert_eq!(settings[1], ("c".to_owned(), "d=e".to_owned()));
        assert_eq!(names, ["tank", "tank/x"]);
        assert!(parts("a=b c=d").is_err() && parts("tank tank").is_err());
    }
}
