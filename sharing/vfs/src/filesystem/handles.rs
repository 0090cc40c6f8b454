//! File handles of a file system: from inode numbers, which belong to this process, to stored
//! identities, and back.

use posix::Ino;
use units::Guid;

use super::snapshots::SnapshotView;
use super::{HEAD, PoolFileSystem, to_ino};
use crate::vnode::{DatasetIndex, Vnode};
use crate::{Error, FileHandle, HandleKind, Result, SharedFileSystem as _};

impl PoolFileSystem {
    /// The handle of a file.
    pub(super) fn handle_of(&self, ino: Ino) -> Result<FileHandle> {
        let head_guid = self.0.files().guid();
        let (kind, objset_guid, object) = match Self::vnode(ino)? {
            Vnode::File(HEAD, object) => (HandleKind::File, head_guid, object),
            Vnode::File(place, object) => (HandleKind::File, self.0.snapshots.guid(place)?, object),
            Vnode::ControlDir(_) => (HandleKind::ControlDir, head_guid, 0),
            Vnode::SnapshotDir(_) => (HandleKind::SnapshotDir, head_guid, 0),
            Vnode::VolumeDir(_) => (HandleKind::VolumeDir, head_guid, 0),
            Vnode::ShadowDir(_) => (HandleKind::ShadowDir, head_guid, 0),
            Vnode::Volume(place) => (HandleKind::Volume, self.0.volumes.guid(place)?, 0),
            // a snapshot in a listing; its root has a handle once it was looked up
            Vnode::Unopened(_) => return Err(Error::NotFound),
        };
        let generation = match kind {
            HandleKind::File => self.attributes_or_unlinked(ino)?.generation,
            _ => 0,
        };
        let (pool_guid, filesystem_guid) = (self.pool_guid(), Guid::new(head_guid));
        let objset_guid = Guid::new(objset_guid);
        Ok(FileHandle { pool_guid, filesystem_guid, objset_guid, kind, object, generation })
    }

    /// The file of a handle.
    pub(super) fn file_of_handle(&self, handle: &FileHandle) -> Result<Ino> {
        let head_guid = self.guid();
        let is_head = handle.objset_guid == head_guid;
        if handle.pool_guid != self.pool_guid() || handle.filesystem_guid != head_guid {
            return Err(Error::Stale);
        }
        match handle.kind {
            HandleKind::File if is_head => self.resolve_object(HEAD, handle),
            HandleKind::File => {
                let all = self.list_snapshots()?;
                let found = all.into_iter().find(|each| each.guid == handle.objset_guid.get());
                // the handle of a file that was found below `.zfs/shadow` names it below `.zfs/snapshot`
                let found = found.ok_or(Error::Stale)?;
                let place = self.0.snapshots.index_of(found, SnapshotView::ByName)?;
                self.resolve_object(place, handle)
            }
            HandleKind::ControlDir if is_head => to_ino(Vnode::ControlDir(HEAD)),
            HandleKind::SnapshotDir if is_head => to_ino(Vnode::SnapshotDir(HEAD)),
            HandleKind::VolumeDir if is_head => to_ino(Vnode::VolumeDir(HEAD)),
            HandleKind::ShadowDir if is_head => to_ino(Vnode::ShadowDir(HEAD)),
            HandleKind::Volume => {
                let all = self.list_volumes()?;
                let found = all.iter().find(|(_, guid)| *guid == handle.objset_guid.get());
                to_ino(Vnode::Volume(self.0.volumes.index_of(found.ok_or(Error::Stale)?)?))
            }
            _ => Err(Error::Stale),
        }
    }

    /// The file of an object, if it is still the file that the handle was made for.
    fn resolve_object(&self, place: DatasetIndex, handle: &FileHandle) -> Result<Ino> {
        let found = self.files(place)?.stat(handle.object).map_err(Error::from);
        match found {
            Ok(stat) if stat.generation == handle.generation => {
                to_ino(Vnode::File(place, handle.object))
            }
            Ok(_) | Err(Error::NotFound) => Err(Error::Stale),
            Err(why) => Err(why),
        }
    }
}
