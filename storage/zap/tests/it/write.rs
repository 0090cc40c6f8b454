//! Tables that are written, each compared with a map after it was read again from its blocks.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use dmu::Objset;
use dmu::memory::{self, MemoryStore};
use ondisk::objset::Kind;
use ondisk::zap::Normalization;
use ondisk::zap::fat::{Flags, Header, Table};
use ondisk::zap::leaf::LeafMut;
use ondisk::{ObjectType, Order};
use proptest::prelude::*;
use txg::Tx;
use units::{BlockId, Txg};
use zap::{Error, Matching, NewZap, Zap, ZapValue};
use zio::Source;

use crate::audit::audit;

fn tx() -> Tx {
    Tx::syncing(Txg::new(4))
}

fn new_table(new: &NewZap) -> Zap {
    Zap::create(&memory::empty_objset(Kind::Filesystem).0, &tx(), ObjectType::DIRECTORY, new)
        .unwrap()
}

/// The same table with nothing remembered of it, found to be in order.
fn reopen_audited(zap: &Zap) -> Zap {
    let object = zap.object().objset().object(zap.object().id()).unwrap();
    let count = audit(&object);
    let zap = Zap::open(object).unwrap();
    assert_eq!(zap.count().unwrap(), count);
    zap
}

fn compare(zap: &Zap, model: &BTreeMap<Vec<u8>, ZapValue>) {
    let zap = reopen_audited(zap);
    let mut listed = BTreeMap::new();
    let mut last = None;
    for entry in zap.entries() {
        let entry = entry.unwrap();
        assert!(last < Some(entry.cursor), "entries come in the order of their cursors");
        last = Some(entry.cursor);
        assert_eq!(listed.insert(entry.name, entry.value), None);
    }
    assert_eq!(&listed, model);
    for (name, value) in model {
        if !zap.flags().word_keys() {
            assert_eq!(zap.lookup(name).unwrap().as_ref(), Some(value));
        }
    }
}

/// The entries that [`Zap::scan_numbers`] visits.
fn scanned(zap: &Zap) -> BTreeMap<Vec<u8>, ZapValue> {
    let mut found = BTreeMap::new();
    reopen_audited(zap)
        .scan_numbers(&mut |name, number| {
            assert_eq!(found.insert(name.to_vec(), ZapValue::from_u64(number)), None);
        })
        .unwrap();
    found
}

#[test]
fn many_numbers_are_inserted_at_once_and_scanned() {
    for count in [0, 1, 7, 8, 2047, 2048, 9000_u64] {
        let entries: Vec<_> = (0..count).map(|it| (format!("{it:x}"), it * 3)).collect();
        let zap = new_table(&NewZap { salt: 0x1234_5678_9abc, ..NewZap::default() });
        zap.insert_all_u64(&tx(), &entries).unwrap();
        assert_eq!(zap.is_micro().unwrap(), count <= 2047, "{count}");
        let mut model: BTreeMap<_, _> = entries
            .iter()
            .map(|(name, number)| (name.clone().into_bytes(), ZapValue::from_u64(*number)))
            .collect();
        compare(&zap, &model);
        assert_eq!(scanned(&zap), model);
        let kind = ObjectType::DIRECTORY;
        let copy = zap.copy_with_number(&tx(), kind, &NewZap::default(), 77).unwrap();
        let copied = model.keys().map(|name| (name.clone(), ZapValue::from_u64(77))).collect();
        compare(&copy, &copied);
        compare(&zap, &model);
        // into one that has entries, and with a name that only a fat table can have
        let more = [("one".to_owned(), 1), ("n".repeat(60), 2)];
        zap.insert_all_u64(&tx(), &more[..1]).unwrap();
        assert_eq!(zap.is_micro().unwrap(), count < 2047, "{count}");
        zap.insert_all_u64(&tx(), &more[1..]).unwrap();
        let more = more.map(|(name, number)| (name.into_bytes(), ZapValue::from_u64(number)));
        model.extend(more);
        compare(&zap, &model);
        assert_eq!(scanned(&zap), model);
        let twice = zap.insert_all_u64(&tx(), &[("one", 5)]);
        assert!(matches!(twice, Err(Error::Exists { .. })), "{twice:?}");
    }
    let zap = new_table(&NewZap::default());
    let twice = zap.insert_all_u64(&tx(), &[("one", 1), ("two", 2), ("one", 3)]);
    assert!(matches!(twice, Err(Error::Exists { .. })), "{twice:?}");
}

#[test]
fn micro_table_grows_by_sectors_and_becomes_fat() {
    let zap = new_table(&NewZap { salt: 0x1234_5678_9abc, ..NewZap::default() });
    let mut model = BTreeMap::new();
    for number in 0..2047_u64 {
        let name = format!("file-{number}").into_bytes();
        zap.insert_u64(&tx(), &name, number).unwrap();
        model.insert(name, ZapValue::from_u64(number));
        let size = zap.object().block(BlockId::new(0)).unwrap().unwrap().len();
        assert_eq!(size, (model.len() + 1).next_multiple_of(8) * 64);
    }
    assert!(zap.is_micro().unwrap());
    compare(&zap, &model);
    assert!(matches!(zap.insert_u64(&tx(), b"file-7", 1), Err(Error::Exists { .. })));
    zap.update_u64(&tx(), b"file-7", 1).unwrap();
    model.insert(b"file-7".to_vec(), ZapValue::from_u64(1));
    assert!(zap.is_micro().unwrap());
    zap.insert_u64(&tx(), b"one more", 1).unwrap();
    model.insert(b"one more".to_vec(), ZapValue::from_u64(1));
    assert!(!zap.is_micro().unwrap());
    assert_eq!(zap.object().block(BlockId::new(0)).unwrap().unwrap().len(), 16384);
    compare(&zap, &model);
}

#[test]
fn unsuitable_entry_makes_a_micro_table_fat() {
    let long = [b'n'; 50];
    let cases: [(&[u8], ZapValue); 4] = [
        (&long, ZapValue::from_u64(1)),
        (b"words", ZapValue::new(8, vec![1; 16])),
        (b"text", ZapValue::new(1, b"hello".to_vec())),
        (b"nothing", ZapValue::new(8, Vec::new())),
    ];
    for (name, value) in cases {
        let zap = new_table(&NewZap { salt: 99, ..NewZap::default() });
        zap.insert_u64(&tx(), &long[1..], 5).unwrap();
        assert!(zap.is_micro().unwrap());
        zap.insert(&tx(), name, &value).unwrap();
        assert!(!zap.is_micro().unwrap());
        let model = [(long[1..].to_vec(), ZapValue::from_u64(5)), (name.to_vec(), value)];
        compare(&zap, &model.into());
    }
}

#[test]
fn invalid_names_and_values_are_refused() {
    let zap = new_table(&NewZap::default());
    for name in [&b""[..], b"a\0b", &[b'x'; 1024]] {
        assert!(matches!(zap.insert_u64(&tx(), name, 1), Err(Error::BadName { .. })));
    }
    for value in [
        ZapValue::new(3, vec![0; 3]),
        ZapValue::new(8, vec![0; 9]),
        ZapValue::new(1, vec![0; 8193]),
    ] {
        assert!(matches!(zap.update(&tx(), b"n", &value), Err(Error::BadValue { .. })));
    }
    assert!(matches!(
        zap.insert_key64(&tx(), &[1], &ZapValue::from_u64(1)),
        Err(Error::BadName { .. })
    ));
    assert!(!zap.remove(&tx(), b"n").unwrap());
    zap.insert_u64(&tx(), &[b'x'; 1023], 1).unwrap();
    zap.insert(&tx(), b"longest", &ZapValue::new(1, vec![7; 8192])).unwrap();
    assert_eq!(reopen_audited(&zap).count().unwrap(), 2);
}

#[test]
fn counter_that_reaches_zero_is_removed() {
    let zap = new_table(&NewZap::default());
    assert_eq!(zap.add_u64(&tx(), b"1f4", 512).unwrap(), 512);
    assert_eq!(zap.add_u64(&tx(), b"1f4", 512).unwrap(), 1024);
    assert_eq!(zap.add_u64(&tx(), b"1f4", -1000).unwrap(), 24);
    assert_eq!(zap.add_u64(&tx(), b"1f4", -24).unwrap(), 0);
    assert_eq!(zap.count().unwrap(), 0);
}

/// Names of one hash of 28 bits, found by trying; as they are of one length, with any salt.
const COLLIDING: [&[u8]; 3] = [b"1f9ace", b"2f056b", b"490800"];

#[test]
fn colliding_names_get_collision_numbers() {
    for flags in [0, 1] {
        let names = COLLIDING;
        let new = NewZap { salt: 0x77_1235, flags: Flags(flags), ..NewZap::default() };
        let zap = new_table(&new);
        assert_eq!(zap.is_micro().unwrap(), flags == 0);
        for name in names {
            zap.insert_u64(&tx(), name, 1).unwrap();
        }
        let numbers = || -> Vec<u32> {
            reopen_audited(&zap).entries().map(|entry| entry.unwrap().cursor.collision).collect()
        };
        if flags == 0 {
            assert_eq!(numbers(), [0, 1, 2]);
            zap.remove(&tx(), names[1]).unwrap();
            assert_eq!(numbers(), [0, 2]);
            zap.insert_u64(&tx(), names[1], 9).unwrap();
            assert_eq!(numbers(), [0, 1, 2]);
        }
        for name in names {
            assert!(zap.lookup_u64(name).unwrap().is_some());
        }
    }
}

#[test]
fn case_variants_are_distinct_but_found_by_folding() {
    let new = NewZap { salt: 5, normalization: Normalization::UPPER, ..NewZap::default() };
    let zap = new_table(&new);
    for (value, name) in [b"name", b"Name", b"NAME"].into_iter().enumerate() {
        zap.insert_u64(&tx(), name, value as u64).unwrap();
    }
    for round in ["micro", "fat"] {
        assert_eq!(zap.is_micro().unwrap(), round == "micro");
        let found = zap.lookup_normalized(b"nAME", Matching::Normalized).unwrap().unwrap();
        assert_eq!((found.value.u64(), found.cursor.collision), (Some(0), 0));
        assert_eq!(zap.lookup_u64(b"NAME").unwrap(), Some(2));
        zap.insert(&tx(), b"text", &ZapValue::new(1, b"hello".to_vec())).unwrap();
        reopen_audited(&zap);
        zap.remove(&tx(), b"text").unwrap();
    }
    assert!(zap.remove_normalized(&tx(), b"nAMe", Matching::Normalized).unwrap());
    assert_eq!(zap.lookup_u64(b"name").unwrap(), None);
    assert!(!zap.remove(&tx(), b"name").unwrap());
    zap.insert_u64(&tx(), b"naME", 7).unwrap();
    let found = zap.lookup_normalized(b"nAME", Matching::Normalized).unwrap().unwrap();
    assert_eq!((found.value.u64(), found.cursor.collision), (Some(7), 0));
    assert_eq!(reopen_audited(&zap).count().unwrap(), 3);
}

#[test]
fn hundred_thousand_entries_are_added_and_removed() {
    let zap = new_table(&NewZap { salt: 0xdead_beef_1235, ..NewZap::default() });
    let count = 140_000_u64;
    for number in 0..count {
        zap.insert_u64(
            &tx(),
            format!("a file of the number {number} among very many").as_bytes(),
            number,
        )
        .unwrap();
    }
    let read = reopen_audited(&zap);
    assert_eq!(read.count().unwrap(), count);
    let zero = zap.object().block(BlockId::new(0)).unwrap().unwrap();
    let header = Header::parse(&zero, zero.order()).unwrap();
    assert!(matches!(header.table, Table::External { .. }), "{header:?}");
    for number in (0..count).step_by(7) {
        let name = format!("a file of the number {number} among very many");
        assert_eq!(read.lookup_u64(name.as_bytes()).unwrap(), Some(number));
    }
    let mut all: Vec<u64> =
        read.entries().map(|entry| entry.unwrap().value.u64().unwrap()).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..count));
    for number in (0..count).rev() {
        let name = format!("a file of the number {number} among very many");
        assert!(zap.remove(&tx(), name.as_bytes()).unwrap());
        if number % 20_000 == 0 {
            assert_eq!(reopen_audited(&zap).count().unwrap(), number);
        }
    }
    // all leaves are one again, and the table behind it is the one thing left
    assert_eq!(reopen_audited(&zap).entries().count(), 0);
    zap.insert_u64(&tx(), b"again", 1).unwrap();
    assert_eq!(reopen_audited(&zap).lookup_u64(b"again").unwrap(), Some(1));
}

#[test]
fn a_pointer_table_doubles_block_by_block() {
    let new = NewZap { salt: 9, flags: Flags(7), block_shift: 10, ..NewZap::default() };
    let zap = new_table(&new);
    let key = |number: u64| [number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number];
    let mut growing = 0;
    for number in 0..6000 {
        zap.insert_key64(&tx(), &key(number), &ZapValue::from_u64(number)).unwrap();
        let zero = zap.object().block(BlockId::new(0)).unwrap().unwrap();
        let header = Header::parse(&zero, zero.order()).unwrap();
        if matches!(header.table, Table::External { next: Some(_), .. }) {
            growing += 1;
            if growing % 8 == 1 {
                reopen_audited(&zap);
            }
        }
    }
    let read = reopen_audited(&zap);
    assert!(growing > 4, "{growing}");
    assert!((0..6000).all(|number| read.lookup_key64(&key(number)).unwrap().is_some()));
    for number in 0..6000 {
        assert!(zap.remove_key64(&tx(), &key(number)).unwrap());
        if number % 500 == 0 {
            reopen_audited(&zap);
        }
    }
    assert_eq!(reopen_audited(&zap).count().unwrap(), 0);
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(u16, Vec<u8>, u8),
    Update(u16, Vec<u8>, u8),
    Remove(u16),
    Sync,
}

fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let value = || proptest::collection::vec(any::<u8>(), 0..most);
    let size = || prop_oneof![Just(1_u8), Just(2), Just(4), Just(8)];
    let step = prop_oneof![
        4 => (0..600_u16, value(), size()).prop_map(|(name, value, size)| Operation::Insert(name, value, size)),
        2 => (0..600_u16, value(), size()).prop_map(|(name, value, size)| Operation::Update(name, value, size)),
        3 => (0..600_u16).prop_map(Operation::Remove),
        1 => Just(Operation::Sync),
    ];
    proptest::collection::vec(step, 1..500)
}

fn value(mut bytes: Vec<u8>, size: u8) -> ZapValue {
    bytes.truncate(bytes.len() / usize::from(size) * usize::from(size));
    ZapValue::new(size, bytes)
}

fn name(number: u16) -> Vec<u8> {
    let mut name = format!("N{number}").into_bytes();
    name.resize(name.len() + usize::from(number % 90), b'x');
    name
}

/// A table in an object set that is written out now and then.
struct TestTable {
    objset: Objset,
    memory: Arc<MemoryStore>,
    zap: Zap,
    tx: Tx,
    model: BTreeMap<Vec<u8>, ZapValue>,
}

impl TestTable {
    fn new(new: &NewZap) -> Self {
        let (objset, memory) = memory::empty_objset(Kind::Filesystem);
        let zap = Zap::create(&objset, &tx(), ObjectType::DIRECTORY, new).unwrap();
        Self { objset, memory, zap, tx: tx(), model: BTreeMap::new() }
    }

    /// Writes the table out, and compares it with the entries that a new reader finds.
    fn sync(&mut self) {
        let txg = self.tx.txg();
        let root = self.memory.sync_objset(&self.objset, txg).unwrap().root;
        self.tx = Tx::syncing(Txg::new(txg.get() + 1));
        let source = Arc::clone(&self.memory) as Arc<dyn Source>;
        let set = Objset::open(source, self.objset.id(), &root, None).unwrap();
        let zap = Zap::open(set.object(self.zap.object().id()).unwrap()).unwrap();
        compare(&zap, &self.model);
    }
}

/// Does the steps to a table of names.
fn run_with_names(new: &NewZap, steps: Vec<Operation>) {
    let mut table = TestTable::new(new);
    for step in steps {
        let TestTable { zap, tx, model, .. } = &mut table;
        match step {
            Operation::Insert(number, bytes, size) => {
                let (name, value) = (name(number), value(bytes, size));
                let done = zap.insert(tx, &name, &value);
                match model.entry(name) {
                    Entry::Occupied(_) => assert!(matches!(done, Err(Error::Exists { .. }))),
                    Entry::Vacant(vacant) => {
                        done.unwrap();
                        vacant.insert(value);
                    }
                }
            }
            Operation::Update(number, bytes, size) => {
                let (name, value) = (name(number), value(bytes, size));
                zap.update(tx, &name, &value).unwrap();
                model.insert(name, value);
            }
            Operation::Remove(number) => {
                let name = name(number);
                assert_eq!(zap.remove(tx, &name).unwrap(), model.remove(&name).is_some());
            }
            Operation::Sync => table.sync(),
        }
    }
    compare(&table.zap, &table.model);
    table.sync();
}

/// The same with keys of words.
fn run_with_words(new: &NewZap, steps: Vec<Operation>) {
    let mut table = TestTable::new(new);
    let words = |number: u16| {
        let number = u64::from(number);
        let mut words = vec![number.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
        words.extend((number % 3 == 0).then_some(number));
        words
    };
    let name = |key: &[u64]| key.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    for step in steps {
        let TestTable { zap, tx, model, .. } = &mut table;
        match step {
            Operation::Insert(number, bytes, size) => {
                let (key, value) = (words(number), value(bytes, size));
                let done = zap.insert_key64(tx, &key, &value);
                assert_eq!(done.is_err(), model.contains_key(&name(&key)));
                model.entry(name(&key)).or_insert(value);
            }
            Operation::Update(number, bytes, size) => {
                let (key, value) = (words(number), value(bytes, size));
                zap.update_key64(tx, &key, &value).unwrap();
                model.insert(name(&key), value);
            }
            Operation::Remove(number) => {
                let key = words(number);
                let was = model.remove(&name(&key)).is_some();
                assert_eq!(zap.remove_key64(tx, &key).unwrap(), was);
            }
            Operation::Sync => table.sync(),
        }
        let key = words(5);
        let found = table.zap.lookup_key64(&key).unwrap();
        assert_eq!(found, table.model.get(&name(&key)).cloned());
    }
    compare(&table.zap, &table.model);
    table.sync();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 10))]

    #[test]
    fn a_table_is_a_map(steps in operations(200), salt: u64, normalized: bool) {
        let normalization = if normalized { Normalization::UPPER } else { Normalization::default() };
        run_with_names(&NewZap { salt, normalization, ..NewZap::default() }, steps);
    }

    #[test]
    fn a_table_of_small_blocks_is_a_map(steps in operations(60), salt: u64, shift in 10_u8..14, normalized: bool) {
        let normalization = if normalized { Normalization::UPPER } else { Normalization::default() };
        let flags = Flags(1);
        run_with_names(&NewZap { salt, normalization, flags, block_shift: shift, ..NewZap::default() }, steps);
    }

    #[test]
    fn a_table_of_words_is_a_map(steps in operations(100), salt: u64, shift in 10_u8..15, flags in 2_u64..8) {
        let flags = Flags(flags | 2);
        run_with_words(&NewZap { salt, flags, block_shift: shift, ..NewZap::default() }, steps);
    }

    #[test]
    fn broken_leaf_gives_an_error_without_panic(
        steps in operations(100), changes in proptest::collection::vec((0_usize..4096, any::<u8>()), 1..30),
    ) {
        let flags = Flags(1);
        let zap = new_table(&NewZap { salt: 3, flags, block_shift: 12, ..NewZap::default() });
        for number in 0..60 {
            zap.insert_u64(&tx(), &name(number), 1).unwrap();
        }
        for (number, block) in [(1, 12), (2, 3), (3, 4)] {
            let change = changes.iter().skip(number).step_by(3);
            if zap.object().block(BlockId::new(block)).unwrap().is_none() {
                continue;
            }
            zap.object().change_block(&tx(), BlockId::new(block), &mut |bytes| {
                for (at, byte) in change.clone() {
                    bytes[*at] = *byte;
                }
            }).unwrap();
        }
        for step in steps {
            match step {
                Operation::Insert(number, bytes, size) | Operation::Update(number, bytes, size) => {
                    let _ = zap.update(&tx(), &name(number), &value(bytes, size));
                }
                Operation::Remove(number) => {
                    let _ = zap.remove(&tx(), &name(number));
                }
                Operation::Sync => {}
            }
        }
    }
}

#[test]
fn leaf_keeps_its_byte_order_when_changed() {
    for order in [Order::Little, Order::Big] {
        let mut bytes = vec![0; 1024];
        let mut leaf = LeafMut::init(&mut bytes, order, false);
        let key = ondisk::zap::leaf::Key { hash: 7 << 60, bytes: b"name\0", count: 5 };
        leaf.insert(&key, None, (2, &[1, 2, 3, 4])).unwrap();
        let found = leaf.view().unwrap().find(&key).unwrap().unwrap();
        assert_eq!(leaf.view().unwrap().value(&found).unwrap(), [1, 2, 3, 4]);
        assert_eq!((found.value_count, found.hash), (2, 7 << 60));
        leaf.remove(&found).unwrap();
        assert_eq!(leaf.view().unwrap().find(&key).unwrap(), None);
    }
}
