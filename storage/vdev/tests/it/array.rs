//! Arrays in memory for the tests.

use std::sync::Arc;

use device::{Device, Error as IoError};
use geometry::draid::DraidShape;
use geometry::{Block, Draid, Expandable, Map, Raidz};
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{Error, Leaf, LeafError, NodeKind, ReadRequest, VdevNode, VdevTree};

/// Bytes of each drive: the front labels and some space.
pub(crate) const DRIVE_SIZE: usize = (4 << 20) + (128 << 10);
/// When all blocks are written.
pub(crate) const BIRTH: Txg = Txg::new(10);

/// The layout parameters of an array.
#[derive(Clone, Debug)]
pub(crate) enum TestArray {
    Raidz(Expandable),
    Draid(Draid),
}

impl TestArray {
    pub(crate) fn raidz(children: u32, parity: u32) -> Self {
        Self::raidz_with_ashift(children, parity, 9)
    }

    pub(crate) fn raidz_with_ashift(children: u32, parity: u32, ashift: u64) -> Self {
        let ashift = Ashift::new(ashift).unwrap();
        Self::Raidz(Expandable::from(Raidz::new(children, parity, ashift).unwrap()))
    }

    pub(crate) fn expanded_raidz(children: u32, parity: u32) -> Self {
        let now = Raidz::new(children, parity, Ashift::new(9).unwrap()).unwrap();
        Self::Raidz(Expandable::new(now, &[Txg::new(50)], None).unwrap())
    }

    pub(crate) fn draid(children: u32, data: u32, parity: u32, spares: u32) -> Self {
        Self::draid_with_ashift((children, data, parity, spares), 9)
    }

    pub(crate) fn draid_with_ashift(numbers: (u32, u32, u32, u32), ashift: u64) -> Self {
        let (children, data, parity, spares) = numbers;
        let shape = DraidShape::with_fewest_groups(children, data, parity, spares);
        Self::Draid(Draid::new(shape, Ashift::new(ashift).unwrap()).unwrap())
    }

    pub(crate) fn column_map(&self, block: Block) -> Map {
        match self {
            Self::Raidz(raidz) => raidz.map(block, BIRTH).unwrap(),
            Self::Draid(draid) => draid.map(block).unwrap(),
        }
    }

    pub(crate) fn child_count(&self) -> usize {
        match self {
            Self::Raidz(raidz) => raidz.current().width() as usize,
            Self::Draid(draid) => draid.shape().children as usize,
        }
    }
}

/// Writes a block with its parity; gives the drives to be shared.
pub(crate) fn write_block(mut drives: Vec<Vec<u8>>, map: &Map, data: &[u8]) -> Vec<SharedBytes> {
    let mut whole = data.to_vec();
    whole.resize(map.size(), 0);
    for row in map.rows() {
        let columns: Vec<&[u8]> = row.data().iter().map(|column| &whole[column.data()]).collect();
        let mut parity = vec![vec![0; row.height()]; row.parity().len()];
        let mut rows: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        simd::parity::generate(&columns, &mut rows);
        let bytes = parity.iter().map(Vec::as_slice).chain(columns);
        for (column, bytes) in row.columns().iter().zip(bytes) {
            let at = usize::try_from(column.device_offset()).unwrap();
            drives[column.child][at..at + column.size].copy_from_slice(bytes);
        }
    }
    drives.into_iter().map(Arc::new).collect()
}

/// Bytes that several trees may share: copies of whole drives would be slow.
pub(crate) type SharedBytes = Arc<Vec<u8>>;

/// A drive in shared memory.
#[derive(Debug)]
struct SharedDrive {
    name: String,
    bytes: SharedBytes,
}

impl Device for SharedDrive {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let start = usize::try_from(offset).unwrap();
        let (device, length, size) = (self.name.clone(), into.len(), self.size());
        let end = IoError::OutOfRange { device, offset, length, size };
        into.copy_from_slice(self.bytes.get(start..start + length).ok_or(end)?);
        Ok(())
    }
}

/// A leaf with the guid `index + 1`.
pub(crate) fn leaf_node(index: usize, bytes: Option<SharedBytes>, synced: Txg) -> VdevNode {
    let name = format!("d{index}");
    let device = bytes.map(|bytes| Arc::new(SharedDrive { name, bytes }) as Arc<dyn Device>);
    let guid = Guid::new(index as u64 + 1);
    VdevNode {
        guid,
        kind: NodeKind::Leaf(Leaf::new(guid, format!("d{index}"), device, synced).into()),
    }
}

/// A tree of one array; drives that are none are missing.
pub(crate) fn array_tree(shape: &TestArray, drives: Vec<Option<SharedBytes>>) -> VdevTree {
    let always = Txg::new(u64::MAX);
    let leaves = drives
        .into_iter()
        .enumerate()
        .map(|(index, bytes)| leaf_node(index, bytes, always))
        .collect();
    tree_with_children(shape, leaves)
}

/// A tree of one array of these.
pub(crate) fn tree_with_children(shape: &TestArray, children: Vec<VdevNode>) -> VdevTree {
    let kind = match shape {
        TestArray::Raidz(raidz) => NodeKind::Raidz(Box::new(raidz.clone()), children),
        TestArray::Draid(draid) => NodeKind::Draid(Box::new(draid.clone()), children),
    };
    VdevTree::new(vec![VdevNode { guid: Guid::new(1000), kind }])
}

/// Reads a block that is known when it is seen.
pub(crate) fn read_block(
    tree: &VdevTree,
    vdev: u32,
    block: Block,
    right: &[u8],
    faults: &mut Vec<LeafError>,
) -> Result<Vec<u8>, Error> {
    let judge = |bytes: &[u8]| bytes == right;
    let request = read_request(block, &judge);
    let mut into = vec![0; block.size];
    tree.read(VdevId::new(vdev), &request, &mut into, faults).map(|()| into)
}

pub(crate) fn read_request(block: Block, judge: vdev::BlockValidator<'_>) -> ReadRequest<'_> {
    ReadRequest {
        offset: block.offset,
        size: block.size,
        birth: BIRTH,
        is_valid: judge,
        has_checksum: true,
        must_exist: true,
    }
}

/// Noise from a seed.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[5]
    };
    (0..length).map(|_| step()).collect()
}
