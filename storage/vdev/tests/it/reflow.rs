//! The expansion of a raidz as its drives see it.

use std::sync::Arc;
use std::time::Duration;

use device::Device;
use geometry::{Block, Expandable, Raidz};
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{Leaf, NodeKind, QueueClass, ReflowChunk, VdevNode, VdevTree, overwrite_limit};

use crate::array::read_block;
use crate::stuck_drive::StuckDrive;

const DRIVE_SIZE: usize = 32 << 20;
const VDEV: VdevId = VdevId::new(0);

#[test]
fn expansion_waits_at_drives_that_users_use() {
    let drives: Vec<Arc<StuckDrive>> =
        (0..4).map(|index| StuckDrive::blank(&format!("d{index}"), DRIVE_SIZE)).collect();
    let leaf = |(drive, index): (&Arc<StuckDrive>, u64)| {
        let device = Some(Arc::clone(drive) as Arc<dyn Device>);
        Arc::new(Leaf::new(Guid::new(index), "d".to_owned(), device, Txg::new(u64::MAX)))
    };
    let leaves: Vec<Arc<Leaf>> = drives.iter().zip(1..).map(leaf).collect();
    let node =
        |leaf: &Arc<Leaf>| VdevNode { guid: leaf.guid(), kind: NodeKind::Leaf(Arc::clone(leaf)) };
    let narrow = Expandable::from(Raidz::new(3, 1, Ashift::MIN).unwrap());
    let wider = narrow.start_expansion().unwrap();
    let kind = NodeKind::Raidz(Box::new(wider.clone()), leaves.iter().map(node).collect());
    let tree = VdevTree::new(vec![VdevNode { guid: Guid::new(100), kind }]);
    tree.reflow_by_scratch(VDEV, Txg::new(10), &mut |_, _| true).unwrap();
    let position = tree.reflow_position(VDEV).unwrap();
    let held = tree.check_reflow(VDEV).unwrap();
    let waited = |leaf: &Leaf| {
        let stats = leaf.queue_stats();
        stats.classes[QueueClass::Removal as usize].wait_nanoseconds
    };
    let before = waited(&leaves[1]);
    let release = drives[1].hold_next_read();
    let chunk = ReflowChunk {
        end: overwrite_limit(&wider, position.synced),
        max_bytes: 4 << 20,
        birth: Txg::new(11),
    };
    // a block in the first rows, which are not copied now; its data is on the second drive
    let block = Block { offset: 0, size: 512 };
    std::thread::scope(|scope| {
        let user = scope.spawn(|| read_block(&tree, 0, block, &[0; 512], &mut Vec::new()));
        while !drives[1].are_reads_held() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // a user's read is under way at the second drive until the copy is done
        let copied = tree.copy_reflow_chunk(VDEV, &held, chunk, &|range| vec![range]).unwrap();
        assert!(copied > 0 && copied <= 4 << 20, "{copied}");
        release.send(()).unwrap();
        user.join().unwrap().unwrap();
    });
    assert!(waited(&leaves[1]) > before, "it waited for its turn");
    let removal = &leaves[3].queue_stats().classes[QueueClass::Removal as usize];
    assert!(removal.requests > 0 && removal.active == 0, "{removal:?}");
}
