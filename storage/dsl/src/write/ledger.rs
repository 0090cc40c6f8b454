//! Accounts for a dataset's written blocks: the dataset's record, and the space of directories.

use std::collections::{BTreeMap, BTreeSet};

use dmu::BlockLedger;
use ondisk::Blkptr;
use ondisk::blkptr::{Checksum, Compression};
use ondisk::dsl::Dataset as DatasetPhys;
use ondisk::feature::Feature;
use parking_lot::Mutex;
use units::{ObjectId, ObjsetId, Txg};

use super::bpobj::BpobjItem;
use super::context::SyncTaskContext;
use super::space::{SpaceDelta, UsedBy, add_signed, parent_delta};
use super::{bookmark, create, deadlist, limits, livelist};
use crate::Result;

/// The account of one head, from the first block of it that is written in a txg to the last.
///
/// The object set reports every birth and every death of a block to it, also of its own root block.
/// A block that no snapshot references is freed at once; others go to the head's deadlist.
/// [`DatasetLedger::finish`] writes the sums.
pub struct DatasetLedger<'a> {
    dataset: ObjectId,
    dir: ObjectId,
    /// Blocks born after this are in no snapshot.
    previous_txg: Txg,
    /// Blocks born after this only the previous snapshot and the head reach; `None` where another
    /// dataset follows that snapshot too.
    prev_unique_txg: Option<Txg>,
    /// Blocks born after this belong to the directory and not to the origin.
    origin_txg: Txg,
    livelist: Option<ObjectId>,
    has_bookmarks: bool,
    free_block: &'a (dyn Fn(&Blkptr) + Sync),
    dsize: &'a (dyn Fn(&Blkptr) -> u64 + Sync),
    totals: Mutex<LedgerTotals>,
}

#[derive(Default)]
struct LedgerTotals {
    born: SpaceDelta,
    /// Died, and was in no snapshot.
    freed: SpaceDelta,
    /// Died, and is in a snapshot.
    deadlist_items: Vec<BpobjItem>,
    deadlist_space: SpaceDelta,
    /// Of these, what only the previous snapshot reaches from now on.
    prev_unique: i64,
    /// The directory's own share of these.
    to_snapshots: i64,
    /// For bookmarks: what died, by birth.
    killed_by_birth: BTreeMap<Txg, SpaceDelta>,
    livelist_allocs: Vec<BpobjItem>,
    livelist_frees: Vec<BpobjItem>,
    active_features: BTreeSet<&'static str>,
    /// Features that it no longer uses.
    inactive_features: BTreeSet<&'static str>,
}

impl LedgerTotals {
    /// Asserts that sums which were kept apart agree.
    fn assert_agree(&self, change: &SyncTaskContext<'_>, has_bookmarks: bool) {
        let spaces = self.deadlist_items.iter().map(|item| change.space_of(&item.pointer));
        let listed = spaces.fold(SpaceDelta::default(), std::ops::Add::add);
        assert_eq!(listed, self.deadlist_space, "the deadlist has the space that died");
        let died = self.killed_by_birth.values().copied();
        let died = died.fold(SpaceDelta::default(), std::ops::Add::add);
        let all = self.freed + self.deadlist_space;
        assert!(!has_bookmarks || died == all, "a block that dies is freed or in the deadlist");
        assert!(
            self.prev_unique <= self.deadlist_space.used
                && self.to_snapshots <= self.deadlist_space.used,
            "snapshots get no more than died"
        );
        assert!(
            self.prev_unique >= 0 && self.to_snapshots >= 0 && self.freed.used >= 0,
            "blocks that died give space back: {} unique, {} to snapshots, {} freed",
            self.prev_unique,
            self.to_snapshots,
            self.freed.used
        );
    }
}

impl std::fmt::Debug for DatasetLedger<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetLedger({})", self.dataset)
    }
}

impl<'a> DatasetLedger<'a> {
    /// Begins the account of a head.
    pub fn new(change: &SyncTaskContext<'a>, dataset: ObjsetId) -> Result<Self> {
        let id = ObjectId::new(dataset.get());
        let record = change.dataset_phys(id)?;
        let dir = change.dir_phys(record.dir)?;
        let previous = change.previous_snapshot(&record)?.map(|(_, previous)| previous);
        let follows = previous.filter(|previous| previous.next == id);
        let origin =
            if dir.origin.exists() { Some(change.dataset_phys(dir.origin)?) } else { None };
        Ok(Self {
            dataset: id,
            dir: record.dir,
            previous_txg: record.previous_txg,
            prev_unique_txg: follows.map(|previous| previous.previous_txg),
            origin_txg: origin.map_or(Txg::ZERO, |origin| origin.creation_txg),
            livelist: livelist::find(change, record.dir)?,
            has_bookmarks: change.zap_field_object(id, DatasetPhys::BOOKMARKS)?.is_some(),
            free_block: change.free_block,
            dsize: change.dsize,
            totals: Mutex::new(LedgerTotals::default()),
        })
    }

    fn space_of(&self, pointer: &Blkptr) -> SpaceDelta {
        SpaceDelta::of_block(pointer, &self.dsize)
    }

    fn is_in_livelist(&self, pointer: &Blkptr) -> bool {
        let there = matches!(pointer, Blkptr::Regular(_));
        there && self.livelist.is_some() && pointer.birth() > self.origin_txg
    }

    /// Activates a feature of the head at the request of an upper crate (accounting of objects by
    /// owner, large dnodes, ...).
    pub fn activate_feature(&self, feature: &'static Feature) {
        self.totals.lock().active_features.insert(feature.guid);
    }

    /// Deactivates a feature of the head, if it is active.
    pub fn deactivate_feature(&self, feature: &'static Feature) {
        self.totals.lock().inactive_features.insert(feature.guid);
    }

    /// Writes the account down. `root` is the head's root block from now on.
    pub fn finish(self, change: &SyncTaskContext<'_>, root: &Blkptr) -> Result<()> {
        let sums = self.totals.into_inner();
        sums.assert_agree(change, self.has_bookmarks);
        let reservation = limits::head_limits(change, self.dir)?.refreservation;
        let (from, to) = (UsedBy::Refreservation, UsedBy::Head);
        let own = sums.born - sums.freed;
        // Rule: the head's record, its directory, its deadlist and the new root change in the same txg. A crash
        // between them would leave space that nothing counts, or that is counted twice.
        let (counted, previous, list) = change.update_dataset(self.dataset, |head| {
            let counted = parent_delta(head.unique, own.used, reservation);
            let delta = own - sums.deadlist_space;
            delta.add_to([&mut head.referenced, &mut head.compressed, &mut head.uncompressed]);
            add_signed(&mut head.unique, own.used);
            head.root = root.clone();
            (counted, head.previous, head.deadlist)
        })?;
        if own != SpaceDelta::default() {
            let delta = SpaceDelta { used: counted, ..own };
            change.transfer_space(self.dir, delta, own.used, [from, to])?;
        }
        if sums.prev_unique != 0 {
            change.update_dataset(previous, |previous| {
                add_signed(&mut previous.unique, sums.prev_unique);
            })?;
        }
        change.move_space(self.dir, sums.to_snapshots, [UsedBy::Head, UsedBy::Snapshots])?;
        deadlist::insert(change, list, sums.deadlist_items)?;
        if let Some(livelist) = self.livelist {
            let mut items = sums.livelist_allocs;
            items.extend(sums.livelist_frees);
            if !items.is_empty() {
                livelist::insert(change, livelist, items)?;
            }
            livelist::remove_if_unshared(change, self.dir)?;
        }
        if self.has_bookmarks {
            let died: Vec<_> = sums.killed_by_birth.into_iter().collect();
            bookmark::record_killed(change, self.dataset, &died)?;
        }
        for feature in sums.active_features.iter().filter_map(|guid| Feature::by_guid(guid)) {
            create::ensure_feature_active(change, self.dataset, feature)?;
        }
        for feature in sums.inactive_features.iter().filter_map(|guid| Feature::by_guid(guid)) {
            if change.zap_field(self.dataset, feature.guid)?.is_some() {
                create::deactivate_feature(change, self.dataset, feature)?;
            }
        }
        Ok(())
    }
}

impl BlockLedger for DatasetLedger<'_> {
    fn block_born(&self, pointer: &Blkptr) {
        if matches!(pointer, Blkptr::Hole(_) | Blkptr::Redacted(_)) {
            return;
        }
        let space = self.space_of(pointer);
        let listed = self.is_in_livelist(pointer);
        let mut sums = self.totals.lock();
        sums.born = sums.born + space;
        sums.active_features.extend(block_features(pointer));
        if listed {
            sums.livelist_allocs.push(BpobjItem { pointer: pointer.clone(), is_free: false });
        }
    }

    fn dsize(&self, pointer: &Blkptr) -> u64 {
        (self.dsize)(pointer)
    }

    fn block_rewritten(&self, before: &Blkptr, now: &Blkptr) {
        assert_eq!(before.birth(), now.birth(), "a block is rewritten in the txg of its birth");
        let listed = self.is_in_livelist(now);
        let more = self.space_of(now) - self.space_of(before);
        let mut sums = self.totals.lock();
        sums.born = sums.born + more;
        // the block may be compressed or checked in another way than the one it replaces
        sums.active_features.extend(block_features(now));
        if listed && more != SpaceDelta::default() {
            sums.livelist_allocs.push(BpobjItem { pointer: now.clone(), is_free: false });
            sums.livelist_frees.push(BpobjItem { pointer: before.clone(), is_free: true });
        }
    }

    fn block_kill(&self, pointer: &Blkptr) {
        if matches!(pointer, Blkptr::Hole(_) | Blkptr::Redacted(_)) {
            return;
        }
        let (space, birth) = (self.space_of(pointer), pointer.birth());
        let listed = self.is_in_livelist(pointer);
        let young = birth > self.previous_txg;
        // Rule W1: a block that a snapshot has is not freed. Its birth tells: snapshots have all blocks that were
        // born up to their own txg. A wrong free here would let a later txg overwrite the snapshot.
        if young {
            (self.free_block)(pointer);
        }
        let mut sums = self.totals.lock();
        if listed {
            sums.livelist_frees.push(BpobjItem { pointer: pointer.clone(), is_free: true });
        }
        if self.has_bookmarks {
            let died = sums.killed_by_birth.entry(birth).or_default();
            *died = *died + space;
        }
        if young {
            sums.freed = sums.freed + space;
            return;
        }
        sums.deadlist_items.push(BpobjItem { pointer: pointer.clone(), is_free: false });
        sums.deadlist_space = sums.deadlist_space + space;
        if self.prev_unique_txg.is_some_and(|since| birth > since) {
            sums.prev_unique += space.used;
        }
        if birth > self.origin_txg {
            sums.to_snapshots += space.used;
        }
    }
}

/// The features that a dataset uses because of such a block.
fn block_features(pointer: &Blkptr) -> impl Iterator<Item = &'static str> {
    let large = (pointer.lsize() > 128 << 10).then_some("org.open-zfs:large_blocks");
    let (checksum, compression) = match pointer {
        Blkptr::Regular(block) => (Some(block.checksum), Some(block.compression)),
        Blkptr::Embedded(block) => (None, Some(block.compression)),
        _ => (None, None),
    };
    let checksum = match checksum {
        Some(Checksum::Sha512) => Some("org.illumos:sha512"),
        Some(Checksum::Skein) => Some("org.illumos:skein"),
        Some(Checksum::EdonR) => Some("org.illumos:edonr"),
        Some(Checksum::Blake3) => Some("org.openzfs:blake3"),
        _ => None,
    };
    let zstd = matches!(compression, Some(Compression::Zstd));
    let zstd = zstd.then_some("org.freebsd:zstd_compress");
    [large, checksum, zstd].into_iter().flatten()
}
