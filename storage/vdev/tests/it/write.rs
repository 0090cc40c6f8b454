//! What is written is read back, whatever drives fail then, or failed already.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::{Device, Error as IoError, Memory};
use geometry::Block;
use proptest::prelude::*;
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{Error, Kind, Leaf, Node, Outgoing, Part, Tree, Trouble};

use crate::array::{BIRTH, DRIVE, Shape, noise, read, request, tree_of, write};

const TOP: VdevId = VdevId::new(0);

/// A drive that counts requests and fails when told to.
#[derive(Debug)]
struct Drive {
    memory: Memory,
    broken: AtomicBool,
    cache_broken: AtomicBool,
    requests: AtomicUsize,
    reads: AtomicUsize,
}

impl Drive {
    fn blank() -> Arc<Self> {
        Self::of(Memory::blank("d", 36 << 20))
    }

    fn of(memory: Memory) -> Arc<Self> {
        let (broken, cache_broken) = (AtomicBool::new(false), AtomicBool::new(false));
        let (requests, reads) = Default::default();
        Arc::new(Self { memory, broken, cache_broken, requests, reads })
    }

    fn fail(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}

impl Device for Drive {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn name(&self) -> &str {
        self.memory.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.read_parts_at(offset, &mut [into])
    }

    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<(), IoError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.memory.read_parts_at(offset, parts)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        self.write_parts_at(offset, &[from])
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), IoError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.broken.load(Ordering::Relaxed) {
            return Err(IoError::ReadOnly { device: String::new() });
        }
        self.memory.write_at(offset, &parts.concat())
    }

    fn waits(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<(), IoError> {
        if self.cache_broken.load(Ordering::Relaxed) {
            return Err(IoError::Flush { device: String::new(), reason: String::new() });
        }
        Ok(())
    }
}

fn leaf(index: usize, drive: Option<&Arc<Drive>>) -> Node {
    let guid = Guid::new(index as u64 + 1);
    let device = drive.map(|drive| Arc::clone(drive) as Arc<dyn Device>);
    let leaf = Leaf::new(guid, format!("d{index}"), device, Txg::new(u64::MAX));
    Node { guid, kind: Kind::Leaf(leaf.with_ashift(Ashift::new(12).unwrap()).into()) }
}

fn array(shape: &Shape, drives: &[Arc<Drive>], missing: &[usize]) -> Tree {
    let child = |(index, drive)| leaf(index, (!missing.contains(&index)).then_some(drive));
    tree_of(shape, drives.iter().enumerate().map(child).collect())
}

fn blanks(count: usize) -> Vec<Arc<Drive>> {
    (0..count).map(|_| Drive::blank()).collect()
}

/// Places for blocks of these sizes one behind the other, from near the swap bit of raidz1 on, or
/// from near the end of a dRAID's group on.
pub(crate) fn places(tree: &Tree, shape: &Shape, sizes: &[usize]) -> Vec<Block> {
    let mut offset = match shape {
        Shape::Raidz(raidz) => (1 << 20) - (4 << raidz.now().ashift().get()),
        Shape::Draid(draid) => draid.group_size() - 2 * draid.row_size(),
    };
    let place = |size: &usize| {
        let block = Block { offset, size: *size };
        offset += tree.asize(TOP, *size as u64, BIRTH).unwrap();
        block
    };
    sizes.iter().map(place).collect()
}

fn outgoing<'a>(blocks: &[Block], contents: &'a [Vec<u8>]) -> Vec<Outgoing<'a>> {
    let one = |(block, data): (&Block, &'a Vec<u8>)| Outgoing {
        vdev: TOP,
        offset: block.offset,
        birth: BIRTH,
        data,
    };
    blocks.iter().zip(contents).map(one).collect()
}

/// An examination finds nothing, also not in the padding and the parity.
pub(crate) fn examine(tree: &Tree, block: Block, data: &[u8]) {
    let judge = |bytes: &[u8]| bytes == data;
    let (mut into, mut faults) = (Vec::new(), Vec::new());
    tree.examine(TOP, &request(block, &judge), &mut into, &mut faults).unwrap();
    assert_eq!((&into[..], faults), (data, vec![]));
}

pub(crate) fn shapes() -> impl Strategy<Value = (Shape, usize)> {
    let raidz = (1_u32..=3, 1_u32..=5, 9_u64..=14).prop_map(|(parity, data, ashift)| {
        (Shape::raidz_of(parity + data, parity, ashift), parity as usize)
    });
    let wide = (1_u32..=3, 1_u32..=4, 0_u32..=2, 0_u32..=2, prop::sample::select(vec![9_u64, 12]));
    let draid = wide.prop_map(|(parity, data, spares, more, ashift)| {
        let children = (parity + data + spares + more).max(2);
        (Shape::draid_of((children, data, parity, spares), ashift), parity as usize)
    });
    prop_oneof![3 => raidz, 1 => draid]
}

pub(crate) fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![4 => 1_usize..40, 1 => 40_usize..300].prop_map(|sectors| sectors * 512);
    prop::collection::vec(size, 1..8)
}

/// Which of the blocks can be read together; what those hold is right.
fn read_run(tree: &Tree, blocks: &[Block], contents: &[Vec<u8>]) -> Vec<bool> {
    let judges: Vec<_> =
        contents.iter().map(|data| move |bytes: &[u8]| bytes == data.as_slice()).collect();
    let mut memory: Vec<Vec<u8>> = contents.iter().map(|data| vec![0xee; data.len()]).collect();
    let mut parts: Vec<Part<'_>> = (blocks.iter().zip(&judges).zip(&mut memory))
        .map(|((block, judge), into)| Part {
            vdev: TOP,
            request: request(*block, judge),
            into,
            done: false,
        })
        .collect();
    tree.read_run(&mut parts);
    let done: Vec<bool> = parts.iter().map(|part| part.done).collect();
    for ((done, memory), data) in done.iter().zip(&memory).zip(contents) {
        assert!(!done || memory == data);
    }
    done
}

#[test]
fn a_run_of_blocks_takes_a_request_of_each_drive_and_leaves_what_is_wrong() {
    let shape = Shape::raidz(6, 2);
    let drives = blanks(6);
    let tree = array(&shape, &drives, &[]);
    let blocks = places(&tree, &shape, &[16 * 4096; 8]);
    let contents: Vec<Vec<u8>> = (0..8).map(|seed| noise(16 * 4096, seed)).collect();
    tree.write_many(&outgoing(&blocks, &contents), &mut Vec::new());
    assert_eq!(read_run(&tree, &blocks, &contents), [true; 8]);
    let asked: usize = drives.iter().map(|drive| drive.reads.load(Ordering::Relaxed)).sum();
    assert_eq!(asked, 4, "nobody asks for parity");
    // a drive that lies where the third block is
    let third = shape.map(blocks[2]);
    let column = third.rows().next().unwrap().data()[1];
    drives[column.child].memory.write_at(column.device_offset(), &[0x77; 512]).unwrap();
    let right: Vec<bool> = (0..8).map(|index| index != 2).collect();
    assert_eq!(read_run(&tree, &blocks, &contents), right);
    // known to lie, it is asked block by block
    read(&tree, 0, blocks[2], &contents[2], &mut Vec::new()).unwrap();
    assert_eq!(read_run(&tree, &blocks, &contents), [false; 8]);
    let poor = array(&shape, &drives, &[column.child]);
    assert_eq!(read_run(&poor, &blocks, &contents), [false; 8]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 5 / 8))]

    #[test]
    fn what_is_written_is_read_back_with_any_drives_missing(
        (shape, parity) in shapes(),
        sizes in sizes(),
        together in any::<bool>(),
        seed in any::<u64>(),
        order in any::<prop::sample::Index>(),
    ) {
        let drives = blanks(shape.children());
        let tree = array(&shape, &drives, &[]);
        let blocks = places(&tree, &shape, &sizes);
        let contents: Vec<Vec<u8>> =
            (0..).zip(&sizes).map(|(i, size)| noise(*size, seed.wrapping_add(i))).collect();
        let mut faults = Vec::new();
        let mut out = outgoing(&blocks, &contents);
        if together {
            out.rotate_left(order.index(sizes.len()));
            prop_assert!(tree.write_many(&out, &mut faults).into_iter().all(|r| r.is_ok()));
        } else {
            for one in out {
                tree.write(TOP, one.offset, one.data, BIRTH, &mut faults).unwrap();
            }
        }
        prop_assert_eq!(&faults, &[]);
        let is_whole = |block: &Block| shape.map(*block).size() == block.size;
        let run = read_run(&tree, &blocks, &contents);
        prop_assert_eq!(run, blocks.iter().map(is_whole).collect::<Vec<_>>());
        for (block, data) in blocks.iter().zip(&contents) {
            examine(&tree, *block, data);
        }
        let first = order.index(shape.children());
        let missing: Vec<usize> =
            (0..parity).map(|i| (first + i * 2) % shape.children()).collect();
        let poor = array(&shape, &drives, &missing);
        read_run(&poor, &blocks, &contents);
        for (block, data) in blocks.iter().zip(&contents) {
            prop_assert_eq!(&read(&poor, 0, *block, data, &mut Vec::new()).unwrap(), data);
        }
    }

    #[test]
    fn drives_that_failed_while_it_was_written_are_not_needed(
        (shape, parity) in shapes(),
        sizes in sizes(),
        first in any::<prop::sample::Index>(),
        gone in any::<bool>(),
    ) {
        let drives = blanks(shape.children());
        let first = first.index(shape.children());
        let mut bad: Vec<usize> = (0..parity).map(|i| (first + i) % shape.children()).collect();
        bad.sort_unstable();
        for index in &bad {
            drives[*index].fail();
        }
        let tree = array(&shape, &drives, if gone { &bad } else { &[] });
        let blocks = places(&tree, &shape, &sizes);
        let contents: Vec<Vec<u8>> = sizes.iter().map(|size| noise(*size, 3)).collect();
        let mut faults = Vec::new();
        let results = tree.write_many(&outgoing(&blocks, &contents), &mut faults);
        prop_assert!(results.into_iter().all(|result| result.is_ok()));
        let trouble = if gone { Trouble::Missing } else { Trouble::Unwritten };
        for fault in &faults {
            let index = usize::try_from(fault.leaf.get()).unwrap() - 1;
            prop_assert!(fault.trouble == trouble && bad.contains(&index));
            prop_assert!(tree.leaf(fault.leaf).unwrap().away().contains(BIRTH));
        }
        for (block, data) in blocks.iter().zip(&contents) {
            prop_assert_eq!(&read(&tree, 0, *block, data, &mut Vec::new()).unwrap(), data);
        }
    }
}

#[test]
fn the_drives_hold_what_the_map_says_and_nothing_else() {
    let shapes = [
        Shape::raidz(5, 1),
        Shape::raidz(5, 2),
        Shape::raidz(7, 3),
        Shape::widened(5, 1),
        Shape::draid(7, 3, 2, 1),
    ];
    for shape in shapes {
        for size in [512, 1536, 5120, 8192, 9728] {
            let offset = match &shape {
                Shape::Raidz(_) => 3 << 10,
                Shape::Draid(draid) => 3 * draid.row_size(),
            };
            let block = Block { offset, size };
            let data = noise(size, 77);
            let expected = write(vec![vec![0; DRIVE]; shape.children()], &shape.map(block), &data);
            let drives: Vec<_> =
                expected.iter().map(|_| Drive::of(Memory::blank("d", 36 << 20))).collect();
            let tree = array(&shape, &drives, &[]);
            tree.write(TOP, block.offset, &data, BIRTH, &mut Vec::new()).unwrap();
            for (drive, right) in drives.iter().zip(&expected) {
                assert!(drive.memory.bytes()[..DRIVE] == right[..], "{size} bytes");
            }
        }
    }
}

#[test]
fn one_failed_drive_more_than_parity_is_an_error_for_the_blocks_it_hits() {
    let shape = Shape::raidz(6, 2);
    let drives = blanks(6);
    let tree = array(&shape, &drives, &[]);
    let (data, small) = (noise(6 * 4096, 1), noise(512, 2));
    for drive in &drives[3..] {
        drive.fail();
    }
    let block = |offset, data| Outgoing { vdev: TOP, offset, birth: BIRTH, data };
    let mut faults = Vec::new();
    let results = tree.write_many(&[block(0, &data), block(1 << 20, &small)], &mut faults);
    assert_eq!(results[0], Err(Error::Unavailable { missing: 3, spare: 2 }));
    // three sectors, of which no more than two lie on drives that failed
    assert_eq!(results[1], Ok(()));
    assert_eq!(faults.len(), 3);
    assert_eq!(
        tree.write(VdevId::new(7), 0, &data, BIRTH, &mut faults),
        Err(Error::NoVdev(VdevId::new(7)))
    );
    assert!(matches!(tree.write(TOP, 7, &data, BIRTH, &mut faults), Err(Error::Address(_))));
}

#[test]
fn neighbours_go_out_in_one_request_for_each_drive() {
    for shape in [Shape::raidz(5, 1), Shape::raidz(6, 2), Shape::draid(7, 3, 2, 1)] {
        let drives = blanks(shape.children());
        let tree = array(&shape, &drives, &[]);
        let sizes = [512, 4096, 10_240, 512, 512, 131_072];
        let contents: Vec<Vec<u8>> = sizes.iter().map(|size| noise(*size, 4)).collect();
        let mut blocks = places(&tree, &shape, &sizes);
        for block in &mut blocks {
            // not across the place where parity changes drives, or a group's end
            if let Shape::Draid(draid) = &shape {
                block.offset -= draid.group_size() - 2 * draid.row_size();
            } else {
                block.offset -= (1 << 20) - (4 << 9);
            }
        }
        let results = tree.write_many(&outgoing(&blocks, &contents), &mut Vec::new());
        assert!(results.iter().all(Result::is_ok));
        for (drive, index) in drives.iter().zip(0..) {
            assert!(drive.requests.load(Ordering::Relaxed) <= 1, "drive {index}");
        }
    }
}

fn sides(kind: impl Fn(Vec<Node>) -> Kind, children: Vec<Node>) -> Tree {
    Tree::new(vec![Node { guid: Guid::new(1000), kind: kind(children) }])
}

#[test]
fn a_mirror_lives_on_one_side_and_the_last_sector_is_whole() {
    let drives = blanks(3);
    let children = (0..3).map(|index| leaf(index, Some(&drives[index]))).collect();
    let tree = sides(Kind::Mirror, children);
    for drive in &drives {
        drive.memory.write_at((4 << 20) + 8192, &[9; 8192]).unwrap();
    }
    let data = noise(4096 + 512, 6);
    tree.write(TOP, 8192, &data, BIRTH, &mut Vec::new()).unwrap();
    let block = Block { offset: 8192, size: data.len() };
    examine(&tree, block, &data);
    let mut behind = [1; 3584];
    drives[1].read_at((4 << 20) + 8192 + 4608, &mut behind).unwrap();
    assert!(behind.iter().all(|byte| *byte == 0));
    drives[0].fail();
    drives[2].fail();
    let mut faults = Vec::new();
    let again = noise(4096, 7);
    let later = Txg::new(BIRTH.get() + 5);
    assert_eq!(tree.write(TOP, 0, &again, later, &mut faults), Ok(()));
    let named: Vec<u64> = faults.iter().map(|fault| fault.leaf.get()).collect();
    assert_eq!(named, [1, 3]);
    assert!(tree.leaf(Guid::new(1)).unwrap().away().contains(later));
    assert!(!tree.leaf(Guid::new(2)).unwrap().away().contains(later));
    drives[1].fail();
    let result = tree.write(TOP, 0, &again, later, &mut faults);
    assert_eq!(result, Err(Error::Unavailable { missing: 3, spare: 2 }));
}

#[test]
fn who_replaces_and_who_stands_in_get_everything_too() {
    let drives = blanks(5);
    let pair =
        |kind: fn(Vec<Node>) -> Kind, children| Node { guid: Guid::new(50), kind: kind(children) };
    let each = |index: usize| leaf(index, Some(&drives[index]));
    let children = vec![
        pair(Kind::Replacing, vec![each(0), each(1)]),
        pair(Kind::Spare, vec![leaf(7, None), each(2)]),
        each(3),
        each(4),
    ];
    let shape = Shape::raidz(4, 1);
    let tree = tree_of(&shape, children);
    let data = noise(20 << 10, 12);
    let mut faults = Vec::new();
    tree.write(TOP, 0, &data, BIRTH, &mut faults).unwrap();
    assert_eq!(faults.iter().map(|fault| fault.leaf.get()).collect::<Vec<_>>(), [8]);
    // what came in their place is enough, with one drive lost on top of it
    let after = tree_of(&shape, vec![each(1), each(2), leaf(3, None), each(4)]);
    let block = Block { offset: 0, size: data.len() };
    assert_eq!(read(&after, 0, block, &data, &mut Vec::new()).unwrap(), data);
}

#[test]
fn distributed_spares_get_what_their_drives_would() {
    let shape = Shape::draid(7, 2, 1, 2);
    let drives = blanks(7);
    let spare = |index: usize, number: u32| Node {
        guid: Guid::new(100 + index as u64),
        kind: Kind::Spare(vec![
            leaf(index, None),
            Node { guid: Guid::new(200), kind: Kind::DistributedSpare(number) },
        ]),
    };
    let children = |lost: Option<usize>| {
        let child = |index: usize| match index {
            2 => spare(2, 0),
            5 => spare(5, 1),
            _ => leaf(index, (lost != Some(index)).then_some(&drives[index])),
        };
        (0..7).map(child).collect()
    };
    let tree = tree_of(&shape, children(None));
    let mut offset = 0;
    let data = noise(64 << 10, 13);
    let mut blocks = Vec::new();
    while offset < 200 << 20 && blocks.len() < 40 {
        let block = Block { offset, size: data.len() };
        tree.write(TOP, offset, &data, BIRTH, &mut Vec::new()).unwrap();
        blocks.push(block);
        // the space of each drive is small here: only the first row of groups has room
        offset += tree.asize(TOP, data.len() as u64, BIRTH).unwrap() * 13;
    }
    for lost in [None, Some(0), Some(1), Some(3), Some(6)] {
        let tree = tree_of(&shape, children(lost));
        for block in &blocks {
            assert_eq!(read(&tree, 0, *block, &data, &mut Vec::new()).unwrap(), data);
        }
    }
}

#[test]
fn a_flush_that_fails_is_a_txg_that_was_missed() {
    let drives = blanks(5);
    let shape = Shape::raidz(5, 1);
    let tree = array(&shape, &drives, &[]);
    let data = noise(64 << 10, 14);
    let (first, last) = (Txg::new(20), Txg::new(22));
    for birth in [first, last] {
        tree.write(TOP, 0, &data, birth, &mut Vec::new()).unwrap();
    }
    drives[3].cache_broken.store(true, Ordering::Relaxed);
    let mut faults = Vec::new();
    assert_eq!(tree.flush(&mut faults), Ok(()));
    assert_eq!((faults.len(), faults[0].leaf.get()), (1, 4));
    let away = tree.leaf(Guid::new(4)).unwrap().away();
    assert_eq!(away.iter().collect::<Vec<_>>(), [(first, last)]);
    // nothing was written since
    faults.clear();
    assert_eq!((tree.flush(&mut faults), faults.len()), (Ok(()), 0));
    let later = Txg::new(23);
    let all = |_: &Node| true;
    assert_eq!(tree.may_lack(first..=later, &all), Ok(()));
    drives[1].cache_broken.store(true, Ordering::Relaxed);
    tree.write(TOP, 0, &data, last, &mut Vec::new()).unwrap();
    let lost = Err(Error::Unavailable { missing: 2, spare: 1 });
    assert_eq!(tree.flush(&mut faults), lost);
    // the next one has nothing to do, and what was lost stays so
    assert_eq!(tree.flush(&mut faults), Ok(()));
    assert_eq!(tree.may_lack(last..=later, &all), lost);
    assert_eq!(tree.may_lack(last..=last, &|top| top.guid != Guid::new(1000)), Ok(()));
    assert_eq!(tree.may_lack(first..=first, &all), Ok(()), "one drive can be done without");
    assert_eq!(tree.may_lack(later..=later, &all), Ok(()));
}

#[test]
fn who_never_took_a_block_is_no_help_where_another_fails_to_keep_it() {
    let drives = blanks(2);
    let children = (0..2).map(|index| leaf(index, Some(&drives[index]))).collect();
    let tree = sides(Kind::Mirror, children);
    let data = noise(8192, 16);
    let (taken, other) = (Txg::new(20), Txg::new(21));
    drives[0].broken.store(true, Ordering::Relaxed);
    tree.write(TOP, 0, &data, taken, &mut Vec::new()).unwrap();
    drives[0].broken.store(false, Ordering::Relaxed);
    drives[1].cache_broken.store(true, Ordering::Relaxed);
    let _ = tree.flush(&mut Vec::new());
    let all = |_: &Node| true;
    let lost = Err(Error::Unavailable { missing: 2, spare: 1 });
    assert_eq!(tree.may_lack(taken..=taken, &all), lost);
    // what both took is on the one that kept it
    tree.write(TOP, 8192, &data, other, &mut Vec::new()).unwrap();
    let _ = tree.flush(&mut Vec::new());
    assert_eq!(tree.may_lack(other..=other, &all), Ok(()));
}

#[test]
fn labels_are_never_overwritten_by_blocks() {
    let drives = blanks(2);
    let children = (0..2).map(|index| leaf(index, Some(&drives[index]))).collect();
    let tree = sides(Kind::Mirror, children);
    let data = noise(8192, 15);
    let end = (36 << 20) - (512 << 10) - (4 << 20);
    assert_eq!(tree.write(TOP, end - 8192, &data, BIRTH, &mut Vec::new()), Ok(()));
    assert!(tree.write(TOP, end - 4096, &data, BIRTH, &mut Vec::new()).is_err());
    let mut label = [1; 4096];
    drives[0].read_at((36 << 20) - (512 << 10), &mut label).unwrap();
    assert!(label.iter().all(|byte| *byte == 0));
}

#[test]
fn a_leaf_that_comes_back_has_missed_what_its_labels_do_not_know() {
    let leaf = Leaf::new(Guid::new(1), String::new(), None, Txg::new(30));
    leaf.rejoin(Txg::new(40));
    assert_eq!(leaf.away().iter().collect::<Vec<_>>(), [(Txg::new(31), Txg::new(40))]);
    leaf.rejoin(Txg::new(50));
    assert!(!leaf.away().contains(Txg::new(41)));
}
