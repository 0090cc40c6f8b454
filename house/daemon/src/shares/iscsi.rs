//! iSCSI shares: volumes as SCSI disks.
//!
//! ```toml
//! [[share]]
//! protocol = "iscsi"
//! dataset = "tank/disk"            # a volume, or a snapshot of one, which is read-only
//! target = "iqn.2026-11.lan.nas:disk"   # without it a name made from the dataset
//! lun = 0                          # several volumes may be logical units of one target
//! networks = "10.0.0.0/24"         # without it this machine alone
//! initiators = ["iqn.1993-08.org.debian:01:abc"]   # without it every initiator
//! block_size = 4096                # 512 without it
//! read_only = true
//! chap_user = "anna"
//! chap_secret_file = "/etc/poolhouse/chap"         # mode 0600; 12 to 16 characters
//! mutual_user = "nas"              # the target proves itself to the initiator, too
//! mutual_secret_file = "/etc/poolhouse/chap-mutual"
//! ```

use std::path::PathBuf;

use api::Protocol;
use lun::LunOptions;
use serde::Deserialize;

use super::networks::{Networks, Words};
use super::volumes::VolumeOptions;

/// The start of the names of targets that have none in the configuration.
const TARGET_PREFIX: &str = "iqn.2026-11.poolhouse:";

/// The fields of `[[share]]` for iSCSI.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IscsiFields {
    /// The name of the target; without it a name made from the dataset.
    pub(crate) target: Option<String>,
    #[serde(default)]
    lun: u16,
    #[serde(default = "Networks::loopback")]
    networks: Networks,
    #[serde(default)]
    initiators: Words,
    #[serde(default = "default_block_size")]
    block_size: u32,
    #[serde(default)]
    read_only: bool,
    chap_user: Option<String>,
    chap_secret_file: Option<PathBuf>,
    mutual_user: Option<String>,
    mutual_secret_file: Option<PathBuf>,
}

/// The way in which a volume is served by iSCSI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IscsiOptions {
    /// The number of the logical unit in its target.
    pub(crate) lun: u16,
    /// The networks whose initiators may log in.
    pub(crate) networks: Networks,
    /// The names of initiators that may log in; none: all.
    pub(crate) initiators: Vec<String>,
    /// Bytes of a logical block: 512 or 4096.
    pub(crate) block_size: u32,
    /// Initiators may not write.
    pub(crate) read_only: bool,
    /// The user that initiators must prove to be.
    pub(crate) chap: Option<ChapUser>,
    /// The user as which the target proves itself.
    pub(crate) mutual: Option<ChapUser>,
}

impl VolumeOptions for IscsiOptions {
    const PROTOCOL: Protocol = Protocol::Iscsi;

    fn lun_options(&self) -> LunOptions {
        LunOptions { block_size: self.block_size, read_only: self.read_only }
    }
}

/// A user of CHAP, with the file of its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChapUser {
    /// Its name.
    pub(crate) name: String,
    /// The file, which only the daemon's user may read.
    pub(crate) secret_file: PathBuf,
}

const fn default_block_size() -> u32 {
    512
}

impl IscsiFields {
    /// Refuses values that no target can have.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(target) = &self.target
            && !["iqn.", "eui.", "naa."].iter().any(|start| target.starts_with(start))
        {
            return Err(format!(
                "\"{target}\" is not the name of an iSCSI target, such as \
                 \"iqn.2026-11.lan.nas:disk\""
            ));
        }
        if ![512, 4096].contains(&self.block_size) {
            return Err(format!("block_size is {}, and must be 512 or 4096", self.block_size));
        }
        chap_user("chap", self.chap_user.as_deref(), self.chap_secret_file.clone())?;
        let mutual =
            chap_user("mutual", self.mutual_user.as_deref(), self.mutual_secret_file.clone())?;
        if mutual.is_some() && self.chap_user.is_none() {
            return Err("mutual_user needs chap_user: the initiator proves itself first".to_owned());
        }
        Ok(())
    }

    /// The name of the target and the options.
    pub(crate) fn resolve(self, dataset: &str) -> (String, IscsiOptions) {
        // `check` refused half of a pair
        let chap = chap_user("chap", self.chap_user.as_deref(), self.chap_secret_file);
        let mutual = chap_user("mutual", self.mutual_user.as_deref(), self.mutual_secret_file);
        let options = IscsiOptions {
            lun: self.lun,
            networks: self.networks,
            initiators: self.initiators.0,
            block_size: self.block_size,
            read_only: self.read_only,
            chap: chap.unwrap_or_default(),
            mutual: mutual.unwrap_or_default(),
        };
        (self.target.unwrap_or_else(|| target_name(dataset)), options)
    }
}

fn chap_user(
    kind: &str,
    name: Option<&str>,
    secret_file: Option<PathBuf>,
) -> Result<Option<ChapUser>, String> {
    match (name, secret_file) {
        (Some(name), Some(secret_file)) => {
            Ok(Some(ChapUser { name: name.to_owned(), secret_file }))
        }
        (None, None) => Ok(None),
        _ => Err(format!("{kind}_user and {kind}_secret_file belong together")),
    }
}

/// The name of a target for a dataset. Names of targets have lower-case letters, digits, `.`, `-` and `:`.
fn target_name(dataset: &str) -> String {
    let plain = |c: char| match c {
        '/' => '.',
        '@' => ':',
        c if c.is_ascii_alphanumeric() || c == '-' || c == '.' => c.to_ascii_lowercase(),
        _ => '-',
    };
    TARGET_PREFIX.chars().chain(dataset.chars().map(plain)).collect()
}
