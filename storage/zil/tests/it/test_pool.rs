//! A dataset on drives in memory, with its txgs and its log, and its state after a power cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dmu::{BlockLedger, NewObject, Objset, PolicyQuery, SyncContext, WriteThrough};
use ondisk::objset::{Kind, LogHeader};
use ondisk::{Blkptr, ObjectType};
use parking_lot::Mutex;
use sim::DiskArray;
use txg::{TxgLimits, Txgs};
use units::{Ashift, ObjectId, ObjsetId, Txg};
use zil::{IntentLog, LogEnd, LogReader, ReplayEntry};
use zio::memory::MemoryVdevs;
use zio::{Key, Sink, Source, WritePolicy, Writer};

pub(crate) const ID: ObjsetId = ObjsetId::new(54);
/// The object that tests write.
pub(crate) const FILE: ObjectId = ObjectId::new(1);

/// Reports that it was dropped, also by a failing test.
struct DoneOnDrop<'a>(&'a AtomicBool);

impl Drop for DoneOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct TestPool {
    storm: DiskArray,
    ashift: Ashift,
    pub(crate) writer: Arc<Writer>,
    pub(crate) txgs: Txgs,
    pub(crate) objset: Objset,
    pub(crate) log: IntentLog,
    write_through: Arc<PoolWriteThrough>,
    /// The txgs on the drives and their roots, with the number of requests until they were.
    roots: Mutex<Vec<(usize, Txg, Blkptr)>>,
}

/// Writes blocks of content before their txg when a commit wants that.
struct PoolWriteThrough {
    writer: Arc<Writer>,
    key: Option<Key>,
    orphans: Mutex<Vec<Blkptr>>,
    active_writers: AtomicUsize,
}

impl WriteThrough for PoolWriteThrough {
    fn write_policy(&self, _: PolicyQuery) -> Option<WritePolicy> {
        None
    }

    fn log_write_policy(&self, _: PolicyQuery) -> Option<WritePolicy> {
        Some(WritePolicy { key: self.key.clone(), ..WritePolicy::default() })
    }

    fn sink(&self) -> &dyn Sink {
        &*self.writer
    }

    fn active_writers(&self) -> &AtomicUsize {
        &self.active_writers
    }

    fn min_writers(&self) -> usize {
        2
    }

    fn add_orphan(&self, pointer: &Blkptr) {
        self.orphans.lock().push(pointer.clone());
    }
}

impl PoolWriteThrough {
    fn free_orphans(&self, txg: Txg) {
        for pointer in self.orphans.lock().extract_if(.., |pointer| pointer.birth() <= txg) {
            self.writer.free(&pointer, txg);
        }
    }
}

/// The dead give their space back.
struct FreeingLedger<'a>(&'a Writer, Txg);

impl BlockLedger for FreeingLedger<'_> {
    fn block_born(&self, _: &Blkptr) {}

    fn block_kill(&self, pointer: &Blkptr) {
        self.0.free(pointer, self.1);
    }
}

impl TestPool {
    pub(crate) fn new(ashift: Ashift, key: Option<Key>) -> Self {
        let storm = DiskArray::new(&[MemoryVdevs::device_size(24 << 20); 2]);
        let writer = Arc::new(MemoryVdevs::from_devices(storm.devices(), ashift).writer());
        let source = Arc::clone(writer.reader()) as Arc<dyn Source>;
        let objset = Objset::new_empty(source, ID, Kind::Filesystem, key);
        let house =
            Self::with_log(storm, ashift, writer, objset, LogHeader::default(), Txg::new(4));
        let tx = house.txgs.begin_tx().unwrap();
        let file = NewObject::new(ObjectType::PLAIN_FILE, 32 << 10);
        house.objset.create_at(&tx, FILE, &file).unwrap();
        drop(tx);
        house.sync();
        house
    }

    fn with_log(
        storm: DiskArray,
        ashift: Ashift,
        writer: Arc<Writer>,
        objset: Objset,
        claimed: LogHeader,
        synced: Txg,
    ) -> Self {
        let txgs = Txgs::new(synced, TxgLimits::default());
        let roots = Mutex::new(vec![(storm.journal().len(), synced, objset.root().clone())]);
        let (a, b, c) = (Arc::clone(&writer), txgs.clone(), objset.clone());
        let log = IntentLog::new(a, b, c, claimed);
        let write_through = Arc::new(PoolWriteThrough {
            writer: Arc::clone(&writer),
            key: objset.key().cloned(),
            orphans: Mutex::default(),
            active_writers: AtomicUsize::new(0),
        });
        objset.set_write_through(Arc::clone(&write_through) as Arc<dyn WriteThrough>);
        Self { storm, ashift, writer, txgs, objset, log, write_through, roots }
    }

    /// Writes the open txg out.
    pub(crate) fn sync(&self) {
        self.write_txg(self.txgs.quiesce());
    }

    /// Writes a txg out that is closed.
    pub(crate) fn write_txg(&self, txg: Txg) {
        let mut root = self.objset.synced().root().clone();
        if self.objset.is_dirty(txg) || self.log.is_dirty(txg) {
            let policy =
                |_| WritePolicy { key: self.objset.key().cloned(), ..WritePolicy::default() };
            let ledger = FreeingLedger(&self.writer, txg);
            let sink = &*self.writer;
            let syncing = SyncContext {
                txg,
                sink,
                ledger: &ledger,
                policy: &policy,
                workers: 1,
                form: dmu::Form::default(),
            };
            let mut edit = |header: &mut ondisk::objset::ObjsetHeader| {
                self.log.sync_header(txg, &mut header.log).unwrap();
            };
            let synced = self.objset.sync(&syncing, &mut edit).unwrap();
            root = synced.root;
        }
        self.write_through.free_orphans(txg);
        self.writer.flush(self.txgs.synced_txg()).unwrap();
        self.roots.lock().push((self.request_count(), txg, root));
        while !self.writer.allocator().drain_changes(txg).is_empty() {}
        self.writer.allocator().mark_synced(txg);
        self.log.on_txg_synced(txg);
        self.txgs.finish_sync(txg);
    }

    /// Does something while txgs are written whenever someone waits for one.
    pub(crate) fn while_syncing<T>(&self, work: impl FnOnce() -> T) -> T {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if self.txgs.wait_sync_due(Duration::from_millis(1)) {
                        self.sync();
                    }
                }
            });
            let _done = DoneOnDrop(&done);
            work()
        })
    }

    pub(crate) fn allocated(&self) -> u64 {
        self.writer.allocator().class_usage(zio::Class::Normal).allocated
    }

    pub(crate) fn lost_blocks(&self) -> Vec<zio::Error> {
        self.writer.drain_leaked_space()
    }

    /// How many requests the drives had so far: a point in time.
    pub(crate) fn request_count(&self) -> usize {
        self.storm.journal().len()
    }

    /// The content of the drives if the power fails now; `seed` selects one possible outcome.
    pub(crate) fn cut_power(&self, seed: u64) -> CrashImage {
        self.cut_power_at(self.request_count(), seed)
    }

    /// The content of the drives at an earlier moment.
    pub(crate) fn cut_power_at(&self, at: usize, seed: u64) -> CrashImage {
        let roots = self.roots.lock().clone();
        let (_, synced, root) = roots.into_iter().rfind(|(known, ..)| *known <= at).unwrap();
        let key = self.objset.key().cloned();
        let storm = DiskArray::from_memory(self.storm.journal().cut_power(at, seed));
        CrashImage { storm, ashift: self.ashift, synced_txg: synced, root, key }
    }
}

/// The dataset after a power cut.
pub(crate) struct CrashImage {
    storm: DiskArray,
    ashift: Ashift,
    pub(crate) synced_txg: Txg,
    root: Blkptr,
    key: Option<Key>,
}

impl CrashImage {
    fn drives(&self) -> MemoryVdevs {
        MemoryVdevs::from_devices(self.storm.devices(), self.ashift)
    }

    pub(crate) fn objset(&self) -> Objset {
        let source = self.drives().reader() as Arc<dyn Source>;
        Objset::open(source, ID, &self.root, self.key.clone()).unwrap()
    }

    /// The records of the log, and the reason for its end.
    pub(crate) fn read_log(&self, header: &LogHeader) -> (Vec<ReplayEntry>, LogEnd) {
        let source = self.drives().reader() as Arc<dyn Source>;
        let mut records = LogReader::new(source, ID, header, self.key.clone(), self.synced_txg);
        let entries = records.by_ref().map(|entry| entry.unwrap()).collect();
        (entries, records.end().unwrap().clone())
    }

    /// The same dataset in use again: all it has is claimed, its log too.
    pub(crate) fn import(self) -> TestPool {
        let objset = self.objset();
        let writer = Arc::new(self.drives().writer());
        let first = Txg::new(self.synced_txg.get() + 1);
        objset.walk(&dmu::WalkOptions::default(), &mut |zbookmark, found| {
            if let dmu::BlockVisit::Pointer(Blkptr::Regular(block)) = found {
                writer.claim(block, first, zbookmark).unwrap();
            }
            dmu::WalkControl::Descend
        });
        // no space maps here that know of the older ones
        let early = Txg::new(1);
        let mut claimed =
            zil::claim_log(&writer, ID, &objset.header().log, (early, false)).unwrap();
        writer.allocator().drain_changes(early);
        if claimed.claim_txg == early {
            claimed.claim_txg = first;
        }
        TestPool::with_log(
            self.storm,
            self.ashift,
            writer,
            objset.to_writable(),
            claimed,
            self.synced_txg,
        )
    }
}
