//! The expansion of a raidz as its drives see it.

use std::sync::{Arc, Mutex, OnceLock};

use device::{Device, Error as IoError, MemoryDevice};
use geometry::{Expandable, Raidz};
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{Leaf, NodeKind, QueueClass, ReflowChunk, VdevNode, VdevTree, overwrite_limit};

const DRIVE_SIZE: usize = 32 << 20;
const VDEV: VdevId = VdevId::new(0);

/// A drive that notes, at each request, how many turns of expansions its queue counts.
#[derive(Debug)]
struct WatchedDrive {
    inner: MemoryDevice,
    leaf: OnceLock<Arc<Leaf>>,
    turns: Mutex<Vec<u32>>,
}

impl WatchedDrive {
    fn note(&self) {
        if let Some(leaf) = self.leaf.get() {
            let stats = leaf.queue_stats();
            let turns = stats.classes[QueueClass::Removal as usize].active;
            self.turns.lock().unwrap().push(turns);
        }
    }
}

impl Device for WatchedDrive {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.note();
        self.inner.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        self.note();
        self.inner.write_at(offset, from)
    }
}

#[test]
fn expansion_holds_its_turn_while_it_copies() {
    let drive = |index: u64| {
        let inner = MemoryDevice::new(format!("d{index}"), &vec![0; DRIVE_SIZE]);
        let (leaf, turns) = (OnceLock::new(), Mutex::default());
        Arc::new(WatchedDrive { inner, leaf, turns })
    };
    let drives: Vec<Arc<WatchedDrive>> = (0..4).map(drive).collect();
    let leaf_node = |(drive, index): (&Arc<WatchedDrive>, u64)| {
        let device = Some(Arc::clone(drive) as Arc<dyn Device>);
        let leaf =
            Arc::new(Leaf::new(Guid::new(index), "d".to_owned(), device, Txg::new(u64::MAX)));
        drive.leaf.set(Arc::clone(&leaf)).unwrap();
        VdevNode { guid: leaf.guid(), kind: NodeKind::Leaf(leaf) }
    };
    let children = drives.iter().zip(1..).map(leaf_node).collect();
    let narrow = Expandable::from(Raidz::new(3, 1, Ashift::MIN).unwrap());
    let wider = narrow.start_expansion().unwrap();
    let kind = NodeKind::Raidz(Box::new(wider.clone()), children);
    let tree = VdevTree::new(vec![VdevNode { guid: Guid::new(100), kind }]);
    tree.reflow_by_scratch(VDEV, Txg::new(10), &mut |_, _| true).unwrap();
    let position = tree.reflow_position(VDEV).unwrap();
    let leaves = tree.check_reflow(VDEV).unwrap();
    drives.iter().for_each(|drive| drive.turns.lock().unwrap().clear());
    let end = overwrite_limit(&wider, position.synced);
    let chunk = ReflowChunk { end, max_bytes: 4 << 20, birth: Txg::new(11) };
    let copied = tree.copy_reflow_chunk(VDEV, &leaves, chunk, &|range| vec![range]).unwrap();
    assert!(copied > 0 && copied <= 4 << 20, "{copied}");
    for drive in &drives {
        let turns = drive.turns.lock().unwrap().clone();
        assert!(!turns.is_empty() && turns.iter().all(|turns| *turns == 1), "{turns:?}");
        let stats = drive.leaf.get().unwrap().queue_stats();
        let removal = &stats.classes[QueueClass::Removal as usize];
        assert_eq!((removal.active, removal.requests >= turns.len() as u64), (0, true));
    }
}
