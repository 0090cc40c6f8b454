//! Changes bookmarks: the data of snapshots that incremental sends need.
//!
//! If the feature `bookmark_written` is enabled, a bookmark counts the blocks of its snapshot that
//! were freed before the next snapshot. For that the deadlists keep an entry at the bookmark's txg,
//! even after its snapshot is destroyed.

use std::collections::BTreeMap;

use ondisk::dsl::{Bookmark, Dataset as DatasetPhys};
use units::{ObjectId, Txg};

use super::context::{SyncTaskContext, ZAP_METADATA, u64_value};
use super::deadlist::{self, DeadlistContents};
use super::features::{self, guid};
use super::space::SpaceDelta;
use super::{destroy, names, redaction, snapshot};
use crate::{Error, Result};

/// A bookmark of a head, by its name.
#[derive(Clone, Debug)]
pub(crate) struct NamedBookmark {
    pub(crate) name: String,
    pub(crate) bookmark: Bookmark,
}

/// Creates a bookmark `path#name` of a snapshot or bookmark of the same head, or of one that it is a clone of.
pub fn create_bookmark(change: &SyncTaskContext<'_>, name: &str, source: &str) -> Result<()> {
    let (path, part) = split_bookmark_name(name)?;
    names::check_snapshot_name(path, part)?;
    let head = change.find_head(path)?;
    let mark = if let Some((source_path, source_part)) = source.split_once('#') {
        let source_head = change.find_head(source_path)?;
        let found = find_bookmark(change, source_head.dataset, source_part)?;
        let missing = || Error::NoSuchDataset { name: source.to_owned() };
        let mark = found.ok_or_else(missing)?.bookmark;
        let is_ancestor = is_ancestor_dir(change, head.dir, source_head.dir, mark.creation_txg)?;
        // a redaction bookmark's list has one owner
        is_ancestor.then_some(Bookmark { redaction: ObjectId::META, ..mark })
    } else {
        let (_, snapshot) = change.find_snapshot(source)?;
        let record = change.dataset_phys(snapshot)?;
        if is_ancestor_snapshot(change, head.dataset, snapshot)? {
            let mark = bookmark_from_snapshot(change, snapshot, &record)?;
            Some(redaction::add_list_of_redacted(change, snapshot, mark)?)
        } else {
            None
        }
    };
    let mark = mark.ok_or_else(|| Error::WrongDataset { name: name.to_owned() })?;
    insert_new(change, head.dataset, (name, part), mark)
}

/// Inserts a bookmark whose name must be free.
pub(super) fn insert_new(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    (name, part): (&str, &str),
    mark: Bookmark,
) -> Result<()> {
    if stored_name(change, head, part)?.is_some() {
        return Err(Error::Exists { name: name.to_owned() });
    }
    if !features::is_enabled(change, guid::BOOKMARKS)? {
        return Err(Error::FeatureDisabled { guid: guid::BOOKMARKS });
    }
    if mark.has_sizes() {
        features::increment(change, guid::BOOKMARK_WRITTEN)?;
    }
    insert(change, head, &NamedBookmark { name: part.to_owned(), bookmark: mark })
}

/// Destroys a bookmark.
pub fn destroy_bookmark(change: &SyncTaskContext<'_>, name: &str) -> Result<()> {
    let (path, part) = split_bookmark_name(name)?;
    let head = change.find_head(path)?;
    let all = list_bookmarks(change, head.dataset)?;
    let missing = || Error::NoSuchDataset { name: name.to_owned() };
    let part = &stored_name(change, head.dataset, part)?.ok_or_else(missing)?;
    let found = all.iter().find(|known| known.name == *part).ok_or_else(missing)?;
    let mark = &found.bookmark;
    if mark.is_long() {
        features::decrement(change, guid::BOOKMARK_V2)?;
    }
    if mark.has_sizes() {
        let others = all.iter().filter(|other| other.name != *part && other.bookmark.has_sizes());
        let shared = others.clone().any(|other| other.bookmark.creation_txg == mark.creation_txg);
        let record = change.dataset_phys(head.dataset)?;
        let gone = mark.flags & Bookmark::SNAPSHOT_EXISTS == 0;
        if gone && !shared && mark.creation_txg < record.previous_txg {
            let txg = [mark.creation_txg];
            destroy::merge_clone_deadlist_entries(change, head.dir, &txg)?;
            deadlist::merge_entries(change, record.deadlist, &txg)?;
        }
        features::decrement(change, guid::BOOKMARK_WRITTEN)?;
    }
    free_redaction_list(change, mark)?;
    let table = bookmark_zap(change, head.dataset)?;
    change.remove(table, part)?;
    if change.zap_count(table)? == 0 {
        change.remove_zap_field(head.dataset, DatasetPhys::BOOKMARKS)?;
        change.free_object(table)?;
        features::decrement(change, guid::BOOKMARKS)?;
    }
    Ok(())
}

pub(super) fn split_bookmark_name(name: &str) -> Result<(&str, &str)> {
    name.split_once('#').ok_or_else(|| names::invalid_name(name, "a bookmark's name has a #"))
}

/// Frees a redaction bookmark's list.
fn free_redaction_list(change: &SyncTaskContext<'_>, mark: &Bookmark) -> Result<()> {
    if !mark.redaction.exists() {
        return Ok(());
    }
    if change.object(mark.redaction)?.dnode().spill.is_some() {
        features::decrement(change, guid::REDACTION_SPILL)?;
    }
    change.free_object(mark.redaction)?;
    features::decrement(change, guid::REDACTION_BOOKMARKS)
}

/// Whether a snapshot is among the predecessors of a head.
fn is_ancestor_snapshot(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    snapshot: ObjectId,
) -> Result<bool> {
    let mut at = change.dataset_phys(head)?;
    let wanted = change.dataset_phys(snapshot)?.creation_txg;
    while at.previous.exists() && at.previous_txg >= wanted {
        if at.previous == snapshot {
            return Ok(true);
        }
        at = change.dataset_phys(at.previous)?;
    }
    Ok(false)
}

/// Whether a txg of one directory is in the past of another: of the same, or of one that it is a clone of.
fn is_ancestor_dir(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    ancestor: ObjectId,
    txg: Txg,
) -> Result<bool> {
    let mut at = dir;
    while at != ancestor {
        let origin = change.dir_phys(at)?.origin;
        if !origin.exists() {
            return Ok(false);
        }
        let origin = change.dataset_phys(origin)?;
        // an origin is older than its clones, so that this ends
        if origin.creation_txg < txg {
            return Ok(false);
        }
        at = origin.dir;
    }
    Ok(true)
}

/// The bookmark of a head by its name.
fn find_bookmark(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    part: &str,
) -> Result<Option<NamedBookmark>> {
    let Some(name) = stored_name(change, head, part)? else { return Ok(None) };
    Ok(list_bookmarks(change, head)?.into_iter().find(|known| known.name == name))
}

fn bookmark_zap(change: &SyncTaskContext<'_>, head: ObjectId) -> Result<ObjectId> {
    Ok(change.zap_field_object(head, DatasetPhys::BOOKMARKS)?.unwrap_or(ObjectId::META))
}

/// The name of a bookmark as it is in the table.
pub(crate) fn stored_name(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    part: &str,
) -> Result<Option<String>> {
    let found = change.find_entry(head, bookmark_zap(change, head)?, part)?;
    Ok(found.map(|entry| String::from_utf8_lossy(&entry.name).into_owned()))
}

/// All bookmarks of a head, oldest first.
pub(crate) fn list_bookmarks(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
) -> Result<Vec<NamedBookmark>> {
    let mut found = Vec::new();
    for entry in change.zap_entries(bookmark_zap(change, head)?)? {
        let mark = Bookmark::from_words(&entry.value.u64s())
            .map_err(|error| Error::Corrupt { object: head, why: error })?;
        found.push(NamedBookmark {
            name: String::from_utf8_lossy(&entry.name).into_owned(),
            bookmark: mark,
        });
    }
    found.sort_by_key(|known| known.bookmark.creation_txg);
    Ok(found)
}

/// The bookmark that a snapshot has now.
pub(super) fn bookmark_from_snapshot(
    change: &SyncTaskContext<'_>,
    id: ObjectId,
    record: &DatasetPhys,
) -> Result<Bookmark> {
    let mut mark = Bookmark {
        guid: record.guid,
        creation_txg: record.creation_txg,
        creation_time: record.creation_time,
        ..Bookmark::default()
    };
    if snapshot::is_encrypted(change, record.dir)?
        && features::is_enabled(change, guid::BOOKMARK_V2)?
    {
        let ivset = change.zap_field_u64(id, DatasetPhys::IVSET_GUID)?;
        mark.ivset_guid = ivset.unwrap_or(0);
    }
    if features::is_enabled(change, guid::BOOKMARK_WRITTEN)? {
        mark.flags = Bookmark::HAS_SIZES | Bookmark::SNAPSHOT_EXISTS;
        (mark.referenced, mark.compressed, mark.uncompressed) =
            (record.referenced, record.compressed, record.uncompressed);
        let next = change.dataset_phys(record.next)?;
        add_freed(&mut mark, deadlist::space(change, next.deadlist)?);
    }
    Ok(mark)
}

fn add_freed(mark: &mut Bookmark, space: SpaceDelta) {
    space.add_to([&mut mark.freed, &mut mark.freed_compressed, &mut mark.freed_uncompressed]);
}

/// Adds a bookmark to a head.
pub(crate) fn insert(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    named: &NamedBookmark,
) -> Result<()> {
    let mut table = bookmark_zap(change, head)?;
    if !table.exists() {
        table = change.create_case_insensitive_zap(ZAP_METADATA)?;
        features::increment(change, guid::BOOKMARKS)?;
        change.set_zap_field(head, DatasetPhys::BOOKMARKS, &[table.get()])?;
    }
    if named.bookmark.is_long() {
        features::increment(change, guid::BOOKMARK_V2)?;
    }
    change.update(table, &named.name, &u64_value(&named.bookmark.to_words()))
}

/// Writes a bookmark of a head again.
fn rewrite(change: &SyncTaskContext<'_>, head: ObjectId, named: &NamedBookmark) -> Result<()> {
    let table = bookmark_zap(change, head)?;
    change.update(table, &named.name, &u64_value(&named.bookmark.to_words()))
}

/// Takes a bookmark from a head; its lists stay, as it is to go to another.
pub(crate) fn remove(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    named: &NamedBookmark,
) -> Result<()> {
    if named.bookmark.is_long() {
        features::decrement(change, guid::BOOKMARK_V2)?;
    }
    change.remove(bookmark_zap(change, head)?, &named.name).map(drop)
}

/// Destroys all bookmarks of a head that is destroyed.
pub(crate) fn destroy_all(change: &SyncTaskContext<'_>, head: ObjectId) -> Result<()> {
    let table = bookmark_zap(change, head)?;
    if !table.exists() {
        return Ok(());
    }
    for named in list_bookmarks(change, head)? {
        free_redaction_list(change, &named.bookmark)?;
        if named.bookmark.is_long() {
            features::decrement(change, guid::BOOKMARK_V2)?;
        }
        if named.bookmark.has_sizes() {
            features::decrement(change, guid::BOOKMARK_WRITTEN)?;
        }
    }
    change.free_object(table)?;
    features::decrement(change, guid::BOOKMARKS)
}

/// Begins stretches in a head's new deadlist, for its bookmarks since the previous snapshot.
pub(crate) fn add_deadlist_entries(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    new: ObjectId,
    previous: Txg,
) -> Result<()> {
    let marks = list_bookmarks(change, head)?.into_iter().map(|named| named.bookmark);
    let marks = marks.filter(|mark| mark.has_sizes() && mark.creation_txg > previous);
    // sorted, since the bookmarks are
    let mut starts: Vec<Txg> = marks.map(|mark| mark.creation_txg).collect();
    starts.dedup();
    deadlist::add_entries(change, new, &starts)
}

/// Blocks of a head died: adds them to the counts of bookmarks that reference them.
pub(crate) fn record_killed(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    died: &[(Txg, SpaceDelta)],
) -> Result<()> {
    let previous = change.dataset_phys(head)?.previous_txg;
    for mut named in list_bookmarks(change, head)? {
        if named.bookmark.creation_txg < previous || !named.bookmark.has_sizes() {
            continue;
        }
        let reached = died.iter().filter(|(birth, _)| *birth <= named.bookmark.creation_txg);
        let sum = reached.fold(SpaceDelta::default(), |sum, (_, space)| sum + *space);
        if sum != SpaceDelta::default() {
            add_freed(&mut named.bookmark, sum);
            rewrite(change, head, &named)?;
        }
    }
    Ok(())
}

/// Neighbouring snapshots of a head are destroyed. Bookmarks between them and the snapshot before
/// them, of the txg `previous`, get another next snapshot. `died` has for each of the snapshots,
/// oldest first, its txg and the blocks that died between it and the dataset after it. Returns the
/// txgs at which the head's deadlist keeps an entry, because a bookmark of one of the snapshots
/// needs it.
pub(crate) fn snapshots_destroyed(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    previous: Txg,
    died: &[(Txg, &DeadlistContents)],
) -> Result<Vec<Txg>> {
    let Some((newest, _)) = died.last() else { return Ok(Vec::new()) };
    let concerned = |it: &NamedBookmark| {
        let txg = it.bookmark.creation_txg;
        it.bookmark.has_sizes() && txg >= previous && txg <= *newest
    };
    let mut marks = list_bookmarks(change, head)?;
    marks.retain(concerned);
    let mut kept = Vec::new();
    let mut later = died.iter().rev().peekable();
    let mut sums: BTreeMap<Txg, SpaceDelta> = BTreeMap::new();
    for mut named in marks.into_iter().rev() {
        let txg = named.bookmark.creation_txg;
        while let Some((_, contents)) = later.next_if(|(snapshot, _)| *snapshot > txg) {
            for filled in &contents.entries {
                let sum = sums.entry(filled.start).or_default();
                *sum = *sum + filled.space;
            }
        }
        if later.peek().is_some_and(|(snapshot, _)| *snapshot == txg) {
            named.bookmark.flags &= !Bookmark::SNAPSHOT_EXISTS;
            kept.push(txg);
        }
        let reached = sums.range(..txg).map(|(_, space)| *space);
        add_freed(&mut named.bookmark, reached.fold(SpaceDelta::default(), std::ops::Add::add));
        rewrite(change, head, &named)?;
    }
    kept.sort_unstable();
    kept.dedup();
    Ok(kept)
}

/// The successor of a snapshot changed: its bookmarks are written again.
pub(crate) fn refresh_snapshot_bookmarks(
    change: &SyncTaskContext<'_>,
    head: ObjectId,
    snapshot: ObjectId,
) -> Result<()> {
    let record = change.dataset_phys(snapshot)?;
    for named in list_bookmarks(change, head)? {
        if named.bookmark.creation_txg == record.creation_txg && named.bookmark.has_sizes() {
            let redaction = named.bookmark.redaction;
            let mark = Bookmark { redaction, ..bookmark_from_snapshot(change, snapshot, &record)? };
            rewrite(change, head, &NamedBookmark { bookmark: mark, ..named })?;
        }
    }
    Ok(())
}

/// The txg of the newest bookmark of a head.
pub(crate) fn newest_txg(change: &SyncTaskContext<'_>, head: ObjectId) -> Result<Txg> {
    let all = list_bookmarks(change, head)?;
    Ok(all.last().map_or(Txg::ZERO, |known| known.bookmark.creation_txg))
}
