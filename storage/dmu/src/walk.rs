//! Every block pointer of an object or of an object set, in an order that a [`Place`] can resume.
//!
//! The order: within an object by the first data block below, higher levels first, the spill last.
//! Within an object set: the root, the array of dnodes, after each block of dnodes the objects in
//! it, and after the last the accounting tables by their number.

use std::sync::Arc;

use ondisk::Blkptr;
use ondisk::dnode::Dnode;
use units::{ObjectId, Txg, Zbookmark};

use crate::object::{SPILL_BLOCK, validate_spill};
use crate::object_iter::DnodeBlockIter;
use crate::objset::slots_per_block;
use crate::tree::{DnodeTree, parse_child};
use crate::{Error, Objset, SpecialObject};

/// The selection of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkOptions {
    /// Only blocks born after this txg, and what is below them; 0: all.
    pub born_after: Txg,
    /// Show holes too (those born after `since`, if that is not 0).
    pub include_holes: bool,
    /// Visit holes of unknown birth too, whatever `born_after` is.
    pub include_unborn_holes: bool,
    /// Begin with the first pointer at or after this place; `None`: at the start.
    pub start: Option<Zbookmark>,
}

/// An item of the walk.
#[derive(Debug)]
pub enum BlockVisit<'a> {
    /// A pointer.
    Pointer(&'a Blkptr),
    /// The children of this block cannot be read.
    Error(&'a Error),
}

/// The visitor's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkControl {
    /// Visit the children, and then the rest.
    Descend,
    /// Visit the rest, without the children.
    SkipChildren,
    /// Nothing more.
    Stop,
}

/// A place in the order within an object: first data block, then the higher levels first.
type WalkKey = (u64, u16);
const START: WalkKey = (0, 0);
const LEVEL_BASE: u16 = 255;

type Visitor<'a> = &'a mut dyn FnMut(Zbookmark, BlockVisit<'_>) -> WalkControl;

struct Walker<'a> {
    options: &'a WalkOptions,
    visit: Visitor<'a>,
    /// The object set whose array of dnodes is walked, so that its objects are walked too.
    objset: Option<&'a Objset>,
}

/// The visitor stopped the walk.
struct WalkStopped;
type WalkResult = Result<(), WalkStopped>;

pub(crate) fn walk_tree(tree: &Arc<DnodeTree>, plan: &WalkOptions, visit: Visitor<'_>) -> bool {
    let mut walker = Walker { options: plan, visit, objset: None };
    let from = plan.start.map_or(START, |zbookmark| resume_key(tree, zbookmark));
    walker.walk_object(tree, from).is_ok()
}

pub(crate) fn walk_objset(objset: &Objset, plan: &WalkOptions, visit: Visitor<'_>) -> bool {
    let root = Zbookmark::root(objset.id());
    // the root's position equals that of the first dnode block, so begin from the start there
    let plan = WalkOptions { start: plan.start.filter(|from| *from != root), ..*plan };
    let mut walker = Walker { options: &plan, visit, objset: Some(objset) };
    walker.walk_all(objset, root).is_ok()
}

fn walk_key(tree: &DnodeTree, level: u8, block: u64) -> WalkKey {
    (tree.shape.first_data_block(level, block), LEVEL_BASE - u16::from(level))
}

fn resume_key(tree: &DnodeTree, zbookmark: Zbookmark) -> WalkKey {
    if zbookmark.block == SPILL_BLOCK && zbookmark.level.get() == 0 {
        return (u64::MAX, u16::MAX);
    }
    walk_key(tree, zbookmark.level.get(), zbookmark.block.get())
}

impl Walker<'_> {
    fn walk_all(&mut self, objset: &Objset, root: Zbookmark) -> WalkResult {
        if self.options.start.is_none() && !self.visit_pointer(root, objset.root())? {
            return Ok(());
        }
        if let Some(meta) = objset.meta() {
            let from = match self.options.start {
                None => START,
                Some(zbookmark) if zbookmark.object == ObjectId::META => {
                    resume_key(meta, zbookmark)
                }
                Some(zbookmark) => {
                    let block = zbookmark
                        .object
                        .get()
                        .checked_div(slots_per_block(meta))
                        .unwrap_or(u64::MAX);
                    (block, u16::MAX)
                }
            };
            self.walk_dnode_pointers(meta, from)?;
        }
        self.objset = None;
        for which in [SpecialObject::ProjectUsed, SpecialObject::GroupUsed, SpecialObject::UserUsed]
        {
            if let Some(object) = objset.special_object(which) {
                self.walk_object_if_due(&object.tree)?;
            }
        }
        Ok(())
    }

    /// An object, if the walk does not begin behind it.
    fn walk_object_if_due(&mut self, tree: &DnodeTree) -> WalkResult {
        match self.options.start {
            Some(zbookmark) if zbookmark.object > tree.object => Ok(()),
            Some(zbookmark) if zbookmark.object == tree.object => {
                self.walk_object(tree, resume_key(tree, zbookmark))
            }
            _ => self.walk_object(tree, START),
        }
    }

    fn walk_object(&mut self, tree: &DnodeTree, from: WalkKey) -> WalkResult {
        self.walk_dnode_pointers(tree, from)?;
        if let Some(spill) = &tree.dnode.spill {
            let zbookmark = tree.zbookmark(0, SPILL_BLOCK.get());
            match validate_spill(spill, &tree.dnode, zbookmark) {
                Ok(()) => drop(self.visit_pointer(zbookmark, spill)?),
                Err(error) => self.visit_error(zbookmark, &error)?,
            }
        }
        Ok(())
    }

    fn walk_dnode_pointers(&mut self, tree: &DnodeTree, from: WalkKey) -> WalkResult {
        for (block, pointer) in (0..).zip(&tree.dnode.pointers) {
            self.walk_pointer(tree, pointer, tree.shape.top_level, block, from)?;
        }
        Ok(())
    }

    fn walk_pointer(
        &mut self,
        tree: &DnodeTree,
        pointer: &Blkptr,
        level: u8,
        block: u64,
        from: WalkKey,
    ) -> WalkResult {
        if tree.shape.end_data_block(level, block) <= from.0 {
            return Ok(());
        }
        let place = tree.zbookmark(level, block);
        if let Err(error) = tree.validate_pointer(pointer, level, block) {
            return self.visit_error(place, &error);
        }
        let fresh = walk_key(tree, level, block) >= from;
        let deeper =
            if fresh { self.visit_pointer(place, pointer)? } else { self.is_in_range(pointer) };
        let has_below = level > 0 || (self.objset.is_some() && tree.object == ObjectId::META);
        if !deeper || !has_below || !has_block(pointer) {
            return Ok(());
        }
        let content = match tree.fetch(pointer, level, block) {
            Ok(content) => content,
            Err(error) => return self.visit_error(place, &error),
        };
        if level == 0 {
            let first = block.saturating_mul(slots_per_block(tree));
            return self.walk_dnodes(DnodeBlockIter::new(tree.objset, content, first));
        }
        let first = tree.shape.first_child(block);
        let below = level - 1;
        for slot in 0..content.len() / Blkptr::SIZE {
            let block = first.saturating_add(units::to_u64(slot));
            match parse_child(&content, content.order(), slot) {
                Ok(child) => self.walk_pointer(tree, &child, below, block, from)?,
                Err(why) => {
                    let place = tree.zbookmark(below, block);
                    self.visit_error(place, &Error::Corrupt { zbookmark: place, why })?;
                }
            }
        }
        Ok(())
    }

    /// The objects of a block of dnodes.
    fn walk_dnodes(&mut self, mut dnodes: DnodeBlockIter) -> WalkResult {
        let Some(objset) = self.objset else { return Ok(()) };
        let least = self.options.start.map_or(0, |zbookmark| zbookmark.object.get()).max(1);
        while let Some(found) = dnodes.next_from(least) {
            match found {
                Ok((id, dnode)) => {
                    if is_empty(&dnode) {
                        continue;
                    }
                    self.walk_object_if_due(&objset.object_with_dnode(id, dnode).tree)?;
                }
                Err(error) => self.visit_error(error.zbookmark(), &error)?,
            }
        }
        Ok(())
    }

    /// Whether the plan includes a pointer and its children.
    fn is_in_range(&self, pointer: &Blkptr) -> bool {
        let is_unborn_hole = pointer.is_hole() && pointer.birth().is_zero();
        self.options.born_after.is_zero()
            || pointer.birth() > self.options.born_after
            || (self.options.include_unborn_holes && is_unborn_hole)
    }

    /// Visits a pointer; returns whether to visit its children.
    fn visit_pointer(
        &mut self,
        zbookmark: Zbookmark,
        pointer: &Blkptr,
    ) -> Result<bool, WalkStopped> {
        if !self.is_in_range(pointer) || (pointer.is_hole() && !self.options.include_holes) {
            return Ok(false);
        }
        match (self.visit)(zbookmark, BlockVisit::Pointer(pointer)) {
            WalkControl::Descend => Ok(true),
            WalkControl::SkipChildren => Ok(false),
            WalkControl::Stop => Err(WalkStopped),
        }
    }

    fn visit_error(&mut self, zbookmark: Zbookmark, error: &Error) -> WalkResult {
        match (self.visit)(zbookmark, BlockVisit::Error(error)) {
            WalkControl::Stop => Err(WalkStopped),
            WalkControl::Descend | WalkControl::SkipChildren => Ok(()),
        }
    }
}

fn has_block(pointer: &Blkptr) -> bool {
    matches!(pointer, Blkptr::Regular(_) | Blkptr::Embedded(_))
}

/// Whether an object has no blocks and no holes that were ever anything else.
fn is_empty(dnode: &Dnode) -> bool {
    dnode.spill.is_none() && dnode.pointers.iter().all(|pointer| *pointer == Blkptr::EMPTY)
}
