//! What writing a dataset's content does to the dataset's record and to the space of directories.

use std::collections::{BTreeMap, BTreeSet};

use dmu::BlockLedger;
use ondisk::Blkptr;
use ondisk::blkptr::{Checksum, Compression};
use ondisk::dsl::Dataset as DatasetPhys;
use ondisk::feature::Feature;
use parking_lot::Mutex;
use units::{ObjectId, ObjsetId, Txg};

use super::change::Change;
use super::list::Item;
use super::space::{For, Space, counted_change};
use super::{bookmark, create, deadlist, limits, livelist};
use crate::Result;

/// The account of one head, from the first block of it that is written in a txg to the last.
///
/// The object set tells it of every block that is born and of every one that it reaches no more,
/// its own root block too. A block that no snapshot reaches is freed at once; others go to the
/// head's deadlist. [`DatasetLedger::finish`] writes it all down.
pub struct DatasetLedger<'a> {
    dataset: ObjectId,
    dir: ObjectId,
    /// Blocks born after this are in no snapshot.
    previous_txg: Txg,
    /// Blocks born after this only the previous snapshot and the head reach; `None` where another
    /// dataset follows that snapshot too.
    previous_alone_since: Option<Txg>,
    /// Blocks born after this are the directory's own and not those of the origin.
    origin_txg: Txg,
    livelist: Option<ObjectId>,
    bookmarks: bool,
    free: &'a (dyn Fn(&Blkptr) + Sync),
    deflated: &'a (dyn Fn(&Blkptr) -> u64 + Sync),
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Sums {
    born: Space,
    /// Died, and was in no snapshot.
    freed: Space,
    /// Died, and is in a snapshot.
    dead: Vec<Item>,
    dead_space: Space,
    /// Of these, what only the previous snapshot reaches from now on.
    previous_alone: i64,
    /// Of these, what is the directory's own.
    to_snapshots: i64,
    /// For bookmarks: what died, by birth.
    died: BTreeMap<Txg, Space>,
    allocated: Vec<Item>,
    released: Vec<Item>,
    features: BTreeSet<&'static str>,
    /// Features that it uses no more.
    given_up: BTreeSet<&'static str>,
}

impl std::fmt::Debug for DatasetLedger<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetLedger({})", self.dataset)
    }
}

impl<'a> DatasetLedger<'a> {
    /// Begins the account of a head.
    pub fn new(change: &Change<'a>, dataset: ObjsetId) -> Result<Self> {
        let id = ObjectId::new(dataset.get());
        let record = change.dataset(id)?;
        let dir = change.dir(record.dir)?;
        let previous = change.previous_of(&record)?.map(|(_, previous)| previous);
        let follows = previous.filter(|previous| previous.next == id);
        let origin = if dir.origin.exists() { Some(change.dataset(dir.origin)?) } else { None };
        Ok(Self {
            dataset: id,
            dir: record.dir,
            previous_txg: record.previous_txg,
            previous_alone_since: follows.map(|previous| previous.previous_txg),
            origin_txg: origin.map_or(Txg::ZERO, |origin| origin.creation_txg),
            livelist: livelist::of(change, record.dir)?,
            bookmarks: change.field_object(id, DatasetPhys::BOOKMARKS)?.is_some(),
            free: change.free,
            deflated: change.deflated,
            sums: Mutex::new(Sums::default()),
        })
    }

    fn space_of(&self, pointer: &Blkptr) -> Space {
        Space::of(pointer, &self.deflated)
    }

    fn is_in_livelist(&self, pointer: &Blkptr) -> bool {
        let there = matches!(pointer, Blkptr::Regular(_));
        there && self.livelist.is_some() && pointer.birth() > self.origin_txg
    }

    /// Says that the head uses a feature, as its floors above know it (accounting of objects by
    /// owner, large dnodes, ...).
    pub fn uses(&self, feature: &'static Feature) {
        self.sums.lock().features.insert(feature.guid);
    }

    /// Says that the head does not use a feature, or no more.
    pub fn uses_not(&self, feature: &'static Feature) {
        self.sums.lock().given_up.insert(feature.guid);
    }

    /// Writes the account down. `root` is the head's root block from now on.
    pub fn finish(self, change: &Change<'_>, root: &Blkptr) -> Result<()> {
        let sums = self.sums.into_inner();
        let reservation = limits::of_head(change, self.dir)?.reservation;
        let (from, to) = (For::Refreservation, For::Head);
        let own = sums.born - sums.freed;
        let (counted, previous, list) = change.change_dataset(self.dataset, |head| {
            let counted = counted_change(head.unique, own.used, reservation);
            let delta = own - sums.dead_space;
            delta.add_to([&mut head.referenced, &mut head.compressed, &mut head.uncompressed]);
            head.unique = head.unique.saturating_add_signed(own.used);
            head.root = root.clone();
            (counted, head.previous, head.deadlist)
        })?;
        if own != Space::default() {
            let delta = Space { used: counted, ..own };
            change.add_space_from(self.dir, delta, own.used, [from, to])?;
        }
        if sums.previous_alone != 0 {
            change.change_dataset(previous, |previous| {
                previous.unique = previous.unique.saturating_add_signed(sums.previous_alone);
            })?;
        }
        change.move_space(self.dir, sums.to_snapshots, [For::Head, For::Snapshots])?;
        deadlist::insert(change, list, sums.dead)?;
        if let Some(livelist) = self.livelist {
            let mut items = sums.allocated;
            items.extend(sums.released);
            if !items.is_empty() {
                livelist::add(change, livelist, items)?;
            }
            livelist::remove_if_useless(change, self.dir)?;
        }
        if self.bookmarks {
            let died: Vec<_> = sums.died.into_iter().collect();
            bookmark::add_died(change, self.dataset, &died)?;
        }
        for feature in sums.features.iter().filter_map(|guid| Feature::by_guid(guid)) {
            create::note_feature(change, self.dataset, feature)?;
        }
        for feature in sums.given_up.iter().filter_map(|guid| Feature::by_guid(guid)) {
            if change.field(self.dataset, feature.guid)?.is_some() {
                create::remove_feature(change, self.dataset, feature)?;
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
        let mut sums = self.sums.lock();
        sums.born = sums.born + space;
        sums.features.extend(features_of_block(pointer));
        if listed {
            sums.allocated.push(Item { pointer: pointer.clone(), freed: false });
        }
    }

    fn dsize(&self, pointer: &Blkptr) -> u64 {
        (self.deflated)(pointer)
    }

    fn block_rewritten(&self, before: &Blkptr, now: &Blkptr) {
        let listed = self.is_in_livelist(now);
        let more = self.space_of(now) - self.space_of(before);
        let mut sums = self.sums.lock();
        sums.born = sums.born + more;
        // the block may be compressed or checked in another way than the one it replaces
        sums.features.extend(features_of_block(now));
        if listed && more != Space::default() {
            sums.allocated.push(Item { pointer: now.clone(), freed: false });
            sums.released.push(Item { pointer: before.clone(), freed: true });
        }
    }

    fn block_kill(&self, pointer: &Blkptr) {
        if matches!(pointer, Blkptr::Hole(_) | Blkptr::Redacted(_)) {
            return;
        }
        let (space, birth) = (self.space_of(pointer), pointer.birth());
        let listed = self.is_in_livelist(pointer);
        let young = birth > self.previous_txg;
        if young {
            (self.free)(pointer);
        }
        let mut sums = self.sums.lock();
        if listed {
            sums.released.push(Item { pointer: pointer.clone(), freed: true });
        }
        if self.bookmarks {
            let died = sums.died.entry(birth).or_default();
            *died = *died + space;
        }
        if young {
            sums.freed = sums.freed + space;
            return;
        }
        sums.dead.push(Item { pointer: pointer.clone(), freed: false });
        sums.dead_space = sums.dead_space + space;
        if self.previous_alone_since.is_some_and(|since| birth > since) {
            sums.previous_alone = sums.previous_alone.saturating_add(space.used);
        }
        if birth > self.origin_txg {
            sums.to_snapshots = sums.to_snapshots.saturating_add(space.used);
        }
    }
}

/// The features that a dataset uses because it has such a block.
fn features_of_block(pointer: &Blkptr) -> impl Iterator<Item = &'static str> {
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
