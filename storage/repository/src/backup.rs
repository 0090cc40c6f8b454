//! A backup run: blocks that the repository lacks go into packs, and a new head makes them visible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use dmu::Objset;
use job::Job;
use ondisk::Checksum;
use ondisk::blkptr::Regular;
use units::{Txg, Zbookmark};
use zio::Random;

use crate::blocks::RepositoryBlocks;
use crate::head::PACKS;
use crate::index::MAX_ENTRIES;
use crate::key::{BlockKey, trim_zeros};
use crate::live::walk_blocks;
use crate::new_blocks::NewBlocks;
use crate::pack::PackBuilder;
use crate::{
    BlockLocation, Error, Head, IndexObject, IndexSummary, Manifest, ObjectId, PackKind,
    Repository, Result, SnapshotSummary,
};

/// Blocks that are read together.
const BATCH_BLOCKS: usize = 256;
/// Bytes that are read together.
const BATCH_BYTES: usize = 8 << 20;

/// A block's stored bytes, or why they cannot be read.
pub type ReadResult = std::result::Result<Vec<u8>, zio::Error>;

/// Reads blocks of the pool as they are stored.
pub trait BackupSource: Sync {
    /// The block's stored bytes, verified.
    fn read_stored(&self, block: &Regular, zbookmark: Zbookmark) -> ReadResult;
}

/// The result of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupCounts {
    /// Snapshots that were added.
    pub snapshots: u64,
    /// Blocks that were stored.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Blocks that an earlier run had stored before it was cut.
    pub resumed_blocks: u64,
    /// Blocks that the snapshots share with others in the repository, as far as the walk met them.
    pub shared_blocks: u64,
}

/// A backup run of one pool. Its changes are invisible before [`Backup::finish`].
pub struct Backup<'a> {
    repository: &'a Repository,
    head: Arc<Head>,
    pool: u64,
    job: &'a Job,
    known: Arc<RepositoryBlocks>,
    writer: PackWriter,
    /// The blocks that are new in this run.
    new: NewBlocks,
    snapshots: Vec<SnapshotSummary>,
    counts: BackupCounts,
}

impl<'a> Backup<'a> {
    /// Begins a run over the newest head. Packs that an interrupted run stored after that head are used.
    pub fn begin(
        repository: &'a Repository,
        pool: u64,
        random: Arc<dyn Random>,
        job: &'a Job,
    ) -> Result<Self> {
        let head = repository.refresh()?;
        let known = repository.blocks(pool);
        let writer = PackWriter::new(repository.clone(), pool, Arc::clone(&random), &head);
        let new = NewBlocks::new(repository.clone(), pool, Arc::clone(&head), random);
        let (snapshots, counts) = Default::default();
        let mut backup =
            Self { repository, head, pool, job, known, writer, new, snapshots, counts };
        backup.adopt_packs()?;
        Ok(backup)
    }

    /// Takes the blocks of packs that no head refers to: a run over the same head stored them and was cut.
    fn adopt_packs(&mut self) -> Result<()> {
        let prefix = format!("{PACKS}{}-", self.head.generation);
        for object in self.repository.list(&prefix)? {
            let id = object.name.strip_prefix(PACKS).and_then(|id| id.parse::<ObjectId>().ok());
            let Some(id) = id else { continue };
            let footer = match self.repository.read_footer(&object.name, object.size) {
                Ok(footer) if footer.pool == self.pool => footer,
                // of another pool; or damaged, and so of no use
                Ok(_) | Err(Error::Corrupt { .. }) => continue,
                Err(why) => return Err(why),
            };
            for block in footer.blocks {
                let location = BlockLocation { block, pack: id, kind: footer.kind };
                if self.new.find(&block.key)?.is_none() {
                    self.new.insert(location)?;
                    self.counts.resumed_blocks += 1;
                }
            }
        }
        Ok(())
    }

    /// The snapshots of the repository and of this run so far.
    pub fn snapshots(&self) -> impl Iterator<Item = &SnapshotSummary> {
        self.head.snapshots.iter().chain(&self.snapshots)
    }

    /// Adds a snapshot. `objset` is its object set over a source that needs no key. `base` is a snapshot of
    /// the repository or of this run that the snapshot descends from: all blocks born until then are stored.
    pub fn add_snapshot(
        &mut self,
        objset: &Objset,
        source: &dyn BackupSource,
        manifest: &Manifest,
        base: Option<&SnapshotSummary>,
    ) -> Result<()> {
        let since = base.map_or(Txg::ZERO, |base| Txg::new(base.txg));
        let before = self.counts.bytes;
        let mut batch = Batch::default();
        let name = manifest.name();
        let failed = |why: &dmu::Error| -> Result<()> {
            Err(Error::Block { snapshot: name.clone(), why: why.clone() })
        };
        walk_blocks(
            objset,
            since,
            &mut |block, zbookmark| {
                self.check_cancelled()?;
                if self.is_stored(block, zbookmark, source, &name)? {
                    return Ok(());
                }
                batch.push(block, zbookmark);
                if batch.is_full() { self.store_batch(&mut batch, source, &name) } else { Ok(()) }
            },
            &mut { failed },
        )?;
        self.store_batch(&mut batch, source, &name)?;
        let id = self.writer.new_id();
        self.repository.store_manifest(&id, manifest)?;
        self.snapshots.push(SnapshotSummary {
            manifest: id,
            dataset: manifest.dataset.clone(),
            snapshot: manifest.snapshot.clone(),
            guid: manifest.guid,
            pool: manifest.pool,
            txg: manifest.txg,
            creation: manifest.creation,
            encrypted: manifest.key.is_some(),
            volume: manifest.volume,
            referenced: manifest.referenced,
            added: self.counts.bytes - before,
            base: base.map(|base| base.guid),
        });
        self.counts.snapshots += 1;
        Ok(())
    }

    fn check_cancelled(&self) -> Result<()> {
        if self.job.cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Whether the repository or this run has a block. A rewound pool may write different blocks at
    /// the same address in the same txg. The checksum in the key distinguishes them; blocks without
    /// checksum are compared.
    fn is_stored(
        &mut self,
        block: &Regular,
        zbookmark: Zbookmark,
        source: &dyn BackupSource,
        name: &str,
    ) -> Result<bool> {
        let Some(key) = BlockKey::new(block) else { return Ok(false) };
        let found = match self.new.find(&key)? {
            Some(location) => Some(location),
            None => self.known.find(&key)?,
        };
        let Some(found) = found else { return Ok(false) };
        if matches!(block.checksum, Checksum::Off | Checksum::NoParity) {
            let stored = source.read_stored(block, zbookmark);
            let stored = stored.map_err(|why| block_error(name, why))?;
            if !found.block.matches(trim_zeros(&stored)) {
                return Err(Error::Ambiguous { snapshot: name.to_owned() });
            }
        }
        self.counts.shared_blocks += 1;
        Ok(true)
    }

    fn store_batch(
        &mut self,
        batch: &mut Batch,
        source: &dyn BackupSource,
        name: &str,
    ) -> Result<()> {
        let blocks = std::mem::take(batch).blocks;
        let read = read_batch(source, &blocks);
        assert_eq!(read.len(), blocks.len(), "each block of a batch is read");
        for ((block, _), stored) in blocks.iter().zip(read) {
            let stored = stored.map_err(|why| block_error(name, why))?;
            let Some(key) = BlockKey::new(block) else { continue };
            self.job.progress.add(stored.len() as u64, 1);
            // the batch may have a block twice
            if self.new.find(&key)?.is_some() {
                continue;
            }
            let location = self.writer.add(pack_kind(block), key, &stored)?;
            self.new.insert(location)?;
            self.counts.blocks += 1;
            self.counts.bytes += u64::from(location.block.length);
        }
        Ok(())
    }

    /// Stores the rest of the packs, the index and the head. `now` is in seconds since 1970. Without a new
    /// snapshot nothing is stored.
    pub fn finish(mut self, now: u64) -> Result<BackupCounts> {
        self.writer.flush()?;
        if self.snapshots.is_empty() {
            return Ok(self.counts);
        }
        let mut index = self.head.index.clone();
        index.extend(self.new.finish()?);
        let mut snapshots = self.head.snapshots.clone();
        snapshots.append(&mut self.snapshots);
        // Rule L5: the head comes last, when all that it refers to is stored. A run that is cut before it leaves packs
        // that no head has, and the next run uses them.
        self.repository.publish(Head {
            repository: self.repository.id().to_owned(),
            generation: self.head.generation.next(),
            time: now,
            writer: "run".to_owned(),
            snapshots,
            index,
        })?;
        Ok(self.counts)
    }
}

fn block_error(snapshot: &str, why: zio::Error) -> Error {
    Error::Block { snapshot: snapshot.to_owned(), why: why.into() }
}

/// Data and metadata go into packs of their own, so that walks read little.
fn pack_kind(block: &Regular) -> PackKind {
    if block.level.get() > 0 || block.kind.is_metadata() {
        PackKind::Metadata
    } else {
        PackKind::Data
    }
}

/// A name for an object of a writer over `head`.
pub(crate) fn new_id(random: &dyn Random, head: &Head) -> ObjectId {
    let mut id = [0; 16];
    random.fill(&mut id);
    ObjectId { generation: head.generation, id }
}

/// Stores sorted locations as index objects.
pub(crate) fn store_index(
    repository: &Repository,
    pool: u64,
    locations: &[BlockLocation],
    new_id: &mut dyn FnMut() -> ObjectId,
) -> Result<Vec<IndexSummary>> {
    let mut summaries = Vec::new();
    for part in locations.chunks(MAX_ENTRIES) {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
        let id = new_id();
        repository.store_index(&id, &IndexObject::build(pool, part))?;
        summaries.push(IndexSummary {
            id,
            pool,
            blocks: part.len() as u64,
            bytes: part.iter().map(|location| u64::from(location.block.length)).sum(),
            first: (&first.block.key).into(),
            last: (&last.block.key).into(),
        });
    }
    let indexed = summaries.iter().map(|part| part.blocks).sum::<u64>();
    assert_eq!(indexed, locations.len() as u64, "each block is in one index object");
    Ok(summaries)
}

/// Blocks that are to be read together.
#[derive(Default)]
struct Batch {
    blocks: Vec<(Regular, Zbookmark)>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, block: &Regular, zbookmark: Zbookmark) {
        self.bytes += block.psize as usize;
        self.blocks.push((*block, zbookmark));
    }

    fn is_full(&self) -> bool {
        self.blocks.len() >= BATCH_BLOCKS || self.bytes >= BATCH_BYTES
    }
}

/// Reads the blocks of a batch, several at a time, in their order.
fn read_batch(source: &dyn BackupSource, blocks: &[(Regular, Zbookmark)]) -> Vec<ReadResult> {
    const WORKERS: usize = 4;
    let share = blocks.len().div_ceil(WORKERS).max(1);
    std::thread::scope(|scope| {
        let read = |part: &[(Regular, Zbookmark)]| -> Vec<ReadResult> {
            part.iter().map(|(block, at)| source.read_stored(block, *at)).collect()
        };
        let parts: Vec<_> = blocks
            .chunks(share)
            .map(|part| (part, std::thread::Builder::new().spawn_scoped(scope, move || read(part))))
            .collect();
        // if the system cannot start more threads, this thread reads
        let results = parts.into_iter().map(|(part, started)| {
            started.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(|| read(part))
        });
        results.flatten().collect()
    })
}

/// Fills packs and stores each that is full, while the next is filled.
pub(crate) struct PackWriter {
    repository: Repository,
    random: Arc<dyn Random>,
    head: Arc<Head>,
    packs: BTreeMap<PackKind, (ObjectId, PackBuilder)>,
    pool: u64,
    /// The pack that is being stored.
    upload: Option<JoinHandle<Result<()>>>,
}

impl PackWriter {
    pub(crate) fn new(
        repository: Repository,
        pool: u64,
        random: Arc<dyn Random>,
        head: &Arc<Head>,
    ) -> Self {
        let (head, packs, upload) = (Arc::clone(head), BTreeMap::new(), None);
        Self { repository, random, head, packs, pool, upload }
    }

    pub(crate) fn new_id(&self) -> ObjectId {
        new_id(&*self.random, &self.head)
    }

    /// Adds a block to a pack of its kind, and returns its future location.
    pub(crate) fn add(
        &mut self,
        kind: PackKind,
        key: BlockKey,
        stored: &[u8],
    ) -> Result<BlockLocation> {
        let new_id = self.new_id();
        let pack = self.packs.entry(kind).or_insert_with(|| {
            let pack = PackBuilder::new(self.pool, kind);
            (new_id, pack)
        });
        let location = BlockLocation { block: pack.1.add(key, stored), pack: pack.0, kind };
        if pack.1.is_full()
            && let Some((id, pack)) = self.packs.remove(&kind)
        {
            self.store(id, pack)?;
        }
        Ok(location)
    }

    fn store(&mut self, id: ObjectId, pack: PackBuilder) -> Result<()> {
        self.join_upload()?;
        let repository = self.repository.clone();
        let (object, _) = pack.finish();
        let object = Arc::new(object);
        let upload = Arc::clone(&object);
        let store = move || repository.store_pack(&id, &upload);
        match std::thread::Builder::new().spawn(store) {
            Ok(thread) => self.upload = Some(thread),
            // if the system cannot start more threads
            Err(_) => self.repository.store_pack(&id, &object)?,
        }
        Ok(())
    }

    fn join_upload(&mut self) -> Result<()> {
        match self.upload.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(stored)) => stored,
            Some(Err(_)) => Err(self.repository.corrupt(PACKS, "the thread that stores it ended")),
        }
    }

    /// Stores the rest.
    pub(crate) fn flush(&mut self) -> Result<()> {
        for (id, pack) in std::mem::take(&mut self.packs).into_values() {
            self.store(id, pack)?;
        }
        self.join_upload()
    }
}

impl Drop for PackWriter {
    fn drop(&mut self) {
        // a pack that is being stored is whole or absent when the run ends
        let _ = self.join_upload();
    }
}
