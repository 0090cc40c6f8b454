//! Freeing what waits for it: the pool's list, the trees of destroyed datasets, the livelists of
//! destroyed clones.
//!
//! It is done some blocks at a time, in each transaction group. A tree is freed from its first
//! block to its last, each indirect block after all that is below it, so that what is left can
//! always be read; where it stands is kept in the tree's entry.

use std::sync::Arc;

use dmu::{BlockVisit, Objset, SpecialObject, WalkControl, WalkOptions};
use ondisk::dsl::{Bptree, BptreeEntry, Dataset as DatasetPhys};
use ondisk::{Blkptr, ObjectType, version};
use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};

use super::change::{Change, DIRECTORY, LIST_BLOCK, NUMBERS};
use super::features::{self, guid};
use super::livelist::DELETED;
use super::pool::{FREE_LIST, own_dir};
use super::remapped::OBSOLETE;
use super::space::{For, Space};
use super::{deadlist, list};
use crate::lists::{bpobj_header, bptree, living};
use crate::{Error, Result};

/// The name of the trees of destroyed datasets.
const TREES: &str = "bptree_obj";
/// The number that a destroyed dataset's object set has.
const DESTROYED: ObjsetId = ObjsetId::new(u64::MAX);
const POINTER: u64 = 128;

/// How far freeing has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Released {
    /// Blocks that were freed.
    pub blocks: u64,
    /// Whether more waits.
    pub more: bool,
    /// Whether some of it cannot be read, and so not be freed.
    pub stuck: bool,
}

/// Frees some of what waits to be freed, `most` blocks or so.
pub fn release(change: &Change<'_>, most: u64) -> Result<Released> {
    if change.version < version::DEADLISTS {
        // such a pool frees at once, and has no directory to count what waits
        return Ok(Released::default());
    }
    let mut work = Work { change, left: most, freed: Space::default(), blocks: 0, stuck: false };
    work.list()?;
    work.obsolete()?;
    work.trees()?;
    work.livelists()?;
    let free = own_dir(change, "$FREE")?;
    if work.freed != Space::default() {
        change.add_space(free, For::Head, -work.freed)?;
    }
    let done = Released { blocks: work.blocks, more: waits(change)?, stuck: work.stuck };
    Ok(done)
}

/// Whether anything waits to be freed.
pub fn waits(change: &Change<'_>) -> Result<bool> {
    for name in [TREES, DELETED, OBSOLETE] {
        if change.number(DIRECTORY, name)?.is_some() {
            return Ok(true);
        }
    }
    match change.number(DIRECTORY, FREE_LIST)? {
        Some(free) => Ok(!list::is_empty(&bpobj_header(change.mos, ObjectId::new(free))?)),
        None => Ok(false),
    }
}

struct Work<'a> {
    change: &'a Change<'a>,
    /// Blocks that may still be freed this time.
    left: u64,
    freed: Space,
    blocks: u64,
    stuck: bool,
}

impl Work<'_> {
    fn free(&mut self, pointer: &Blkptr) -> Space {
        let space = self.change.space_of(pointer);
        if matches!(pointer, Blkptr::Regular(_)) {
            (self.change.free)(pointer);
        }
        self.freed = self.freed + space;
        self.left = self.left.saturating_sub(1);
        self.blocks = self.blocks.saturating_add(1);
        space
    }

    // ---- the list ----

    fn list(&mut self) -> Result<()> {
        let Some(free) = self.change.number(DIRECTORY, FREE_LIST)? else { return Ok(()) };
        self.sublist(ObjectId::new(free), 0, &mut Self::free).map(drop)
    }

    /// The list of addresses on removed vdevs that are obsolete: there is one while it is needed.
    fn obsolete(&mut self) -> Result<()> {
        let change = self.change;
        let Some(id) = change.number(DIRECTORY, OBSOLETE)?.map(ObjectId::new) else {
            return Ok(());
        };
        self.sublist(id, 0, &mut |work, pointer| {
            if let Blkptr::Regular(block) = pointer {
                block.copies().for_each(work.change.obsolete);
            }
            work.left = work.left.saturating_sub(1);
            work.change.space_of(pointer)
        })?;
        if !list::is_empty(&bpobj_header(change.mos, id)?) {
            return Ok(());
        }
        change.remove(DIRECTORY, OBSOLETE)?;
        change.free_object(id)?;
        features::take(change, guid::OBSOLETE_COUNTS)
    }

    /// Does away with the pointers of a list, each as `each` says, from its end, and then with its
    /// sublists from the last. Gives the space of those that are gone.
    fn sublist(
        &mut self,
        id: ObjectId,
        depth: usize,
        each: &mut dyn FnMut(&mut Self, &Blkptr) -> Space,
    ) -> Result<Space> {
        if depth > 256 {
            return Err(Error::Circle { object: id, what: "lists of block pointers" });
        }
        let change = self.change;
        let header = bpobj_header(change.mos, id)?;
        let take = header.count.min(self.left);
        let keep = header.count.saturating_sub(take);
        let mut freed = Space::default();
        for pointer in pointers(change, id, keep..header.count)? {
            freed = freed + each(self, &pointer);
        }
        if take > 0 {
            let object = change.object(id)?;
            object.free_range(change.tx, keep.saturating_mul(POINTER)..u64::MAX)?;
            list::change_header(change, id, |header| header.count = keep)?;
        }
        let mut left = header.sublist_count;
        while left > 0 && self.left > 0 && keep == 0 {
            let last = left.saturating_sub(1);
            let sublist = number_at(change, header.sublists, last)?;
            freed = freed + self.sublist(sublist, depth.saturating_add(1), each)?;
            if !list::is_empty(&bpobj_header(change.mos, sublist)?) {
                break;
            }
            change.free_object(sublist)?;
            left = last;
        }
        self.cut_sublists(id, left)?;
        list::change_header(change, id, |header| {
            let counts = [&mut header.bytes, &mut header.compressed, &mut header.uncompressed];
            (-freed).add_to(counts);
        })?;
        Ok(freed)
    }

    /// Leaves a list with so many sublists.
    fn cut_sublists(&self, id: ObjectId, left: u64) -> Result<()> {
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
            table.free_range(change.tx, left.saturating_mul(8)..u64::MAX)?;
            header.sublists
        };
        list::change_header(change, id, |header| {
            (header.sublists, header.sublist_count) = (sublists, left);
        })
    }

    // ---- trees ----

    fn trees(&mut self) -> Result<()> {
        let change = self.change;
        let Some(id) = change.number(DIRECTORY, TREES)?.map(ObjectId::new) else { return Ok(()) };
        let (mut header, entries) = bptree(change.mos, id)?;
        let begin = header.begin;
        let mut at = begin;
        for mut entry in entries {
            if self.left == 0 {
                break;
            }
            let before = self.freed;
            let done = self.tree(&mut entry);
            let freed = self.freed - before;
            let counts = [&mut header.bytes, &mut header.compressed, &mut header.uncompressed];
            (-freed).add_to(counts);
            let size = list::number(BptreeEntry::SIZE);
            let object = change.object(id)?;
            match done {
                // one that is done, but has one before it that is stuck, has nothing any more
                Done::All if self.stuck => entry.birth = Txg::new(u64::MAX),
                Done::All => header.begin = header.begin.saturating_add(1),
                Done::Some => {}
                Done::Stuck => self.stuck = true,
            }
            object.write(change.tx, at.saturating_mul(size), &entry.encode())?;
            object.set_bonus(change.tx, NUMBERS, &header.encode())?;
            at = at.saturating_add(1);
        }
        if header.begin == header.end {
            features::take(change, guid::ASYNC_DESTROY)?;
            change.remove(DIRECTORY, TREES)?;
            change.free_object(id)?;
        }
        Ok(())
    }

    /// Frees a tree, or some of it.
    fn tree(&mut self, entry: &mut BptreeEntry) -> Done {
        if entry.root.is_hole() || entry.root.birth() <= entry.birth {
            return Done::All;
        }
        let source = Arc::clone(self.change.raw);
        let Ok(objset) = Objset::open(source, DESTROYED, &entry.root, None) else {
            return Done::Stuck;
        };
        let slots =
            objset.special_object(SpecialObject::Meta).map_or(32, |meta| meta.block_size() / 512);
        let resume = (entry.resume != [0; 4]).then(|| {
            let [_, object, _, block] = entry.resume;
            (ObjectId::new(object), block)
        });
        let next = resume.map_or(1, |(object, _)| object.get());
        let (slots, above) = (slots.into(), Vec::new());
        let mut walk = TreeWalk { work: self, slots, resume, next, above };
        let plan = WalkOptions { born_after: entry.birth, include_holes: false, start: None };
        let mut stop = None;
        objset.walk(&plan, &mut |place, found| match walk.see(place, &found) {
            Seen::Go(next) => next,
            Seen::Stop(place, why) => {
                stop = Some((place, why));
                WalkControl::Stop
            }
        });
        let Some((place, why)) = stop else {
            walk.finish();
            return Done::All;
        };
        entry.resume = [DESTROYED.get(), place.object.get(), 0, place.block.get()];
        why
    }

    // ---- livelists ----

    fn livelists(&mut self) -> Result<()> {
        let change = self.change;
        let Some(set) = change.number(DIRECTORY, DELETED)?.map(ObjectId::new) else {
            return Ok(());
        };
        for livelist in change.numbers(set)?.into_iter().map(ObjectId::new) {
            while self.left > 0 {
                let Some((start, part)) = deadlist::parts(change, livelist)?.first().copied()
                else {
                    break;
                };
                living(change.mos, part, &mut |pointer| {
                    self.free(pointer);
                })?;
                deadlist::drop_stretch(change, livelist, start)?;
            }
            if !deadlist::parts(change, livelist)?.is_empty() {
                return Ok(());
            }
            change.remove_member(set, livelist.get())?;
            deadlist::release(change, livelist)?;
            features::take(change, guid::LIVELIST)?;
        }
        change.remove(DIRECTORY, DELETED)?;
        change.free_object(set)
    }
}

/// How far the freeing of a tree has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    All,
    Some,
    /// Something cannot be read.
    Stuck,
}

enum Seen {
    Go(WalkControl),
    Stop(Zbookmark, Done),
}

/// Frees the blocks of a tree in the order in which it is walked, those with something below them
/// afterwards.
struct TreeWalk<'a, 'b> {
    work: &'a mut Work<'b>,
    /// Dnodes in a block of them.
    slots: u64,
    /// All blocks before this one are freed. Where the real system stopped at a block of dnodes, all
    /// below that is freed, too.
    resume: Option<(ObjectId, u64)>,
    /// All objects before this one are freed, where the walk is between two of them.
    next: u64,
    /// The root, and blocks below which freeing goes on.
    above: Vec<(Zbookmark, Blkptr)>,
}

impl TreeWalk<'_, '_> {
    fn see(&mut self, place: Zbookmark, found: &BlockVisit<'_>) -> Seen {
        let pointer = match found {
            BlockVisit::Pointer(pointer) => *pointer,
            BlockVisit::Error(_) => return self.stuck(place),
        };
        if pointer.kind() == ObjectType::OBJSET && self.above.is_empty() {
            self.above.push((place, pointer.clone()));
            return Seen::Go(WalkControl::Descend);
        }
        if self.is_done(place, pointer) {
            return Seen::Go(WalkControl::SkipChildren);
        }
        self.leave(place);
        let meta = place.object == ObjectId::META;
        if !meta {
            self.next = place.object.get().saturating_add(1);
        }
        if place.level.get() > 0 || meta {
            self.above.push((place, pointer.clone()));
            return Seen::Go(WalkControl::Descend);
        }
        if self.work.left == 0 {
            return Seen::Stop(place, Done::Some);
        }
        self.work.free(pointer);
        Seen::Go(WalkControl::Descend)
    }

    /// The walk cannot go on at a place: what it has left behind is freed, and it begins there again.
    fn stuck(&mut self, place: Zbookmark) -> Seen {
        let mut resume = first_below(place, &self.above);
        // the root's place is that of the first block of dnodes
        let stays = self.above.iter().skip(1).position(|(known, _)| *known == place);
        if let Some(at) = stays {
            self.above.remove(at.saturating_add(1));
        }
        self.leave(place);
        if place.object == ObjectId::META {
            // never as the place of a block of dnodes: that says that all below it is freed
            let first = resume.block.get().saturating_mul(self.slots);
            let done = first.max(self.next);
            resume =
                Zbookmark { object: ObjectId::new(done.max(1)), block: BlockId::new(0), ..resume };
        }
        Seen::Stop(resume, Done::Stuck)
    }

    /// Frees the blocks below which nothing is left when the walk comes to `next`.
    fn leave(&mut self, next: Zbookmark) {
        while self.above.len() > 1 {
            let Some((place, _)) = self.above.last() else { return };
            let below = if place.object == next.object {
                next.level < place.level
            } else {
                place.object == ObjectId::META && !is_special(next.object)
            };
            if below {
                return;
            }
            if let Some((_, pointer)) = self.above.pop() {
                self.work.free(&pointer);
            }
        }
    }

    fn finish(&mut self) {
        while let Some((_, pointer)) = self.above.pop() {
            self.work.free(&pointer);
        }
    }

    /// Whether a block and all below it was freed before.
    fn is_done(&self, place: Zbookmark, pointer: &Blkptr) -> bool {
        let Some((object, block)) = self.resume else { return false };
        let fan_out = u64::from(pointer.lsize()) / POINTER;
        let span = fan_out.saturating_pow(place.level.get().into());
        let end = place.block.get().saturating_add(1).saturating_mul(span);
        match (place.object, object) {
            (ObjectId::META, ObjectId::META) => end <= block,
            (here, ObjectId::META) => {
                !is_special(here) && here.get() < block.saturating_add(1).saturating_mul(self.slots)
            }
            (ObjectId::META, _) => end.saturating_mul(self.slots) <= object.get(),
            (here, there) if here == there => end <= block,
            (here, there) => here < there,
        }
    }
}

/// The tables of space by owner, which come after all other objects.
fn is_special(object: ObjectId) -> bool {
    object.get() > u64::MAX.wrapping_sub(8)
}

/// The first data block below a place at which the walk cannot go on.
fn first_below(place: Zbookmark, above: &[(Zbookmark, Blkptr)]) -> Zbookmark {
    // the first is the root, which has no fan-out
    let size = above.iter().skip(1).find(|(known, _)| known.object == place.object);
    let fan_out = size.map_or(1024, |(_, pointer)| u64::from(pointer.lsize()) / POINTER);
    let span = fan_out.saturating_pow(place.level.get().into());
    let block = place.block.get().saturating_mul(span);
    Zbookmark { level: Level::new(0), block: BlockId::new(block), ..place }
}

/// Hands a destroyed head's tree to the pool.
pub(crate) fn add_tree(change: &Change<'_>, head: &DatasetPhys, space: Space) -> Result<()> {
    let trees = if let Some(trees) = change.number(DIRECTORY, TREES)? {
        ObjectId::new(trees)
    } else {
        features::add(change, guid::ASYNC_DESTROY)?;
        let header = Bptree::default().encode();
        let trees = change.new_object(NUMBERS, LIST_BLOCK, NUMBERS, header)?;
        change.insert(DIRECTORY, TREES, trees.get())?;
        trees
    };
    let (mut header, _) = bptree(change.mos, trees)?;
    let entry = BptreeEntry { root: head.root.clone(), birth: head.previous_txg, resume: [0; 4] };
    let object = change.object(trees)?;
    let size = list::number(BptreeEntry::SIZE);
    object.write(change.tx, header.end.saturating_mul(size), &entry.encode())?;
    header.end = header.end.saturating_add(1);
    space.add_to([&mut header.bytes, &mut header.compressed, &mut header.uncompressed]);
    object.set_bonus(change.tx, NUMBERS, &header.encode())?;
    Ok(())
}

/// Frees a destroyed head's tree at once, where a pool knows of no other way.
pub(crate) fn free_tree_now(change: &Change<'_>, dir: ObjectId, head: &DatasetPhys) -> Result<()> {
    let mut work =
        Work { change, left: u64::MAX, freed: Space::default(), blocks: 0, stuck: false };
    let root = head.root.clone();
    let mut entry = BptreeEntry { root, birth: head.previous_txg, resume: [0; 4] };
    work.tree(&mut entry);
    change.add_space(dir, For::Head, -work.freed)
}

/// Pointers of a list.
fn pointers(change: &Change<'_>, id: ObjectId, range: std::ops::Range<u64>) -> Result<Vec<Blkptr>> {
    let object = change.object(id)?;
    let count = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
    let mut bytes = vec![0; count.saturating_mul(Blkptr::SIZE)];
    object.read(range.start.saturating_mul(POINTER), &mut bytes)?;
    let order = object.bonus_order();
    let parse = |bytes: &[u8]| {
        Blkptr::parse(bytes, order).map_err(|why| Error::Structure { object: id, why })
    };
    bytes.chunks_exact(Blkptr::SIZE).map(parse).collect()
}

fn number_at(change: &Change<'_>, table: ObjectId, index: u64) -> Result<ObjectId> {
    let object = change.object(table)?;
    let mut bytes = [0; 8];
    object.read(index.saturating_mul(8), &mut bytes)?;
    Ok(ObjectId::new(match object.bonus_order() {
        ondisk::Order::Little => u64::from_le_bytes(bytes),
        ondisk::Order::Big => u64::from_be_bytes(bytes),
    }))
}
