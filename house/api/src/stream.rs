//! Send streams: snapshots sent and received.
//!
//! The bytes of a stream do not pass through the call. The client offers a descriptor at a Unix socket and
//! names that socket; the daemon fetches the descriptor there. So only local clients can make these calls.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, NeededPermission, Secret, pool_of};

/// Sends a snapshot to a descriptor that the client offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "options of a stream, each on its own")]
pub struct SendStream {
    /// `FS@SNAPSHOT`, or a file system or volume as it is now, which must not be mounted.
    pub snapshot: String,
    /// The full name of the snapshot or bookmark that the receiver has; none: a full stream.
    #[serde(default)]
    pub base: Option<String>,
    /// The snapshots between the base and the last one, too.
    #[serde(default)]
    pub intermediates: bool,
    /// The file systems and volumes below, too, with their properties.
    #[serde(default)]
    pub replicate: bool,
    /// The properties, too.
    #[serde(default)]
    pub properties: bool,
    /// With `replicate`, file systems without the snapshot are left out.
    #[serde(default)]
    pub skip_missing: bool,
    /// The receive_resume_token of a stream that was cut.
    #[serde(default)]
    pub resume_token: Option<String>,
    /// Blocks above 128 KiB are sent whole.
    #[serde(default)]
    pub large_blocks: bool,
    /// Blocks that are stored in their pointers are sent as such.
    #[serde(default)]
    pub embedded: bool,
    /// Blocks are sent as they are compressed on disk.
    #[serde(default)]
    pub compressed: bool,
    /// Blocks of encrypted datasets are sent encrypted, as they are on disk. The keys are not needed.
    #[serde(default)]
    pub raw: bool,
    /// With `replicate`, file systems and volumes that are left out, with all below them.
    #[serde(default)]
    pub excluded: Vec<String>,
    /// Properties are sent as they were received, where they were.
    #[serde(default)]
    pub backup: bool,
    /// The holds of the snapshots, too.
    #[serde(default)]
    pub holds: bool,
    /// `snapshot` is a file system or volume with the saved part of an interrupted receive, and that is sent.
    #[serde(default)]
    pub saved: bool,
    /// The redaction bookmark whose blocks are left out, by its name behind the `#`.
    #[serde(default)]
    pub redact: Option<String>,
    /// The socket at which the client offers its descriptor.
    #[schema(value_type = String)]
    pub descriptor: PathBuf,
}

impl Call for SendStream {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/streams/send";
    // the pool stays as it is, but a client must not repeat the call
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("send '{}'", self.snapshot)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        if self.resume_token.is_some() {
            return None;
        }
        Some(vec![NeededPermission::on_head(&self.snapshot, "send", self.replicate)])
    }
}

/// Lists the snapshots of a stream, and estimates its size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanSend {
    /// The stream; its descriptor does not count.
    pub send: SendStream,
}

impl Call for PlanSend {
    type Response = Vec<PlannedSend>;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/streams/plan";
    const CHANGES: bool = false;

    fn action(&self) -> String {
        self.send.action()
    }
}

/// A snapshot that a stream will have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedSend {
    /// The snapshot.
    pub snapshot: String,
    /// The snapshot or bookmark on which it is based; none: it is sent in full.
    pub base: Option<String>,
    /// Estimated bytes.
    pub bytes: u64,
}

/// Receives a stream from a descriptor that the client offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "options of a receive, each on its own")]
pub struct ReceiveStream {
    /// `FS` or `FS@SNAPSHOT`.
    pub target: String,
    /// How the names of the sender become names below the target.
    #[serde(default)]
    pub naming: ReceiveNaming,
    /// Changes to the target since its newest snapshot are discarded.
    #[serde(default)]
    pub force: bool,
    /// A new file system is not mounted.
    #[serde(default)]
    pub no_mount: bool,
    /// Only the stream's header is checked.
    #[serde(default)]
    pub dry_run: bool,
    /// Keep the records of an interrupted stream, so that the receive can be resumed.
    #[serde(default)]
    pub resumable: bool,
    /// Nothing is received: damaged blocks of a snapshot that exists are healed from its stream.
    #[serde(default)]
    pub corrective: bool,
    /// The holds of the stream are left out.
    #[serde(default)]
    pub skip_holds: bool,
    /// Properties to set.
    #[serde(default)]
    pub set_properties: Vec<(String, String)>,
    /// Properties of the stream that do not count.
    #[serde(default)]
    pub excluded_properties: Vec<String>,
    /// The user's key, if the properties to set make the target an encryption root.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// The socket at which the client offers its descriptor.
    #[schema(value_type = String)]
    pub descriptor: PathBuf,
}

/// How the names of the sender become names of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveNaming {
    /// The target takes the place of the sent file system.
    #[default]
    Exact,
    /// All of the sent name but its pool goes below the target.
    DropPool,
    /// The last element of the sent name goes below the target.
    LastElement,
}

/// A stream that was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedStream {
    /// The snapshots, in their order.
    pub snapshots: Vec<ReceivedSnapshot>,
    /// A sentence for each file system that was received and could not be mounted.
    pub not_mounted: Vec<String>,
    /// A sentence for each property of the stream that the pool cannot have.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The result of a corrective receive.
    #[serde(default)]
    pub healed: Option<HealedSnapshot>,
}

/// A snapshot whose damaged blocks were healed from its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealedSnapshot {
    /// The snapshot.
    pub snapshot: String,
    /// Blocks of the stream that were looked up.
    pub examined: u64,
    /// Damaged blocks that were found.
    pub damaged: u64,
    /// Damaged blocks that can be read again.
    pub healed: u64,
}

/// A snapshot that was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedSnapshot {
    /// Its name on the sender.
    pub sent: String,
    /// Its name here.
    pub snapshot: String,
    /// Whether the stream was incremental.
    pub is_incremental: bool,
    /// Whether it was here already.
    pub existed: bool,
    /// Bytes of its stream.
    pub bytes: u64,
    /// How long it took, in milliseconds.
    pub milliseconds: u64,
}

impl Call for ReceiveStream {
    type Response = ReceivedStream;
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

/// Destroys the partial state of a resumable receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AbortReceive {
    /// The file system or volume.
    pub target: String,
}

impl Call for AbortReceive {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/streams/abort";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("abort the receive into '{}'", self.target)
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.target).to_owned()]
    }
}
