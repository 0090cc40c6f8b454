//! Redaction bookmarks, and datasets that were received redacted.
//!
//! A redaction bookmark refers to a list in the MOS: the blocks of its snapshot that a redacted stream leaves out.
//! The header of the list is the bonus of its object, or its spill block where it has too many guids. The entries
//! are the object's data. A redacted dataset has the guids of the snapshots that it was redacted by.

use dmu::NewObject;
use ondisk::dsl::{Bookmark, Dataset as DatasetPhys, RedactedBlocks, RedactionList};
use ondisk::feature::Feature;
use units::{Guid, ObjectId, ObjsetId};

use super::bookmark::{bookmark_from_snapshot, insert_new, split_bookmark_name};
use super::context::{BPOBJ_BLOCK_SIZE, SyncTaskContext, U64_METADATA};
use super::features::{self, guid};
use super::{create, names};
use crate::{Error, Result};

/// Bytes of the largest bonus of a dnode of one slot.
const MAX_BONUS: usize = 320;
/// Bytes of the largest spill block.
const MAX_SPILL: usize = 128 << 10;
/// Spill blocks are whole sectors.
const SECTOR: usize = 512;

/// Creates the redaction bookmark `path#name` of a snapshot. `snaps` are the guids of the redaction snapshots, `blocks`
/// the blocks that all of them changed.
///
/// # Errors
///
/// The name is taken, a feature is not enabled, or there are too many snapshots.
pub fn create_redaction_bookmark(
    change: &SyncTaskContext<'_>,
    name: &str,
    snapshot: &str,
    (snaps, blocks): (&[Guid], &[RedactedBlocks]),
) -> Result<()> {
    let (path, part) = split_bookmark_name(name)?;
    names::check_snapshot_name(path, part)?;
    let head = change.find_head(path)?;
    let (_, snapshot) = change.find_snapshot(snapshot)?;
    let record = change.dataset_phys(snapshot)?;
    if record.dir != head.dir {
        return Err(Error::WrongDataset { name: name.to_owned() });
    }
    let mut mark = bookmark_from_snapshot(change, snapshot, &record)?;
    mark.redaction = create_list(change, snaps, blocks)?;
    insert_new(change, head.dataset, (name, part), mark)
}

/// Gives the bookmark of a redacted snapshot a list of the same redaction snapshots.
pub(super) fn add_list_of_redacted(
    change: &SyncTaskContext<'_>,
    snapshot: ObjectId,
    mark: Bookmark,
) -> Result<Bookmark> {
    let Some(value) = change.zap_field(snapshot, DatasetPhys::REDACTED_SNAPS)? else {
        return Ok(mark);
    };
    let snaps: Vec<Guid> = value.u64s().into_iter().map(Guid::new).collect();
    Ok(Bookmark { redaction: create_list(change, &snaps, &[])?, ..mark })
}

/// Creates a complete redaction list. Returns its object.
fn create_list(
    change: &SyncTaskContext<'_>,
    snaps: &[Guid],
    blocks: &[RedactedBlocks],
) -> Result<ObjectId> {
    if !features::is_enabled(change, guid::REDACTION_BOOKMARKS)? {
        return Err(Error::FeatureDisabled { guid: guid::REDACTION_BOOKMARKS });
    }
    let mut header = RedactionList::complete(units::to_u64(blocks.len()), snaps.to_vec()).encode();
    let has_spill = header.len() > MAX_BONUS;
    let can_spill = features::is_enabled(change, guid::REDACTION_SPILL)?;
    let limit = if can_spill { MAX_SPILL } else { MAX_BONUS };
    if header.len() > limit {
        let most = (limit - RedactionList::SIZE) / size_of::<u64>();
        return Err(Error::TooManyRedactionSnapshots { count: snaps.len(), most });
    }
    let bonus = if has_spill { Vec::new() } else { header.clone() };
    let new = NewObject::new(U64_METADATA, BPOBJ_BLOCK_SIZE).with_bonus(U64_METADATA, bonus);
    let object = change.mos.create(change.tx, &new)?;
    features::increment(change, guid::REDACTION_BOOKMARKS)?;
    if has_spill {
        header.resize(header.len().next_multiple_of(SECTOR), 0);
        object.set_spill(change.tx, Some(&header))?;
        features::increment(change, guid::REDACTION_SPILL)?;
    }
    let per_block = units::to_usize(BPOBJ_BLOCK_SIZE) / RedactedBlocks::SIZE;
    let mut offset = 0;
    for some in blocks.chunks(per_block) {
        let bytes: Vec<u8> = some.iter().flat_map(RedactedBlocks::encode).collect();
        object.write(change.tx, offset, &bytes)?;
        offset += units::to_u64(bytes.len());
    }
    Ok(object.id())
}

/// Sets the redaction snapshots of a dataset that is received into. None: the stream is not redacted; what a clone has
/// from its origin no longer holds.
///
/// # Errors
///
/// The dataset cannot be read.
pub fn set_redaction(
    change: &SyncTaskContext<'_>,
    id: ObjsetId,
    snaps: Option<&[u64]>,
) -> Result<()> {
    let unknown = Error::FeatureDisabled { guid: DatasetPhys::REDACTED_SNAPS };
    let feature = Feature::by_guid(DatasetPhys::REDACTED_SNAPS).ok_or(unknown)?;
    let dataset = ObjectId::new(id.get());
    if change.zap_field(dataset, feature.guid)?.is_some() {
        create::deactivate_feature(change, dataset, feature)?;
    }
    match snaps {
        None => Ok(()),
        // a ZAP entry has at least one number
        Some([]) => create::activate_feature(change, dataset, feature, &[0]),
        Some(snaps) => create::activate_feature(change, dataset, feature, snaps),
    }
}
