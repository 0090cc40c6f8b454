//! The plan of a stream of a file system or volume as it is now, without a snapshot.
//!
//! Its receiver gets a snapshot with the guid of the head. Nobody should change the head meanwhile: a block that was freed and
//! used again has another checksum, which ends the stream with an error.

use dsl::{Dataset, DatasetTree};

use super::send_plan::{SendPlan, SendStep, options};
use super::{Pool, SendRequest};
use crate::{Error, Result};

/// The end of the sent name, and so the name of the received snapshot.
const HEAD_SUFFIX: &str = "@--head--";

/// The name under which a file system, volume or snapshot is sent.
pub(super) fn sent_name(name: &str) -> String {
    if name.contains('@') { name.to_owned() } else { format!("{name}{HEAD_SUFFIX}") }
}

/// The file system or volume of which a stream without a snapshot is, by the name in the stream or its token.
pub fn sent_head(name: &str) -> Option<&str> {
    match name.strip_suffix(HEAD_SUFFIX) {
        Some(head) => Some(head),
        None => Some(name).filter(|name| !name.contains(['@', '#'])),
    }
}

impl Pool {
    pub(super) fn plan_head_send(
        &self,
        tree: &DatasetTree,
        request: &SendRequest,
    ) -> Result<SendPlan> {
        let name = &request.snapshot;
        let needs_snapshot = |what: &str| {
            let what = format!("cannot send '{name}': {what} needs a snapshot (FILESYSTEM@NAME)");
            Err(Error::Usage { what })
        };
        if name.contains('#') {
            return needs_snapshot("it is a bookmark, and a stream");
        }
        if request.replicate || request.intermediates || request.properties {
            return needs_snapshot("-R, -I, -p, -b or -h");
        }
        if request.redact.is_some() {
            return needs_snapshot("--redact");
        }
        let head = self.find_dataset(name)?;
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        if request.raw && head.key_object().map_err(failed)?.is_some() {
            return needs_snapshot("a raw stream of an encrypted file system or volume");
        }
        let is_compressed = request.compressed || request.raw;
        let step = self.plan_head_step(&head, request.base.as_deref(), is_compressed)?;
        let steps = vec![step];
        Ok(SendPlan {
            package: None,
            options: options(request),
            resume: None,
            redact: None,
            saved: None,
            _holds: self.hold_snapshots(tree, &steps),
            steps,
        })
    }

    /// The step of a head that nobody uses.
    pub(super) fn plan_head_step(
        &self,
        head: &Dataset,
        base: Option<&str>,
        is_compressed: bool,
    ) -> Result<SendStep> {
        let name = head.name();
        if head.id().is_some_and(|id| self.0.dataset_holds.is_held(id)) {
            return Err(busy_head_error(&name));
        }
        self.step(head, base, is_compressed)
    }
}

/// The refusal to send a head in use, in the words of zfs-send(8).
pub fn busy_head_error(name: &str) -> Error {
    let why = "target is busy; if a filesystem, it must not be mounted";
    Error::Refused { what: format!("cannot send '{name}': {why}") }
}
