//! Volumes created, written and resized, with power cuts; flushed data survives.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dmu::{BlockLedger, Objset, SyncContext};
use ondisk::Blkptr;
use ondisk::blkptr::{Hole, Regular};
use ondisk::objset::{Kind, LogHeader};
use ondisk::zil::Body;
use proptest::prelude::*;
use sim::DiskArray;
use txg::{GatedTxgs, TxgLimits, Txgs};
use units::{Ashift, BlockId, Level, ObjsetId, Txg};
use zil::{IntentLog, Itx, LogReader};
use zio::memory::MemoryVdevs;
use zio::{DedupLookup, FreeOutcome, SharedBlocks, Sink, Source, WritePolicy, Writer};
use zvol::{Error, NewVolume, Volume, WritableVolume};

const ID: ObjsetId = ObjsetId::new(54);
const BLOCK_SIZE: u32 = 8192;
const VOLUME_SIZE: u64 = 64 * 8192;

/// A volume on drives that can lose power.
struct TestPool {
    storm: DiskArray,
    writer: Arc<Writer>,
    txgs: Txgs,
    objset: Objset,
    log: Arc<IntentLog>,
    synced_txg: Txg,
    root: Blkptr,
}

/// Reports that it was dropped, also by a failing test.
struct DoneOnDrop<'a>(&'a AtomicBool);

impl Drop for DoneOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many share a block beyond the first.
#[derive(Default)]
struct ShareCounts(Mutex<HashMap<[u64; 4], u64>>);

impl SharedBlocks for ShareCounts {
    fn release(&self, block: &Regular, _: Txg) -> FreeOutcome {
        let mut counts = self.0.lock().unwrap();
        match counts.get_mut(&block.sum).filter(|count| **count > 0) {
            Some(count) => {
                *count -= 1;
                FreeOutcome::StillReferenced
            }
            None => FreeOutcome::Free(block.dvas),
        }
    }

    fn find_duplicate(&self, _: &Regular, _: u8, _: Txg) -> DedupLookup {
        DedupLookup::Unusable
    }

    fn insert(&self, _: &Regular, _: Txg) -> bool {
        false
    }

    fn add_reference(&self, block: &Regular, _: Txg) -> bool {
        *self.0.lock().unwrap().entry(block.sum).or_default() += 1;
        true
    }
}

struct FreeingLedger<'a>(&'a Writer, Txg);

impl BlockLedger for FreeingLedger<'_> {
    fn block_born(&self, _: &Blkptr) {}

    fn block_kill(&self, pointer: &Blkptr) {
        self.0.free(pointer, self.1);
    }
}

fn open_drives(storm: &DiskArray) -> MemoryVdevs {
    MemoryVdevs::from_devices(storm.devices(), Ashift::new(12).unwrap())
}

impl TestPool {
    fn new() -> Self {
        let storm = DiskArray::new(&[MemoryVdevs::device_size(32 << 20); 2]);
        let writer = Arc::new(open_drives(&storm).writer());
        let source = Arc::clone(writer.reader()) as Arc<dyn Source>;
        let objset = Objset::new_empty(source, ID, Kind::Volume, None);
        let house = Self::with_log(storm, writer, objset, LogHeader::default(), Txg::new(3));
        let tx = house.txgs.begin_tx().unwrap();
        let new = NewVolume { size: VOLUME_SIZE, block_size: BLOCK_SIZE, salt: 5 };
        new.create(&house.objset, &tx).unwrap();
        drop(tx);
        house
    }

    fn with_log(
        storm: DiskArray,
        writer: Arc<Writer>,
        objset: Objset,
        claimed: LogHeader,
        synced_txg: Txg,
    ) -> Self {
        let txgs = Txgs::new(synced_txg, TxgLimits::default());
        let root = objset.root().clone();
        let log = IntentLog::new(Arc::clone(&writer), txgs.clone(), objset.clone(), claimed);
        Self { storm, writer, txgs, objset, log: Arc::new(log), synced_txg, root }
    }

    fn volume(&self) -> WritableVolume {
        let log = Arc::clone(&self.log);
        let txgs = GatedTxgs::new(self.txgs.clone(), Arc::default());
        WritableVolume::open(self.objset.clone(), txgs, log).unwrap()
    }

    fn sync(&mut self) {
        let txg = self.txgs.quiesce();
        let policy = |_| WritePolicy::default();
        let (sink, ledger) = (&*self.writer, FreeingLedger(&self.writer, txg));
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
        self.root = self.objset.sync(&syncing, &mut edit).unwrap().root;
        self.writer.flush(self.txgs.synced_txg()).unwrap();
        self.synced_txg = txg;
        while !self.writer.allocator().drain_changes(txg).is_empty() {}
        self.writer.allocator().mark_synced(txg);
        self.log.on_txg_synced(txg);
        self.txgs.finish_sync(txg);
    }

    /// Does something while txgs are written whenever someone waits for one.
    fn while_syncing<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        let (done, groups) = (AtomicBool::new(false), self.txgs.clone());
        std::thread::scope(|scope| {
            let result = scope.spawn(|| {
                let _done = DoneOnDrop(&done);
                work()
            });
            while !done.load(Ordering::Relaxed) {
                if groups.wait_sync_due(Duration::from_millis(1)) {
                    self.sync();
                }
            }
            result.join().unwrap()
        })
    }

    /// After a power cut that leaves nothing that was not flushed: the object set on the drives.
    fn cut_power(&self) -> (DiskArray, Objset) {
        let journal = self.storm.journal();
        let storm = DiskArray::from_memory(journal.cut_power(journal.len(), 0));
        let source = open_drives(&storm).reader() as Arc<dyn Source>;
        let objset = Objset::open(source, ID, &self.root, None).unwrap();
        (storm, objset)
    }

    fn log_reader(&self, objset: &Objset, header: &LogHeader) -> LogReader {
        LogReader::new(Arc::clone(objset.source()), ID, header, None, self.synced_txg)
    }

    /// The content after a power cut, with the log applied.
    fn content_after_crash(&self) -> Vec<u8> {
        let (_, objset) = self.cut_power();
        let mut records = self.log_reader(&objset, &objset.header().log);
        let (volume, _) = Volume::open(&objset, Some(&mut records)).unwrap();
        let mut bytes = vec![7; usize::try_from(volume.size()).unwrap()];
        volume.read(0, &mut bytes).unwrap();
        bytes
    }

    /// In use again after a power cut: the log is claimed and replayed.
    fn import_after_crash(&self) -> Self {
        let (storm, objset) = self.cut_power();
        let writer = Arc::new(open_drives(&storm).writer());
        writer.set_shared_blocks(Arc::new(ShareCounts::default()));
        let early = Txg::new(1);
        objset.walk(&dmu::WalkOptions::default(), &mut |zbookmark, found| {
            if let dmu::BlockVisit::Pointer(Blkptr::Regular(block)) = found {
                writer.claim(block, early, zbookmark).unwrap();
            }
            dmu::WalkControl::Descend
        });
        // no space maps here that know of the older blocks of the log
        let mut claimed =
            zil::claim_log(&writer, ID, &objset.header().log, (early, false)).unwrap();
        if claimed.claim_txg == early {
            claimed.claim_txg = Txg::new(self.synced_txg.get() + 1);
        }
        writer.allocator().drain_changes(early);
        let mut records = self.log_reader(&objset, &claimed);
        let mut house =
            Self::with_log(storm, writer, objset.to_writable(), claimed, self.synced_txg);
        house.volume().replay_log(&mut records).unwrap();
        for _ in 0..4 {
            house.sync();
        }
        assert!(house.writer.drain_leaked_space().is_empty());
        house
    }
}

fn content(volume: &WritableVolume) -> Vec<u8> {
    let mut bytes = vec![7; usize::try_from(volume.size()).unwrap()];
    assert_eq!(volume.read(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[derive(Clone, Debug)]
enum Operation {
    Write(u64, usize, u8),
    Discard(u64, u64),
    Zero(u64, u64),
    Flush,
    Sync,
    Resize(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let range = || (0..VOLUME_SIZE, 1_u64..100_000);
    prop_oneof![
        4 => (0..VOLUME_SIZE, 1_usize..100_000, 1_u8..).prop_map(|(at, n, byte)| Operation::Write(at, n, byte)),
        1 => range().prop_map(|(at, length)| Operation::Discard(at, length)),
        1 => range().prop_map(|(at, length)| Operation::Zero(at, length)),
        2 => Just(Operation::Flush),
        1 => Just(Operation::Sync),
        1 => (1_u64..100).prop_map(|blocks| Operation::Resize(blocks * u64::from(BLOCK_SIZE))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 6))]

    #[test]
    fn flushed_writes_survive_a_power_cut(acts in proptest::collection::vec(operation(), 1..30)) {
        let mut house = TestPool::new();
        let volume = house.volume();
        house.sync();
        let mut now = vec![0_u8; usize::try_from(VOLUME_SIZE).unwrap()];
        for act in &acts {
            let size = now.len() as u64;
            let part = |at: u64, length: u64| {
                let end = usize::try_from(at.saturating_add(length)).unwrap();
                usize::try_from(at).unwrap()..end
            };
            let mut is_safe = false;
            match *act {
                Operation::Write(at, length, byte) => {
                    let result = volume.write(at, &vec![byte; length]);
                    if at + length as u64 > size {
                        let outside = matches!(result, Err(Error::OutOfRange { .. }));
                        prop_assert!(outside, "{:?}", result);
                    } else {
                        result.unwrap();
                        now[part(at, length as u64)].fill(byte);
                    }
                }
                Operation::Discard(at, length) => {
                    volume.discard(at..at + length).unwrap();
                    let block = u64::from(BLOCK_SIZE);
                    let end = (at + length).min(size) / block * block;
                    let start = at.next_multiple_of(block);
                    if start < end {
                        now[part(start, end - start)].fill(0);
                    }
                }
                Operation::Zero(at, length) if at + length <= size => {
                    volume.write_zeros(at..at + length).unwrap();
                    now[part(at, length)].fill(0);
                }
                Operation::Zero(at, length) => {
                    prop_assert!(volume.write_zeros(at..at + length).is_err());
                }
                Operation::Flush => {
                    house.while_syncing(|| volume.flush()).unwrap();
                    is_safe = true;
                }
                Operation::Sync => {
                    house.sync();
                    is_safe = true;
                }
                Operation::Resize(bytes) => {
                    house.while_syncing(|| volume.resize(bytes)).unwrap();
                    now.resize(usize::try_from(bytes).unwrap(), 0);
                    is_safe = true;
                }
            }
            prop_assert!(content(&volume) == now, "after {:?}", act);
            if is_safe {
                prop_assert!(house.content_after_crash() == now, "left after {:?}", act);
            }
        }
        house.while_syncing(|| volume.flush()).unwrap();
        let again = house.import_after_crash();
        prop_assert!(content(&again.volume()) == now);
        prop_assert!(again.content_after_crash() == now);
        prop_assert!(house.writer.drain_leaked_space().is_empty());
    }
}

#[test]
fn what_cannot_be_a_volume_is_refused() {
    let mut house = TestPool::new();
    let tx = house.txgs.begin_tx().unwrap();
    for (size, block_size) in
        [(0, BLOCK_SIZE), (VOLUME_SIZE + 512, BLOCK_SIZE), (VOLUME_SIZE, 256), (VOLUME_SIZE, 12288)]
    {
        let new = NewVolume { size, block_size, salt: 0 };
        let error = new.create(&house.objset, &tx).unwrap_err();
        assert!(matches!(error, Error::BadSize { .. } | Error::BadBlockSize { .. }), "{error}");
    }
    drop(tx);
    let volume = house.volume();
    assert!(matches!(volume.resize(1), Err(Error::BadSize { .. })));
    assert!(matches!(volume.write(u64::MAX, &[1]), Err(Error::OutOfRange { .. })));
    assert_eq!((volume.size(), volume.block_size()), (VOLUME_SIZE, BLOCK_SIZE));
    house.sync();
    // object 1 is the data, object 2 the table: that is all there is
    let (_, objset) = house.cut_power();
    let numbers: Vec<u64> = objset.objects().map(|found| found.unwrap().0.get()).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn replay_copies_cloned_blocks() {
    let mut house = TestPool::new();
    let volume = house.volume();
    volume.write(0, &[3; BLOCK_SIZE as usize]).unwrap();
    house.sync();
    // something for the chain to begin with
    volume.write(u64::from(BLOCK_SIZE), &[4; 512]).unwrap();
    house.while_syncing(|| volume.flush()).unwrap();
    let (_, objset) = house.cut_power();
    let (reader, _) = Volume::open(&objset, None).unwrap();
    let block = reader.object().pointer(Level::new(0), BlockId::new(0)).unwrap();
    let body = Body::Clone {
        object: reader.object().id(),
        offset: 5 * u64::from(BLOCK_SIZE),
        length: 2 * u64::from(BLOCK_SIZE),
        block_size: BLOCK_SIZE.into(),
        pointers: vec![block, Blkptr::Hole(Hole { lsize: BLOCK_SIZE, ..Hole::default() })],
    };
    let tx = house.txgs.begin_tx().unwrap();
    house.log.add_itx(&tx, Itx::new_per_object(body));
    drop(tx);
    volume.flush().unwrap();
    let left = house.content_after_crash();
    let again = content(&house.import_after_crash().volume());
    for bytes in [left, again] {
        let blocks: Vec<&[u8]> = bytes.chunks(BLOCK_SIZE as usize).collect();
        assert!(blocks[0] == blocks[5] && blocks[5] == [3; BLOCK_SIZE as usize]);
        assert!(blocks[6] == [0; BLOCK_SIZE as usize] && blocks[1][..512] == [4; 512]);
    }
}
