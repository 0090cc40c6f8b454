//! An object's tree while it is being written: the indirect blocks that change are in memory.
//!
//! First ranges are cleared, then data blocks are stored and their pointers set, then the indirect
//! blocks are stored level by level, up to the pointers of the dnode.

use std::collections::BTreeMap;
use std::ops::Range;

use ondisk::blkptr::Hole;
use ondisk::dnode::Dnode;
use ondisk::{Blkptr, Order};
use units::{Level, Place};
use zio::{Block, WriteRequest};

use super::{Ledger, Syncing, Wanted, crew};
use crate::shape::Shape;
use crate::tree::{Tree, parse_child};
use crate::{Error, Result};

/// Levels and numbers of indirect blocks.
type Seat = (u8, u64);

/// A tree that is being written.
pub(crate) struct Forest<'a> {
    syncing: &'a Syncing<'a>,
    /// Reads what is on the drives, and knows places.
    below: &'a Tree,
    pub(crate) roots: Vec<Blkptr>,
    pub(crate) levels: u8,
    indirect: BTreeMap<Seat, Vec<u8>>,
    dirty: std::collections::BTreeSet<Seat>,
    /// How much more space it takes than before.
    pub(crate) grown: i64,
}

/// One block that is to be stored.
pub(crate) struct Job {
    pub(crate) block: u64,
    pub(crate) content: Block,
    pub(crate) fill: u64,
}

impl<'a> Forest<'a> {
    /// From the pointers of `dnode`. `below` has a dnode of the same kind and sizes.
    pub(crate) fn new(syncing: &'a Syncing<'a>, below: &'a Tree, dnode: &Dnode) -> Self {
        Self {
            syncing,
            below,
            roots: dnode.pointers.clone(),
            levels: dnode.levels,
            indirect: BTreeMap::new(),
            dirty: std::collections::BTreeSet::new(),
            grown: 0,
        }
    }

    fn dnode(&self) -> &Dnode {
        &self.below.dnode
    }

    fn top(&self) -> u8 {
        self.levels.saturating_sub(1)
    }

    fn shape(&self) -> Shape {
        Shape { top: self.top(), ..self.below.shape }
    }

    /// Adds levels until a block is within reach.
    pub(crate) fn reach(&mut self, block: u64) {
        let roots = u64::try_from(self.roots.len()).unwrap_or(1);
        while self.shape().above(self.top(), block) >= roots && self.levels < Dnode::MAX_LEVELS {
            self.levels = self.levels.saturating_add(1);
            if self.roots.iter().all(|root| *root == Blkptr::EMPTY) {
                continue;
            }
            let mut content = vec![0; self.indirect_size()];
            for (slot, root) in self.roots.iter_mut().enumerate() {
                put(&mut content, slot, &std::mem::replace(root, Blkptr::EMPTY));
            }
            let seat = (self.top(), 0);
            self.indirect.insert(seat, content);
            self.dirty.insert(seat);
        }
    }

    fn indirect_size(&self) -> usize {
        usize::try_from(self.dnode().indirect_size()).unwrap_or(0)
    }

    /// The pointer to a block as it is now.
    fn pointer(&mut self, level: u8, block: u64) -> Result<Blkptr> {
        if level >= self.top() {
            let root = usize::try_from(block).ok().and_then(|at| self.roots.get(at));
            return root.cloned().ok_or(Error::OutOfTree { place: self.below.place(level, block) });
        }
        let shape = self.shape();
        let seat = (level.saturating_add(1), shape.parent(block));
        self.load(seat)?;
        self.child(seat, shape.slot(block))
    }

    fn child(&self, seat: Seat, slot: usize) -> Result<Blkptr> {
        let content = self.indirect.get(&seat).map_or(&[][..], Vec::as_slice);
        parse_child(content, Order::Little, slot)
            .map_err(|why| Error::Corrupt { place: self.below.place(seat.0, seat.1), why })
    }

    /// Brings an indirect block into memory.
    fn load(&mut self, seat: Seat) -> Result<()> {
        if self.indirect.contains_key(&seat) {
            return Ok(());
        }
        let pointer = self.pointer(seat.0, seat.1)?;
        let content = self.read(seat, &pointer)?;
        self.indirect.insert(seat, content);
        Ok(())
    }

    /// What an indirect block has on the drives.
    fn read(&self, seat: Seat, pointer: &Blkptr) -> Result<Vec<u8>> {
        if pointer.is_hole() {
            return Ok(vec![0; self.indirect_size()]);
        }
        Ok(self.below.fetch(pointer, seat.0, seat.1)?.to_vec())
    }

    fn set(&mut self, level: u8, block: u64, pointer: Blkptr) -> Result<()> {
        if level >= self.top() {
            let place = self.below.place(level, block);
            let root = usize::try_from(block).ok().and_then(|at| self.roots.get_mut(at));
            *root.ok_or(Error::OutOfTree { place })? = pointer;
            return Ok(());
        }
        let shape = self.shape();
        let seat = (level.saturating_add(1), shape.parent(block));
        self.load(seat)?;
        if let Some(content) = self.indirect.get_mut(&seat) {
            put(content, shape.slot(block), &pointer);
        }
        self.dirty.insert(seat);
        Ok(())
    }

    /// The hole that a block leaves.
    fn hole(&self, level: u8) -> Blkptr {
        let dnode = self.dnode();
        let lsize = if level == 0 { dnode.block_size } else { dnode.indirect_size() };
        let birth = self.syncing.txg;
        Blkptr::Hole(Hole { birth, level: Level::new(level), lsize, kind: dnode.kind })
    }

    /// Data blocks become holes.
    pub(crate) fn clear(&mut self, range: &Range<u64>) -> Result<()> {
        let top = self.top();
        for block in 0..u64::try_from(self.roots.len()).unwrap_or(0) {
            self.clear_below(top, block, range)?;
        }
        Ok(())
    }

    fn clear_below(&mut self, level: u8, block: u64, range: &Range<u64>) -> Result<()> {
        let shape = self.shape();
        let (first, end) = (shape.first(level, block), shape.end(level, block));
        if end <= range.start || first >= range.end {
            return Ok(());
        }
        let pointer = self.pointer(level, block)?;
        let in_memory = level > 0 && self.indirect.contains_key(&(level, block));
        if pointer.is_hole() && !in_memory {
            return Ok(());
        }
        if range.start <= first && end <= range.end {
            self.kill_tree(level, block, &pointer)?;
            let hole = self.hole(level);
            return self.set(level, block, hole);
        }
        let child = shape.first_child(block);
        let count = u64::try_from(self.indirect_size() / Blkptr::SIZE).unwrap_or(0);
        for below in child..child.saturating_add(count) {
            self.clear_below(level.saturating_sub(1), below, range)?;
        }
        Ok(())
    }

    /// Accounts for the death of a block and of all below it. Where nobody can tell what is below, as
    /// the block that leads there is damaged, that stays allocated: an error here would end the group.
    fn kill_tree(&mut self, level: u8, block: u64, pointer: &Blkptr) -> Result<()> {
        if level > 0 {
            let seat = (level, block);
            // not by the way from the root: that would bring what is dead above it back into memory
            let content = match self.indirect.remove(&seat) {
                Some(content) => content,
                None => self.read(seat, pointer).or_else(nothing_to_follow)?,
            };
            self.dirty.remove(&seat);
            let first = self.shape().first_child(block);
            for slot in 0..content.len() / Blkptr::SIZE {
                let child = parse_child(&content, Order::Little, slot);
                let below = first.saturating_add(u64::try_from(slot).unwrap_or(u64::MAX));
                let level = level.saturating_sub(1);
                let Ok(child) = child else { continue };
                if !child.is_hole() || self.indirect.contains_key(&(level, below)) {
                    self.kill_tree(level, below, &child)?;
                }
            }
        }
        if !pointer.is_hole() {
            self.account(pointer, &Blkptr::EMPTY);
        }
        Ok(())
    }

    /// Everything goes.
    pub(crate) fn kill_all(&mut self) -> Result<()> {
        let top = self.top();
        let roots = self.roots.clone();
        for (block, root) in roots.iter().enumerate() {
            if !root.is_hole() {
                self.kill_tree(top, u64::try_from(block).unwrap_or(u64::MAX), root)?;
            }
        }
        self.roots = vec![Blkptr::EMPTY; roots.len()];
        self.indirect.clear();
        self.dirty.clear();
        Ok(())
    }

    fn account(&mut self, before: &Blkptr, now: &Blkptr) {
        let ledger = self.syncing.ledger;
        let (was, is) = (ledger.size(before), ledger.size(now));
        self.grown = self.grown.saturating_add_unsigned(is).saturating_sub_unsigned(was);
        moved(ledger, before, now);
    }

    /// A data block becomes one that is on the drives already.
    pub(crate) fn share(&mut self, block: u64, pointer: &Blkptr) -> Result<()> {
        let previous = self.pointer(0, block)?;
        self.account(&previous, pointer);
        self.set(0, block, pointer.clone())
    }

    /// Stores data blocks and sets their pointers.
    pub(crate) fn store(&mut self, jobs: &[Job]) -> Result<()> {
        self.store_level(0, jobs)
    }

    fn store_level(&mut self, level: u8, jobs: &[Job]) -> Result<()> {
        let mut todo = Vec::with_capacity(jobs.len());
        for job in jobs {
            todo.push((job, self.pointer(level, job.block)?));
        }
        let dnode = self.dnode();
        let (kind, level_type) = (dnode.kind, Level::new(level));
        let (checksum, compression) = (dnode.checksum, dnode.compression);
        let wanted = Wanted { kind, level: level_type, checksum, compression };
        let policy = (self.syncing.policy)(wanted);
        let (syncing, below) = (self.syncing, self.below);
        let runs: Vec<_> = todo.chunks(run_length(&todo, syncing.workers)).collect();
        let stored = crew::each(syncing.workers, &runs, &|run| {
            let requests = run.iter().map(|(job, previous)| WriteRequest {
                data: &job.content,
                kind,
                level: level_type,
                fill: job.fill,
                txg: syncing.txg,
                policy: &policy,
                previous,
                place: below.place(level, job.block),
            });
            let stored = syncing.sink.write_many(&requests.collect::<Vec<_>>()).into_iter();
            stored.map(|stored| stored.map_err(Error::from)).collect::<Result<Vec<_>>>()
        })?;
        for ((job, previous), pointer) in todo.iter().zip(stored.into_iter().flatten()) {
            if pointer != *previous {
                self.account(previous, &pointer);
                self.set(level, job.block, pointer)?;
            }
        }
        Ok(())
    }

    /// Stores the indirect blocks that changed, from the lowest level up.
    pub(crate) fn finish(&mut self) -> Result<()> {
        for level in 1..=self.top() {
            let seats: Vec<Seat> =
                self.dirty.range((level, 0)..=(level, u64::MAX)).copied().collect();
            let mut jobs = Vec::with_capacity(seats.len());
            for seat in seats {
                self.dirty.remove(&seat);
                let content = self.indirect.remove(&seat).unwrap_or_default();
                let fill = self.fill(&content, seat)?;
                if fill == 0 {
                    let pointer = self.pointer(level, seat.1)?;
                    self.account(&pointer, &Blkptr::EMPTY);
                    let hole = self.hole(level);
                    self.set(level, seat.1, hole)?;
                } else {
                    let content = Block::new(content, Order::Little);
                    jobs.push(Job { block: seat.1, content, fill });
                }
            }
            self.store_level(level, &jobs)?;
        }
        Ok(())
    }

    fn fill(&self, content: &[u8], seat: Seat) -> Result<u64> {
        let mut fill = 0_u64;
        for slot in 0..content.len() / Blkptr::SIZE {
            let place: Place = self.below.place(seat.0, seat.1);
            let child = parse_child(content, Order::Little, slot)
                .map_err(|why| Error::Corrupt { place, why })?;
            fill = fill.saturating_add(child.fill());
        }
        Ok(fill)
    }
}

/// How many blocks are given to one worker at a time: neighbours go out together, but nobody is to
/// be idle.
fn run_length(todo: &[(&Job, Blkptr)], workers: usize) -> usize {
    /// Bytes of blocks that may be neighbours on the drives.
    const TOGETHER: usize = 1 << 20;
    let size = todo.first().map_or(1, |(job, _)| job.content.len()).max(1);
    let share = todo.len().div_ceil(workers.max(1));
    TOGETHER.checked_div(size).unwrap_or(1).min(share).max(1)
}

/// What is below a damaged block: nothing that anybody could find.
fn nothing_to_follow(why: Error) -> Result<Vec<u8>> {
    let is_damage = match &why {
        Error::Read { source } => !source.is_out_of_reach(),
        Error::Corrupt { .. } | Error::Mismatch { .. } => true,
        _ => false,
    };
    if is_damage { Ok(Vec::new()) } else { Err(why) }
}

fn put(content: &mut [u8], slot: usize, pointer: &Blkptr) {
    let start = slot.saturating_mul(Blkptr::SIZE);
    if let Some(place) = content.get_mut(start..start.saturating_add(Blkptr::SIZE)) {
        place.copy_from_slice(&pointer.encode());
    }
}

/// Tells the ledger that one pointer took the place of another.
pub(crate) fn moved(ledger: &dyn Ledger, before: &Blkptr, now: &Blkptr) {
    if let (Blkptr::Regular(was), Blkptr::Regular(is)) = (before, now)
        && was.dvas == is.dvas
        && was.birth == is.birth
    {
        ledger.rewritten(before, now);
        return;
    }
    if !before.is_hole() {
        ledger.kill(before);
    }
    if !now.is_hole() {
        ledger.born(now);
    }
}
