//! Requests to send and to receive streams.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A snapshot to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendStream {
    /// `FS@SNAPSHOT`.
    pub snapshot: String,
    /// The full name of the snapshot or bookmark that the receiver has; none: a full stream.
    #[serde(default)]
    pub base: Option<String>,
    /// Blocks above 128 KiB are sent whole.
    #[serde(default)]
    pub large_blocks: bool,
    /// Blocks that are stored in their pointers are sent as such.
    #[serde(default)]
    pub embedded: bool,
    /// Blocks are sent as they are compressed on disk.
    #[serde(default)]
    pub compressed: bool,
    /// The socket at which the client offers its descriptor ([`crate::OfferedDescriptor`]).
    pub descriptor: PathBuf,
}

/// A stream to be received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveStream {
    /// `FS` or `FS@SNAPSHOT`.
    pub target: String,
    /// Changes to the target since its newest snapshot are given up.
    #[serde(default)]
    pub force: bool,
    /// A new file system is not mounted.
    #[serde(default)]
    pub no_mount: bool,
    /// Only the stream's header is checked.
    #[serde(default)]
    pub dry_run: bool,
    /// The socket at which the client offers its descriptor ([`crate::OfferedDescriptor`]).
    pub descriptor: PathBuf,
}
