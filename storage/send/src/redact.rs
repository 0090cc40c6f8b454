//! The blocks of a snapshot that a redacted stream leaves out: those that every redaction snapshot changed.
//!
//! Each redaction snapshot is one of a clone. Its changes are ranges of blocks in the order of a walk: blocks and holes
//! that are newer than the redacted snapshot, and whole objects that were removed. The ranges that all redaction
//! snapshots have in common are cut to the data of the redacted snapshot.

use std::collections::BTreeSet;

use dmu::{Object, Objset, SpecialObject, WalkControl, WalkOptions};
use ondisk::dnode::Dnode;
use ondisk::dsl::RedactedBlocks;
use ondisk::objset::Kind;
use ondisk::{Blkptr, Order};
use units::{BlockId, ObjectId, Txg, Zbookmark};
use zap::Zap;

use crate::Result;
use crate::sender::{block_range, slots_per_block};
use crate::walk::walk_pointers;

/// The table of a file system's special objects.
const MASTER_NODE: ObjectId = ObjectId::new(1);
/// Its entry for the objects that have no name any more (ZFS_UNLINKED_SET).
const UNLINKED_SET: &[u8] = b"DELETE_QUEUE";

/// An object and a block of it. Ranges of blocks can reach over several objects.
type Position = (u64, u64);

/// A range of blocks, from a position to another, which belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BlockRange {
    first: Position,
    last: Position,
}

/// The runs of blocks of `snapshot`, which was taken in txg `taken`, that all of `others` changed. Without any, all of
/// its data.
///
/// # Errors
///
/// A block of an object set cannot be read.
pub fn redacted_blocks(
    snapshot: &Objset,
    taken: Txg,
    others: &[Objset],
) -> Result<Vec<RedactedBlocks>> {
    let mut common = vec![BlockRange { first: (1, 0), last: (u64::MAX, u64::MAX) }];
    for other in others {
        let changed = Changes::of(other, snapshot, taken)?;
        common = intersect(&common, &changed);
    }
    cut_to_data(snapshot, &common)
}

/// The changes of a redaction snapshot.
struct Changes<'a> {
    objset: &'a Objset,
    original: &'a Objset,
    options: WalkOptions,
    unlinked: BTreeSet<u64>,
    ranges: Vec<BlockRange>,
}

impl<'a> Changes<'a> {
    fn of(objset: &'a Objset, original: &'a Objset, taken: Txg) -> Result<Vec<BlockRange>> {
        let options = WalkOptions {
            born_after: taken,
            include_holes: true,
            include_unborn_holes: true,
            start: None,
        };
        let unlinked = unlinked_objects(objset)?;
        let mut changes = Self { objset, original, options, unlinked, ranges: Vec::new() };
        if let Some(meta) = objset.special_object(SpecialObject::Meta) {
            changes.walk(&meta, |changes, at, pointer| changes.visit_meta(&meta, at, pointer))?;
        }
        Ok(changes.ranges)
    }

    fn walk(
        &mut self,
        object: &Object,
        mut visit: impl FnMut(&mut Self, Zbookmark, &Blkptr) -> Result<()>,
    ) -> Result<()> {
        let options = self.options;
        walk_pointers(object, &options, |at, pointer| {
            visit(self, at, pointer).map(|()| WalkControl::Descend)
        })
    }

    fn visit_meta(&mut self, meta: &Object, at: Zbookmark, pointer: &Blkptr) -> Result<()> {
        let slots = slots_per_block(meta);
        match pointer {
            Blkptr::Hole(_) => {
                let Some([first, end]) = block_range(meta.dnode(), at) else { return Ok(()) };
                // an end that overflows is the end of the array
                let last = end.checked_sub(1).and_then(|last| last.checked_mul(slots));
                let last = last.and_then(|last| last.checked_add(slots - 1)).unwrap_or(u64::MAX);
                let Some(first) = first.checked_mul(slots) else { return Ok(()) };
                self.add((first.max(1), 0), (last, u64::MAX));
                Ok(())
            }
            _ if at.level.get() > 0 => Ok(()),
            _ => self.visit_dnode_block(meta, at.block),
        }
    }

    fn visit_dnode_block(&mut self, meta: &Object, block: BlockId) -> Result<()> {
        let Some(content) = meta.block(block)? else { return Ok(()) };
        let (mut rest, mut number) = (&*content, block.get() * slots_per_block(meta));
        while !rest.is_empty() {
            let zbookmark = meta.zbookmark(block);
            let dnode = Dnode::parse(rest, Order::Little)
                .map_err(|why| dmu::Error::Corrupt { zbookmark, why })?;
            let slots = dnode.as_ref().map_or(1, |dnode| dnode.slots);
            match dnode {
                // the array's own dnode is not an object
                _ if number == 0 => {}
                None => self.add((number, 0), (number, u64::MAX)),
                Some(dnode) => self.visit_object(ObjectId::new(number), dnode)?,
            }
            number += u64::from(slots);
            rest = rest.get(usize::from(slots) * Dnode::SLOT..).unwrap_or_default();
        }
        Ok(())
    }

    fn visit_object(&mut self, id: ObjectId, dnode: Dnode) -> Result<()> {
        let number = id.get();
        let before = match self.original.object(id) {
            Ok(object) => object.block_size(),
            Err(dmu::Error::NoSuchObject { .. }) => return Ok(()),
            Err(why) => return Err(why.into()),
        };
        // an object with blocks of another size was made anew, or had one block, which was written again
        if self.unlinked.contains(&number) || before != dnode.block_size {
            self.add((number, 0), (number, u64::MAX));
            return Ok(());
        }
        let object = self.objset.object_with_dnode(id, dnode);
        self.walk(&object, |changes, at, pointer| {
            if at.block == dmu::SPILL_BLOCK || (at.level.get() > 0 && !pointer.is_hole()) {
                return Ok(());
            }
            if let Some([first, end]) = block_range(object.dnode(), at) {
                changes.add((number, first), (number, end.wrapping_sub(1)));
            }
            Ok(())
        })
    }

    /// Adds a range behind the others. Ranges that touch one another become one.
    fn add(&mut self, first: Position, last: Position) {
        if let Some(before) = self.ranges.last_mut()
            && (first <= before.last || follows(before.last, first))
        {
            before.last = before.last.max(last);
            return;
        }
        self.ranges.push(BlockRange { first, last });
    }
}

/// Whether a position follows another one without a gap.
fn follows(before: Position, position: Position) -> bool {
    match before.1.checked_add(1) {
        Some(next) => position == (before.0, next),
        None => position.1 == 0 && before.0.checked_add(1) == Some(position.0),
    }
}

/// The files that have no name any more. A clone of a snapshot can still have their objects.
fn unlinked_objects(objset: &Objset) -> Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    if objset.header().kind != Kind::Filesystem {
        return Ok(found);
    }
    let master = Zap::open(objset.object(MASTER_NODE)?)?;
    let Some(set) = master.lookup_u64(UNLINKED_SET)? else { return Ok(found) };
    for entry in Zap::open(objset.object(ObjectId::new(set))?)?.entries() {
        found.extend(entry?.value.u64());
    }
    Ok(found)
}

/// The positions that are in a range of both lists.
fn intersect(a: &[BlockRange], b: &[BlockRange]) -> Vec<BlockRange> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut common = Vec::new();
    while let (Some(one), Some(other)) = (a.peek(), b.peek()) {
        let (first, last) = (one.first.max(other.first), one.last.min(other.last));
        if first <= last {
            common.push(BlockRange { first, last });
        }
        if one.last <= other.last {
            a.next();
        } else {
            b.next();
        }
    }
    common
}

/// The runs of data blocks of a snapshot's objects that are in ranges.
fn cut_to_data(snapshot: &Objset, ranges: &[BlockRange]) -> Result<Vec<RedactedBlocks>> {
    let mut found: Vec<RedactedBlocks> = Vec::new();
    for range in ranges {
        for object in snapshot.objects_from(ObjectId::new(range.first.0)) {
            let (id, dnode) = object?;
            let number = id.get();
            if number > range.last.0 {
                break;
            }
            if dnode.kind.is_metadata() {
                continue;
            }
            let max = dnode.max_block.get();
            let first = if number > range.first.0 { 0 } else { range.first.1 };
            let last = if number < range.last.0 { max } else { range.last.1.min(max) };
            if first <= last {
                push_run(&mut found, id, (first, last), dnode.block_size.into());
            }
        }
    }
    // senders search the list, also those of OpenZFS
    assert!(found.is_sorted_by_key(|run| (run.object, run.first)), "runs are in order");
    Ok(found)
}

fn push_run(
    found: &mut Vec<RedactedBlocks>,
    object: ObjectId,
    (first, last): (u64, u64),
    block_size: u64,
) {
    assert!(first <= last, "a run has blocks");
    let mut at = first;
    loop {
        let count = (last - at + 1).min(RedactedBlocks::MAX_COUNT);
        if let Some(before) = found.last_mut()
            && before.object == object
            && before.first.get() + before.count == at
            && before.count + count <= RedactedBlocks::MAX_COUNT
        {
            before.count += count;
        } else {
            found.push(RedactedBlocks { object, first: BlockId::new(at), count, block_size });
        }
        if last - at < count {
            return;
        }
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockRange, intersect};

    fn range(first: (u64, u64), last: (u64, u64)) -> BlockRange {
        BlockRange { first, last }
    }

    #[test]
    fn common_ranges_reach_over_objects() {
        let whole = [range((1, 0), (u64::MAX, u64::MAX))];
        let some = [range((2, 3), (2, 5)), range((4, 0), (6, u64::MAX))];
        assert_eq!(intersect(&whole, &some), some);
        let other = [range((2, 5), (2, 9)), range((3, 0), (5, 7)), range((9, 0), (9, 1))];
        assert_eq!(intersect(&some, &other), [range((2, 5), (2, 5)), range((4, 0), (5, 7))]);
        assert_eq!(intersect(&some, &[]), []);
    }
}
