//! Shares: which datasets clients reach over the network, by which protocol, and with which options.
//!
//! ```text
//! config.toml [[share]]            entry ─┐
//! sharenfs, sharesmb of datasets   nfs, smb ─┴ resolve ── ShareSet ── services with a ShareServer
//! ```
//!
//! The share service (`services::shares`) makes a [`ShareSet`] from the configuration, the properties and the mounts
//! whenever one of them changes, and gives it to each service that has a [`ShareServer`]. A protocol is a file with
//! its options here, a file with its service in `services`, and a line in its `SERVICES`.

pub(crate) mod client_rates;
pub(crate) mod clients;
mod edit;
pub(crate) mod entry;
mod import;
pub(crate) mod iscsi;
pub(crate) mod listener;
pub(crate) mod nbd;
pub(crate) mod networks;
pub(crate) mod nfs;
pub(crate) mod nvme;
mod resolve;
pub(crate) mod smb;
pub(crate) mod volumes;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use announce::MdnsService;
use api::{Protocol, ShareClient};

pub(crate) use edit::{add_entry, remove_entries, rename_datasets};
pub(crate) use import::{ImportPlan, SecretFile, plan_import};
pub(crate) use resolve::{DatasetFacts, Resolved, resolve};

use crate::{Error, Result};
use iscsi::IscsiOptions;
use nbd::NbdOptions;
use nfs::NfsOptions;
use nvme::NvmeOptions;
use smb::SmbOptions;

/// The properties that share a file system.
pub(crate) const SHARE_PROPERTIES: [&str; 2] = ["sharenfs", "sharesmb"];

/// A share, with the options of its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share<O> {
    /// Its file system, volume, or snapshot of a volume.
    pub(crate) dataset: String,
    /// The name that clients ask for: an NFS path, the name of an SMB share, an iSCSI target, an NBD
    /// export, an NVMe subsystem.
    pub(crate) name: String,
    /// The directory on which a file system is mounted.
    pub(crate) directory: Option<PathBuf>,
    /// The options.
    pub(crate) options: O,
    /// Its origin.
    pub(crate) source: ShareSource,
}

/// The origin of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShareSource {
    /// An entry of the configuration.
    Config {
        /// Its line, counted from 1.
        line: Option<usize>,
    },
    /// A property of its dataset.
    Property {
        /// The property.
        name: &'static str,
        /// Where it is set, as `zfs get` shows it: "local", "inherited from NAME".
        set: String,
    },
}

impl fmt::Display for ShareSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { line: Some(line) } => write!(f, "config.toml line {line}"),
            Self::Config { line: None } => f.write_str("config.toml"),
            Self::Property { name, set } => write!(f, "{name} {set}"),
        }
    }
}

/// The shares of all protocols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareSet {
    /// File systems served by NFS.
    pub(crate) nfs: Vec<Share<NfsOptions>>,
    /// File systems served by SMB.
    pub(crate) smb: Vec<Share<SmbOptions>>,
    /// Volumes served by iSCSI.
    pub(crate) iscsi: Vec<Share<IscsiOptions>>,
    /// Volumes served by NBD.
    pub(crate) nbd: Vec<Share<NbdOptions>>,
    /// Volumes served by NVMe/TCP.
    pub(crate) nvme: Vec<Share<NvmeOptions>>,
}

/// A share that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShareProblem {
    /// Its protocol.
    pub(crate) protocol: Protocol,
    /// Its dataset.
    pub(crate) dataset: String,
    /// The name for clients, if it is known.
    pub(crate) name: Option<String>,
    /// Its origin.
    pub(crate) source: ShareSource,
    /// A sentence: the reason, and what to do.
    pub(crate) sentence: String,
}

impl<O> Share<O> {
    /// The problem that keeps this share from being served.
    pub(crate) fn problem(&self, protocol: Protocol, sentence: impl fmt::Display) -> ShareProblem {
        ShareProblem {
            protocol,
            dataset: self.dataset.clone(),
            name: Some(self.name.clone()),
            source: self.source.clone(),
            sentence: sentence.to_string(),
        }
    }
}

/// The reason for which a server closes datasets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseReason {
    /// File systems are unmounted. They may be mounted again, under other names or elsewhere.
    Unmount,
    /// The datasets are destroyed, or their pool is exported.
    Close,
}

/// The server of a protocol, as the share service sees it.
pub(crate) trait ShareServer: Send + Sync {
    /// The protocol.
    fn protocol(&self) -> Protocol;

    /// Serves exactly these shares from now on. Unchanged shares and their clients are not
    /// disturbed. Returns the shares that cannot be served. It is called again at every change, and
    /// must be cheap without one.
    fn set_shares(&self, shares: &ShareSet) -> Vec<ShareProblem>;

    /// Closes datasets before a change; the next [`Self::set_shares`] does not have them. Refuses
    /// while clients use them, unless `force`.
    fn release(
        &self,
        datasets: &dyn Fn(&str) -> bool,
        reason: ReleaseReason,
        force: bool,
    ) -> Result<()>;

    /// The state now. It must not wait for a pool or a client.
    fn report(&self) -> ServerReport;

    /// The services that clients find by themselves. `host`: the name of this computer.
    fn announced(&self, _host: &str) -> Vec<MdnsService> {
        Vec::new()
    }
}

/// The state of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerReport {
    /// The addresses on which it listens; none: it is closed.
    pub(crate) listening: Vec<SocketAddr>,
    /// A sentence: why it does not run, though it is configured.
    pub(crate) problem: Option<String>,
    /// The clients, each with the name of its share.
    pub(crate) clients: Vec<(String, ShareClient)>,
    /// The requests to volumes that wait for the intent log, by the dataset.
    pub(crate) log_waits: Vec<(String, u64)>,
    /// A sentence: what slows clients down, and what would help.
    pub(crate) note: Option<String>,
}

/// Refuses values of the properties sharenfs and sharesmb with options that are not known.
pub(crate) fn check_properties(dataset: &str, properties: &[(String, String)]) -> Result<()> {
    for (property, value) in properties {
        let checked = match property.as_str() {
            "sharenfs" => nfs::parse_sharenfs(value).map(drop),
            "sharesmb" => smb::parse_sharesmb(&DatasetFacts::default(), value).map(drop),
            _ => Ok(()),
        };
        checked.map_err(|why| {
            Error::refused_error(format!(
                "cannot set property for '{dataset}': '{property}' cannot be set to invalid options: {why}"
            ))
        })?;
    }
    Ok(())
}
