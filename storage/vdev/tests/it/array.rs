//! Arrays in memory for the tests.

use std::sync::Arc;

use device::{Device, Error as IoError};
use geometry::draid::DraidShape;
use geometry::{Block, Draid, Expandable, Map, Raidz};
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{Error, Kind, Leaf, LeafFault, Node, Request, Tree};

/// Bytes of each drive: the labels in front and some room.
pub(crate) const DRIVE: usize = (4 << 20) + (128 << 10);
/// When all blocks are written.
pub(crate) const BIRTH: Txg = Txg::new(10);

/// What an array's blocks are laid out by.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Raidz(Expandable),
    Draid(Draid),
}

impl Shape {
    pub(crate) fn raidz(children: u32, parity: u32) -> Self {
        Self::raidz_of(children, parity, 9)
    }

    pub(crate) fn raidz_of(children: u32, parity: u32, ashift: u64) -> Self {
        let ashift = Ashift::new(ashift).unwrap();
        Self::Raidz(Expandable::from(Raidz::new(children, parity, ashift).unwrap()))
    }

    pub(crate) fn widened(children: u32, parity: u32) -> Self {
        let now = Raidz::new(children, parity, Ashift::new(9).unwrap()).unwrap();
        Self::Raidz(Expandable::new(now, &[Txg::new(50)], None).unwrap())
    }

    pub(crate) fn draid(children: u32, data: u32, parity: u32, spares: u32) -> Self {
        Self::draid_of((children, data, parity, spares), 9)
    }

    pub(crate) fn draid_of(numbers: (u32, u32, u32, u32), ashift: u64) -> Self {
        let (children, data, parity, spares) = numbers;
        let shape = DraidShape::planned(children, data, parity, spares);
        Self::Draid(Draid::new(shape, Ashift::new(ashift).unwrap()).unwrap())
    }

    pub(crate) fn map(&self, block: Block) -> Map {
        match self {
            Self::Raidz(raidz) => raidz.map(block, BIRTH).unwrap(),
            Self::Draid(draid) => draid.map(block).unwrap(),
        }
    }

    pub(crate) fn children(&self) -> usize {
        match self {
            Self::Raidz(raidz) => raidz.now().width() as usize,
            Self::Draid(draid) => draid.shape().children as usize,
        }
    }
}

/// Writes a block with its parity; gives the drives to be shared.
pub(crate) fn write(mut drives: Vec<Vec<u8>>, map: &Map, data: &[u8]) -> Vec<Bytes> {
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
pub(crate) type Bytes = Arc<Vec<u8>>;

/// A drive in shared memory.
#[derive(Debug)]
struct Drive {
    name: String,
    bytes: Bytes,
}

impl Device for Drive {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let start = usize::try_from(offset).unwrap();
        let (device, length, size) = (self.name.clone(), into.len(), self.size());
        let end = IoError::End { device, offset, length, size };
        into.copy_from_slice(self.bytes.get(start..start + length).ok_or(end)?);
        Ok(())
    }
}

/// A leaf whose identity is `index + 1`.
pub(crate) fn leaf(index: usize, bytes: Option<Bytes>, synced: Txg) -> Node {
    let name = format!("d{index}");
    let device = bytes.map(|bytes| Arc::new(Drive { name, bytes }) as Arc<dyn Device>);
    let guid = Guid::new(index as u64 + 1);
    Node { guid, kind: Kind::Leaf(Leaf::new(guid, format!("d{index}"), device, synced).into()) }
}

/// A tree of one array; drives that are none are missing.
pub(crate) fn tree(shape: &Shape, drives: Vec<Option<Bytes>>) -> Tree {
    let always = Txg::new(u64::MAX);
    let leaves =
        drives.into_iter().enumerate().map(|(index, bytes)| leaf(index, bytes, always)).collect();
    tree_of(shape, leaves)
}

/// A tree of one array of these.
pub(crate) fn tree_of(shape: &Shape, children: Vec<Node>) -> Tree {
    let kind = match shape {
        Shape::Raidz(raidz) => Kind::Raidz(Box::new(raidz.clone()), children),
        Shape::Draid(draid) => Kind::Draid(Box::new(draid.clone()), children),
    };
    Tree::new(vec![Node { guid: Guid::new(1000), kind }])
}

/// Reads a block that is known when it is seen.
pub(crate) fn read(
    tree: &Tree,
    vdev: u32,
    block: Block,
    right: &[u8],
    faults: &mut Vec<LeafFault>,
) -> Result<Vec<u8>, Error> {
    let judge = |bytes: &[u8]| bytes == right;
    let request = request(block, &judge);
    let mut into = vec![0; block.size];
    tree.read(VdevId::new(vdev), &request, &mut into, faults).map(|()| into)
}

pub(crate) fn request(block: Block, judge: vdev::Judge<'_>) -> Request<'_> {
    Request {
        offset: block.offset,
        size: block.size,
        birth: BIRTH,
        judge,
        strict: true,
        expected: true,
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
