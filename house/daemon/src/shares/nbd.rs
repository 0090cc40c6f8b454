//! NBD shares: volumes as network block devices.
//!
//! ```toml
//! [[share]]
//! protocol = "nbd"
//! dataset = "tank/disk"        # a volume, or a snapshot of one, which is read-only
//! name = "disk"                # the export name; without it the name of the dataset
//! networks = "10.0.0.0/24"     # without it this machine alone
//! read_only = true
//! ```

use api::Protocol;
use lun::LunOptions;
use serde::Deserialize;

use super::networks::Networks;
use super::volumes::VolumeOptions;

/// The fields of `[[share]]` for NBD.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NbdFields {
    /// The export name; without it the name of the dataset.
    pub(crate) name: Option<String>,
    /// The options.
    #[serde(default = "Networks::loopback")]
    pub(crate) networks: Networks,
    /// Clients may not write.
    #[serde(default)]
    pub(crate) read_only: bool,
}

/// The way in which a volume is served by NBD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NbdOptions {
    /// The networks whose clients may connect.
    pub(crate) networks: Networks,
    /// Clients may not write.
    pub(crate) read_only: bool,
}

impl VolumeOptions for NbdOptions {
    const PROTOCOL: Protocol = Protocol::Nbd;

    fn lun_options(&self) -> LunOptions {
        LunOptions { read_only: self.read_only, ..LunOptions::default() }
    }
}

impl NbdFields {
    /// The export name and the options.
    pub(crate) fn resolve(self, dataset: &str) -> (String, NbdOptions) {
        let Self { name, networks, read_only } = self;
        (name.unwrap_or_else(|| dataset.to_owned()), NbdOptions { networks, read_only })
    }
}
