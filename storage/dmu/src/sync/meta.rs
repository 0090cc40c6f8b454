//! Writing the array of dnodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::Order;
use ondisk::dnode::Dnode;
use ondisk::objset::ObjsetHeader;
use units::{BlockId, ObjectId};
use zio::Block;

use super::forest::{Forest, Job};
use super::{Syncing, Written};
use crate::objset::slots;
use crate::tree::Tree;
use crate::{Error, Objset, Result};

/// Puts new dnodes into the array and writes what changed of it; the array's own dnode, in the
/// root block, is changed with it.
pub(super) fn write(
    base: &Objset,
    syncing: &Syncing<'_>,
    header: &mut ObjsetHeader,
    written: &[&Written],
) -> Result<()> {
    let Some(dnode) = &mut header.meta else { return Ok(()) };
    if written.is_empty() {
        return Ok(());
    }
    let (source, key) = (Arc::clone(base.source()), base.key().cloned());
    let below = Tree::new(source, key, base.id(), ObjectId::META, dnode.clone());
    let per_block = slots(&below).max(1);
    let mut by_block: BTreeMap<u64, Vec<&Written>> = BTreeMap::new();
    for written in written {
        let block = written.entry.id.get().checked_div(per_block).unwrap_or(0);
        by_block.entry(block).or_default().push(written);
    }
    let mut jobs = Vec::with_capacity(by_block.len());
    for (block, written) in &by_block {
        let first = block.saturating_mul(per_block);
        let content = patched(&below, *block, first, written)?;
        let fill = dnodes(&content);
        jobs.push(Job { block: *block, content: Block::new(content, Order::Little), fill });
    }
    let last = by_block.keys().next_back().copied().unwrap_or(0);
    dnode.max_block = dnode.max_block.max(BlockId::new(last));
    let mut forest = Forest::new(syncing, &below, dnode);
    forest.reach(dnode.max_block.get());
    forest.store(&jobs)?;
    forest.finish()?;
    dnode.pointers = std::mem::take(&mut forest.roots);
    dnode.levels = forest.levels;
    dnode.used_bytes = dnode.used_bytes.saturating_add_signed(forest.grown);
    syncing.form.mark(dnode);
    Ok(())
}

/// A block of the array with the dnodes that changed.
fn patched(below: &Tree, block: u64, first: u64, written: &[&Written]) -> Result<Vec<u8>> {
    let size = usize::try_from(below.dnode.block_size).unwrap_or(0);
    let mut content = match below.block(block)? {
        Some(old) => old.to_vec(),
        None => vec![0; size],
    };
    for written in written {
        let slot = usize::try_from(written.entry.id.get().saturating_sub(first)).unwrap_or(0);
        let start = slot.saturating_mul(Dnode::SLOT);
        let old = written.before.as_ref().map_or(0, |tree| tree.dnode.size());
        if let Some(place) = content.get_mut(start..start.saturating_add(old)) {
            place.fill(0);
        }
        if let Some(dnode) = &written.after {
            let place = content.get_mut(start..start.saturating_add(dnode.size()));
            let place = place.ok_or(Error::OutOfTree { place: below.place(0, block) })?;
            place.fill(0);
            dnode.encode(place);
        }
    }
    Ok(content)
}

/// How many dnodes a block of the array has.
fn dnodes(content: &[u8]) -> u64 {
    let (mut at, mut count) = (0_usize, 0_u64);
    while let Some(rest) = content.get(at.saturating_mul(Dnode::SLOT)..).filter(|r| !r.is_empty()) {
        match Dnode::peek_slots(rest) {
            Some(slots) => {
                count = count.saturating_add(1);
                at = at.saturating_add(slots.into());
            }
            None => at = at.saturating_add(1),
        }
    }
    count
}
