//! Every block pointer of an object or of an object set, in an order that a [`Place`] can resume.
//!
//! The order: within an object by the first data block below, higher levels first, the spill last.
//! Within an object set: the root, the array of dnodes, after each block of dnodes the objects in
//! it, and after the last the accounting tables by their number.

use std::sync::Arc;

use ondisk::Blkptr;
use ondisk::dnode::Dnode;
use units::{ObjectId, Place, Txg};

use crate::object::{SPILL, judge_spill};
use crate::objects::Dnodes;
use crate::objset::slots;
use crate::tree::{Tree, parse_child};
use crate::{Error, Objset, Special};

/// What to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Only blocks born after this txg, and what is below them; 0: all.
    pub since: Txg,
    /// Show holes too (those born after `since`, if that is not 0).
    pub holes: bool,
    /// Begin with the first pointer at or after this place; `None`: at the start.
    pub from: Option<Place>,
}

/// What is shown.
#[derive(Debug)]
pub enum Found<'a> {
    /// A pointer.
    Pointer(&'a Blkptr),
    /// What is below here cannot be shown.
    Trouble(&'a Error),
}

/// What the visitor wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// What is below, and then the rest.
    Deeper,
    /// The rest, without what is below.
    Skip,
    /// Nothing more.
    Stop,
}

/// A place in the order within an object: first data block, then the higher levels first.
type Key = (u64, u16);
const START: Key = (0, 0);
const LOWEST: u16 = 255;

type Visit<'a> = &'a mut dyn FnMut(Place, Found<'_>) -> Next;

struct Walker<'a> {
    plan: &'a Plan,
    visit: Visit<'a>,
    /// The object set whose array of dnodes is walked, so that its objects are walked too.
    objset: Option<&'a Objset>,
}

/// The end was asked for.
struct Stopped;
type Flow = Result<(), Stopped>;

pub(crate) fn walk_tree(tree: &Arc<Tree>, plan: &Plan, visit: Visit<'_>) -> bool {
    let mut walker = Walker { plan, visit, objset: None };
    let from = plan.from.map_or(START, |place| key_of(tree, place));
    walker.object(tree, from).is_ok()
}

pub(crate) fn walk_objset(objset: &Objset, plan: &Plan, visit: Visit<'_>) -> bool {
    let root = Place::root(objset.id());
    // nothing tells the root's place from that of the first block of dnodes, so begin anew there
    let plan = Plan { from: plan.from.filter(|from| *from != root), ..*plan };
    let mut walker = Walker { plan: &plan, visit, objset: Some(objset) };
    walker.all(objset, root).is_ok()
}

fn key(tree: &Tree, level: u8, block: u64) -> Key {
    (tree.shape.first(level, block), LOWEST.saturating_sub(level.into()))
}

fn key_of(tree: &Tree, place: Place) -> Key {
    if place.block == SPILL && place.level.get() == 0 {
        return (u64::MAX, u16::MAX);
    }
    key(tree, place.level.get(), place.block.get())
}

impl Walker<'_> {
    fn all(&mut self, objset: &Objset, root: Place) -> Flow {
        if self.plan.from.is_none() && !self.show(root, objset.root())? {
            return Ok(());
        }
        if let Some(meta) = objset.meta() {
            let from = match self.plan.from {
                None => START,
                Some(place) if place.object == ObjectId::META => key_of(meta, place),
                Some(place) => {
                    let block = place.object.get().checked_div(slots(meta)).unwrap_or(u64::MAX);
                    (block, u16::MAX)
                }
            };
            self.roots(meta, from)?;
        }
        self.objset = None;
        for which in [Special::ProjectUsed, Special::GroupUsed, Special::UserUsed] {
            if let Some(object) = objset.special(which) {
                self.numbered(&object.tree)?;
            }
        }
        Ok(())
    }

    /// An object, if the walk does not begin behind it.
    fn numbered(&mut self, tree: &Tree) -> Flow {
        match self.plan.from {
            Some(place) if place.object > tree.object => Ok(()),
            Some(place) if place.object == tree.object => self.object(tree, key_of(tree, place)),
            _ => self.object(tree, START),
        }
    }

    fn object(&mut self, tree: &Tree, from: Key) -> Flow {
        self.roots(tree, from)?;
        if let Some(spill) = &tree.dnode.spill {
            let place = tree.place(0, SPILL.get());
            match judge_spill(spill, &tree.dnode, place) {
                Ok(()) => drop(self.show(place, spill)?),
                Err(error) => self.trouble(place, &error)?,
            }
        }
        Ok(())
    }

    fn roots(&mut self, tree: &Tree, from: Key) -> Flow {
        let mut block = 0_u64;
        for pointer in &tree.dnode.pointers {
            self.pointer(tree, pointer, tree.shape.top, block, from)?;
            block = block.saturating_add(1);
        }
        Ok(())
    }

    fn pointer(&mut self, tree: &Tree, pointer: &Blkptr, level: u8, block: u64, from: Key) -> Flow {
        if tree.shape.end(level, block) <= from.0 {
            return Ok(());
        }
        let place = tree.place(level, block);
        if let Err(error) = tree.judge(pointer, level, block) {
            return self.trouble(place, &error);
        }
        let fresh = key(tree, level, block) >= from;
        let deeper = if fresh { self.show(place, pointer)? } else { self.is_due(pointer) };
        let has_below = level > 0 || (self.objset.is_some() && tree.object == ObjectId::META);
        if !deeper || !has_below || !is_block(pointer) {
            return Ok(());
        }
        let content = match tree.fetch(pointer, level, block) {
            Ok(content) => content,
            Err(error) => return self.trouble(place, &error),
        };
        if level == 0 {
            let first = block.saturating_mul(slots(tree));
            return self.dnodes(Dnodes::new(tree.objset, content, first));
        }
        let first = tree.shape.first_child(block);
        let below = level.saturating_sub(1);
        for slot in 0..content.len() / Blkptr::SIZE {
            let block = first.saturating_add(u64::try_from(slot).unwrap_or(u64::MAX));
            match parse_child(&content, content.order(), slot) {
                Ok(child) => self.pointer(tree, &child, below, block, from)?,
                Err(why) => {
                    let place = tree.place(below, block);
                    self.trouble(place, &Error::Corrupt { place, why })?;
                }
            }
        }
        Ok(())
    }

    /// The objects of a block of dnodes.
    fn dnodes(&mut self, mut dnodes: Dnodes) -> Flow {
        let Some(objset) = self.objset else { return Ok(()) };
        let least = self.plan.from.map_or(0, |place| place.object.get()).max(1);
        while let Some(found) = dnodes.next_from(least) {
            match found {
                Ok((id, dnode)) => {
                    if is_empty(&dnode) {
                        continue;
                    }
                    self.numbered(&objset.with(id, dnode).tree)?;
                }
                Err(error) => self.trouble(error.place(), &error)?,
            }
        }
        Ok(())
    }

    /// Whether a pointer, and what is below it, is within the plan.
    fn is_due(&self, pointer: &Blkptr) -> bool {
        self.plan.since.is_zero() || pointer.birth() > self.plan.since
    }

    /// Shows a pointer; gives whether what is below is wanted.
    fn show(&mut self, place: Place, pointer: &Blkptr) -> Result<bool, Stopped> {
        if !self.is_due(pointer) || (pointer.is_hole() && !self.plan.holes) {
            return Ok(false);
        }
        match (self.visit)(place, Found::Pointer(pointer)) {
            Next::Deeper => Ok(true),
            Next::Skip => Ok(false),
            Next::Stop => Err(Stopped),
        }
    }

    fn trouble(&mut self, place: Place, error: &Error) -> Flow {
        match (self.visit)(place, Found::Trouble(error)) {
            Next::Stop => Err(Stopped),
            Next::Deeper | Next::Skip => Ok(()),
        }
    }
}

fn is_block(pointer: &Blkptr) -> bool {
    matches!(pointer, Blkptr::Regular(_) | Blkptr::Embedded(_))
}

/// Whether an object has no blocks and no holes that were ever anything else.
fn is_empty(dnode: &Dnode) -> bool {
    dnode.spill.is_none() && dnode.pointers.iter().all(|pointer| *pointer == Blkptr::EMPTY)
}
