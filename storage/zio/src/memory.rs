//! A pool's drives in memory: for tests of this floor and of those above.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Device, MemoryDevice};
use geometry::{Expandable, Raidz};
use metaslab::{Allocator, Class, MetaslabGroupSpec};
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{Leaf, NodeKind, VdevNode, VdevTree};

use crate::{Random, Reader, SizeRounding, Writer};

/// Bytes of labels and boot area before the allocatable space.
const LABEL_START_SIZE: u64 = 4 << 20;
/// Bytes of the labels behind it.
const LABEL_END_SIZE: u64 = 512 << 10;
/// More than the drives of a vdev.
const MAX_DRIVES: usize = 256;
/// Newer than any txg of a test.
const ALWAYS_SYNCED: Txg = Txg::new(u64::MAX);

/// Drives, and nothing on them but blocks.
pub struct MemoryVdevs {
    /// The drives of each top-level vdev.
    tops: Vec<Vec<Arc<dyn Device>>>,
    parity: u32,
    ashift: Ashift,
}

impl MemoryVdevs {
    /// This many drives in memory, of `size` bytes each; each is a top-level vdev.
    pub fn new(count: usize, size: u64, ashift: Ashift) -> Self {
        Self::from_devices((0..count).map(|_| blank_device(size)), ashift)
    }

    /// One raidz of drives in memory, of `size` bytes each.
    pub fn raidz(drives: usize, parity: u32, size: u64, ashift: Ashift) -> Self {
        Self { tops: vec![(0..drives).map(|_| blank_device(size)).collect()], parity, ashift }
    }

    /// Such as there are; each is a top-level vdev.
    pub fn from_devices(drives: impl IntoIterator<Item = Arc<dyn Device>>, ashift: Ashift) -> Self {
        Self { tops: drives.into_iter().map(|drive| vec![drive]).collect(), parity: 0, ashift }
    }

    /// Bytes of a drive with space for `size` bytes besides its labels.
    pub const fn device_size(size: u64) -> u64 {
        LABEL_START_SIZE + size + LABEL_END_SIZE
    }

    /// Their reader.
    pub fn reader(&self) -> Arc<Reader> {
        let nodes = (0..).step_by(MAX_DRIVES).zip(&self.tops);
        let tree =
            VdevTree::new(nodes.map(|(first, drives)| self.build_node(first, drives)).collect());
        let reader = Arc::new(Reader::new(Arc::new(tree)));
        reader.set_salt([7; 32]);
        reader
    }

    fn build_node(&self, first: u64, drives: &[Arc<dyn Device>]) -> VdevNode {
        let leaves = (first + 1..).zip(drives).map(|(number, device)| {
            let guid = Guid::new(number);
            let device = Some(Arc::clone(device));
            let leaf = Leaf::new(guid, format!("drive{number}"), device, ALWAYS_SYNCED);
            VdevNode { guid, kind: NodeKind::Leaf(leaf.into()) }
        });
        let mut leaves: Vec<VdevNode> = leaves.collect();
        match self.raidz_layout(drives.len()) {
            Some(raid) => {
                let guid = Guid::new(first + MAX_DRIVES as u64);
                VdevNode { guid, kind: NodeKind::Raidz(Box::new(raid), leaves) }
            }
            None => leaves.remove(0),
        }
    }

    /// How an array is laid out; none for a lone drive.
    fn raidz_layout(&self, drives: usize) -> Option<Expandable> {
        let raidz = Raidz::new(u32::try_from(drives).ok()?, self.parity, self.ashift).ok()?;
        Expandable::new(raidz, &[], None).ok().filter(|_| self.parity > 0)
    }

    /// Their writer; all space is free.
    ///
    /// # Panics
    /// Where a drive is too small for anything.
    pub fn writer(&self) -> Writer {
        let vdevs = || (0..).map(VdevId::new).take(self.tops.len());
        let allocator =
            Allocator::new(vdevs().zip(&self.tops).map(|top| self.vdev_spec(top)).collect());
        for vdev in vdevs() {
            let loaded = allocator.load_empty(vdev);
            assert!(loaded.is_ok(), "a new vdev is free");
        }
        let rounding = SizeRounding::from_min_sizes([self.ashift.bytes()]);
        Writer::new(
            self.reader(),
            Arc::new(allocator),
            rounding,
            Arc::new(CountingRandom::default()),
        )
    }

    fn vdev_spec(&self, (vdev, drives): (VdevId, &Vec<Arc<dyn Device>>)) -> MetaslabGroupSpec {
        let (ashift, raid) = (self.ashift, self.raidz_layout(drives.len()));
        let size: u64 =
            drives.iter().map(|drive| drive.size() - LABEL_START_SIZE - LABEL_END_SIZE).sum();
        MetaslabGroupSpec {
            vdev,
            class: Class::Normal,
            asize: size,
            metaslab_shift: 20,
            ashift,
            alignment: ashift.bytes(),
            data_width: 1,
            asize_fn: Arc::new(move |psize, _| match &raid {
                Some(raid) => raid.asize(psize, Txg::new(1)),
                None => ashift.round_up(psize),
            }),
        }
    }
}

fn blank_device(size: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::zeroed("drive", MemoryVdevs::device_size(size)))
}

/// Numbers that repeat with each test.
#[derive(Default)]
pub struct CountingRandom(AtomicU64);

impl Random for CountingRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            let next = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            *byte = next.to_le_bytes()[7];
        }
    }
}
