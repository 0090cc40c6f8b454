//! NVMe/TCP shares: volumes as namespaces of NVMe subsystems.
//!
//! ```toml
//! [[share]]
//! protocol = "nvme"
//! dataset = "tank/disk"            # a volume, or a snapshot of one, which is read-only
//! nqn = "nqn.2026-11.lan.nas:disk" # the subsystem; without it a name made from the dataset
//! namespace = 1                    # several volumes may be namespaces of one subsystem
//! networks = "10.0.0.0/24"         # without it this machine alone
//! hosts = ["nqn.2014-08.org.nvmexpress:uuid:..."]   # without it every host
//! block_size = 4096                # 512 without it
//! read_only = true
//! dhchap_secret_file = "/etc/poolhouse/dhchap"           # mode 0600; hosts prove who they are
//! dhchap_ctrl_secret_file = "/etc/poolhouse/dhchap-nas"  # the NAS proves itself to hosts, too
//! ```
//!
//! Secrets are those of `nvme gen-dhchap-key`. The file of the hosts has one secret for all of them, or a line with the
//! name of each host and its secret.

use std::path::PathBuf;

use api::Protocol;
use lun::LunOptions;
use serde::Deserialize;

use super::networks::{Networks, Words};
use super::volumes::VolumeOptions;

/// The start of the names of subsystems that have none in the configuration.
const SUBSYSTEM_PREFIX: &str = "nqn.2026-11.poolhouse:";
/// The largest number of a namespace.
const MAX_NAMESPACE: u32 = 1024;

/// The fields of `[[share]]` for NVMe/TCP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NvmeFields {
    /// The name of the subsystem; without it a name made from the dataset.
    pub(crate) nqn: Option<String>,
    #[serde(default = "default_namespace")]
    namespace: u32,
    #[serde(default = "Networks::loopback")]
    networks: Networks,
    #[serde(default)]
    hosts: Words,
    #[serde(default = "default_block_size")]
    block_size: u32,
    #[serde(default)]
    read_only: bool,
    dhchap_secret_file: Option<PathBuf>,
    dhchap_ctrl_secret_file: Option<PathBuf>,
}

/// The way in which a volume is served by NVMe/TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NvmeOptions {
    /// The number of the namespace in its subsystem.
    pub(crate) namespace: u32,
    /// The networks whose hosts may connect.
    pub(crate) networks: Networks,
    /// The names of hosts that may connect; none: all.
    pub(crate) hosts: Vec<String>,
    /// Bytes of a logical block: 512 or 4096.
    pub(crate) block_size: u32,
    /// Hosts may not write.
    pub(crate) read_only: bool,
    /// The file with the secrets of the hosts.
    pub(crate) secret_file: Option<PathBuf>,
    /// The file with the secret of the controller.
    pub(crate) controller_secret_file: Option<PathBuf>,
}

impl VolumeOptions for NvmeOptions {
    const PROTOCOL: Protocol = Protocol::Nvme;

    fn lun_options(&self) -> LunOptions {
        LunOptions { block_size: self.block_size, read_only: self.read_only }
    }
}

const fn default_namespace() -> u32 {
    1
}

const fn default_block_size() -> u32 {
    512
}

impl NvmeFields {
    /// Refuses values that no subsystem can have.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(name) = self.nqn.iter().chain(&self.hosts.0).find(|name| !is_nqn(name)) {
            return Err(format!(
                "\"{name}\" is not an NVMe qualified name, such as \"nqn.2026-11.lan.nas:disk\""
            ));
        }
        if !(1..=MAX_NAMESPACE).contains(&self.namespace) {
            return Err(format!(
                "namespace is {}, and must be 1 to {MAX_NAMESPACE}",
                self.namespace
            ));
        }
        if ![512, 4096].contains(&self.block_size) {
            return Err(format!("block_size is {}, and must be 512 or 4096", self.block_size));
        }
        if self.dhchap_ctrl_secret_file.is_some() && self.dhchap_secret_file.is_none() {
            return Err(
                "dhchap_ctrl_secret_file needs dhchap_secret_file: the host proves itself first"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The name of the subsystem and the options.
    pub(crate) fn resolve(self, dataset: &str) -> (String, NvmeOptions) {
        let options = NvmeOptions {
            namespace: self.namespace,
            networks: self.networks,
            hosts: self.hosts.0,
            block_size: self.block_size,
            read_only: self.read_only,
            secret_file: self.dhchap_secret_file,
            controller_secret_file: self.dhchap_ctrl_secret_file,
        };
        (self.nqn.unwrap_or_else(|| format!("{SUBSYSTEM_PREFIX}{dataset}")), options)
    }
}

fn is_nqn(name: &str) -> bool {
    name.starts_with("nqn.") && name.len() <= 223 && !name.contains(char::is_whitespace)
}
