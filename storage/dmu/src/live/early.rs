//! Blocks that go to the drives before their group is written.
//!
//! Whole blocks of content that are given many at a time have nothing to wait for: they are stored
//! straight from the caller's memory, while it is in the processor's cache, and their group only
//! brings the pointers to them. Until it is written nothing on the drives leads to them: after a
//! power cut their room is free. What is written over or cut off before that is given up with the
//! group.
//!
//! That is for when as many write as there are processors. While some of these have nothing to do,
//! who writes is served sooner if the group is left to them.
//!
//! ```text
//! begin_write   the blocks are marked as coming, under the lock of whoever changes the object
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
use zio::{Block, Policy, Sink, WriteRequest};

use super::Live;
use super::change::{SMALL, put, put_whole};
use super::entry::{Content, Entry, Shared};
use crate::tree::Tree;
use crate::{Objset, Wanted};

/// Less than so many bytes at a time wait for their group, which writes neighbours together.
const MUCH: usize = 128 << 10;
/// So many bytes are stored at a time: what fits the processor's cache.
const AT_ONCE: usize = 1 << 20;

/// Where blocks go before their group is written.
pub trait Early: Send + Sync {
    /// How content is stored; none if it must wait for its group, since that depends on what was
    /// there before or is elsewhere.
    fn policy(&self, wanted: Wanted) -> Option<Policy>;

    /// Who stores it.
    fn sink(&self) -> &dyn Sink;

    /// How many long writes are under way ([`Objset::begin_long_write`]).
    fn writers(&self) -> &AtomicUsize;

    /// How many there must be, lest the group be the better way.
    fn crowd(&self) -> usize;

    /// A block that was stored is not wanted any more, and no group will lead to it: its room is to
    /// be given up with the group that it was stored in, or a later one.
    fn unwanted(&self, pointer: &Blkptr);
}

/// A block that is on the drives, and to which its group is to bring a pointer.
pub(crate) struct Stored {
    shared: Arc<Shared>,
    early: Arc<dyn Early>,
    /// Somebody else answers for its room.
    settled: AtomicBool,
}

impl Stored {
    /// Where it is.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A group has a pointer to it.
    pub(crate) fn keep(&self) {
        self.settled.store(true, Ordering::Release);
    }

    /// No group will have one.
    pub(crate) fn give_up(&self) {
        if !self.settled.swap(true, Ordering::AcqRel) {
            self.early.unwanted(&self.shared.pointer);
        }
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stored({:?})", self.shared)
    }
}

/// Blocks that are on their way to the drives.
#[derive(Debug, Default)]
pub(crate) struct Coming {
    arrived: Mutex<bool>,
    changed: Condvar,
}

impl Coming {
    /// Waits until they are there, or in memory.
    pub(crate) fn wait(&self) {
        let mut arrived = self.arrived.lock();
        while !*arrived {
            self.changed.wait(&mut arrived);
        }
    }

    fn arrive(&self) {
        *self.arrived.lock() = true;
        self.changed.notify_all();
    }
}

/// Neighbouring blocks that are to be stored.
struct Run<'a> {
    first: u64,
    bytes: &'a [u8],
    size: usize,
    coming: Arc<Coming>,
}

/// A write of which some blocks are still on their way to the drives. When this is dropped they are
/// there, or wait for their group like others.
pub struct Underway<'a, T: Borrow<Tx>> {
    tx: T,
    entry: Arc<Entry>,
    live: Arc<Live>,
    /// Who stores them, how, and what they are part of; looked for when it is first wanted.
    way: OnceLock<Option<Way>>,
    runs: Vec<Run<'a>>,
}

/// A long write, from before its object is locked.
pub struct LongWrite(Arc<dyn Early>);

impl Objset {
    /// Counts a write of so many bytes among the long ones until the result is dropped, if it is
    /// one. To be called before anything is locked: who waits counts as well.
    pub fn begin_long_write(&self, bytes: usize) -> Option<LongWrite> {
        let early = self.live()?.early.get().filter(|_| bytes >= MUCH)?;
        early.writers().fetch_add(1, Ordering::Relaxed);
        Some(LongWrite(Arc::clone(early)))
    }
}

impl Drop for LongWrite {
    fn drop(&mut self) {
        self.0.writers().fetch_sub(1, Ordering::Relaxed);
    }
}

/// How blocks of an object are stored early.
struct Way {
    early: Arc<dyn Early>,
    policy: Policy,
    kind: ObjectType,
    tree: Arc<Tree>,
}

impl<'a, T: Borrow<Tx>> Underway<'a, T> {
    pub(super) fn new(tx: T, entry: &Arc<Entry>, live: &Arc<Live>) -> Self {
        let (entry, live) = (Arc::clone(entry), Arc::clone(live));
        Self { tx, entry, live, way: OnceLock::new(), runs: Vec::new() }
    }

    fn way(&self) -> Option<&Way> {
        self.way.get_or_init(|| Way::of(&self.entry, &self.live)).as_ref()
    }

    /// The transaction that it is part of.
    pub fn tx(&self) -> &Tx {
        self.tx.borrow()
    }

    /// Takes whole blocks of `size` bytes: those that can be stored early are marked as coming.
    pub(super) fn take(&mut self, first: u64, bytes: &'a [u8], size: usize) {
        let together = AT_ONCE.checked_div(size).unwrap_or(1).max(1).saturating_mul(size);
        let mut block = first;
        for bytes in bytes.chunks(together) {
            let blocks = bytes.chunks(size);
            let end = block.saturating_add(u64::try_from(blocks.len()).unwrap_or(u64::MAX));
            let txg = self.tx.borrow().txg();
            let is_much = bytes.len() >= MUCH && self.way().is_some();
            if is_much && is_cold(&self.entry, txg, block..end) {
                self.mark(Run { first: block, bytes, size, coming: Arc::default() });
            } else {
                for (block, bytes) in (block..end).zip(blocks) {
                    put_whole(&self.entry, self.tx.borrow(), block, bytes);
                }
            }
            block = end;
        }
    }

    fn mark(&mut self, run: Run<'a>) {
        let txg = self.tx.borrow().txg();
        let coming = Content::Coming(Arc::clone(&run.coming));
        let mut state = self.entry.state.write();
        for (block, _) in run.blocks() {
            put(&mut state, txg, block, &coming);
        }
        drop(state);
        self.runs.push(run);
    }

    fn finish(&mut self) {
        let runs = std::mem::take(&mut self.runs);
        let tx = self.tx.borrow();
        let Some(way) = self.way().filter(|_| !runs.is_empty()) else { return };
        for run in runs {
            let contents = way.store(&run, tx.txg());
            let (mut stored, mut waiting) = (0_u64, 0_u64);
            for ((_, bytes), content) in run.blocks().zip(&contents) {
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let is_stored = matches!(content, Content::Stored(_));
                stored = stored.saturating_add(if is_stored { length } else { 0 });
                waiting =
                    waiting.saturating_add(if is_stored { SMALL } else { tx.on_drive(length) });
            }
            run.arrive(&self.entry, contents);
            tx.stored(stored);
            tx.dirtied(waiting);
        }
    }
}

impl<T: Borrow<Tx>> Drop for Underway<'_, T> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<'a> Run<'a> {
    fn blocks(&self) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
        (self.first..).zip(self.bytes.chunks(self.size))
    }

    /// Puts what became of the blocks where they were marked as coming; what was cut off or written
    /// over since stays as it is.
    fn arrive(&self, entry: &Entry, contents: Vec<Content>) {
        let ours = |content: &Content| match content {
            Content::Coming(coming) => Arc::ptr_eq(coming, &self.coming),
            _ => false,
        };
        let mut state = entry.state.write();
        for ((block, _), content) in self.blocks().zip(contents) {
            let versions = state.blocks.get_mut(&block).into_iter().flatten();
            for (_, version) in versions.filter(|(_, version)| ours(version)) {
                *version = content.clone();
            }
        }
        drop(state);
        self.coming.arrive();
    }
}

impl Way {
    /// Content of files and volumes alone: all else is changed again and again.
    fn of(entry: &Entry, live: &Live) -> Option<Self> {
        let early = Arc::clone(live.early.get()?);
        if early.writers().load(Ordering::Relaxed) < early.crowd() {
            return None;
        }
        let tree = entry.state.read().tree(|dnode| live.tree(entry.id, dnode))?;
        let kind = tree.dnode.kind;
        if !matches!(kind, ObjectType::PLAIN_FILE | ObjectType::ZVOL) {
            return None;
        }
        let (checksum, compression) = (tree.dnode.checksum, tree.dnode.compression);
        let wanted = Wanted { kind, level: Level::new(0), checksum, compression };
        let policy = early.policy(wanted)?;
        Some(Self { early, policy, kind, tree })
    }

    /// Stores blocks. What could not be stored, or takes no room, waits for its group, which tells
    /// what is wrong.
    fn store(&self, run: &Run<'_>, txg: Txg) -> Vec<Content> {
        let requests = run.blocks().map(|(block, data)| WriteRequest {
            data,
            kind: self.kind,
            level: Level::new(0),
            fill: 1,
            txg,
            policy: &self.policy,
            previous: &Blkptr::EMPTY,
            place: self.tree.place(0, block),
        });
        let stored = self.early.sink().write_many(&requests.collect::<Vec<_>>());
        let content = |((_, bytes), stored): ((u64, &[u8]), _)| match stored {
            Ok(pointer @ Blkptr::Regular(_)) => {
                let shared = Shared::new(pointer, Arc::clone(&self.tree));
                let (early, settled) = (Arc::clone(&self.early), AtomicBool::new(false));
                Content::Stored(Arc::new(Stored { shared, early, settled }))
            }
            _ => Content::Bytes(Block::copied(bytes, Order::Little)),
        };
        run.blocks().zip(stored).map(content).collect()
    }
}

/// Whether the group, and later ones, have nothing of those blocks yet: what is written again and
/// again is written once, with its group.
fn is_cold(entry: &Entry, txg: Txg, blocks: std::ops::Range<u64>) -> bool {
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
    use zio::{Error, Policy, Sink, WriteRequest};

    use super::{Early, MUCH};
    use crate::memory::{Ahead, Memory, blank};
    use crate::{NewObject, Object, Objset, Wanted};

    /// Stores what it is given when it is told to; or fails.
    struct Gate {
        memory: Arc<Memory>,
        shut: Mutex<()>,
        broken: AtomicBool,
        crowd: AtomicUsize,
        ahead: Arc<Ahead>,
    }

    impl Sink for Gate {
        fn write(&self, request: &WriteRequest<'_>) -> Result<Blkptr, Error> {
            drop(self.shut.lock());
            if self.broken.load(Ordering::Relaxed) {
                return Err(Error::NoSpace { place: request.place, psize: 0 });
            }
            self.memory.write(request)
        }

        fn free(&self, pointer: &Blkptr, txg: Txg) {
            self.memory.free(pointer, txg);
        }
    }

    impl Early for Gate {
        fn policy(&self, wanted: Wanted) -> Option<Policy> {
            self.ahead.policy(wanted)
        }

        fn sink(&self) -> &dyn Sink {
            self
        }

        fn writers(&self) -> &AtomicUsize {
            self.ahead.writers()
        }

        fn crowd(&self) -> usize {
            self.crowd.load(Ordering::Relaxed)
        }

        fn unwanted(&self, pointer: &Blkptr) {
            self.ahead.unwanted(pointer);
        }
    }

    struct Scene {
        set: Objset,
        gate: Arc<Gate>,
        file: Object,
    }

    const SIZE: u32 = 32 << 10;
    const INDIRECT: u64 = 128 << 10;

    fn scene() -> Scene {
        let (set, memory) = blank(Kind::Filesystem);
        let (ahead, shut, broken) = (Ahead::of(&memory), Mutex::new(()), AtomicBool::new(false));
        let crowd = AtomicUsize::new(0);
        let gate = Arc::new(Gate { memory, shut, broken, crowd, ahead });
        set.set_early(Arc::clone(&gate) as Arc<dyn Early>);
        let file = set.create(&tx(4), &NewObject::new(ObjectType::PLAIN_FILE, SIZE)).unwrap();
        Scene { set, gate, file }
    }

    fn tx(txg: u64) -> Tx {
        Tx::syncing(Txg::new(txg))
    }

    impl Scene {
        fn read(&self, at: u64, length: usize) -> Vec<u8> {
            let mut bytes = vec![0; length];
            self.file.read(at, &mut bytes).unwrap();
            bytes
        }

        /// Writes the group; blocks that are held, and all that the file has.
        fn sync(&self, txg: u64) -> (usize, u64) {
            self.gate.memory.sync(&self.set, Txg::new(txg)).unwrap();
            self.gate.ahead.give_up(Txg::new(txg));
            let used = self.set.synced().object(self.file.id()).unwrap().dnode().used_bytes;
            (self.gate.memory.count(), used)
        }
    }

    #[test]
    fn who_reads_what_is_coming_waits_for_it() {
        let scene = scene();
        let bytes = vec![5; MUCH];
        thread::scope(|scope| {
            let shut = scene.gate.shut.lock();
            let underway = scene.file.begin_write(tx(4), 0, &bytes).unwrap();
            assert_eq!(scene.gate.memory.count(), 0);
            let reader = scope.spawn(|| scene.read(0, MUCH));
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
        assert_eq!(scene.gate.memory.count(), 4, "it is stored before its group is written");
        scene.sync(4);
        assert_eq!(scene.read(0, MUCH), bytes);
    }

    #[test]
    fn long_stretches_are_as_short_ones_whatever_they_are_made_of() {
        let scene = scene();
        let mut right: Vec<u8> =
            (0..6_u32 << 10).flat_map(|at| (at * 77).to_le_bytes().repeat(128)).collect();
        scene.file.write(&tx(4), 0, &right).unwrap();
        scene.sync(4);
        // a hole, what waits in memory, and what is stored and has no pointer yet
        scene.file.free_range(&tx(5), 300_000..700_000).unwrap();
        right[300_000..700_000].fill(0);
        scene.file.write(&tx(5), 900_000, &vec![7; 50_000]).unwrap();
        right[900_000..950_000].fill(7);
        scene.file.write(&tx(5), 1 << 20, &vec![8; MUCH]).unwrap();
        right[1 << 20..][..MUCH].fill(8);
        right.resize(4 << 20, 0);
        let still = scene.set.object(scene.file.id()).unwrap();
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
        scene.set.synced().object(scene.file.id()).unwrap().read(0, &mut bytes).unwrap();
        assert!(bytes == right);
    }

    #[test]
    fn what_is_cut_off_or_written_over_while_it_comes_is_given_up() {
        let scene = scene();
        let bytes = vec![5; 2 * MUCH];
        let underway = scene.file.begin_write(tx(4), 0, &bytes).unwrap();
        scene.file.free_range(&tx(4), MUCH as u64..u64::MAX).unwrap();
        let size = usize::try_from(SIZE).unwrap();
        scene.file.write(&tx(4), 0, &vec![6; size]).unwrap();
        drop(underway);
        assert_eq!(scene.read(0, size), vec![6; size]);
        assert_eq!(scene.read(SIZE.into(), MUCH - size), vec![5; MUCH - size]);
        assert_eq!(scene.read(MUCH as u64, MUCH), vec![0; MUCH]);
        // a byte of what is stored: the rest of the block is kept
        scene.file.write(&tx(4), u64::from(SIZE) + 1, b"7").unwrap();
        assert_eq!(scene.read(SIZE.into(), 3), [5, b'7', 5]);
        let (_, used) = scene.sync(4);
        assert_eq!(used, MUCH as u64 + INDIRECT);
        let file = scene.set.object(scene.file.id()).unwrap();
        file.free_range(&tx(5), 0..u64::MAX).unwrap();
        let empty = scene.sync(5);
        scene.set.object(scene.file.id()).unwrap().write(&tx(6), 0, &bytes).unwrap();
        scene.set.abandon();
        scene.gate.ahead.give_up(Txg::new(6));
        assert_eq!((scene.gate.memory.count(), 0), empty);
    }

    #[test]
    fn who_writes_alone_leaves_it_to_the_group() {
        let scene = scene();
        scene.gate.crowd.store(2, Ordering::Relaxed);
        let bytes = vec![5; MUCH];
        scene.file.write(&tx(4), 0, &bytes).unwrap();
        assert_eq!(scene.gate.memory.count(), 0);
        let first = scene.set.begin_long_write(MUCH);
        assert!(first.is_some() && scene.set.begin_long_write(MUCH - 1).is_none());
        scene.file.write(&tx(4), 1 << 20, &bytes).unwrap();
        let second = scene.set.begin_long_write(MUCH);
        scene.file.write(&tx(4), 2 << 20, &bytes).unwrap();
        drop((first, second));
        assert_eq!(scene.gate.memory.count(), MUCH / SIZE as usize, "the second of two");
        for at in 0..3 {
            assert_eq!(scene.read(at << 20, MUCH), bytes);
        }
        assert_eq!(scene.sync(4).1, 3 * MUCH as u64 + INDIRECT);
    }

    #[test]
    fn what_cannot_be_stored_early_waits_for_its_group() {
        let scene = scene();
        scene.gate.broken.store(true, Ordering::Relaxed);
        scene.file.write(&tx(4), 0, &vec![5; MUCH]).unwrap();
        assert_eq!(scene.gate.memory.count(), 0);
        assert_eq!(scene.read(0, MUCH), vec![5; MUCH]);
        assert_eq!(scene.sync(4).1, MUCH as u64 + INDIRECT);
    }
}
