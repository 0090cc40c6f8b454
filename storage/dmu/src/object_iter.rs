//! All objects of an object set, streamed.

use ondisk::dnode::Dnode;
use units::{BlockId, Level, ObjectId, Zbookmark};
use zio::Block;

use crate::objset::slots_per_block;
use crate::{Error, Objset, Result};

/// Walks over the array of dnodes.
pub struct ObjectIter {
    objset: Objset,
    first_id: u64,
    /// The block to be looked for next.
    next_block: u64,
    current: Option<DnodeBlockIter>,
}

impl ObjectIter {
    pub(crate) fn new(objset: Objset, first: ObjectId) -> Self {
        let slots = objset.meta().map_or(1, |meta| slots_per_block(meta));
        let first_id = first.get().max(1);
        Self {
            objset,
            first_id,
            next_block: first_id.checked_div(slots).unwrap_or(0),
            current: None,
        }
    }

    /// Finds the next block of dnodes; `None` at the end.
    fn load_next_block(&mut self) -> Option<Result<()>> {
        let tree = self.objset.meta()?;
        while self.next_block < tree.end_block() {
            let block = self.next_block;
            let found = tree.find(0, block).and_then(|spot| {
                let above = tree.shape.ancestor(spot.level, block);
                let end = tree.shape.end_data_block(spot.level, above);
                let hole = spot.pointer.is_hole();
                let content = if hole { None } else { self.objset.dnode_block(block)? };
                Ok((content, end))
            });
            match found {
                Ok((content, end)) => {
                    self.next_block = end.max(block + 1);
                    if let Some(content) = content {
                        let first = block * slots_per_block(tree);
                        self.current = Some(DnodeBlockIter::new(self.objset.id(), content, first));
                        return Some(Ok(()));
                    }
                }
                Err(error) => {
                    self.next_block = tree.resume_block_after(&error, block);
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Iterator for ObjectIter {
    type Item = Result<(ObjectId, Dnode)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(dnodes) = &mut self.current {
                match dnodes.next_from(self.first_id) {
                    Some(found) => return Some(found),
                    None => self.current = None,
                }
            }
            if let Err(error) = self.load_next_block()? {
                return Some(Err(error));
            }
        }
    }
}

/// The dnodes of one block.
pub(crate) struct DnodeBlockIter {
    objset: units::ObjsetId,
    content: Block,
    first_id: u64,
    slot: usize,
}

impl DnodeBlockIter {
    pub(crate) fn new(objset: units::ObjsetId, content: Block, first_id: u64) -> Self {
        Self { objset, content, first_id, slot: 0 }
    }

    /// The next dnode whose number is at least `least`.
    pub(crate) fn next_from(&mut self, least: u64) -> Option<Result<(ObjectId, Dnode)>> {
        loop {
            let at = self.slot * Dnode::SLOT;
            let rest = self.content.get(at..).filter(|rest| !rest.is_empty())?;
            let number = self.first_id + u64::try_from(self.slot).ok()?;
            let Some(slots) = Dnode::peek_slots(rest) else {
                self.slot += 1;
                continue;
            };
            self.slot += usize::from(slots);
            if number < least {
                continue;
            }
            let id = ObjectId::new(number);
            match Dnode::parse(rest, self.content.order()) {
                Ok(Some(dnode)) => return Some(Ok((id, dnode))),
                Ok(None) => {}
                Err(error) => {
                    let place = Zbookmark::new(self.objset, id, Level::new(0), BlockId::new(0));
                    return Some(Err(Error::Corrupt { zbookmark: place, why: error }));
                }
            }
        }
    }
}
