//! Writing the array of dnodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::Order;
use ondisk::dnode::Dnode;
use ondisk::objset::ObjsetHeader;
use units::{BlockId, ObjectId};
use zio::Block;

use super::tree_writer::{PendingBlock, TreeWriter};
use super::{SyncContext, WrittenObject};
use crate::dirty::DirtyObjset;
use crate::objset::slots_per_block;
use crate::tree::DnodeTree;
use crate::{Error, Objset, Result};

/// Puts new dnodes into the array and writes what changed of it; the array's own dnode, in the
/// root block, is changed with it.
pub(super) fn write_dnodes(
    (base, overlay): (&Objset, &DirtyObjset),
    syncing: &SyncContext<'_>,
    header: &mut ObjsetHeader,
    written: &[&WrittenObject],
) -> Result<()> {
    let Some(dnode) = &mut header.meta else { return Ok(()) };
    if written.is_empty() {
        return Ok(());
    }
    let (source, key) = (Arc::clone(base.source()), base.key().cloned());
    let below = DnodeTree::new(source, key, base.id(), ObjectId::META, dnode.clone());
    let per_block = slots_per_block(&below).max(1);
    let mut by_block: BTreeMap<u64, Vec<&WrittenObject>> = BTreeMap::new();
    for written in written {
        let block = written.object.id.get().checked_div(per_block).unwrap_or(0);
        by_block.entry(block).or_default().push(written);
    }
    let mut jobs = Vec::with_capacity(by_block.len());
    for (block, written) in &by_block {
        let first = block * per_block;
        let content = patch_dnode_block(&below, *block, first, written)?;
        let fill = count_dnodes(&content);
        assert!(fill <= per_block, "block {block} of dnodes has {fill} in {per_block} slots");
        jobs.push(PendingBlock {
            block: *block,
            content: Block::new(content, Order::Little),
            fill,
            raw: overlay.dnode_crypt.get(*block),
        });
    }
    let last = by_block.keys().next_back().copied().unwrap_or(0);
    dnode.max_block = dnode.max_block.max(BlockId::new(last));
    let mut forest = TreeWriter::new(syncing, &below, dnode);
    forest.grow_levels(dnode.max_block.get());
    forest.write_data_blocks(&jobs)?;
    forest.write_indirect_blocks()?;
    dnode.pointers = std::mem::take(&mut forest.pointers);
    dnode.levels = forest.levels;
    dnode.used_bytes = dnode.used_bytes.saturating_add_signed(forest.space_delta);
    syncing.form.mark(dnode);
    Ok(())
}

/// A block of the array with the dnodes that changed.
fn patch_dnode_block(
    below: &DnodeTree,
    block: u64,
    first: u64,
    written: &[&WrittenObject],
) -> Result<Vec<u8>> {
    let size = units::to_usize(below.dnode.block_size);
    let mut content = match below.block(block)? {
        Some(old) => old.to_vec(),
        None => vec![0; size],
    };
    assert_eq!(content.len(), size, "a block of dnodes has the size of the meta-dnode");
    let before = count_dnodes(&content);
    for written in written {
        let slot = units::to_usize(written.object.id.get() - first);
        let start = slot * Dnode::SLOT;
        let old = written.before.as_ref().map_or(0, |tree| tree.dnode.size());
        if let Some(place) = content.get_mut(start..start + old) {
            place.fill(0);
        }
        if let Some(dnode) = &written.after {
            let place = content.get_mut(start..start + dnode.size());
            let place = place.ok_or(Error::OutOfTree { zbookmark: below.zbookmark(0, block) })?;
            place.fill(0);
            dnode.encode(place);
        }
    }
    let created = written.iter().filter(|object| object.after.is_some()).count();
    let gone = written.iter().filter(|object| object.before.is_some()).count();
    let found = count_dnodes(&content);
    if found + units::to_u64(gone) != before + units::to_u64(created) {
        // dnodes on the drives lie over each other, or the block is not the one that the objects were read from
        let rule = "a block of dnodes has as many as were added and not removed";
        let why = ondisk::Error::Rule { structure: "dnode block", at: 0, rule, found };
        return Err(Error::Corrupt { zbookmark: below.zbookmark(0, block), why });
    }
    Ok(content)
}

/// How many dnodes a block of the array has.
fn count_dnodes(content: &[u8]) -> u64 {
    let (mut at, mut count) = (0_usize, 0_u64);
    while let Some(rest) = content.get(at * Dnode::SLOT..).filter(|r| !r.is_empty()) {
        match Dnode::peek_slots(rest) {
            Some(slots) => {
                count += 1;
                at += usize::from(slots);
            }
            None => at += 1,
        }
    }
    count
}
