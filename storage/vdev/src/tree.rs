//! The pool's vdevs, by their place in addresses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use geometry::{Block, Draid, Map, ReflowPosition};
use parking_lot::{Mutex, RwLock};
use units::{Guid, Txg, VdevId};

use crate::queue::DEFAULT_BACKGROUND_SHARE;
use crate::reflow_gate::{RebuildGate, ReflowGate, SharedLock};
use crate::{Error, IndirectMapping, Leaf, LeafError, NodeKind, VdevNode, indirect, mirror, raidz};

/// Says whether bytes are the block that is wanted.
pub type BlockValidator<'a> = &'a dyn Fn(&[u8]) -> bool;

/// What is wanted of a top-level vdev.
#[derive(Clone, Copy)]
pub struct ReadRequest<'a> {
    /// Bytes from the end of the front labels.
    pub offset: u64,
    /// Bytes of the block as stored.
    pub size: usize,
    /// The txg in which it was written.
    pub birth: Txg,
    /// Says whether bytes are the block.
    pub is_valid: BlockValidator<'a>,
    /// Whether the judge can tell: false where the block has no checksum. Then only devices that
    /// were there when it was written are believed.
    pub has_checksum: bool,
    /// Whether the block is known to have been written. The last of a log may not have been, and
    /// devices that do not have it are not to blame.
    pub must_exist: bool,
}

impl ReadRequest<'_> {
    /// Where the block is, and when it was written.
    pub(crate) fn block(&self) -> (Block, Txg) {
        (Block { offset: self.offset, size: self.size }, self.birth)
    }
}

/// A top-level vdev.
#[derive(Clone, Debug)]
pub(crate) struct TopVdev {
    /// The vdev.
    pub(crate) node: Arc<VdevNode>,
    /// Which children were found to lie when a block was last put together: tried first.
    pub(crate) suspects: Arc<Mutex<Vec<usize>>>,
    /// The gate of its expansion, while that runs.
    pub(crate) reflow: Option<Arc<ReflowGate>>,
    /// The gate of its sequential rebuild, while that runs.
    pub(crate) rebuild: Option<Arc<RebuildGate>>,
    /// Shared by all I/O that takes no locks of the gate.
    ungated_io: Arc<()>,
}

impl TopVdev {
    fn new(node: VdevNode) -> Self {
        // no I/O was there before an expansion that runs already
        let reflow = initial_gate(&node, Arc::default());
        let (suspects, ungated_io) = (Arc::default(), Arc::default());
        Self { node: Arc::new(node), suspects, reflow, rebuild: None, ungated_io }
    }

    /// Has writers take locks from now on, unless they do already.
    pub(crate) fn start_rebuild(&mut self) -> Arc<RebuildGate> {
        let earlier_io = &mut self.ungated_io;
        let new = || Arc::new(RebuildGate::new((), std::mem::take(earlier_io)));
        Arc::clone(self.rebuild.get_or_insert_with(new))
    }

    /// Locks the places of blocks that are written against a running rebuild, if there is one.
    pub(crate) fn lock_rebuild(
        &self,
        blocks: impl Iterator<Item = (Block, Txg)>,
    ) -> Option<SharedLock<()>> {
        let gate = self.rebuild.as_ref()?;
        let range = |(block, _): (Block, Txg)| {
            let length = match &self.node.kind {
                NodeKind::Draid(draid, _) => draid.asize(units::to_u64(block.size)),
                _ => units::to_u64(block.size),
            };
            (block.offset, block.offset.checked_add(length))
        };
        let all = blocks.map(range);
        let (start, end) = all.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))?;
        // a block at the end of all numbers is refused by its layout
        Some(RebuildGate::lock_shared(gate, start..end?))
    }

    /// Replaces the node. The gate of an expansion stays as long as the node is being expanded.
    fn set_node(&mut self, node: VdevNode) {
        let is_expanding =
            matches!(&node.kind, NodeKind::Raidz(raidz, _) if raidz.reflow().is_some());
        if !is_expanding {
            self.reflow = None;
        } else if self.reflow.is_none() {
            let earlier_io = std::mem::take(&mut self.ungated_io);
            self.reflow = initial_gate(&node, earlier_io);
        }
        self.node = Arc::new(node);
    }

    /// Locks what blocks have of the vdev against a running expansion, if there is one. The blocks are given
    /// by offset, size and birth.
    pub(crate) fn lock_blocks(
        &self,
        blocks: impl Iterator<Item = (Block, Txg)>,
    ) -> Option<SharedLock> {
        let gate = self.reflow.as_ref()?;
        let NodeKind::Raidz(raidz, _) = &self.node.kind else { return None };
        // the last row of a block counts as full
        let row = u64::from(raidz.current().width()) << raidz.current().ashift().get();
        let end = |(block, birth): (Block, Txg)| {
            let asize = raidz.asize(block.size as u64, birth);
            (block.offset, (block.offset + asize) + row)
        };
        let (start, end) =
            blocks.map(end).reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))?;
        Some(ReflowGate::lock_shared(gate, start..end))
    }
}

/// A vdev whose sectors stay where they are: an expansion that begins meanwhile moves the first of them after
/// this is dropped.
pub struct LayoutHold(TopVdev);

impl LayoutHold {
    /// The vdev.
    pub fn node(&self) -> &VdevNode {
        &self.0.node
    }
}

/// The gate of a node whose expansion runs.
fn initial_gate(node: &VdevNode, earlier_io: Arc<()>) -> Option<Arc<ReflowGate>> {
    let NodeKind::Raidz(raidz, _) = &node.kind else { return None };
    Some(Arc::new(ReflowGate::new(raidz.reflow()?, earlier_io)))
}

/// A pool's vdevs. Which leaves a top-level vdev has may change: whoever is at work on one goes on
/// with those that it had.
#[derive(Debug)]
pub struct VdevTree {
    tops: RwLock<Vec<TopVdev>>,
    counts_parity: AtomicBool,
    background_share: AtomicU64,
}

impl VdevTree {
    /// From the top-level vdevs in the order of their ids.
    pub fn new(nodes: Vec<VdevNode>) -> Self {
        let tops = RwLock::new(nodes.into_iter().map(TopVdev::new).collect());
        let background_share = AtomicU64::new(DEFAULT_BACKGROUND_SHARE);
        Self { tops, counts_parity: AtomicBool::new(false), background_share }
    }

    /// Has datasets be charged with parity, as in pools before version 3.
    pub fn set_counts_parity(&self) {
        self.counts_parity.store(true, Ordering::Relaxed);
    }

    /// Whether datasets are charged with parity.
    pub fn counts_parity(&self) -> bool {
        self.counts_parity.load(Ordering::Relaxed)
    }

    /// Has a top-level vdev be made up otherwise, which lays out blocks as it did.
    pub fn set_top(&self, vdev: VdevId, node: VdevNode) {
        let index = units::to_usize(vdev.get());
        self.apply_background_share(&node);
        if let Some(top) = self.tops.write().get_mut(index) {
            top.set_node(node);
        }
    }

    /// Sets how many of a hundred I/Os of a leaf are those of scans and all other long work while
    /// users have theirs: 1 to 50.
    pub fn set_background_share(&self, percent: u64) {
        self.background_share.store(percent, Ordering::Relaxed);
        self.tops.read().iter().for_each(|top| self.apply_background_share(&top.node));
    }

    fn apply_background_share(&self, node: &VdevNode) {
        let share = self.background_share.load(Ordering::Relaxed);
        node.leaves().into_iter().for_each(|leaf| leaf.set_background_share(share));
    }

    /// Changes a top-level vdev.
    pub(crate) fn with_top<R>(
        &self,
        vdev: VdevId,
        change: impl FnOnce(&mut TopVdev) -> R,
    ) -> Option<R> {
        let index = units::to_usize(vdev.get());
        self.tops.write().get_mut(index).map(change)
    }

    /// Adds a top-level vdev; returns its id.
    pub fn add_top(&self, node: VdevNode) -> VdevId {
        self.apply_background_share(&node);
        let mut tops = self.tops.write();
        tops.push(TopVdev::new(node));
        vdev_id(tops.len() - 1)
    }

    /// The top-level vdevs.
    pub fn tops(&self) -> Vec<(VdevId, Arc<VdevNode>)> {
        let tops = self.tops.read();
        tops.iter()
            .enumerate()
            .map(|(index, top)| (vdev_id(index), Arc::clone(&top.node)))
            .collect()
    }

    /// One of them.
    pub fn top(&self, vdev: VdevId) -> Option<Arc<VdevNode>> {
        self.top_vdev(vdev).map(|top| top.node)
    }

    pub(crate) fn top_vdev(&self, vdev: VdevId) -> Option<TopVdev> {
        self.tops.read().get(usize::try_from(vdev.get()).ok()?).cloned()
    }

    /// Keeps the sectors of a vdev where they are. None while a raidz expansion moves them.
    pub fn hold_layout(&self, vdev: VdevId) -> Option<LayoutHold> {
        self.top_vdev(vdev).filter(|top| top.reflow.is_none()).map(LayoutHold)
    }

    /// All leaves.
    pub fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.tops.read().iter().flat_map(|top| top.node.leaves()).cloned().collect()
    }

    /// Those that are there and may be written.
    pub fn writable_leaves(&self) -> Vec<Arc<Leaf>> {
        self.leaves().into_iter().filter(|leaf| leaf.is_writable()).collect()
    }

    /// The distributed spares that are in use. They have a DTL, and no device.
    pub fn distributed_spares(&self) -> Vec<Arc<Leaf>> {
        let tops = self.tops.read();
        tops.iter().flat_map(|top| top.node.distributed_spares()).cloned().collect()
    }

    /// The leaf or the distributed spare of that identity.
    pub fn leaf(&self, guid: Guid) -> Option<Arc<Leaf>> {
        let mut all = self.leaves().into_iter().chain(self.distributed_spares());
        all.find(|leaf| leaf.guid() == guid)
    }

    /// Has nothing written to any leaf from now on; what is on its way to one comes to its end.
    pub fn retire(&self) {
        self.leaves().iter().for_each(|leaf| leaf.retire());
    }

    /// Tells where the blocks of a removed vdev went. Without it they cannot be read.
    pub fn set_mapping(&self, vdev: VdevId, mapping: Arc<IndirectMapping>) {
        if let Some(NodeKind::Indirect(indirect)) = self.top(vdev).as_deref().map(|node| &node.kind)
        {
            indirect.set_mapping(mapping);
        }
    }

    /// Bytes that a block of `psize` takes on `vdev` if written in `birth`.
    pub fn asize(&self, vdev: VdevId, psize: u64, birth: Txg) -> Option<u64> {
        match &self.top(vdev)?.kind {
            NodeKind::Raidz(raidz, _) => Some(raidz.asize(psize, birth)),
            NodeKind::Draid(draid, _) => Some(draid.asize(psize)),
            NodeKind::Indirect(_)
            | NodeKind::Hole
            | NodeKind::Missing
            | NodeKind::DistributedSpare(_) => None,
            _ => Some(self.top(vdev)?.ashift().round_up(psize.max(1))),
        }
    }

    /// Reads the block that the judge accepts into `into`, which is as long as it. Faults that were
    /// met and got over are added to `faults`; after an error `into` holds anything.
    pub fn read(
        &self,
        vdev: VdevId,
        request: &ReadRequest<'_>,
        into: &mut [u8],
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        self.read_at_depth(vdev, request, into, faults, 0)
    }

    /// The same, some removed vdevs deep.
    pub(crate) fn read_at_depth(
        &self,
        vdev: VdevId,
        request: &ReadRequest<'_>,
        into: &mut [u8],
        faults: &mut Vec<LeafError>,
        depth: u32,
    ) -> Result<(), Error> {
        if into.len() != request.size {
            let (size, room) = (request.size, into.len());
            return Err(Error::InvalidAddress(format!(
                "room for {room} bytes of a block of {size}"
            )));
        }
        let top = self.top_vdev(vdev).ok_or(Error::NoVdev(vdev))?;
        let lock = top.lock_blocks(std::iter::once(request.block()));
        let position = lock.as_ref().map(|lock| lock.position);
        if let Some((map, draid)) = top.node.column_map(request, position)? {
            let (children, suspects) = (top.node.children(), &top.suspects);
            return raidz::ArrayBlock { map: &map, children, draid, suspects }
                .read(request, into, faults);
        }
        match &top.node.kind {
            NodeKind::Indirect(removed) => {
                indirect::read_indirect(self, vdev, removed, request, into, faults, depth)
            }
            NodeKind::Leaf(_)
            | NodeKind::Mirror(_)
            | NodeKind::Replacing(_)
            | NodeKind::Spare(_) => mirror::read_mirror(&top.node, request, into, faults),
            _ => Err(Error::NoVdev(vdev)),
        }
    }
}

impl VdevNode {
    /// Where the block's columns are, if this is an array.
    pub(crate) fn column_map(
        &self,
        request: &ReadRequest<'_>,
        position: Option<ReflowPosition>,
    ) -> Result<Option<(Map, Option<&Draid>)>, Error> {
        let (block, birth) = request.block();
        self.block_column_map(block, birth, position)
    }

    /// The same, for a block that was, or is to be, written in `birth`. `position` is that of a running
    /// expansion; the caller holds the lock that it read it with.
    pub(crate) fn block_column_map(
        &self,
        block: Block,
        birth: Txg,
        position: Option<ReflowPosition>,
    ) -> Result<Option<(Map, Option<&Draid>)>, Error> {
        let found = match &self.kind {
            NodeKind::Raidz(raidz, _) => {
                raidz.map_during(block, birth, position).map(|map| (map, None))
            }
            NodeKind::Draid(draid, _) => draid.map(block).map(|map| (map, Some(&**draid))),
            _ => return Ok(None),
        };
        found.map(Some).map_err(|error| Error::InvalidAddress(error.to_string()))
    }
}

fn vdev_id(index: usize) -> VdevId {
    VdevId::new(units::narrow::<u32>(index))
}
