//! Changing an object's content, bonus and shape.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;

use ondisk::{ObjectType, Order};
use txg::Tx;
use units::{BlockId, ObjectId, Txg};
use zio::Block;

use crate::dirty::record::{BaseReuse, BlockVersion, DirtyState};
use crate::dirty::write_through::{InFlightWrite, PendingWrite};
use crate::dirty::{DirtyObject, DirtyObjset, lookup};
use crate::{Error, Object, Result};

/// The dirty bytes of a small change: a dnode's share of its block.
pub(super) const SMALL_DIRTY_BYTES: u64 = 512;

/// Where an object ends at the latest: offsets of files are signed.
const MAX_OBJECT_BYTES: u64 = 1 << 63;

impl Object {
    pub(super) fn require_writable(&self) -> Result<(&Arc<DirtyObject>, &Arc<DirtyObjset>)> {
        let read_only = || Error::ReadOnly { zbookmark: self.zbookmark(BlockId::new(0)) };
        let overlay = self.objset().overlay().ok_or_else(read_only)?;
        Ok((self.entry().ok_or_else(read_only)?, overlay))
    }

    /// Writes bytes at an offset. The rest of partially written blocks is kept.
    pub fn write(&self, tx: &Tx, offset: u64, bytes: &[u8]) -> Result<()> {
        self.begin_write(tx, offset, bytes).map(drop)
    }

    /// The same, but many whole blocks may still be on their way to the drives when this returns, so
    /// that other parts of the object can be changed meanwhile.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn begin_write<'a, T: Borrow<Tx>>(
        &self,
        tx: T,
        offset: u64,
        mut bytes: &'a [u8],
    ) -> Result<PendingWrite<'a, T>> {
        let (entry, overlay) = self.require_writable()?;
        let size = self.current_block_size(entry)?;
        if offset.checked_add(units::to_u64(bytes.len())).is_none_or(|end| end > MAX_OBJECT_BYTES) {
            let block = BlockId::new(split_offset(offset, size).0);
            return Err(Error::OutOfTree { zbookmark: self.zbookmark(block) });
        }
        let mut underway = PendingWrite::new(tx, entry, overlay);
        let (mut at, end) = (offset, offset + units::to_u64(bytes.len()));
        while !bytes.is_empty() {
            let (block, skip) = split_offset(at, size);
            let whole = bytes.len() - bytes.len().checked_rem(size).unwrap_or(0);
            let count = match size - skip {
                part if part == size && whole > 0 => whole,
                part => part.min(bytes.len()),
            };
            let (now, rest) = bytes.split_at(count);
            if count == whole {
                let blocks = units::to_u64(count.checked_div(size).unwrap_or(0));
                // Rule: the path is read before the blocks change. The sync must change the indirect blocks;
                // one that it cannot read would stop the pool with an acknowledged write in memory.
                lookup::check_path(entry, block..block + blocks)?;
                underway.add_blocks(block, now, size);
            } else {
                let tx = underway.tx();
                let mut change = |content: &mut [u8]| {
                    if let Some(part) = content.get_mut(skip..skip + count) {
                        part.copy_from_slice(now);
                    }
                };
                modify_block(entry, tx, block, size, &mut change)?;
            }
            bytes = rest;
            at += units::to_u64(count);
        }
        assert_eq!(at, end, "each byte of a write from {offset} on is in a block");
        overlay.mark_dirty(underway.tx().txg(), entry);
        Ok(underway)
    }

    /// Changes the content of one block in place; a hole is zeros before. The closure may be called
    /// several times, for the versions of later txgs.
    pub fn change_block(
        &self,
        tx: &Tx,
        block: BlockId,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        let (entry, overlay) = self.require_writable()?;
        let size = self.current_block_size(entry)?;
        modify_block(entry, tx, block.get(), size, change)?;
        overlay.mark_dirty(tx.txg(), entry);
        Ok(())
    }

    /// Makes zeros of a range of bytes: whole blocks become holes. A range that ends at the largest
    /// number cuts the object off there.
    pub fn free_range(&self, tx: &Tx, range: Range<u64>) -> Result<()> {
        let (entry, overlay) = self.require_writable()?;
        let size = self.current_block_size(entry)?;
        let wide = units::to_u64(size);
        let end_block = lookup::end_block(entry);
        let end = range.end.min(end_block * wide);
        if range.start >= end {
            return Ok(());
        }
        let ((first, skip), (last, rest)) =
            (split_offset(range.start, size), split_offset(end, size));
        if first == last {
            zero_part(entry, tx, first, size, skip..rest)?;
        } else {
            let whole = if skip == 0 { first } else { first + 1 };
            if skip != 0 {
                zero_part(entry, tx, first, size, skip..size)?;
            }
            if rest != 0 {
                zero_part(entry, tx, last, size, 0..rest)?;
            }
            // Rule: all that may fail comes before the first change of the overlay. A range that is freed in
            // part would be synced so, although its caller got an error.
            lookup::check_edge_paths(entry, &(whole..last))?;
            let mut state = entry.state.write();
            free_blocks(&mut state, tx.txg(), whole..last);
            if range.end == u64::MAX {
                let end = BlockId::new(whole.max(1) - 1);
                state.change_dnode(tx.txg(), &|dnode| dnode.max_block = dnode.max_block.min(end));
            }
        }
        tx.add_dirty(SMALL_DIRTY_BYTES);
        overlay.mark_dirty(tx.txg(), entry);
        Ok(())
    }

    /// Replaces the bonus and its type.
    pub fn set_bonus(&self, tx: &Tx, kind: ObjectType, bytes: &[u8]) -> Result<()> {
        self.change_dnode(tx, &|dnode| {
            dnode.bonus_kind = kind;
            dnode.bonus = bytes.to_vec();
            dnode.bonus_tail = Vec::new();
            dnode.order = Order::Little;
        })
    }

    /// Changes the object's type, for example of an empty object to a table.
    pub fn set_kind(&self, tx: &Tx, kind: ObjectType) -> Result<()> {
        self.change_dnode(tx, &|dnode| dnode.kind = kind)
    }

    /// Sets how its new blocks are compressed and checked: the numbers in the dnode, 0 inherits.
    pub fn set_checksum_compression(&self, tx: &Tx, checksum: u8, compression: u8) -> Result<()> {
        self.change_dnode(tx, &|dnode| {
            dnode.checksum = checksum;
            dnode.compression = compression;
        })
    }

    fn change_dnode(&self, tx: &Tx, change: &dyn Fn(&mut ondisk::dnode::Dnode)) -> Result<()> {
        let (entry, overlay) = self.require_writable()?;
        entry.state.write().change_dnode(tx.txg(), change);
        tx.add_dirty(SMALL_DIRTY_BYTES);
        overlay.mark_dirty(tx.txg(), entry);
        Ok(())
    }

    /// Replaces the spill block; `None` removes it. Its length is that of the block: a multiple of
    /// 512.
    pub fn set_spill(&self, tx: &Tx, content: Option<&[u8]>) -> Result<()> {
        let (entry, overlay) = self.require_writable()?;
        let block = content.map(|bytes| Block::new(bytes.to_vec(), Order::Little));
        let mut state = entry.state.write();
        let (_, versions) = DirtyState::versions_from(&mut state.spill, tx.txg(), |_| None);
        for (_, version) in versions {
            version.clone_from(&block);
        }
        drop(state);
        tx.add_dirty_block(content.map_or(SMALL_DIRTY_BYTES, |bytes| units::to_u64(bytes.len())));
        overlay.mark_dirty(tx.txg(), entry);
        Ok(())
    }

    /// Changes the size of its data blocks, in bytes. It may have one block at most, which is cut or
    /// filled up with zeros.
    pub fn set_block_size(&self, tx: &Tx, bytes: u32) -> Result<()> {
        let (entry, overlay) = self.require_writable()?;
        if self.current_block_size(entry)? == units::to_usize(bytes) {
            return Ok(());
        }
        if lookup::end_block(entry) > 1 {
            return Err(Error::BlockSizeFixed { zbookmark: self.zbookmark(BlockId::new(1)) });
        }
        // Rule: the content is read before the size changes: blocks on the drives have the old size, and the tree
        // of the new one refuses them.
        let content = lookup::read_block(entry, 0)?;
        let mut state = entry.state.write();
        free_blocks(&mut state, tx.txg(), 0..1);
        state.change_dnode(tx.txg(), &|dnode| dnode.block_size = bytes);
        for (_, facts) in state.dnode_versions_mut().iter_mut().filter(|(txg, _)| *txg == tx.txg())
        {
            // an object created in this txg has no earlier content
            if facts.reuse == BaseReuse::All {
                facts.reuse = BaseReuse::SpillOnly;
            }
        }
        drop(state);
        overlay.mark_dirty(tx.txg(), entry);
        match content {
            Some(content) => {
                let wanted = units::to_usize(bytes);
                self.write(tx, 0, content.get(..wanted.min(content.len())).unwrap_or_default())
            }
            None => Ok(()),
        }
    }

    pub(super) fn current_block_size(&self, entry: &DirtyObject) -> Result<usize> {
        let state = entry.state.read();
        let dnode = state.dnode().ok_or_else(|| no_such_object(self, entry.id))?;
        Ok(units::to_usize(dnode.block_size).max(512))
    }
}

fn no_such_object(object: &Object, id: ObjectId) -> Error {
    debug_assert_eq!(object.id(), id);
    Error::NoSuchObject { zbookmark: object.zbookmark(BlockId::new(0)) }
}

/// The block of an offset, and where in it.
fn split_offset(at: u64, size: usize) -> (u64, usize) {
    let wide = units::to_u64(size);
    let skip = at.checked_rem(wide).unwrap_or(0);
    (at.checked_div(wide).unwrap_or(0), units::to_usize(skip))
}

/// A block becomes this in a group and in all later ones; whether the group had nothing of it.
pub(super) fn set_block_version(
    state: &mut DirtyState,
    txg: Txg,
    block: u64,
    content: &BlockVersion,
) -> bool {
    extend_max_block(state, txg, block);
    let versions = state.blocks.entry(block).or_default();
    let (made, versions) = DirtyState::versions_from(versions, txg, |_| content.clone());
    for (_, version) in versions {
        *version = content.clone();
    }
    made
}

/// A block becomes just these bytes.
pub(super) fn write_whole_block(entry: &DirtyObject, tx: &Tx, block: u64, bytes: &[u8]) {
    let fresh = BlockVersion::Bytes(Block::from_slice(bytes, Order::Little));
    let made = set_block_version(&mut entry.state.write(), tx.txg(), block, &fresh);
    if made {
        tx.add_dirty_block(units::to_u64(bytes.len()));
    }
}

/// Reads a block if needed, and changes it in this txg and in all later ones. An existing version
/// is changed in place: there must be no other reference to its memory.
fn modify_block(
    entry: &DirtyObject,
    tx: &Tx,
    block: u64,
    size: usize,
    change: &mut dyn FnMut(&mut [u8]),
) -> Result<()> {
    let before = loop {
        if has_own_bytes(entry, tx.txg(), block) {
            break None;
        }
        match block_at_txg(entry, tx.txg(), block) {
            BlockAtTxg::InMemory(content) => break Some(content),
            BlockAtTxg::Hole => break None,
            BlockAtTxg::OnDisk | BlockAtTxg::Encrypted => {
                break lookup::read_block(entry, block)?;
            }
            BlockAtTxg::InFlight(coming) => coming.wait_done(),
        }
    };
    let mut before = before.filter(|content| content.len() == size);
    let mut first = || {
        let zeros = || Block::zeros(size, Order::Little);
        BlockVersion::Bytes(before.take().unwrap_or_else(zeros))
    };
    let mut state = entry.state.write();
    extend_max_block(&mut state, tx.txg(), block);
    let versions = state.blocks.entry(block).or_default();
    let (mut made, versions) = DirtyState::versions_from(versions, tx.txg(), |_| first());
    for (known, version) in versions {
        if *known == tx.txg()
            && matches!(version, BlockVersion::Cloned(_) | BlockVersion::WrittenThrough(_))
        {
            *version = first();
            made = true;
        }
        // a block that a later txg has cloned, or written completely, has no part of this change
        if let BlockVersion::Bytes(content) = version {
            change(content.bytes_mut());
        }
    }
    drop(state);
    if made {
        tx.add_dirty_block(units::to_u64(size));
    }
    Ok(())
}

/// Whether a group has bytes of its own for a block.
fn has_own_bytes(entry: &DirtyObject, txg: Txg, block: u64) -> bool {
    let state = entry.state.read();
    let versions = state.blocks.get(&block).into_iter().flatten();
    let mut own = versions.filter(|(known, _)| *known == txg);
    own.any(|(_, content)| matches!(content, BlockVersion::Bytes(_)))
}

/// The state of a block in a txg.
enum BlockAtTxg {
    /// This.
    InMemory(Block),
    /// A hole.
    Hole,
    /// The block is on the drives, of this or another object.
    OnDisk,
    /// The block is being written.
    InFlight(Arc<InFlightWrite>),
    /// A raw stream brought it; it cannot be read.
    Encrypted,
}

fn block_at_txg(entry: &DirtyObject, txg: Txg, block: u64) -> BlockAtTxg {
    let state = entry.state.read();
    let older = |known: &Txg| *known <= txg;
    let written = state
        .blocks
        .get(&block)
        .and_then(|versions| versions.iter().rev().find(|(known, _)| older(known)).cloned());
    let freed =
        state.freed_ranges.iter().filter(|(known, range)| older(known) && range.contains(&block));
    let afresh = state
        .dnode_versions()
        .iter()
        .filter(|(known, facts)| older(known) && facts.reuse != BaseReuse::All);
    let gone = freed.map(|(known, _)| *known).chain(afresh.map(|(known, _)| *known)).max();
    match (written, gone) {
        (Some((at, content)), gone) if gone.is_none_or(|gone| at >= gone) => match content {
            BlockVersion::Bytes(content) => BlockAtTxg::InMemory(content),
            BlockVersion::Cloned(_) | BlockVersion::WrittenThrough(_) => BlockAtTxg::OnDisk,
            BlockVersion::InFlight(coming) => BlockAtTxg::InFlight(coming),
            BlockVersion::Raw(..) => BlockAtTxg::Encrypted,
        },
        (_, Some(_)) => BlockAtTxg::Hole,
        _ => BlockAtTxg::OnDisk,
    }
}

/// Zeros a part of a block, if the block exists.
fn zero_part(
    entry: &DirtyObject,
    tx: &Tx,
    block: u64,
    size: usize,
    part: Range<usize>,
) -> Result<()> {
    if part.is_empty() || lookup::read_block(entry, block)?.is_none() {
        return Ok(());
    }
    modify_block(entry, tx, block, size, &mut |content| {
        if let Some(part) = content.get_mut(part.clone()) {
            part.fill(0);
        }
    })
}

/// Whole blocks become holes.
pub(super) fn free_blocks(state: &mut DirtyState, txg: Txg, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    // Rule: the block versions of this txg go before the range is noted. The sync frees the ranges of a txg
    // before it writes its blocks: a version that stayed would bring freed data back.
    state.drop_block_versions(txg, range.clone());
    let at = state.freed_ranges.partition_point(|(known, _)| *known <= txg);
    match at.checked_sub(1).and_then(|last| state.freed_ranges.get_mut(last)) {
        // a file that is cut off from behind, bit by bit
        Some((known, old)) if *known == txg && range.start <= old.end && old.start <= range.end => {
            *old = old.start.min(range.start)..old.end.max(range.end);
        }
        _ => state.freed_ranges.insert(at, (txg, range)),
    }
}

/// The object has at least this block.
pub(super) fn extend_max_block(state: &mut DirtyState, txg: Txg, block: u64) {
    let block = BlockId::new(block);
    let short = |dnode: &ondisk::dnode::Dnode| dnode.max_block < block;
    let newest = state.dnode().is_some_and(short);
    let later = state
        .dnode_versions()
        .iter()
        .any(|(known, facts)| *known >= txg && facts.dnode.as_ref().is_some_and(short));
    if newest || later {
        state.change_dnode(txg, &|dnode| dnode.max_block = dnode.max_block.max(block));
    }
}
