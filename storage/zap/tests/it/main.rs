//! Tables of the real system, and tables in memory that grow, collide and break.

#[path = "../../../dmu/tests/it/pool.rs"]
#[expect(dead_code, reason = "shared with the tests of dmu, which use all of it")]
mod pool;

mod audit;
mod write;

use std::sync::Arc;

use ondisk::zap::leaf::{Key, Leaf, LeafEntry, LeafMut, LeafUpdate};
use ondisk::zap::{HEADER, MICRO};
use ondisk::{Compression, Order};
use pool::{Pool, Spec};
use units::{BlockId, ObjectId};
use zap::{Error, Matching, Zap, ZapCursor, ZapEntry};

const DIRECTORY: u8 = 20;

fn encode_words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A header of 16 KiB, every pointer of which is to block 1.
fn fat_header(salt: u64, normalization: u64, pointers: [u64; 4]) -> Vec<u8> {
    let mut bytes =
        encode_words(&[HEADER, 0x2_f52a_b2ab, 0, 0, 10, 0, 0, 2, 1, 23, salt, normalization, 0]);
    bytes.resize(8192, 0);
    bytes.extend(pointers.iter().flat_map(|leaf| encode_words(&[*leaf; 256])));
    bytes
}

fn fat_table(blocks: &[Option<Vec<u8>>]) -> Zap {
    let pool = Arc::new(Pool::default());
    let pointers: Vec<Vec<u8>> = blocks
        .iter()
        .map(|block| match block {
            Some(bytes) => pool.pointer(DIRECTORY, 0, 3, bytes),
            None => pool::hole(),
        })
        .collect();
    let slots: Vec<(usize, &[u8])> = pointers.iter().map(Vec::as_slice).enumerate().collect();
    let root = pool.indirect(DIRECTORY, 1, 3, &slots);
    let size = u32::try_from(blocks[0].as_ref().unwrap().len()).unwrap();
    let mut spec = Spec::new(DIRECTORY, size, blocks.len() as u64 - 1, vec![root]);
    spec.levels = 2;
    let (set, _) = pool.objset(&[spec]);
    Zap::open(set.object(ObjectId::new(1)).unwrap()).unwrap()
}

/// A real directory of the dataset whose names are normalized as its name says.
fn real_directory(packed: &[u8], salt: u64, normalization: u64) -> Zap {
    let mut leaf = vec![0; 16384];
    transform::compress::decompress(Compression::Lz4, packed, &mut leaf).unwrap();
    fat_table(&[Some(fat_header(salt, normalization, [1; 4])), Some(leaf)])
}

fn real_directories() -> [Zap; 5] {
    [
        real_directory(include_bytes!("../golden/leaf-insensitive.lz4"), 0x94f_e565, 0x2),
        real_directory(include_bytes!("../golden/leaf-formC.lz4"), 0x1624_faf5, 0x50),
        real_directory(include_bytes!("../golden/leaf-formD.lz4"), 0x1988_94c5, 0x10),
        real_directory(include_bytes!("../golden/leaf-formKC.lz4"), 0x67d_48f5, 0x60),
        real_directory(include_bytes!("../golden/leaf-formKD.lz4"), 0xdd3_eec5, 0x20),
    ]
}

/// The object in a directory entry.
fn entry_object(entry: &ZapEntry) -> u64 {
    entry.value.u64().unwrap() & 0xffff_ffff_ffff
}

#[test]
fn names_have_the_hashes_of_openzfs() {
    for zap in real_directories() {
        let entries: Vec<ZapEntry> = zap.entries().map(Result::unwrap).collect();
        assert_eq!(entries.len(), 23);
        for entry in &entries {
            let name = zap::normalize(&entry.name, zap.normalization());
            let text = String::from_utf8_lossy(&entry.name);
            let salt = match zap.normalization().0 {
                0x2 => 0x94f_e565,
                0x50 => 0x1624_faf5,
                0x10 => 0x1988_94c5,
                0x60 => 0x67d_48f5,
                _ => 0xdd3_eec5,
            };
            let hash = ondisk::zap::hash::hash_name(salt, zap.flags(), &name);
            assert_eq!(hash, entry.cursor.hash, "{text}");
            assert_eq!(zap.lookup(&entry.name).unwrap().as_ref(), Some(&entry.value), "{text}");
        }
        let line = entries.iter().find(|entry| entry.name == b"..almost").unwrap();
        assert_eq!(entry_object(line), 19);
    }
}

#[test]
fn real_leaves_are_made_again() {
    for packed in [
        &include_bytes!("../golden/leaf-insensitive.lz4")[..],
        include_bytes!("../golden/leaf-formC.lz4"),
        include_bytes!("../golden/leaf-formD.lz4"),
        include_bytes!("../golden/leaf-formKC.lz4"),
        include_bytes!("../golden/leaf-formKD.lz4"),
    ] {
        let mut real = vec![0; 16384];
        transform::compress::decompress(Compression::Lz4, packed, &mut real).unwrap();
        let leaf = Leaf::parse(&real, Order::Little).unwrap();
        let mut entries: Vec<LeafEntry> = leaf.entries().map(Result::unwrap).collect();
        // chunks are given out in their order
        entries.sort_by_key(|entry| entry.number);
        let mut made = vec![0xff; 16384];
        let mut ours = LeafMut::init(&mut made, Order::Little, leaf.sorted);
        for entry in entries {
            let name = leaf.name(&entry).unwrap();
            let key = Key { hash: entry.hash, bytes: &name, count: entry.name_count };
            let value = leaf.value(&entry).unwrap();
            assert_eq!(
                ours.insert(&key, None, (entry.int_size, &value)).unwrap(),
                LeafUpdate::Done
            );
        }
        assert!(made == real);
    }
}

#[test]
fn names_match_as_the_dataset_wants() {
    let [insensitive, _, decomposed, ..] = real_directories();
    let found = |zap: &Zap, name: &str, how| {
        zap.lookup_normalized(name.as_bytes(), how).unwrap().map(|entry| entry_object(&entry))
    };
    assert_eq!(found(&decomposed, "\u{c5}NGSTR\u{d6}M", Matching::Normalized), Some(12));
    assert_eq!(found(&decomposed, "A\u{30a}NGSTRO\u{308}M", Matching::Normalized), Some(12));
    assert_eq!(found(&decomposed, "a\u{30a}ngstro\u{308}m", Matching::Normalized), None);
    let hidden = found(&insensitive, ".hidden", Matching::Exact);
    assert!(hidden.is_some());
    assert_eq!(found(&insensitive, ".HIDDEN", Matching::Normalized), hidden);
    assert_eq!(found(&insensitive, ".HIDDEN", Matching::NormalizedCase), None);
    assert_eq!(found(&insensitive, ".HIDDEN", Matching::Exact), None);
}

#[test]
fn a_listing_resumes_behind_any_entry() {
    let [_, zap, ..] = real_directories();
    let all: Vec<ZapEntry> = zap.entries().map(Result::unwrap).collect();
    for (at, entry) in all.iter().enumerate() {
        let cookie = entry.cursor.after().to_cookie(28);
        let rest = zap.entries_from(ZapCursor::from_cookie(cookie, 28));
        assert_eq!(rest.map(Result::unwrap).collect::<Vec<_>>(), all[at + 1..]);
    }
    assert_eq!(zap.entries_from(ZapCursor::END).count(), 0);
}

#[test]
fn each_bad_leaf_gives_one_error() {
    let mut leaf = vec![0; 16384];
    let packed = include_bytes!("../golden/leaf-formC.lz4");
    transform::compress::decompress(Compression::Lz4, packed, &mut leaf).unwrap();
    // the leaf has all hashes; give it the prefix 01
    leaf[16] = 1;
    leaf[32] = 2;
    let zap = fat_table(&[Some(fat_header(1, 0, [2, 1, 1, 9])), Some(leaf), None]);
    let (good, bad): (Vec<_>, Vec<_>) = zap.entries().partition(Result::is_ok);
    assert_eq!(good.len(), 23);
    let bad: Vec<Error> = bad.into_iter().map(Result::unwrap_err).collect();
    assert!(
        matches!(
            &bad[..],
            [Error::MissingBlock { .. }, Error::WrongLeaf { .. }, Error::MissingBlock { .. }]
        ),
        "{bad:?}"
    );
    assert_eq!(bad[0].zbookmark().block, BlockId::new(2));
}

#[test]
fn micro_table_of_1_mib_is_read() {
    let mut bytes = encode_words(&[MICRO, 0x1234_5677, 0, 0, 0, 0, 0, 0]);
    for number in 0..16383_u64 {
        bytes.extend(encode_words(&[number, 0]));
        let at = bytes.len() - 2;
        bytes.truncate(at);
        let mut name = format!("name-{number}").into_bytes();
        name.resize(50, 0);
        bytes.extend(name);
    }
    let pool = Arc::new(Pool::default());
    let root = pool.pointer(DIRECTORY, 0, 3, &bytes);
    let (set, _) = pool.objset(&[Spec::new(DIRECTORY, 1 << 20, 0, vec![root])]);
    let zap = Zap::open(set.object(ObjectId::new(1)).unwrap()).unwrap();
    assert_eq!(zap.count().unwrap(), 16383);
    assert_eq!(zap.lookup_u64(b"name-16382").unwrap(), Some(16382));
    assert_eq!(zap.lookup_u64(b"name-16383").unwrap(), None);
    let cursors: Vec<ZapCursor> = zap.entries().map(|entry| entry.unwrap().cursor).collect();
    assert_eq!(cursors.len(), 16383);
    assert!(cursors.is_sorted());
}

#[test]
fn object_of_another_type_is_refused() {
    let pool = Arc::new(Pool::default());
    let root = pool.pointer(DIRECTORY, 0, 3, &[0; 512]);
    let (set, _) = pool.objset(&[Spec::new(DIRECTORY, 512, 0, vec![root])]);
    let error = Zap::open(set.object(ObjectId::new(1)).unwrap()).unwrap_err();
    assert!(matches!(error, Error::NotZap { .. }));
}

proptest::proptest! {
    #[test]
    fn listing_a_random_leaf_ends(changes in proptest::collection::vec((0_usize..16384, 0_u8..), 1..40)) {
        let mut leaf = vec![0; 16384];
        let packed = include_bytes!("../golden/leaf-formC.lz4");
        transform::compress::decompress(Compression::Lz4, packed, &mut leaf).unwrap();
        for (at, byte) in changes {
            leaf[at] = byte;
        }
        let zap = fat_table(&[Some(fat_header(0x1624_faf5, 0x50, [1; 4])), Some(leaf)]);
        // no more entries than chunks, and one fault for each of 512 chains
        assert!(zap.entries().count() <= 638 + 512);
        let _ = zap.lookup_normalized(b"a", Matching::Normalized);
    }
}
