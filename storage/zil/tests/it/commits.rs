//! Commits: their records survive cuts at any time, alone and among many threads.

use ondisk::Blkptr;
use ondisk::objset::LogHeader;
use ondisk::zil::{Body, Write};
use proptest::prelude::*;
use transform::crypt::{DatasetKey, Suite};
use units::{Ashift, ObjectId, Txg};
use zil::{Itx, LogEnd, ReplayEntry};
use zio::Key;

use crate::test_pool::{CrashImage, FILE, TestPool};

fn key() -> Key {
    DatasetKey::new(Suite::Aes256Gcm, 99, 1, &[3; 32], &[5; 64]).into()
}

fn test_pool(shift: u64, encrypted: bool) -> TestPool {
    TestPool::new(Ashift::new(shift).unwrap(), encrypted.then(key))
}

/// A change with a number for a name.
fn remove_itx(number: u64) -> Itx {
    let name = number.to_string().into_bytes();
    Itx::new_ordered(Body::Remove { dir: ObjectId::new(34), name })
}

/// Adds a change to the log, and commits it.
fn commit_item(house: &TestPool, item: Itx) {
    let tx = house.txgs.begin_tx().unwrap();
    house.log.add_itx(&tx, item);
    drop(tx);
    house.while_syncing(|| house.log.commit(None)).unwrap();
}

/// A write whose data is read at the commit, or given with the record.
fn write_itx(offset: u64, data: &[u8], with_data: bool) -> Itx {
    let (object, length, pointer) = (FILE, data.len() as u64, Blkptr::EMPTY);
    let data = with_data.then(|| data.to_vec());
    Itx::new_per_object(Body::Write(Box::new(Write { object, offset, length, pointer, data })))
}

fn entry_number(entry: &ReplayEntry) -> Option<u64> {
    let Body::Remove { name, .. } = &entry.record.body else { return None };
    Some(std::str::from_utf8(name).unwrap().parse().unwrap())
}

/// The data of a write, from its record or from the block that the record points to.
fn written_data(entry: &ReplayEntry) -> Option<(u64, &[u8])> {
    let Body::Write(write) = &entry.record.body else { return None };
    let block = entry.block.as_ref().map(|block| (block.offset, &block.content[..]));
    Some(block.unwrap_or_else(|| (write.offset, write.data.as_ref().unwrap())))
}

/// The content of the file with the log applied.
fn content(left: &CrashImage, size: usize) -> Vec<u8> {
    let objset = left.objset();
    let mut bytes = vec![0; size];
    objset.object(FILE).unwrap().read(0, &mut bytes).unwrap();
    for entry in left.read_log(&objset.header().log).0 {
        if let Some((offset, data)) = written_data(&entry) {
            let at = usize::try_from(offset).unwrap();
            bytes[at..at + data.len()].copy_from_slice(data);
        }
    }
    bytes
}

#[derive(Clone, Debug)]
enum Operation {
    Remove,
    Write { at: usize, length: usize, byte: u8, with_data: bool },
    CommitFile,
    CommitAll,
    Sync,
}

fn operation() -> impl Strategy<Value = Operation> {
    let write = (0_usize..200_000, 1_usize..400_000, any::<u8>(), any::<bool>())
        .prop_map(|(at, length, byte, with_data)| Operation::Write { at, length, byte, with_data });
    prop_oneof![
        3 => Just(Operation::Remove),
        3 => write,
        1 => Just(Operation::CommitFile),
        2 => Just(Operation::CommitAll),
        1 => Just(Operation::Sync),
    ]
}

const SIZE: usize = 600_000;

/// Bytes of which no two sectors near each other are alike.
fn numbered_bytes(length: usize, byte: u8) -> Vec<u8> {
    (0_u8..=255).cycle().flat_map(|sector| [sector ^ byte; 512]).take(length).collect()
}

/// The number of numbered changes that survived: a prefix, in their order.
fn surviving_count(left: &CrashImage, txgs: &[Txg]) -> usize {
    let (entries, stop) = left.read_log(&left.objset().header().log);
    assert!(matches!(stop, LogEnd::NotWritten(_) | LogEnd::Empty), "{stop:?}");
    let on_drives = (0_u64..).zip(txgs).filter(|(_, txg)| **txg <= left.synced_txg);
    let found: Vec<u64> = on_drives
        .map(|(number, _)| number)
        .chain(entries.iter().filter_map(entry_number))
        .collect();
    assert!(found.iter().copied().eq(0..found.len() as u64), "a gap in {found:?}");
    found.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 6))]

    #[test]
    fn committed_records_survive_a_power_cut(
        acts in proptest::collection::vec(operation(), 1..40), encrypted: bool, seed: u64,
        shift in proptest::sample::select(vec![9, 12]),
    ) {
        let house = test_pool(shift, encrypted);
        let mut numbers: Vec<Txg> = Vec::new();
        let (mut now, mut promised) = (vec![0; SIZE], vec![0; SIZE]);
        let mut sure = 0;
        for act in &acts {
            let (before, sure_before) = (house.request_count(), sure);
            match act {
                Operation::Remove => {
                    let tx = house.txgs.begin_tx().unwrap();
                    house.log.add_itx(&tx, remove_itx(numbers.len() as u64));
                    numbers.push(tx.txg());
                }
                Operation::Write { at, length, byte, with_data } => {
                    let data: Vec<u8> = numbered_bytes(*length, *byte);
                    let tx = house.txgs.begin_tx().unwrap();
                    let file = house.objset.object(FILE).unwrap();
                    file.write(&tx, *at as u64, &data).unwrap();
                    house.log.add_itx(&tx, write_itx(*at as u64, &data, *with_data));
                    now[*at..at + length].copy_from_slice(&data);
                }
                Operation::CommitFile | Operation::CommitAll => {
                    let object = matches!(act, Operation::CommitFile).then_some(FILE);
                    house.while_syncing(|| house.log.commit(object)).unwrap();
                    sure = numbers.len();
                    promised.clone_from(&now);
                }
                Operation::Sync => {
                    house.sync();
                    promised.clone_from(&now);
                    sure = numbers.len();
                }
            }
            // a cut during each act, and one after it
            let requests = house.request_count() - before;
            let during = before + usize::from(seed.to_le_bytes()[1]) * requests / 255;
            prop_assert!(surviving_count(&house.cut_power_at(during, seed % 7), &numbers) >= sure_before);
            let left = house.cut_power(seed % 4);
            prop_assert!(surviving_count(&left, &numbers) >= sure);
            if sure == numbers.len() && promised == now {
                prop_assert!(content(&left, SIZE) == now);
            }
        }
        prop_assert!(house.lost_blocks().is_empty());
        // after the next import: the found log is claimed, and its space is freed
        let left = house.cut_power(seed % 4);
        let wanted = left.read_log(&left.objset().header().log).0.len();
        let again = left.import();
        let found = again.log.unreplayed_header();
        if let Some(found) = found {
            let entries = again.cut_power(1).read_log(&found).0;
            prop_assert_eq!(entries.len(), wanted);
            prop_assert_eq!(found.replay_needed(), wanted > 0);
            again.sync();
            // the claim is on the drives, and the log still has all records
            let left = again.cut_power(1);
            let header = left.objset().header().log.clone();
            prop_assert_eq!(&header, &found);
            prop_assert_eq!(left.read_log(&header).0.len(), wanted);
            let tx = again.txgs.begin_tx().unwrap();
            again.log.finish_replay(&tx);
            drop(tx);
            again.sync();
        }
        for _ in 0..4 {
            again.sync();
        }
        prop_assert_eq!(again.cut_power(1).objset().header().log.clone(), LogHeader::default());
        let lost = again.lost_blocks();
        prop_assert!(lost.is_empty(), "{:?}", lost);
        prop_assert_eq!(again.allocated(), tree_bytes(&again));
    }
}

/// Bytes of all blocks of the dataset.
fn tree_bytes(house: &TestPool) -> u64 {
    let mut sum = 0;
    house.cut_power(0).objset().walk(&dmu::WalkOptions::default(), &mut |_, found| {
        if let dmu::BlockVisit::Pointer(Blkptr::Regular(block)) = found {
            sum += block.copies().map(|dva| dva.asize).sum::<u64>();
        }
        dmu::WalkControl::Descend
    });
    sum
}

#[test]
fn many_may_wait_at_a_time() {
    let house = test_pool(12, false);
    let next = std::sync::atomic::AtomicU64::new(0);
    house.while_syncing(|| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let tx = house.txgs.begin_tx().unwrap();
                        house.log.add_itx(&tx, remove_itx(number));
                        let txg = tx.txg();
                        drop(tx);
                        house.log.commit(None).unwrap();
                        let left = house.cut_power(0);
                        if txg > left.synced_txg {
                            let entries = left.read_log(&left.objset().header().log).0;
                            let found = entries.iter().filter_map(entry_number);
                            assert!(found.into_iter().any(|found| found == number), "{number}");
                        }
                    }
                });
            }
        });
    });
    house.log.close();
    for _ in 0..4 {
        house.sync();
    }
    assert_eq!(house.allocated(), tree_bytes(&house));
    assert!(house.lost_blocks().is_empty());
}

#[test]
fn truncation_during_commit_never_logs_zeros() {
    const SIZE: usize = 512 << 10;
    let house = test_pool(9, false);
    let data = vec![7; SIZE];
    // a chain exists
    house.log.add_itx(&house.txgs.begin_tx().unwrap(), remove_itx(0));
    house.while_syncing(|| house.log.commit(None)).unwrap();
    for round in 0..40 {
        let tx = house.txgs.begin_tx().unwrap();
        house.objset.object(FILE).unwrap().write(&tx, 0, &data).unwrap();
        house.log.add_itx(&tx, write_itx(0, &data, false));
        // enough other dirty data that a commit costs less than a sync
        tx.add_dirty(64 << 20);
        drop(tx);
        let cut = || {
            std::thread::sleep(std::time::Duration::from_micros(round * 20));
            let tx = house.txgs.begin_tx().unwrap();
            let body = Body::Truncate { object: FILE, offset: 0, length: 0 };
            house.log.add_itx(&tx, Itx::new_per_object(body));
            house.objset.object(FILE).unwrap().free_range(&tx, 0..u64::MAX).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(cut);
            house.while_syncing(|| house.log.commit(Some(FILE))).unwrap();
        });
        let left = house.cut_power(round);
        let mut zeros = false;
        for entry in left.read_log(&left.objset().header().log).0 {
            match &entry.record.body {
                Body::Write(_) => zeros |= written_data(&entry).unwrap().1.contains(&0),
                _ => zeros = false,
            }
        }
        assert!(!zeros, "{round}");
        house.sync();
    }
}

#[test]
fn removed_objects_are_not_committed() {
    let house = test_pool(9, false);
    let tx = house.txgs.begin_tx().unwrap();
    house.log.add_itx(&tx, remove_itx(0));
    drop(tx);
    house.while_syncing(|| house.log.commit(None)).unwrap();
    let tx = house.txgs.begin_tx().unwrap();
    house.objset.object(FILE).unwrap().write(&tx, 0, &[1; 512]).unwrap();
    house.log.add_itx(&tx, write_itx(0, &[1; 512], false));
    house.log.forget_object(FILE);
    house.log.add_itx(&tx, write_itx(512, &[1; 512], false));
    house.objset.free(&tx, FILE).unwrap();
    house.log.add_itx(&tx, remove_itx(1));
    drop(tx);
    house.while_syncing(|| house.log.commit(None)).unwrap();
    let left = house.cut_power(0);
    let entries = left.read_log(&left.objset().header().log).0;
    assert_eq!(entries.iter().map(entry_number).collect::<Vec<_>>(), [Some(1)]);
}

#[test]
fn a_full_pool_waits_for_its_txgs_instead() {
    let house = test_pool(12, false);
    let before = house.allocated();
    let tx = house.txgs.begin_tx().unwrap();
    let txg = tx.txg();
    let mut taken = Vec::new();
    let want = |size| metaslab::AllocRequest::new(size, txg);
    while let Ok([Some(dva), ..]) = house.writer.allocator().allocate(&want(4096)) {
        taken.push(dva);
    }
    // space for the dataset's own blocks, none for the log's
    for dva in taken.drain(..200) {
        house.writer.allocator().unallocate(&dva, txg).unwrap();
    }
    house.log.add_itx(&tx, remove_itx(0));
    drop(tx);
    house.while_syncing(|| house.log.commit(None)).unwrap();
    let left = house.cut_power(0);
    assert!(left.synced_txg >= txg && house.allocated() > before);
}

#[test]
fn full_chain_keeps_committed_records() {
    let house = test_pool(12, false);
    let add = |number| {
        let tx = house.txgs.begin_tx().unwrap();
        house.log.add_itx(&tx, remove_itx(number));
        tx.txg()
    };
    add(0);
    house.while_syncing(|| house.log.commit(None)).unwrap();
    // a txg waits for its sync while records of the next one are committed
    house.objset.object(FILE).unwrap().write(&house.txgs.begin_tx().unwrap(), 0, b"1").unwrap();
    let closed = house.txgs.quiesce();
    let next = add(1);
    assert!(next > closed);
    house.log.commit(None).unwrap();
    let promised = |left: &CrashImage| {
        let entries = left.read_log(&left.objset().header().log).0;
        entries.iter().any(|entry| entry_number(entry) == Some(1)) || left.synced_txg >= next
    };
    assert!(promised(&house.cut_power(0)));
    house.log.close();
    house.write_txg(closed);
    assert!(promised(&house.cut_power(0)), "it is gone with the group before it");
    for _ in 0..4 {
        house.sync();
    }
    assert_eq!(house.cut_power(0).objset().header().log.clone(), LogHeader::default());
    assert_eq!(house.allocated(), tree_bytes(&house));
    assert!(house.lost_blocks().is_empty());
}

#[test]
fn multi_block_commit_is_atomic() {
    let house = test_pool(12, false);
    // the first of all waits for its group, which leads to the chain from then on
    commit_item(&house, remove_itx(0));
    commit_item(&house, remove_itx(1));
    let before = house.request_count();
    commit_item(&house, write_itx(0, &vec![7; 300_000], true));
    let mut seen = std::collections::BTreeSet::new();
    for at in before..=house.request_count() {
        for seed in 0..20 {
            let left = house.cut_power_at(at, seed);
            let entries = left.read_log(&left.objset().header().log).0;
            let bodies = entries.iter().map(|entry| &entry.record.body);
            let written = bodies.filter_map(|body| match body {
                Body::Write(write) => Some(write.length),
                _ => None,
            });
            seen.insert(written.sum::<u64>());
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 300_000]);
}

#[test]
fn long_write_is_not_copied_into_the_log() {
    let house = test_pool(12, false);
    // a chain exists
    commit_item(&house, remove_itx(0));
    let data = numbered_bytes(320 << 10, 7);
    let file = house.objset.object(FILE).unwrap();
    // adjacent writes, none of which is long
    for (offset, part) in (0_u64..).step_by(64 << 10).zip(data.chunks(64 << 10)) {
        let tx = house.txgs.begin_tx().unwrap();
        file.write(&tx, offset, part).unwrap();
        house.log.add_itx(&tx, write_itx(offset, part, false));
    }
    let open = house.txgs.open_txg();
    house.log.commit(Some(FILE)).unwrap();
    assert_eq!(house.txgs.open_txg(), open, "only the log has it");
    let left = house.cut_power(3);
    let entries = left.read_log(&left.objset().header().log).0;
    let pointed = entries.iter().filter(|entry| entry.block.is_some()).count();
    assert_eq!(pointed, data.len() / (32 << 10), "a record for each block");
    assert!(content(&left, data.len()) == data);
    // the txg brings the same blocks, and the blocks above them
    let before = house.allocated();
    house.sync();
    assert!(house.allocated() < before + data.len() as u64);
    assert!(content(&house.cut_power(4), data.len()) == data);
}

#[test]
fn committed_block_outlives_its_change() {
    let house = test_pool(12, false);
    house.log.add_itx(&house.txgs.begin_tx().unwrap(), remove_itx(0));
    house.while_syncing(|| house.log.commit(None)).unwrap();
    let file = house.objset.object(FILE).unwrap();
    let data = numbered_bytes(256 << 10, 1);
    let tx = house.txgs.begin_tx().unwrap();
    file.write(&tx, 0, &data).unwrap();
    house.log.add_itx(&tx, write_itx(0, &data, false));
    drop(tx);
    house.log.commit(Some(FILE)).unwrap();
    // within the same txg, and without a commit
    let tx = house.txgs.begin_tx().unwrap();
    file.write(&tx, 0, &numbered_bytes(256 << 10, 2)).unwrap();
    drop(tx);
    assert!(content(&house.cut_power(5), data.len()) == data);
    house.sync();
    house.log.close();
    (0..4).for_each(|_| house.sync());
    assert_eq!(house.allocated(), tree_bytes(&house));
    assert!(house.lost_blocks().is_empty());
}
