//! Blocks that go to the drives before their group is written.
//!
//! Many whole blocks of content at a time need not wait for the sync. They are written straight
//! from the caller's memory, while it is in the processor's cache, and their txg only brings the
//! pointers to them. Before the sync nothing on the drives refers to them: after a power cut their
//! space is free. Blocks that are overwritten or truncated before that are freed with the txg.
//!
//! Writing through pays off when there are as many writers as processors. With idle processors the
//! sync serves a writer sooner.
//!
//! ```text
//! begin_write   the blocks are marked as in flight, under the lock of the object's writer
//! finish        they are stored, without that lock; who wants to read them waits for it
//! sync          the pointers to them are set in the object's tree
//! ```

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ondisk::{Blkptr, ObjectType, Order};
use parking_lot::{Condvar, Mutex};
use txg::Tx;
use units::{Level, Txg};
use zio::{Block, Sink, WritePolicy, WriteRequest};

use super::DirtyObjset;
use super::record::{BlockVersion, DirtyObject, OverriddenBlock};
use super::write::{SMALL_DIRTY_BYTES, set_block_version, write_whole_block};
use crate::tree::DnodeTree;
use crate::{Objset, PolicyQuery};

/// Shorter writes wait for the sync, which writes adjacent blocks together.
const MIN_WRITE_THROUGH: usize = 128 << 10;
/// The bytes written at a time: they fit the processor's cache.
const WRITE_CHUNK: usize = 1 << 20;

/// Where blocks go before their group is written.
pub trait WriteThrough: Send + Sync {
    /// The way of writing content through; none if it must wait for the sync, because it depends on
    /// earlier content or is elsewhere.
    fn write_policy(&self, wanted: PolicyQuery) -> Option<WritePolicy>;

    /// The way of writing content that a commit of the intent log writes through; none if its data
    /// belongs into the log.
    fn log_write_policy(&self, wanted: PolicyQuery) -> Option<WritePolicy>;

    /// The writer of the blocks.
    fn sink(&self) -> &dyn Sink;

    /// The number of running long writes ([`Objset::begin_long_write`]).
    fn active_writers(&self) -> &AtomicUsize;

    /// Number of concurrent long writers from which writing through pays off.
    fn min_writers(&self) -> usize;

    /// A written block is no longer needed, and no txg will refer to it: its space is freed with
    /// the txg in which it was written, or a later one.
    fn add_orphan(&self, pointer: &Blkptr);
}

/// A block that is on the drives, and to which its group is to bring a pointer.
pub(crate) struct WriteThroughBlock {
    overridden: Arc<OverriddenBlock>,
    write_through: Arc<dyn WriteThrough>,
    /// Another owner frees its space.
    is_released: AtomicBool,
}

impl WriteThroughBlock {
    /// Where it is.
    pub(crate) fn overridden(&self) -> &Arc<OverriddenBlock> {
        &self.overridden
    }

    /// A group has a pointer to it.
    pub(crate) fn mark_referenced(&self) {
        self.is_released.store(true, Ordering::Release);
    }

    /// No group will have one.
    pub(crate) fn discard(&self) {
        // Rules W1, W6: the space is freed with the txg, never at once. A log record may point to the block until
        // the txg is synced; reused space would let a replay after a crash read other data.
        if !self.is_released.swap(true, Ordering::AcqRel) {
            self.write_through.add_orphan(&self.overridden.pointer);
        }
    }
}

impl Drop for WriteThroughBlock {
    fn drop(&mut self) {
        self.discard();
    }
}

impl std::fmt::Debug for WriteThroughBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stored({:?})", self.overridden)
    }
}

/// Blocks that are on their way to the drives.
#[derive(Debug, Default)]
pub(crate) struct InFlightWrite {
    is_done: Mutex<bool>,
    done_changed: Condvar,
}

impl InFlightWrite {
    /// Waits until they are there, or in memory.
    pub(crate) fn wait_done(&self) {
        let mut arrived = self.is_done.lock();
        while !*arrived {
            self.done_changed.wait(&mut arrived);
        }
    }

    fn complete(&self) {
        let was_done = std::mem::replace(&mut *self.is_done.lock(), true);
        assert!(!was_done, "a write arrives once");
        self.done_changed.notify_all();
    }
}

/// Adjacent blocks to write.
struct WriteRun<'a> {
    first: u64,
    bytes: &'a [u8],
    size: usize,
    in_flight: Arc<InFlightWrite>,
}

/// A write of which some blocks are still on their way to the drives. When this is dropped they are
/// there, or wait for their group like others.
pub struct PendingWrite<'a, T: Borrow<Tx>> {
    tx: T,
    object: Arc<DirtyObject>,
    overlay: Arc<DirtyObjset>,
    /// The writer, its policy, and the object of the blocks; looked up at first use.
    target: OnceLock<Option<WriteTarget>>,
    runs: Vec<WriteRun<'a>>,
}

/// A long write, from before its object is locked.
pub struct LongWrite(Arc<dyn WriteThrough>);

impl Objset {
    /// Counts a write among the long ones until the guard is dropped, if it is long enough. Call it
    /// before locking anything, so that waiting writers count as well.
    pub fn begin_long_write(&self, bytes: usize) -> Option<LongWrite> {
        let early = self.overlay()?.write_through.get().filter(|_| bytes >= MIN_WRITE_THROUGH)?;
        early.active_writers().fetch_add(1, Ordering::Relaxed);
        Some(LongWrite(Arc::clone(early)))
    }
}

impl Drop for LongWrite {
    fn drop(&mut self) {
        let before = self.0.active_writers().fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a writer leaves that was counted");
    }
}

/// How blocks of an object are stored early.
pub(super) struct WriteTarget {
    write_through: Arc<dyn WriteThrough>,
    policy: WritePolicy,
    kind: ObjectType,
    tree: Arc<DnodeTree>,
}

impl<'a, T: Borrow<Tx>> PendingWrite<'a, T> {
    pub(super) fn new(tx: T, entry: &Arc<DirtyObject>, live: &Arc<DirtyObjset>) -> Self {
        let (object, overlay) = (Arc::clone(entry), Arc::clone(live));
        Self { tx, object, overlay, target: OnceLock::new(), runs: Vec::new() }
    }

    fn write_target(&self) -> Option<&WriteTarget> {
        self.target.get_or_init(|| WriteTarget::for_object(&self.object, &self.overlay)).as_ref()
    }

    /// The transaction that it is part of.
    pub fn tx(&self) -> &Tx {
        self.tx.borrow()
    }

    /// Takes whole blocks of `size` bytes, and marks those that can be written eagerly as in
    /// flight.
    pub(super) fn add_blocks(&mut self, first: u64, bytes: &'a [u8], size: usize) {
        assert!(bytes.len().is_multiple_of(size), "whole blocks are written through");
        let together = WRITE_CHUNK.checked_div(size).unwrap_or(1).max(1) * size;
        let mut block = first;
        for bytes in bytes.chunks(together) {
            let blocks = bytes.chunks(size);
            let end = block + units::to_u64(blocks.len());
            let txg = self.tx.borrow().txg();
            let is_much = bytes.len() >= MIN_WRITE_THROUGH && self.write_target().is_some();
            if is_much && is_clean_since(&self.object, txg, block..end) {
                self.mark_in_flight(WriteRun {
                    first: block,
                    bytes,
                    size,
                    in_flight: Arc::default(),
                });
            } else {
                for (block, bytes) in (block..end).zip(blocks) {
                    write_whole_block(&self.object, self.tx.borrow(), block, bytes);
                }
            }
            block = end;
        }
    }

    fn mark_in_flight(&mut self, run: WriteRun<'a>) {
        // Rule W6: the blocks are marked under the lock of the object's writer, and written without it. A reader
        // waits for the mark; without it, it would return the bytes from before the write. The sync does not
        // meet a mark: the write holds its txg until it arrived.
        let txg = self.tx.borrow().txg();
        let coming = BlockVersion::InFlight(Arc::clone(&run.in_flight));
        let mut state = self.object.state.write();
        for (block, _) in run.blocks() {
            set_block_version(&mut state, txg, block, &coming);
        }
        drop(state);
        self.runs.push(run);
    }

    fn write_runs(&mut self) {
        let runs = std::mem::take(&mut self.runs);
        let tx = self.tx.borrow();
        let Some(way) = self.write_target().filter(|_| !runs.is_empty()) else { return };
        for run in runs {
            let contents = way.write_run(&run, tx.txg());
            let (mut stored, mut waiting) = (0_u64, 0_u64);
            for ((_, bytes), content) in run.blocks().zip(&contents) {
                let length = units::to_u64(bytes.len());
                let is_stored = matches!(content, BlockVersion::WrittenThrough(_));
                stored += if is_stored { length } else { 0 };
                waiting += if is_stored { SMALL_DIRTY_BYTES } else { tx.allocated_size(length) };
            }
            run.complete(&self.object, contents);
            tx.add_written_through(stored);
            tx.add_dirty(waiting);
        }
    }
}

impl<T: Borrow<Tx>> Drop for PendingWrite<'_, T> {
    fn drop(&mut self) {
        self.write_runs();
    }
}

impl<'a> WriteRun<'a> {
    fn blocks(&self) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
        (self.first..).zip(self.bytes.chunks(self.size))
    }

    /// Puts the results in the place of the blocks in flight. Blocks that were truncated or
    /// overwritten meanwhile stay unchanged.
    fn complete(&self, entry: &DirtyObject, contents: Vec<BlockVersion>) {
        let ours = |content: &BlockVersion| match content {
            BlockVersion::InFlight(coming) => Arc::ptr_eq(coming, &self.in_flight),
            _ => false,
        };
        // Rule: the versions change before the waiting readers wake. They look up again, and a mark that is still
        // there would make them wait for a write that is over.
        let mut state = entry.state.write();
        for ((block, _), content) in self.blocks().zip(contents) {
            let versions = state.blocks.get_mut(&block).into_iter().flatten();
            for (_, version) in versions.filter(|(_, version)| ours(version)) {
                *version = content.clone();
            }
        }
        drop(state);
        self.in_flight.complete();
    }
}

impl WriteTarget {
    fn for_object(entry: &DirtyObject, overlay: &DirtyObjset) -> Option<Self> {
        let early = overlay.write_through.get()?;
        if early.active_writers().load(Ordering::Relaxed) < early.min_writers() {
            return None;
        }
        Self::with_policy(entry, overlay, early, &|wanted| early.write_policy(wanted))
    }

    /// Content of files and volumes alone: all else is changed again and again.
    pub(super) fn with_policy(
        entry: &DirtyObject,
        overlay: &DirtyObjset,
        early: &Arc<dyn WriteThrough>,
        choose: &dyn Fn(PolicyQuery) -> Option<WritePolicy>,
    ) -> Option<Self> {
        let tree = entry.state.read().tree(|dnode| overlay.build_tree(entry.id, dnode))?;
        let kind = tree.dnode.kind;
        if !matches!(kind, ObjectType::PLAIN_FILE | ObjectType::ZVOL) {
            return None;
        }
        let (checksum, compression) = (tree.dnode.checksum, tree.dnode.compression);
        let wanted = PolicyQuery { kind, level: Level::new(0), checksum, compression };
        let policy = choose(wanted)?;
        Some(Self { write_through: Arc::clone(early), policy, kind, tree })
    }

    /// How many threads may write blocks of one object.
    pub(super) fn workers(&self) -> usize {
        self.write_through.min_writers()
    }

    /// Writes blocks. A block that fails, or takes no space, waits for the sync, which reports the
    /// error.
    fn write_run(&self, run: &WriteRun<'_>, txg: Txg) -> Vec<BlockVersion> {
        let stored = self.write_blocks(&run.blocks().collect::<Vec<_>>(), txg).into_iter();
        let content = |((_, bytes), stored): ((u64, &[u8]), Option<Arc<WriteThroughBlock>>)| {
            let bytes = || BlockVersion::Bytes(Block::from_slice(bytes, Order::Little));
            stored.map_or_else(bytes, BlockVersion::WrittenThrough)
        };
        run.blocks().zip(stored).map(content).collect()
    }

    /// Writes blocks by their numbers. Returns for each its place, unless it failed or takes no
    /// space.
    pub(super) fn write_blocks(
        &self,
        blocks: &[(u64, &[u8])],
        txg: Txg,
    ) -> Vec<Option<Arc<WriteThroughBlock>>> {
        let requests = blocks.iter().map(|(block, data)| WriteRequest {
            data,
            kind: self.kind,
            level: Level::new(0),
            fill: 1,
            txg,
            policy: &self.policy,
            previous: &Blkptr::EMPTY,
            zbookmark: self.tree.zbookmark(0, *block),
            raw: None,
        });
        let stored = self.write_through.sink().write_many(&requests.collect::<Vec<_>>());
        assert_eq!(stored.len(), blocks.len(), "the sink answers each request");
        let place = |stored: Result<Blkptr, zio::Error>| {
            let pointer = stored.ok().filter(|pointer| matches!(pointer, Blkptr::Regular(_)))?;
            assert_eq!(pointer.birth(), txg, "an eagerly written block is born in its txg");
            assert_eq!(pointer.fill(), 1, "a data block counts as one");
            Some(Arc::new(WriteThroughBlock {
                overridden: OverriddenBlock::new(pointer, Arc::clone(&self.tree)),
                write_through: Arc::clone(&self.write_through),
                is_released: AtomicBool::new(false),
            }))
        };
        stored.into_iter().map(place).collect()
    }
}

/// Whether the txg and later ones have no version of those blocks yet: a block that is written
/// repeatedly is written once, with its txg.
fn is_clean_since(entry: &DirtyObject, txg: Txg, blocks: std::ops::Range<u64>) -> bool {
    let state = entry.state.read();
    let mut versions = state.blocks.range(blocks).flat_map(|(_, versions)| versions);
    versions.all(|(known, _)| *known < txg)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use ondisk::objset::Kind;
    use ondisk::{Blkptr, ObjectType};
    use parking_lot::Mutex;
    use txg::Tx;
    use units::Txg;
    use zio::{Error, Sink, WritePolicy, WriteRequest};

    use super::{MIN_WRITE_THROUGH, WriteThrough};
    use crate::memory::{MemoryStore, MemoryWriteThrough, empty_objset};
    use crate::{NewObject, Object, Objset, PolicyQuery};

    /// A sink that stores blocks when the test allows it, or fails.
    struct GatedSink {
        memory: Arc<MemoryStore>,
        gate: Mutex<()>,
        is_failing: AtomicBool,
        min_writers: AtomicUsize,
        write_through: Arc<MemoryWriteThrough>,
    }

    impl Sink for GatedSink {
        fn write(&self, request: &WriteRequest<'_>) -> Result<Blkptr, Error> {
            drop(self.gate.lock());
            if self.is_failing.load(Ordering::Relaxed) {
                return Err(Error::NoSpace { zbookmark: request.zbookmark, psize: 0 });
            }
            self.memory.write(request)
        }

        fn free(&self, pointer: &Blkptr, txg: Txg) {
            self.memory.free(pointer, txg);
        }
    }

    impl WriteThrough for GatedSink {
        fn write_policy(&self, wanted: PolicyQuery) -> Option<WritePolicy> {
            self.write_through.write_policy(wanted)
        }

        fn log_write_policy(&self, wanted: PolicyQuery) -> Option<WritePolicy> {
            self.write_through.log_write_policy(wanted)
        }

        fn sink(&self) -> &dyn Sink {
            self
        }

        fn active_writers(&self) -> &AtomicUsize {
            self.write_through.active_writers()
        }

        fn min_writers(&self) -> usize {
            self.min_writers.load(Ordering::Relaxed)
        }

        fn add_orphan(&self, pointer: &Blkptr) {
            self.write_through.add_orphan(pointer);
        }
    }

    struct WriteFixture {
        objset: Objset,
        sink: Arc<GatedSink>,
        file: Object,
    }

    const SIZE: u32 = 32 << 10;
    const INDIRECT: u64 = 128 << 10;

    fn fixture() -> WriteFixture {
        let (set, memory) = empty_objset(Kind::Filesystem);
        let (ahead, shut, broken) =
            (MemoryWriteThrough::new(&memory), Mutex::new(()), AtomicBool::new(false));
        let crowd = AtomicUsize::new(0);
        let gate = Arc::new(GatedSink {
            memory,
            gate: shut,
            is_failing: broken,
            min_writers: crowd,
            write_through: ahead,
        });
        set.set_write_through(Arc::clone(&gate) as Arc<dyn WriteThrough>);
        let file = set.create(&tx(4), &NewObject::new(ObjectType::PLAIN_FILE, SIZE)).unwrap();
        WriteFixture { objset: set, sink: gate, file }
    }

    fn tx(txg: u64) -> Tx {
        Tx::syncing(Txg::new(txg))
    }

    impl WriteFixture {
        fn read(&self, at: u64, length: usize) -> Vec<u8> {
            let mut bytes = vec![0; length];
            self.file.read(at, &mut bytes).unwrap();
            bytes
        }

        /// Syncs the txg; returns the allocated blocks, and the file's content.
        fn sync(&self, txg: u64) -> (usize, u64) {
            self.sink.memory.sync_objset(&self.objset, Txg::new(txg)).unwrap();
            self.sink.write_through.free_orphans(Txg::new(txg));
            let used = self.objset.synced().object(self.file.id()).unwrap().dnode().used_bytes;
            (self.sink.memory.block_count(), used)
        }
    }

    #[test]
    fn reader_waits_for_a_block_in_flight() {
        let scene = fixture();
        let bytes = vec![5; MIN_WRITE_THROUGH];
        thread::scope(|scope| {
            let shut = scene.sink.gate.lock();
            let underway = scene.file.begin_write(tx(4), 0, &bytes).unwrap();
            assert_eq!(scene.sink.memory.block_count(), 0);
            let reader = scope.spawn(|| scene.read(0, MIN_WRITE_THROUGH));
            let finish = scope.spawn(|| drop(underway));
            thread::sleep(Duration::from_millis(20));
            assert!(!reader.is_finished());
            // other blocks can be read and changed meanwhile
            scene.file.write(&tx(4), 1 << 20, b"elsewhere").unwrap();
            assert_eq!(scene.read(1 << 20, 9), b"elsewhere");
            drop(shut);
            finish.join().unwrap();
            assert_eq!(reader.join().unwrap(), bytes);
        });
        assert_eq!(scene.sink.memory.block_count(), 4, "it is stored before its group is written");
        scene.sync(4);
        assert_eq!(scene.read(0, MIN_WRITE_THROUGH), bytes);
    }

    #[test]
    fn long_ranges_read_like_single_blocks() {
        let scene = fixture();
        let mut right: Vec<u8> =
            (0..6_u32 << 10).flat_map(|at| (at * 77).to_le_bytes().repeat(128)).collect();
        scene.file.write(&tx(4), 0, &right).unwrap();
        scene.sync(4);
        // a hole, dirty blocks, and eagerly written blocks without pointer
        scene.file.free_range(&tx(5), 300_000..700_000).unwrap();
        right[300_000..700_000].fill(0);
        scene.file.write(&tx(5), 900_000, &vec![7; 50_000]).unwrap();
        right[900_000..950_000].fill(7);
        scene.file.write(&tx(5), 1 << 20, &vec![8; MIN_WRITE_THROUGH]).unwrap();
        right[1 << 20..][..MIN_WRITE_THROUGH].fill(8);
        right.resize(4 << 20, 0);
        let still = scene.objset.object(scene.file.id()).unwrap();
        for (at, length) in [
            (0, 3 << 20),
            (0, 4 << 20),
            (1, 2 << 20),
            (32 << 10, (2 << 20) + 5),
            (99_999, 600_000),
            ((3 << 20) - 5, 700_000),
            (40_000, 512 << 10),
        ] {
            let wanted = &right[usize::try_from(at).unwrap()..][..length];
            assert!(scene.read(at, length) == wanted, "{length} bytes from {at} on");
            let mut bytes = vec![0x11; length];
            still.read(at, &mut bytes).unwrap();
            assert!(bytes == wanted);
        }
        scene.sync(5);
        assert!(scene.read(0, 4 << 20) == right);
        let mut bytes = vec![0x11; 4 << 20];
        scene.objset.synced().object(scene.file.id()).unwrap().read(0, &mut bytes).unwrap();
        assert!(bytes == right);
    }

    #[test]
    fn truncated_or_overwritten_blocks_in_flight_are_freed() {
        let scene = fixture();
        let bytes = vec![5; 2 * MIN_WRITE_THROUGH];
        let underway = scene.file.begin_write(tx(4), 0, &bytes).unwrap();
        scene.file.free_range(&tx(4), MIN_WRITE_THROUGH as u64..u64::MAX).unwrap();
        let size = usize::try_from(SIZE).unwrap();
        scene.file.write(&tx(4), 0, &vec![6; size]).unwrap();
        drop(underway);
        assert_eq!(scene.read(0, size), vec![6; size]);
        assert_eq!(
            scene.read(SIZE.into(), MIN_WRITE_THROUGH - size),
            vec![5; MIN_WRITE_THROUGH - size]
        );
        assert_eq!(
            scene.read(MIN_WRITE_THROUGH as u64, MIN_WRITE_THROUGH),
            vec![0; MIN_WRITE_THROUGH]
        );
        // a byte of a written block: the rest of the block is kept
        scene.file.write(&tx(4), u64::from(SIZE) + 1, b"7").unwrap();
        assert_eq!(scene.read(SIZE.into(), 3), [5, b'7', 5]);
        let (_, used) = scene.sync(4);
        assert_eq!(used, MIN_WRITE_THROUGH as u64 + INDIRECT);
        let file = scene.objset.object(scene.file.id()).unwrap();
        file.free_range(&tx(5), 0..u64::MAX).unwrap();
        let empty = scene.sync(5);
        scene.objset.object(scene.file.id()).unwrap().write(&tx(6), 0, &bytes).unwrap();
        scene.objset.discard_dirty();
        scene.sink.write_through.free_orphans(Txg::new(6));
        assert_eq!((scene.sink.memory.block_count(), 0), empty);
    }

    #[test]
    fn single_writer_waits_for_the_sync() {
        let scene = fixture();
        scene.sink.min_writers.store(2, Ordering::Relaxed);
        let bytes = vec![5; MIN_WRITE_THROUGH];
        scene.file.write(&tx(4), 0, &bytes).unwrap();
        assert_eq!(scene.sink.memory.block_count(), 0);
        let first = scene.objset.begin_long_write(MIN_WRITE_THROUGH);
        assert!(first.is_some() && scene.objset.begin_long_write(MIN_WRITE_THROUGH - 1).is_none());
        scene.file.write(&tx(4), 1 << 20, &bytes).unwrap();
        let second = scene.objset.begin_long_write(MIN_WRITE_THROUGH);
        scene.file.write(&tx(4), 2 << 20, &bytes).unwrap();
        drop((first, second));
        assert_eq!(
            scene.sink.memory.block_count(),
            MIN_WRITE_THROUGH / SIZE as usize,
            "the second of two"
        );
        for at in 0..3 {
            assert_eq!(scene.read(at << 20, MIN_WRITE_THROUGH), bytes);
        }
        assert_eq!(scene.sync(4).1, 3 * MIN_WRITE_THROUGH as u64 + INDIRECT);
    }

    #[test]
    fn block_that_cannot_write_through_waits_for_sync() {
        let scene = fixture();
        scene.sink.is_failing.store(true, Ordering::Relaxed);
        scene.file.write(&tx(4), 0, &vec![5; MIN_WRITE_THROUGH]).unwrap();
        assert_eq!(scene.sink.memory.block_count(), 0);
        assert_eq!(scene.read(0, MIN_WRITE_THROUGH), vec![5; MIN_WRITE_THROUGH]);
        assert_eq!(scene.sync(4).1, MIN_WRITE_THROUGH as u64 + INDIRECT);
    }
}
