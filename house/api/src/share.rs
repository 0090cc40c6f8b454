//! Shares: datasets that clients reach over the network, and the clients.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// A protocol by which datasets are shared.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// File systems for Unix clients.
    Nfs,
    /// File systems for Windows, macOS and Linux clients.
    Smb,
    /// Volumes as SCSI disks.
    Iscsi,
    /// Volumes as network block devices.
    Nbd,
    /// Volumes as NVMe namespaces over TCP.
    Nvme,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 5] = [Self::Nfs, Self::Smb, Self::Iscsi, Self::Nbd, Self::Nvme];

    /// The word in commands, in the API and in the configuration file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nfs => "nfs",
            Self::Smb => "smb",
            Self::Iscsi => "iscsi",
            Self::Nbd => "nbd",
            Self::Nvme => "nvme",
        }
    }

    /// The protocol of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str() == word)
    }

    /// The TCP port on which clients expect it.
    pub const fn usual_port(self) -> u16 {
        match self {
            Self::Nfs => 2049,
            Self::Smb => 445,
            Self::Iscsi => 3260,
            Self::Nbd => 10809,
            Self::Nvme => 4420,
        }
    }

    /// Whether it shares volumes; the others share file systems.
    pub const fn shares_volumes(self) -> bool {
        matches!(self, Self::Iscsi | Self::Nbd | Self::Nvme)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nfs => "NFS",
            Self::Smb => "SMB",
            Self::Iscsi => "iSCSI",
            Self::Nbd => "NBD",
            Self::Nvme => "NVMe/TCP",
        })
    }
}

/// Lists all shares: those of the configuration file and those of the properties sharenfs and
/// sharesmb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetShares {}

impl Call for GetShares {
    type Response = ShareStatus;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/shares";
    const CHANGES: bool = false;
}

/// The shares of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareStatus {
    /// The shares by protocol, then by dataset.
    pub shares: Vec<ShareState>,
    /// Sentences on what slows clients down, and what would help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareState {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its file system, volume or snapshot of a volume.
    pub dataset: String,
    /// The name of a volume for clients: an iSCSI target, an NBD export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The name of a file system for clients: an NFS path, the name of an SMB share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The first address on which it is served; none: it is not served.
    pub address: Option<String>,
    /// The port of that address.
    pub port: Option<u16>,
    /// Whether clients may not write.
    pub read_only: bool,
    /// Its origin: a line of the configuration file, or a property.
    pub source: String,
    /// A sentence: why it is not served.
    pub problem: Option<String>,
    /// The connected clients.
    pub clients: Vec<ShareClient>,
    /// Requests to the volume that wait for the intent log: flushes, and writes that have to be durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_waits: Option<u64>,
}

/// A client of a share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareClient {
    /// Its address, with the port if the protocol has one.
    pub address: String,
    /// The user, the initiator, or the name that it gives itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Seconds since it connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<u64>,
    /// Open files, or requests that are being carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<u64>,
    /// Bytes that it read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// Bytes that it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// Bytes a second that it reads: since an earlier call, a second ago at least, or since it connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_rate: Option<u64>,
    /// Bytes a second that it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_rate: Option<u64>,
}

/// Adds a share to the configuration file. Comments stay, and the share is served at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddShare {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its file system or volume.
    pub dataset: String,
    /// Fields of `[[share]]` and their values in TOML, or plain text.
    #[serde(default)]
    pub options: Vec<(String, String)>,
}

impl Call for AddShare {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/shares";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("share '{}'", self.dataset)
    }
}

/// The format of a file with the shares of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShareFileFormat {
    /// `/etc/exports` of the kernel's NFS server.
    Exports,
    /// `smb.conf` of Samba.
    SmbConf,
    /// `targets.conf` of tgt.
    TargetsConf,
    /// `scst.conf` of SCST.
    Scst,
    /// `saveconfig.json` of LIO.
    Lio,
    /// `config.json` of nvmetcli, which configures the kernel's NVMe target.
    Nvmet,
}

/// Imports the shares of another server from its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportShares {
    /// The format of its file.
    pub format: ShareFileFormat,
    /// The content of the file.
    pub text: String,
    /// Only list the additions (dry run).
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for ImportShares {
    type Response = ImportedShares;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/shares/import";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "import shares".to_owned()
    }
}

/// The shares of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedShares {
    /// The shares that were added to the configuration file.
    pub added: Vec<ImportedShare>,
    /// The others.
    pub skipped: Vec<SkippedShare>,
}

/// An imported share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedShare {
    /// Its place in the file.
    pub origin: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its file system or volume.
    pub dataset: String,
    /// Fields of `[[share]]` and their values in TOML.
    pub options: Vec<(String, String)>,
    /// Options in the file that have no meaning here.
    pub ignored: Vec<String>,
}

/// A share that was not imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedShare {
    /// Its place in the file.
    pub origin: String,
    /// A sentence: the reason, and what to do.
    pub reason: String,
}

/// Removes a share from the configuration file. Its clients are disconnected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoveShare {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its dataset, or its name for clients.
    pub name: String,
}

impl Call for RemoveShare {
    type Response = ();
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/shares";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("remove the {} share '{}'", self.protocol, self.name)
    }
}

/// Shares unshared file systems again, according to their properties sharenfs and sharesmb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareFilesystems {
    /// Their names; none: all.
    #[serde(default)]
    pub names: Vec<String>,
}

impl Call for ShareFilesystems {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/shares/share";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        share_action("share", &self.names)
    }
}

/// Ends the shares of the properties sharenfs and sharesmb, until they are shared again or the daemon starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnshareFilesystems {
    /// Their names or mountpoints; none: all.
    #[serde(default)]
    pub names: Vec<String>,
}

impl Call for UnshareFilesystems {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/shares/unshare";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        share_action("unshare", &self.names)
    }
}

fn share_action(verb: &str, names: &[String]) -> String {
    match names {
        [] => format!("{verb} filesystems"),
        names => format!("{verb} '{}'", names.join("', '")),
    }
}
