//! Freeing what waits for it: the pool's list, the trees of destroyed datasets, the livelists of
//! destroyed clones.
//!
//! Each transaction group frees some blocks. A tree is freed from its first block to its last, each
//! indirect block after all blocks below it, so that the rest can always be read. The tree's entry
//! records the position.

use std::sync::Arc;

use dmu::{BlockVisit, Objset, SpecialObject, WalkControl, WalkOptions};
use ondisk::dsl::{Bptree, BptreeEntry, Dataset as DatasetPhys};
use ondisk::{Blkptr, ObjectType, version};
use units::{BlockId, Level, MinusOrZero, ObjectId, ObjsetId, Txg, Zbookmark};

use super::context::{BPOBJ_BLOCK_SIZE, POOL_DIRECTORY, SyncTaskContext, U64_METADATA};
use super::features::{self, guid};
use super::livelist::DELETED_CLONES;
use super::pool::{FREE_BPOBJ, special_dir};
use super::remap_deadlist::OBSOLETE_BPOBJ;
use super::space::{SpaceDelta, UsedBy};
use super::{bpobj, deadlist};
use crate::block_lists::{bpobj_header, read_bptree, visit_live_blocks};
use crate::{Error, Result};

/// The name of the trees of destroyed datasets.
const BPTREE_OBJ: &str = "bptree_obj";
/// The number that a destroyed dataset's object set has.
const DESTROYED_OBJSET: ObjsetId = ObjsetId::new(u64::MAX);
const BLKPTR_SIZE: u64 = 128;

/// How far freeing has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeProgress {
    /// Blocks that were freed.
    pub blocks: u64,
    /// Whether more waits.
    pub has_more: bool,
    /// Whether some of it cannot be read, and so not be freed.
    pub is_stuck: bool,
}

/// Frees about `most` blocks of those that wait to be freed.
pub fn free_pending(change: &SyncTaskContext<'_>, most: u64) -> Result<FreeProgress> {
    if change.version < version::DEADLISTS {
        // such a pool frees at once, and has no directory that counts waiting blocks
        return Ok(FreeProgress::default());
    }
    let mut work = FreeWork {
        change,
        budget: most,
        freed_space: SpaceDelta::default(),
        blocks: 0,
        is_stuck: false,
    };
    work.drain_free_bpobj()?;
    work.drain_obsolete_bpobj()?;
    work.free_bptree()?;
    work.free_livelists()?;
    let free = special_dir(change, "$FREE")?;
    if work.freed_space != SpaceDelta::default() {
        change.add_space(free, UsedBy::Head, -work.freed_space)?;
    }
    let done = FreeProgress {
        blocks: work.blocks,
        has_more: has_pending_frees(change)?,
        is_stuck: work.is_stuck,
    };
    Ok(done)
}

/// Whether anything waits to be freed.
pub fn has_pending_frees(change: &SyncTaskContext<'_>) -> Result<bool> {
    for name in [BPTREE_OBJ, DELETED_CLONES, OBSOLETE_BPOBJ] {
        if change.lookup_u64(POOL_DIRECTORY, name)?.is_some() {
            return Ok(true);
        }
    }
    match change.lookup_u64(POOL_DIRECTORY, FREE_BPOBJ)? {
        Some(free) => Ok(!bpobj::is_empty(&bpobj_header(change.mos, ObjectId::new(free))?)),
        None => Ok(false),
    }
}

struct FreeWork<'a> {
    change: &'a SyncTaskContext<'a>,
    /// Blocks that may still be freed this time.
    budget: u64,
    freed_space: SpaceDelta,
    blocks: u64,
    is_stuck: bool,
}

impl FreeWork<'_> {
    fn free_block(&mut self, pointer: &Blkptr) -> SpaceDelta {
        let space = self.change.space_of(pointer);
        if matches!(pointer, Blkptr::Regular(_)) {
            (self.change.free_block)(pointer);
        }
        self.freed_space = self.freed_space + space;
        self.budget = self.budget.minus_or_zero(1);
        self.blocks += 1;
        space
    }

    // ---- the list ----

    fn drain_free_bpobj(&mut self) -> Result<()> {
        let Some(free) = self.change.lookup_u64(POOL_DIRECTORY, FREE_BPOBJ)? else { return Ok(()) };
        self.drain_bpobj(ObjectId::new(free), 0, &mut Self::free_block).map(drop)
    }

    /// The list of addresses on removed vdevs that are obsolete: there is one while it is needed.
    fn drain_obsolete_bpobj(&mut self) -> Result<()> {
        let change = self.change;
        let Some(id) = change.lookup_u64(POOL_DIRECTORY, OBSOLETE_BPOBJ)?.map(ObjectId::new) else {
            return Ok(());
        };
        self.drain_bpobj(id, 0, &mut |work, pointer| {
            if let Blkptr::Regular(block) = pointer {
                block.copies().for_each(work.change.mark_obsolete);
            }
            work.budget = work.budget.minus_or_zero(1);
            work.change.space_of(pointer)
        })?;
        if !bpobj::is_empty(&bpobj_header(change.mos, id)?) {
            return Ok(());
        }
        change.remove(POOL_DIRECTORY, OBSOLETE_BPOBJ)?;
        change.free_object(id)?;
        features::decrement(change, guid::OBSOLETE_COUNTS)
    }

    /// Removes the pointers of a list from its end, as `each` decides, and then its sublists from
    /// the last. Returns the space of the removed ones.
    fn drain_bpobj(
        &mut self,
        id: ObjectId,
        depth: usize,
        each: &mut dyn FnMut(&mut Self, &Blkptr) -> SpaceDelta,
    ) -> Result<SpaceDelta> {
        if depth > 256 {
            return Err(Error::Cycle { object: id, links: "lists of block pointers" });
        }
        let change = self.change;
        let header = bpobj_header(change.mos, id)?;
        let take = header.count.min(self.budget);
        let keep = header.count - take;
        // Rule: a block is freed in the txg that takes its pointer off the list. With the pointer left, a crash
        // would have it freed again, when its space belongs to another block.
        let mut freed = SpaceDelta::default();
        let pointers = read_pointers(change, id, keep..header.count)?;
        assert_eq!(bpobj::to_u64(pointers.len()), take, "list {id} has all its pointers read");
        for pointer in pointers {
            freed = freed + each(self, &pointer);
        }
        assert!(
            keep == 0 || self.budget == 0,
            "list {id} keeps {keep} pointers only when the budget is used up, and {} are left of it",
            self.budget
        );
        if take > 0 {
            let object = change.object(id)?;
            object.free_range(change.tx, keep * BLKPTR_SIZE..u64::MAX)?;
            bpobj::update_header(change, id, |header| header.count = keep)?;
        }
        let mut left = header.sublist_count;
        while left > 0 && self.budget > 0 && keep == 0 {
            let last = left - 1;
            let sublist = read_object_id(change, header.sublists, last)?;
            freed = freed + self.drain_bpobj(sublist, depth + 1, each)?;
            if !bpobj::is_empty(&bpobj_header(change.mos, sublist)?) {
                break;
            }
            change.free_object(sublist)?;
            left = last;
        }
        self.truncate_subobjs(id, left)?;
        bpobj::update_header(change, id, |header| {
            let counts = [&mut header.bytes, &mut header.compressed, &mut header.uncompressed];
            (-freed).add_to(counts);
        })?;
        Ok(freed)
    }

    /// Truncates a list to this many sublists.
    fn truncate_subobjs(&self, id: ObjectId, left: u64) -> Result<()> {
        let change = self.change;
        let header = bpobj_header(change.mos, id)?;
        if !header.sublists.exists() || left == header.sublist_count {
            return Ok(());
        }
        let table = change.object(header.sublists)?;
        let sublists = if left == 0 {
            change.free_object(header.sublists)?;
            ObjectId::META
        } else {
            table.free_range(change.tx, left * 8..u64::MAX)?;
            header.sublists
        };
        bpobj::update_header(change, id, |header| {
            (header.sublists, header.sublist_count) = (sublists, left);
        })
    }

    // ---- trees ----

    fn free_bptree(&mut self) -> Result<()> {
        let change = self.change;
        let Some(id) = change.lookup_u64(POOL_DIRECTORY, BPTREE_OBJ)?.map(ObjectId::new) else {
            return Ok(());
        };
        let (mut header, entries) = read_bptree(change.mos, id)?;
        let (begin, count) = (header.begin, bpobj::to_u64(entries.len()));
        for (at, mut entry) in (begin..).zip(entries) {
            if self.budget == 0 {
                break;
            }
            let before = self.freed_space;
            let done = self.free_tree(&mut entry);
            let freed = self.freed_space - before;
            let counts = [&mut header.bytes, &mut header.compressed, &mut header.uncompressed];
            (-freed).add_to(counts);
            let size = bpobj::to_u64(BptreeEntry::SIZE);
            let object = change.object(id)?;
            match done {
                // a finished one that waits behind a stuck one is empty
                TreeStatus::Complete if self.is_stuck => entry.birth = Txg::new(u64::MAX),
                TreeStatus::Complete => header.begin += 1,
                TreeStatus::Partial => {}
                TreeStatus::Unreadable => self.is_stuck = true,
            }
            object.write(change.tx, at * size, &entry.encode())?;
            object.set_bonus(change.tx, U64_METADATA, &header.encode())?;
        }
        assert!(
            header.begin - begin <= count,
            "{} trees are freed of {count} that wait",
            header.begin - begin
        );
        if header.begin == header.end {
            features::decrement(change, guid::ASYNC_DESTROY)?;
            change.remove(POOL_DIRECTORY, BPTREE_OBJ)?;
            change.free_object(id)?;
        }
        Ok(())
    }

    /// Frees a tree, or some of it.
    fn free_tree(&mut self, entry: &mut BptreeEntry) -> TreeStatus {
        if entry.root.is_hole() || entry.root.birth() <= entry.birth {
            return TreeStatus::Complete;
        }
        let source = Arc::clone(self.change.raw_source);
        let Ok(objset) = Objset::open(source, DESTROYED_OBJSET, &entry.root, None) else {
            return TreeStatus::Unreadable;
        };
        let slots =
            objset.special_object(SpecialObject::Meta).map_or(32, |meta| meta.block_size() / 512);
        let resume = (entry.resume != [0; 4]).then(|| {
            let [_, object, _, block] = entry.resume;
            (ObjectId::new(object), block)
        });
        let next = resume.map_or(1, |(object, _)| object.get());
        let (slots, above) = (slots.into(), Vec::new());
        let mut walk = TreeWalk {
            work: self,
            dnodes_per_block: slots,
            resume,
            next_object: next,
            pending_parents: above,
        };
        let plan = WalkOptions { born_after: entry.birth, ..WalkOptions::default() };
        let mut stop = None;
        objset.walk(&plan, &mut |zbookmark, found| match walk.visit(zbookmark, &found) {
            WalkStep::Continue(next) => next,
            WalkStep::Stop(zbookmark, why) => {
                stop = Some((zbookmark, why));
                WalkControl::Stop
            }
        });
        let Some((zbookmark, why)) = stop else {
            walk.free_remaining_parents();
            return TreeStatus::Complete;
        };
        entry.resume = [DESTROYED_OBJSET.get(), zbookmark.object.get(), 0, zbookmark.block.get()];
        why
    }

    // ---- livelists ----

    fn free_livelists(&mut self) -> Result<()> {
        let change = self.change;
        let Some(set) = change.lookup_u64(POOL_DIRECTORY, DELETED_CLONES)?.map(ObjectId::new)
        else {
            return Ok(());
        };
        for livelist in change.zap_u64s(set)?.into_iter().map(ObjectId::new) {
            while self.budget > 0 {
                let Some((start, part)) = deadlist::entries(change, livelist)?.first().copied()
                else {
                    break;
                };
                visit_live_blocks(change.mos, part, &mut |pointer| {
                    self.free_block(pointer);
                })?;
                deadlist::remove_entry(change, livelist, start)?;
            }
            if !deadlist::entries(change, livelist)?.is_empty() {
                return Ok(());
            }
            change.remove_member(set, livelist.get())?;
            deadlist::free(change, livelist)?;
            features::decrement(change, guid::LIVELIST)?;
        }
        change.remove(POOL_DIRECTORY, DELETED_CLONES)?;
        change.free_object(set)
    }
}

/// How far the freeing of a tree has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TreeStatus {
    Complete,
    Partial,
    /// Something cannot be read.
    Unreadable,
}

enum WalkStep {
    Continue(WalkControl),
    Stop(Zbookmark, TreeStatus),
}

/// Frees the blocks of a tree in the order of the walk, and indirect blocks after their children.
struct TreeWalk<'a, 'b> {
    work: &'a mut FreeWork<'b>,
    /// Dnodes in a block of them.
    dnodes_per_block: u64,
    /// All blocks before this one are freed. Where the real system stopped at a block of dnodes, all
    /// below that is freed, too.
    resume: Option<(ObjectId, u64)>,
    /// All objects before this one are freed, where the walk is between two of them.
    next_object: u64,
    /// The root, and the blocks below which freeing continues.
    pending_parents: Vec<(Zbookmark, Blkptr)>,
}

impl TreeWalk<'_, '_> {
    fn visit(&mut self, zbookmark: Zbookmark, found: &BlockVisit<'_>) -> WalkStep {
        let pointer = match found {
            BlockVisit::Pointer(pointer) => *pointer,
            BlockVisit::Error(_) => return self.stop_at_unreadable(zbookmark),
        };
        if pointer.kind() == ObjectType::OBJSET && self.pending_parents.is_empty() {
            self.pending_parents.push((zbookmark, pointer.clone()));
            return WalkStep::Continue(WalkControl::Descend);
        }
        if self.is_already_freed(zbookmark, pointer) {
            return WalkStep::Continue(WalkControl::SkipChildren);
        }
        // Rule: an indirect block is freed after all blocks below it. A later txg continues the walk from the root,
        // and needs all indirect blocks above the rest.
        self.free_finished_parents(zbookmark);
        let meta = zbookmark.object == ObjectId::META;
        if !meta {
            self.next_object = zbookmark.object.get().saturating_add(1);
        }
        if zbookmark.level.get() > 0 || meta {
            self.pending_parents.push((zbookmark, pointer.clone()));
            return WalkStep::Continue(WalkControl::Descend);
        }
        if self.work.budget == 0 {
            return WalkStep::Stop(zbookmark, TreeStatus::Partial);
        }
        self.work.free_block(pointer);
        WalkStep::Continue(WalkControl::Descend)
    }

    /// The walk fails at a place: the blocks behind it are freed, and the next attempt begins
    /// there.
    fn stop_at_unreadable(&mut self, zbookmark: Zbookmark) -> WalkStep {
        let mut resume = first_data_block(zbookmark, &self.pending_parents);
        // the root's place is that of the first block of dnodes
        let stays = self.pending_parents.iter().skip(1).position(|(known, _)| *known == zbookmark);
        if let Some(at) = stays {
            self.pending_parents.remove(at + 1);
        }
        self.free_finished_parents(zbookmark);
        if zbookmark.object == ObjectId::META {
            // never as the position of a dnode block: that would mean that all below it is freed
            let first = resume.block.get().saturating_mul(self.dnodes_per_block);
            let done = first.max(self.next_object);
            resume =
                Zbookmark { object: ObjectId::new(done.max(1)), block: BlockId::new(0), ..resume };
        }
        WalkStep::Stop(resume, TreeStatus::Unreadable)
    }

    /// Frees the blocks whose children are all freed when the walk comes to `next`.
    fn free_finished_parents(&mut self, next: Zbookmark) {
        while self.pending_parents.len() > 1 {
            let Some((zbookmark, _)) = self.pending_parents.last() else { return };
            let below = if zbookmark.object == next.object {
                next.level < zbookmark.level
            } else {
                zbookmark.object == ObjectId::META && !is_accounting_object(next.object)
            };
            if below {
                return;
            }
            if let Some((_, pointer)) = self.pending_parents.pop() {
                self.work.free_block(&pointer);
            }
        }
    }

    fn free_remaining_parents(&mut self) {
        while let Some((_, pointer)) = self.pending_parents.pop() {
            self.work.free_block(&pointer);
        }
    }

    /// Whether a block and all below it was freed before.
    fn is_already_freed(&self, zbookmark: Zbookmark, pointer: &Blkptr) -> bool {
        let Some((object, block)) = self.resume else { return false };
        let fan_out = u64::from(pointer.lsize()) / BLKPTR_SIZE;
        let end = first_block_below(zbookmark.block.get() + 1, fan_out, zbookmark.level);
        match (zbookmark.object, object) {
            (ObjectId::META, ObjectId::META) => end <= block,
            (here, ObjectId::META) => {
                !is_accounting_object(here) && here.get() / self.dnodes_per_block <= block
            }
            (ObjectId::META, _) => end <= object.get() / self.dnodes_per_block,
            (here, there) if here == there => end <= block,
            (here, there) => here < there,
        }
    }
}

/// The tables of space by owner, which come after all other objects.
fn is_accounting_object(object: ObjectId) -> bool {
    object.get() > u64::MAX.wrapping_sub(8)
}

/// The first data block below a block of a level; the largest number if a damaged tree leads further.
fn first_block_below(block: u64, fan_out: u64, level: Level) -> u64 {
    block.saturating_mul(fan_out.saturating_pow(level.get().into()))
}

/// The first data block below a place at which the walk cannot go on.
fn first_data_block(zbookmark: Zbookmark, above: &[(Zbookmark, Blkptr)]) -> Zbookmark {
    // the first is the root, which has no fan-out
    let size = above.iter().skip(1).find(|(known, _)| known.object == zbookmark.object);
    let fan_out = size.map_or(1024, |(_, pointer)| u64::from(pointer.lsize()) / BLKPTR_SIZE);
    let block = first_block_below(zbookmark.block.get(), fan_out, zbookmark.level);
    Zbookmark { level: Level::new(0), block: BlockId::new(block), ..zbookmark }
}

/// Hands a destroyed head's tree to the pool.
pub(crate) fn queue_tree(
    change: &SyncTaskContext<'_>,
    head: &DatasetPhys,
    space: SpaceDelta,
) -> Result<()> {
    let trees = if let Some(trees) = change.lookup_u64(POOL_DIRECTORY, BPTREE_OBJ)? {
        ObjectId::new(trees)
    } else {
        features::increment(change, guid::ASYNC_DESTROY)?;
        let header = Bptree::default().encode();
        let trees = change.create_object(U64_METADATA, BPOBJ_BLOCK_SIZE, U64_METADATA, header)?;
        change.insert_u64(POOL_DIRECTORY, BPTREE_OBJ, trees.get())?;
        trees
    };
    let (mut header, _) = read_bptree(change.mos, trees)?;
    let entry = BptreeEntry { root: head.root.clone(), birth: head.previous_txg, resume: [0; 4] };
    let object = change.object(trees)?;
    let size = bpobj::to_u64(BptreeEntry::SIZE);
    object.write(change.tx, header.end * size, &entry.encode())?;
    header.end += 1;
    space.add_to([&mut header.bytes, &mut header.compressed, &mut header.uncompressed]);
    object.set_bonus(change.tx, U64_METADATA, &header.encode())?;
    Ok(())
}

/// Frees a destroyed head's tree at once, where a pool knows of no other way.
pub(crate) fn free_tree_now(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    head: &DatasetPhys,
) -> Result<()> {
    let mut work = FreeWork {
        change,
        budget: u64::MAX,
        freed_space: SpaceDelta::default(),
        blocks: 0,
        is_stuck: false,
    };
    let root = head.root.clone();
    let mut entry = BptreeEntry { root, birth: head.previous_txg, resume: [0; 4] };
    work.free_tree(&mut entry);
    change.add_space(dir, UsedBy::Head, -work.freed_space)
}

/// Pointers of a list.
fn read_pointers(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    range: std::ops::Range<u64>,
) -> Result<Vec<Blkptr>> {
    let object = change.object(id)?;
    let count = units::to_usize(range.end - range.start);
    let mut bytes = vec![0; count * Blkptr::SIZE];
    object.read(range.start * BLKPTR_SIZE, &mut bytes)?;
    let order = object.bonus_order();
    let parse = |bytes: &[u8]| {
        Blkptr::parse(bytes, order).map_err(|error| Error::Corrupt { object: id, why: error })
    };
    bytes.chunks_exact(Blkptr::SIZE).map(parse).collect()
}

fn read_object_id(change: &SyncTaskContext<'_>, table: ObjectId, index: u64) -> Result<ObjectId> {
    let object = change.object(table)?;
    let mut bytes = [0; 8];
    object.read(index * 8, &mut bytes)?;
    Ok(ObjectId::new(match object.bonus_order() {
        ondisk::Order::Little => u64::from_le_bytes(bytes),
        ondisk::Order::Big => u64::from_be_bytes(bytes),
    }))
}
