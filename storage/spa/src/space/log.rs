//! The log of changes (log space maps): changes that are in no metaslab's own map yet.
//!
//! One space map a txg, listed in a table by txg (in hexadecimal). A metaslab's changes count from
//! its unflushed txg on; older ones are in its own map. 0 means that it has none in the log.

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
    pub(crate) fn apply(&mut self, action: Action, range: Range<u64>) {
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
        for part in news.iter() {
            done.insert(part);
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
        space_map_entries(map, &mut |entry| {
            let Entry::Range { action, vdev: Some(vdev), .. } = entry else { return };
            let Some((start, length)) = entry.bytes(LOG_SHIFT, 0) else { return };
            let range = start..start + length;
            let Some(top) = tops.get(&vdev) else { return };
            let index = start.checked_shr(top.metaslab_shift).unwrap_or(0);
            let Ok(metaslab) = u32::try_from(index).map(MetaslabId::new) else { return };
            let since = usize::try_from(index).ok().and_then(|at| top.unflushed_txgs.get(at));
            if since.is_none_or(|since| txg >= *since) {
                self.changes.entry((vdev, metaslab)).or_default().apply(action, range);
            }
        })?;
        Ok(())
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
    use super::LoggedChanges;
    use ondisk::spacemap::Action;

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
}
