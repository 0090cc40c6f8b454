//! After any number of syncs the content equals the model, and every block is accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ondisk::objset::Kind;
use ondisk::{Blkptr, ObjectType};
use proptest::prelude::*;
use txg::Tx;
use units::{BlockId, Level, ObjectId, ObjsetId, Txg};
use zio::Source;

use crate::memory::{MemoryStore, MemoryWriteThrough, empty_objset};
use crate::{BlockVisit, NewObject, Objset, SyncOutput, WalkControl, WalkOptions, WriteThrough};

/// A change of one of a few objects.
#[derive(Clone, Debug)]
enum Operation {
    Write {
        object: usize,
        at: u64,
        length: usize,
        fill: u8,
    },
    Free {
        object: usize,
        at: u64,
        length: u64,
    },
    Truncate {
        object: usize,
        at: u64,
    },
    Bonus {
        object: usize,
        fill: u8,
    },
    Spill {
        object: usize,
        fill: u8,
        is_present: bool,
    },
    Recreate {
        object: usize,
    },
    BlockSize {
        object: usize,
        sectors: u32,
    },
    /// Closes the txg: later changes belong to the next one, while this one waits for its sync.
    NextTxg,
    Sync,
}

const OBJECTS: usize = 4;
const FAR: u64 = 3 << 20;

fn operation() -> impl Strategy<Value = Operation> {
    let object = 0..OBJECTS;
    let at = prop_oneof![0_u64..5000, 0..FAR];
    prop_oneof![
        6 => (object.clone(), at.clone(), 1_usize..9000, 0_u8..4)
            .prop_map(|(object, at, length, fill)| Operation::Write { object, at, length, fill }),
        2 => (object.clone(), at.clone(), 100_000_usize..400_000, 0_u8..4)
            .prop_map(|(object, at, length, fill)| Operation::Write { object, at, length, fill }),
        2 => (object.clone(), at.clone(), 1_u64..2_000_000)
            .prop_map(|(object, at, length)| Operation::Free { object, at, length }),
        1 => (object.clone(), at).prop_map(|(object, at)| Operation::Truncate { object, at }),
        1 => (object.clone(), any::<u8>()).prop_map(|(object, fill)| Operation::Bonus { object, fill }),
        1 => (object.clone(), any::<u8>(), any::<bool>())
            .prop_map(|(object, fill, there)| Operation::Spill { object, fill, is_present: there }),
        1 => object.clone().prop_map(|object| Operation::Recreate { object }),
        1 => (object, 1_u32..20).prop_map(|(object, sectors)| Operation::BlockSize { object, sectors }),
        2 => Just(Operation::NextTxg),
        3 => Just(Operation::Sync),
    ]
}

#[derive(Default)]
struct Model {
    content: Vec<u8>,
    bonus: Vec<u8>,
    spill: Option<u8>,
}

struct TestRun {
    objset: Objset,
    memory: Arc<MemoryStore>,
    write_through: Arc<MemoryWriteThrough>,
    ids: Vec<ObjectId>,
    models: Vec<Model>,
    txg: u64,
    /// The oldest group that is not written.
    oldest: u64,
}

/// The most txgs that may wait behind the open one.
const MAX_WAITING_TXGS: u64 = 2;

fn new_object() -> NewObject {
    let mut new = NewObject::new(ObjectType::PLAIN_FILE, 512);
    // 8 pointers in an indirect block: tall trees soon
    new.indirect_shift = 10;
    new.with_bonus(ObjectType::SA, vec![7; 40])
}

impl TestRun {
    fn new() -> Self {
        let (set, memory) = empty_objset(Kind::Filesystem);
        let ahead = MemoryWriteThrough::new(&memory);
        set.set_write_through(Arc::clone(&ahead) as Arc<dyn WriteThrough>);
        let mut run = Self {
            objset: set,
            memory,
            write_through: ahead,
            ids: Vec::new(),
            models: Vec::new(),
            txg: 4,
            oldest: 4,
        };
        for _ in 0..OBJECTS {
            run.ids.push(run.objset.create(&run.tx(), &new_object()).unwrap().id());
            run.models.push(Model { bonus: vec![7; 40], ..Model::default() });
        }
        run
    }

    /// Writes the oldest group.
    fn sync(&mut self) -> SyncOutput {
        let txg = Txg::new(self.oldest);
        self.oldest += 1;
        let synced = self.memory.sync_objset(&self.objset, txg).unwrap();
        self.write_through.free_orphans(txg);
        synced
    }

    /// Writes all groups.
    fn sync_all(&mut self) -> SyncOutput {
        while self.oldest < self.txg {
            self.sync();
            self.compare(&self.objset);
        }
        self.sync()
    }

    fn tx(&self) -> Tx {
        Tx::syncing(Txg::new(self.txg))
    }

    fn apply(&mut self, deed: &Operation) {
        let tx = self.tx();
        match *deed {
            Operation::Sync => {
                // later changes belong to the next txg, and the oldest one is synced meanwhile
                self.txg += 1;
                let late = self.objset.object(self.ids[0]).unwrap();
                late.write(&self.tx(), FAR, b"in the next group").unwrap();
                overlay_bytes(&mut self.models[0].content, FAR, b"in the next group");
                self.sync();
            }
            Operation::NextTxg if self.txg - self.oldest < MAX_WAITING_TXGS => self.txg += 1,
            Operation::NextTxg => (),
            Operation::Recreate { object } => {
                self.objset.free(&tx, self.ids[object]).unwrap();
                self.ids[object] = self.objset.create(&tx, &new_object()).unwrap().id();
                self.models[object] = Model { bonus: vec![7; 40], ..Model::default() };
            }
            Operation::Write { object, at, length, fill } => {
                let bytes = vec![fill; length];
                self.objset.object(self.ids[object]).unwrap().write(&tx, at, &bytes).unwrap();
                overlay_bytes(&mut self.models[object].content, at, &bytes);
            }
            Operation::Free { object, at, length } => {
                self.objset
                    .object(self.ids[object])
                    .unwrap()
                    .free_range(&tx, at..at + length)
                    .unwrap();
                let content = &mut self.models[object].content;
                let end = usize::try_from(at + length).unwrap().min(content.len());
                let start = usize::try_from(at).unwrap().min(end);
                content[start..end].fill(0);
            }
            Operation::Truncate { object, at } => {
                let file = self.objset.object(self.ids[object]).unwrap();
                file.free_range(&tx, at..u64::MAX).unwrap();
                self.models[object].content.truncate(usize::try_from(at).unwrap());
            }
            Operation::Bonus { object, fill } => {
                let file = self.objset.object(self.ids[object]).unwrap();
                file.set_bonus(&tx, ObjectType::SA, &[fill; 56]).unwrap();
                self.models[object].bonus = vec![fill; 56];
            }
            Operation::Spill { object, fill, is_present: there } => {
                let file = self.objset.object(self.ids[object]).unwrap();
                let content = [fill; 1024];
                file.set_spill(&tx, there.then_some(&content[..])).unwrap();
                self.models[object].spill = there.then_some(fill);
            }
            Operation::BlockSize { object, sectors } => {
                let file = self.objset.object(self.ids[object]).unwrap();
                let changed = file.set_block_size(&tx, sectors * 512);
                if changed.is_ok() {
                    let size = usize::try_from(sectors * 512).unwrap();
                    let now = &mut self.models[object].content;
                    if now.len() > size && file.max_block() == BlockId::new(0) {
                        now.truncate(size);
                    }
                }
            }
        }
    }

    fn compare(&self, set: &Objset) {
        for (id, model) in self.ids.iter().zip(&self.models) {
            let file = set.object(*id).unwrap();
            let mut found = vec![1; model.content.len() + 5000];
            file.read(0, &mut found).unwrap();
            let (same, behind) = found.split_at(model.content.len());
            assert!(same == model.content, "object {id} differs");
            assert!(behind.iter().all(|byte| *byte == 0), "object {id} has more");
            assert_eq!(file.bonus(), model.bonus);
            let spill = file.spill().unwrap().map(|block| block[0]);
            assert_eq!(spill, model.spill, "spill of {id}");
        }
    }

    /// Every reachable block is allocated, and no other; each object's space is the sum.
    fn check_accounting(&self, root: &Blkptr) {
        let source: Arc<dyn Source> = Arc::clone(&self.memory) as Arc<dyn Source>;
        let cold = Objset::open(source, ObjsetId::new(54), root, None).unwrap();
        self.compare(&cold);
        let mut seen = BTreeSet::new();
        let mut space: BTreeMap<ObjectId, u64> = BTreeMap::new();
        let mut fill: BTreeMap<(ObjectId, bool), u64> = BTreeMap::new();
        cold.walk(&WalkOptions::default(), &mut |zbookmark, found| {
            let BlockVisit::Pointer(Blkptr::Regular(block)) = found else {
                panic!("{zbookmark}: {found:?}")
            };
            assert!(seen.insert(block.dvas[0].unwrap().offset), "{zbookmark}: twice");
            *space.entry(zbookmark.object).or_default() += u64::from(block.lsize);
            if block.level.get() == 0 {
                *fill.entry((zbookmark.object, false)).or_default() += block.fill;
            }
            WalkControl::Descend
        });
        assert_eq!(
            seen.len(),
            self.memory.block_count(),
            "blocks that are allocated and not reachable"
        );
        let mut objects = 0;
        for found in cold.objects() {
            let (id, dnode) = found.unwrap();
            objects += 1;
            assert_eq!(dnode.used_bytes, space.get(&id).copied().unwrap_or(0), "object {id}");
            let total: u64 = dnode.pointers.iter().map(Blkptr::fill).sum();
            let spill = u64::from(dnode.spill.is_some());
            assert_eq!(total + spill, fill.get(&(id, false)).copied().unwrap_or(0), "fill of {id}");
        }
        assert_eq!(root.fill(), objects);
    }
}

fn overlay_bytes(content: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let at = usize::try_from(at).unwrap();
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]
    #[test]
    fn random_changes_survive_and_blocks_are_accounted(
        deeds in proptest::collection::vec(operation(), 1..40)
    ) {
        let mut run = TestRun::new();
        for deed in &deeds {
            run.apply(deed);
            run.compare(&run.objset);
        }
        let synced = run.sync_all();
        run.compare(&run.objset);
        run.check_accounting(&synced.root);
    }
}

#[test]
fn truncated_content_never_reappears() {
    let mut run = TestRun::new();
    let write = |length, fill| Operation::Write { object: 1, at: 0, length, fill };
    for deed in [
        write(100_000, 1),
        Operation::Sync,
        Operation::Truncate { object: 1, at: 0 },
        write(600, 2),
    ] {
        run.apply(&deed);
    }
    let synced = run.sync_all();
    run.check_accounting(&synced.root);
}

#[test]
fn numbers_freed_in_their_first_txg_are_reusable() {
    let (set, memory) = empty_objset(Kind::Filesystem);
    let tx = Tx::syncing(Txg::new(4));
    let large = NewObject { slots: 4, ..new_object() };
    let gone = set.create(&tx, &large).unwrap().id();
    let kept = set.create(&tx, &large).unwrap().id();
    set.free(&tx, gone).unwrap();
    let overlay = set.overlay().unwrap();
    assert_eq!(overlay.claimed_slots(0..32).0.len(), 8);
    memory.sync_objset(&set, Txg::new(4)).unwrap();
    assert_eq!(overlay.claimed_slots(0..32).0.len(), 0);
    // an object from before is not affected
    let tx = Tx::syncing(Txg::new(5));
    set.create_at(&tx, ObjectId::new(gone.get() + 1), &new_object()).unwrap();
    memory.sync_objset(&set, Txg::new(5)).unwrap();
    assert_eq!(set.object(kept).unwrap().bonus(), vec![7; 40]);
}

#[test]
fn free_number_is_found_past_large_objects() {
    let (set, memory) = empty_objset(Kind::Filesystem);
    let large = NewObject { slots: 4, ..new_object() };
    let ids: Vec<_> =
        (0..200).map(|_| set.create(&Tx::syncing(Txg::new(4)), &large).unwrap().id()).collect();
    let root = memory.sync_objset(&set, Txg::new(4)).unwrap().root;
    let source = Arc::clone(&memory) as Arc<dyn Source>;
    let opened = Objset::open(source, set.id(), &root, None).unwrap();
    let meta = opened.meta().unwrap();
    // the first begins after number 0; the second sets the expected count; the last has free slots
    let last = ids[199].get() / 32;
    (2..last).for_each(|block| memory.make_unreadable(&meta.find(0, block).unwrap().pointer));
    let live = opened.to_writable();
    let new = live.create(&Tx::syncing(Txg::new(5)), &large).unwrap().id();
    assert!(new > ids[199] && new.get() / 32 <= last + 1, "{new:?}");
}

#[test]
fn later_pass_of_a_txg_writes_in_place() {
    let (set, memory) = empty_objset(Kind::Meta);
    let tx = Tx::syncing(Txg::new(4));
    let file = set.create(&tx, &NewObject::new(ObjectType::PLAIN_OTHER, 4096)).unwrap();
    file.write(&tx, 0, b"once").unwrap();
    let first = memory.sync_objset(&set, Txg::new(4)).unwrap();
    let count = memory.block_count();
    file.write(&tx, 0, b"again").unwrap();
    let second = memory.sync_objset(&set, Txg::new(4)).unwrap();
    assert_eq!(memory.block_count(), count);
    assert_ne!(first.root, second.root);
    assert!(!set.is_dirty(Txg::new(4)));
}

/// A file of 100 blocks in 13 indirect ones, the second of which is damaged.
fn damaged_objset() -> (Objset, Arc<MemoryStore>, ObjectId) {
    let (set, memory) = empty_objset(Kind::Filesystem);
    let tx = Tx::syncing(Txg::new(4));
    let file = set.create(&tx, &new_object()).unwrap();
    file.write(&tx, 0, &vec![1; 51_200]).unwrap();
    let synced = memory.sync_objset(&set, Txg::new(4)).unwrap();
    let source = Arc::clone(&memory) as Arc<dyn Source>;
    let cold = Objset::open(source, ObjsetId::new(54), &synced.root, None).unwrap();
    let is_second = (file.id(), Level::new(1), BlockId::new(1));
    cold.walk(&WalkOptions::default(), &mut |zbookmark, found| {
        if let BlockVisit::Pointer(pointer) = found
            && (zbookmark.object, zbookmark.level, zbookmark.block) == is_second
        {
            memory.make_unreadable(pointer);
        }
        WalkControl::Descend
    });
    let live = Objset::open(cold.source().clone(), ObjsetId::new(54), &synced.root, None).unwrap();
    (live.to_writable(), memory, file.id())
}

#[test]
fn unreadable_indirect_block_fails_the_write_early() {
    let (set, memory, id) = damaged_objset();
    let tx = Tx::syncing(Txg::new(5));
    let file = set.object(id).unwrap();
    let lost = |done: crate::Result<()>| {
        assert!(matches!(done, Err(crate::Error::Read { .. })), "{done:?}");
    };
    // as a whole, in part, behind the readable part, and freed
    lost(file.write(&tx, 10 * 512, &[2; 512]));
    lost(file.write(&tx, 10 * 512, &[2; 100]));
    lost(file.write(&tx, 7 * 512, &[2; 2 * 512]));
    lost(file.free_range(&tx, 10 * 512..11 * 512));
    lost(file.free_range(&tx, 0..10 * 512));
    lost(file.free_range(&tx, 10 * 512..90 * 512));
    file.write(&tx, 20 * 512, &[2; 512]).unwrap();
    file.write(&tx, 100 * 512, &[2; 512]).unwrap();
    memory.sync_objset(&set, Txg::new(5)).unwrap();
    // a whole range can be freed
    let tx = Tx::syncing(Txg::new(6));
    set.object(id).unwrap().free_range(&tx, 3 * 512..30 * 512).unwrap();
    memory.sync_objset(&set, Txg::new(6)).unwrap();
    let mut found = [9; 2 * 512];
    set.object(id).unwrap().read(29 * 512, &mut found).unwrap();
    assert_eq!((&found[..512], &found[512..]), (&[0; 512][..], &[1; 512][..]));
    file.write(&Tx::syncing(Txg::new(7)), 10 * 512, &[3; 512]).unwrap();
    memory.sync_objset(&set, Txg::new(7)).unwrap();
}

#[test]
fn damaged_objects_can_be_freed() {
    let (set, memory, id) = damaged_objset();
    let left = memory.block_count();
    set.free(&Tx::syncing(Txg::new(5)), id).unwrap();
    memory.sync_objset(&set, Txg::new(5)).unwrap();
    // the eight below the damaged one, and the object set's own
    assert!(
        memory.block_count() < left / 4 && memory.block_count() >= 8,
        "{} of {left}",
        memory.block_count()
    );
    let root = set.synced().root().clone();
    let mut reached = 0;
    let source = Arc::clone(&memory) as Arc<dyn Source>;
    let cold = Objset::open(source, ObjsetId::new(54), &root, None).unwrap();
    cold.walk(&WalkOptions::default(), &mut |_, _| {
        reached += 1;
        WalkControl::Descend
    });
    assert_eq!(memory.block_count() - reached, 8);
}

#[test]
fn overlapping_dnodes_fail_the_sync() {
    let (set, memory) = empty_objset(Kind::Filesystem);
    let tx = Tx::syncing(Txg::new(4));
    let ids = [0, 1].map(|_| set.create(&tx, &new_object()).unwrap().id());
    let synced = memory.sync_objset(&set, Txg::new(4)).unwrap();
    let source = Arc::clone(&memory) as Arc<dyn Source>;
    let cold = Objset::open(source, ObjsetId::new(54), &synced.root, None).unwrap();
    let live = cold.to_writable();
    live.free(&Tx::syncing(Txg::new(5)), ids[1]).unwrap();
    // the first dnode now claims the slot of the second as well
    cold.walk(&WalkOptions::default(), &mut |zbookmark, found| {
        if let BlockVisit::Pointer(pointer) = found
            && (zbookmark.object, zbookmark.level) == (ObjectId::META, Level::new(0))
        {
            let slot = usize::try_from(ids[0].get()).unwrap() * 512;
            memory.change_block(pointer, |block| block[slot + 12] = 1);
        }
        WalkControl::Descend
    });
    let result = memory.sync_objset(&live, Txg::new(5));
    assert!(matches!(result, Err(crate::Error::Corrupt { .. })), "{:?}", result.err());
}
