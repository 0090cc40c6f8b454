//! What drives missed, noted in the pool: a drive that comes back is then known to lack it, here
//! and in OpenZFS.

use std::collections::BTreeMap;

use ondisk::label::VdevConfig;
use ondisk::spacemap::Action;
use txg::Tx;
use units::{Guid, ObjectId};
use vdev::TxgRanges;

use super::ActivePool;
use crate::features::{self, RefcountChange};
use crate::space::SpaceMapWriter;
use crate::{Error, Pool};

/// Bytes of the blocks of such a map.
const BLOCK_SIZE: u32 = 4096;
/// The feature that is active while the resilver of a leaf is deferred.
const RESILVER_DEFER: &str = "com.datto:resilver_defer";

impl ActivePool {
    /// Writes the maps of drives that have missed more, or less, than is noted; gives whether there
    /// were any.
    pub(super) fn write_dtls(&self, tx: &Tx) -> Result<bool, Error> {
        let mut any = false;
        let mut noted = self.synced_dtls.lock();
        let leaves = self.tree.leaves();
        for leaf in leaves.iter().filter(|leaf| !leaf.is_writable()) {
            // Rule W4: an absent leaf misses this txg, which is noted in the txg itself. If it were noted later, a
            // crash would leave a leaf that counts as whole and lacks the txg.
            let mut missed = leaf.dtl();
            missed.add(tx.txg(), tx.txg());
            leaf.set_dtl(missed);
        }
        for leaf in leaves.into_iter().chain(self.tree.distributed_spares()) {
            let away = leaf.dtl();
            let known = noted.entry(leaf.guid()).or_default();
            if *known == away {
                continue;
            }
            // nobody waits for the configuration while drives are waited for
            let map = {
                let config = self.config.lock();
                let root = config.current.tree.as_ref();
                root.and_then(|root| root.leaves().find(|entry| entry.guid == leaf.guid()))
                    .map(|entry| entry.dtl)
            };
            let Some(map) = map else { continue };
            let map = self.write_dtl_map(tx, map, &away)?;
            let mut config = self.config.lock();
            if let Some(entry) =
                config.current.tree.as_mut().and_then(|r| find_leaf_config(r, leaf.guid()))
            {
                entry.dtl = Some(map);
            }
            config.is_dirty = true;
            let no_longer_deferred = away.is_empty()
                && config
                    .current
                    .tree
                    .as_mut()
                    .is_some_and(|root| clear_resilver_deferred(root, leaf.guid()));
            drop(config);
            if no_longer_deferred {
                features::update_refcount(&self.mos, tx, RESILVER_DEFER, RefcountChange::Exact(0))?;
            }
            *known = away;
            any = true;
        }
        Ok(any)
    }

    fn write_dtl_map(
        &self,
        tx: &Tx,
        map: Option<ObjectId>,
        away: &TxgRanges,
    ) -> Result<ObjectId, Error> {
        // one that is damaged is left alone
        let mut map = match map.and_then(|map| self.open_emptied_map(tx, map).ok()) {
            Some(map) => map,
            None => SpaceMapWriter::create(&self.mos, tx, BLOCK_SIZE, false)?,
        };
        let mut appendix = map.appendix(false);
        let ranges = || away.iter().map(|(first, last)| first.get()..last.get() + 1);
        let total = ranges().fold(0_u64, |sum, range| sum + (range.end - range.start));
        appendix.push_ranges((Action::Allocated, tx.txg(), 1), None, ranges())?;
        map.append(tx, &appendix, units::narrow::<i64>(total))?;
        let id = map.id();
        map.finish(tx)?;
        Ok(id)
    }

    fn open_emptied_map(&self, tx: &Tx, map: ObjectId) -> Result<SpaceMapWriter, Error> {
        let mut map = SpaceMapWriter::open(&self.mos, map)?;
        map.truncate(tx)?;
        Ok(map)
    }
}

/// Clears the deferral of a leaf's resilver, which is done. Returns whether it was the last deferral.
fn clear_resilver_deferred(root: &mut VdevConfig, guid: Guid) -> bool {
    let deferred = |leaf: &mut VdevConfig| std::mem::take(&mut leaf.state.resilver_deferred);
    let was_deferred = find_leaf_config(root, guid).is_some_and(deferred);
    was_deferred && !root.leaves().any(|leaf| leaf.state.resilver_deferred)
}

fn find_leaf_config(vdev: &mut VdevConfig, guid: Guid) -> Option<&mut VdevConfig> {
    if vdev.guid == guid && vdev.children.is_empty() {
        return Some(vdev);
    }
    vdev.children.iter_mut().find_map(|child| find_leaf_config(child, guid))
}

/// Has the leaves of a pool take part from now on; what each missed while it was away is known. Returns what
/// the pool has noted of that.
pub(super) fn rejoin_leaves(pool: &Pool) -> BTreeMap<Guid, TxgRanges> {
    let leaves = pool.tree.leaves().into_iter().chain(pool.tree.distributed_spares());
    let noted = leaves.map(|leaf| (leaf.guid(), leaf.dtl())).collect();
    for leaf in pool.tree.writable_leaves() {
        leaf.rejoin(pool.uberblock.txg);
    }
    noted
}

#[cfg(test)]
mod tests {
    use ondisk::label::{VdevConfig, VdevKind};
    use units::Guid;

    use super::clear_resilver_deferred;

    #[test]
    fn last_deferred_leaf_ends_deferral() {
        let mut root = VdevConfig::new(VdevKind::Root);
        for guid in 1..=3 {
            let mut leaf = VdevConfig::new(VdevKind::Disk);
            leaf.guid = Guid::new(guid);
            leaf.state.resilver_deferred = guid > 1;
            root.children.push(leaf);
        }
        let ended = [1, 2, 3, 3].map(|guid| clear_resilver_deferred(&mut root, Guid::new(guid)));
        assert_eq!(ended, [false, false, true, false]);
    }
}
