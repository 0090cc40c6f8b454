//! Blocks of real pools, written once more to empty drives: the same bytes at the same places.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use geometry::Reflow;
use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use sim::{DiskArray, EventKind};
use spa::{Pool, PoolOpenOptions, scan_devices};
use transform::checksum;
use units::{Guid, Txg, Zbookmark};
use vdev::{BuildContext, LeafDevice, ReadRequest, VdevNode, VdevTree};
use zio::{Block, Error, Key, Source};

/// Remembers which blocks were read.
struct Recorder {
    below: Arc<dyn Source>,
    blocks: Arc<Mutex<Vec<Regular>>>,
}

impl Source for Recorder {
    fn read(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        if let Blkptr::Regular(regular) = pointer {
            self.blocks.lock().unwrap().push(Regular::clone(regular));
        }
        self.below.read(pointer, zbookmark, key)
    }
}

/// The same vdevs over other drives, in the order of the pool's leaves.
fn tree_over_devices(pool: &Pool, storm: &DiskArray) -> VdevTree {
    let guids: Vec<Guid> = pool.tree().leaves().iter().map(|leaf| leaf.guid()).collect();
    let find = |guid: Guid| {
        let index = guids.iter().position(|other| *other == guid)?;
        let device = Arc::clone(&storm.devices()[index]);
        Some(LeafDevice { device, label_txg: Txg::new(u64::MAX) })
    };
    let around = BuildContext { find_device: &find, reflow: Reflow { offset: 0, scratch: false } };
    let tops = &pool.config().tree.as_ref().unwrap().children;
    VdevTree::new(tops.iter().map(|top| VdevNode::build(top, &around).unwrap()).collect())
}

/// Writes a block to the other drives as it is stored; false where it cannot be read plainly.
fn rewrite_block(pool: &Pool, to: &VdevTree, block: &Regular) -> usize {
    let mut written = 0;
    for dva in block.copies().filter(|dva| !dva.gang) {
        let judge = |bytes: &[u8]| {
            checksum::matches(block.checksum, bytes, block.order, None, &block.sum, false)
                == Ok(true)
        };
        let size = usize::try_from(block.psize).unwrap();
        let birth = block.birth_physical;
        let request = ReadRequest {
            offset: dva.offset,
            size,
            birth,
            is_valid: &judge,
            has_checksum: true,
            must_exist: true,
        };
        let mut bytes = vec![0; size];
        if pool.tree().read(dva.vdev, &request, &mut bytes, &mut Vec::new()).is_ok() {
            to.write(dva.vdev, dva.offset, &bytes, birth, &mut Vec::new()).unwrap();
            written += 1;
        }
    }
    written
}

#[test]
fn rewritten_blocks_equal_those_of_openzfs() {
    for name in ["mirror-2", "mirror-3", "stripe-copies", "draid1", "expanded", "snapshots"] {
        let fixture = fixtures::load(name);
        let devices = device::probe(std::slice::from_ref(&fixture.dir)).devices;
        let (pools, _) = scan_devices(&devices);
        let seen = Arc::new(Mutex::default());
        let between =
            |below| Arc::new(Recorder { below, blocks: Arc::clone(&seen) }) as Arc<dyn Source>;
        let pool = pools[0].open_with_source(&PoolOpenOptions::default(), &between).unwrap();
        let leaves = pool.tree().leaves();
        let sizes: Vec<u64> =
            leaves.iter().map(|leaf| leaf.device().map_or(0, |device| device.size())).collect();
        let storm = DiskArray::new(&sizes);
        let to = tree_over_devices(&pool, &storm);
        let (mut done, mut count) = (BTreeSet::new(), 0);
        for block in seen.lock().unwrap().iter() {
            if done.insert(block.sum) {
                count += rewrite_block(&pool, &to, block);
            }
        }
        assert!(count >= 20, "{name}: {count} blocks");
        for event in storm.journal().events(0) {
            let EventKind::Write { offset, bytes } = event.kind else { continue };
            let mut real = vec![0; bytes.len()];
            leaves[event.disk].device().unwrap().read_at(offset, &mut real).unwrap();
            assert!(real[..] == bytes[..], "{name}: drive {} at {offset:#x}", event.disk);
        }
    }
}
