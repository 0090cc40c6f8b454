//! A clone and its origin's dataset change places: the snapshots up to the origin move to the
//! clone, and the other dataset becomes a clone of the latest of them.

use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use ondisk::{ObjectType, version};
use units::{ObjectId, Txg};

use super::context::{SyncTaskContext, u64_value};
use super::names::{self, HeadIds};
use super::space::{SpaceDelta, UsedBy, to_i64};
use super::{bookmark, deadlist, limits, livelist, rename, rollback, snapshot};
use crate::{Error, Result};

/// The datasets that change places.
struct Promotion {
    /// The clone.
    clone: HeadIds,
    /// The origin's dataset.
    origin_head: HeadIds,
    /// The snapshot it was made from.
    origin: ObjectId,
    /// Snapshots that go to the clone, the origin first, then older ones, with their names.
    moving_snapshots: Vec<(ObjectId, DatasetPhys, String)>,
    /// The clone's head and snapshots, newest first.
    clone_chain: Vec<(ObjectId, DatasetPhys)>,
    /// The other's head and snapshots after the origin, newest first.
    origin_chain: Vec<(ObjectId, DatasetPhys)>,
    /// The snapshot of which the other is a clone, possibly the empty origin.
    origin_origin: Option<ObjectId>,
}

/// The heads of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotedHeads {
    /// The dataset that was a clone.
    pub promoted: ObjectId,
    /// The dataset that is a clone of it now.
    pub demoted: ObjectId,
    /// When the origin was taken: both have the blocks born up to this txg.
    pub origin_txg: Txg,
}

/// Promotes a clone.
pub fn promote(change: &SyncTaskContext<'_>, name: &str) -> Result<PromotedHeads> {
    names::check_not_hidden(name)?;
    let clone = change.find_head(name)?;
    let dir = change.dir_phys(clone.dir)?;
    if !rollback::is_clone(change, &dir)? {
        return Err(Error::NotAClone { name: name.to_owned() });
    }
    if change.dataset_phys(clone.dataset)?.flags & DatasetPhys::NOT_PROMOTABLE != 0 {
        return Err(Error::NotAClone { name: name.to_owned() });
    }
    let plan = Promotion::new(change, clone, &dir)?;
    plan.check_names(change, name)?;
    plan.check_encryption_root(change, name)?;
    let space = plan.moving_space(change)?;
    let used = space.used.max(0).unsigned_abs();
    limits::check_move(change, plan.origin_head.dir, clone.dir, used)?;
    let snapshots = plan.snapshot_space_after(change)?;
    plan.move_encryption_root(change)?;
    plan.swap_origins(change)?;
    plan.move_bookmarks(change)?;
    plan.move_snapshots(change)?;
    plan.move_space(change, space, snapshots)?;
    livelist::remove(change, clone.dir)?;
    livelist::remove(change, plan.origin_head.dir)?;
    let (promoted, demoted) = (clone.dataset, plan.origin_head.dataset);
    Ok(PromotedHeads { promoted, demoted, origin_txg: plan.origin_record(change)?.creation_txg })
}

/// A dataset and those before it, until `end` (left out).
fn snapshot_chain(
    change: &SyncTaskContext<'_>,
    from: ObjectId,
    end: Option<ObjectId>,
) -> Result<Vec<(ObjectId, DatasetPhys)>> {
    let mut found: Vec<(ObjectId, DatasetPhys)> = Vec::new();
    let mut at = from;
    while at.exists() && Some(at) != end {
        let record = change.dataset_phys(at)?;
        if found.last().is_some_and(|(_, newer)| newer.previous_txg <= record.previous_txg) {
            return Err(Error::Cycle { object: at, links: "snapshots" });
        }
        let previous = record.previous;
        found.push((at, record));
        at = previous;
    }
    Ok(found)
}

impl Promotion {
    fn new(change: &SyncTaskContext<'_>, clone: HeadIds, dir: &DirPhys) -> Result<Self> {
        let origin = dir.origin;
        let other = change.dataset_phys(origin)?.dir;
        let other_dir = change.dir_phys(other)?;
        let first = Some(other_dir.origin).filter(|first| first.exists());
        let mut shared = Vec::new();
        let names = change.snapshot_names(other_dir.head)?;
        for (id, record) in snapshot_chain(change, origin, first)? {
            let missing = || Error::NoSuchDataset { name: format!("object {id}") };
            shared.push((id, record, names.get(&id).cloned().ok_or_else(missing)?));
        }
        Ok(Self {
            clone,
            origin_head: HeadIds { dir: other, dataset: other_dir.head },
            origin,
            moving_snapshots: shared,
            clone_chain: snapshot_chain(change, clone.dataset, Some(origin))?,
            origin_chain: snapshot_chain(change, other_dir.head, Some(origin))?,
            origin_origin: first,
        })
    }

    fn origin_record(&self, change: &SyncTaskContext<'_>) -> Result<DatasetPhys> {
        change.dataset_phys(self.origin)
    }

    /// A moving snapshot or bookmark must not have the name of an existing one.
    fn check_names(&self, change: &SyncTaskContext<'_>, name: &str) -> Result<()> {
        for (_, _, part) in &self.moving_snapshots {
            if change.find_snapshot_id(self.clone.dataset, part)?.is_some() {
                return Err(Error::Exists { name: format!("{name}@{part}") });
            }
            names::check_length(&format!("{name}@{part}"))?;
        }
        for moving in self.moving_bookmarks(change)? {
            if bookmark::stored_name(change, self.clone.dataset, &moving.name)?.is_some() {
                return Err(Error::Exists { name: format!("{name}#{}", moving.name) });
            }
        }
        Ok(())
    }

    /// The bookmarks that go with the snapshots.
    fn moving_bookmarks(
        &self,
        change: &SyncTaskContext<'_>,
    ) -> Result<Vec<bookmark::NamedBookmark>> {
        let last = self.origin_record(change)?.creation_txg;
        let mut all = bookmark::list_bookmarks(change, self.origin_head.dataset)?;
        all.retain(|named| named.bookmark.creation_txg <= last);
        Ok(all)
    }

    /// Whether the other's own key goes to the clone: it is the first of its clones, and its own
    /// encryption root.
    fn moves_encryption_root(&self, change: &SyncTaskContext<'_>) -> Result<bool> {
        let first = !rollback::is_clone(change, &change.dir_phys(self.origin_head.dir)?)?;
        Ok(first
            && rename::encryption_root(change, self.origin_head.dir)? == Some(self.origin_head.dir))
    }

    /// The encryption root of both must be the same as before.
    fn check_encryption_root(&self, change: &SyncTaskContext<'_>, name: &str) -> Result<()> {
        let other = change.dir_phys(self.origin_head.dir)?;
        let encrypted = snapshot::is_encrypted(change, self.origin_head.dir)?;
        if !encrypted
            || rollback::is_clone(change, &other)?
            || self.moves_encryption_root(change)?
        {
            return Ok(());
        }
        let above = change.dir_phys(self.clone.dir)?.parent;
        let roots = [other.parent, above].map(|dir| rename::encryption_root(change, dir));
        let [theirs, ours] = roots;
        match (theirs?, ours?) {
            (Some(theirs), Some(ours)) if theirs == ours => Ok(()),
            _ => Err(Error::EncryptionRootMismatch { name: name.to_owned() }),
        }
    }

    /// The clone becomes the encryption root of all that the other was that of.
    fn move_encryption_root(&self, change: &SyncTaskContext<'_>) -> Result<()> {
        const CRYPTO_ROOT: &str = "DSL_CRYPTO_ROOT_DDOBJ";
        const KEYLOCATION: &str = "keylocation";
        if !self.moves_encryption_root(change)? {
            return Ok(());
        }
        let [from, to] = [self.origin_head.dir, self.clone.dir];
        let tables = [change.dir_phys(from)?.properties, change.dir_phys(to)?.properties];
        if let Some(location) = change.lookup(tables[0], KEYLOCATION)? {
            change.update(tables[1], KEYLOCATION, &location)?;
            change.remove(tables[0], KEYLOCATION)?;
        }
        let top = change.root_dir()?;
        let pool = change.pool.to_owned();
        for (head, _) in rename::descendant_heads(change, top, &pool)? {
            let Some(key) = change.zap_field_object(head.dir, DirPhys::CRYPTO_KEY)? else {
                continue;
            };
            if change.lookup_u64(key, CRYPTO_ROOT)? == Some(from.get()) {
                change.update(key, CRYPTO_ROOT, &u64_value(&[to.get()]))?;
            }
        }
        Ok(())
    }

    /// All that was born in the shared snapshots: it moves with them.
    fn moving_space(&self, change: &SyncTaskContext<'_>) -> Result<SpaceDelta> {
        let reached = |record: &DatasetPhys| {
            SpaceDelta::from_counts([record.referenced, record.compressed, record.uncompressed])
        };
        let mut sum = reached(&self.origin_record(change)?);
        for (_, record, _) in self.moving_snapshots.iter().filter(|(_, it, _)| it.previous.exists())
        {
            sum = sum + deadlist::space(change, record.deadlist)?;
        }
        Ok(match self.origin_origin {
            Some(first) => sum - reached(&change.dataset_phys(first)?),
            None => sum,
        })
    }

    /// The space of the clone and of the other that only snapshots use.
    fn snapshot_space_after(&self, change: &SyncTaskContext<'_>) -> Result<[i64; 2]> {
        let sum = |records: &mut dyn Iterator<Item = &DatasetPhys>, since: Txg| {
            let mut sum = 0_i64;
            for record in records {
                let dead = deadlist::space_in_range(change, record.deadlist, since, None)?;
                sum += dead.used;
            }
            Ok::<_, Error>(sum)
        };
        let since = match self.origin_origin {
            Some(first) => change.dataset_phys(first)?.creation_txg,
            None => Txg::ZERO,
        };
        let shared = self.moving_snapshots.iter().map(|(_, record, _)| record);
        let own = self.clone_chain.iter().map(|(_, record)| record);
        let clone = sum(&mut shared.chain(own), since)?;
        let origin = self.origin_record(change)?.creation_txg;
        let other = sum(&mut self.origin_chain.iter().map(|(_, record)| record), origin)?;
        Ok([clone, other])
    }

    fn swap_origins(&self, change: &SyncTaskContext<'_>) -> Result<()> {
        let record = self.origin_record(change)?;
        let oldest = self.clone_chain.last().map_or(self.clone.dataset, |(id, _)| *id);
        let oldest_list = change.dataset_phys(oldest)?.deadlist;
        let alone = deadlist::space_in_range(change, oldest_list, record.previous_txg, None)?.used;
        if record.next_clones.exists() {
            change.remove_member(record.next_clones, oldest.get())?;
            change.insert_member(record.next_clones, record.next.get())?;
        }
        change.update_dataset(self.origin, |origin| {
            origin.next = oldest;
            origin.unique = alone.max(0).unsigned_abs();
        })?;
        let first = self.origin_origin.unwrap_or(ObjectId::META);
        change.update_dir(self.clone.dir, |dir| dir.origin = first)?;
        change.update_dir(self.origin_head.dir, |dir| dir.origin = self.origin)?;
        self.update_clone_zaps(change)
    }

    fn update_clone_zaps(&self, change: &SyncTaskContext<'_>) -> Result<()> {
        if change.version < version::DEADLISTS {
            // directories list no clones
            return Ok(());
        }
        let [clone, other] = [self.clone.dataset, self.origin_head.dataset].map(ObjectId::get);
        change.remove_member(change.dir_phys(self.origin_head.dir)?.clones, clone)?;
        if let Some(first) = self.origin_origin {
            let table = change.dir_phys(change.dataset_phys(first)?.dir)?.clones;
            change.insert_member(table, clone)?;
            change.remove_member(table, other)?;
        }
        change.insert_member(self.clone_zap(change)?, other)
    }

    /// The table of the clone's own clones.
    fn clone_zap(&self, change: &SyncTaskContext<'_>) -> Result<ObjectId> {
        let known = change.dir_phys(self.clone.dir)?.clones;
        let clones = change.zap_or_create(known, ObjectType::DSL_CLONES)?;
        change.update_dir(self.clone.dir, |dir| dir.clones = clones)?;
        Ok(clones)
    }

    fn move_bookmarks(&self, change: &SyncTaskContext<'_>) -> Result<()> {
        for named in self.moving_bookmarks(change)? {
            bookmark::remove(change, self.origin_head.dataset, &named)?;
            bookmark::insert(change, self.clone.dataset, &named)?;
        }
        bookmark::refresh_snapshot_bookmarks(change, self.clone.dataset, self.origin)
    }

    fn move_snapshots(&self, change: &SyncTaskContext<'_>) -> Result<()> {
        let names =
            [self.origin_head.dataset, self.clone.dataset].map(|head| change.dataset_phys(head));
        let [from, to] = names;
        let (from, to) = (from?.snapshot_names, to?.snapshot_names);
        // the other's own next of the origin is accounted for already
        let moved = self.origin_chain.last().map(|(id, _)| *id);
        for (id, _, part) in &self.moving_snapshots {
            snapshot::update_snapshots_changed(change, self.origin_head.dir)?;
            change.remove(from, part)?;
            limits::adjust_snapshot_count(change, self.origin_head.dir, -1)?;
            change.insert_u64(to, part, id.get())?;
            limits::adjust_snapshot_count(change, self.clone.dir, 1)?;
            change.update_dataset(*id, |it| it.dir = self.clone.dir)?;
            let next_clones = change.dataset_phys(*id)?.next_clones;
            for next in change.zap_u64s(next_clones)?.into_iter().map(ObjectId::new) {
                if Some(next) != moved && change.version >= version::DEADLISTS {
                    self.move_clone(change, next)?;
                }
            }
        }
        Ok(())
    }

    /// Moves a clone of a moving snapshot from the other directory's list.
    fn move_clone(&self, change: &SyncTaskContext<'_>, next: ObjectId) -> Result<()> {
        let head = change.dir_phys(change.dataset_phys(next)?.dir)?.head;
        change.remove_member(change.dir_phys(self.origin_head.dir)?.clones, head.get())?;
        change.insert_member(self.clone_zap(change)?, head.get())
    }

    fn move_space(
        &self,
        change: &SyncTaskContext<'_>,
        all: SpaceDelta,
        after: [i64; 2],
    ) -> Result<()> {
        let [clone, other] = [self.clone.dir, self.origin_head.dir];
        let now = |dir| Ok::<_, Error>(to_i64(change.dir_phys(dir)?.breakdown.snapshots));
        let more = after[0].wrapping_sub(now(clone)?);
        change.add_space(clone, UsedBy::Snapshots, SpaceDelta::only_used(more))?;
        change.add_space(clone, UsedBy::Head, all - SpaceDelta::only_used(more))?;
        let more = after[1].wrapping_sub(now(other)?);
        change.add_space(other, UsedBy::Snapshots, SpaceDelta::only_used(more))?;
        change.add_space(other, UsedBy::Head, -all - SpaceDelta::only_used(more))
    }
}
