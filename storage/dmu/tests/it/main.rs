//! Object sets in memory: found, read, searched and walked, whole and damaged.

mod pool;

use std::sync::Arc;

use dmu::{BlockSegment, BlockVisit, Error, Objset, SPILL_BLOCK, WalkControl, WalkOptions};
use ondisk::Order;
use pool::{Pool, Spec, hole};
use units::{BlockId, ObjectId, Txg, Zbookmark};

const FILE: u8 = 19;
/// Where the second run of data of `sparse` begins: in bytes.
const FAR_OFFSET: u64 = ((31 * 32 + 5) * 32 + 7) * 512;

/// A file of 4 levels with two data blocks at its start and one far out.
fn sparse_file(pool: &Pool) -> (Spec, Vec<u8>) {
    let data = |fill: u8, birth| pool.pointer(FILE, 0, birth, &[fill; 512]);
    let (first, second, far) = (data(1, 3), data(2, 3), data(3, 4));
    let near = pool.indirect(FILE, 1, 3, &[(0, &first), (1, &second)]);
    let near = pool.indirect(FILE, 2, 3, &[(0, &near)]);
    let low = pool.indirect(FILE, 1, 4, &[(7, &far)]);
    let middle = pool.indirect(FILE, 2, 4, &[(5, &low)]);
    let top = pool.indirect(FILE, 3, 4, &[(0, &near), (31, &middle)]);
    let mut spec = Spec::new(FILE, 512, FAR_OFFSET / 512, vec![top]);
    spec.levels = 4;
    (spec, low)
}

fn open_objset(order: Order) -> (Objset, Vec<u64>, Arc<Pool>, Vec<u8>) {
    let pool = Arc::new(Pool { order, ..Pool::default() });
    let (spec, low) = sparse_file(&pool);
    let mut large = Spec::new(FILE, 1024, 0, vec![pool.pointer(FILE, 0, 3, &[9; 1024])]);
    large.slots = 4;
    large.bonus = vec![0xaa; 300];
    large.spill = Some(pool.pointer(44, 0, 6, &[8; 512]));
    let tiny = Spec::new(FILE, 512, 0, vec![hole()]);
    let (set, numbers) = Arc::clone(&pool).objset(&[spec, large, tiny]);
    (set, numbers, pool, low)
}

#[test]
fn objects_are_found_in_both_byte_orders() {
    for order in [Order::Little, Order::Big] {
        let (set, numbers, ..) = open_objset(order);
        assert_eq!(numbers, [1, 2, 6]);
        let listed: Vec<u64> = set.objects().map(|found| found.unwrap().0.get()).collect();
        assert_eq!(listed, numbers);
        let large = set.object(ObjectId::new(2)).unwrap();
        assert_eq!((large.bonus(), large.dnode().slots), (&[0xaa; 300][..], 4));
        assert_eq!(&large.spill().unwrap().unwrap()[..], [8; 512]);
        // 3 is within object 2, 0 is the array itself, 31 is free, 9999 beyond the end
        for absent in [0, 3, 5, 31, 9999] {
            let error = set.object(ObjectId::new(absent)).unwrap_err();
            assert!(matches!(error, Error::NoSuchObject { .. }), "{absent}: {error}");
        }
        assert_eq!(set.objects_from(ObjectId::new(3)).count(), 1);
    }
}

#[test]
fn holes_read_as_zeros_with_few_reads() {
    let (set, _, pool, _) = open_objset(Order::Little);
    let file = set.object(ObjectId::new(1)).unwrap();
    let mut bytes = [7; 700];
    file.read(500, &mut bytes).unwrap();
    assert_eq!((bytes[..12].to_vec(), bytes[12], bytes[523], bytes[524]), (vec![1; 12], 2, 2, 0));
    file.read(FAR_OFFSET - 1, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[1], bytes[512], bytes[513]), (0, 3, 3, 0));
    assert_eq!(file.next_data(0).unwrap(), Some(0));
    assert_eq!(file.next_hole(600).unwrap(), 1024);
    assert_eq!(file.next_hole_within(100..512).unwrap(), 512);
    assert_eq!(file.next_hole_within(100..513).unwrap(), 1024);
    assert_eq!(file.next_hole_within(100..5000).unwrap(), 1024);
    assert_eq!(file.next_data(1024).unwrap(), Some(FAR_OFFSET));
    assert_eq!(file.next_hole(FAR_OFFSET + 3).unwrap(), FAR_OFFSET + 512);
    assert_eq!(file.next_data(FAR_OFFSET + 512).unwrap(), None);
    assert_eq!(file.next_hole(5000).unwrap(), 5000);
    let reads = pool.reads.load(std::sync::atomic::Ordering::Relaxed);
    assert!(reads < 20, "{reads}");
    let all = BlockId::new(0)..BlockId::new(u64::MAX);
    let pieces: Vec<u64> = file
        .segments(all)
        .map(|piece| match piece.unwrap() {
            BlockSegment::Data { .. } => 1,
            BlockSegment::Hole { count, .. } => count,
        })
        .collect();
    assert_eq!(pieces, [1, 1, FAR_OFFSET / 512 - 2, 1]);
}

fn walk_zbookmarks(set: &Objset, plan: &WalkOptions) -> (Vec<Zbookmark>, Vec<Zbookmark>) {
    let (mut seen, mut trouble) = (Vec::new(), Vec::new());
    let ended = set.walk(plan, &mut |zbookmark, found| {
        match found {
            BlockVisit::Pointer(_) => seen.push(zbookmark),
            BlockVisit::Error(_) => trouble.push(zbookmark),
        }
        WalkControl::Descend
    });
    assert!(ended);
    (seen, trouble)
}

#[test]
fn a_walk_sees_all_and_resumes_anywhere() {
    let (set, ..) = open_objset(Order::Little);
    let (seen, trouble) = walk_zbookmarks(&set, &WalkOptions::default());
    // root, dnodes, 6 indirect and 3 data blocks, data and spill of the large one
    assert_eq!((seen.len(), trouble.len()), (12, 0));
    assert_eq!(seen[11].block, SPILL_BLOCK);
    for (at, from) in seen.iter().enumerate().skip(2) {
        let plan = WalkOptions { start: Some(*from), ..WalkOptions::default() };
        assert_eq!(walk_zbookmarks(&set, &plan).0, seen[at..], "from {from}");
    }
    // blocks older than txg 3 are left out with their children
    let plan = WalkOptions { born_after: Txg::new(3), ..WalkOptions::default() };
    assert_eq!(walk_zbookmarks(&set, &plan).0.len(), 2 + 4 + 1);
}

#[test]
fn lost_block_is_reported_and_the_walk_continues() {
    let (set, _, pool, low) = open_objset(Order::Little);
    pool.lose(&low);
    let (seen, trouble) = walk_zbookmarks(&set, &WalkOptions::default());
    assert_eq!((seen.len(), trouble.len()), (11, 1));
    assert_eq!((trouble[0].level.get(), trouble[0].block.get()), (1, 31 * 32 + 5));
    let file = set.object(ObjectId::new(1)).unwrap();
    assert!(matches!(file.read(FAR_OFFSET, &mut [0; 4]), Err(Error::Read { .. })));
    let pieces: Vec<bool> =
        file.segments(BlockId::new(1)..BlockId::new(u64::MAX)).map(|piece| piece.is_ok()).collect();
    assert_eq!(pieces, [true, true, false]);
}

#[test]
fn a_pointer_of_another_object_is_never_data() {
    let pool = Arc::new(Pool::default());
    let file = |root| Spec::new(FILE, 512, 0, vec![root]);
    let specs = [
        file(pool.pointer(20, 0, 3, &[1; 512])),
        file(pool.pointer(FILE, 1, 3, &[1; 512])),
        file(pool.pointer(FILE, 0, 3, &[1; 1024])),
    ];
    let (set, numbers) = Arc::clone(&pool).objset(&specs);
    for (number, wrong) in numbers.into_iter().zip(["type", "level", "size"]) {
        let object = set.object(ObjectId::new(number)).unwrap();
        let error = object.block(BlockId::new(0)).unwrap_err();
        assert!(matches!(error, Error::Mismatch { field, .. } if field == wrong), "{error}");
    }
}
