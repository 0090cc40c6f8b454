//! The snapshots of a file system that clients have looked into.

use engine::files::FileSystemReader;
use engine::pool::{Pool, Snapshot};
use parking_lot::RwLock;

use crate::vnode::DatasetIndex;
use crate::{Error, Result};

/// The snapshots with an index, which they keep: a new snapshot with an old name gets another
/// index.
#[derive(Default)]
pub(super) struct SnapshotTable(RwLock<Vec<KnownSnapshot>>);

struct KnownSnapshot {
    snapshot: Snapshot,
    view: SnapshotView,
    files: Option<FileSystemReader>,
}

/// The directory below `.zfs` by which a caller reached a snapshot.
///
/// The two views have inode numbers of their own: the kernel wants one path for a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SnapshotView {
    /// `.zfs/snapshot/NAME`.
    ByName,
    /// `.zfs/shadow/@GMT-...`.
    ByTime,
}

/// Places of snapshots begin here.
const FIRST_INDEX: usize = 1;

impl SnapshotTable {
    /// The place of a snapshot in a view.
    pub(super) fn index_of(&self, snapshot: Snapshot, view: SnapshotView) -> Result<DatasetIndex> {
        let mut all = self.0.write();
        let known = all.iter().position(|it| it.view == view && it.snapshot == snapshot);
        let at = known.unwrap_or_else(|| {
            all.push(KnownSnapshot { snapshot, view, files: None });
            all.len() - 1
        });
        let place = units::narrow::<u32>(at + FIRST_INDEX);
        if place < DatasetIndex::LIMIT { Ok(DatasetIndex(place)) } else { Err(Error::InoOverflow) }
    }

    /// The guid of the snapshot of a place.
    pub(super) fn guid(&self, place: DatasetIndex) -> Result<u64> {
        let at = usize::try_from(place.0).ok().and_then(|at| at.checked_sub(FIRST_INDEX));
        let all = self.0.read();
        let known = at.and_then(|at| all.get(at));
        known.map(|known| known.snapshot.guid).ok_or(Error::NotFound)
    }

    /// The name of the snapshot of a place that is shown by its name, if `object` is its root.
    pub(super) fn name_by_root(&self, place: DatasetIndex, object: u64) -> Option<String> {
        let at = usize::try_from(place.0).ok()?.checked_sub(FIRST_INDEX)?;
        let all = self.0.read();
        let known = all.get(at).filter(|known| known.view == SnapshotView::ByName)?;
        let root = known.files.as_ref()?.root_object();
        (root == object).then(|| known.snapshot.name.clone())
    }

    /// Its files.
    pub(super) fn files(
        &self,
        held: &Pool,
        dataset: &str,
        place: DatasetIndex,
    ) -> Result<FileSystemReader> {
        let at = units::to_usize(place.0).wrapping_sub(FIRST_INDEX);
        let name = {
            let all = self.0.read();
            let known = all.get(at).ok_or(Error::NotFound)?;
            if let Some(files) = &known.files {
                return Ok(files.clone());
            }
            format!("{dataset}@{}", known.snapshot.name)
        };
        let files = held.datasets().synced_reader(&name)?;
        if let Some(known) = self.0.write().get_mut(at) {
            known.files = Some(files.clone());
        }
        Ok(files)
    }
}
