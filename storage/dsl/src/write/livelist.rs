//! Changes livelists: the allocations and frees of a clone since its creation.
//!
//! A clone that still shares most of its blocks is destroyed by its livelist, without reading its
//! whole tree. Where it shares less than a quarter it has none any more.

use ondisk::dsl::Dir as DirPhys;
use units::{MinusOrZero, ObjectId, Txg};

use super::bpobj::BpobjItem;
use super::context::{POOL_DIRECTORY, SyncTaskContext, ZAP_METADATA};
use super::deadlist;
use super::features::{self, guid};
use crate::Result;
use crate::block_lists::bpobj_header;

/// The name of the set of the livelists of destroyed clones.
pub(crate) const DELETED_CLONES: &str = "com.delphix:deleted_clones";
/// Births in a stretch after which the next txg begins a new one.
const MAX_ENTRY_BLOCKS: u64 = 500_000;
/// A clone that shares fewer percent of its blocks with its origin has no livelist.
const MIN_PERCENT_SHARED: u128 = 75;

/// A directory's livelist.
pub(crate) fn find(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<Option<ObjectId>> {
    change.zap_field_object(dir, DirPhys::LIVELIST)
}

/// Adds the allocations and frees of this txg.
pub(crate) fn insert(
    change: &SyncTaskContext<'_>,
    livelist: ObjectId,
    items: Vec<BpobjItem>,
) -> Result<()> {
    let full = match deadlist::entries(change, livelist)?.last() {
        Some((start, list)) => {
            let header = bpobj_header(change.mos, *list)?;
            header.count.minus_or_zero(header.freed) > MAX_ENTRY_BLOCKS
                && *start < previous_txg(change)
        }
        None => true,
    };
    if full {
        deadlist::add_entries(change, livelist, &[previous_txg(change)])?;
    }
    deadlist::insert(change, livelist, items)
}

fn previous_txg(change: &SyncTaskContext<'_>) -> Txg {
    Txg::new(change.txg().get() - 1)
}

/// Removes the livelist of a clone that shares too little for one to be of use.
pub(crate) fn remove_if_unshared(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<()> {
    let record = change.dir_phys(dir)?;
    let referenced = change.dataset_phys(record.head)?.referenced;
    let shared = u128::from(referenced.minus_or_zero(record.breakdown.head)) * 100;
    if shared.checked_div(referenced.into()).is_some_and(|percent| percent <= MIN_PERCENT_SHARED) {
        remove(change, dir)?;
    }
    Ok(())
}

/// Removes a directory's livelist, if it has one. The blocks in it are not touched.
pub(crate) fn remove(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<()> {
    let Some(livelist) = find(change, dir)? else { return Ok(()) };
    change.remove_zap_field(dir, DirPhys::LIVELIST)?;
    deadlist::free(change, livelist)?;
    features::decrement(change, guid::LIVELIST)
}

/// Hands a destroyed clone's livelist to the pool, which frees its blocks.
pub(crate) fn queue_for_delete(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    livelist: ObjectId,
) -> Result<()> {
    let set = match change.lookup_u64(POOL_DIRECTORY, DELETED_CLONES)? {
        Some(set) => ObjectId::new(set),
        None => change.create_named_zap(ZAP_METADATA, POOL_DIRECTORY, DELETED_CLONES)?,
    };
    change.insert_member(set, livelist.get())?;
    change.remove_zap_field(dir, DirPhys::LIVELIST).map(drop)
}
