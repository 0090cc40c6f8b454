//! Making and freeing objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::dnode::{Dnode, Flags};
use ondisk::{Blkptr, ObjectType, Order};
use txg::Tx;
use units::{BlockId, ObjectId};

use crate::dirty::record::{BaseReuse, DirtyState, DnodeVersion};
use crate::dirty::{DirtyObject, DirtyObjset};
use crate::objset::slots_per_block;
use crate::{Error, Object, Objset, Result};

/// The options of a new object.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// The type of the object.
    pub kind: ObjectType,
    /// Bytes of a data block: a multiple of 512.
    pub block_size: u32,
    /// log2 of the bytes of an indirect block.
    pub indirect_shift: u8,
    /// The type of the bonus.
    pub bonus_kind: ObjectType,
    /// The bonus.
    pub bonus: Vec<u8>,
    /// Slots of 512 bytes that its dnode takes.
    pub slots: u8,
    /// The checksum's number for its blocks; 0: that of its object set.
    pub checksum: u8,
    /// The compression's number for its blocks; 0: that of its object set.
    pub compression: u8,
    /// The shape of the tree, where it is given: the MACs of a raw stream cover it.
    pub shape: Option<RawShape>,
}

/// The shape of an object that a raw stream brings, which must be that of the sender's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawShape {
    /// Height of the tree.
    pub levels: u8,
    /// Pointers in the dnode.
    pub pointers: u8,
    /// The number of the last data block.
    pub max_block: u64,
    /// The bytes behind the bonus in its area.
    pub bonus_tail: Vec<u8>,
}

impl NewObject {
    /// One without a bonus, in a dnode of 512 bytes.
    pub const fn new(kind: ObjectType, block_size: u32) -> Self {
        Self {
            kind,
            block_size,
            indirect_shift: 17,
            bonus_kind: ObjectType::NONE,
            bonus: Vec::new(),
            slots: 1,
            checksum: 0,
            compression: 0,
            shape: None,
        }
    }

    /// The same with a bonus.
    #[must_use]
    pub fn with_bonus(mut self, kind: ObjectType, bytes: Vec<u8>) -> Self {
        self.bonus_kind = kind;
        self.bonus = bytes;
        self
    }

    /// The dnode of an empty object, with the most pointers that fit.
    pub(crate) fn empty_dnode(&self) -> Dnode {
        let room = usize::from(self.slots) * Dnode::SLOT;
        let room = (room - Dnode::CORE) - Blkptr::SIZE;
        let spare = (room - self.bonus.len()).checked_div(Blkptr::SIZE).unwrap_or(0);
        let pointers = match self.bonus_kind {
            // the space behind the bonus belongs to the spill pointer
            ObjectType::SA => 1,
            _ => (spare + 1).min(Dnode::MAX_POINTERS.into()),
        };
        let shape = self.shape.as_ref();
        let pointers = shape.map_or(pointers, |shape| usize::from(shape.pointers));
        Dnode {
            kind: self.kind,
            indirect_shift: self.indirect_shift,
            levels: shape.map_or(1, |shape| shape.levels),
            bonus_kind: self.bonus_kind,
            checksum: self.checksum,
            compression: self.compression,
            flags: Flags(1),
            block_size: self.block_size.next_multiple_of(512).max(512),
            slots: self.slots.max(1),
            max_block: BlockId::new(shape.map_or(0, |shape| shape.max_block)),
            used_bytes: 0,
            pointers: vec![Blkptr::EMPTY; pointers],
            bonus: self.bonus.clone(),
            bonus_tail: shape.map_or_else(Vec::new, |shape| shape.bonus_tail.clone()),
            spill: None,
            order: Order::Little,
        }
    }
}

impl Objset {
    fn require_writable(&self) -> Result<&Arc<DirtyObjset>> {
        self.overlay().ok_or(Error::ReadOnly { zbookmark: units::Zbookmark::root(self.id()) })
    }

    /// Makes an object; its number is one that is free.
    pub fn create(&self, tx: &Tx, new: &NewObject) -> Result<Object> {
        let overlay = self.require_writable()?;
        let id = overlay.allocate_object_id(new.slots.max(1))?;
        let entry = overlay.find_or_load(id)?;
        Ok(self.init_object(overlay, tx, &entry, new.empty_dnode()))
    }

    /// Makes new objects get numbers after the last ones of `other`.
    pub fn skip_object_ids_of(&self, other: &Self) {
        if let (Some(overlay), Some(other)) = (self.overlay(), other.overlay()) {
            let next = other.id_search.lock().next_id;
            let mut own = overlay.id_search.lock();
            own.next_id = next.max(own.next_id);
        }
    }

    /// Makes an object of a certain number, which must be free.
    pub fn create_at(&self, tx: &Tx, id: ObjectId, new: &NewObject) -> Result<Object> {
        let overlay = self.require_writable()?;
        let entry = overlay.find_or_load(id)?;
        if entry.state.read().dnode().is_some() {
            return Err(Error::Exists { zbookmark: crate::dnode_zbookmark(self.id(), id) });
        }
        overlay.claim_slots(id, new.slots.max(1));
        Ok(self.init_object(overlay, tx, &entry, new.empty_dnode()))
    }

    /// Makes one of the objects that stand in the root block.
    pub(crate) fn init_object(
        &self,
        overlay: &Arc<DirtyObjset>,
        tx: &Tx,
        entry: &Arc<DirtyObject>,
        dnode: Dnode,
    ) -> Object {
        let mut state = entry.state.write();
        let fresh = DnodeVersion { dnode: Some(dnode.clone()), reuse: BaseReuse::Nothing };
        let (_, versions) =
            DirtyState::versions_from(state.dnode_versions_mut(), tx.txg(), |_| fresh.clone());
        for (_, version) in versions {
            *version = fresh.clone();
        }
        drop(state);
        tx.add_dirty(512);
        // Rule W5: the version comes first, the mark second, both under the hold of the Tx. The sync lists the
        // marks once no hold is left, so it finds each version.
        overlay.mark_dirty(tx.txg(), entry);
        Object::new_writable(self.clone(), overlay.build_tree(entry.id, dnode), Arc::clone(entry))
    }

    /// Frees an object and all that is in it.
    pub fn free(&self, tx: &Tx, id: ObjectId) -> Result<()> {
        let overlay = self.require_writable()?;
        let (entry, _) = overlay.existing_object(id)?;
        let mut state = entry.state.write();
        let gone = DnodeVersion { dnode: None, reuse: BaseReuse::Nothing };
        let (_, versions) =
            DirtyState::versions_from(state.dnode_versions_mut(), tx.txg(), |_| gone.clone());
        for (_, version) in versions {
            *version = gone.clone();
        }
        // Versions of earlier txgs stay: their syncs are due, and a crash after one of them must find the
        // object as it was then. Versions of this txg go, and so do their eagerly written blocks.
        state.drop_block_versions(tx.txg(), 0..u64::MAX);
        state.spill.retain(|(known, _)| *known < tx.txg());
        drop(state);
        tx.add_dirty(512);
        overlay.mark_dirty(tx.txg(), &entry);
        Ok(())
    }
}

impl DirtyObjset {
    /// A number whose slots are all free.
    fn allocate_object_id(&self, wanted: u8) -> Result<ObjectId> {
        let per_block = self.base().meta().map_or(32, |meta| slots_per_block(meta)).max(1);
        let mut search = self.id_search.lock();
        search.full_count = search.full_count.min(per_block);
        loop {
            let block = search.next_id.checked_div(per_block).unwrap_or(0);
            let first = block * per_block;
            let start = search.next_id - first;
            let after = first + per_block;
            let Some((fill, taken)) = self.used_slots(block, per_block, search.full_count)? else {
                search.next_id = after;
                continue;
            };
            let fits = |at: &u64| {
                let end = at + u64::from(wanted);
                end <= per_block && (*at..end).all(|slot| !taken.contains(&slot))
            };
            if let Some(at) = (start..per_block).find(fits) {
                let id = first + at;
                search.next_id = id + u64::from(wanted);
                let id = ObjectId::new(id);
                assert_ne!(id, ObjectId::META, "the meta-dnode is no free object");
                // Rule: the slots are claimed before the search lock is released. The drives show them as
                // free until the sync, and a second search would give the number to another object.
                let claimed = self.claim_slots(id, wanted);
                assert_eq!(claimed, None, "a free object number is claimed once");
                return Ok(id);
            }
            if start == 0 && fill > 0 {
                search.full_count = fill;
            }
            search.next_id = after;
        }
    }

    /// How many objects a block of dnodes has on the drives, and which of its slots are taken; none if
    /// there are as many as in one that is `full`. Groups are written meanwhile.
    fn used_slots(
        &self,
        block: u64,
        per_block: u64,
        full: u64,
    ) -> Result<Option<(u64, BTreeSet<u64>)>> {
        let first = block * per_block;
        loop {
            // Rule: read the claims before the drives. A sync moves a slot from the claims to the drives.
            // In the other order a sync in between would hide the slot from both reads.
            let (noted, epoch) = self.claimed_slots(first..first + per_block);
            let found = match used_slots_on_disk(&self.base(), block, per_block, full) {
                // the block may have been freed and overwritten while it was read
                Err(_) if !self.is_current_epoch(epoch) => continue,
                found => found?,
            };
            return Ok(found.map(|(fill, mut taken)| {
                taken.extend(noted);
                (fill, taken)
            }));
        }
    }
}

/// Whether the drives have the slots free.
fn used_slots_on_disk(
    base: &Objset,
    block: u64,
    per_block: u64,
    full: u64,
) -> Result<Option<(u64, BTreeSet<u64>)>> {
    let mut taken = BTreeSet::new();
    let fill = match base.meta().filter(|meta| block < meta.end_block()) {
        Some(meta) => meta.find(0, block)?.pointer.fill(),
        None => 0,
    };
    if fill >= full {
        return Ok(None);
    }
    if fill == 0 {
        return Ok(Some((fill, taken)));
    }
    let Some(content) = base.dnode_block(block)? else { return Ok(Some((fill, taken))) };
    let mut at = 0_u64;
    while at < per_block {
        let byte = units::to_usize(at) * Dnode::SLOT;
        match Dnode::peek_slots(content.get(byte..).unwrap_or_default()) {
            Some(slots) => {
                let end = at + u64::from(slots);
                taken.extend(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
    Ok(Some((fill, taken)))
}
