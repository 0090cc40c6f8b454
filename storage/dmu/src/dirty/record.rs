//! A dirty object: its tree on the drives, and the changes of every txg since.
//!
//! Each fact has one version per txg that changed it, oldest first. Readers see the newest version;
//! the sync of a closed txg writes that txg's version. A change made in one txg is made in all
//! later versions too.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ondisk::Blkptr;
use ondisk::dnode::Dnode;
use parking_lot::RwLock;
use units::{ObjectId, Txg};
use zio::{Block, RawBlock};

use crate::Result;
use crate::dirty::write_through::{InFlightWrite, WriteThroughBlock};
use crate::tree::DnodeTree;

/// An object of a live object set.
#[derive(Debug)]
pub(crate) struct DirtyObject {
    pub(crate) id: ObjectId,
    pub(crate) state: RwLock<DirtyState>,
}

/// The state of an object as a whole in a txg.
#[derive(Clone, Debug)]
pub(crate) struct DnodeVersion {
    /// The dnode; none if the object was freed. Its pointers and its space may be older.
    pub(crate) dnode: Option<Dnode>,
    /// The part of the earlier content that survives.
    pub(crate) reuse: BaseReuse,
}

/// The part of an object's earlier content that a txg keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BaseReuse {
    /// All that it does not change.
    All,
    /// Its block size changed: of its tree nothing, but the spill.
    SpillOnly,
    /// It was made, or freed: nothing.
    Nothing,
}

/// The state of a block in a txg.
#[derive(Clone, Debug)]
pub(crate) enum BlockVersion {
    /// Its bytes.
    Bytes(Block),
    /// It is a block that is on the drives already: a clone.
    Cloned(Arc<OverriddenBlock>),
    /// It is on the drives already, and the group only brings the pointer to it.
    WrittenThrough(Arc<WriteThroughBlock>),
    /// It is on its way there.
    InFlight(Arc<InFlightWrite>),
    /// Its stored bytes, as a raw stream brought them.
    Raw(Block, Arc<RawBlock>),
}

/// A block on the drives to which a group brings a pointer: one that an object shares with another,
/// or its own.
pub(crate) struct OverriddenBlock {
    /// The pointer that it gets.
    pub(crate) pointer: Blkptr,
    /// Reads it, as a block of the object that it was of first.
    source: Arc<DnodeTree>,
}

impl std::fmt::Debug for OverriddenBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({:?})", self.pointer)
    }
}

impl OverriddenBlock {
    pub(crate) fn new(pointer: Blkptr, source: Arc<DnodeTree>) -> Arc<Self> {
        Arc::new(Self { pointer, source })
    }

    /// Its bytes.
    pub(crate) fn read(&self, block: u64) -> Result<Block> {
        self.source.fetch(&self.pointer, 0, block)
    }
}

/// Versions of a fact, by group, oldest first; few.
pub(crate) type TxgVersions<T> = Vec<(Txg, T)>;

#[derive(Default)]
pub(crate) struct DirtyState {
    /// The tree on the drives; none if the object is not there.
    pub(crate) base: Option<Arc<DnodeTree>>,
    dnodes: TxgVersions<DnodeVersion>,
    /// The newest facts for openers of the object: computed at first use.
    current_tree: OnceLock<Arc<DnodeTree>>,
    pub(crate) blocks: BTreeMap<u64, TxgVersions<BlockVersion>>,
    /// Blocks that became holes.
    pub(crate) freed_ranges: TxgVersions<Range<u64>>,
    pub(crate) spill: TxgVersions<Option<Block>>,
    /// How the spills were encrypted that a raw stream brought.
    pub(crate) raw_spill: TxgVersions<RawBlock>,
}

impl std::fmt::Debug for DirtyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "State({} blocks dirty, freed {:?})", self.blocks.len(), self.freed_ranges)
    }
}

/// Where a block's content is to be had.
pub(crate) enum BlockLocation {
    /// Here.
    InMemory(Block),
    /// On the drives, though the object's tree does not lead there yet.
    Overridden(Arc<OverriddenBlock>),
    /// On its way to the drives.
    InFlight(Arc<InFlightWrite>),
    /// Nowhere: zeros.
    Hole,
    /// Here, but encrypted.
    Encrypted,
    /// On the drives.
    OnDisk(Arc<DnodeTree>),
}

/// Where a spill is to be had.
pub(crate) enum SpillLocation {
    /// Here, if there is one.
    InMemory(Option<Block>),
    /// On the drives, if there is one.
    OnDisk(Option<Blkptr>),
}

impl DirtyObject {
    pub(crate) fn new(id: ObjectId, base: Option<Arc<DnodeTree>>) -> Self {
        Self { id, state: RwLock::new(DirtyState { base, ..DirtyState::default() }) }
    }
}

impl DirtyState {
    /// The versions of the object as a whole.
    pub(crate) fn dnode_versions(&self) -> &TxgVersions<DnodeVersion> {
        &self.dnodes
    }

    /// The same, mutable.
    pub(crate) fn dnode_versions_mut(&mut self) -> &mut TxgVersions<DnodeVersion> {
        self.current_tree.take();
        &mut self.dnodes
    }

    /// The object's present dnode, and its tree on the drives; none if the object does not exist.
    /// `make` creates the tree of a dnode.
    pub(crate) fn tree(
        &self,
        make: impl FnOnce(Dnode) -> Arc<DnodeTree>,
    ) -> Option<Arc<DnodeTree>> {
        let Some((_, newest)) = self.dnodes.last() else { return self.base.clone() };
        let dnode = newest.dnode.as_ref()?;
        Some(Arc::clone(self.current_tree.get_or_init(|| make(dnode.clone()))))
    }

    /// The object's present dnode; none if it does not exist.
    pub(crate) fn dnode(&self) -> Option<&Dnode> {
        match self.dnodes.last() {
            Some((_, facts)) => facts.dnode.as_ref(),
            None => self.base.as_ref().map(|tree| &tree.dnode),
        }
    }

    /// Whether any group has something to write.
    pub(crate) fn is_dirty(&self) -> bool {
        !(self.dnodes.is_empty()
            && self.blocks.is_empty()
            && self.freed_ranges.is_empty()
            && self.spill.is_empty())
    }

    /// Where a block is to be had now.
    pub(crate) fn lookup_block(&self, block: u64) -> BlockLocation {
        let written = self.blocks.get(&block).and_then(|versions| versions.last());
        let gone = self.freed_txg(block);
        match written {
            Some((txg, content)) if gone.is_none_or(|gone| *txg >= gone) => match content {
                BlockVersion::Bytes(content) => BlockLocation::InMemory(content.clone()),
                BlockVersion::Cloned(clone) => BlockLocation::Overridden(Arc::clone(clone)),
                BlockVersion::WrittenThrough(stored) => {
                    BlockLocation::Overridden(Arc::clone(stored.overridden()))
                }
                BlockVersion::InFlight(coming) => BlockLocation::InFlight(Arc::clone(coming)),
                BlockVersion::Raw(..) => BlockLocation::Encrypted,
            },
            _ if gone.is_some() => BlockLocation::Hole,
            _ => self
                .base
                .as_ref()
                .map_or(BlockLocation::Hole, |base| BlockLocation::OnDisk(Arc::clone(base))),
        }
    }

    /// The last group in which a block became a hole, if one did.
    fn freed_txg(&self, block: u64) -> Option<Txg> {
        let freed = self.freed_ranges.iter().rev().find(|(_, range)| range.contains(&block));
        let afresh = self.dnodes.iter().rev().find(|(_, facts)| facts.reuse != BaseReuse::All);
        freed.map(|(txg, _)| *txg).max(afresh.map(|(txg, _)| *txg))
    }

    /// Where the spill is to be had now.
    pub(crate) fn lookup_spill(&self) -> SpillLocation {
        let made = self.dnodes.iter().rev().find(|(_, facts)| facts.reuse == BaseReuse::Nothing);
        let made = made.map(|(txg, _)| *txg);
        match self.spill.last() {
            Some((txg, spill)) if made.is_none_or(|made| *txg >= made) => {
                SpillLocation::InMemory(spill.clone())
            }
            _ if made.is_some() => SpillLocation::InMemory(None),
            _ => {
                SpillLocation::OnDisk(self.base.as_ref().and_then(|base| base.dnode.spill.clone()))
            }
        }
    }

    /// Up to where nothing of the drives is seen behind a block that is a hole here.
    pub(crate) fn hole_end(&self, block: u64) -> u64 {
        let afresh = self.dnodes.iter().any(|(_, facts)| facts.reuse != BaseReuse::All);
        if afresh || self.base.is_none() {
            return u64::MAX;
        }
        let around = self.freed_ranges.iter().filter(|(_, range)| range.contains(&block));
        around.map(|(_, range)| range.end).max().unwrap_or_else(|| block + 1)
    }

    /// The first block from `from` on that is in memory and no hole.
    pub(crate) fn next_dirty_block(&self, from: u64) -> Option<u64> {
        let mut found = self.blocks.range(from..);
        found.find_map(|(block, _)| {
            let seen = self.lookup_block(*block);
            matches!(
                seen,
                BlockLocation::InMemory(_)
                    | BlockLocation::Overridden(_)
                    | BlockLocation::InFlight(_)
                    | BlockLocation::Encrypted
            )
            .then_some(*block)
        })
    }

    /// The version of a txg and all later ones, mutable. It is made from `before` (the state before
    /// the txg) if the txg has none yet. The flag tells whether it was made.
    pub(crate) fn versions_from<T: Clone>(
        versions: &mut TxgVersions<T>,
        txg: Txg,
        before: impl FnOnce(Option<&T>) -> T,
    ) -> (bool, &mut [(Txg, T)]) {
        let at = versions.partition_point(|(known, _)| *known < txg);
        let made = versions.get(at).is_none_or(|(known, _)| *known != txg);
        if made {
            let older = at.checked_sub(1).and_then(|older| versions.get(older));
            let first = before(older.map(|(_, fact)| fact));
            versions.insert(at, (txg, first));
            let ascend = versions.is_sorted_by(|(one, _), (next, _)| one < next);
            assert!(ascend, "a fact has one version a txg, the oldest first");
        }
        (made, versions.get_mut(at..).unwrap_or_default())
    }

    /// Changes the facts of a group and of all later ones.
    pub(crate) fn change_dnode(&mut self, txg: Txg, change: &dyn Fn(&mut Dnode)) {
        let base = self.base.as_ref().map(|tree| tree.dnode.clone());
        let before = |older: Option<&DnodeVersion>| match older {
            Some(facts) => DnodeVersion { dnode: facts.dnode.clone(), reuse: BaseReuse::All },
            None => DnodeVersion { dnode: base, reuse: BaseReuse::All },
        };
        let (_, versions) = Self::versions_from(self.dnode_versions_mut(), txg, before);
        for dnode in versions.iter_mut().filter_map(|(_, facts)| facts.dnode.as_mut()) {
            change(dnode);
        }
    }

    /// A txg is on the drives: its changes are in the tree below now.
    pub(crate) fn finish_txg(&mut self, txg: Txg, base: Option<Arc<DnodeTree>>) {
        let mut has_tree = true;
        for (_, facts) in self.dnode_versions_mut().iter_mut().filter(|(known, _)| *known > txg) {
            // a re-created object has no part of this tree
            let (Some(base), Some(dnode)) = (&base, &mut facts.dnode) else { break };
            if facts.reuse == BaseReuse::Nothing {
                break;
            }
            dnode.spill.clone_from(&base.dnode.spill);
            has_tree &= facts.reuse == BaseReuse::All;
            if has_tree {
                dnode.pointers.clone_from(&base.dnode.pointers);
                dnode.levels = base.dnode.levels;
                dnode.used_bytes = base.dnode.used_bytes;
            }
        }
        // Rule: the later versions got the pointers of the new tree above. With older ones their sync would
        // refer to blocks that this txg freed, and a crash would leave a tree that leads to reused space.
        self.base = base;
        let is_older = |known: &Txg| *known < txg;
        assert!(
            !self.dnodes.iter().any(|(known, _)| is_older(known))
                && !self.freed_ranges.iter().any(|(known, _)| is_older(known))
                && !self.spill.iter().any(|(known, _)| is_older(known)),
            "each txg is synced with all objects that it changed"
        );
        self.dnode_versions_mut().retain(|(known, _)| *known != txg);
        self.freed_ranges.retain(|(known, _)| *known != txg);
        self.spill.retain(|(known, _)| *known != txg);
        self.raw_spill.retain(|(known, _)| *known != txg);
        self.blocks.retain(|_, versions| {
            let oldest = versions.first();
            assert!(oldest.is_none_or(|(known, _)| *known >= txg), "no txg leaves a block behind");
            versions.retain(|(known, _)| *known != txg);
            !versions.is_empty()
        });
    }

    /// No txg will refer to the eagerly written blocks.
    pub(crate) fn discard_written_through(&self) {
        for (_, content) in self.blocks.values().flatten() {
            if let BlockVersion::WrittenThrough(stored) = content {
                stored.discard();
            }
        }
    }

    /// Forgets every block version of a group and of later ones within a range.
    pub(crate) fn drop_block_versions(&mut self, txg: Txg, range: Range<u64>) {
        let mut empty = Vec::new();
        for (block, versions) in self.blocks.range_mut(range) {
            versions.retain(|(known, _)| *known < txg);
            if versions.is_empty() {
                empty.push(*block);
            }
        }
        for block in empty {
            self.blocks.remove(&block);
        }
    }
}
