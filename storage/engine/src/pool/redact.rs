//! Redaction: bookmarks that list the blocks which a stream leaves out, and the streams that use them.
//!
//! A redaction bookmark of a snapshot is made against snapshots of its clones. A block is redacted if all of those
//! snapshots changed it. A redacted stream has all other blocks; its receiver completes the copy with a stream of one
//! of the redaction snapshots, or from the bookmark.

use dsl::{Dataset, DatasetTree, write};
use send::Redaction;
use units::{Guid, Txg};

use super::Pool;
use super::history::record_dataset_event;
use crate::pool::handles::Streams;
use crate::{Error, Result};

impl Streams<'_> {
    /// Creates the redaction bookmark `bookmark`, a name without `#`, of a snapshot. A block of the snapshot is redacted
    /// if all of `others`, snapshots of its clones, changed it.
    ///
    /// # Errors
    ///
    /// The bookmark exists, a snapshot is no descendant, is redacted itself or locked, or its blocks cannot be read.
    pub fn redact(self, snapshot: &str, bookmark: &str, others: &[String]) -> Result<()> {
        self.pool.check_writable()?;
        let refused =
            |why: &str| Error::Refused { what: format!("cannot redact '{snapshot}': {why}") };
        if bookmark.contains('#') {
            return Err(refused("redaction bookmark name must not contain '#'"));
        }
        let original = self.pool.find_dataset(snapshot)?;
        let Some(taken) = original.phys().filter(|_| original.is_snapshot()) else {
            return Err(refused("it is not a snapshot"));
        };
        let taken = taken.creation_txg;
        let others: Vec<Dataset> =
            others.iter().map(|name| self.pool.find_dataset(name)).collect::<Result<_>>()?;
        let all = std::iter::once(&original).chain(&others);
        let holds: Vec<_> = all.filter_map(Dataset::id).collect();
        let _holds: Vec<_> =
            holds.into_iter().map(|id| self.pool.0.dataset_holds.hold(id)).collect();
        let (head, name) = (original.dir().path(), original.name());
        let mark = format!("{head}#{bookmark}");
        if self.pool.find_dataset(&mark).is_ok() {
            let why = format!("specified redaction bookmark ({bookmark}) provided already exists");
            return Err(refused(&why));
        }
        let open = |dataset: &Dataset| open_redactable(dataset, &name);
        let objset = open(&original)?;
        let mut objsets = Vec::new();
        for other in &others {
            if !is_descendant(other, &original, taken).map_err(|why| refused(&why.to_string()))? {
                let why = "redaction snapshot must be descendent of snapshot being redacted";
                return Err(refused(why));
            }
            objsets.push(open(other)?);
        }
        let blocks = send::redacted_blocks(&objset, taken, &objsets)
            .map_err(|why| refused(&why.to_string()))?;
        let snaps: Vec<Guid> = others.iter().map(Dataset::guid).collect();
        self.pool.run_sync_task(move |active, change| {
            write::create_redaction_bookmark(change, &mark, &name, (&snaps, &blocks))
                .map_err(|why| Error::from_dsl_error(&mark, &why))?;
            record_dataset_event(active, change, "redact", &name, &format!("bookmark={mark}"));
            Ok(())
        })
    }
}

impl Pool {
    /// The redaction of the stream of a snapshot: by a bookmark, or as the snapshot itself is redacted.
    pub(super) fn redaction(
        &self,
        dataset: &Dataset,
        base: Option<&str>,
        bookmark: Option<&str>,
    ) -> Result<Redaction> {
        let name = dataset.name();
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        let mut redaction = Redaction::default();
        match bookmark {
            Some(bookmark) => {
                let mark = self.find_redaction_mark(dataset, bookmark)?;
                redaction.snaps = list_snaps(&mark).map_err(failed)?;
                redaction.blocks = mark.redacted_blocks().map_err(failed)?;
            }
            None => redaction.snaps = dataset.redaction_snapshots().map_err(failed)?,
        }
        if let Some(base) = base.map(|base| self.find_dataset(base)).transpose()? {
            if base.bookmark_record().is_some() {
                redaction.base_snaps = list_snaps(&base).map_err(failed)?;
                redaction.base_blocks = base.redacted_blocks().map_err(failed)?;
            } else {
                redaction.base_snaps = base.redaction_snapshots().map_err(failed)?;
            }
        }
        Ok(redaction)
    }

    /// The redaction bookmark of a snapshot by its name behind the `#`.
    fn find_redaction_mark(&self, dataset: &Dataset, bookmark: &str) -> Result<Dataset> {
        let name = dataset.name();
        let refused = |why: &str| Error::Refused { what: format!("cannot send '{name}': {why}") };
        let short = bookmark.rsplit('#').next().unwrap_or(bookmark);
        let mark = match self.find_dataset(&format!("{}#{short}", dataset.dir().path())) {
            Ok(mark) => mark,
            Err(Error::NoSuchDataset { .. }) => {
                return Err(refused("nonexistent redaction bookmark provided"));
            }
            Err(why) => return Err(why),
        };
        let list = mark.redaction_list().map_err(|why| Error::from_dsl_error(&name, &why))?;
        match list {
            None => Err(refused("not a redaction bookmark")),
            Some(list) if !list.is_complete() => {
                Err(refused("incomplete redaction bookmark provided"))
            }
            Some(_) if mark.guid() != dataset.guid() => {
                Err(refused("the redaction bookmark is of another snapshot"))
            }
            Some(_) => Ok(mark),
        }
    }
}

/// The guids of a bookmark's redaction snapshots.
fn list_snaps(mark: &Dataset) -> dsl::Result<Option<Vec<u64>>> {
    let list = mark.redaction_list()?;
    Ok(list.map(|list| list.snaps.into_iter().map(Guid::get).collect()))
}

/// The content of a snapshot that is redacted, or that another is redacted by.
fn open_redactable(dataset: &Dataset, original: &str) -> Result<dmu::Objset> {
    let name = dataset.name();
    let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
    if dataset.is_redacted().map_err(failed)? {
        let what = format!(
            "cannot redact '{original}': attempted to redact redacted dataset or with respect to \
             redacted dataset"
        );
        return Err(Error::Refused { what });
    }
    dataset.open_objset().map_err(failed)
}

/// Whether a snapshot is one of a clone of another, at any depth, or a later one of the same file system.
fn is_descendant(snapshot: &Dataset, original: &Dataset, taken: Txg) -> dsl::Result<bool> {
    let mut at = snapshot.clone();
    loop {
        if at.id() == original.id() {
            return Ok(at.id() != snapshot.id());
        }
        let is_later = at.phys().is_some_and(|phys| phys.creation_txg > taken);
        if at.dir().path() == original.dir().path() {
            return Ok(is_later && snapshot.is_snapshot());
        }
        // an origin is older than its clone, so that this ends
        let head = at.tree().find(at.dir().path())?;
        let Some(origin) = head.clone_origin()? else { return Ok(false) };
        at = origin;
    }
}

/// The bookmark of a snapshot that has these redaction snapshots.
pub(super) fn find_redaction_bookmark(
    tree: &DatasetTree,
    snapshot: &Dataset,
    snaps: &[u64],
) -> Result<Dataset> {
    let guid = snapshot.guid();
    let failed = |error: dsl::Error| Error::from_dsl_error(&snapshot.name(), &error);
    let head = tree.find(snapshot.dir().path()).map_err(failed)?;
    for mark in head.bookmarks().map_err(failed)? {
        if mark.guid() == guid && has_snaps(list_snaps(&mark).map_err(failed)?, snaps) {
            return Ok(mark);
        }
    }
    Err(no_bookmark())
}

/// The snapshot or bookmark of a guid that is redacted by these snapshots.
pub(super) fn find_redacted_base(tree: &DatasetTree, guid: u64, snaps: &[u64]) -> Result<Dataset> {
    for found in tree.datasets().filter_map(std::result::Result::ok) {
        if found.guid().get() != guid || !found.name().contains(['@', '#']) {
            continue;
        }
        let known = match found.bookmark_record() {
            Some(_) => list_snaps(&found),
            None => found.redaction_snapshots(),
        };
        if has_snaps(known.map_err(|why| Error::from_dsl_error(&found.name(), &why))?, snaps) {
            return Ok(found);
        }
    }
    Err(no_bookmark())
}

fn has_snaps(known: Option<Vec<u64>>, snaps: &[u64]) -> bool {
    known.is_some_and(|known| {
        known.len() == snaps.len() && snaps.iter().all(|guid| known.contains(guid))
    })
}

fn no_bookmark() -> Error {
    let what = "cannot resume send: no appropriate redaction bookmark exists".to_owned();
    Error::Refused { what }
}
