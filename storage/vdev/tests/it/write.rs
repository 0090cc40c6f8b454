//! Written data is read back, whatever drives fail then, or failed already.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::{Device, Error as IoError, MemoryDevice};
use geometry::Block;
use proptest::prelude::*;
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{BlockWrite, DeviceError, Error, Leaf, NodeKind, RunBlock, VdevNode, VdevTree};

use crate::array::{
    BIRTH, DRIVE_SIZE, TestArray, noise, read_block, read_request, tree_with_children, write_block,
};

const TOP: VdevId = VdevId::new(0);

/// A drive that counts requests and fails on command.
#[derive(Debug)]
struct FaultyDrive {
    memory: MemoryDevice,
    fails_writes: AtomicBool,
    fails_flush: AtomicBool,
    write_requests: AtomicUsize,
    read_requests: AtomicUsize,
}

impl FaultyDrive {
    fn blank() -> Arc<Self> {
        Self::with_memory(MemoryDevice::zeroed("d", 36 << 20))
    }

    fn with_memory(memory: MemoryDevice) -> Arc<Self> {
        let (broken, cache_broken) = (AtomicBool::new(false), AtomicBool::new(false));
        let (requests, reads) = Default::default();
        Arc::new(Self {
            memory,
            fails_writes: broken,
            fails_flush: cache_broken,
            write_requests: requests,
            read_requests: reads,
        })
    }

    fn fail_writes(&self) {
        self.fails_writes.store(true, Ordering::Relaxed);
    }
}

impl Device for FaultyDrive {
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
        self.read_requests.fetch_add(1, Ordering::Relaxed);
        self.memory.read_parts_at(offset, parts)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        self.write_parts_at(offset, &[from])
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), IoError> {
        self.write_requests.fetch_add(1, Ordering::Relaxed);
        if self.fails_writes.load(Ordering::Relaxed) {
            return Err(IoError::ReadOnly { device: String::new() });
        }
        self.memory.write_at(offset, &parts.concat())
    }

    fn may_block(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<(), IoError> {
        if self.fails_flush.load(Ordering::Relaxed) {
            return Err(IoError::Flush { device: String::new(), reason: String::new() });
        }
        Ok(())
    }
}

fn leaf_node(index: usize, drive: Option<&Arc<FaultyDrive>>) -> VdevNode {
    let guid = Guid::new(index as u64 + 1);
    let device = drive.map(|drive| Arc::clone(drive) as Arc<dyn Device>);
    let leaf = Leaf::new(guid, format!("d{index}"), device, Txg::new(u64::MAX));
    VdevNode { guid, kind: NodeKind::Leaf(leaf.with_ashift(Ashift::new(12).unwrap()).into()) }
}

fn array_tree(shape: &TestArray, drives: &[Arc<FaultyDrive>], missing: &[usize]) -> VdevTree {
    let child = |(index, drive)| leaf_node(index, (!missing.contains(&index)).then_some(drive));
    tree_with_children(shape, drives.iter().enumerate().map(child).collect())
}

fn blank_drives(count: usize) -> Vec<Arc<FaultyDrive>> {
    (0..count).map(|_| FaultyDrive::blank()).collect()
}

/// Places for blocks of these sizes one behind the other, from near the swap bit of raidz1 on, or
/// from near the end of a dRAID's group on.
pub(crate) fn lay_out_blocks(tree: &VdevTree, shape: &TestArray, sizes: &[usize]) -> Vec<Block> {
    let mut offset = match shape {
        TestArray::Raidz(raidz) => (1 << 20) - (4 << raidz.current().ashift().get()),
        TestArray::Draid(draid) => draid.group_size() - 2 * draid.row_size(),
    };
    let place = |size: &usize| {
        let block = Block { offset, size: *size };
        offset += tree.asize(TOP, *size as u64, BIRTH).unwrap();
        block
    };
    sizes.iter().map(place).collect()
}

fn block_writes<'a>(blocks: &[Block], contents: &'a [Vec<u8>]) -> Vec<BlockWrite<'a>> {
    let one = |(block, data): (&Block, &'a Vec<u8>)| BlockWrite {
        vdev: TOP,
        offset: block.offset,
        birth: BIRTH,
        data,
    };
    blocks.iter().zip(contents).map(one).collect()
}

/// An examination finds nothing, also not in the padding and the parity.
pub(crate) fn verify_block(tree: &VdevTree, block: Block, data: &[u8]) {
    let judge = |bytes: &[u8]| bytes == data;
    let (mut into, mut faults) = (Vec::new(), Vec::new());
    tree.verify_block(TOP, &read_request(block, &judge), &mut into, &mut faults).unwrap();
    assert_eq!((&into[..], faults), (data, vec![]));
}

pub(crate) fn arrays() -> impl Strategy<Value = (TestArray, usize)> {
    let raidz = (1_u32..=3, 1_u32..=5, 9_u64..=14).prop_map(|(parity, data, ashift)| {
        (TestArray::raidz_with_ashift(parity + data, parity, ashift), parity as usize)
    });
    let wide = (1_u32..=3, 1_u32..=4, 0_u32..=2, 0_u32..=2, prop::sample::select(vec![9_u64, 12]));
    let draid = wide.prop_map(|(parity, data, spares, more, ashift)| {
        let children = (parity + data + spares + more).max(2);
        (TestArray::draid_with_ashift((children, data, parity, spares), ashift), parity as usize)
    });
    prop_oneof![3 => raidz, 1 => draid]
}

pub(crate) fn block_sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![4 => 1_usize..40, 1 => 40_usize..300].prop_map(|sectors| sectors * 512);
    prop::collection::vec(size, 1..8)
}

/// Which of the blocks can be read together; what those hold is right.
fn read_together(tree: &VdevTree, blocks: &[Block], contents: &[Vec<u8>]) -> Vec<bool> {
    let judges: Vec<_> =
        contents.iter().map(|data| move |bytes: &[u8]| bytes == data.as_slice()).collect();
    let mut memory: Vec<Vec<u8>> = contents.iter().map(|data| vec![0xee; data.len()]).collect();
    let mut parts: Vec<RunBlock<'_>> = (blocks.iter().zip(&judges).zip(&mut memory))
        .map(|((block, judge), into)| RunBlock {
            vdev: TOP,
            request: read_request(*block, judge),
            into,
            is_done: false,
        })
        .collect();
    tree.read_blocks(&mut parts);
    let done: Vec<bool> = parts.iter().map(|part| part.is_done).collect();
    for ((done, memory), data) in done.iter().zip(&memory).zip(contents) {
        assert!(!done || memory == data);
    }
    done
}

#[test]
fn run_of_blocks_needs_one_request_per_drive() {
    let shape = TestArray::raidz(6, 2);
    let drives = blank_drives(6);
    let tree = array_tree(&shape, &drives, &[]);
    let blocks = lay_out_blocks(&tree, &shape, &[16 * 4096; 8]);
    let contents: Vec<Vec<u8>> = (0..8).map(|seed| noise(16 * 4096, seed)).collect();
    tree.write_many(&block_writes(&blocks, &contents), &mut Vec::new());
    assert_eq!(read_together(&tree, &blocks, &contents), [true; 8]);
    let asked: usize = drives.iter().map(|drive| drive.read_requests.load(Ordering::Relaxed)).sum();
    assert_eq!(asked, 4, "parity is not read");
    // a drive that lies where the third block is
    let third = shape.column_map(blocks[2]);
    let column = third.rows().next().unwrap().data()[1];
    drives[column.child].memory.write_at(column.device_offset(), &[0x77; 512]).unwrap();
    let right: Vec<bool> = (0..8).map(|index| index != 2).collect();
    assert_eq!(read_together(&tree, &blocks, &contents), right);
    // a drive known to be wrong is read block by block
    read_block(&tree, 0, blocks[2], &contents[2], &mut Vec::new()).unwrap();
    assert_eq!(read_together(&tree, &blocks, &contents), [false; 8]);
    let poor = array_tree(&shape, &drives, &[column.child]);
    assert_eq!(read_together(&poor, &blocks, &contents), [false; 8]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 5 / 8))]

    #[test]
    fn writes_are_read_back_with_missing_drives(
        (shape, parity) in arrays(),
        sizes in block_sizes(),
        together in any::<bool>(),
        seed in any::<u64>(),
        order in any::<prop::sample::Index>(),
    ) {
        let drives = blank_drives(shape.child_count());
        let tree = array_tree(&shape, &drives, &[]);
        let blocks = lay_out_blocks(&tree, &shape, &sizes);
        let contents: Vec<Vec<u8>> =
            (0..).zip(&sizes).map(|(i, size)| noise(*size, seed.wrapping_add(i))).collect();
        let mut faults = Vec::new();
        let mut out = block_writes(&blocks, &contents);
        if together {
            out.rotate_left(order.index(sizes.len()));
            prop_assert!(tree.write_many(&out, &mut faults).into_iter().all(|r| r.is_ok()));
        } else {
            for one in out {
                tree.write(TOP, one.offset, one.data, BIRTH, &mut faults).unwrap();
            }
        }
        prop_assert_eq!(&faults, &[]);
        let is_whole = |block: &Block| shape.column_map(*block).size() == block.size;
        let run = read_together(&tree, &blocks, &contents);
        prop_assert_eq!(run, blocks.iter().map(is_whole).collect::<Vec<_>>());
        for (block, data) in blocks.iter().zip(&contents) {
            verify_block(&tree, *block, data);
        }
        let first = order.index(shape.child_count());
        let missing: Vec<usize> =
            (0..parity).map(|i| (first + i * 2) % shape.child_count()).collect();
        let poor = array_tree(&shape, &drives, &missing);
        read_together(&poor, &blocks, &contents);
        for (block, data) in blocks.iter().zip(&contents) {
            prop_assert_eq!(&read_block(&poor, 0, *block, data, &mut Vec::new()).unwrap(), data);
        }
    }

    #[test]
    fn drives_that_failed_the_write_are_not_needed(
        (shape, parity) in arrays(),
        sizes in block_sizes(),
        first in any::<prop::sample::Index>(),
        gone in any::<bool>(),
    ) {
        let drives = blank_drives(shape.child_count());
        let first = first.index(shape.child_count());
        let mut bad: Vec<usize> = (0..parity).map(|i| (first + i) % shape.child_count()).collect();
        bad.sort_unstable();
        for index in &bad {
            drives[*index].fail_writes();
        }
        let tree = array_tree(&shape, &drives, if gone { &bad } else { &[] });
        let blocks = lay_out_blocks(&tree, &shape, &sizes);
        let contents: Vec<Vec<u8>> = sizes.iter().map(|size| noise(*size, 3)).collect();
        let mut faults = Vec::new();
        let results = tree.write_many(&block_writes(&blocks, &contents), &mut faults);
        prop_assert!(results.into_iter().all(|result| result.is_ok()));
        let trouble = if gone { DeviceError::Missing } else { DeviceError::WriteFailed };
        for fault in &faults {
            let index = usize::try_from(fault.leaf.get()).unwrap() - 1;
            prop_assert!(fault.error == trouble && bad.contains(&index));
            prop_assert!(tree.leaf(fault.leaf).unwrap().dtl().contains(BIRTH));
        }
        for (block, data) in blocks.iter().zip(&contents) {
            prop_assert_eq!(&read_block(&tree, 0, *block, data, &mut Vec::new()).unwrap(), data);
        }
    }
}

#[test]
fn drives_hold_exactly_the_mapped_columns() {
    let shapes = [
        TestArray::raidz(5, 1),
        TestArray::raidz(5, 2),
        TestArray::raidz(7, 3),
        TestArray::expanded_raidz(5, 1),
        TestArray::draid(7, 3, 2, 1),
    ];
    for shape in shapes {
        for size in [512, 1536, 5120, 8192, 9728] {
            let offset = match &shape {
                TestArray::Raidz(_) => 3 << 10,
                TestArray::Draid(draid) => 3 * draid.row_size(),
            };
            let block = Block { offset, size };
            let data = noise(size, 77);
            let expected = write_block(
                vec![vec![0; DRIVE_SIZE]; shape.child_count()],
                &shape.column_map(block),
                &data,
            );
            let drives: Vec<_> = expected
                .iter()
                .map(|_| FaultyDrive::with_memory(MemoryDevice::zeroed("d", 36 << 20)))
                .collect();
            let tree = array_tree(&shape, &drives, &[]);
            tree.write(TOP, block.offset, &data, BIRTH, &mut Vec::new()).unwrap();
            for (drive, right) in drives.iter().zip(&expected) {
                assert!(drive.memory.bytes()[..DRIVE_SIZE] == right[..], "{size} bytes");
            }
        }
    }
}

#[test]
fn write_beyond_parity_fails_for_its_blocks() {
    let shape = TestArray::raidz(6, 2);
    let drives = blank_drives(6);
    let tree = array_tree(&shape, &drives, &[]);
    let (data, small) = (noise(6 * 4096, 1), noise(512, 2));
    for drive in &drives[3..] {
        drive.fail_writes();
    }
    let block = |offset, data| BlockWrite { vdev: TOP, offset, birth: BIRTH, data };
    let mut faults = Vec::new();
    let results = tree.write_many(&[block(0, &data), block(1 << 20, &small)], &mut faults);
    assert_eq!(results[0], Err(Error::Unavailable { missing: 3, redundancy: 2 }));
    // three sectors, of which no more than two lie on drives that failed
    assert_eq!(results[1], Ok(()));
    assert_eq!(faults.len(), 3);
    assert_eq!(
        tree.write(VdevId::new(7), 0, &data, BIRTH, &mut faults),
        Err(Error::NoVdev(VdevId::new(7)))
    );
    assert!(matches!(tree.write(TOP, 7, &data, BIRTH, &mut faults), Err(Error::InvalidAddress(_))));
}

#[test]
fn adjacent_blocks_share_one_request_per_drive() {
    for shape in [TestArray::raidz(5, 1), TestArray::raidz(6, 2), TestArray::draid(7, 3, 2, 1)] {
        let drives = blank_drives(shape.child_count());
        let tree = array_tree(&shape, &drives, &[]);
        let sizes = [512, 4096, 10_240, 512, 512, 131_072];
        let contents: Vec<Vec<u8>> = sizes.iter().map(|size| noise(*size, 4)).collect();
        let mut blocks = lay_out_blocks(&tree, &shape, &sizes);
        for block in &mut blocks {
            // not across the place where parity changes drives, or a group's end
            if let TestArray::Draid(draid) = &shape {
                block.offset -= draid.group_size() - 2 * draid.row_size();
            } else {
                block.offset -= (1 << 20) - (4 << 9);
            }
        }
        let results = tree.write_many(&block_writes(&blocks, &contents), &mut Vec::new());
        assert!(results.iter().all(Result::is_ok));
        for (drive, index) in drives.iter().zip(0..) {
            assert!(drive.write_requests.load(Ordering::Relaxed) <= 1, "drive {index}");
        }
    }
}

fn single_vdev_tree(kind: impl Fn(Vec<VdevNode>) -> NodeKind, children: Vec<VdevNode>) -> VdevTree {
    VdevTree::new(vec![VdevNode { guid: Guid::new(1000), kind: kind(children) }])
}

#[test]
fn mirror_works_with_one_child() {
    let drives = blank_drives(3);
    let children = (0..3).map(|index| leaf_node(index, Some(&drives[index]))).collect();
    let tree = single_vdev_tree(NodeKind::Mirror, children);
    for drive in &drives {
        drive.memory.write_at((4 << 20) + 8192, &[9; 8192]).unwrap();
    }
    let data = noise(4096 + 512, 6);
    tree.write(TOP, 8192, &data, BIRTH, &mut Vec::new()).unwrap();
    let block = Block { offset: 8192, size: data.len() };
    verify_block(&tree, block, &data);
    let mut behind = [1; 3584];
    drives[1].read_at((4 << 20) + 8192 + 4608, &mut behind).unwrap();
    assert!(behind.iter().all(|byte| *byte == 0));
    drives[0].fail_writes();
    drives[2].fail_writes();
    let mut faults = Vec::new();
    let again = noise(4096, 7);
    let later = Txg::new(BIRTH.get() + 5);
    assert_eq!(tree.write(TOP, 0, &again, later, &mut faults), Ok(()));
    let named: Vec<u64> = faults.iter().map(|fault| fault.leaf.get()).collect();
    assert_eq!(named, [1, 3]);
    assert!(tree.leaf(Guid::new(1)).unwrap().dtl().contains(later));
    assert!(!tree.leaf(Guid::new(2)).unwrap().dtl().contains(later));
    drives[1].fail_writes();
    let result = tree.write(TOP, 0, &again, later, &mut faults);
    assert_eq!(result, Err(Error::Unavailable { missing: 3, redundancy: 2 }));
}

#[test]
fn replacements_and_spares_get_all_writes() {
    let drives = blank_drives(5);
    let pair = |kind: fn(Vec<VdevNode>) -> NodeKind, children| VdevNode {
        guid: Guid::new(50),
        kind: kind(children),
    };
    let each = |index: usize| leaf_node(index, Some(&drives[index]));
    let children = vec![
        pair(NodeKind::Replacing, vec![each(0), each(1)]),
        pair(NodeKind::Spare, vec![leaf_node(7, None), each(2)]),
        each(3),
        each(4),
    ];
    let shape = TestArray::raidz(4, 1);
    let tree = tree_with_children(&shape, children);
    let data = noise(20 << 10, 12);
    let mut faults = Vec::new();
    tree.write(TOP, 0, &data, BIRTH, &mut faults).unwrap();
    assert_eq!(faults.iter().map(|fault| fault.leaf.get()).collect::<Vec<_>>(), [8]);
    // the replacements are enough, with one drive lost on top of it
    let after = tree_with_children(&shape, vec![each(1), each(2), leaf_node(3, None), each(4)]);
    let block = Block { offset: 0, size: data.len() };
    assert_eq!(read_block(&after, 0, block, &data, &mut Vec::new()).unwrap(), data);
}

#[test]
fn distributed_spares_get_what_their_drives_would() {
    let shape = TestArray::draid(7, 2, 1, 2);
    let drives = blank_drives(7);
    let spare = |index: usize, number: u32| VdevNode {
        guid: Guid::new(100 + index as u64),
        kind: NodeKind::Spare(vec![
            leaf_node(index, None),
            VdevNode {
                guid: Guid::new(200),
                kind: NodeKind::DistributedSpare(vdev::DistributedSpare::new(
                    Guid::new(200),
                    number,
                    String::new(),
                )),
            },
        ]),
    };
    let children = |lost: Option<usize>| {
        let child = |index: usize| match index {
            2 => spare(2, 0),
            5 => spare(5, 1),
            _ => leaf_node(index, (lost != Some(index)).then_some(&drives[index])),
        };
        (0..7).map(child).collect()
    };
    let tree = tree_with_children(&shape, children(None));
    let mut offset = 0;
    let data = noise(64 << 10, 13);
    let mut blocks = Vec::new();
    while offset < 200 << 20 && blocks.len() < 40 {
        let block = Block { offset, size: data.len() };
        tree.write(TOP, offset, &data, BIRTH, &mut Vec::new()).unwrap();
        blocks.push(block);
        // the space of each drive is small here: only the first row of groups fits
        offset += tree.asize(TOP, data.len() as u64, BIRTH).unwrap() * 13;
    }
    for lost in [None, Some(0), Some(1), Some(3), Some(6)] {
        let tree = tree_with_children(&shape, children(lost));
        for block in &blocks {
            assert_eq!(read_block(&tree, 0, *block, &data, &mut Vec::new()).unwrap(), data);
        }
    }
}

#[test]
fn failed_flush_adds_the_txg_to_the_dtl() {
    let drives = blank_drives(5);
    let shape = TestArray::raidz(5, 1);
    let tree = array_tree(&shape, &drives, &[]);
    let data = noise(64 << 10, 14);
    let (first, last) = (Txg::new(20), Txg::new(22));
    for birth in [first, last] {
        tree.write(TOP, 0, &data, birth, &mut Vec::new()).unwrap();
    }
    drives[3].fails_flush.store(true, Ordering::Relaxed);
    let mut faults = Vec::new();
    assert_eq!(tree.flush(&mut faults), Ok(()));
    assert_eq!((faults.len(), faults[0].leaf.get()), (1, 4));
    let away = tree.leaf(Guid::new(4)).unwrap().dtl();
    assert_eq!(away.iter().collect::<Vec<_>>(), [(first, last)]);
    // nothing was written since
    faults.clear();
    assert_eq!((tree.flush(&mut faults), faults.len()), (Ok(()), 0));
    let later = Txg::new(23);
    let all = |_: &VdevNode| true;
    assert_eq!(tree.check_txgs_durable(first..=later, &all), Ok(()));
    drives[1].fails_flush.store(true, Ordering::Relaxed);
    tree.write(TOP, 0, &data, last, &mut Vec::new()).unwrap();
    let lost = Err(Error::Unavailable { missing: 2, redundancy: 1 });
    assert_eq!(tree.flush(&mut faults), lost);
    // the next one has nothing to do, and lost writes stay lost
    assert_eq!(tree.flush(&mut faults), Ok(()));
    assert_eq!(tree.check_txgs_durable(last..=later, &all), lost);
    assert_eq!(tree.check_txgs_durable(last..=last, &|top| top.guid != Guid::new(1000)), Ok(()));
    assert_eq!(
        tree.check_txgs_durable(first..=first, &all),
        Ok(()),
        "one drive can be done without"
    );
    assert_eq!(tree.check_txgs_durable(later..=later, &all), Ok(()));
}

#[test]
fn leaf_without_the_block_covers_no_flush() {
    let drives = blank_drives(2);
    let children = (0..2).map(|index| leaf_node(index, Some(&drives[index]))).collect();
    let tree = single_vdev_tree(NodeKind::Mirror, children);
    let data = noise(8192, 16);
    let (taken, other) = (Txg::new(20), Txg::new(21));
    drives[0].fails_writes.store(true, Ordering::Relaxed);
    tree.write(TOP, 0, &data, taken, &mut Vec::new()).unwrap();
    drives[0].fails_writes.store(false, Ordering::Relaxed);
    drives[1].fails_flush.store(true, Ordering::Relaxed);
    let _ = tree.flush(&mut Vec::new());
    let all = |_: &VdevNode| true;
    let lost = Err(Error::Unavailable { missing: 2, redundancy: 1 });
    assert_eq!(tree.check_txgs_durable(taken..=taken, &all), lost);
    // what both took is on the one that kept it
    tree.write(TOP, 8192, &data, other, &mut Vec::new()).unwrap();
    let _ = tree.flush(&mut Vec::new());
    assert_eq!(tree.check_txgs_durable(other..=other, &all), Ok(()));
}

#[test]
fn labels_are_never_overwritten_by_blocks() {
    let drives = blank_drives(2);
    let children = (0..2).map(|index| leaf_node(index, Some(&drives[index]))).collect();
    let tree = single_vdev_tree(NodeKind::Mirror, children);
    let data = noise(8192, 15);
    let end = (36 << 20) - (512 << 10) - (4 << 20);
    assert_eq!(tree.write(TOP, end - 8192, &data, BIRTH, &mut Vec::new()), Ok(()));
    assert!(tree.write(TOP, end - 4096, &data, BIRTH, &mut Vec::new()).is_err());
    let mut label = [1; 4096];
    drives[0].read_at((36 << 20) - (512 << 10), &mut label).unwrap();
    assert!(label.iter().all(|byte| *byte == 0));
}

#[test]
fn returned_leaf_has_missed_txgs_after_its_labels() {
    let leaf = Leaf::new(Guid::new(1), String::new(), None, Txg::new(30));
    leaf.rejoin(Txg::new(40));
    assert_eq!(leaf.dtl().iter().collect::<Vec<_>>(), [(Txg::new(31), Txg::new(40))]);
    leaf.rejoin(Txg::new(50));
    assert!(!leaf.dtl().contains(Txg::new(41)));
}
