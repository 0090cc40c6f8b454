//! Real pools: the model computed from their trees of blocks equals their records, and
//! every record encodes to its bytes again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ::fixtures::Fixture;
use device::{Device, DeviceSlice, File, partitions};
use dmu::{BlockVisit, Objset, WalkControl, WalkOptions};
use dsl::{Dataset, DatasetTree, PoolInfo};
use ondisk::dsl::{Bookmark, Bpobj, Bptree, Dataset as Record, Deadlist, Dir};
use ondisk::{Blkptr, ObjectType, Reader};
use spa::Pool;
use units::{Txg, Zbookmark};
use zio::Source;

use crate::model::{Model, block_number, is_unique_address};

fn open_pool(fixture: &Fixture) -> (Pool, DatasetTree) {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for path in fixture.images() {
        let file: Arc<dyn Device> = Arc::new(File::open(&path).unwrap());
        for part in partitions(&*file) {
            let name = format!("{}-{}", file.name(), part.number);
            devices.push(Arc::new(DeviceSlice::new(
                name,
                Arc::clone(&file),
                part.start,
                part.size,
            )));
        }
        devices.push(file);
    }
    let (found, _) = spa::scan_devices(&devices);
    let candidate = found.iter().find(|pool| pool.name() == fixture.pool_name()).unwrap();
    let pool = candidate.open(&spa::PoolOpenOptions::default()).unwrap();
    let facts = PoolInfo { name: pool.name().to_owned(), usable_space: 0 };
    let tree = DatasetTree::open(pool.mos().clone(), facts).unwrap();
    (pool, tree)
}

/// Bytes of the pool's deflated space.
fn bp_dsize(vdevs: &vdev::VdevTree, pointer: &Blkptr) -> u64 {
    const DEFLATE_BLOCK_SIZE: u64 = 128 << 10;
    let Blkptr::Regular(block) = pointer else { return 0 };
    let one = |dva: ondisk::Dva| {
        let sectors =
            vdevs.asize(dva.vdev, DEFLATE_BLOCK_SIZE, Txg::ZERO).unwrap_or(DEFLATE_BLOCK_SIZE) >> 9;
        (dva.asize >> 9) * (DEFLATE_BLOCK_SIZE / sectors)
    };
    block.copies().map(one).sum()
}

/// A pointer that holds its block has no address, and one that dedup knows has not its own: its
/// number is made of its place and of itself.
fn number_by_zbookmark(zbookmark: Zbookmark, pointer: &Blkptr) -> u64 {
    let mut hasher = DefaultHasher::new();
    (zbookmark.object, zbookmark.level, zbookmark.block).hash(&mut hasher);
    pointer.encode().hash(&mut hasher);
    hasher.finish() | (1 << 63)
}

/// Walks a dataset's tree.
pub(crate) fn add_dataset(model: &mut Model, source: &Arc<dyn Source>, dataset: &Dataset) {
    let (id, record) = (dataset.id().unwrap(), dataset.phys().unwrap());
    let set = model.datasets.entry(id).or_default();
    if record.root.is_hole() {
        return;
    }
    let objset = Objset::open(Arc::clone(source), id, &record.root, None).unwrap();
    let blocks = &mut model.blocks;
    let whole = objset.walk(&WalkOptions::default(), &mut |zbookmark, found| {
        match found {
            BlockVisit::Pointer(pointer @ (Blkptr::Regular(_) | Blkptr::Embedded(_))) => {
                let number = match pointer {
                    _ if is_unique_address(pointer) => block_number(pointer),
                    _ => number_by_zbookmark(zbookmark, pointer),
                };
                set.insert(number);
                blocks.entry(number).or_insert_with(|| pointer.clone());
            }
            BlockVisit::Pointer(_) => {}
            BlockVisit::Error(error) => panic!("{}: {error}", dataset.name()),
        }
        WalkControl::Descend
    });
    assert!(whole);
}

/// Blocks of cloned files have the same address, and nothing in a pointer marks that; a block that
/// was moved off a removed vdev has two, the old one in older snapshots.
const EXCLUDED: [&str; 2] = ["holes-and-clones", "removed-snapshots"];

#[test]
fn records_of_real_pools_equal_their_trees() {
    let names = ::fixtures::names();
    for name in names.iter().filter(|name| !EXCLUDED.contains(&&***name)) {
        let (pool, tree) = open_pool(&::fixtures::load(name));
        let vdevs = Arc::clone(pool.tree());
        let source: Arc<dyn Source> = Arc::new(pool.reader().with_raw_dnodes());
        let mut model = Model::new(Box::new(move |pointer| bp_dsize(&vdevs, pointer)));
        for dir in tree.dirs().filter(|dir| dir.phys().head.exists()) {
            let head = tree.dataset(units::ObjsetId::new(dir.phys().head.get())).unwrap();
            add_dataset(&mut model, &source, &head);
            for snapshot in head.snapshots().unwrap() {
                add_dataset(&mut model, &source, &snapshot);
            }
        }
        eprintln!("{name}: {} blocks", model.blocks.len());
        model.check(&tree);
    }
}

/// Encodes the records of a pool again; returns their number.
fn check_records(mos: &Objset) -> usize {
    let mut count = 0;
    for found in mos.objects() {
        let (id, dnode) = found.unwrap();
        let (bonus, order) = (&*dnode.bonus, dnode.order);
        let again = match dnode.bonus_kind {
            ObjectType::DSL_DIR => Dir::parse(bonus, order).unwrap().encode(),
            ObjectType::DSL_DATASET => Record::parse(bonus, order).unwrap().encode(),
            ObjectType::DEADLIST_HEADER => Deadlist::parse(bonus, order).unwrap().encode(),
            ObjectType::BPOBJ_HEADER => Bpobj::parse(bonus, order).unwrap().encode(bonus.len()),
            // of this kind are trees to be freed and redaction lists: the latter have any words
            ObjectType(0xc3) if bonus.len() == Bptree::SIZE => {
                Bptree::read(&mut Reader::new("words", bonus, order)).unwrap().encode()
            }
            _ => continue,
        };
        assert_eq!(again, bonus, "object {id}");
        count += 1;
    }
    count
}

#[test]
fn golden_records_find_back_to_their_bytes() {
    for name in ::fixtures::names() {
        let (pool, tree) = open_pool(&::fixtures::load(&name));
        assert!(check_records(pool.mos()) > 10, "{name}");
        for head in tree.heads() {
            let head = head.unwrap();
            let table = head.zap_field(Record::BOOKMARKS).unwrap().and_then(|it| it.u64());
            let Some(table) = table else { continue };
            let object = pool.mos().object(units::ObjectId::new(table)).unwrap();
            for entry in zap::Zap::open(object).unwrap().entries() {
                let words = entry.unwrap().value.u64s();
                assert_eq!(Bookmark::from_words(&words).unwrap().to_words(), words, "{name}");
            }
        }
    }
}
