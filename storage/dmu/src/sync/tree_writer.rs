//! An object's tree while it is being written: the indirect blocks that change are in memory.
//!
//! First ranges are cleared, then data blocks are stored and their pointers set, then the indirect
//! blocks are stored level by level, up to the pointers of the dnode.

use std::collections::BTreeMap;
use std::ops::Range;

use ondisk::blkptr::Hole;
use ondisk::dnode::Dnode;
use ondisk::{Blkptr, Order};
use units::{Level, Zbookmark};
use zio::{Block, RawBlock, WriteRequest};

use super::{BlockLedger, PolicyQuery, SyncContext, workers};
use crate::tree::{DnodeTree, parse_child};
use crate::tree_shape::TreeShape;
use crate::{Error, Result};

/// Levels and numbers of indirect blocks.
type IndirectId = (u8, u64);

/// A tree that is being written.
pub(crate) struct TreeWriter<'a> {
    context: &'a SyncContext<'a>,
    /// Reads the tree on the drives, and addresses for errors.
    base: &'a DnodeTree,
    pub(crate) pointers: Vec<Blkptr>,
    pub(crate) levels: u8,
    indirect: BTreeMap<IndirectId, Vec<u8>>,
    dirty_indirect: std::collections::BTreeSet<IndirectId>,
    /// How much more space it takes than before.
    pub(crate) space_delta: i64,
}

/// One block that is to be stored.
pub(crate) struct PendingBlock {
    pub(crate) block: u64,
    pub(crate) content: Block,
    pub(crate) fill: u64,
    /// `content` are stored bytes that a raw stream brought.
    pub(crate) raw: Option<RawBlock>,
}

impl<'a> TreeWriter<'a> {
    /// From the pointers of `dnode`. `below` has a dnode of the same kind and sizes.
    pub(crate) fn new(context: &'a SyncContext<'a>, base: &'a DnodeTree, dnode: &Dnode) -> Self {
        Self {
            context,
            base,
            pointers: dnode.pointers.clone(),
            levels: dnode.levels,
            indirect: BTreeMap::new(),
            dirty_indirect: std::collections::BTreeSet::new(),
            space_delta: 0,
        }
    }

    fn dnode(&self) -> &Dnode {
        &self.base.dnode
    }

    fn top_level(&self) -> u8 {
        self.levels - 1
    }

    fn shape(&self) -> TreeShape {
        TreeShape { top_level: self.top_level(), ..self.base.shape }
    }

    /// Adds levels until a block is within reach.
    pub(crate) fn grow_levels(&mut self, block: u64) {
        let roots = units::to_u64(self.pointers.len());
        while self.shape().ancestor(self.top_level(), block) >= roots
            && self.levels < Dnode::MAX_LEVELS
        {
            self.add_level();
        }
        let is_highest = self.levels >= Dnode::MAX_LEVELS;
        let ancestor = self.shape().ancestor(self.top_level(), block);
        assert!(is_highest || ancestor < roots, "block {block} is within {} levels", self.levels);
    }

    /// Adds levels until the tree is of a height, as a raw stream may want it.
    pub(crate) fn grow_to(&mut self, levels: u8) {
        while self.levels < levels.min(Dnode::MAX_LEVELS) {
            self.add_level();
        }
    }

    fn add_level(&mut self) {
        self.levels += 1;
        assert!(self.levels <= Dnode::MAX_LEVELS, "a tree grows to {} levels", self.levels);
        if self.pointers.iter().all(|root| *root == Blkptr::EMPTY) {
            return;
        }
        // Rule: the roots move into the new block before a block is written. A pointer that stayed in the dnode
        // would be read at the new height, as that of an indirect block.
        let mut content = vec![0; self.indirect_size()];
        for (slot, root) in self.pointers.iter_mut().enumerate() {
            store_pointer(&mut content, slot, &std::mem::replace(root, Blkptr::EMPTY));
        }
        let seat = (self.top_level(), 0);
        self.indirect.insert(seat, content);
        self.dirty_indirect.insert(seat);
    }

    fn indirect_size(&self) -> usize {
        units::to_usize(self.dnode().indirect_size())
    }

    /// The pointer to a block as it is now.
    fn pointer(&mut self, level: u8, block: u64) -> Result<Blkptr> {
        if level >= self.top_level() {
            let root = usize::try_from(block).ok().and_then(|at| self.pointers.get(at));
            return root
                .cloned()
                .ok_or(Error::OutOfTree { zbookmark: self.base.zbookmark(level, block) });
        }
        let shape = self.shape();
        let seat = (level + 1, shape.parent(block));
        self.load_indirect(seat)?;
        self.child_pointer(seat, shape.slot(block))
    }

    fn child_pointer(&self, seat: IndirectId, slot: usize) -> Result<Blkptr> {
        let content = self.indirect.get(&seat).map_or(&[][..], Vec::as_slice);
        parse_child(content, Order::Little, slot).map_err(|error| Error::Corrupt {
            zbookmark: self.base.zbookmark(seat.0, seat.1),
            why: error,
        })
    }

    /// Brings an indirect block into memory.
    fn load_indirect(&mut self, seat: IndirectId) -> Result<()> {
        if self.indirect.contains_key(&seat) {
            return Ok(());
        }
        let pointer = self.pointer(seat.0, seat.1)?;
        let content = self.read_indirect(seat, &pointer)?;
        self.indirect.insert(seat, content);
        Ok(())
    }

    /// The content of an indirect block on the drives.
    fn read_indirect(&self, seat: IndirectId, pointer: &Blkptr) -> Result<Vec<u8>> {
        if pointer.is_hole() {
            return Ok(vec![0; self.indirect_size()]);
        }
        Ok(self.base.fetch(pointer, seat.0, seat.1)?.to_vec())
    }

    fn set_pointer(&mut self, level: u8, block: u64, pointer: Blkptr) -> Result<()> {
        if level >= self.top_level() {
            let place = self.base.zbookmark(level, block);
            let root = usize::try_from(block).ok().and_then(|at| self.pointers.get_mut(at));
            *root.ok_or(Error::OutOfTree { zbookmark: place })? = pointer;
            return Ok(());
        }
        let shape = self.shape();
        let seat = (level + 1, shape.parent(block));
        self.load_indirect(seat)?;
        let content = self.indirect.get_mut(&seat);
        assert!(
            content.is_some(),
            "indirect block {seat:?} is in memory when a pointer in it changes"
        );
        if let Some(content) = content {
            store_pointer(content, shape.slot(block), &pointer);
        }
        self.dirty_indirect.insert(seat);
        Ok(())
    }

    /// The hole that a block leaves.
    fn hole_pointer(&self, level: u8) -> Blkptr {
        let dnode = self.dnode();
        let lsize = if level == 0 { dnode.block_size } else { dnode.indirect_size() };
        let birth = self.context.txg;
        Blkptr::Hole(Hole { birth, level: Level::new(level), lsize, kind: dnode.kind })
    }

    /// Data blocks become holes.
    pub(crate) fn free_range(&mut self, range: &Range<u64>) -> Result<()> {
        let top = self.top_level();
        for block in 0..units::to_u64(self.pointers.len()) {
            self.free_range_below(top, block, range)?;
        }
        Ok(())
    }

    fn free_range_below(&mut self, level: u8, block: u64, range: &Range<u64>) -> Result<()> {
        let shape = self.shape();
        let (first, end) =
            (shape.first_data_block(level, block), shape.end_data_block(level, block));
        if end <= range.start || first >= range.end {
            return Ok(());
        }
        let pointer = self.pointer(level, block)?;
        let in_memory = level > 0 && self.indirect.contains_key(&(level, block));
        if pointer.is_hole() && !in_memory {
            return Ok(());
        }
        if range.start <= first && end <= range.end {
            self.kill_subtree(level, block, &pointer)?;
            let hole = self.hole_pointer(level);
            return self.set_pointer(level, block, hole);
        }
        let child = shape.first_child(block);
        let count = units::to_u64(self.indirect_size() / Blkptr::SIZE);
        for below in child..child.saturating_add(count) {
            self.free_range_below(level - 1, below, range)?;
        }
        Ok(())
    }

    /// Accounts for the death of a block and of all below it. Blocks below a damaged block are
    /// unknown and stay allocated: an error here would end the txg.
    fn kill_subtree(&mut self, level: u8, block: u64, pointer: &Blkptr) -> Result<()> {
        if level > 0 {
            let seat = (level, block);
            // not by the path from the root: that would bring dead blocks above it back into memory
            let content = match self.indirect.remove(&seat) {
                Some(content) => content,
                None => self.read_indirect(seat, pointer).or_else(skip_if_damaged)?,
            };
            self.dirty_indirect.remove(&seat);
            let first = self.shape().first_child(block);
            for slot in 0..content.len() / Blkptr::SIZE {
                let child = parse_child(&content, Order::Little, slot);
                let below = first.saturating_add(units::to_u64(slot));
                let level = level - 1;
                let Ok(child) = child else { continue };
                if !child.is_hole() || self.indirect.contains_key(&(level, below)) {
                    self.kill_subtree(level, below, &child)?;
                }
            }
        }
        if !pointer.is_hole() {
            self.account_change(pointer, &Blkptr::EMPTY);
        }
        Ok(())
    }

    /// Everything goes.
    pub(crate) fn kill_all(&mut self) -> Result<()> {
        let top = self.top_level();
        let roots = self.pointers.clone();
        for (block, root) in roots.iter().enumerate() {
            if !root.is_hole() {
                self.kill_subtree(top, units::to_u64(block), root)?;
            }
        }
        self.pointers = vec![Blkptr::EMPTY; roots.len()];
        self.indirect.clear();
        self.dirty_indirect.clear();
        Ok(())
    }

    fn account_change(&mut self, before: &Blkptr, now: &Blkptr) {
        let ledger = self.context.ledger;
        let dsize = |pointer| units::narrow::<i64>(ledger.dsize(pointer));
        self.space_delta += dsize(now) - dsize(before);
        account_replacement(ledger, before, now);
    }

    /// A data block becomes one that is on the drives already.
    pub(crate) fn override_pointer(&mut self, block: u64, pointer: &Blkptr) -> Result<()> {
        let previous = self.pointer(0, block)?;
        self.account_change(&previous, pointer);
        self.set_pointer(0, block, pointer.clone())
    }

    /// Stores data blocks and sets their pointers.
    pub(crate) fn write_data_blocks(&mut self, jobs: &[PendingBlock]) -> Result<()> {
        self.write_level(0, jobs)
    }

    fn write_level(&mut self, level: u8, jobs: &[PendingBlock]) -> Result<()> {
        let ascend = jobs.is_sorted_by(|job, next| job.block < next.block);
        assert!(ascend, "each block of level {level} is written once, in order");
        let mut todo = Vec::with_capacity(jobs.len());
        for job in jobs {
            todo.push((job, self.pointer(level, job.block)?));
        }
        let dnode = self.dnode();
        let (kind, level_type) = (dnode.kind, Level::new(level));
        let (checksum, compression) = (dnode.checksum, dnode.compression);
        let wanted = PolicyQuery { kind, level: level_type, checksum, compression };
        let policy = (self.context.policy)(wanted);
        let (syncing, below) = (self.context, self.base);
        let runs: Vec<_> = todo.chunks(run_length(&todo, syncing.workers)).collect();
        let stored = workers::map_parallel(syncing.workers, &runs, &|run| {
            let requests = run.iter().map(|(job, previous)| WriteRequest {
                data: &job.content,
                kind,
                level: level_type,
                fill: job.fill,
                txg: syncing.txg,
                policy: &policy,
                previous,
                zbookmark: below.zbookmark(level, job.block),
                raw: job.raw.as_ref(),
            });
            let requests = requests.collect::<Vec<_>>();
            let stored = syncing.sink.write_many(&requests);
            assert_eq!(stored.len(), requests.len(), "the sink answers each request");
            let checked = |(request, stored): (&WriteRequest<'_>, std::result::Result<_, _>)| {
                let pointer = stored.map_err(Error::from)?;
                assert_answer(request, &pointer);
                Ok(pointer)
            };
            requests.iter().zip(stored).map(checked).collect::<Result<Vec<_>>>()
        })?;
        let pointers = stored.iter().map(Vec::len).sum::<usize>();
        assert_eq!(pointers, todo.len(), "each block of level {level} has a pointer");
        for ((job, previous), pointer) in todo.iter().zip(stored.into_iter().flatten()) {
            if pointer != *previous {
                self.account_change(previous, &pointer);
                self.set_pointer(level, job.block, pointer)?;
            }
        }
        Ok(())
    }

    /// Stores the indirect blocks that changed, from the lowest level up.
    pub(crate) fn write_indirect_blocks(&mut self) -> Result<()> {
        for level in 1..=self.top_level() {
            let seats: Vec<IndirectId> =
                self.dirty_indirect.range((level, 0)..=(level, u64::MAX)).copied().collect();
            let mut jobs = Vec::with_capacity(seats.len());
            for seat in seats {
                self.dirty_indirect.remove(&seat);
                let content = self.indirect.remove(&seat).unwrap_or_default();
                assert_eq!(
                    content.len(),
                    self.indirect_size(),
                    "a changed indirect block is in memory as a whole"
                );
                let fill = self.fill_count(&content, seat)?;
                if fill == 0 {
                    let pointer = self.pointer(level, seat.1)?;
                    self.account_change(&pointer, &Blkptr::EMPTY);
                    let hole = self.hole_pointer(level);
                    self.set_pointer(level, seat.1, hole)?;
                } else {
                    let content = Block::new(content, Order::Little);
                    jobs.push(PendingBlock { block: seat.1, content, fill, raw: None });
                }
            }
            self.write_level(level, &jobs)?;
        }
        // Rule: a level is written after the one below it, as its pointers have the checksums of that one.
        assert!(self.dirty_indirect.is_empty(), "each changed indirect block is written");
        Ok(())
    }

    fn fill_count(&self, content: &[u8], seat: IndirectId) -> Result<u64> {
        let mut fill = 0_u64;
        for slot in 0..content.len() / Blkptr::SIZE {
            let place: Zbookmark = self.base.zbookmark(seat.0, seat.1);
            let child = parse_child(content, Order::Little, slot)
                .map_err(|error| Error::Corrupt { zbookmark: place, why: error })?;
            fill = add_fill(fill, &child, place)?;
        }
        Ok(fill)
    }
}

/// The number of blocks that a worker gets at a time: adjacent blocks are written together, but no
/// worker may be idle.
fn run_length(todo: &[(&PendingBlock, Blkptr)], workers: usize) -> usize {
    /// Bytes of blocks that may be adjacent on the drives.
    const MAX_RUN_BYTES: usize = 1 << 20;
    let size = todo.first().map_or(1, |(job, _)| job.content.len()).max(1);
    let share = todo.len().div_ceil(workers.max(1));
    MAX_RUN_BYTES.checked_div(size).unwrap_or(1).min(share).max(1)
}

/// The children of a damaged block: none can be found.
fn skip_if_damaged(error: Error) -> Result<Vec<u8>> {
    let is_damage = match &error {
        Error::Read { source } => !source.is_unavailable(),
        Error::Corrupt { .. } | Error::Mismatch { .. } => true,
        _ => false,
    };
    if is_damage { Ok(Vec::new()) } else { Err(error) }
}

/// Adds the fill count of a pointer, which may have been read from disk.
pub(crate) fn add_fill(fill: u64, pointer: &Blkptr, zbookmark: Zbookmark) -> Result<u64> {
    let rule = "the fill counts of an indirect block fit 64 bits";
    let place = ondisk::Reader::new("indirect block", &[], Order::Little);
    fill.checked_add(pointer.fill()).ok_or_else(|| Error::Corrupt {
        zbookmark,
        why: place.corrupt_field(0, rule, pointer.fill()),
    })
}

fn store_pointer(content: &mut [u8], slot: usize, pointer: &Blkptr) {
    let start = slot * Blkptr::SIZE;
    let length = content.len();
    assert!(
        start + Blkptr::SIZE <= length,
        "slot {slot} is in an indirect block of {length} bytes"
    );
    if let Some(place) = content.get_mut(start..start + Blkptr::SIZE) {
        place.copy_from_slice(&pointer.encode());
    }
}

/// Asserts that a sink returned a pointer to the block that it was given.
pub(super) fn assert_answer(request: &WriteRequest<'_>, pointer: &Blkptr) {
    let Blkptr::Regular(block) = pointer else { return };
    let lsize = request.raw.map_or(units::to_u64(request.data.len()), |raw| raw.lsize.into());
    assert_eq!(u64::from(block.lsize), lsize, "a pointer has the length of its block");
    assert_eq!(
        (block.level, block.kind),
        (request.level, request.kind),
        "a pointer has the place of its block"
    );
    // a block that nopwrite left where it is has its older birth
    if pointer != request.previous {
        assert_eq!(block.birth, request.txg, "a block is born in the txg that writes it");
        assert_eq!(block.fill, request.fill, "a pointer counts what is below it");
    }
}

/// Reports to the ledger that one pointer replaced another.
pub(crate) fn account_replacement(ledger: &dyn BlockLedger, before: &Blkptr, now: &Blkptr) {
    if let (Blkptr::Regular(was), Blkptr::Regular(is)) = (before, now)
        && was.dvas == is.dvas
        && was.birth == is.birth
    {
        ledger.block_rewritten(before, now);
        return;
    }
    if !before.is_hole() {
        ledger.block_kill(before);
    }
    if !now.is_hole() {
        ledger.block_born(now);
    }
}
