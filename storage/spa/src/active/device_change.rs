//! Why a device may not be attached, detached, replaced, taken offline or brought back.

use vdev::RebuildObstacle;

use super::{CheckpointError, RemovalError};

/// Why a drive may not come or go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceChangeError {
    /// No drive of the pool is meant.
    #[error("no such device in pool")]
    NotInPool,
    /// The new drive is too small.
    #[error("the new drive has {has} bytes, and {needs} are needed")]
    TooSmall {
        /// Bytes of it.
        has: u64,
        /// Bytes that it must have.
        needs: u64,
    },
    /// It, or what stands in for it, is being replaced.
    #[error("it is being replaced already")]
    AlreadyReplacing,
    /// Only drives and mirrors can get one more side.
    #[error("can only attach to mirrors and top-level disks")]
    CannotMirror,
    /// Nothing else holds what it holds.
    #[error("only applicable to mirror and replacing vdevs")]
    OnlyReplica,
    /// It came back, and others had it meanwhile.
    #[error(
        "it was written elsewhere while it was away from the pool; if what is on it is not needed, \
         have it take its own place: `zpool replace -f`"
    )]
    WrittenElsewhere,
    /// The others lack something.
    #[error("no valid replicas\nThe drives beside it do not have all that it has.")]
    NoValidReplicas,
    /// It is the last drive of a log vdev whose blocks are still needed.
    #[error("the intent logs of datasets whose keys are not loaded are on it: load the keys first")]
    LogInUse,
    /// Only log vdevs, and devices that are part of no vdev, can be removed.
    #[error("only inactive hot spares, cache and log devices can be removed")]
    NotRemovable,
    /// A device of the vdev is missing.
    #[error("it cannot be expanded while a device of its vdev is missing")]
    CannotExpand,
    /// The feature of sequential rebuilds is not enabled.
    #[error(
        "the device_rebuild feature must be enabled for a sequential rebuild: run `zpool upgrade`"
    )]
    RebuildDisabled,
    /// A resilver goes on.
    #[error("currently resilvering")]
    Resilvering,
    /// A sequential rebuild goes on.
    #[error("currently sequentially resilvering")]
    Rebuilding,
    /// The vdev cannot be rebuilt sequentially now.
    #[error("{0}")]
    Rebuild(#[from] RebuildObstacle),
    /// Spares cannot stand in for log devices.
    #[error(
        "a spare cannot take the place of a log device: use `zpool replace` with another drive"
    )]
    SpareForLog,
    /// The spare stands in for another drive.
    #[error("the spare is currently in use")]
    SpareInUse,
    /// A distributed spare belongs to another vdev.
    #[error("a distributed spare can replace only drives of its own dRAID")]
    SpareOfOtherDraid,
    /// The drives must fit the configuration of the pool's checkpoint.
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    /// A vdev is being removed.
    #[error("{0}")]
    Removal(#[from] RemovalError),
    /// The work goes on already.
    #[error("currently {}", if *.0 == "trim" { "trimming" } else { "initializing" })]
    ActivityRuns(&'static str),
    /// The work does not go on.
    #[error("there is no active {}", if *.0 == "trim" { "trim" } else { "initialization" })]
    NoActivity(&'static str),
    /// The free space of the drive is not known in terms of its own bytes.
    #[error(
        "drives of a dRAID, of a raidz that is expanded, and of pools without tables of vdevs are not supported"
    )]
    ActivityUnsupported,
    /// A device of the pool is missing or fails.
    #[error("one or more devices is currently unavailable")]
    DeviceMissing,
    /// A command faulted it, or it had too many errors.
    #[error("it is faulted: `zpool clear` brings it back")]
    Faulted,
}
