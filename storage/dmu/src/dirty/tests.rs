//! Changes are seen at once, and each group keeps its own.

use std::sync::Arc;

use ondisk::objset::Kind;
use ondisk::{Blkptr, ObjectType};
use txg::Tx;
use units::{BlockId, ObjectId, ObjsetId, Txg, Zbookmark};
use zio::{Block, Error, Key, Source};

use parking_lot::Mutex;

use crate::dirty::record::BlockVersion;
use crate::memory::MemoryStore;
use crate::{BlockSegment, NewObject, Objset};

struct UnreadableSource;

impl Source for UnreadableSource {
    fn read(&self, _: &Blkptr, place: Zbookmark, _: Option<&Key>) -> Result<Block, Error> {
        Err(Error::Unreadable { zbookmark: place, faults: Vec::new() })
    }
}

fn empty_objset() -> Objset {
    Objset::new_empty(Arc::new(UnreadableSource), ObjsetId::new(54), Kind::Filesystem, None)
}

fn tx(txg: u64) -> Tx {
    Tx::syncing(Txg::new(txg))
}

#[test]
fn written_data_is_read_back() {
    let set = empty_objset();
    let file = set.create(&tx(4), &NewObject::new(ObjectType::PLAIN_FILE, 1024)).unwrap();
    file.write(&tx(4), 1010, b"over the edge of a block").unwrap();
    let mut bytes = [0; 30];
    file.read(1008, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0\0over the edge of a block\0\0\0\0");
    let file = set.object(file.id()).unwrap();
    assert_eq!(file.max_block(), BlockId::new(1));
    file.write(&tx(5), 10 << 10, b"far").unwrap();
    assert_eq!(file.next_hole(0).unwrap(), 2048);
    assert_eq!(file.next_hole_within(0..1000).unwrap(), 1024);
    assert_eq!(file.next_data(2048).unwrap(), Some(10 << 10));
    let pieces: Vec<_> =
        file.segments(BlockId::new(1)..BlockId::new(99)).map(Result::unwrap).collect();
    assert!(matches!(pieces[1], BlockSegment::Hole { count: 8, .. }), "{pieces:?}");
    assert_eq!(pieces.len(), 3);
    file.free_range(&tx(5), 1015..u64::MAX).unwrap();
    assert_eq!(set.object(file.id()).unwrap().max_block(), BlockId::new(0));
    file.read(1008, &mut bytes).unwrap();
    assert_eq!(&bytes[..15], b"\0\0over \0\0\0\0\0\0\0\0");
}

#[test]
fn large_dnodes_stay_within_a_block() {
    let set = empty_objset();
    let large = NewObject { slots: 8, ..NewObject::new(ObjectType::PLAIN_FILE, 512) };
    let numbers: Vec<u64> =
        (0..5).map(|_| set.create(&tx(4), &large).unwrap().id().get()).collect();
    assert_eq!(numbers, [1, 9, 17, 32, 40]);
    let small = NewObject::new(ObjectType::PLAIN_FILE, 512);
    assert_eq!(set.create(&tx(4), &small).unwrap().id().get(), 48);
    assert!(set.create_at(&tx(4), ObjectId::new(9), &small).is_err());
    set.free(&tx(4), ObjectId::new(9)).unwrap();
    assert!(set.object(ObjectId::new(9)).is_err());
}

/// Memory in which something is done once, when a block is read.
#[derive(Default)]
struct HookedSource {
    memory: Arc<MemoryStore>,
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Source for HookedSource {
    fn read(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        let deed = self.hook.lock().take();
        if let Some(deed) = deed {
            deed();
        }
        self.memory.read(pointer, zbookmark, key)
    }
}

#[test]
fn number_synced_during_search_is_not_reused() {
    let source = Arc::new(HookedSource::default());
    let below = Arc::clone(&source) as Arc<dyn Source>;
    let set = Objset::new_empty(below, ObjsetId::new(54), Kind::Filesystem, None);
    let small = NewObject::new(ObjectType::PLAIN_FILE, 512);
    for _ in 1..63 {
        set.create(&tx(4), &small).unwrap();
    }
    source.memory.sync_objset(&set, Txg::new(4)).unwrap();
    // a number from the log
    let again = set.create_at(&tx(5), ObjectId::new(64), &small).unwrap();
    again.write(&tx(5), 0, b"promised").unwrap();
    let (writes, memory) = (set.clone(), Arc::clone(&source.memory));
    *source.hook.lock() =
        Some(Box::new(move || drop(memory.sync_objset(&writes, Txg::new(5)).unwrap())));
    let large = NewObject { slots: 8, ..small };
    let new = set.create(&tx(6), &large).unwrap();
    assert!(source.hook.lock().is_none(), "the group was written meanwhile");
    assert_ne!(new.id(), again.id());
    let mut bytes = [0; 8];
    set.object(again.id()).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"promised");
}

#[test]
fn later_txg_does_not_change_an_earlier_one() {
    let set = empty_objset();
    let file = set.create(&tx(4), &NewObject::new(ObjectType::PLAIN_FILE, 512)).unwrap();
    file.write(&tx(4), 0, b"first").unwrap();
    file.write(&tx(5), 0, b"later").unwrap();
    file.write(&tx(4), 5, b"!").unwrap();
    let state = file.entry().unwrap().state.read();
    let bytes = |content: &BlockVersion| match content {
        BlockVersion::Bytes(block) => block[..6].to_vec(),
        other => panic!("{other:?}"),
    };
    let versions: Vec<_> =
        state.blocks[&0].iter().map(|(txg, content)| (txg.get(), bytes(content))).collect();
    assert_eq!(versions, [(4, b"first!".to_vec()), (5, b"later!".to_vec())]);
}

#[test]
fn second_change_in_a_txg_is_in_place() {
    let set = empty_objset();
    let table = set.create(&tx(4), &NewObject::new(ObjectType::DIRECTORY, 16 << 10)).unwrap();
    let memory = || match &table.entry().unwrap().state.read().blocks[&0][..] {
        [(_, BlockVersion::Bytes(block))] => block.as_ptr(),
        other => panic!("{other:?}"),
    };
    table.change_block(&tx(4), BlockId::new(0), &mut |bytes| bytes[0] = 1).unwrap();
    let first = memory();
    table.change_block(&tx(4), BlockId::new(0), &mut |bytes| bytes[9] = 2).unwrap();
    table.write(&tx(4), 17, b"3").unwrap();
    assert_eq!(memory(), first, "a copy was made of 16 KiB to change a byte");
    let mut bytes = [0; 18];
    table.read(0, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[9], bytes[17]), (1, 2, b'3'));
}

#[test]
fn a_hole_of_exabytes_is_passed_at_once() {
    let set = empty_objset();
    let file = set.create(&tx(4), &NewObject::new(ObjectType::PLAIN_FILE, 512)).unwrap();
    file.write(&tx(4), 2 << 60, b"far").unwrap();
    assert_eq!(file.next_data(0).unwrap(), Some(2 << 60));
    file.write(&tx(4), 0, b"near").unwrap();
    file.free_range(&tx(5), 512..1 << 60).unwrap();
    assert_eq!(file.next_data(512).unwrap(), Some(2 << 60));
}

#[test]
fn hole_behind_the_synced_tree_is_skipped() {
    let (set, memory) = crate::memory::empty_objset(Kind::Filesystem);
    let file = set.create(&tx(4), &NewObject::new(ObjectType::PLAIN_FILE, 512)).unwrap();
    file.write(&tx(4), 0, b"near").unwrap();
    memory.sync_objset(&set, Txg::new(4)).unwrap();
    let file = set.object(file.id()).unwrap();
    file.write(&tx(5), 2 << 60, b"far").unwrap();
    assert_eq!(file.next_data(1).unwrap(), Some(1));
    assert_eq!(file.next_data(512).unwrap(), Some(2 << 60));
    assert_eq!(file.next_data((2 << 60) + 512).unwrap(), None);
    file.free_range(&tx(5), (2 << 60)..(2 << 60) + 512).unwrap();
    assert_eq!(file.next_data(512).unwrap(), None);
    assert_eq!(file.segments(BlockId::new(0)..BlockId::new(u64::MAX)).count(), 2);
}
