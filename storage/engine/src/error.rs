//! Errors as sentences for users, each with its exit status.
//!
//! A sentence names its subject, gives the numbers, the consequence, and the next step.

use std::fmt::Write as _;

/// A top-level vdev that lacks more devices than it can do without.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct UnavailableVdev {
    /// The vdev, as `raidz2-0`.
    pub vdev: String,
    /// Its devices.
    pub devices: usize,
    /// The paths of the missing ones, from the pool's configuration.
    pub missing: Vec<String>,
    /// How many may be missing.
    pub redundancy: usize,
}

/// An error of the engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The command line is invalid.
    #[error("{what}")]
    Usage {
        /// The reason.
        what: String,
    },
    /// No pool was found at all.
    #[error("no pool found {}: no file or device there has a ZFS label that can be read; name the folder, images, disks or partitions with -d", format_paths(.paths))]
    NoPool {
        /// Where was looked.
        paths: Vec<String>,
    },
    /// No pool of that name or guid was found.
    #[error("there is no pool '{name}' {}; found: {}", format_paths(.paths), .found.join(", "))]
    NoSuchPool {
        /// The name or guid.
        name: String,
        /// Where was looked.
        paths: Vec<String>,
        /// The pools found instead.
        found: Vec<String>,
    },
    /// The pool does not stand as of then.
    #[error("pool '{pool}' cannot be read as of txg {txg}: its uberblock no longer exists; the existing ones are of txg {}", join_numbers(.available))]
    NoSuchTxg {
        /// The pool.
        pool: String,
        /// The transaction group that is wanted.
        txg: u64,
        /// The existing ones.
        available: Vec<u64>,
    },
    /// The pool could not be made.
    #[error("pool '{pool}' could not be created: {why}")]
    CreateFailed {
        /// Its name.
        pool: String,
        /// Why not.
        why: String,
    },
    /// A drive has a label.
    #[error(
        "'{path}' is, or was, part of pool '{pool}'; use -f to overwrite it, which destroys its content"
    )]
    DeviceInPool {
        /// The drive.
        path: String,
        /// The pool.
        pool: String,
    },
    /// Another host writes to the pool.
    #[error(
        "pool '{pool}': another host has it imported ('{host}' was the last one), because its drives change; export it there first"
    )]
    ActiveOnOtherHost {
        /// The pool.
        pool: String,
        /// The host that had it last.
        host: String,
    },
    /// A drive has data other than a pool.
    #[error("'{path}' holds {content}; use -f to overwrite it, which destroys its content")]
    DeviceHasData {
        /// The drive.
        path: String,
        /// The kind of its data.
        content: &'static str,
    },
    /// The pool can be read, and not be changed.
    #[error(
        "pool '{pool}' cannot be changed: {why}; it can still be read: `zpool import -o readonly=on`, \
         or `poolhouse rescue`"
    )]
    NotWritable {
        /// The pool.
        pool: String,
        /// Why not.
        why: String,
    },
    /// The operation is not allowed now.
    #[error("{what}")]
    Refused {
        /// The operation, and the reason.
        what: String,
    },
    /// Another host had the pool, and did not export it.
    #[error(
        "pool '{pool}' was last in use by {host}, and was not exported there; if that host is gone, use -f"
    )]
    HostidMismatch {
        /// The pool.
        pool: String,
        /// The host.
        host: String,
    },
    /// Another pool has the name.
    #[error(
        "another pool that is here is called '{pool}': `zpool import GUID NAME` gives this one a new \
         name, and with -t one until it is exported"
    )]
    NameTaken {
        /// The name.
        pool: String,
    },
    /// The pool accepts no changes.
    #[error("pool '{pool}' is suspended: {why}; the last synced txg is safe, and can be read")]
    Suspended {
        /// The pool.
        pool: String,
        /// Why.
        why: String,
    },
    /// It has no checkpoint.
    #[error("pool '{pool}' has no checkpoint; leave out --checkpoint to read its newest state")]
    NoCheckpoint {
        /// The pool.
        pool: String,
    },
    /// Several pools have the name.
    #[error("{} pools are named '{name}'; choose one by its guid: {}", .guids.len(), join_numbers(.guids))]
    AmbiguousName {
        /// The name.
        name: String,
        /// Their guids.
        guids: Vec<u64>,
    },
    /// Too many devices are missing.
    #[error("{}", missing_devices_message(.pool, .vdevs))]
    MissingDevices {
        /// The pool.
        pool: String,
        /// The vdevs that cannot be read.
        vdevs: Vec<UnavailableVdev>,
    },
    /// Whole vdevs are missing, while the pool's own data can be read.
    #[error("{}", missing_vdevs_message(.pool, .vdevs))]
    MissingVdevs {
        /// The pool.
        pool: String,
        /// The vdevs that cannot be read.
        vdevs: Vec<UnavailableVdev>,
    },
    /// Log devices are missing that may have unreplayed records.
    #[error(
        "pool '{pool}' cannot be imported: log devices are missing ({why}) that may have the last synchronous writes of '{dataset}'; bring them back, or discard those writes: `zpool import -m {pool}`"
    )]
    MissingLog {
        /// The pool.
        pool: String,
        /// The dataset.
        dataset: String,
        /// The missing devices.
        why: String,
    },
    /// No state of it can be imported.
    #[error("{}", rewind_failed_message(.pool, *.states_tried, *.has_older_states, .why))]
    RewindFailed {
        /// The pool.
        pool: String,
        /// How many states were looked at.
        states_tried: usize,
        /// Whether there are older ones.
        has_older_states: bool,
        /// The damage of the newest state.
        why: String,
    },
    /// The pool's own data are damaged.
    #[error(
        "pool '{pool}' cannot be opened because its metadata is damaged: {why}; an older state may be intact: `zpool import -F {pool}` rewinds to it, and `poolhouse rescue --rewind` reads it (or --txg, with one that `rescue scan -v` lists)"
    )]
    DamagedPool {
        /// The pool.
        pool: String,
        /// The damaged part.
        why: String,
    },
    /// Something inside the pool is damaged.
    #[error("{subject} cannot be read: {why}")]
    Unreadable {
        /// The unreadable part.
        subject: String,
        /// Why.
        why: String,
    },
    /// The pool uses features that are not known.
    #[error("pool '{pool}' uses {} that this version of poolhouse does not know and that reading needs: {}; a newer version may read it", pluralize(.features.len(), "a feature", "features"), .features.join(", "))]
    UnsupportedFeatures {
        /// The pool.
        pool: String,
        /// Their guids.
        features: Vec<String>,
    },
    /// The pool has a version that is not known.
    #[error(
        "pool '{pool}' has version {version}; this version of poolhouse knows 1 to 28 and 5000 (feature flags)"
    )]
    UnsupportedVersion {
        /// The pool.
        pool: String,
        /// Its version.
        version: u64,
    },
    /// Something else that cannot be done yet.
    #[error("{what}, which this version of poolhouse does not know")]
    Unsupported {
        /// The operation.
        what: String,
    },
    /// The key does not fit.
    #[error("the key for '{dataset}' is wrong: it does not open the dataset's own keys")]
    WrongKey {
        /// The dataset.
        dataset: String,
    },
    /// The user's input is not a key.
    #[error("the key for '{dataset}' is invalid: it must be {expected}")]
    InvalidKey {
        /// The dataset.
        dataset: String,
        /// The form of a key.
        expected: String,
    },
    /// It has no key.
    #[error("'{dataset}' is not encrypted, so it needs no key")]
    NotEncrypted {
        /// The dataset.
        dataset: String,
    },
    /// A key is wanted.
    #[error("'{dataset}' is locked; give its key with --key {root}=FILE")]
    Locked {
        /// The dataset.
        dataset: String,
        /// Its encryption root, whose key is needed.
        root: String,
    },
    /// An intent log cannot be replayed without a key.
    #[error(
        "pool '{pool}' cannot be imported without the key of '{root}': the intent log of '{dataset}' has writes to replay; `zpool import -l {pool}` loads the key"
    )]
    LockedLog {
        /// The pool.
        pool: String,
        /// The dataset.
        dataset: String,
        /// Its encryption root, whose key is needed.
        root: String,
    },
    /// A path does not have the expected type.
    #[error("'{path}' cannot be used: {reason}")]
    UnusablePath {
        /// The path.
        path: String,
        /// Why.
        reason: String,
    },
    /// A folder has nothing in it that could be a device.
    #[error(
        "'{path}' is a folder, and no image or device is in it (folders below are not searched)"
    )]
    EmptyDirectory {
        /// The folder.
        path: String,
    },
    /// A folder stands where a device is wanted.
    #[error("'{path}' is a folder; name an image, a disk or a partition")]
    IsDirectory {
        /// The folder.
        path: String,
    },
    /// A device has no label.
    #[error("'{path}' has no ZFS label: {why}")]
    NoLabel {
        /// The device.
        path: String,
        /// The type found.
        why: String,
    },
    /// An image ends too early.
    #[error(
        "'{path}' is truncated: its label says that the vdev takes {required} bytes, and it ends after {size}; pool '{pool}' cannot be opened with the rest"
    )]
    Truncated {
        /// The image.
        path: String,
        /// The pool that it is part of.
        pool: String,
        /// Its size, bytes.
        size: u64,
        /// The size by its label, bytes.
        required: u64,
    },
    /// Another program uses a device.
    #[error(
        "'{path}' is in use by another program; stop that program first, because its writes would change the pool under the reader"
    )]
    InUse {
        /// The device.
        path: String,
    },
    /// A device is to be written and cannot be.
    #[error(
        "'{path}' is write-protected: nothing was changed; take the protection off, or read its pool with \
         `zpool import -o readonly=on`"
    )]
    WriteProtected {
        /// The device.
        path: String,
    },
    /// The dataset does not exist.
    #[error("cannot open '{name}': dataset does not exist")]
    NoSuchDataset {
        /// The name.
        name: String,
    },
    /// A dataset cannot be created or renamed, as the dataset above it does not exist.
    #[error("cannot create '{name}': parent does not exist")]
    NoParent {
        /// The dataset.
        name: String,
    },
    /// There is no such file.
    #[error("there is no '{path}' in {dataset}")]
    NoSuchFile {
        /// The dataset.
        dataset: String,
        /// The path in it.
        path: String,
    },
    /// The object, block or vdev does not exist.
    #[error("there is no {what}")]
    NotFound {
        /// The requested object.
        what: String,
    },
    /// A file to be written could not.
    #[error("'{path}' cannot be written: {reason}")]
    WriteFailed {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
    /// The user stopped the rewind probe.
    #[error("pool '{pool}': the check of its metadata was stopped; the pool is unchanged")]
    RewindInterrupted {
        /// The pool.
        pool: String,
    },
    /// The user stopped it.
    #[error("interrupted; finished work is kept, and the same command continues from there")]
    Interrupted,
}

impl Error {
    /// The exit status.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage { .. } => 2,
            Self::NoPool { .. }
            | Self::NoSuchPool { .. }
            | Self::NoSuchTxg { .. }
            | Self::NoCheckpoint { .. } => 3,
            Self::AmbiguousName { .. } => 4,
            Self::MissingDevices { .. } | Self::MissingVdevs { .. } | Self::MissingLog { .. } => 5,
            Self::DamagedPool { .. } | Self::Unreadable { .. } | Self::RewindFailed { .. } => 6,
            Self::UnsupportedFeatures { .. }
            | Self::UnsupportedVersion { .. }
            | Self::Unsupported { .. } => 7,
            Self::WrongKey { .. } | Self::InvalidKey { .. } | Self::NotEncrypted { .. } => 8,
            Self::Locked { .. } | Self::LockedLog { .. } => 9,
            Self::UnusablePath { .. }
            | Self::EmptyDirectory { .. }
            | Self::IsDirectory { .. }
            | Self::NoLabel { .. }
            | Self::Truncated { .. } => 10,
            Self::InUse { .. }
            | Self::WriteProtected { .. }
            | Self::DeviceInPool { .. }
            | Self::DeviceHasData { .. }
            | Self::ActiveOnOtherHost { .. }
            | Self::HostidMismatch { .. } => 11,
            Self::NoSuchDataset { .. }
            | Self::NoParent { .. }
            | Self::NoSuchFile { .. }
            | Self::NotFound { .. } => 12,
            Self::WriteFailed { .. } => 13,
            Self::CreateFailed { .. }
            | Self::NotWritable { .. }
            | Self::NameTaken { .. }
            | Self::Refused { .. } => 14,
            Self::Suspended { .. } => 15,
            Self::Interrupted | Self::RewindInterrupted { .. } => 130,
        }
    }

    /// Something of a dataset that could not be read.
    pub(crate) fn from_dsl_error(name: &str, error: &dsl::Error) -> Self {
        match error {
            dsl::Error::NoSuchDataset { name } => Self::NoSuchDataset { name: name.clone() },
            dsl::Error::NotEncrypted { name } => Self::NotEncrypted { dataset: name.clone() },
            dsl::Error::KeyNotLoaded { name } => {
                Self::Locked { dataset: name.clone(), root: name.clone() }
            }
            dsl::Error::Key { name, why: transform::Error::WrongKey } => {
                Self::WrongKey { dataset: name.clone() }
            }
            dsl::Error::Key { name, why: transform::Error::KeyFormat { expected: wanted } } => {
                Self::InvalidKey { dataset: name.clone(), expected: (*wanted).to_owned() }
            }
            dsl::Error::NoContent { name } => Self::NotFound {
                what: format!("content of '{name}': it is a bookmark or one of the pool's own"),
            },
            other if other.is_refusal() => Self::Refused { what: other.to_string() },
            other => Self::Unreadable { subject: format!("'{name}'"), why: other.to_string() },
        }
    }

    /// A device that could not be opened.
    pub(crate) fn from_device_error(error: &device::Error) -> Self {
        match error {
            device::Error::WriteLocked { path } | device::Error::InUse { path } => {
                Self::InUse { path: path.clone() }
            }
            device::Error::WriteProtected { path } => Self::WriteProtected { path: path.clone() },
            device::Error::Open { path, reason } => {
                Self::UnusablePath { path: path.clone(), reason: reason.clone() }
            }
            device::Error::OwnVolume { path, volume } => {
                Self::UnusablePath { path: path.clone(), reason: device::own_volume_text(volume) }
            }
            device::Error::UnsupportedType { path } => Self::UnusablePath {
                path: path.clone(),
                reason: "it is neither a file, a folder nor a block device".to_owned(),
            },
            device::Error::Read { device, .. }
            | device::Error::Write { device, .. }
            | device::Error::Flush { device, .. }
            | device::Error::ReadOnly { device }
            | device::Error::OutOfRange { device, .. } => {
                Self::UnusablePath { path: device.clone(), reason: error.to_string() }
            }
        }
    }
}

/// The system's words without the number behind them.
pub fn io_error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let cut = text.find(" (os error").unwrap_or(text.len());
    let mut plain = text.get(..cut).unwrap_or(&text).to_owned();
    if let Some(first) = plain.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    plain
}

/// "1 device is", "3 devices are" and the like.
pub(crate) fn pluralize(number: usize, one: &str, many: &str) -> String {
    if number == 1 { one.to_owned() } else { format!("{number} {many}") }
}

fn format_paths(paths: &[String]) -> String {
    match paths {
        [] => "anywhere".to_owned(),
        [one] => format!("at '{one}'"),
        [first, .., last] if paths.len() > 3 => {
            format!("at '{first}' to '{last}' ({} paths)", paths.len())
        }
        all => format!("at {}", join_quoted(all)),
    }
}

fn join_quoted(all: &[String]) -> String {
    all.iter().map(|each| format!("'{each}'")).collect::<Vec<_>>().join(", ")
}

fn join_numbers(all: &[u64]) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn rewind_failed_message(pool: &str, tried: usize, older: bool, why: &str) -> String {
    let further = if older {
        format!("`zpool import -FX {pool}` tries all older ones")
    } else {
        "there are none older".to_owned()
    };
    format!(
        "pool '{pool}' cannot be rewound: {why} in the newest of {}; {further}; `poolhouse rescue` copies the readable files",
        pluralize(tried, "one tried state", "tried states")
    )
}

fn missing_devices_message(pool: &str, lacking: &[UnavailableVdev]) -> String {
    let what = describe_unavailable(pool, lacking);
    format!("{what}; the pool cannot be opened: add the folder of missing devices with -d")
}

fn missing_vdevs_message(pool: &str, lacking: &[UnavailableVdev]) -> String {
    let what = describe_unavailable(pool, lacking);
    format!(
        "{what}; it cannot be imported without them: add the folder of missing devices with -d, or copy the readable files with `poolhouse rescue`"
    )
}

fn describe_unavailable(pool: &str, lacking: &[UnavailableVdev]) -> String {
    let mut text = format!("pool '{pool}': ");
    for (index, each) in lacking.iter().enumerate() {
        let gone = each.missing.len();
        let (verb, spare) = (if gone == 1 { "is" } else { "are" }, each.redundancy);
        let comma = if index == 0 { "" } else { "; " };
        let names =
            if gone == 0 { String::new() } else { format!(" ({})", each.missing.join(", ")) };
        let _ = if each.devices == 0 {
            write!(text, "{comma}all devices of {} are missing", each.vdev)
        } else if each.devices == 1 {
            write!(text, "{comma}{} is missing{names}, and nothing has a copy", each.vdev)
        } else {
            write!(
                text,
                "{comma}{gone} of {} devices {verb} missing from {}{names}, which can do without {spare}",
                each.devices, each.vdev
            )
        };
    }
    text
}

#[cfg(test)]
mod tests;
