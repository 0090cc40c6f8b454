//! A clone and what it was made from change places: the snapshots up to the origin become the
//! clone's, and the other becomes a clone of the latest of them.

use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use ondisk::{ObjectType, version};
use units::{ObjectId, Txg};

use super::change::{Change, words};
use super::names::Head;
use super::space::{For, Space, signed};
use super::{bookmark, deadlist, limits, livelist, rename, rollback, snapshot};
use crate::{Error, Result};

/// What is to change places.
struct Plan {
    /// The clone.
    clone: Head,
    /// What it was made from.
    other: Head,
    /// The snapshot it was made from.
    origin: ObjectId,
    /// Snapshots that go to the clone, the origin first, then older ones, with their names.
    shared: Vec<(ObjectId, DatasetPhys, String)>,
    /// The clone's head and snapshots, newest first.
    own: Vec<(ObjectId, DatasetPhys)>,
    /// The other's head and snapshots after the origin, newest first.
    others: Vec<(ObjectId, DatasetPhys)>,
    /// The snapshot that the other is a clone of, perhaps that of nothing.
    first: Option<ObjectId>,
}

/// Promotes a clone.
pub fn promote(change: &Change<'_>, name: &str) -> Result<()> {
    let clone = change.find_head(name)?;
    let dir = change.dir(clone.dir)?;
    if !rollback::is_clone(change, &dir)? {
        return Err(Error::NotAClone { name: name.to_owned() });
    }
    if change.dataset(clone.dataset)?.flags & DatasetPhys::NOT_PROMOTABLE != 0 {
        return Err(Error::NotAClone { name: name.to_owned() });
    }
    let plan = Plan::new(change, clone, &dir)?;
    plan.judge_names(change, name)?;
    plan.judge_keys(change, name)?;
    let space = plan.space(change)?;
    let used = u64::try_from(space.used).unwrap_or(0);
    limits::judge_move(change, plan.other.dir, clone.dir, used)?;
    let snapshots = plan.snapshots_after(change)?;
    plan.move_keys(change)?;
    plan.change_origins(change)?;
    plan.move_bookmarks(change)?;
    plan.move_snapshots(change)?;
    plan.move_space(change, space, snapshots)?;
    livelist::remove(change, clone.dir)?;
    livelist::remove(change, plan.other.dir)
}

/// A dataset and those before it, until `end` (left out).
fn chain(
    change: &Change<'_>,
    from: ObjectId,
    end: Option<ObjectId>,
) -> Result<Vec<(ObjectId, DatasetPhys)>> {
    let mut found: Vec<(ObjectId, DatasetPhys)> = Vec::new();
    let mut at = from;
    while at.exists() && Some(at) != end {
        let record = change.dataset(at)?;
        if found.last().is_some_and(|(_, newer)| newer.previous_txg <= record.previous_txg) {
            return Err(Error::Circle { object: at, what: "snapshots" });
        }
        let previous = record.previous;
        found.push((at, record));
        at = previous;
    }
    Ok(found)
}

impl Plan {
    fn new(change: &Change<'_>, clone: Head, dir: &DirPhys) -> Result<Self> {
        let origin = dir.origin;
        let other = change.dataset(origin)?.dir;
        let other_dir = change.dir(other)?;
        let first = Some(other_dir.origin).filter(|first| first.exists());
        let mut shared = Vec::new();
        let names = change.snapshot_parts(other_dir.head)?;
        for (id, record) in chain(change, origin, first)? {
            let missing = || Error::NoSuchDataset { name: format!("object {id}") };
            shared.push((id, record, names.get(&id).cloned().ok_or_else(missing)?));
        }
        Ok(Self {
            clone,
            other: Head { dir: other, dataset: other_dir.head },
            origin,
            shared,
            own: chain(change, clone.dataset, Some(origin))?,
            others: chain(change, other_dir.head, Some(origin))?,
            first,
        })
    }

    fn origin_record(&self, change: &Change<'_>) -> Result<DatasetPhys> {
        change.dataset(self.origin)
    }

    /// No snapshot or bookmark that moves may have the name of one that is there.
    fn judge_names(&self, change: &Change<'_>, name: &str) -> Result<()> {
        for (_, _, part) in &self.shared {
            if change.snapshot_of(self.clone.dataset, part)?.is_some() {
                return Err(Error::Exists { name: format!("{name}@{part}") });
            }
            super::names::judge_length(&format!("{name}@{part}"))?;
        }
        for moving in self.bookmarks(change)? {
            if bookmark::part_of(change, self.clone.dataset, &moving.name)?.is_some() {
                return Err(Error::Exists { name: format!("{name}#{}", moving.name) });
            }
        }
        Ok(())
    }

    /// The bookmarks that go with the snapshots.
    fn bookmarks(&self, change: &Change<'_>) -> Result<Vec<bookmark::Named>> {
        let last = self.origin_record(change)?.creation_txg;
        let mut all = bookmark::all(change, self.other.dataset)?;
        all.retain(|named| named.mark.creation_txg <= last);
        Ok(all)
    }

    /// Whether the other's own key goes to the clone: it is the first of its clones, and its own
    /// encryption root.
    fn moves_key(&self, change: &Change<'_>) -> Result<bool> {
        let first = !rollback::is_clone(change, &change.dir(self.other.dir)?)?;
        Ok(first && rename::encryption_root(change, self.other.dir)? == Some(self.other.dir))
    }

    /// The encryption root of both must be the same as before.
    fn judge_keys(&self, change: &Change<'_>, name: &str) -> Result<()> {
        let other = change.dir(self.other.dir)?;
        let encrypted = snapshot::encrypted(change, self.other.dir)?;
        if !encrypted || rollback::is_clone(change, &other)? || self.moves_key(change)? {
            return Ok(());
        }
        let above = change.dir(self.clone.dir)?.parent;
        let roots = [other.parent, above].map(|dir| rename::encryption_root(change, dir));
        let [theirs, ours] = roots;
        match (theirs?, ours?) {
            (Some(theirs), Some(ours)) if theirs == ours => Ok(()),
            _ => Err(Error::OtherKey { name: name.to_owned() }),
        }
    }

    /// The clone becomes the encryption root of all that the other was that of.
    fn move_keys(&self, change: &Change<'_>) -> Result<()> {
        const ROOT: &str = "DSL_CRYPTO_ROOT_DDOBJ";
        const WHERE: &str = "keylocation";
        if !self.moves_key(change)? {
            return Ok(());
        }
        let [from, to] = [self.other.dir, self.clone.dir];
        let tables = [change.dir(from)?.properties, change.dir(to)?.properties];
        if let Some(location) = change.value(tables[0], WHERE)? {
            change.put(tables[1], WHERE, &location)?;
            change.remove(tables[0], WHERE)?;
        }
        let top = change.root()?;
        let pool = change.pool.to_owned();
        for (head, _) in rename::heads_below(change, top, &pool)? {
            let Some(key) = change.field_object(head.dir, DirPhys::CRYPTO_KEY)? else { continue };
            if change.number(key, ROOT)? == Some(from.get()) {
                change.put(key, ROOT, &words(&[to.get()]))?;
            }
        }
        Ok(())
    }

    /// All that was born in the shared snapshots: it moves with them.
    fn space(&self, change: &Change<'_>) -> Result<Space> {
        let reached = |record: &DatasetPhys| {
            Space::from_counts([record.referenced, record.compressed, record.uncompressed])
        };
        let mut sum = reached(&self.origin_record(change)?);
        for (_, record, _) in self.shared.iter().filter(|(_, it, _)| it.previous.exists()) {
            sum = sum + deadlist::space(change, record.deadlist)?;
        }
        Ok(match self.first {
            Some(first) => sum - reached(&change.dataset(first)?),
            None => sum,
        })
    }

    /// What snapshots alone will use of the clone, and of the other.
    fn snapshots_after(&self, change: &Change<'_>) -> Result<[i64; 2]> {
        let sum = |records: &mut dyn Iterator<Item = &DatasetPhys>, since: Txg| {
            let mut sum = 0_i64;
            for record in records {
                let dead = deadlist::space_between(change, record.deadlist, since, None)?;
                sum = sum.saturating_add(dead.used);
            }
            Ok::<_, Error>(sum)
        };
        let since = match self.first {
            Some(first) => change.dataset(first)?.creation_txg,
            None => Txg::ZERO,
        };
        let shared = self.shared.iter().map(|(_, record, _)| record);
        let own = self.own.iter().map(|(_, record)| record);
        let clone = sum(&mut shared.chain(own), since)?;
        let origin = self.origin_record(change)?.creation_txg;
        let other = sum(&mut self.others.iter().map(|(_, record)| record), origin)?;
        Ok([clone, other])
    }

    fn change_origins(&self, change: &Change<'_>) -> Result<()> {
        let record = self.origin_record(change)?;
        let oldest = self.own.last().map_or(self.clone.dataset, |(id, _)| *id);
        let oldest_list = change.dataset(oldest)?.deadlist;
        let alone = deadlist::space_between(change, oldest_list, record.previous_txg, None)?.used;
        if record.next_clones.exists() {
            change.remove_member(record.next_clones, oldest.get())?;
            change.insert_member(record.next_clones, record.next.get())?;
        }
        change.change_dataset(self.origin, |origin| {
            origin.next = oldest;
            origin.unique = u64::try_from(alone).unwrap_or(0);
        })?;
        let first = self.first.unwrap_or(ObjectId::META);
        change.change_dir(self.clone.dir, |dir| dir.origin = first)?;
        change.change_dir(self.other.dir, |dir| dir.origin = self.origin)?;
        self.change_clone_tables(change)
    }

    fn change_clone_tables(&self, change: &Change<'_>) -> Result<()> {
        if change.version < version::DEADLISTS {
            // directories list no clones
            return Ok(());
        }
        let [clone, other] = [self.clone.dataset, self.other.dataset].map(ObjectId::get);
        change.remove_member(change.dir(self.other.dir)?.clones, clone)?;
        if let Some(first) = self.first {
            let table = change.dir(change.dataset(first)?.dir)?.clones;
            change.insert_member(table, clone)?;
            change.remove_member(table, other)?;
        }
        change.insert_member(self.clones(change)?, other)
    }

    /// The table of the clone's own clones.
    fn clones(&self, change: &Change<'_>) -> Result<ObjectId> {
        let known = change.dir(self.clone.dir)?.clones;
        let clones = change.table_or_new(known, ObjectType::DSL_CLONES)?;
        change.change_dir(self.clone.dir, |dir| dir.clones = clones)?;
        Ok(clones)
    }

    fn move_bookmarks(&self, change: &Change<'_>) -> Result<()> {
        for named in self.bookmarks(change)? {
            bookmark::take(change, self.other.dataset, &named)?;
            bookmark::add(change, self.clone.dataset, &named)?;
        }
        bookmark::next_changed(change, self.clone.dataset, self.origin)
    }

    fn move_snapshots(&self, change: &Change<'_>) -> Result<()> {
        let names = [self.other.dataset, self.clone.dataset].map(|head| change.dataset(head));
        let [from, to] = names;
        let (from, to) = (from?.snapshot_names, to?.snapshot_names);
        // the other's own next of the origin is accounted for already
        let moved = self.others.last().map(|(id, _)| *id);
        for (id, _, part) in &self.shared {
            snapshot::note_snapshots_changed(change, self.other.dir)?;
            change.remove(from, part)?;
            limits::count_snapshots(change, self.other.dir, -1)?;
            change.insert(to, part, id.get())?;
            limits::count_snapshots(change, self.clone.dir, 1)?;
            change.change_dataset(*id, |it| it.dir = self.clone.dir)?;
            let next_clones = change.dataset(*id)?.next_clones;
            for next in change.numbers(next_clones)?.into_iter().map(ObjectId::new) {
                if Some(next) != moved && change.version >= version::DEADLISTS {
                    self.move_clone(change, next)?;
                }
            }
        }
        Ok(())
    }

    /// Another clone of a snapshot that moves is a clone of the other directory no more.
    fn move_clone(&self, change: &Change<'_>, next: ObjectId) -> Result<()> {
        let head = change.dir(change.dataset(next)?.dir)?.head;
        change.remove_member(change.dir(self.other.dir)?.clones, head.get())?;
        change.insert_member(self.clones(change)?, head.get())
    }

    fn move_space(&self, change: &Change<'_>, all: Space, after: [i64; 2]) -> Result<()> {
        let [clone, other] = [self.clone.dir, self.other.dir];
        let now = |dir| Ok::<_, Error>(signed(change.dir(dir)?.breakdown.snapshots));
        let more = after[0].wrapping_sub(now(clone)?);
        change.add_space(clone, For::Snapshots, Space::only_used(more))?;
        change.add_space(clone, For::Head, all - Space::only_used(more))?;
        let more = after[1].wrapping_sub(now(other)?);
        change.add_space(other, For::Snapshots, Space::only_used(more))?;
        change.add_space(other, For::Head, -all - Space::only_used(more))
    }
}
