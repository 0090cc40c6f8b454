//! Writing a group's changes out: data, the trees above, dnodes, and last the root block.

mod meta;
mod object;
mod tree_writer;
pub(crate) mod workers;

use std::sync::Arc;

use ondisk::dnode::Dnode;
use ondisk::objset::ObjsetHeader;
use ondisk::{Blkptr, ObjectType, version};
use units::{Level, ObjectId, Txg, Zbookmark};
use zio::{Sink, WritePolicy, WriteRequest};

use crate::dirty::{DirtyObject, DirtyObjset};
use crate::objset::SpecialObject;
use crate::tree::DnodeTree;
use crate::{Error, Objset, Result};

use tree_writer::account_replacement;

/// The accountant of an object set's blocks.
pub trait BlockLedger: Sync {
    /// A block came to be in the group that is written.
    fn block_born(&self, pointer: &Blkptr);

    /// A block is no longer part of the object set. The ledger decides whether its space is free (a
    /// snapshot may reference it), and frees it.
    fn block_kill(&self, pointer: &Blkptr);

    /// The space of a block in its dnode: in a pool, its deflated space, so that parity is not
    /// counted.
    fn dsize(&self, pointer: &Blkptr) -> u64 {
        pointer.allocated()
    }

    /// A block that was born in this group was written again in the same place.
    fn block_rewritten(&self, _before: &Blkptr, _now: &Blkptr) {}
}

/// The block for which a policy is requested.
#[derive(Clone, Copy, Debug)]
pub struct PolicyQuery {
    /// The type of its object.
    pub kind: ObjectType,
    /// Its level.
    pub level: Level,
    /// The checksum's number in the dnode; 0: as the object set's.
    pub checksum: u8,
    /// The compression's number in the dnode; 0: as the object set's.
    pub compression: u8,
}

/// The context of a sync.
#[derive(Clone, Copy)]
pub struct SyncContext<'a> {
    /// The txg; it has no holds any more.
    pub txg: Txg,
    /// Where blocks go.
    pub sink: &'a dyn Sink,
    /// The accountant.
    pub ledger: &'a dyn BlockLedger,
    /// How blocks are to be stored.
    pub policy: &'a (dyn Fn(PolicyQuery) -> WritePolicy + Sync),
    /// How many threads may work.
    pub workers: usize,
    /// The form of dnodes and root blocks by the pool's version and features.
    pub form: Form,
}

/// The form of written blocks, which depends on the pool's version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Bytes of a root block; one that is larger stays so.
    pub root_size: usize,
    /// Dnodes count their space in bytes; in sectors otherwise.
    pub used_in_bytes: bool,
}

impl Default for Form {
    /// The form of current pools.
    fn default() -> Self {
        Self { root_size: ObjsetHeader::SIZE, used_in_bytes: true }
    }
}

impl Form {
    /// The form that a pool's version has, and whether accounts by project are enabled.
    pub const fn of(version: u64, projects: bool) -> Self {
        let root_size = match version {
            ..version::USERSPACE => ObjsetHeader::OLDEST_SIZE,
            _ if projects => ObjsetHeader::SIZE,
            _ => ObjsetHeader::OLD_SIZE,
        };
        Self { root_size, used_in_bytes: version >= version::DEFLATE }
    }

    /// Sets the unit of a dnode's space.
    fn mark(self, dnode: &mut Dnode) {
        dnode.flags.0 = dnode.flags.0 & !1 | u8::from(self.used_in_bytes);
    }
}

/// The result of a txg for an object.
#[derive(Clone, Debug)]
pub struct DnodeChange {
    /// The object.
    pub id: ObjectId,
    /// As it was on the drives before; none if it was not there.
    pub before: Option<Dnode>,
    /// The new dnode; none if the object was freed.
    pub after: Option<Dnode>,
}

/// The result of a sync.
#[derive(Clone, Debug)]
pub struct SyncOutput {
    /// The pointer to the root block.
    pub root: Blkptr,
    /// The objects that were changed.
    pub changed: Vec<DnodeChange>,
}

/// Objects from which a second thread pays off. The txgs of commands have few and small objects.
/// Threads for them take longer to start than to work, and the memory that they leave in the cache
/// is not reused.
const OBJECTS_OF_A_THREAD: usize = 16;

/// An object on its way to the drives.
struct WrittenObject {
    object: Arc<DirtyObject>,
    before: Option<Arc<DnodeTree>>,
    after: Option<Dnode>,
}

impl Objset {
    /// Writes the changes of a txg. `edit` may change the root block before it is written: flags,
    /// the head of the intent log. A further call for the same txg writes the changes since the
    /// last one.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn sync(
        &self,
        syncing: &SyncContext<'_>,
        edit: &mut dyn FnMut(&mut ObjsetHeader),
    ) -> Result<SyncOutput> {
        let root = Zbookmark::root(self.id());
        let overlay = self.overlay().ok_or(Error::ReadOnly { zbookmark: root })?;
        let base = overlay.base();
        let entries = overlay.dirty_objects(syncing.txg);
        let alone = SyncContext { workers: 1, ..*syncing };
        // many objects are shared out among the crew, the blocks of a few are
        let outer = syncing.workers.min(entries.len() / OBJECTS_OF_A_THREAD);
        let (outer, inner) = if outer > 1 { (outer, &alone) } else { (1, syncing) };
        let written = workers::map_parallel(outer, &entries, &|entry| {
            let accounted =
                if SpecialObject::is_special(entry.id) { 0 } else { self.accounted_flags().0 };
            object::write_object(&base, inner, entry, accounted)
        })?;
        // Rule: a pointer is written after its block, from data up to the root block. The checksum in the
        // pointer is known only then, and no state on the drives leads to an unwritten block.
        let mut header = base.header().clone();
        let (special, numbered): (Vec<_>, Vec<_>) =
            written.iter().partition(|written| SpecialObject::from_id(written.object.id).is_some());
        for written in special {
            set_special_dnode(&mut header, written);
        }
        meta::write_dnodes((&base, overlay), syncing, &mut header, &numbered)?;
        edit(&mut header);
        assert_eq!(written.len(), entries.len(), "each dirty object of the txg is written");
        let pointer = write_root(&base, syncing, &header)?;
        let (source, key) = (Arc::clone(base.source()), base.key().cloned());
        let fresh = Self::with_header(source, base.id(), pointer.clone(), header, key)
            .with_raw_mode(base.is_raw());
        let changed = install_synced(overlay, syncing.txg, fresh, written);
        Ok(SyncOutput { root: pointer, changed })
    }
}

fn set_special_dnode(header: &mut ObjsetHeader, written: &WrittenObject) {
    let place = match SpecialObject::from_id(written.object.id) {
        Some(SpecialObject::UserUsed) => &mut header.user_used,
        Some(SpecialObject::GroupUsed) => &mut header.group_used,
        Some(SpecialObject::ProjectUsed) => &mut header.project_used,
        Some(SpecialObject::Meta) | None => return,
    };
    place.clone_from(&written.after);
}

fn write_root(base: &Objset, syncing: &SyncContext<'_>, header: &ObjsetHeader) -> Result<Blkptr> {
    let place = Zbookmark::root(base.id());
    let before = units::to_usize(base.root().lsize());
    let size = if base.root().is_hole() { 0 } else { before };
    let data = header.encode(size.max(syncing.form.root_size));
    let roots = header.meta.as_ref().map_or(&[][..], |meta| &meta.pointers);
    let mut fill = 0;
    for pointer in roots {
        fill = tree_writer::add_fill(fill, pointer, place)?;
    }
    let (kind, level) = (ObjectType::OBJSET, Level::new(0));
    let policy = (syncing.policy)(PolicyQuery { kind, level, checksum: 0, compression: 0 });
    let previous = base.root();
    let request = WriteRequest {
        data: &data,
        kind,
        level,
        fill,
        txg: syncing.txg,
        policy: &policy,
        previous,
        zbookmark: place,
        raw: None,
    };
    let pointer = syncing.sink.write(&request)?;
    tree_writer::assert_answer(&request, &pointer);
    account_replacement(syncing.ledger, previous, &pointer);
    Ok(pointer)
}

/// Puts the written tree under the remaining overlay.
fn install_synced(
    overlay: &DirtyObjset,
    txg: Txg,
    base: Objset,
    written: Vec<WrittenObject>,
) -> Vec<DnodeChange> {
    let mut changed = Vec::with_capacity(written.len());
    let synced: Vec<ObjectId> = written.iter().map(|written| written.object.id).collect();
    for WrittenObject { object: entry, before, after } in &written {
        let before = before.as_ref().map(|tree| tree.dnode.clone());
        changed.push(DnodeChange { id: entry.id, before, after: after.clone() });
    }
    overlay.install_synced(base, txg, &synced, |overlay| {
        for WrittenObject { object: entry, after, .. } in written {
            let tree = after.map(|dnode| overlay.build_tree(entry.id, dnode));
            entry.state.write().finish_txg(txg, tree);
        }
    });
    changed
}

#[cfg(test)]
mod tests;
