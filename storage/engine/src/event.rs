//! Events that the user should know; the work continues.

/// An event that the user should know; the work continues.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
pub enum Event {
    /// A device is missing, and the others make up for it.
    #[error("{device} of {vdev} is missing; the others make up for it")]
    MissingDevice {
        /// The path that the pool knows it by.
        device: String,
        /// The vdev that it is part of.
        vdev: String,
    },
    /// A vdev that nothing makes up for is missing.
    #[error("{vdev} cannot be read ({} missing); its data are lost, the rest is read", .devices.join(", "))]
    MissingVdev {
        /// The vdev.
        vdev: String,
        /// Its missing devices.
        devices: Vec<String>,
    },
    /// An image is shorter than its vdev.
    #[error(
        "'{path}' is truncated: its label says that the vdev takes {required} bytes, and it ends after {size}"
    )]
    TruncatedDevice {
        /// The image.
        path: String,
        /// Its size, bytes.
        size: u64,
        /// The size by its label, bytes.
        required: u64,
    },
    /// A device knows only older states of the pool.
    #[error(
        "'{path}' knows the pool only up to txg {txg}: it was missing later, and is used for older data only"
    )]
    StaleDevice {
        /// The device.
        path: String,
        /// The newest transaction group that it knows.
        txg: u64,
    },
    /// Two devices have the same label.
    #[error(
        "'{path}' is labelled as the same drive as '{used}', which is used: it is a copy of it or another \
         path to it, and is left alone"
    )]
    DuplicateDevice {
        /// The device that is left alone.
        path: String,
        /// The device that is used.
        used: String,
    },
    /// Not the newest state is read.
    #[error("the pool is read as of txg {txg}, not of txg {newest}, which is its newest")]
    OlderTxg {
        /// The object that was read.
        txg: u64,
        /// The newest that stands.
        newest: u64,
    },
    /// Something at the paths could not be opened.
    #[error("{reason}")]
    OpenFailed {
        /// Why.
        reason: String,
    },
    /// A dataset could not be read.
    #[error("{dataset} cannot be read: {why}")]
    UnreadableDataset {
        /// Its name.
        dataset: String,
        /// Why not.
        why: String,
    },
}

impl Event {
    pub(crate) fn from_duplicate(duplicate: &spa::Duplicate) -> Self {
        let path = duplicate.device.device.name().to_owned();
        Self::DuplicateDevice { path, used: duplicate.used_device.clone() }
    }
}
