//! Volumes made, written and resized, with power cuts; what is left is what was promised.

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
use sim::Storm;
use txg::{Groups, Limits};
use units::{Ashift, BlockId, Level, ObjsetId, Txg};
use zil::{Item, Log, Records};
use zio::memory::MemoryVdevs;
use zio::{DedupLookup, FreeOutcome, SharedBlocks, Sink, Source, WritePolicy, Writer};
use zvol::{Error, LiveVolume, NewVolume, Volume};

const ID: ObjsetId = ObjsetId::new(54);
const BLOCK: u32 = 8192;
const SIZE: u64 = 64 * 8192;

/// A volume on drives whose power fails.
struct House {
    storm: Storm,
    writer: Arc<Writer>,
    groups: Groups,
    objset: Objset,
    log: Arc<Log>,
    synced: Txg,
    root: Blkptr,
}

/// Says so when dropped, by a test that fails, too.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many share a block beyond the first.
#[derive(Default)]
struct Counts(Mutex<HashMap<[u64; 4], u64>>);

impl SharedBlocks for Counts {
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

struct Frees<'a>(&'a Writer, Txg);

impl BlockLedger for Frees<'_> {
    fn block_born(&self, _: &Blkptr) {}

    fn block_kill(&self, pointer: &Blkptr) {
        self.0.free(pointer, self.1);
    }
}

fn drives(storm: &Storm) -> MemoryVdevs {
    MemoryVdevs::from_devices(storm.devices(), Ashift::new(12).unwrap())
}

impl House {
    fn new() -> Self {
        let storm = Storm::new(&[MemoryVdevs::device_size(32 << 20); 2]);
        let writer = Arc::new(drives(&storm).writer());
        let source = Arc::clone(writer.reader()) as Arc<dyn Source>;
        let objset = Objset::new_empty(source, ID, Kind::Volume, None);
        let house = Self::over(storm, writer, objset, LogHeader::default(), Txg::new(3));
        let tx = house.groups.begin().unwrap();
        let new = NewVolume { size: SIZE, block_size: BLOCK, salt: 5 };
        new.create(&house.objset, &tx).unwrap();
        drop(tx);
        house
    }

    fn over(
        storm: Storm,
        writer: Arc<Writer>,
        objset: Objset,
        claimed: LogHeader,
        synced: Txg,
    ) -> Self {
        let groups = Groups::new(synced, Limits::default());
        let root = objset.root().clone();
        let log = Log::new(Arc::clone(&writer), groups.clone(), objset.clone(), claimed);
        Self { storm, writer, groups, objset, log: Arc::new(log), synced, root }
    }

    fn volume(&self) -> LiveVolume {
        let log = Arc::clone(&self.log);
        LiveVolume::open(self.objset.clone(), self.groups.clone(), log).unwrap()
    }

    fn sync(&mut self) {
        let txg = self.groups.quiesce();
        let policy = |_| WritePolicy::default();
        let (sink, ledger) = (&*self.writer, Frees(&self.writer, txg));
        let syncing = SyncContext {
            txg,
            sink,
            ledger: &ledger,
            policy: &policy,
            workers: 1,
            form: dmu::Form::default(),
        };
        let mut edit = |header: &mut ondisk::objset::ObjsetHeader| {
            self.log.sync(txg, &mut header.log).unwrap();
        };
        self.root = self.objset.sync(&syncing, &mut edit).unwrap().root;
        self.writer.flush(self.groups.synced()).unwrap();
        self.synced = txg;
        while !self.writer.allocator().drain_changes(txg).is_empty() {}
        self.writer.allocator().mark_synced(txg);
        self.log.synced(txg);
        self.groups.finish(txg);
    }

    /// Does something while txgs are written whenever someone waits for one.
    fn while_syncing<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        let (done, groups) = (AtomicBool::new(false), self.groups.clone());
        std::thread::scope(|scope| {
            let result = scope.spawn(|| {
                let _done = Done(&done);
                work()
            });
            while !done.load(Ordering::Relaxed) {
                if groups.wait_due(Duration::from_millis(1)) {
                    self.sync();
                }
            }
            result.join().unwrap()
        })
    }

    /// After a power cut that leaves nothing that was not flushed: the object set on the drives.
    fn cut(&self) -> (Storm, Objset) {
        let journal = self.storm.journal();
        let storm = Storm::from_memory(journal.cut(journal.len(), 0));
        let source = drives(&storm).reader() as Arc<dyn Source>;
        let objset = Objset::open(source, ID, &self.root, None).unwrap();
        (storm, objset)
    }

    fn records(&self, objset: &Objset, header: &LogHeader) -> Records {
        Records::new(Arc::clone(objset.source()), ID, header, None, self.synced)
    }

    /// What a reader sees after a power cut, the log laid over the volume.
    fn left(&self) -> Vec<u8> {
        let (_, objset) = self.cut();
        let mut records = self.records(&objset, &objset.header().log);
        let (volume, _) = Volume::open(&objset, Some(&mut records)).unwrap();
        let mut bytes = vec![7; usize::try_from(volume.size()).unwrap()];
        volume.read(0, &mut bytes).unwrap();
        bytes
    }

    /// In use again after a power cut: the log is claimed and replayed.
    fn imported(&self) -> Self {
        let (storm, objset) = self.cut();
        let writer = Arc::new(drives(&storm).writer());
        writer.set_shared_blocks(Arc::new(Counts::default()));
        let early = Txg::new(1);
        objset.walk(&dmu::WalkOptions::default(), &mut |place, found| {
            if let dmu::BlockVisit::Pointer(Blkptr::Regular(block)) = found {
                writer.claim(block, early, place).unwrap();
            }
            dmu::WalkControl::Descend
        });
        // no space maps here that know of the older blocks of the log
        let mut claimed = zil::claim(&writer, ID, &objset.header().log, (early, false)).unwrap();
        if claimed.claim_txg == early {
            claimed.claim_txg = Txg::new(self.synced.get() + 1);
        }
        writer.allocator().drain_changes(early);
        let mut records = self.records(&objset, &claimed);
        let mut house = Self::over(storm, writer, objset.to_writable(), claimed, self.synced);
        house.volume().replay(&mut records).unwrap();
        for _ in 0..4 {
            house.sync();
        }
        assert!(house.writer.drain_leaked_space().is_empty());
        house
    }
}

fn content(volume: &LiveVolume) -> Vec<u8> {
    let mut bytes = vec![7; usize::try_from(volume.size()).unwrap()];
    assert_eq!(volume.read(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[derive(Clone, Debug)]
enum Act {
    Write(u64, usize, u8),
    Discard(u64, u64),
    Zero(u64, u64),
    Flush,
    Sync,
    Resize(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let range = || (0..SIZE, 1_u64..100_000);
    prop_oneof![
        4 => (0..SIZE, 1_usize..100_000, 1_u8..).prop_map(|(at, n, byte)| Act::Write(at, n, byte)),
        1 => range().prop_map(|(at, length)| Act::Discard(at, length)),
        1 => range().prop_map(|(at, length)| Act::Zero(at, length)),
        2 => Just(Act::Flush),
        1 => Just(Act::Sync),
        1 => (1_u64..100).prop_map(|blocks| Act::Resize(blocks * u64::from(BLOCK))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 6))]

    #[test]
    fn what_was_flushed_outlasts_a_cut(acts in proptest::collection::vec(act(), 1..30)) {
        let mut house = House::new();
        let volume = house.volume();
        house.sync();
        let mut now = vec![0_u8; usize::try_from(SIZE).unwrap()];
        for act in &acts {
            let size = now.len() as u64;
            let part = |at: u64, length: u64| {
                let end = usize::try_from(at.saturating_add(length)).unwrap();
                usize::try_from(at).unwrap()..end
            };
            let mut is_safe = false;
            match *act {
                Act::Write(at, length, byte) => {
                    let result = volume.write(at, &vec![byte; length]);
                    if at + length as u64 > size {
                        let outside = matches!(result, Err(Error::Outside { .. }));
                        prop_assert!(outside, "{:?}", result);
                    } else {
                        result.unwrap();
                        now[part(at, length as u64)].fill(byte);
                    }
                }
                Act::Discard(at, length) => {
                    volume.discard(at..at + length).unwrap();
                    let block = u64::from(BLOCK);
                    let end = (at + length).min(size) / block * block;
                    let start = at.next_multiple_of(block);
                    if start < end {
                        now[part(start, end - start)].fill(0);
                    }
                }
                Act::Zero(at, length) if at + length <= size => {
                    volume.write_zeros(at..at + length).unwrap();
                    now[part(at, length)].fill(0);
                }
                Act::Zero(at, length) => {
                    prop_assert!(volume.write_zeros(at..at + length).is_err());
                }
                Act::Flush => {
                    house.while_syncing(|| volume.flush()).unwrap();
                    is_safe = true;
                }
                Act::Sync => {
                    house.sync();
                    is_safe = true;
                }
                Act::Resize(bytes) => {
                    house.while_syncing(|| volume.resize(bytes)).unwrap();
                    now.resize(usize::try_from(bytes).unwrap(), 0);
                    is_safe = true;
                }
            }
            prop_assert!(content(&volume) == now, "after {:?}", act);
            if is_safe {
                prop_assert!(house.left() == now, "left after {:?}", act);
            }
        }
        house.while_syncing(|| volume.flush()).unwrap();
        let again = house.imported();
        prop_assert!(content(&again.volume()) == now);
        prop_assert!(again.left() == now);
        prop_assert!(house.writer.drain_leaked_space().is_empty());
    }
}

#[test]
fn what_cannot_be_a_volume_is_refused() {
    let mut house = House::new();
    let tx = house.groups.begin().unwrap();
    for (size, block_size) in [(0, BLOCK), (SIZE + 512, BLOCK), (SIZE, 256), (SIZE, 12288)] {
        let new = NewVolume { size, block_size, salt: 0 };
        let error = new.create(&house.objset, &tx).unwrap_err();
        assert!(matches!(error, Error::Size { .. } | Error::BlockSize { .. }), "{error}");
    }
    drop(tx);
    let volume = house.volume();
    assert!(matches!(volume.resize(1), Err(Error::Size { .. })));
    assert!(matches!(volume.write(u64::MAX, &[1]), Err(Error::Outside { .. })));
    assert_eq!((volume.size(), volume.block_size()), (SIZE, BLOCK));
    house.sync();
    // object 1 is the data, object 2 the table: that is all there is
    let (_, objset) = house.cut();
    let numbers: Vec<u64> = objset.objects().map(|found| found.unwrap().0.get()).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn what_was_cloned_is_copied_when_it_is_replayed() {
    let mut house = House::new();
    let volume = house.volume();
    volume.write(0, &[3; BLOCK as usize]).unwrap();
    house.sync();
    // something for the chain to begin with
    volume.write(u64::from(BLOCK), &[4; 512]).unwrap();
    house.while_syncing(|| volume.flush()).unwrap();
    let (_, objset) = house.cut();
    let (reader, _) = Volume::open(&objset, None).unwrap();
    let block = reader.object().pointer(Level::new(0), BlockId::new(0)).unwrap();
    let body = Body::Clone {
        object: reader.object().id(),
        offset: 5 * u64::from(BLOCK),
        length: 2 * u64::from(BLOCK),
        block_size: BLOCK.into(),
        pointers: vec![block, Blkptr::Hole(Hole { lsize: BLOCK, ..Hole::default() })],
    };
    let tx = house.groups.begin().unwrap();
    house.log.add(&tx, Item::of_object(body));
    drop(tx);
    volume.flush().unwrap();
    let left = house.left();
    let again = content(&house.imported().volume());
    for bytes in [left, again] {
        let blocks: Vec<&[u8]> = bytes.chunks(BLOCK as usize).collect();
        assert!(blocks[0] == blocks[5] && blocks[5] == [3; BLOCK as usize]);
        assert!(blocks[6] == [0; BLOCK as usize] && blocks[1][..512] == [4; 512]);
    }
}
