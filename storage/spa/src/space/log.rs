//! The log of changes (log space maps): changes that are in no metaslab's own map yet.
//!
//! One space map a txg, listed in a table by txg (in hexadecimal). A metaslab's changes count from
//! its unflushed txg on; older ones are in its own map. 0 means that it has none in the log: entries there are of
//! an earlier vdev with the same number.
//!
//! A range that is allocated twice, or freed twice, makes the log useless: an import is refused, as blocks would be
//! overwritten otherwise. OpenZFS panics there.

use std::collections::BTreeMap;
use std::ops::Range;

use dmu::{Object, Objset};
use metaslab::RangeSet;
use ondisk::spacemap::{Action, Entry, parse_unflushed_txgs};
use ondisk::{Blkptr, Order};
use units::{BlockId, MetaslabId, ObjectId, Txg, VdevId};
use zap::Zap;

use crate::space::space_map_entries;
use crate::{Error, PoolDirectory};

/// Entries of a log are in units of 512 bytes.
pub(crate) const LOG_SHIFT: u32 = 9;
/// The directory's entry for the table of logs.
pub(crate) const LOG_ZAP_ENTRY: &str = "com.delphix:log_spacemap_zap";
/// A vdev's entry for the array of unflushed txgs.
pub(crate) const UNFLUSHED_TXGS_ENTRY: &[u8] = b"com.delphix:ms_unflushed_phys_txgs";
/// The most blocks of an array of metaslabs.
const MAX_ARRAY_BLOCKS: u64 = 1 << 14;

/// The logged changes of one metaslab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoggedChanges {
    pub(crate) allocated: RangeSet,
    pub(crate) freed: RangeSet,
}

impl LoggedChanges {
    /// Applies a change. Returns whether it fits those before: nothing is allocated twice, or freed twice.
    pub(crate) fn apply(&mut self, action: Action, range: Range<u64>) -> bool {
        // what undoes an earlier change takes it out again, and only the rest is news
        let (undone, done) = match action {
            Action::Allocated => (&mut self.freed, &mut self.allocated),
            Action::Freed => (&mut self.allocated, &mut self.freed),
        };
        let known = undone.intersection(&range);
        undone.remove(&range);
        let mut news = RangeSet::from_range(range);
        for part in &known {
            news.remove(part);
        }
        let mut is_sound = true;
        for part in news.iter() {
            is_sound &= !done.overlaps(&part);
            done.insert(part);
        }
        is_sound
    }

    /// Applies the changes that followed these.
    pub(crate) fn apply_all(&mut self, later: &Self) {
        for range in later.allocated.iter() {
            self.apply(Action::Allocated, range);
        }
        for range in later.freed.iter() {
            self.apply(Action::Freed, range);
        }
    }

    /// The net allocated bytes beyond the metaslab's own map.
    pub(crate) fn net_allocated(&self) -> i64 {
        let bytes = |ranges: &RangeSet| i64::try_from(ranges.total()).unwrap_or(i64::MAX);
        bytes(&self.allocated) - bytes(&self.freed)
    }
}

/// The log as it was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpaceLog {
    /// The table of logs.
    pub(crate) zap: Option<ObjectId>,
    /// The logs, by their txg.
    pub(crate) logs: BTreeMap<Txg, ObjectId>,
    /// Their changes, metaslab by metaslab.
    pub(crate) changes: BTreeMap<(VdevId, MetaslabId), LoggedChanges>,
    /// Since when each metaslab that was ever logged has its changes in the log.
    pub(crate) unflushed_since: BTreeMap<(VdevId, MetaslabId), Txg>,
    /// The changes that are being flushed to the metaslabs' own maps with a txg that is not on disk
    /// yet.
    pub(crate) flushing: BTreeMap<(VdevId, MetaslabId), LoggedChanges>,
}

/// A vdev as its entries in the log have to be understood.
pub(crate) struct LoggedVdev {
    pub(crate) metaslab_shift: u32,
    pub(crate) metaslab_count: usize,
    /// Since when each metaslab has changes in the log.
    pub(crate) unflushed_txgs: Vec<Txg>,
}

impl SpaceLog {
    /// Reads all of it. Entries of vdevs that are not in `tops` (they were removed) are left out.
    pub(crate) fn read(
        directory: &PoolDirectory,
        mos: &Objset,
        tops: &BTreeMap<VdevId, LoggedVdev>,
    ) -> Result<Self, Error> {
        let mut log = Self::default();
        for (vdev, top) in tops {
            for (index, txg) in (0_u32..).zip(&top.unflushed_txgs).filter(|(_, txg)| !txg.is_zero())
            {
                log.unflushed_since.insert((*vdev, MetaslabId::new(index)), *txg);
            }
        }
        let Some(table) = directory.object(LOG_ZAP_ENTRY)? else { return Ok(log) };
        log.zap = Some(table.id());
        let mut maps = Vec::new();
        for entry in Zap::open(table)?.entries() {
            let entry = entry?;
            let txg = std::str::from_utf8(&entry.name).ok();
            let txg = txg.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let (Some(txg), Some(map)) = (txg, entry.value.u64()) else {
                return Err(Error::SpaceLog {
                    name: String::from_utf8_lossy(&entry.name).into_owned(),
                });
            };
            maps.push((Txg::new(txg), ObjectId::new(map)));
        }
        maps.sort_unstable();
        for (txg, map) in maps {
            log.apply_log(&mos.object(map)?, txg, tops)?;
            log.logs.insert(txg, map);
        }
        Ok(log)
    }

    fn apply_log(
        &mut self,
        map: &Object,
        txg: Txg,
        tops: &BTreeMap<VdevId, LoggedVdev>,
    ) -> Result<(), Error> {
        let mut contradiction = None;
        space_map_entries(map, &mut |entry| {
            let Entry::Range { action, vdev: Some(vdev), .. } = entry else { return };
            let Some(top) = tops.get(&vdev) else { return };
            let Some((metaslab, range)) = top.locate(&entry) else {
                contradiction.get_or_insert(Error::SpaceLogRange { txg, vdev });
                return;
            };
            let since = top.unflushed_txgs.get(units::to_usize(metaslab.get()));
            if since.is_none_or(|since| since.is_zero() || txg < *since) {
                return;
            }
            if !self.changes.entry((vdev, metaslab)).or_default().apply(action, range) {
                contradiction.get_or_insert(Error::SpaceLogContradiction { vdev, metaslab });
            }
        })?;
        contradiction.map_or(Ok(()), Err)
    }
}

impl LoggedVdev {
    /// The metaslab of an entry, and its bytes; none if it is not within one metaslab.
    fn locate(&self, entry: &Entry) -> Option<(MetaslabId, Range<u64>)> {
        let (start, length) = entry.bytes(LOG_SHIFT, 0)?;
        let end = start.checked_add(length)?;
        let index = start.checked_shr(self.metaslab_shift)?;
        let is_within = end.checked_sub(1)?.checked_shr(self.metaslab_shift)? == index;
        let metaslab = u32::try_from(index).ok().map(MetaslabId::new)?;
        let exists = units::to_usize(metaslab.get()) < self.metaslab_count;
        (is_within && exists).then_some((metaslab, start..end))
    }
}

/// Since when each metaslab of the vdev with that table has changes in the log.
pub(crate) fn read_unflushed_txgs(
    mos: &Objset,
    top_zap: Option<ObjectId>,
) -> Result<Vec<Txg>, Error> {
    let Some(table) = top_zap else { return Ok(Vec::new()) };
    let Some(id) = Zap::open(mos.object(table)?)?.lookup_u64(UNFLUSHED_TXGS_ENTRY)? else {
        return Ok(Vec::new());
    };
    let object = mos.object(ObjectId::new(id))?;
    let size = units::to_usize(object.block_size());
    let mut order = match mos.root() {
        Blkptr::Regular(root) => root.order,
        _ => Order::Little,
    };
    let mut all = Vec::new();
    for number in 0..=object.max_block().get().min(MAX_ARRAY_BLOCKS) {
        match object.block(BlockId::new(number))? {
            Some(block) => {
                order = block.order();
                all.extend_from_slice(&block);
            }
            None => all.resize(all.len() + size, 0),
        }
    }
    Ok(parse_unflushed_txgs(&all, order))
}

#[cfg(test)]
mod tests {
    use ondisk::spacemap::{Action, Entry};
    use units::{MetaslabId, VdevId};

    use super::{LoggedChanges, LoggedVdev};

    #[test]
    fn allocation_and_free_cancel_out() {
        let mut logged = LoggedChanges::default();
        logged.apply(Action::Allocated, 0..100);
        logged.apply(Action::Freed, 50..150);
        assert_eq!(logged.allocated.iter().collect::<Vec<_>>(), vec![0..50]);
        assert_eq!(logged.freed.iter().collect::<Vec<_>>(), vec![100..150]);
        logged.apply(Action::Allocated, 100..150);
        assert_eq!((logged.net_allocated(), logged.freed.len()), (50, 0));
    }

    #[test]
    fn range_changes_hands_once() {
        let mut logged = LoggedChanges::default();
        assert!(logged.apply(Action::Allocated, 0..100));
        assert!(logged.apply(Action::Freed, 50..150), "100..150 was allocated in the map");
        assert!(!logged.apply(Action::Freed, 140..160), "freed twice");
        assert!(!logged.apply(Action::Allocated, 0..60), "allocated twice");
        assert!(logged.apply(Action::Allocated, 200..300));
    }

    #[test]
    fn entry_lies_within_one_metaslab() {
        let top = LoggedVdev { metaslab_shift: 20, metaslab_count: 4, unflushed_txgs: Vec::new() };
        let at = |offset: u64, length: u64| {
            let vdev = Some(VdevId::new(0));
            top.locate(&Entry::Range { action: Action::Freed, vdev, offset, length })
        };
        let second = (MetaslabId::new(1), 1 << 20..(1 << 20) + 512);
        assert_eq!(at(2048, 1), Some(second));
        assert_eq!(at(2047, 2), None, "over the end of a metaslab");
        assert_eq!(at(4 * 2048, 1), None, "behind the last metaslab");
        assert_eq!(at(u64::MAX / 512, 1), None, "behind the end of all numbers");
    }
}
