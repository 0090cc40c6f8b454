//! What can be asked of a daemon: plain data, the same on both ends of the socket.

use std::path::PathBuf;

use engine::dataset::DatasetQuery;
use engine::pool::Rewind;
use serde::{Deserialize, Serialize};

use crate::{ReceiveStream, SendStream};

/// What can be asked of a daemon. Its name in kebab-case is the verb in the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Who is there? [`crate::DaemonInfo`]
    Hello {},
    /// End, cleanly.
    Stop {},
    /// How these pools are; none named: all. A list of [`crate::PoolReport`]
    Pools {
        /// Their names.
        #[serde(default)]
        names: Vec<String>,
    },
    /// Make a pool.
    CreatePool(CreatePool),
    /// Which pools are on drives there and are not imported? A list of [`crate::ImportablePool`]
    Importable {
        /// Folders, files, devices.
        paths: Vec<PathBuf>,
        /// Those that were destroyed, instead of those that were not.
        #[serde(default)]
        destroyed: bool,
    },
    /// Whose keys may be wanted to take over those pools? A list of [`engine::EncryptionRoot`]
    EncryptionRoots {
        /// Folders, files, devices.
        paths: Vec<PathBuf>,
        /// Name or guid; none: all that are found.
        #[serde(default)]
        name: Option<String>,
        /// Those that were destroyed.
        #[serde(default)]
        destroyed: bool,
        /// How far back they may be taken.
        #[serde(default)]
        rewind: Rewind,
    },
    /// Take pools over. Gives their names.
    ImportPool(ImportPool),
    /// How far has the reading come before one is taken back? [`engine::pool::RewindProgress`], or nothing
    RewindProgress {},
    /// Have that reading stop: the pool is left as it is.
    StopRewindProbe {},
    /// Give a pool up.
    ExportPool {
        /// Its name.
        name: String,
        /// Even while somebody uses its files.
        #[serde(default)]
        force: bool,
    },
    /// Destroy a pool.
    DestroyPool {
        /// Its name.
        name: String,
        /// Even while somebody uses its files.
        #[serde(default)]
        force: bool,
    },
    /// What is mounted? A list of datasets and folders
    Mounts {},
    /// Mount file systems.
    Mount {
        /// Their names; none: all that are to be mounted.
        #[serde(default)]
        names: Vec<String>,
        /// And all below them that are to be mounted.
        #[serde(default)]
        recursive: bool,
        /// How, until they are unmounted.
        #[serde(default)]
        overrides: MountOverrides,
    },
    /// Unmount file systems, and those below them.
    Unmount {
        /// Their names or folders; none: all.
        #[serde(default)]
        names: Vec<String>,
        /// Even while somebody uses their files.
        #[serde(default)]
        force: bool,
        /// They are to be locked afterwards: nothing else that is mounted may have its key from them.
        #[serde(default)]
        unload_keys: bool,
    },
    /// What properties do pools have? None named: all pools. A list of names and lists of
    /// [`engine::pool::PoolProperty`]
    PoolProperties {
        /// The pools' names.
        #[serde(default)]
        names: Vec<String>,
    },
    /// Set a property of a pool.
    SetPool {
        /// The pool.
        name: String,
        /// The property.
        property: String,
        /// What it is to be.
        value: String,
    },
    /// Have all that was changed written; none named: in all pools.
    SyncPools {
        /// Their names.
        #[serde(default)]
        names: Vec<String>,
    },
    /// What was done to pools? None named: all. A list of what
    /// [`engine::pool::Pool::history`] gives
    History {
        /// Their names.
        #[serde(default)]
        names: Vec<String>,
        /// What the pools did themselves, too.
        #[serde(default)]
        internal: bool,
    },
    /// Write down in a pool's history which command was given.
    RecordCommand {
        /// The pool.
        pool: String,
        /// The command line.
        command: String,
        /// The user that gave it.
        uid: u32,
    },
    /// Add cache drives and spares to a pool.
    AddDrives {
        /// The pool.
        name: String,
        /// How they stand together, what for, and the drives' paths.
        vdevs: Vec<(VdevLayout, VdevRole, Vec<PathBuf>)>,
        /// Drives that hold something, too.
        #[serde(default)]
        force: bool,
    },
    /// Let cache drives and spares of a pool go.
    RemoveDrives {
        /// The pool.
        name: String,
        /// Their paths or guids.
        drives: Vec<String>,
    },
    /// Have a drive take the place of another.
    ReplaceDrive {
        /// The pool.
        name: String,
        /// The path or guid of the old one.
        old: String,
        /// The path of the new one; none: where the old one was.
        #[serde(default)]
        new: Option<PathBuf>,
        /// One that holds something, too.
        #[serde(default)]
        force: bool,
    },
    /// Put a drive beside another.
    AttachDrive {
        /// The pool.
        name: String,
        /// The path or guid of the one that is there.
        existing: String,
        /// The path of the new one.
        new: PathBuf,
        /// One that holds something, too.
        #[serde(default)]
        force: bool,
    },
    /// Take a drive out of a mirror.
    DetachDrive {
        /// The pool.
        name: String,
        /// Its path or guid.
        drive: String,
    },
    /// Have all of a pool read and mended, or no more.
    ScrubPool {
        /// Its name.
        name: String,
        /// No more.
        #[serde(default)]
        stop: bool,
    },
    /// Count the errors of a pool's drives anew, and have it go on if it stands still.
    ClearPool {
        /// Its name.
        name: String,
        /// Those of one drive only, by its path or guid.
        #[serde(default)]
        drive: Option<String>,
    },
    /// Which datasets are there? A list of [`engine::dataset::Dataset`]
    Datasets(ListRequest),
    /// Make a file system.
    CreateFilesystem {
        /// Its full name.
        name: String,
        /// Its properties.
        #[serde(default)]
        properties: Vec<(String, String)>,
        /// Make those above that are not there, too.
        #[serde(default)]
        parents: bool,
        /// Do not mount it.
        #[serde(default)]
        no_mount: bool,
        /// Its user's key, if it is to have one of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Secret>,
    },
    /// Make a volume.
    CreateVolume {
        /// Its full name.
        name: String,
        /// Its bytes.
        size: u64,
        /// The bytes of its blocks.
        block_size: u32,
        /// Reserve no space for it.
        #[serde(default)]
        sparse: bool,
        /// Its properties.
        #[serde(default)]
        properties: Vec<(String, String)>,
        /// Make those above that are not there, too.
        #[serde(default)]
        parents: bool,
        /// Its user's key, if it is to have one of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Secret>,
    },
    /// Unlock a dataset, and all that have their key from the same encryption root.
    LoadKey {
        /// Its name.
        name: String,
        /// What the user has.
        secret: Secret,
    },
    /// Lock it again, and all those.
    UnloadKey {
        /// Its name.
        name: String,
    },
    /// Give a dataset a user's key of its own, or another one.
    ChangeKey {
        /// Its name.
        name: String,
        /// keyformat, keylocation, pbkdf2iters.
        #[serde(default)]
        properties: Vec<(String, String)>,
        /// What the user has from now on.
        secret: Secret,
    },
    /// Have a dataset use the key of what is above it.
    InheritKey {
        /// Its name.
        name: String,
    },
    /// Destroy datasets, snapshots, bookmarks. [`crate::DestroyedDatasets`]
    Destroy {
        /// `FS`, `FS@SNAP,SNAP%SNAP` or `FS#BOOKMARK`.
        name: String,
        /// Those below it, too; for a snapshot those of its name below.
        #[serde(default)]
        recursive: bool,
        /// Clones, too, wherever they are.
        #[serde(default)]
        clones: bool,
        /// Snapshots that are in use as soon as they are not.
        #[serde(default)]
        defer: bool,
        /// Even while somebody uses the files.
        #[serde(default)]
        force: bool,
        /// Only say what would be destroyed.
        #[serde(default)]
        dry_run: bool,
    },
    /// Set properties.
    Set {
        /// Of these datasets.
        names: Vec<String>,
        /// Names and values.
        properties: Vec<(String, String)>,
        /// What is mounted stays where it is, and nothing else is mounted.
        #[serde(default)]
        keep_mounts: bool,
    },
    /// Let a property be inherited.
    Inherit {
        /// In these datasets.
        names: Vec<String>,
        /// Its name.
        property: String,
        /// In those below, too.
        #[serde(default)]
        recursive: bool,
        /// What came with a send stream counts again.
        #[serde(default)]
        received: bool,
    },
    /// Make snapshots, all of the same moment.
    Snapshot {
        /// Their names.
        names: Vec<String>,
        /// Of all datasets below, too.
        #[serde(default)]
        recursive: bool,
        /// Their properties.
        #[serde(default)]
        properties: Vec<(String, String)>,
    },
    /// Make a bookmark of a snapshot.
    Bookmark {
        /// `FS@SNAPSHOT`.
        snapshot: String,
        /// `FS#MARK`.
        bookmark: String,
    },
    /// Go back to a snapshot.
    Rollback {
        /// Its name.
        snapshot: String,
        /// Destroy newer snapshots and bookmarks.
        #[serde(default)]
        destroy_newer: bool,
        /// And their clones.
        #[serde(default)]
        destroy_clones: bool,
        /// Even while somebody uses the files.
        #[serde(default)]
        force: bool,
    },
    /// Make a file system that begins as a snapshot.
    Clone {
        /// The snapshot.
        snapshot: String,
        /// The file system.
        name: String,
        /// Its properties.
        #[serde(default)]
        properties: Vec<(String, String)>,
        /// Make those above that are not there, too.
        #[serde(default)]
        parents: bool,
    },
    /// Make a clone the one that its origin depends on.
    Promote {
        /// The clone.
        name: String,
    },
    /// Send a snapshot through a descriptor that the client offers.
    Send(SendStream),
    /// Receive a stream from a descriptor that the client offers. [`crate::ReceivedStream`]
    Receive(ReceiveStream),
    /// Give a dataset or snapshot another name.
    Rename {
        /// What it is called.
        from: String,
        /// What it is to be called.
        to: String,
        /// Snapshots of that name below, too.
        #[serde(default)]
        recursive: bool,
        /// Make those above the new name that are not there.
        #[serde(default)]
        parents: bool,
        /// Even while somebody uses the files.
        #[serde(default)]
        force: bool,
    },
}

/// A user's key: a passphrase, hexadecimal digits or raw bytes. It is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// How the drives of a top-level vdev stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevLayout {
    /// One drive.
    Single,
    /// All hold the same.
    Mirror,
    /// Rows with parity of so many drives.
    Raidz(u32),
    /// The same spread over all drives, with spares.
    Draid {
        /// Parity columns of a row.
        parity: u32,
        /// Data columns of a row.
        data: u32,
        /// Drives' worth of spare space.
        spares: u32,
    },
}

/// What a top-level vdev is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevRole {
    /// Anything.
    #[default]
    Data,
    /// The intent log.
    Log,
    /// Metadata.
    Special,
    /// The tables of deduplication.
    Dedup,
    /// To take the place of drives that fail.
    Spare,
    /// To keep what is often read.
    Cache,
}

/// A pool that is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// What it is called until it is exported, if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_name: Option<String>,
    /// Its top-level vdevs: how they stand together, what for, and the drives' paths.
    pub vdevs: Vec<(VdevLayout, VdevRole, Vec<PathBuf>)>,
    /// log2 of the smallest write.
    #[serde(default)]
    pub ashift: Option<u64>,
    /// Properties of its own, `feature@NAME` among them.
    #[serde(default)]
    pub pool_properties: Vec<(String, String)>,
    /// No features but those that are asked for.
    #[serde(default)]
    pub no_default_features: bool,
    /// Properties of its root file system.
    #[serde(default)]
    pub filesystem_properties: Vec<(String, String)>,
    /// What stands before all its mountpoints.
    #[serde(default)]
    pub altroot: Option<PathBuf>,
    /// Use drives of other pools, and vdevs of unlike redundancy.
    #[serde(default)]
    pub force: bool,
    /// The user's key of its root file system, if that is to be encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
}

/// Pools that are to be taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub struct ImportPool {
    /// Where to look.
    pub paths: Vec<PathBuf>,
    /// Name or guid; none: all that are found.
    #[serde(default)]
    pub name: Option<String>,
    /// What it is called from now on.
    #[serde(default)]
    pub new_name: Option<String>,
    /// It is called so until it is exported.
    #[serde(default)]
    pub temporary: bool,
    /// Even if another host had it and did not export it.
    #[serde(default)]
    pub force: bool,
    /// Those that were destroyed.
    #[serde(default)]
    pub destroyed: bool,
    /// Mount nothing.
    #[serde(default)]
    pub no_mount: bool,
    /// How what is mounted is, until it is unmounted.
    #[serde(default)]
    pub overrides: MountOverrides,
    /// Properties that they have from now on.
    #[serde(default)]
    pub pool_properties: Vec<(String, String)>,
    /// Give up what may have been promised on log devices that are missing.
    #[serde(default)]
    pub allow_missing_logs: bool,
    /// To be looked at only.
    #[serde(default)]
    pub read_only: bool,
    /// How far back they may be taken.
    #[serde(default)]
    pub rewind: Rewind,
    /// Take nothing over: only say how far back it would be taken.
    #[serde(default)]
    pub dry_run: bool,
    /// What stands before all its mountpoints.
    #[serde(default)]
    pub altroot: Option<PathBuf>,
    /// Keys of encryption roots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<(String, Secret)>,
}

/// How file systems are to be mounted this once, where that differs from what their properties say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountOverrides {
    /// Words of mount(8): ro, rw, exec, noexec, suid, nosuid, dev, nodev.
    #[serde(default)]
    pub options: Vec<String>,
    /// They may cover what is in their folders, even with overlay=off.
    #[serde(default)]
    pub overlay: bool,
}

/// Which datasets are to be listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRequest {
    /// These; none: all, of all pools.
    #[serde(default)]
    pub names: Vec<String>,
    /// What of them.
    #[serde(default)]
    pub query: DatasetQuery,
}

impl Request {
    /// Whether the daemon needs less memory when it is done.
    pub(crate) fn frees_memory(&self) -> bool {
        match self {
            Self::ExportPool { .. }
            | Self::DestroyPool { .. }
            | Self::Unmount { .. }
            | Self::UnloadKey { .. } => true,
            Self::Destroy { dry_run: dry, .. } => !dry,
            _ => false,
        }
    }

    /// The pool that it changes, if it does.
    pub fn changed_pool(&self) -> Option<&str> {
        let name = match self {
            Self::CreatePool(new) => new.temporary_name.as_ref().unwrap_or(&new.name),
            Self::Receive(stream) if !stream.dry_run => &stream.target,
            Self::Set { names, .. }
            | Self::Inherit { names, .. }
            | Self::Snapshot { names, .. } => names.first()?,
            Self::ExportPool { name, .. }
            | Self::DestroyPool { name, .. }
            | Self::SetPool { name, .. }
            | Self::ClearPool { name, .. }
            | Self::AddDrives { name, .. }
            | Self::RemoveDrives { name, .. }
            | Self::ReplaceDrive { name, .. }
            | Self::AttachDrive { name, .. }
            | Self::DetachDrive { name, .. }
            | Self::ScrubPool { name, .. }
            | Self::CreateFilesystem { name, .. }
            | Self::CreateVolume { name, .. }
            | Self::Destroy { name, .. }
            | Self::Rollback { snapshot: name, .. }
            | Self::Clone { name, .. }
            | Self::Promote { name }
            | Self::Bookmark { bookmark: name, .. }
            | Self::LoadKey { name, .. }
            | Self::UnloadKey { name }
            | Self::ChangeKey { name, .. }
            | Self::InheritKey { name }
            | Self::Rename { from: name, .. } => name,
            _ => return None,
        };
        name.split(['/', '@', '#']).next()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Request;

    #[test]
    fn what_only_looks_needs_no_fields() {
        for verb in ["hello", "pools", "datasets"] {
            serde_json::from_value::<Request>(json!({ verb: {} })).unwrap();
        }
    }

    #[test]
    fn verbs_are_in_kebab_case() {
        let ask = Request::CreateFilesystem {
            name: "tank/a".to_owned(),
            properties: Vec::new(),
            parents: false,
            no_mount: false,
            secret: None,
        };
        assert_eq!(
            serde_json::to_value(&ask).unwrap(),
            json!({"create-filesystem": {"name": "tank/a", "properties": [], "parents": false,
                "no_mount": false}})
        );
    }
}
