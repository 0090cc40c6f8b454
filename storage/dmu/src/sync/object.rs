//! Writing one object: from its versions of a group to its new dnode.

use std::sync::Arc;

use ondisk::Blkptr;
use ondisk::dnode::Dnode;
use units::{BlockId, Level};
use zio::{Block, RawBlock, WriteRequest};

use super::tree_writer::{PendingBlock, TreeWriter, account_replacement, assert_answer};
use super::{PolicyQuery, SyncContext, WrittenObject};
use crate::dirty::DirtyObject;
use crate::dirty::record::{BaseReuse, BlockVersion, DnodeVersion};
use crate::object::SPILL_BLOCK;
use crate::tree::DnodeTree;
use crate::{Error, Objset, Result};

/// The parts of an object that a txg has to write.
struct TxgChanges {
    base: Option<Arc<DnodeTree>>,
    dnode: Option<DnodeVersion>,
    blocks: Vec<(u64, BlockVersion)>,
    freed_ranges: Vec<std::ops::Range<u64>>,
    /// The last one: the new spill block.
    spill: Vec<Option<Block>>,
    /// How the spill is encrypted that a raw stream brought.
    raw_spill: Option<RawBlock>,
}

fn collect_changes(entry: &DirtyObject, syncing: &SyncContext<'_>) -> TxgChanges {
    let state = entry.state.read();
    let txg = syncing.txg;
    let blocks = state.blocks.iter().filter_map(|(block, versions)| {
        let found = versions.iter().find(|(known, _)| *known == txg);
        found.map(|(_, content)| (*block, content.clone()))
    });
    let freed = state.freed_ranges.iter().filter(|(known, _)| *known == txg);
    let facts = state.dnode_versions().iter().find(|(known, _)| *known == txg);
    let spill = state.spill.iter().find(|(known, _)| *known == txg);
    TxgChanges {
        base: state.base.clone(),
        dnode: facts.map(|(_, facts)| facts.clone()),
        blocks: blocks.collect(),
        freed_ranges: freed.map(|(_, range)| range.clone()).collect(),
        spill: spill.map(|(_, content)| content.clone()).into_iter().collect(),
        raw_spill: state.raw_spill.iter().find(|(known, _)| *known == txg).map(|(_, raw)| *raw),
    }
}

/// Writes the changes of a txg in an object, and marks it with the flags `accounted`.
pub(super) fn write_object(
    objset: &Objset,
    syncing: &SyncContext<'_>,
    entry: &Arc<DirtyObject>,
    accounted: u8,
) -> Result<WrittenObject> {
    let version = collect_changes(entry, syncing);
    let before = version.base.clone();
    let kept = version.dnode.as_ref().map_or(BaseReuse::All, |facts| facts.reuse);
    if let Some(base) = before.as_ref().filter(|_| kept != BaseReuse::All) {
        let mut forest = TreeWriter::new(syncing, base, &base.dnode);
        forest.kill_all()?;
        if let Some(spill) = base.dnode.spill.as_ref().filter(|_| kept == BaseReuse::Nothing) {
            account_replacement(syncing.ledger, spill, &Blkptr::EMPTY);
        }
    }
    let dnode = match (&version.dnode, &before) {
        (Some(DnodeVersion { dnode: None, .. }), _) | (None, None) => None,
        (Some(DnodeVersion { dnode: Some(dnode), .. }), base) => {
            Some(merge_with_base(syncing, dnode, (kept, base.as_deref())))
        }
        (None, Some(base)) => Some(base.dnode.clone()),
    };
    let entry = Arc::clone(entry);
    let Some(dnode) = dnode else {
        return Ok(WrittenObject { object: entry, before, after: None });
    };
    let mut after = write_content(objset, syncing, &entry, dnode, &version)?;
    after.flags.0 |= accounted;
    Ok(WrittenObject { object: entry, before, after: Some(after) })
}

/// The facts of a txg with the parts of the tree on the drives that they keep.
fn merge_with_base(
    syncing: &SyncContext<'_>,
    facts: &Dnode,
    (kept, base): (BaseReuse, Option<&DnodeTree>),
) -> Dnode {
    let mut dnode = facts.clone();
    let base = base.map(|tree| &tree.dnode);
    dnode.spill = base.filter(|_| kept != BaseReuse::Nothing).and_then(|base| base.spill.clone());
    if let Some(base) = base.filter(|_| kept == BaseReuse::All) {
        dnode.pointers.clone_from(&base.pointers);
        dnode.levels = base.levels;
        dnode.used_bytes = base.used_bytes;
    } else {
        dnode.pointers.fill(Blkptr::EMPTY);
        dnode.used_bytes = dnode.spill.as_ref().map_or(0, |spill| syncing.ledger.dsize(spill));
    }
    dnode
}

fn write_content(
    objset: &Objset,
    syncing: &SyncContext<'_>,
    entry: &DirtyObject,
    mut dnode: Dnode,
    version: &TxgChanges,
) -> Result<Dnode> {
    let (source, key) = (Arc::clone(objset.source()), objset.key().cloned());
    let below = DnodeTree::new(source, key, objset.id(), entry.id, dnode.clone());
    let mut forest = TreeWriter::new(syncing, &below, &dnode);
    // Rule: ranges are freed before blocks are written. A block that was written again after it was freed
    // within the txg lies in both, and its data must be what a crash leaves.
    for range in &version.freed_ranges {
        forest.free_range(range)?;
    }
    let wanted_levels = version.dnode.as_ref().and_then(|facts| facts.dnode.as_ref());
    forest.grow_to(wanted_levels.map_or(0, |dnode| dnode.levels));
    let last = version.blocks.last().map_or(0, |(block, _)| *block);
    dnode.max_block = dnode.max_block.max(BlockId::new(last));
    forest.grow_levels(dnode.max_block.get());
    let mut jobs = Vec::with_capacity(version.blocks.len());
    for (block, content) in &version.blocks {
        match content {
            BlockVersion::Bytes(content) => {
                jobs.push(PendingBlock {
                    block: *block,
                    content: content.clone(),
                    fill: 1,
                    raw: None,
                });
            }
            BlockVersion::Raw(stored, raw) => jobs.push(PendingBlock {
                block: *block,
                content: stored.clone(),
                fill: 1,
                raw: Some(**raw),
            }),
            BlockVersion::Cloned(clone) => forest.override_pointer(*block, &clone.pointer)?,
            BlockVersion::WrittenThrough(stored) => {
                let pointer = &stored.overridden().pointer;
                // A write of an earlier txg may pass one of this txg: writers of a volume share its lock.
                assert!(pointer.birth() <= syncing.txg, "no txg refers to a block of a later one");
                assert_eq!(pointer.lsize(), dnode.block_size, "a block has its object's size");
                forest.override_pointer(*block, pointer)?;
                stored.mark_referenced();
            }
            // its writer holds the txg until it is on the drives
            BlockVersion::InFlight(_) => {
                let place = below.zbookmark(0, *block);
                return Err(Error::NoContent { zbookmark: place });
            }
        }
    }
    forest.write_data_blocks(&jobs)?;
    forest.write_indirect_blocks()?;
    let grown = forest.space_delta;
    dnode.pointers = std::mem::take(&mut forest.pointers);
    assert!(forest.levels >= dnode.levels, "the tree of object {} keeps its levels", entry.id);
    dnode.levels = forest.levels;
    let grown = grown + replace_spill(syncing, &below, &mut dnode, version)?;
    dnode.used_bytes = dnode.used_bytes.saturating_add_signed(grown);
    dnode.flags.0 = dnode.flags.0 & !4 | if dnode.spill.is_some() { 4 } else { 0 };
    syncing.form.mark(&mut dnode);
    Ok(dnode)
}

/// Writes the spill block as a group leaves it. Returns how much more space it takes than before.
fn replace_spill(
    syncing: &SyncContext<'_>,
    below: &DnodeTree,
    dnode: &mut Dnode,
    version: &TxgChanges,
) -> Result<i64> {
    let Some(content) = version.spill.last() else { return Ok(0) };
    let previous = dnode.spill.take().unwrap_or(Blkptr::EMPTY);
    let now = match content {
        Some(content) => {
            let content = (content, version.raw_spill.as_ref());
            write_spill(syncing, below, dnode, content, &previous)?
        }
        None => Blkptr::EMPTY,
    };
    if now != previous {
        account_replacement(syncing.ledger, &previous, &now);
    }
    let dsize = |pointer| units::narrow::<i64>(syncing.ledger.dsize(pointer));
    let grown = dsize(&now) - dsize(&previous);
    dnode.spill = content.as_ref().map(|_| now);
    Ok(grown)
}

fn write_spill(
    syncing: &SyncContext<'_>,
    below: &DnodeTree,
    dnode: &Dnode,
    (content, raw): (&Block, Option<&RawBlock>),
    previous: &Blkptr,
) -> Result<Blkptr> {
    let (kind, level) = (dnode.bonus_kind, Level::new(0));
    let (checksum, compression) = (dnode.checksum, dnode.compression);
    let mut policy = (syncing.policy)(PolicyQuery { kind, level, checksum, compression });
    policy.zeros_to_hole = false;
    let request = WriteRequest {
        data: content,
        kind,
        level,
        fill: 1,
        txg: syncing.txg,
        policy: &policy,
        previous,
        zbookmark: below.zbookmark(0, SPILL_BLOCK.get()),
        raw,
    };
    let pointer = syncing.sink.write(&request)?;
    assert_answer(&request, &pointer);
    Ok(pointer)
}
