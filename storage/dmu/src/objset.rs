//! An object set: from its root block to its objects.

use std::sync::Arc;

use ondisk::dnode::Dnode;
use ondisk::objset::{Flags, Kind, LogHeader, ObjsetHeader};
use ondisk::{Blkptr, ObjectType};
use units::{BlockId, Level, ObjectId, ObjsetId, Zbookmark};
use zio::{Block, Key, Source};

use crate::dirty::{DirtyObjset, NewObject};
use crate::recent_blocks::RecentBlocks;
use crate::tree::DnodeTree;
use crate::walk::{BlockVisit, WalkControl, WalkOptions, walk_objset};
use crate::{Error, Object, ObjectIter, Result};

/// The objects that stand in the root block and have no number among the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecialObject {
    /// The array of dnodes.
    Meta,
    /// The table of space by owner.
    UserUsed,
    /// The table of space by group.
    GroupUsed,
    /// The table of space by project.
    ProjectUsed,
}

impl SpecialObject {
    /// The number that stands for it in a [`Zbookmark`].
    pub const fn id(self) -> ObjectId {
        match self {
            Self::Meta => ObjectId::META,
            Self::UserUsed => ObjectId::new(u64::MAX),
            Self::GroupUsed => ObjectId::new(u64::MAX.wrapping_sub(1)),
            Self::ProjectUsed => ObjectId::new(u64::MAX.wrapping_sub(2)),
        }
    }

    /// Whether that number is one of theirs.
    pub fn is_special(id: ObjectId) -> bool {
        id == ObjectId::META || Self::from_id(id).is_some()
    }

    /// The one of that number, the array of dnodes apart.
    pub(crate) fn from_id(id: ObjectId) -> Option<Self> {
        [Self::UserUsed, Self::GroupUsed, Self::ProjectUsed]
            .into_iter()
            .find(|which| which.id() == id)
    }
}

/// The root block of an object set in which nothing is yet.
fn empty_header(kind: Kind, meta: Dnode) -> ObjsetHeader {
    ObjsetHeader {
        meta: Some(meta),
        log: LogHeader::default(),
        kind,
        flags: Flags::default(),
        portable_mac: [0; 32],
        local_mac: [0; 32],
        user_used: None,
        group_used: None,
        project_used: None,
    }
}

/// The dnode of one of the objects in a root block.
fn header_dnode(header: &ObjsetHeader, which: SpecialObject) -> Option<&Dnode> {
    match which {
        SpecialObject::Meta => header.meta.as_ref(),
        SpecialObject::UserUsed => header.user_used.as_ref(),
        SpecialObject::GroupUsed => header.group_used.as_ref(),
        SpecialObject::ProjectUsed => header.project_used.as_ref(),
    }
}

/// The address of an object's dnode.
pub(crate) const fn dnode_zbookmark(objset: ObjsetId, id: ObjectId) -> Zbookmark {
    Zbookmark::new(objset, id, Level::new(0), BlockId::new(0))
}

struct ObjsetInner {
    source: Arc<dyn Source>,
    key: Option<Key>,
    id: ObjsetId,
    root: Blkptr,
    header: ObjsetHeader,
    meta: Option<Arc<DnodeTree>>,
    /// Blocks of dnodes by their number.
    dnodes: RecentBlocks<u64, 32>,
    /// A raw stream is received into it: its dnodes are not decrypted.
    is_raw: bool,
    overlay: Option<Arc<DirtyObjset>>,
}

/// An object set. Cheap to clone, and shared between threads.
#[derive(Clone)]
pub struct Objset(Arc<ObjsetInner>);

impl std::fmt::Debug for Objset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Objset({})", self.0.id)
    }
}

impl Objset {
    /// Reads the root block. `id` is the dataset's number, for errors and for the cache.
    pub fn open(
        source: Arc<dyn Source>,
        id: ObjsetId,
        root: &Blkptr,
        key: Option<Key>,
    ) -> Result<Self> {
        let place = Zbookmark::root(id);
        if root.is_hole() {
            return Err(Error::NoContent { zbookmark: place });
        }
        for (field, wanted, found) in
            [("type", ObjectType::OBJSET.0, root.kind().0), ("level", 0, root.level().get())]
        {
            if wanted != found {
                let (wanted, found) = (wanted.into(), found.into());
                return Err(Error::Mismatch { zbookmark: place, field, expected: wanted, found });
            }
        }
        let block = source.read(root, place, key.as_ref())?;
        let header = ObjsetHeader::parse(&block, block.order())
            .map_err(|error| Error::Corrupt { zbookmark: place, why: error })?;
        Ok(Self::with_header(source, id, root.clone(), header, key))
    }

    /// One in which nothing is yet, to be changed. That of a dataset has an array of dnodes as tall
    /// as it can ever get, that of the pool grows.
    pub fn new_empty(source: Arc<dyn Source>, id: ObjsetId, kind: Kind, key: Option<Key>) -> Self {
        const MAX_META_LEVELS: u8 = 6;
        let mut meta = NewObject::new(ObjectType::DNODE, 16 << 10).empty_dnode();
        meta.levels = if kind == Kind::Meta { 1 } else { MAX_META_LEVELS };
        Self::with_header(source, id, Blkptr::EMPTY, empty_header(kind, meta), key).to_writable()
    }

    /// One in which nothing is yet, to be filled by a raw stream. `meta` is the empty dnode of the array of
    /// dnodes, shaped as on the sender.
    pub fn new_empty_raw(
        source: Arc<dyn Source>,
        id: ObjsetId,
        kind: Kind,
        meta: &NewObject,
    ) -> Self {
        let header = empty_header(kind, meta.empty_dnode());
        let made = Self::with_header(source, id, Blkptr::EMPTY, header, None);
        made.with_raw_mode(true).to_writable()
    }

    /// An object set with a known root block.
    pub(crate) fn with_header(
        source: Arc<dyn Source>,
        id: ObjsetId,
        root: Blkptr,
        header: ObjsetHeader,
        key: Option<Key>,
    ) -> Self {
        let meta = header.meta.clone().map(|dnode| {
            Arc::new(DnodeTree::new(Arc::clone(&source), key.clone(), id, ObjectId::META, dnode))
        });
        let dnodes = RecentBlocks::new();
        Self(Arc::new(ObjsetInner {
            source,
            key,
            id,
            root,
            header,
            meta,
            dnodes,
            is_raw: false,
            overlay: None,
        }))
    }

    /// The same, to be changed. There is one live handle of an object set, and clones of it.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    #[must_use]
    pub fn to_writable(&self) -> Self {
        let inner = &*self.0;
        assert!(inner.overlay.is_none(), "an object set has one dirty overlay");
        let live = Some(Arc::new(DirtyObjset::new(self.clone())));
        let (source, key) = (Arc::clone(&inner.source), inner.key.clone());
        let (root, header, meta) = (inner.root.clone(), inner.header.clone(), inner.meta.clone());
        let dnodes = RecentBlocks::new();
        Self(Arc::new(ObjsetInner {
            source,
            key,
            id: inner.id,
            root,
            header,
            meta,
            dnodes,
            is_raw: inner.is_raw,
            overlay: live,
        }))
    }

    /// The same, of a raw receive: its dnodes are kept as they are stored. The source must give them so. To be
    /// called before the object set is made writable.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    #[must_use]
    pub fn with_raw_mode(&self, is_raw: bool) -> Self {
        let inner = &*self.0;
        assert!(inner.overlay.is_none(), "no dirty data is dropped with the overlay");
        Self(Arc::new(ObjsetInner {
            source: Arc::clone(&inner.source),
            key: inner.key.clone(),
            id: inner.id,
            root: inner.root.clone(),
            header: inner.header.clone(),
            meta: inner.meta.clone(),
            dnodes: RecentBlocks::new(),
            is_raw,
            overlay: None,
        }))
    }

    /// Whether a raw stream is received into it.
    pub fn is_raw(&self) -> bool {
        self.0.is_raw
    }

    pub(crate) fn overlay(&self) -> Option<&Arc<DirtyObjset>> {
        self.0.overlay.as_ref()
    }

    /// Whether both are handles of one open object set.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether blocks of one can be read by the key of the other: neither is encrypted, or both have the same
    /// master key, as a dataset, its snapshots and its clones do.
    pub fn has_same_key(&self, other: &Self) -> bool {
        match (self.key(), other.key()) {
            (None, None) => true,
            (Some(one), Some(two)) => one.is_same(two),
            _ => false,
        }
    }

    /// Its number: that of its dataset.
    pub fn id(&self) -> ObjsetId {
        self.0.id
    }

    /// The root block, as it was when the set was opened.
    pub fn header(&self) -> &ObjsetHeader {
        &self.0.header
    }

    /// The pointer to the root block.
    pub fn root(&self) -> &Blkptr {
        &self.0.root
    }

    /// Where its blocks come from.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.0.source
    }

    /// The key of its dataset, if one was given.
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// An object by its number. A number of a large dnode's inner slot is not an object.
    pub fn object(&self, id: ObjectId) -> Result<Object> {
        if let Some(overlay) = self.overlay() {
            let (entry, tree) = overlay.existing_object(id)?;
            return Ok(Object::new_writable(self.clone(), tree, entry));
        }
        let dnode = self.dnode(id)?;
        Ok(self.object_with_dnode(id, dnode))
    }

    /// An object by its number and its dnode, as [`Objset::objects`] gives them.
    pub fn object_with_dnode(&self, id: ObjectId, dnode: Dnode) -> Object {
        let inner = &*self.0;
        let source = Arc::clone(&inner.source);
        let tree = DnodeTree::new(source, inner.key.clone(), inner.id, id, dnode);
        Object::new(self.clone(), Arc::new(tree))
    }

    /// A dnode by its number.
    pub fn dnode(&self, id: ObjectId) -> Result<Dnode> {
        if let Some(overlay) = self.overlay() {
            return overlay.existing_object(id).map(|(_, tree)| tree.dnode.clone());
        }
        let place = dnode_zbookmark(self.0.id, id);
        let absent = Error::NoSuchObject { zbookmark: place };
        if let Some(which) = SpecialObject::from_id(id) {
            let header = &self.0.header;
            return header_dnode(header, which).cloned().ok_or(absent);
        }
        let Some((block, slot)) = self.dnode_slot(id) else { return Err(absent) };
        let Some(bytes) = self.dnode_block(block)? else { return Err(absent) };
        let mut at = 0_usize;
        while at < slot {
            let rest = bytes.get(at * Dnode::SLOT..).unwrap_or(&[]);
            at += usize::from(Dnode::peek_slots(rest).unwrap_or(1));
        }
        let rest = bytes.get(slot * Dnode::SLOT..).unwrap_or(&[]);
        if at != slot || rest.is_empty() {
            return Err(absent);
        }
        let mut dnode = Dnode::parse(rest, bytes.order())
            .map_err(|error| Error::Corrupt { zbookmark: place, why: error })?
            .ok_or(absent)?;
        if self.0.is_raw {
            dnode.keep_bonus_tail(rest);
        }
        Ok(dnode)
    }

    /// The block and the slot in it of an object.
    fn dnode_slot(&self, id: ObjectId) -> Option<(u64, usize)> {
        let meta = self.0.meta.as_ref().filter(|_| id != ObjectId::META)?;
        let slots = slots_per_block(meta);
        let block = id.get().checked_div(slots)?;
        Some((block, usize::try_from(id.get().checked_rem(slots)?).ok()?))
    }

    /// A block of the array of dnodes.
    pub(crate) fn dnode_block(&self, block: u64) -> Result<Option<Block>> {
        if let Some(known) = self.0.dnodes.get(block) {
            return Ok(Some(known));
        }
        let Some(meta) = &self.0.meta else { return Ok(None) };
        let read = meta.block(block)?;
        if let Some(read) = &read {
            self.0.dnodes.insert(block, read);
        }
        Ok(read)
    }

    pub(crate) fn meta(&self) -> Option<&Arc<DnodeTree>> {
        self.0.meta.as_ref()
    }

    /// One of the objects in the root block; `None` if it has none.
    pub fn special_object(&self, which: SpecialObject) -> Option<Object> {
        if let Some(overlay) = self.overlay().filter(|_| which != SpecialObject::Meta) {
            let (entry, tree) = overlay.existing_object(which.id()).ok()?;
            return Some(Object::new_writable(self.clone(), tree, entry));
        }
        if which == SpecialObject::Meta {
            return self.0.meta.clone().map(|tree| Object::new(self.clone(), tree));
        }
        header_dnode(&self.0.header, which)
            .cloned()
            .map(|dnode| self.object_with_dnode(which.id(), dnode))
    }

    /// All objects in the order of their numbers, streamed. An unreadable block is reported as an
    /// error once, and the iteration continues.
    pub fn objects(&self) -> ObjectIter {
        self.objects_from(ObjectId::META)
    }

    /// The objects from a number on.
    pub fn objects_from(&self, first: ObjectId) -> ObjectIter {
        ObjectIter::new(self.clone(), first)
    }

    /// Calls `visit` with every pointer of the object set: the root's, those of the array of
    /// dnodes, after each dnode block those of its objects, and last the accounting tables. An
    /// unreadable block is reported to `visit`, and the walk continues. Returns whether the end was
    /// reached.
    pub fn walk(
        &self,
        plan: &WalkOptions,
        visit: &mut dyn FnMut(Zbookmark, BlockVisit<'_>) -> WalkControl,
    ) -> bool {
        walk_objset(self, plan, visit)
    }
}

/// How many slots a block of dnodes has.
pub(crate) fn slots_per_block(meta: &DnodeTree) -> u64 {
    u64::from(meta.dnode.block_size) / 512
}
