//! A sequential rebuild as its drives see it.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use device::Device;
use geometry::Block;
use units::{Guid, Txg, VdevId};
use vdev::{IoClass, Leaf, NodeKind, QueueClass, VdevNode, VdevTree, with_class};

use crate::array::{BIRTH, noise, read_request};
use crate::stuck_drive::StuckDrive;

const DRIVE_SIZE: usize = 8 << 20;
const VDEV: VdevId = VdevId::new(0);
const FIRST: Txg = Txg::new(4);
const CHUNK: usize = 256 << 10;
/// A write that waits for longer waits for the drive.
const HANG: Duration = Duration::from_secs(20);

/// A whole drive, and one that lacks everything.
fn mirror(drives: &[Arc<StuckDrive>; 2]) -> (VdevTree, [Arc<Leaf>; 2]) {
    let leaf = |index: usize| {
        let device = Some(Arc::clone(&drives[index]) as Arc<dyn Device>);
        let guid = Guid::new(units::to_u64(index) + 1);
        Arc::new(Leaf::new(guid, format!("d{index}"), device, Txg::new(u64::MAX)))
    };
    let leaves = [leaf(0), leaf(1)];
    leaves[1].set_dtl(vdev::TxgRanges::new([(FIRST, BIRTH)]));
    let sides = leaves
        .each_ref()
        .map(|leaf| VdevNode { guid: leaf.guid(), kind: NodeKind::Leaf(Arc::clone(leaf)) });
    let kind = NodeKind::Mirror(sides.to_vec());
    (VdevTree::new(vec![VdevNode { guid: Guid::new(100), kind }]), leaves)
}

#[test]
fn users_write_while_a_rebuild_awaits_its_turn() {
    let drives = [0, 1].map(|index| StuckDrive::blank(&format!("d{index}"), DRIVE_SIZE));
    let (tree, leaves) = mirror(&drives);
    let targets = [leaves[1].guid()];
    let judge = |_: &[u8]| true;
    let read = |offset: u64| {
        let block = Block { offset, size: 4096 };
        tree.read(VDEV, &read_request(block, &judge), &mut [0; 4096], &mut Vec::new()).unwrap();
    };
    let hold = |drive: &StuckDrive| {
        while !drive.are_reads_held() {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let data = noise(4096, 3);
    let range = 0..units::to_u64(CHUNK);
    tree.begin_rebuild(VDEV);
    std::thread::scope(|scope| {
        // with a user's read under way the drive is busy, and with a scan's it takes no other long work
        let scan_ends = drives[0].hold_next_read();
        scope.spawn(|| with_class(IoClass::Scan, || read(1 << 20)));
        hold(&drives[0]);
        let user_ends = drives[0].hold_next_read();
        scope.spawn(|| read(2 << 20));
        hold(&drives[0]);
        let rebuild = scope.spawn(|| tree.rebuild_chunk(VDEV, &range, FIRST, &targets).unwrap());
        let waiting = || leaves[0].queue_stats().classes[QueueClass::Rebuild as usize].waiting;
        while waiting() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (done, written) = channel();
        let (tree, data) = (&tree, &data);
        scope.spawn(move || {
            tree.write(VDEV, 4096, data, BIRTH.next(), &mut Vec::new()).unwrap();
            let _ = done.send(());
        });
        let is_written = written.recv_timeout(HANG).is_ok();
        let is_waiting = waiting() > 0;
        drop((scan_ends, user_ends));
        let chunk = rebuild.join().unwrap();
        assert!(is_waiting && is_written, "the write waits for the rebuild");
        assert_eq!((chunk.end, chunk.is_complete), (range.end, true));
    });
    tree.end_rebuild(VDEV);
    // the rebuild has copied what was written while it waited
    let mut found = vec![0; data.len()];
    drives[1].read_at((4 << 20) + 4096, &mut found).unwrap();
    assert!(found == data, "the new leaf has the user's block");
    let rebuild = &leaves[1].queue_stats().classes[QueueClass::Rebuild as usize];
    assert_eq!((rebuild.requests, rebuild.active, rebuild.waiting), (1, 0, 0));
}
