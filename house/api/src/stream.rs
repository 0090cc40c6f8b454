//! Send streams: snapshots sent and received.
//!
//! The bytes of a stream do not pass through the call. The client offers a descriptor at a Unix socket and
//! names that socket; the daemon fetches the descriptor there. So only local clients can make these calls.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, pool_of};

/// Sends a snapshot to a descriptor that the client offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// The socket at which the client offers its descriptor.
    #[schema(value_type = String)]
    pub descriptor: PathBuf,
}

impl Call for SendStream {
    type Answer = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/streams/send";
    // the pool stays as it is, but a client must not repeat the call
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("send '{}'", self.snapshot)
    }
}

/// Receives a stream from a descriptor that the client offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceiveStream {
    /// `FS` or `FS@SNAPSHOT`.
    pub target: String,
    /// Changes to the target since its newest snapshot are discarded.
    #[serde(default)]
    pub force: bool,
    /// A new file system is not mounted.
    #[serde(default)]
    pub no_mount: bool,
    /// Only the stream's header is checked.
    #[serde(default)]
    pub dry_run: bool,
    /// The socket at which the client offers its descriptor.
    #[schema(value_type = String)]
    pub descriptor: PathBuf,
}

/// A stream that was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedStream {
    /// The snapshot.
    pub snapshot: String,
    /// Whether the target existed before.
    pub is_incremental: bool,
    /// Bytes of the stream.
    pub bytes: u64,
    /// A sentence for each file system that was received and could not be mounted.
    pub not_mounted: Vec<String>,
}

impl Call for ReceiveStream {
    type Answer = ReceivedStream;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/streams/receive";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("receive into '{}'", self.target)
    }

    fn changed_pools(&self, _answer: &ReceivedStream) -> Vec<String> {
        if self.dry_run { Vec::new() } else { vec![pool_of(&self.target).to_owned()] }
    }
}
