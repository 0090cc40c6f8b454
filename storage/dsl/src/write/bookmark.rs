//! Changing bookmarks: what is left of snapshots to send increments from.
//!
//! Where the feature `bookmark_written` is enabled, a bookmark knows how much of what its snapshot
//! reached was freed before the next snapshot. For that the deadlists keep a stretch that begins
//! at the bookmark's txg, even after its snapshot is gone.

use std::collections::BTreeMap;

use ondisk::dsl::{Bookmark, Dataset as DatasetPhys};
use units::{ObjectId, Txg};

use super::change::{Change, TABLE, words};
use super::deadlist::{self, Contents};
use super::features::{self, guid};
use super::space::Space;
use super::{destroy, names, snapshot};
use crate::{Error, Result};

/// A bookmark of a head, by its name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) mark: Bookmark,
}

/// Makes a bookmark `path#name` of a snapshot of the same head, or of one that it is a clone of.
pub fn bookmark(change: &Change<'_>, name: &str, snapshot: &str) -> Result<()> {
    let (path, part) = split(name)?;
    names::judge_snapshot(path, part)?;
    let head = change.find_head(path)?;
    let (_, snapshot) = change.find_snapshot(snapshot)?;
    let record = change.dataset(snapshot)?;
    if !is_before(change, head.dataset, snapshot)? {
        return Err(Error::NotOfThis { name: name.to_owned() });
    }
    if part_of(change, head.dataset, part)?.is_some() {
        return Err(Error::Exists { name: name.to_owned() });
    }
    if !features::is_enabled(change, guid::BOOKMARKS)? {
        return Err(Error::FeatureDisabled { guid: guid::BOOKMARKS });
    }
    let mark = of_snapshot(change, snapshot, &record)?;
    if mark.has_sizes() {
        features::add(change, guid::BOOKMARK_WRITTEN)?;
    }
    add(change, head.dataset, &Named { name: part.to_owned(), mark })
}

/// Destroys a bookmark.
pub fn destroy_bookmark(change: &Change<'_>, name: &str) -> Result<()> {
    let (path, part) = split(name)?;
    let head = change.find_head(path)?;
    let all = all(change, head.dataset)?;
    let missing = || Error::NoSuchDataset { name: name.to_owned() };
    let part = &part_of(change, head.dataset, part)?.ok_or_else(missing)?;
    let found = all.iter().find(|known| known.name == *part).ok_or_else(missing)?;
    let mark = &found.mark;
    if mark.is_long() {
        features::take(change, guid::BOOKMARK_V2)?;
    }
    if mark.has_sizes() {
        let others = all.iter().filter(|other| other.name != *part && other.mark.has_sizes());
        let shared = others.clone().any(|other| other.mark.creation_txg == mark.creation_txg);
        let record = change.dataset(head.dataset)?;
        let gone = mark.flags & Bookmark::SNAPSHOT_EXISTS == 0;
        if gone && !shared && mark.creation_txg < record.previous_txg {
            let txg = [mark.creation_txg];
            destroy::join_stretches_of_clones(change, head.dir, &txg)?;
            deadlist::join_stretches(change, record.deadlist, &txg)?;
        }
        features::take(change, guid::BOOKMARK_WRITTEN)?;
    }
    drop_redaction(change, mark)?;
    let table = table_of(change, head.dataset)?;
    change.remove(table, part)?;
    if change.count(table)? == 0 {
        change.remove_field(head.dataset, DatasetPhys::BOOKMARKS)?;
        change.free_object(table)?;
        features::take(change, guid::BOOKMARKS)?;
    }
    Ok(())
}

fn split(name: &str) -> Result<(&str, &str)> {
    name.split_once('#').ok_or_else(|| names::bad(name, "a bookmark's name has a #"))
}

/// Frees a bookmark's list of what it leaves out.
fn drop_redaction(change: &Change<'_>, mark: &Bookmark) -> Result<()> {
    if !mark.redaction.exists() {
        return Ok(());
    }
    if change.object(mark.redaction)?.dnode().spill.is_some() {
        features::take(change, guid::REDACTION_SPILL)?;
    }
    change.free_object(mark.redaction)?;
    features::take(change, guid::REDACTION_BOOKMARKS)
}

/// Whether a snapshot is among those that lead to a head.
fn is_before(change: &Change<'_>, head: ObjectId, snapshot: ObjectId) -> Result<bool> {
    let mut at = change.dataset(head)?;
    let wanted = change.dataset(snapshot)?.creation_txg;
    while at.previous.exists() && at.previous_txg >= wanted {
        if at.previous == snapshot {
            return Ok(true);
        }
        at = change.dataset(at.previous)?;
    }
    Ok(false)
}

fn table_of(change: &Change<'_>, head: ObjectId) -> Result<ObjectId> {
    Ok(change.field_object(head, DatasetPhys::BOOKMARKS)?.unwrap_or(ObjectId::META))
}

/// The name of a bookmark as it is in the table.
pub(crate) fn part_of(change: &Change<'_>, head: ObjectId, part: &str) -> Result<Option<String>> {
    let found = change.part_of(head, table_of(change, head)?, part)?;
    Ok(found.map(|entry| String::from_utf8_lossy(&entry.name).into_owned()))
}

/// All bookmarks of a head, oldest first.
pub(crate) fn all(change: &Change<'_>, head: ObjectId) -> Result<Vec<Named>> {
    let mut found = Vec::new();
    for entry in change.entries(table_of(change, head)?)? {
        let mark = Bookmark::from_words(&entry.value.u64s())
            .map_err(|why| Error::Structure { object: head, why })?;
        found.push(Named { name: String::from_utf8_lossy(&entry.name).into_owned(), mark });
    }
    found.sort_by_key(|known| known.mark.creation_txg);
    Ok(found)
}

/// The bookmark that a snapshot has now.
fn of_snapshot(change: &Change<'_>, id: ObjectId, record: &DatasetPhys) -> Result<Bookmark> {
    let mut mark = Bookmark {
        guid: record.guid,
        creation_txg: record.creation_txg,
        creation_time: record.creation_time,
        ..Bookmark::default()
    };
    if snapshot::encrypted(change, record.dir)? && features::is_enabled(change, guid::BOOKMARK_V2)?
    {
        let ivset = change.field_number(id, DatasetPhys::IVSET_GUID)?;
        mark.ivset_guid = ivset.unwrap_or(0);
    }
    if features::is_enabled(change, guid::BOOKMARK_WRITTEN)? {
        mark.flags = Bookmark::HAS_SIZES | Bookmark::SNAPSHOT_EXISTS;
        (mark.referenced, mark.compressed, mark.uncompressed) =
            (record.referenced, record.compressed, record.uncompressed);
        let next = change.dataset(record.next)?;
        add_freed(&mut mark, deadlist::space(change, next.deadlist)?);
    }
    Ok(mark)
}

fn add_freed(mark: &mut Bookmark, space: Space) {
    space.add_to([&mut mark.freed, &mut mark.freed_compressed, &mut mark.freed_uncompressed]);
}

/// Adds a bookmark to a head.
pub(crate) fn add(change: &Change<'_>, head: ObjectId, named: &Named) -> Result<()> {
    let mut table = table_of(change, head)?;
    if !table.exists() {
        table = change.new_caseless_table(TABLE)?;
        features::add(change, guid::BOOKMARKS)?;
        change.set_field(head, DatasetPhys::BOOKMARKS, &[table.get()])?;
    }
    if named.mark.is_long() {
        features::add(change, guid::BOOKMARK_V2)?;
    }
    change.put(table, &named.name, &words(&named.mark.to_words()))
}

/// Writes a bookmark of a head again.
fn rewrite(change: &Change<'_>, head: ObjectId, named: &Named) -> Result<()> {
    let table = table_of(change, head)?;
    change.put(table, &named.name, &words(&named.mark.to_words()))
}

/// Takes a bookmark from a head; its lists stay, as it is to go to another.
pub(crate) fn take(change: &Change<'_>, head: ObjectId, named: &Named) -> Result<()> {
    if named.mark.is_long() {
        features::take(change, guid::BOOKMARK_V2)?;
    }
    change.remove(table_of(change, head)?, &named.name).map(drop)
}

/// Destroys all bookmarks of a head that is destroyed.
pub(crate) fn destroy_all(change: &Change<'_>, head: ObjectId) -> Result<()> {
    let table = table_of(change, head)?;
    if !table.exists() {
        return Ok(());
    }
    for named in all(change, head)? {
        drop_redaction(change, &named.mark)?;
        if named.mark.is_long() {
            features::take(change, guid::BOOKMARK_V2)?;
        }
        if named.mark.has_sizes() {
            features::take(change, guid::BOOKMARK_WRITTEN)?;
        }
    }
    change.free_object(table)?;
    features::take(change, guid::BOOKMARKS)
}

/// Begins stretches in a head's new deadlist, for its bookmarks since the previous snapshot.
pub(crate) fn add_stretches(
    change: &Change<'_>,
    head: ObjectId,
    new: ObjectId,
    previous: Txg,
) -> Result<()> {
    let marks = all(change, head)?.into_iter().map(|named| named.mark);
    let marks = marks.filter(|mark| mark.has_sizes() && mark.creation_txg > previous);
    // sorted, since the bookmarks are
    let mut starts: Vec<Txg> = marks.map(|mark| mark.creation_txg).collect();
    starts.dedup();
    deadlist::add_stretches(change, new, &starts)
}

/// Blocks of a head died: those of its bookmarks that have reached them are told.
pub(crate) fn add_died(change: &Change<'_>, head: ObjectId, died: &[(Txg, Space)]) -> Result<()> {
    let previous = change.dataset(head)?.previous_txg;
    for mut named in all(change, head)? {
        if named.mark.creation_txg < previous || !named.mark.has_sizes() {
            continue;
        }
        let reached = died.iter().filter(|(birth, _)| *birth <= named.mark.creation_txg);
        let sum = reached.fold(Space::default(), |sum, (_, space)| sum + *space);
        if sum != Space::default() {
            add_freed(&mut named.mark, sum);
            rewrite(change, head, &named)?;
        }
    }
    Ok(())
}

/// Neighbouring snapshots of a head go: those of its bookmarks that are between them and the snapshot
/// before them, which is of the txg `previous`, get another next snapshot. `died` has, for each of the
/// snapshots, oldest first, its txg and what died between it and the dataset after it. Returns the txgs at
/// which the head's deadlist keeps a stretch, since a bookmark of one of the snapshots needs it.
pub(crate) fn run_goes(
    change: &Change<'_>,
    head: ObjectId,
    previous: Txg,
    died: &[(Txg, &Contents)],
) -> Result<Vec<Txg>> {
    let Some((newest, _)) = died.last() else { return Ok(Vec::new()) };
    let concerned = |it: &Named| {
        let txg = it.mark.creation_txg;
        it.mark.has_sizes() && txg >= previous && txg <= *newest
    };
    let mut marks = all(change, head)?;
    marks.retain(concerned);
    let mut kept = Vec::new();
    let mut later = died.iter().rev().peekable();
    let mut sums: BTreeMap<Txg, Space> = BTreeMap::new();
    for mut named in marks.into_iter().rev() {
        let txg = named.mark.creation_txg;
        while let Some((_, contents)) = later.next_if(|(snapshot, _)| *snapshot > txg) {
            for filled in &contents.filled {
                let sum = sums.entry(filled.start).or_default();
                *sum = *sum + filled.space;
            }
        }
        if later.peek().is_some_and(|(snapshot, _)| *snapshot == txg) {
            named.mark.flags &= !Bookmark::SNAPSHOT_EXISTS;
            kept.push(txg);
        }
        let reached = sums.range(..txg).map(|(_, space)| *space);
        add_freed(&mut named.mark, reached.fold(Space::default(), std::ops::Add::add));
        rewrite(change, head, &named)?;
    }
    kept.sort_unstable();
    kept.dedup();
    Ok(kept)
}

/// What follows a snapshot has changed: its bookmarks are made anew.
pub(crate) fn next_changed(change: &Change<'_>, head: ObjectId, snapshot: ObjectId) -> Result<()> {
    let record = change.dataset(snapshot)?;
    for named in all(change, head)? {
        if named.mark.creation_txg == record.creation_txg && named.mark.has_sizes() {
            let redaction = named.mark.redaction;
            let mark = Bookmark { redaction, ..of_snapshot(change, snapshot, &record)? };
            rewrite(change, head, &Named { mark, ..named })?;
        }
    }
    Ok(())
}

/// The txg of the newest bookmark of a head.
pub(crate) fn newest(change: &Change<'_>, head: ObjectId) -> Result<Txg> {
    let all = all(change, head)?;
    Ok(all.last().map_or(Txg::ZERO, |known| known.mark.creation_txg))
}
