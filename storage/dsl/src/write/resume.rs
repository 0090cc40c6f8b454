//! The state of a receive that can be resumed: fields of the dataset that is received into.
//!
//! The fields name the stream, and the record that was applied last. Each txg that writes the dataset writes
//! the position too, so that after a power cut both agree.

use ondisk::dsl::Dataset as DatasetPhys;
use units::{ObjectId, ObjsetId};
use zap::ZapValue;

use super::context::{SyncTaskContext, free_log};
use super::destroy::destroy_head;
use super::interrupted::RECV_CLONE;
use crate::{Error, Result, ResumeToken};

const FIELDS: [&str; 11] = [
    DatasetPhys::RESUME_FROM_GUID,
    DatasetPhys::RESUME_TO_NAME,
    DatasetPhys::RESUME_TO_GUID,
    DatasetPhys::RESUME_OBJECT,
    DatasetPhys::RESUME_OFFSET,
    DatasetPhys::RESUME_BYTES,
    DatasetPhys::RESUME_LARGE_BLOCKS,
    DatasetPhys::RESUME_EMBEDDED,
    DatasetPhys::RESUME_COMPRESSED,
    DatasetPhys::RESUME_RAW,
    DatasetPhys::RESUME_REDACT_SNAPS,
];

/// Makes the receive into a dataset resumable.
pub fn set_resume_state(
    change: &SyncTaskContext<'_>,
    id: ObjsetId,
    state: &ResumeToken,
) -> Result<()> {
    let dataset = ObjectId::new(id.get());
    if state.from_guid != 0 {
        change.set_zap_field(dataset, DatasetPhys::RESUME_FROM_GUID, &[state.from_guid])?;
    }
    change.set_zap_field(dataset, DatasetPhys::RESUME_TO_GUID, &[state.to_guid])?;
    let name = ZapValue::new(1, [state.to_name.as_bytes(), &[0]].concat());
    change.update(dataset, DatasetPhys::RESUME_TO_NAME, &name)?;
    for (field, is_set) in [
        (DatasetPhys::RESUME_LARGE_BLOCKS, state.large_blocks),
        (DatasetPhys::RESUME_EMBEDDED, state.embedded),
        (DatasetPhys::RESUME_COMPRESSED, state.compressed),
        (DatasetPhys::RESUME_RAW, state.raw),
    ] {
        if is_set {
            change.set_zap_field(dataset, field, &[1])?;
        }
    }
    if let Some(snaps) = &state.base_redact_snaps {
        change.set_zap_field(dataset, DatasetPhys::RESUME_REDACT_SNAPS, snaps)?;
    }
    set_resume_position(change, id, state)
}

/// Sets the record at which the receive resumes.
pub fn set_resume_position(
    change: &SyncTaskContext<'_>,
    id: ObjsetId,
    state: &ResumeToken,
) -> Result<()> {
    let dataset = ObjectId::new(id.get());
    change.set_zap_field(dataset, DatasetPhys::RESUME_OBJECT, &[state.object])?;
    change.set_zap_field(dataset, DatasetPhys::RESUME_OFFSET, &[state.offset])?;
    change.set_zap_field(dataset, DatasetPhys::RESUME_BYTES, &[state.bytes])
}

/// Removes the state: the receive ended.
pub(super) fn clear_resume_state(change: &SyncTaskContext<'_>, dataset: ObjectId) -> Result<()> {
    for field in FIELDS {
        change.remove_zap_field(dataset, field)?;
    }
    Ok(())
}

/// Destroys the partial state of a resumable receive into `target`.
pub fn abort_receive(change: &SyncTaskContext<'_>, target: &str) -> Result<()> {
    let head = change.find_head(target)?;
    let clone = change.find_head(&format!("{target}/{RECV_CLONE}")).ok();
    let is_partial = |dataset: ObjectId| {
        change.zap_field(dataset, DatasetPhys::RESUME_TO_GUID).map(|field| field.is_some())
    };
    let partial = match clone {
        Some(clone) if is_partial(clone.dataset)? => clone,
        _ if change.dataset_phys(head.dataset)?.is_inconsistent() && is_partial(head.dataset)? => {
            head
        }
        _ => {
            return Err(Error::NoResumableState { name: target.to_owned() });
        }
    };
    free_log(change, partial.dataset)?;
    destroy_head(change, partial)
}
