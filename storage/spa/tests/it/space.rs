//! Space maps of pools by real OpenZFS: read into an allocator, and written.

use std::collections::BTreeMap;

use dmu::{BlockVisit, Objset, WalkControl, WalkOptions};
use metaslab::{AllocRequest, Class};
use ondisk::spacemap::{Entry, SpaceMapAppender};
use ondisk::{Blkptr, Dva, ObjectType};
use txg::Tx;
use units::{BlockId, ObjectId};

use crate::test_pool::{TestPool, check_pool, open_pool};

/// Pools that are whole; the last are not in the repository.
const INTACT_POOLS: [&str; 17] = [
    "mirror-2",
    "mirror-3",
    "stripe-copies",
    "gang",
    "snapshots",
    "version-28-upgraded",
    "draid1",
    "expanded",
    "encryption",
    "limits-and-freeing",
    "single",
    "no-features",
    "version-28",
    "holes-and-clones",
    "names",
    "raidz-unequal",
    "mirrors-with-everything",
];

fn available_fixtures(names: &[&'static str]) -> impl Iterator<Item = &'static str> {
    let there: Vec<_> = names.iter().copied().filter(|name| fixtures::exists(name)).collect();
    assert!(there.len() >= 5);
    there.into_iter()
}

/// Txgs in which a map grows.
const ROUNDS: usize = 40;

/// Makes a txg that has something to write.
fn dirty_mos(written: &TestPool) {
    let directory = written.mos.object(ObjectId::new(1)).unwrap();
    directory.change_block(&written.open_tx(), BlockId::new(0), &mut |_| {}).unwrap();
}

/// The figures that zdb gives: of each vdev, and of the pool's data vdevs.
fn zdb_fragmentation(dir: &std::path::Path, pool: &str) -> Option<(Vec<u64>, u64)> {
    let output = fixtures::zdb_command().args(["-e", "-M", "-p"]).arg(dir).arg(pool).output();
    let Ok(output) = output else {
        eprintln!("zdb is not installed: it was not run");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figure =
        |line: &str| line.trim_end_matches('%').rsplit(char::is_whitespace).next()?.parse().ok();
    let of = |what: &str| -> Vec<u64> {
        let lines = text.lines().filter(|line| line.trim_start().starts_with(what));
        lines.filter(|line| line.contains("fragmentation")).filter_map(figure).collect()
    };
    Some((of("vdev"), of("pool").last().copied()?))
}

#[test]
fn fragmentation_equals_that_of_zdb() {
    let mut seen = std::collections::BTreeSet::new();
    for name in available_fixtures(&INTACT_POOLS) {
        let fixture = fixtures::load(name);
        let Some((tops, all)) = zdb_fragmentation(&fixture.dir, fixture.pool_name()) else {
            continue;
        };
        let pool = open_pool(&fixture.dir);
        let space = spa::PoolSpace::load_lazily(&pool, pool.mos()).unwrap();
        let vdevs = pool.vdev_space().unwrap();
        let ours: Vec<u64> =
            (vdevs.iter()).filter_map(|top| space.vdev_fragmentation(top.vdev).unwrap()).collect();
        // zdb ignores changes that are only in the log, so that it may round otherwise then
        let spare = u64::from(pool.feature_refcount("com.delphix:log_spacemap") > 0);
        let near = |(ours, told): (&u64, &u64)| ours.abs_diff(*told) <= spare;
        assert_eq!(ours.len(), tops.len(), "{name}");
        assert!(ours.iter().zip(&tops).all(near), "{name}: {ours:?} {tops:?}");
        let own = space.class_fragmentation(Class::Normal).unwrap().unwrap();
        assert!(near((&own, &all)), "{name}: {own} {all}");
        seen.insert(all);
    }
    assert!(seen.is_empty() || seen.len() > 2, "they are alike: {seen:?}");
}

#[test]
fn dedup_ratio_equals_that_of_openzfs() {
    for name in
        available_fixtures(&INTACT_POOLS).chain(["dedup-legacy", "dedup-fast", "dedup-waiting"])
    {
        let Ok(fixture) = fixtures::try_load(name) else { continue };
        let told = fixture.manifest["pool_properties"]["dedupratio"].as_str().map(str::to_owned);
        let pool = open_pool(&fixture.dir);
        let ratio =
            spa::capacity::dedup_ratio(&spa::capacity::dedup_histogram(pool.mos(), pool.tree()));
        assert_eq!(Some(format!("{}.{:02}", ratio / 100, ratio % 100)), told, "{name}");
    }
}

#[test]
fn allocated_space_equals_the_examiner() {
    for name in available_fixtures(&INTACT_POOLS) {
        let dir = fixtures::load(name).dir;
        let report = check_pool(&dir);
        let pool = open_pool(&dir);
        let space =
            spa::PoolSpace::load(&pool, pool.mos()).unwrap_or_else(|e| panic!("{name}: {e}"));
        for top in &report.space {
            let usage = space.allocator().vdev_usage(top.vdev).unwrap();
            assert_eq!(usage.allocated, top.allocated, "{name} vdev {}", top.vdev);
        }
        assert!(space.allocator().unloaded_metaslabs().is_empty());
    }
}

#[test]
fn pools_that_are_written_stay_sound() {
    for name in available_fixtures(&INTACT_POOLS) {
        for logging in [true, false] {
            let mut written =
                TestPool::from_fixture(name, if logging { "logged" } else { "direct" });
            written.space.set_logging(logging);
            for _ in 0..6 {
                dirty_mos(&written);
                written.sync();
            }
            let usage = written.space.allocator().class_usage(Class::Normal);
            let txg = written.open_tx().txg();
            let dir = written.close();
            let report = check_pool(&dir);
            assert!(report.is_clean(), "{name}: {report:#?}");
            assert_eq!(report.txg.get() + 1, txg.get());
            let mut again = TestPool::open_with(dir, spa::PoolSpace::load_lazily);
            let told = again.space.allocator().class_usage(Class::Normal);
            assert_eq!(told.allocated, usage.allocated, "{name}: as it was left");
            let histograms = count_histogram_maps(&again.pool);
            assert_eq!(
                again.pool.feature_refcount("com.delphix:spacemap_histogram"),
                histograms,
                "{name}"
            );
            // and on from there, with maps that are read when they are needed
            dirty_mos(&again);
            again.sync();
            assert!(!again.space.allocator().unloaded_metaslabs().is_empty(), "{name}");
            let report = check_pool(&again.close());
            assert!(report.is_clean(), "{name}: {report:#?}");
        }
    }
}

/// How many logs there are, and how often the feature is in use.
fn count_logs(pool: &spa::Pool) -> (usize, u64) {
    let table = pool.directory().object("com.delphix:log_spacemap_zap").unwrap();
    let count = table.map_or(0, |table| zap::Zap::open(table).unwrap().entries().count());
    (count, pool.feature_refcount("com.delphix:log_spacemap"))
}

fn count_histogram_maps(pool: &spa::Pool) -> u64 {
    let objects = pool.mos().objects().map(Result::unwrap).map(|(_, dnode)| dnode);
    let maps = objects.filter(|dnode| dnode.kind == ObjectType::SPACE_MAP);
    maps.filter(|dnode| dnode.bonus.len() == 320).count() as u64
}

#[test]
fn space_map_log_stays_short() {
    let mut written = TestPool::from_fixture("mirror-2", "log");
    assert_eq!(count_logs(&written.pool).1, 1);
    let mut blocks: Vec<Dva> = Vec::new();
    for _ in 0..40 {
        let tx = written.open_tx();
        let allocator = std::sync::Arc::clone(written.space.allocator());
        for dva in blocks.drain(..) {
            allocator.free(&dva, tx.txg()).unwrap();
        }
        let want = AllocRequest::new(1 << 20, tx.txg());
        blocks.extend((0..20).map_while(|_| allocator.allocate(&want).ok()?[0]));
        written.sync();
    }
    let allocator = std::sync::Arc::clone(written.space.allocator());
    for dva in &blocks {
        allocator.free(dva, written.open_tx().txg()).unwrap();
    }
    drop(allocator);
    written.sync();
    let dir = written.close();
    let (count, uses) = count_logs(&open_pool(&dir));
    assert!(count > 1 && count <= 20 && uses == 1, "{count} logs");
    let report = check_pool(&dir);
    assert!(report.is_clean(), "{report:#?}");

    let mut written = TestPool::open(dir);
    written.space.set_logging(false);
    dirty_mos(&written);
    written.sync();
    let dir = written.close();
    assert_eq!(count_logs(&open_pool(&dir)), (0, 0));
    assert!(check_pool(&dir).is_clean());
    let mut written = TestPool::open(dir);
    dirty_mos(&written);
    written.sync();
    let dir = written.close();
    assert_eq!(count_logs(&open_pool(&dir)), (1, 1), "and started again");
    assert!(check_pool(&dir).is_clean());
}

/// Frees the blocks of the round before. Allocates others, of which every second is freed at once, so that
/// ranges do not join.
fn churn_blocks(written: &TestPool, kept: &mut Vec<Dva>, allocates: bool) {
    let tx = written.open_tx();
    let allocator = std::sync::Arc::clone(written.space.allocator());
    for dva in kept.drain(..) {
        allocator.free(&dva, tx.txg()).unwrap();
    }
    if allocates {
        let want = AllocRequest::new(512, tx.txg());
        let blocks: Vec<Dva> =
            (0..4000).map_while(|_| allocator.allocate(&want).ok()?[0]).collect();
        for (index, dva) in blocks.into_iter().enumerate() {
            if index % 2 == 0 {
                kept.push(dva);
            } else {
                allocator.free(&dva, tx.txg()).unwrap();
            }
        }
    }
    dirty_mos(written);
}

#[test]
fn wrong_sum_of_a_map_is_an_error() {
    let mut written = TestPool::from_fixture("mirror-2", "wrong-sum");
    written.space.set_logging(false);
    dirty_mos(&written);
    written.sync();
    let tx = written.open_tx();
    for map in map_lengths(&written).into_keys() {
        let map = written.mos.object(map).unwrap();
        let mut header = map.bonus().to_vec();
        header[16..24].copy_from_slice(&4096_i64.to_le_bytes());
        map.set_bonus(&tx, ObjectType::SPACE_MAP_HEADER, &header).unwrap();
    }
    let mut kept: Vec<Dva> = Vec::new();
    let failed = (0..ROUNDS).find_map(|_| {
        churn_blocks(&written, &mut kept, true);
        written.try_sync().err()
    });
    let is_expected = matches!(failed, Some(spa::Error::SpaceMap { .. }));
    assert!(is_expected, "a map is rewritten, and its sum is wrong: {failed:?}");
}

#[test]
fn overlong_map_is_rewritten() {
    let mut written = TestPool::from_fixture("mirror-2", "condense");
    written.space.set_logging(false);
    dirty_mos(&written);
    written.sync();
    let mut kept: Vec<Dva> = Vec::new();
    let (mut before, mut shrunk) = (map_lengths(&written), 0);
    for round in 0..ROUNDS {
        churn_blocks(&written, &mut kept, round + 2 < ROUNDS);
        written.sync();
        let now = map_lengths(&written);
        shrunk += now.iter().filter(|(map, now)| before.get(map) > Some(*now)).count();
        before = now;
    }
    assert!(shrunk > 0, "{before:?}");
    let report = check_pool(&written.close());
    assert!(report.is_clean(), "{report:#?}");
}

/// Adds ranges, in units of 512 bytes, to the newest log of a pool as if its txg had changed them.
fn append_to_newest_log(pool: &spa::Pool, mos: &Objset, edit: &dyn Fn(Entry) -> Vec<Entry>) {
    let table = pool.directory().object("com.delphix:log_spacemap_zap").unwrap().unwrap();
    let logs = zap::Zap::open(table).unwrap();
    let log = |entry: zap::ZapEntry| {
        let txg = u64::from_str_radix(str::from_utf8(&entry.name).unwrap(), 16).unwrap();
        (txg, entry.value.u64().unwrap())
    };
    let (_, newest) = logs.entries().map(|entry| log(entry.unwrap())).max().unwrap();
    let map = mos.object(ObjectId::new(newest)).unwrap();
    let mut last = Entry::Padding;
    let is_range = |entry: &Entry| matches!(entry, Entry::Range { .. });
    let mut header = spa::space_map_entries(&map, &mut |entry| {
        last = if is_range(&entry) { entry } else { last };
    })
    .unwrap();
    assert!(is_range(&last), "the log has changes");
    let tx = Tx::syncing(pool.txg().next());
    let mut appendix = SpaceMapAppender::new(&header, map.block_size(), true);
    for entry in edit(last) {
        let Entry::Range { action, vdev, offset, length } = entry else { continue };
        let range = std::iter::once(offset..offset + length);
        appendix.push_ranges((action, tx.txg(), 1), vdev, range).unwrap();
    }
    map.write(&tx, header.length, appendix.bytes()).unwrap();
    header.length = appendix.end();
    map.set_bonus(&tx, ObjectType::SPACE_MAP_HEADER, &header.encode()).unwrap();
}

#[test]
fn import_refuses_a_log_that_contradicts_itself() {
    let mut written = TestPool::from_fixture("mirror-2", "contradiction");
    dirty_mos(&written);
    written.sync();
    let pool = open_pool(&written.close());
    let load = |edit: &dyn Fn(Entry) -> Vec<Entry>| {
        let mos = pool.mos().to_writable();
        append_to_newest_log(&pool, &mos, edit);
        spa::PoolSpace::load(&pool, &mos).err()
    };
    assert_eq!(load(&|_| Vec::new()), None, "as it was written");
    let found = load(&|last| vec![last]);
    assert!(matches!(found, Some(spa::Error::SpaceLogContradiction { .. })), "{found:?}");
    let found = load(&|last| {
        let Entry::Range { action, vdev, length, .. } = last else { panic!("{last:?}") };
        vec![Entry::Range { action, vdev, offset: 1 << 40, length }]
    });
    assert!(matches!(found, Some(spa::Error::SpaceLogRange { .. })), "{found:?}");
}

/// Bytes of each space map.
fn map_lengths(written: &TestPool) -> BTreeMap<ObjectId, u64> {
    let objects = written.mos.synced().objects().map(Result::unwrap);
    let maps = objects.filter(|(_, dnode)| dnode.kind == ObjectType::SPACE_MAP);
    let length = |bonus: &[u8]| u64::from_le_bytes(bonus[8..16].try_into().unwrap());
    maps.map(|(map, dnode)| (map, length(&dnode.bonus))).collect()
}

/// The space of a block in its dnode by the format: the allocated sectors of each copy, by the
/// ratio of a block of 128 KiB on that vdev.
fn deflated_size(tree: &vdev::VdevTree, pointer: &Blkptr) -> u64 {
    const DEFLATE_BLOCK_SIZE: u64 = 1 << 17;
    let Blkptr::Regular(block) = pointer else { return 0 };
    let of = |dva: Dva| {
        let typical = tree.asize(dva.vdev, DEFLATE_BLOCK_SIZE, units::Txg::ZERO).unwrap();
        (dva.asize / 512) * (DEFLATE_BLOCK_SIZE / (typical / 512))
    };
    block.copies().map(of).sum()
}

/// The blocks of an object, as its dnode is to count them.
fn deflated_object_size(pool: &spa::Pool, objset: &Objset, id: ObjectId) -> u64 {
    let mut sum = 0;
    objset.object(id).unwrap().walk(&WalkOptions::default(), &mut |zbookmark, found| {
        match found {
            BlockVisit::Pointer(pointer) => sum += deflated_size(pool.tree(), pointer),
            BlockVisit::Error(error) => panic!("{zbookmark}: {error}"),
        }
        WalkControl::Descend
    });
    sum
}

#[test]
fn dnodes_count_their_blocks_as_openzfs_does() {
    let (mut seen, mut with_parity) = (0, 0);
    for name in available_fixtures(&INTACT_POOLS).chain(["checkpoint-raidz"]) {
        let pool = open_pool(&fixtures::load(name).dir);
        let before = (seen, pool.mos().clone());
        for found in before.1.objects() {
            let (id, dnode) = found.unwrap();
            assert_eq!(
                dnode.used_bytes,
                deflated_object_size(&pool, pool.mos(), id),
                "{name}: object {id}"
            );
            seen += usize::from(dnode.used_bytes > 0);
        }
        let has_parity = pool.tree().tops().iter().any(|(_, top)| {
            matches!(top.kind, vdev::NodeKind::Raidz(..) | vdev::NodeKind::Draid(..))
        });
        with_parity += if has_parity { seen - before.0 } else { 0 };
    }
    assert!(with_parity > 20 && seen > 100, "{seen} {with_parity}");
}
