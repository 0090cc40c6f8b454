//! Blocks of every kind, there and back.

use std::collections::HashMap;
use std::sync::Arc;

use metaslab::{AllocRequest, Class};
use ondisk::blkptr::{Protection, Regular};
use ondisk::dnode::Dnode;
use ondisk::objset::ObjsetHeader;
use ondisk::{Blkptr, Checksum, Compression, ObjectType, Order};
use parking_lot::Mutex;
use proptest::prelude::*;
use transform::crypt::{DatasetKey, Suite};
use units::{Ashift, Level, Txg, Zbookmark};
use vdev::{Leaf, TxgRanges};
use zio::{
    BlockRepair, DedupLookup, DedupMatch, Error, FreeOutcome, Key, SharedBlocks, Sink, Source,
    WritePolicy, WriteRequest, Writer,
};

use zio::memory::MemoryVdevs;

const SECTORS: [u64; 2] = [9, 12];
const TXG: Txg = Txg::new(50);

fn ashift(shift: u64) -> Ashift {
    Ashift::new(shift).unwrap()
}

fn disk_writer(count: usize, size: u64, ashift: Ashift) -> Writer {
    MemoryVdevs::new(count, size, ashift).writer()
}

/// One of the pools that blocks are to be written to.
#[derive(Clone, Copy, Debug)]
enum TestLayout {
    Disks,
    Raidz(usize, u32),
}

impl TestLayout {
    fn create_writer(self, size: u64, ashift: Ashift) -> Writer {
        match self {
            Self::Disks => disk_writer(2, size, ashift),
            Self::Raidz(drives, parity) => {
                MemoryVdevs::raidz(drives, parity, size, ashift).writer()
            }
        }
    }
}

fn layouts() -> impl Strategy<Value = TestLayout> {
    let raidz = (1_u32..4, 1_usize..5)
        .prop_map(|(parity, data)| TestLayout::Raidz(parity as usize + data, parity));
    prop_oneof![Just(TestLayout::Disks), raidz]
}

fn key(suite: Suite) -> Key {
    DatasetKey::new(suite, 99, 1, &[3; 32], &[5; 64]).into()
}

fn write_request<'a>(
    data: &'a [u8],
    policy: &'a WritePolicy,
    previous: &'a Blkptr,
) -> WriteRequest<'a> {
    WriteRequest {
        data,
        kind: ObjectType::PLAIN_FILE,
        level: Level::new(0),
        fill: 1,
        txg: TXG,
        policy,
        previous,
        zbookmark: Zbookmark::default(),
        raw: None,
    }
}

/// A run of numbers that repeats with its seed.
fn byte_sequence(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state.to_le_bytes()[6]
    })
}

/// Words, which every method makes shorter.
fn text(seed: u64, size: usize) -> Vec<u8> {
    const WORDS: [&[u8]; 8] = [
        b"and there ",
        b"was light ",
        b"everywhere ",
        b"0000000000000000000000000000",
        b"upon the ",
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"waters of ",
        b"the deep, ",
    ];
    let words = byte_sequence(seed).flat_map(|number| WORDS[usize::from(number % 8)]);
    words.copied().take(size).collect()
}

fn noise(seed: u64, size: usize) -> Vec<u8> {
    byte_sequence(seed).take(size).collect()
}

fn regular(pointer: &Blkptr) -> &Regular {
    let Blkptr::Regular(block) = pointer else { panic!("{pointer:?}") };
    block
}

/// Reads a block back by each copy's address alone.
fn read_each_copy(pool: &Writer, pointer: &Blkptr, policy: &WritePolicy) -> Vec<Vec<u8>> {
    // the drives have the bytes that the pointer describes
    let pointer = Blkptr::parse(&pointer.encode(), Order::Little).unwrap();
    let read = |pointer: &Blkptr| {
        let read = pool.reader().read(pointer, Zbookmark::default(), policy.key.as_ref());
        let read = read.unwrap().to_vec();
        assert_eq!(read_into(pool, pointer, policy, read.len()), read);
        read
    };
    let mut all = vec![read(&pointer)];
    if let Blkptr::Regular(block) = &pointer
        && !block.is_gang()
    {
        for dva in block.copies() {
            let alone = Regular { dvas: [Some(dva), None, None], ..**block };
            all.push(read(&Blkptr::Regular(Box::new(alone))));
        }
    }
    all
}

/// Reads a block into reused memory with other content.
fn read_into(pool: &Writer, pointer: &Blkptr, policy: &WritePolicy, length: usize) -> Vec<u8> {
    let (mut into, key) = (vec![0xa5; length], policy.key.as_ref());
    let found = pool.reader().read_into(pointer, Zbookmark::default(), key, &mut into).unwrap();
    assert_eq!(found, length);
    into
}

fn allocated_bytes(pool: &Writer) -> u64 {
    pool.allocator().class_usage(Class::Normal).allocated
}

fn compression_methods() -> impl Strategy<Value = (Compression, i32)> {
    prop_oneof![
        Just((Compression::Off, 0)),
        Just((Compression::Lzjb, 0)),
        Just((Compression::Zle, 0)),
        Just((Compression::Lz4, 0)),
        (1_u8..10).prop_map(|level| (Compression::Gzip(level), 0)),
        prop_oneof![Just(0), Just(3), Just(19), Just(-1), Just(-1000)]
            .prop_map(|level| (Compression::Zstd, level)),
    ]
}

fn checksums() -> impl Strategy<Value = Checksum> {
    proptest::sample::select(vec![
        Checksum::Off,
        Checksum::Fletcher2,
        Checksum::Fletcher4,
        Checksum::Sha256,
        Checksum::NoParity,
        Checksum::Sha512,
        Checksum::Skein,
        Checksum::EdonR,
        Checksum::Blake3,
    ])
}

fn suites() -> impl Strategy<Value = Option<Suite>> {
    proptest::option::of(proptest::sample::select(vec![
        Suite::Aes128Ccm,
        Suite::Aes256Ccm,
        Suite::Aes192Gcm,
        Suite::Aes256Gcm,
    ]))
}

fn policies() -> impl Strategy<Value = WritePolicy> {
    let flags = any::<[bool; 4]>();
    (compression_methods(), checksums(), 1_u8..4, flags, suites()).prop_map(
        |((compression, zstd_level), checksum, copies, flags, suite)| WritePolicy {
            checksum,
            compression,
            zstd_level,
            copies,
            nopwrite: flags[0],
            dedup: false,
            verify: false,
            embedded_data: flags[1],
            zeros_to_hole: flags[2],
            hole_birth: flags[3],
            key: suite.map(key),
            keyless: false,
            class: Class::Normal,
            special_small_blocks: 0,
        },
    )
}

fn block_contents() -> impl Strategy<Value = Vec<u8>> {
    (any::<u64>(), 0_u8..5, 1_usize..300).prop_map(|(seed, shape, sectors)| {
        let size = sectors * 512;
        let mut data = match shape {
            0 => vec![0; size],
            1 | 2 => text(seed, size),
            _ => noise(seed, size),
        };
        if shape == 4 {
            // short enough for the pointer when compressed
            data[40..].fill(0);
        }
        data
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 6 / 5))]

    #[test]
    fn written_blocks_are_read_back(
        data in block_contents(), policy in policies(), shift in proptest::sample::select(SECTORS.to_vec()),
        born_before: bool, metadata: bool, shape in layouts(),
    ) {
        let pool = shape.create_writer(4 << 20, ashift(shift));
        let before = Blkptr::Hole(ondisk::blkptr::Hole {
            birth: Txg::new(40), lsize: 512, ..Default::default()
        });
        let previous = if born_before { &before } else { &Blkptr::EMPTY };
        let kind = if metadata { ObjectType::SA_MASTER_NODE } else { ObjectType::PLAIN_FILE };
        let pointer = pool.write(&WriteRequest { kind, ..write_request(&data, &policy, previous) });
        let pointer = pointer.unwrap();
        for read in read_each_copy(&pool, &pointer, &policy) {
            prop_assert!(pointer.is_hole() && read.iter().all(|byte| *byte == 0) || read == data);
        }
        match &pointer {
            Blkptr::Hole(hole) => {
                prop_assert!(policy.zeros_to_hole && data.iter().all(|byte| *byte == 0));
                prop_assert_eq!(hole.birth == TXG, born_before && policy.hole_birth);
            }
            Blkptr::Embedded(block) => {
                prop_assert!(policy.embedded_data && policy.key.is_none());
                prop_assert!(block.payload.len() <= Blkptr::PAYLOAD);
            }
            Blkptr::Regular(block) => {
                let most = if policy.key.is_some() { 2 } else { 3 };
                prop_assert_eq!(block.copies().count(), usize::from(policy.copies).min(most));
                prop_assert!(block.psize <= block.lsize);
                let saved = u64::from(block.lsize - block.psize);
                let sectors = u64::from(block.psize).is_multiple_of(ashift(shift).bytes());
                prop_assert!(saved == 0 || sectors);
                prop_assert_eq!(block.protection != Protection::None, policy.key.is_some());
                let taken: u64 = block.copies().map(|dva| dva.asize).sum();
                prop_assert_eq!(taken, allocated_bytes(&pool));
            }
            Blkptr::Redacted(_) => prop_assert!(false, "nothing is left out here"),
        }
        // freed space is free once the txg that freed it is past
        pool.free(&pointer, Txg::new(51));
        prop_assert_eq!(allocated_bytes(&pool), 0);
        prop_assert!(pool.drain_leaked_space().is_empty());
    }

    #[test]
    fn block_without_contiguous_space_becomes_a_gang(
        seed: u64, sectors in 50_usize..300, copies in 1_u8..4, encrypted: bool,
        shift in proptest::sample::select(SECTORS.to_vec()), scatter in 1_u64..6, shape in layouts(),
    ) {
        let pool = shape.create_writer(2 << 20, ashift(shift));
        fragment_space(&pool, scatter * ashift(shift).bytes());
        let before = allocated_bytes(&pool);
        let data = noise(seed, sectors * 512);
        let key = encrypted.then(|| key(Suite::Aes256Gcm));
        let policy = WritePolicy { copies, key, checksum: Checksum::Blake3, ..WritePolicy::default() };
        let pointer = match pool.write(&write_request(&data, &policy, &Blkptr::EMPTY)) {
            Ok(pointer) => pointer,
            Err(error) => {
                prop_assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                // all that was taken for it was given back
                prop_assert_eq!(allocated_bytes(&pool), before);
                return Ok(());
            }
        };
        let block = regular(&pointer);
        // more space may be available where metaslabs end
        prop_assume!(block.is_gang());
        let headers = if encrypted { 2 } else { usize::from(copies.max(2)) };
        prop_assert_eq!(block.copies().count(), headers);
        let charged: u64 = block.copies().map(|dva| dva.asize).sum();
        prop_assert_eq!(charged, allocated_bytes(&pool) - before);
        prop_assert_eq!(&read_each_copy(&pool, &pointer, &policy)[0], &data);

        // over its predecessor, with nothing more taken
        let taken = allocated_bytes(&pool);
        let other = noise(!seed, data.len());
        let again = pool.write(&write_request(&other, &policy, &pointer)).unwrap();
        prop_assert_eq!(regular(&again).dvas, block.dvas);
        prop_assert_eq!(allocated_bytes(&pool), taken);
        prop_assert_eq!(&read_each_copy(&pool, &again, &policy)[0], &other);

        pool.free(&again, Txg::new(52));
        prop_assert_eq!(allocated_bytes(&pool), before);
        prop_assert!(pool.drain_leaked_space().is_empty());
    }

    #[test]
    fn missed_parts_of_any_block_are_repaired(
        data in block_contents(), policy in policies(), shift in proptest::sample::select(SECTORS.to_vec()),
        in_pieces: bool, parity in 1_u32..4, more in 1_usize..4, lost: proptest::sample::Index,
    ) {
        let drives = parity as usize + more;
        let pool = TestLayout::Raidz(drives, parity).create_writer(2 << 20, ashift(shift));
        if in_pieces {
            fragment_space(&pool, 2 * ashift(shift).bytes());
        }
        let Ok(pointer) = pool.write(&write_request(&data, &policy, &Blkptr::EMPTY)) else {
            return Ok(());
        };
        let Blkptr::Regular(block) = &pointer else { return Ok(()) };
        let tree = pool.tree();
        let leaf = &tree.leaves()[lost.index(drives)];
        let device = leaf.device().unwrap();
        let image = || {
            let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
            device.read_at(0, &mut bytes).unwrap();
            bytes
        };
        let before = image();
        device.write_at(0, &vec![0; before.len()]).unwrap();
        leaf.set_dtl(TxgRanges::new([(TXG, TXG)]));
        prop_assert!(read_each_copy(&pool, &pointer, &policy).iter().all(|read| *read == data));
        let wanting = |leaf: &Leaf, birth: Txg| leaf.dtl().contains(birth);
        let mut mending = BlockRepair::new(pool.reader(), &wanting);
        mending.add(block, Zbookmark::default()).unwrap();
        let mut faults = Vec::new();
        let written = mending.write_repairs(&mut faults).unwrap();
        prop_assert_eq!(faults, []);
        prop_assert!(image() == before);
        prop_assert!(written > 0 || before.iter().all(|byte| *byte == 0));
    }
}

/// Leaves free only every other piece of `size` bytes, of a part of the space.
fn fragment_space(pool: &Writer, size: u64) {
    let mut pieces = Vec::new();
    let before = Txg::new(TXG.get() - 9);
    while let Ok([Some(dva), ..]) = pool.allocator().allocate(&AllocRequest::new(size, before)) {
        pieces.push(dva);
    }
    pieces.sort_by_key(|dva| (dva.vdev, dva.offset));
    for dva in pieces.iter().step_by(2) {
        pool.allocator().free(dva, before).unwrap();
    }
    for txg in before.get()..before.get() + 4 {
        pool.allocator().drain_changes(Txg::new(txg));
        pool.allocator().mark_synced(Txg::new(txg));
    }
}

#[test]
fn a_later_pass_writes_over_the_earlier() {
    let pool = disk_writer(2, 4 << 20, ashift(9));
    let policy = WritePolicy { copies: 2, ..WritePolicy::default() };
    let first = pool.write(&write_request(&noise(1, 4096), &policy, &Blkptr::EMPTY)).unwrap();
    let second = pool.write(&write_request(&noise(2, 4096), &policy, &first)).unwrap();
    assert_eq!(regular(&first).dvas, regular(&second).dvas);
    assert_eq!(read_each_copy(&pool, &second, &policy)[1], noise(2, 4096));
    // of another size, or in a later txg, it has a place of its own
    let longer = pool.write(&write_request(&noise(3, 8192), &policy, &first)).unwrap();
    assert_ne!(regular(&first).dvas, regular(&longer).dvas);
    let data = noise(4, 4096);
    let later = WriteRequest { txg: Txg::new(51), ..write_request(&data, &policy, &second) };
    let later = pool.write(&later).unwrap();
    assert_ne!(regular(&later).dvas, regular(&second).dvas);
    assert_eq!(read_each_copy(&pool, &second, &policy)[2], noise(2, 4096));
}

#[test]
fn existing_copies_are_not_rewritten() {
    let pool = disk_writer(1, 4 << 20, ashift(9));
    let compression = Compression::Lz4;
    let checksum = Checksum::Sha256;
    let policy = WritePolicy { nopwrite: true, checksum, compression, ..WritePolicy::default() };
    let data = text(1, 8192);
    let old = pool.write(&write_request(&data, &policy, &Blkptr::EMPTY)).unwrap();
    let again = WriteRequest { txg: Txg::new(60), ..write_request(&data, &policy, &old) };
    assert_eq!(pool.write(&again).unwrap(), old);
    for changed in [
        WritePolicy { nopwrite: false, ..policy.clone() },
        WritePolicy { copies: 2, ..policy.clone() },
        WritePolicy { checksum: Checksum::Fletcher4, ..policy.clone() },
        WritePolicy { compression: Compression::Off, ..policy.clone() },
        WritePolicy { key: Some(key(Suite::Aes256Gcm)), ..policy.clone() },
    ] {
        let pointer = pool.write(&WriteRequest { policy: &changed, ..again }).unwrap();
        assert_eq!(pointer.birth(), Txg::new(60), "{changed:?}");
    }
}

#[test]
fn indirect_blocks_of_encrypted_data_are_authenticated() {
    let pool = disk_writer(1, 4 << 20, ashift(12));
    let compression = Compression::Lz4;
    let policy =
        WritePolicy { compression, key: Some(key(Suite::Aes256Gcm)), ..WritePolicy::default() };
    let leaf = pool.write(&write_request(&text(1, 4096), &policy, &Blkptr::EMPTY)).unwrap();
    assert!(matches!(regular(&leaf).protection, Protection::Encrypted { .. }));
    let mut above = vec![0; 16384];
    above[128..256].copy_from_slice(&leaf.encode());
    let level = Level::new(1);
    let above = WriteRequest { level, ..write_request(&above, &policy, &Blkptr::EMPTY) };
    let above = pool.write(&above).unwrap();
    assert!(matches!(regular(&above).protection, Protection::Indirect { .. }));
    let read = pool.reader().read(&above, Zbookmark::default(), None).unwrap();
    assert_eq!(read[128..256], leaf.encode());
    let error = pool.reader().read(&leaf, Zbookmark::default(), None).unwrap_err();
    assert!(matches!(error, Error::KeyNotLoaded { .. }));
}

#[test]
fn dnodes_and_object_sets_keep_their_open_parts() {
    let pool = disk_writer(1, 4 << 20, ashift(12));
    let compression = Compression::Lz4;
    let policy =
        WritePolicy { compression, key: Some(key(Suite::Aes256Ccm)), ..WritePolicy::default() };
    let real = include_bytes!("../../../ondisk/tests/golden/objset-names.bin");
    let meta = Dnode::parse(real, Order::Little).unwrap().unwrap();
    let kind = ObjectType::PLAIN_FILE;
    let (bonus, bonus_kind) = (b"secret words".to_vec(), ObjectType::SA);
    let pointers = vec![Blkptr::EMPTY];
    let dnode = Dnode { kind, bonus_kind, bonus, pointers, ..meta };
    let mut block = vec![0; 16384];
    dnode.encode(&mut block[1024..1536]);
    let kind = ObjectType::DNODE;
    let pointer = WriteRequest { kind, ..write_request(&block, &policy, &Blkptr::EMPTY) };
    let pointer = pool.write(&pointer).unwrap();
    assert!(regular(&pointer).compression.is_off());
    assert_eq!(read_each_copy(&pool, &pointer, &policy)[0], block);
    let raw = pool.reader().with_raw_dnodes().read(&pointer, Zbookmark::default(), None).unwrap();
    let raw = Dnode::parse(&raw[1024..], Order::Little).unwrap().unwrap();
    assert_eq!((raw.kind, raw.bonus.len()), (dnode.kind, dnode.bonus.len()));
    assert_ne!(raw.bonus, dnode.bonus);

    let mut root = real.to_vec();
    root.resize(4096, 0);
    let kind = ObjectType::OBJSET;
    let pointer = WriteRequest { kind, ..write_request(&root, &policy, &Blkptr::EMPTY) };
    let pointer = pool.write(&pointer).unwrap();
    assert_eq!(regular(&pointer).protection, Protection::Objset);
    let read = pool.reader().read(&pointer, Zbookmark::default(), policy.key.as_ref()).unwrap();
    let header = ObjsetHeader::parse(&read, Order::Little).unwrap();
    assert_ne!(header.portable_mac, [0; 32]);
    let wrong = DatasetKey::new(Suite::Aes256Ccm, 99, 1, &[3; 32], &[6; 64]);
    assert!(pool.reader().read(&pointer, Zbookmark::default(), Some(&wrong.into())).is_err());
}

#[test]
fn full_pool_gives_no_space() {
    let pool = disk_writer(1, 2 << 20, ashift(9));
    let policy = WritePolicy::default();
    let data = noise(1, 131_072);
    let error = loop {
        match pool.write(&write_request(&data, &policy, &Blkptr::EMPTY)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
}

/// A table of deduplication in memory: by checksum, how many pointers there are.
#[derive(Default)]
struct DedupTable(Mutex<HashMap<[u64; 4], (Regular, u64)>>);

impl SharedBlocks for DedupTable {
    fn release(&self, block: &Regular, _: Txg) -> FreeOutcome {
        let mut table = self.0.lock();
        let Some((_, count)) = table.get_mut(&block.sum).filter(|_| block.dedup) else {
            return FreeOutcome::Free(block.dvas);
        };
        *count -= 1;
        if *count > 0 {
            return FreeOutcome::StillReferenced;
        }
        table.remove(&block.sum);
        FreeOutcome::Free(block.dvas)
    }

    fn find_duplicate(&self, block: &Regular, copies: u8, _: Txg) -> DedupLookup {
        let mut table = self.0.lock();
        let Some((known, count)) = table.get_mut(&block.sum) else { return DedupLookup::NotFound };
        if known.copies().count() < usize::from(copies) {
            return DedupLookup::Unusable;
        }
        *count += 1;
        DedupLookup::Found(DedupMatch { dvas: known.dvas, birth: known.birth_physical })
    }

    fn insert(&self, block: &Regular, _: Txg) -> bool {
        self.0.lock().insert(block.sum, (*block, 1)).is_none()
    }

    fn add_reference(&self, _: &Regular, _: Txg) -> bool {
        false
    }
}

#[test]
fn equal_blocks_are_written_once() {
    for key in [None, Some(key(Suite::Aes256Gcm))] {
        let pool = disk_writer(1, 8 << 20, ashift(12));
        pool.set_shared_blocks(Arc::new(DedupTable::default()));
        let checksum = Checksum::Sha256;
        let policy = WritePolicy { dedup: true, checksum, key, ..WritePolicy::default() };
        let data = noise(1, 131_072);
        let writers = || pool.write(&write_request(&data, &policy, &Blkptr::EMPTY)).unwrap();
        let pointers: Vec<Blkptr> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(writers)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let taken = allocated_bytes(&pool);
        assert_eq!(taken, 131_072);
        let txg = Txg::new(70);
        let later = WriteRequest { txg, ..write_request(&data, &policy, &pointers[0]) };
        let later = pool.write(&later).unwrap();
        let block = regular(&later);
        assert_eq!(
            (block.dvas, block.birth, block.birth_physical),
            (regular(&pointers[0]).dvas, txg, TXG,)
        );
        for pointer in &pointers {
            assert!(regular(pointer).dedup);
            assert_eq!(read_each_copy(&pool, pointer, &policy)[0], data);
            pool.free(pointer, txg);
        }
        assert_eq!(read_each_copy(&pool, &later, &policy)[0], data);
        assert_eq!(allocated_bytes(&pool), taken);
        pool.free(&later, txg);
        assert_eq!(allocated_bytes(&pool), 0);
        assert!(pool.drain_leaked_space().is_empty());
    }
}

/// The property decides whether blocks are compared, not the compressed result of this one.
#[test]
fn equal_incompressible_blocks_are_written_once() {
    let data = noise(9, 131_072);
    for (compression, compares) in [(Compression::Lz4, true), (Compression::Off, false)] {
        let pool = disk_writer(1, 8 << 20, ashift(12));
        let checksum = Checksum::Sha256;
        let policy =
            WritePolicy { checksum, compression, nopwrite: true, ..WritePolicy::default() };
        let old = pool.write(&write_request(&data, &policy, &Blkptr::EMPTY)).unwrap();
        assert!(regular(&old).compression.is_off());
        let again = WriteRequest { txg: Txg::new(60), ..write_request(&data, &policy, &old) };
        assert_eq!(pool.write(&again).unwrap() == old, compares, "{compression}");
    }
}
