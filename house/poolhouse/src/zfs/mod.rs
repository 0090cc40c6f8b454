//! `poolhouse zfs`: datasets, in the words of zfs(8).

mod allow;
mod create;
mod dataset_columns;
mod dataset_json;
mod destroy;
mod diff;
mod get;
mod hold;
mod key;
mod list;
mod modify;
mod mount;
mod owner_property;
mod project;
mod receive;
mod redact;
mod rewrite;
mod select;
pub(crate) mod send;
mod share;
mod sort_keys;
mod space;
mod upgrade;
mod wait;

pub(crate) use select::canonical_properties;

use api::OwnerKind;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure};
use crate::version::{VersionArgs, print_version};

/// Make datasets and look after them, in the words of zfs(8)
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 success, 1 an error, 2 invalid command line.

Examples:
  poolhouse zfs create -o compression=zstd tank/photos
  poolhouse zfs snapshot -r tank@monday
  poolhouse zfs list -t all -r tank
  poolhouse zfs rollback tank/photos@monday")]
pub(crate) struct Zfs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

impl Zfs {
    /// Whether the command sets properties.
    pub(crate) fn is_set(&self) -> bool {
        matches!(self.command, Command::Set(_))
    }
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make a file system or a volume
    Create(create::CreateArgs),
    /// Destroy file systems, volumes, snapshots or bookmarks
    Destroy(destroy::Args),
    /// List datasets
    List(list::Args),
    /// Show properties
    Get(get::Args),
    /// Set properties
    Set(modify::SetArgs),
    /// Let a property be inherited
    Inherit(modify::InheritArgs),
    /// Make snapshots
    #[command(visible_alias = "snap")]
    Snapshot(create::SnapshotArgs),
    /// Keep of a snapshot what an increment can be sent from
    Bookmark(create::BookmarkArgs),
    /// List the blocks that redacted streams of a snapshot leave out
    Redact(redact::RedactArgs),
    /// Mount file systems, or list the mounted ones
    Mount(mount::MountArgs),
    /// Unmount file systems
    #[command(visible_alias = "umount")]
    Unmount(mount::UnmountArgs),
    /// Share file systems according to their properties sharenfs and sharesmb
    Share(share::ShareArgs),
    /// End the shares of the properties sharenfs and sharesmb
    Unshare(share::UnshareArgs),
    /// Go back to a snapshot
    Rollback(modify::RollbackArgs),
    /// Make a file system that begins as a snapshot
    Clone(create::CloneArgs),
    /// Make a clone the one that its origin depends on
    Promote(modify::PromoteArgs),
    /// Give a dataset or snapshot another name
    Rename(modify::RenameArgs),
    /// Send snapshots as a stream to standard output
    Send(send::SendArgs),
    /// Receive a stream from standard input
    #[command(visible_alias = "recv")]
    Receive(receive::ReceiveArgs),
    /// Show the space and quotas of each user in a file system or snapshot
    Userspace(space::NamedSpaceArgs),
    /// Show the space and quotas of each group in a file system or snapshot
    Groupspace(space::NamedSpaceArgs),
    /// Show the space and quotas of each project in a file system or snapshot
    Projectspace(space::SpaceArgs),
    /// Show or set the projects of files and directories
    Project(project::ProjectArgs),
    /// Show the files that differ between two snapshots
    Diff(diff::DiffArgs),
    /// Upgrade file systems to a newer version
    Upgrade(upgrade::UpgradeArgs),
    /// Wait until background activity of a file system has ended
    Wait(wait::WaitArgs),
    /// Rewrite the blocks of files in place, with the present properties and layout
    Rewrite(rewrite::RewriteArgs),
    /// Put a hold on snapshots
    Hold(hold::HoldArgs),
    /// Release a hold of snapshots
    Release(hold::ReleaseArgs),
    /// List the holds of snapshots
    Holds(hold::HoldsArgs),
    /// Unlock encrypted datasets
    LoadKey(key::LoadKeyArgs),
    /// Lock encrypted datasets
    UnloadKey(key::UnloadKeyArgs),
    /// Give encrypted datasets other keys
    ChangeKey(key::ChangeKeyArgs),
    /// Delegate permissions to ordinary users, or show which are
    Allow(allow::AllowArgs),
    /// Take delegated permissions back
    Unallow(allow::UnallowArgs),
    /// Print the version
    Version(VersionArgs),
}

impl Zfs {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        let asking = &self.daemon;
        match &self.command {
            Command::Create(args) => args.run(asking),
            Command::Destroy(args) => destroy::run(args, asking),
            Command::List(args) => list::run(args, asking),
            Command::Get(args) => get::run(args, asking),
            Command::Set(args) => args.run(asking),
            Command::Inherit(args) => args.run(asking),
            Command::Snapshot(args) => args.run(asking),
            Command::Bookmark(args) => args.run(asking),
            Command::Redact(args) => args.run(asking),
            Command::Rollback(args) => args.run(asking),
            Command::Mount(args) => args.run(asking),
            Command::Unmount(args) => args.run(asking),
            Command::Share(args) => args.run(asking),
            Command::Unshare(args) => args.run(asking),
            Command::Clone(args) => args.run(asking),
            Command::Promote(args) => args.run(asking),
            Command::Rename(args) => args.run(asking),
            Command::Send(args) => args.run(asking),
            Command::Receive(args) => args.run(asking),
            Command::Userspace(args) => args.run(OwnerKind::User, asking),
            Command::Groupspace(args) => args.run(OwnerKind::Group, asking),
            Command::Projectspace(args) => args.run_for_projects(asking),
            Command::Project(args) => args.run(),
            Command::Diff(args) => args.run(asking),
            Command::Upgrade(args) => args.run(asking),
            Command::Wait(args) => args.run(asking),
            Command::Rewrite(args) => args.run(asking),
            Command::Hold(args) => args.run(asking),
            Command::Release(args) => args.run(asking),
            Command::Holds(args) => args.run(asking),
            Command::LoadKey(args) => args.run(asking),
            Command::UnloadKey(args) => args.run(asking),
            Command::ChangeKey(args) => args.run(asking),
            Command::Allow(args) => args.run(asking),
            Command::Unallow(args) => args.run(asking),
            Command::Version(_) => print_version("zfs", asking.json),
        }
    }
}

/// Refuses those options that were given.
fn refuse_options(command: &str, options: &[(&str, bool)]) -> Result<(), Failure> {
    let given: Vec<&str> =
        options.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    if given.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!("zfs {command} {} is not supported yet", given.join(" "))))
}
