//! Sending the saved part of an interrupted receive (-S): a stream without END, which its receiver saves in turn.
//!
//! The dataset that was received into has a prefix of the stream: all objects and blocks up to the position in its resume
//! state. It is sent as the snapshot whose name and guid that state has. The receiver (-s) then has the same prefix, and goes
//! on with a stream that the first sender makes of its token.

use dsl::{Dataset, DatasetTree, ResumeToken};
use send::SendBase;

use super::send_plan::{SendPlan, SendStep, estimate, options};
use super::{Pool, SendRequest};
use crate::{Error, Result};

/// The interrupted receive whose saved part is sent.
pub(super) struct SavedReceive {
    /// The dataset that was received into.
    pub(super) dataset: String,
    pub(super) base: Option<SendBase>,
}

impl Pool {
    pub(super) fn plan_saved_send(
        &self,
        tree: &DatasetTree,
        request: &SendRequest,
    ) -> Result<SendPlan> {
        let target = &request.snapshot;
        let refused =
            |why: String| Error::Refused { what: format!("cannot send '{target}': {why}") };
        if target.contains(['@', '#']) {
            return Err(refused("-S needs a file system or volume".to_owned()));
        }
        self.find_dataset(target)?;
        let (partial, state) = self
            .find_saved(target)?
            .ok_or_else(|| refused("it has no saved part of an interrupted receive".to_owned()))?;
        let name = partial.name();
        let id = partial.id().ok_or_else(|| refused("it has no content".to_owned()))?;
        if self.0.dataset_holds.is_held(id) {
            return Err(refused("a stream is being received into it".to_owned()));
        }
        if state.redact_snaps.is_some() || state.base_redact_snaps.is_some() {
            return Err(refused("the saved part of a redacted stream cannot be sent".to_owned()));
        }
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        let base = match state.from_guid {
            0 => None,
            guid => {
                // copies of the base have its guid, and other txgs
                let own = partial.clone_origin().map_err(failed)?;
                let own = own.filter(|origin| origin.guid().get() == guid);
                Some(own.or_else(|| find_base(tree, guid)).ok_or_else(|| {
                    refused(format!("its incremental source {guid:#x} no longer exists"))
                })?)
            }
        };
        let send_base = base.as_ref().map(|base| SendBase {
            guid: state.from_guid,
            txg: base.phys().map_or(units::Txg::ZERO, |phys| phys.creation_txg),
            is_origin: is_clone(&partial, target, base),
        });
        let is_compressed = state.compressed || state.raw;
        let step = SendStep {
            snapshot: state.to_name.clone(),
            base: base.as_ref().map(Dataset::name),
            bytes: estimate(&partial, base.as_ref(), is_compressed).map_err(failed)?,
            guid: state.to_guid,
            is_from_origin: send_base.is_some_and(|base| base.is_origin),
        };
        let held = [Some(id), base.as_ref().and_then(Dataset::id)];
        let holds = held.into_iter().flatten().map(|id| self.0.dataset_holds.hold(id)).collect();
        Ok(SendPlan {
            steps: vec![step],
            package: None,
            options: options(&request.with_token(&state)),
            resume: None,
            redact: None,
            saved: Some(SavedReceive { dataset: name.clone(), base: send_base }),
            _holds: holds,
        })
    }

    /// The dataset with the first part of an interrupted stream into `target`.
    fn find_saved(&self, target: &str) -> Result<Option<(Dataset, ResumeToken)>> {
        for path in [format!("{target}/%recv"), target.to_owned()] {
            let Ok(found) = self.find_dataset(&path) else { continue };
            let state = found.resume_state();
            if let Some(state) = state.map_err(|error| Error::from_dsl_error(&path, &error))? {
                return Ok(Some((found, state)));
            }
        }
        Ok(None)
    }
}

fn find_base(tree: &DatasetTree, guid: u64) -> Option<Dataset> {
    let mut all = tree.datasets().filter_map(std::result::Result::ok);
    all.find(|it| it.is_snapshot() && it.guid().get() == guid)
}

/// Whether the stream is of a clone of the base, and not an increment of its file system.
fn is_clone(partial: &Dataset, target: &str, base: &Dataset) -> bool {
    partial.name() == target && base.dir().path() != target
}
