//! Datasets: file systems, volumes, snapshots, bookmarks.

use std::sync::Arc;

use dmu::{Object, Objset};
use ondisk::dsl::{Bookmark, Dataset as DatasetPhys, RedactedBlocks, RedactionList};
use ondisk::objset;
use units::{Guid, ObjectId, ObjsetId, Txg};
use zap::{Matching, Normalization, Zap, ZapEntry, ZapValue, normalize};
use zio::Key;

use crate::dir::{Dir, dataset_record, open_zap, read_zap_field};
use crate::local_properties::LocalProperties;
use crate::{DatasetTree, Error, PropertyValue, Result, block_lists};

/// The type of a dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum DatasetKind {
    /// A file system.
    Filesystem,
    /// A block device.
    Volume,
    /// A state of either that does not change any more.
    Snapshot,
    /// A bookmark: the data of a snapshot that incremental sends need.
    Bookmark,
}

impl DatasetKind {
    /// The word that the field's tools print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Bookmark => "bookmark",
        }
    }
}

/// A user's hold on a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Its tag.
    pub tag: String,
    /// Seconds since 1970.
    pub time: u64,
}

/// A dataset of a pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dataset {
    tree: DatasetTree,
    dir: Arc<Dir>,
    /// After `@` or `#`.
    short_name: Option<String>,
    record: DatasetRecord,
}

#[derive(Clone, Debug)]
pub(crate) enum DatasetRecord {
    Stored { id: ObjsetId, object: Box<Object>, phys: Arc<DatasetPhys> },
    Bookmark(Bookmark),
}

impl Dataset {
    pub(crate) fn head(tree: &DatasetTree, dir: &Arc<Dir>) -> Result<Self> {
        let (object, phys) = dir.head()?;
        let id = ObjsetId::new(dir.phys().head.get());
        Ok(Self::new(tree, dir, None, stored_record(id, object, phys)))
    }

    fn new(
        tree: &DatasetTree,
        dir: &Arc<Dir>,
        short_name: Option<String>,
        record: DatasetRecord,
    ) -> Self {
        Self { tree: tree.clone(), dir: Arc::clone(dir), short_name, record }
    }

    pub(crate) fn from_record(
        tree: &DatasetTree,
        dir: &Arc<Dir>,
        id: ObjsetId,
        object: Object,
        phys: DatasetPhys,
    ) -> Result<Self> {
        let part = if phys.is_snapshot() {
            let snapshots = dir.snapshots()?;
            let name = snapshots.by_id.get(&id).cloned();
            Some(name.unwrap_or_else(|| format!("object {id}")))
        } else {
            None
        };
        Ok(Self::new(tree, dir, part, stored_record(id, object, phys)))
    }

    /// The tree that it is of.
    pub fn tree(&self) -> &DatasetTree {
        &self.tree
    }

    /// Its directory, which it shares with its snapshots.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }

    /// Its full name.
    pub fn name(&self) -> String {
        match (&self.short_name, &self.record) {
            (Some(part), DatasetRecord::Bookmark(_)) => format!("{}#{part}", self.dir.path()),
            (Some(part), DatasetRecord::Stored { .. }) => format!("{}@{part}", self.dir.path()),
            (None, _) => self.dir.path().to_owned(),
        }
    }

    /// The part of a snapshot's or bookmark's name after `@` or `#`.
    pub fn short_name(&self) -> Option<&str> {
        self.short_name.as_deref()
    }

    /// Its object in the MOS; a bookmark has none.
    pub fn id(&self) -> Option<ObjsetId> {
        match &self.record {
            DatasetRecord::Stored { id, .. } => Some(*id),
            DatasetRecord::Bookmark(_) => None,
        }
    }

    /// Its record; a bookmark has another.
    pub fn phys(&self) -> Option<&DatasetPhys> {
        match &self.record {
            DatasetRecord::Stored { phys, .. } => Some(phys),
            DatasetRecord::Bookmark(_) => None,
        }
    }

    /// A bookmark's record.
    pub fn bookmark_record(&self) -> Option<&Bookmark> {
        match &self.record {
            DatasetRecord::Stored { .. } => None,
            DatasetRecord::Bookmark(mark) => Some(mark),
        }
    }

    /// Its guid.
    pub fn guid(&self) -> Guid {
        match &self.record {
            DatasetRecord::Stored { phys, .. } => phys.guid,
            DatasetRecord::Bookmark(mark) => mark.guid,
        }
    }

    /// Whether it is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.phys().is_some_and(DatasetPhys::is_snapshot)
    }

    /// Whether it was received in part only.
    pub fn is_inconsistent(&self) -> bool {
        self.phys().is_some_and(DatasetPhys::is_inconsistent)
    }

    /// Whether blocks may be missing because the sender redacted them.
    pub fn is_redacted(&self) -> Result<bool> {
        Ok(self.zap_field(DatasetPhys::REDACTED_SNAPS)?.is_some())
    }

    /// Its type. The content distinguishes file systems and volumes.
    pub fn kind(&self) -> Result<DatasetKind> {
        match &self.record {
            DatasetRecord::Bookmark(_) => Ok(DatasetKind::Bookmark),
            DatasetRecord::Stored { .. } if self.is_snapshot() => Ok(DatasetKind::Snapshot),
            DatasetRecord::Stored { .. } => Ok(match self.objset_kind()? {
                objset::Kind::Volume => DatasetKind::Volume,
                _ => DatasetKind::Filesystem,
            }),
        }
    }

    /// The kind of its content, which is the same for all datasets of a directory.
    pub fn objset_kind(&self) -> Result<objset::Kind> {
        if let Some(known) = self.dir.objset_kind.get() {
            return Ok(*known);
        }
        match self.objset(None) {
            Ok(objset) => Ok(*self.dir.objset_kind.get_or_init(|| objset.header().kind)),
            Err(Error::Object(error)) if error.is_not_found() => Ok(objset::Kind::None),
            Err(error) => Err(error),
        }
    }

    /// Its content; `key` is needed for all but the root block of an encrypted dataset.
    pub fn objset(&self, key: Option<Key>) -> Result<Objset> {
        match &self.record {
            DatasetRecord::Stored { id, phys, .. } => {
                let source = Arc::clone(self.tree.mos().source());
                Ok(Objset::open(source, *id, &phys.root, key)?)
            }
            DatasetRecord::Bookmark(_) => Err(Error::NoContent { name: self.name() }),
        }
    }

    /// Its content, with the key if it is encrypted and was unlocked.
    pub fn open_objset(&self) -> Result<Objset> {
        let key = if self.key_object()?.is_some() {
            Some(self.key()?.ok_or_else(|| Error::KeyNotLoaded { name: self.name() })?)
        } else {
            None
        };
        self.objset(key)
    }

    /// One of the newer fields, which stand in a ZAP.
    pub fn zap_field(&self, name: &str) -> Result<Option<ZapValue>> {
        match &self.record {
            DatasetRecord::Stored { object, .. } => read_zap_field(object, name),
            DatasetRecord::Bookmark(_) => Ok(None),
        }
    }

    /// The snapshots of a head, oldest first.
    pub fn snapshots(&self) -> Result<Vec<Self>> {
        let all = self.dir.snapshots()?;
        let mut found = Vec::with_capacity(all.by_id.len());
        for (id, name) in &all.by_id {
            found.push(self.open_snapshot(*id, name)?);
        }
        found.sort_by_cached_key(|snapshot| {
            let txg = snapshot.phys().map_or(Txg::ZERO, |phys| phys.creation_txg);
            (txg, snapshot.short_name.clone())
        });
        Ok(found)
    }

    /// A snapshot of a head by the part after `@`.
    pub fn snapshot(&self, name: &str) -> Result<Option<Self>> {
        let all = self.dir.snapshots()?;
        if let Some(id) = all.by_name.get(name) {
            return self.open_snapshot(*id, name).map(Some);
        }
        let mut others = all.by_name.iter();
        let found = others
            .find(|(other, _)| self.is_case_insensitive() && equals_ignoring_case(name, other));
        found.map(|(name, id)| self.open_snapshot(*id, name)).transpose()
    }

    /// Whether names are compared without case: those of files, and of snapshots and bookmarks.
    fn is_case_insensitive(&self) -> bool {
        self.phys().is_some_and(|phys| phys.flags & DatasetPhys::CASELESS != 0)
    }

    fn open_snapshot(&self, id: ObjsetId, name: &str) -> Result<Self> {
        let (object, phys) = dataset_record(self.tree.mos(), id)?;
        let what = stored_record(id, object, phys);
        Ok(Self::new(&self.tree, &self.dir, Some(name.to_owned()), what))
    }

    fn bookmark_zap(&self) -> Result<Option<Zap>> {
        let id = self.zap_field(DatasetPhys::BOOKMARKS)?.and_then(|value| value.u64());
        open_zap(self.tree.mos(), ObjectId::new(id.unwrap_or(0)))
    }

    /// The bookmarks of a head, oldest first.
    pub fn bookmarks(&self) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in self.bookmark_zap()?.iter().flat_map(Zap::entries) {
            let entry = entry?;
            found.push(self.open_bookmark(&String::from_utf8_lossy(&entry.name), &entry.value)?);
        }
        found.sort_by_cached_key(|mark| {
            let txg = mark.bookmark_record().map_or(Txg::ZERO, |mark| mark.creation_txg);
            (txg, mark.short_name.clone())
        });
        Ok(found)
    }

    /// A bookmark of a head by the part after `#`.
    pub fn bookmark(&self, name: &str) -> Result<Option<Self>> {
        let Some(table) = self.bookmark_zap()? else { return Ok(None) };
        let matching =
            if self.is_case_insensitive() { Matching::Normalized } else { Matching::Exact };
        let found = table.lookup_normalized(name.as_bytes(), matching)?;
        let made = |entry: ZapEntry| {
            self.open_bookmark(&String::from_utf8_lossy(&entry.name), &entry.value)
        };
        found.map(made).transpose()
    }

    fn open_bookmark(&self, name: &str, value: &ZapValue) -> Result<Self> {
        let object = ObjectId::new(self.id().map_or(0, ObjsetId::get));
        let mark = Bookmark::from_words(&value.u64s())
            .map_err(|error| Error::Corrupt { object, why: error })?;
        Ok(Self::new(&self.tree, &self.dir, Some(name.to_owned()), DatasetRecord::Bookmark(mark)))
    }

    /// The redaction list of a redaction bookmark.
    pub fn redaction_list(&self) -> Result<Option<RedactionList>> {
        let id = self.bookmark_record().map_or(ObjectId::META, |mark| mark.redaction);
        if !id.exists() {
            return Ok(None);
        }
        let object = self.tree.mos().object(id)?;
        let list = match object.spill()? {
            Some(spill) => RedactionList::parse(&spill, spill.order()),
            None => RedactionList::parse(object.bonus(), object.bonus_order()),
        };
        list.map(Some).map_err(|error| Error::Corrupt { object: id, why: error })
    }

    /// The blocks of a redaction bookmark's list, by object and block.
    ///
    /// # Errors
    ///
    /// The list is incomplete or damaged, or a part of it cannot be read.
    pub fn redacted_blocks(&self) -> Result<Vec<RedactedBlocks>> {
        let Some(list) = self.redaction_list()? else { return Ok(Vec::new()) };
        if !list.is_complete() {
            return Err(Error::IncompleteRedactionList { name: self.name() });
        }
        let id = self.bookmark_record().map_or(ObjectId::META, |mark| mark.redaction);
        let corrupt = |error| Error::Corrupt { object: id, why: error };
        let object = self.tree.mos().object(id)?;
        let size = units::to_u64(RedactedBlocks::SIZE);
        let per_read = u64::from(object.block_size()) / size;
        let (mut found, mut at) = (Vec::new(), 0);
        while at < list.count {
            let count = per_read.max(1).min(list.count - at);
            let length = units::to_usize(count * size);
            let offset = at.checked_mul(size).ok_or(ondisk::Error::Rule {
                structure: "redaction list",
                at: 16,
                rule: "the entries are in the object",
                found: list.count,
            });
            let mut bytes = vec![0; length];
            object.read(offset.map_err(corrupt)?, &mut bytes)?;
            for entry in bytes.chunks_exact(RedactedBlocks::SIZE) {
                found.push(RedactedBlocks::parse(entry, ondisk::Order::Little).map_err(corrupt)?);
            }
            at += count;
        }
        Ok(found)
    }

    /// The guids of the snapshots that a redacted dataset was redacted by; none: it is not redacted.
    pub fn redaction_snapshots(&self) -> Result<Option<Vec<u64>>> {
        // an empty array is one number, which is not a guid
        let guids = self.zap_field(DatasetPhys::REDACTED_SNAPS)?.map(|value| value.u64s());
        Ok(guids.map(|guids| guids.into_iter().filter(|guid| *guid != 0).collect()))
    }

    /// The snapshot that it is a clone of.
    pub fn clone_origin(&self) -> Result<Option<Self>> {
        let id = self.dir.phys().origin;
        let none = !id.exists()
            || self.is_snapshot()
            || self.tree.origin_snapshot().is_some_and(|origin| origin.get() == id.get());
        if none {
            return Ok(None);
        }
        self.tree.dataset(ObjsetId::new(id.get())).map(Some)
    }

    /// The names of a snapshot's clones, in the order of the pool's table. Empty too where that
    /// table is known not to be complete (a fault of old versions).
    pub fn clones(&self) -> Result<Vec<String>> {
        let Some(phys) = self.phys().filter(|phys| phys.is_snapshot()) else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        let mut count = 0_u64;
        let clones = open_zap(self.tree.mos(), phys.next_clones)?;
        for entry in clones.iter().flat_map(Zap::entries) {
            let Some(id) = entry?.value.u64() else { continue };
            count += 1;
            let (_, clone) = dataset_record(self.tree.mos(), ObjsetId::new(id))?;
            let dir = self.tree.dir(clone.dir);
            names.extend(dir.map(|dir| dir.path().to_owned()));
        }
        Ok(if count.checked_add(1) == Some(phys.children) { names } else { Vec::new() })
    }

    /// The holds on a snapshot, by tag.
    pub fn holds(&self) -> Result<Vec<Hold>> {
        let id = self.phys().map_or(ObjectId::META, |phys| phys.holds);
        let mut holds = Vec::new();
        for entry in open_zap(self.tree.mos(), id)?.iter().flat_map(Zap::entries) {
            let entry = entry?;
            let tag = String::from_utf8_lossy(&entry.name).into_owned();
            holds.push(Hold { tag, time: entry.value.u64().unwrap_or(0) });
        }
        holds.sort_by(|a, b| a.tag.cmp(&b.tag));
        Ok(holds)
    }

    /// Bytes written since the previous snapshot; `None` if there is none, not even the empty
    /// origin of newer pools.
    pub fn written(&self) -> Result<Option<u64>> {
        match self.phys() {
            Some(phys) if phys.previous.exists() => {
                let (_, before) =
                    dataset_record(self.tree.mos(), ObjsetId::new(phys.previous.get()))?;
                self.written_since(&before).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Bytes written since an older snapshot, of the same directory or of an origin
    /// (`written@...`).
    pub fn written_since(&self, before: &DatasetPhys) -> Result<u64> {
        let [allocated, ..] = self.space_written_since(before)?;
        Ok(allocated)
    }

    /// Space written since an older snapshot, of the same directory or of an origin: bytes allocated,
    /// compressed, uncompressed.
    pub fn space_written_since(&self, before: &DatasetPhys) -> Result<[u64; 3]> {
        let referenced = [before.referenced, before.compressed, before.uncompressed];
        let (written, last) = self.space_after(referenced, before.creation_txg)?;
        let freed = block_lists::deadlist_space(self.tree.mos(), last.deadlist)?;
        Ok(block_lists::add_space(written, freed))
    }

    /// The same since the snapshot of a bookmark; `None` if the bookmark has no sizes.
    pub fn space_written_since_bookmark(&self, mark: &Bookmark) -> Result<Option<[u64; 3]>> {
        if mark.flags & Bookmark::HAS_SIZES == 0 {
            return Ok(None);
        }
        let referenced = [mark.referenced, mark.compressed, mark.uncompressed];
        let (written, last) = self.space_after(referenced, mark.creation_txg)?;
        let freed = if last.previous_txg == mark.creation_txg {
            block_lists::deadlist_space(self.tree.mos(), last.deadlist)?
        } else {
            [mark.freed, mark.freed_compressed, mark.freed_uncompressed]
        };
        Ok(Some(block_lists::add_space(written, freed)))
    }

    /// The growth since a snapshot of that txg, with the frees by later snapshots. Also the first
    /// dataset after that snapshot, whose deadlist is not counted.
    fn space_after(&self, before: [u64; 3], txg: Txg) -> Result<([u64; 3], DatasetPhys)> {
        let missing = || Error::NoContent { name: self.name() };
        let phys = self.phys().ok_or_else(missing)?;
        let mos = self.tree.mos();
        let mut written = [phys.referenced, phys.compressed, phys.uncompressed];
        written.iter_mut().zip(before).for_each(|(now, then)| *now = now.wrapping_sub(then));
        let mut at = phys.clone();
        // each step goes to an older txg, so that this ends
        while at.previous_txg > txg {
            let range = block_lists::deadlist_space_until(mos, at.deadlist, txg)?;
            written = block_lists::add_space(written, range);
            let (_, older) = dataset_record(mos, ObjsetId::new(at.previous.get()))?;
            if older.previous_txg >= at.previous_txg {
                return Err(Error::Cycle { object: at.previous, links: "snapshots" });
            }
            at = older;
        }
        Ok((written, at))
    }

    /// Bytes that are freed if a snapshot and those after it, up to `last`, are destroyed together
    /// (dsl_dataset_space_wouldfree): what later datasets freed, and no snapshot before it has.
    ///
    /// # Errors
    ///
    /// A record is damaged, or `last` does not follow the snapshot.
    pub fn space_freed_until(&self, last: &Self) -> Result<u64> {
        let missing = || Error::NoContent { name: self.name() };
        let first = self.phys().ok_or_else(missing)?;
        let mut at = last.phys().ok_or_else(missing)?.next;
        let (mos, mut freed) = (self.tree.mos(), 0_u64);
        let mut before = Txg::new(u64::MAX);
        while self.id() != Some(ObjsetId::new(at.get())) {
            let (_, dataset) = dataset_record(mos, ObjsetId::new(at.get()))?;
            // each step goes to an older dataset, so that this ends
            if dataset.previous_txg >= before || dataset.previous_txg <= first.previous_txg {
                return Err(Error::Cycle { object: at, links: "snapshots" });
            }
            before = dataset.previous_txg;
            let [all, ..] = block_lists::deadlist_space(mos, dataset.deadlist)?;
            let [old, ..] =
                block_lists::deadlist_space_until(mos, dataset.deadlist, first.previous_txg)?;
            freed = freed.wrapping_add(all.wrapping_sub(old));
            at = dataset.previous;
        }
        Ok(freed)
    }

    /// The properties that came with a send stream, also where another value was set since.
    pub fn received_properties(&self) -> Result<Vec<(String, PropertyValue)>> {
        let table = match &self.record {
            DatasetRecord::Bookmark(_) => return Ok(Vec::new()),
            DatasetRecord::Stored { phys, .. } if phys.is_snapshot() => phys.properties,
            DatasetRecord::Stored { .. } => self.dir.phys().properties,
        };
        LocalProperties::read_received(self.tree.mos(), table)
    }

    /// The properties that are set here, with their values as they are stored, in the table's order. A value
    /// that was received counts, unless another is set.
    pub fn local_properties(&self) -> Result<Vec<(String, PropertyValue)>> {
        let table = match &self.record {
            DatasetRecord::Bookmark(_) => return Ok(Vec::new()),
            DatasetRecord::Stored { phys, .. } if phys.is_snapshot() => phys.properties,
            DatasetRecord::Stored { .. } => self.dir.phys().properties,
        };
        let found = LocalProperties::read(self.tree.mos(), table)?;
        Ok(found.entries.into_iter().map(|entry| (entry.name, entry.value)).collect())
    }
}

fn equals_ignoring_case(a: &str, b: &str) -> bool {
    let [a, b] = [a, b].map(|name| normalize(name.as_bytes(), Normalization::UPPER));
    a == b
}

fn stored_record(id: ObjsetId, object: Object, phys: DatasetPhys) -> DatasetRecord {
    DatasetRecord::Stored { id, object: Box::new(object), phys: Arc::new(phys) }
}
