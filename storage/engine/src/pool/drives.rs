//! Drives of an imported pool: replaced, attached, detached.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::label::{VdevConfig, VdevKind};
use spa::{AttachMode, NewChild, Reconstruction};
use units::Guid;

use super::create::{describe_drive, open_unused_drive};
use super::drive::Drive;
use super::history::record_pool_event;
use super::offline::OfflineOptions;
use super::{Pool, latency};
use crate::pool::handles::{Drives, Vdevs};
use crate::{Error, Result};

impl Vdevs<'_> {
    /// Replaces a drive, given by path or guid, by another one; none: by the one that is now at the
    /// old path. After a resilver the old one is detached. `force` takes one with data. An
    /// available spare of the pool replaces the old drive, which stays in the pool.
    pub fn replace(self, old: &str, new: Option<&Path>, force: bool) -> Result<()> {
        self.pool.replace_drive_by(old, new, force, Reconstruction::Healing)
    }

    /// The same by a sequential rebuild, which a scrub follows: of a mirror or a dRAID.
    pub fn rebuild(self, old: &str, new: Option<&Path>, force: bool) -> Result<()> {
        self.pool.replace_drive_by(old, new, force, Reconstruction::Sequential)
    }
}

impl Pool {
    fn replace_drive_by(
        &self,
        old: &str,
        new: Option<&Path>,
        force: bool,
        how: Reconstruction,
    ) -> Result<()> {
        let found = self.find_drive_or_distributed_spare(old)?;
        let there = found.path.clone().unwrap_or_default();
        let path = new.unwrap_or(Path::new(&there));
        if let Some((spare, device)) = self.find_available_spare(path) {
            let done = self.attach_spare(found.guid, &spare, device.as_ref(), how);
            done.map_err(|error| self.drive_error(&error))?;
            self.record_drive_event("spare", &found);
            return Ok(());
        }
        let gives_way = force && self.can_replace_itself(&found, path);
        if gives_way {
            self.drives().offline(
                &found.guid.to_string(),
                OfflineOptions { temporary: true, fault: false },
            )?;
        }
        let device = self.open_unused_drive(path, force);
        let done = device
            .and_then(|device| self.attach_child(&found, (path, device), AttachMode::Replace, how));
        if gives_way && done.is_err() {
            // without labels it may stay out of service: the first error says more
            let _ = self.drives().online(&found.guid.to_string());
        }
        done
    }

    /// Whether `path` is the drive itself, in service, and has no labels or has errors: another program overwrote it, or
    /// the file was deleted and made anew. Such a drive can replace itself, as OpenZFS allows it with `-f`. A txg with a
    /// new configuration, as after too many errors, gives it labels again.
    fn can_replace_itself(&self, drive: &VdevConfig, path: &Path) -> bool {
        let Some(leaf) = self.0.spa.tree().leaf(drive.guid) else { return false };
        let Some(device) = leaf.device().cloned() else { return false };
        if !device::is_same_file(Path::new(device.name()), path) {
            return false;
        }
        // a file that can be opened is not the one that the pool has locked
        let found = device::probe(&[path.to_path_buf()]).devices;
        let current = found.first().unwrap_or(&device);
        let has_errors = leaf.error_counts() != (0, 0) || leaf.write_errors() != 0;
        has_errors || spa::read_labels(current).0.is_none()
    }
}

impl Vdevs<'_> {
    /// The same with a drive that is open already. Its content is lost.
    pub fn replace_with(self, old: &str, new: &Path, device: &Drive) -> Result<()> {
        let found = self.pool.find_drive(old)?;
        let drive = (new, Arc::clone(device));
        self.pool.attach_child(&found, drive, AttachMode::Replace, Reconstruction::Healing)
    }

    /// The same by a sequential rebuild.
    pub fn rebuild_with(self, old: &str, new: &Path, device: &Drive) -> Result<()> {
        let found = self.pool.find_drive(old)?;
        let drive = (new, Arc::clone(device));
        self.pool.attach_child(&found, drive, AttachMode::Replace, Reconstruction::Sequential)
    }

    /// Puts a drive beside one that stands alone or in a mirror: it has all when a resilver is done. Or expands
    /// a raidz by it, named as `zpool status` does: "raidz1-0".
    pub fn attach(self, beside: &str, new: &Path, force: bool) -> Result<()> {
        if self.pool.vdevs().is_raidz(beside) {
            let device = self.pool.open_unused_drive(new, force)?;
            self.pool.vdevs().attach_to_raidz(beside, new, &device)?;
            return Ok(());
        }
        self.pool.attach_drive_by(beside, new, force, Reconstruction::Healing)
    }

    /// Attaches a drive to one that stands alone or in a mirror, by a sequential rebuild, which a scrub follows.
    pub fn attach_by_rebuild(self, beside: &str, new: &Path, force: bool) -> Result<()> {
        if self.pool.vdevs().is_raidz(beside) {
            let what = vdev::RebuildObstacle::Unsupported.to_string();
            return Err(Error::Usage { what });
        }
        self.pool.attach_drive_by(beside, new, force, Reconstruction::Sequential)
    }
}

impl Pool {
    fn attach_drive_by(
        &self,
        beside: &str,
        new: &Path,
        force: bool,
        how: Reconstruction,
    ) -> Result<()> {
        let found = self.find_drive(beside)?;
        let device = self.open_unused_drive(new, force)?;
        self.attach_child(&found, (new, device), AttachMode::Attach, how)
    }
}

impl Vdevs<'_> {
    /// Detaches a drive from a mirror, or ends its replacement, if the others have valid replicas.
    pub fn detach(self, drive: &str) -> Result<()> {
        let found = self.pool.find_drive_or_distributed_spare(drive)?;
        let done = self.pool.0.spa.detach(found.guid);
        done.map_err(|error| self.pool.drive_error(&error))?;
        self.pool.record_drive_event("detach", &found);
        Ok(())
    }
}

impl Drives<'_> {
    /// Reopens drives that were missing at the import, or went away since, at their
    /// paths or elsewhere in the same folders; returns their paths. A resilver writes the missed
    /// data to them.
    pub fn reopen(self) -> Vec<String> {
        let mut taken = Vec::new();
        if self.pool.is_read_only() {
            return taken;
        }
        for (guid, path) in self.pool.drives().missing() {
            taken.extend(self.pool.reopen_missing(guid, &path).ok());
        }
        for guid in self.pool.0.spa.reopen_failed_devices() {
            let Some(leaf) = self.pool.0.spa.tree().leaf(guid) else { continue };
            let path = leaf.device().map_or_else(String::new, |device| device.name().to_owned());
            // the first flush reports lost writes; then it is like any other
            self.pool.record_online(&path);
            leaf.clear_errors();
            // a spare may stand in for it; with the next clear if this fails
            let _ = self.pool.0.spa.unspare_cleared(Some(guid));
            taken.push(path);
        }
        if !taken.is_empty() {
            self.pool.update_device_paths();
        }
        taken
    }
}

impl Pool {
    /// Re-attaches a missing drive if it is at its path, or in that folder; returns its path.
    pub(super) fn reopen_missing(&self, guid: u64, path: &Path) -> Result<String> {
        let is_it = |found: &Drive| self.0.spa.newest_known_txg(Guid::new(guid), found).is_some();
        let open = |path: &Path| {
            let device = latency::open_exclusive(path);
            device.map_err(|error| Error::from_device_error(&error))
        };
        let device = match open(path) {
            Ok(device) if is_it(&device) => device,
            at_path => match device::find_moved_device(path, &is_it) {
                Some(moved) => open(&moved)?,
                None => at_path?,
            },
        };
        self.drives().reopen_with(guid, &device)?;
        Ok(device.name().to_owned())
    }

    /// Has a group written, with a note that a drive is back.
    fn record_online(&self, path: &str) {
        let what = format!("vdev={path}");
        let _ = self.0.spa.run_sync_task(move |active, change| {
            record_pool_event(active, change, "online", &what);
        });
    }
}

impl Drives<'_> {
    /// The former paths of the missing drives.
    pub fn unavailable(self) -> Vec<PathBuf> {
        let gone = self.pool.0.spa.tree().leaves().into_iter().filter(|leaf| leaf.is_device_gone());
        let gone = gone.filter_map(|leaf| Some(leaf.device()?.path()?.to_owned()));
        let missing = self.pool.drives().missing().into_iter().map(|(_, path)| path);
        missing.chain(gone).collect()
    }
}

impl Pool {
    /// Updates the paths of drives in the pool's configuration. A path that leads to the same drive
    /// stays: a link in /dev/disk outlasts the name that it leads to.
    pub(super) fn update_device_paths(&self) {
        let config = self.0.spa.config();
        let leaves = config.tree.iter().flat_map(VdevConfig::leaves);
        let moved = leaves.filter_map(|leaf| {
            let found = self.0.spa.tree().leaf(leaf.guid)?;
            // another drive may have the name of a missing one
            let now = found.device().filter(|device| !device.is_gone())?.path()?;
            let real = |path: &Path| std::fs::canonicalize(path).ok();
            let same = leaf.path.as_ref().is_some_and(|old| real(Path::new(old)) == real(now));
            let path = now.to_str().filter(|_| now.is_absolute() && !same)?;
            Some((leaf.guid, path.to_owned()))
        });
        let moved: Vec<_> = moved.collect();
        if !moved.is_empty() {
            // a suspended pool updates them with the next clear
            let _ = self.0.spa.set_device_paths(moved);
        }
    }
}

impl Drives<'_> {
    /// The same with a drive that is open already.
    pub fn reopen_with(self, guid: u64, device: &Drive) -> Result<()> {
        let done = self.pool.0.spa.reattach_device(Guid::new(guid), Arc::clone(device));
        done.map_err(|error| self.pool.drive_error(&error))?;
        self.pool.record_online(device.name());
        Ok(())
    }

    /// Drives that are missing though they should be in service: their guids, and where they were.
    pub fn missing(self) -> Vec<(u64, PathBuf)> {
        let config = self.pool.0.spa.config();
        let leaves = config.tree.iter().flat_map(VdevConfig::leaves);
        let missing = leaves.filter(|leaf| {
            let found = self.pool.0.spa.tree().leaf(leaf.guid);
            let found = found.filter(|_| leaf.kind != VdevKind::DraidSpare);
            found.is_some_and(|leaf| leaf.device().is_none() && leaf.out_of_service().is_none())
        });
        let path = |leaf: &VdevConfig| Some((leaf.guid.get(), PathBuf::from(leaf.path.as_ref()?)));
        missing.filter_map(path).collect()
    }
}

impl Pool {
    fn attach_child(
        &self,
        old: &VdevConfig,
        (path, device): (&Path, Drive),
        stay: AttachMode,
        how: Reconstruction,
    ) -> Result<()> {
        let new = NewChild { spec: describe_drive((&path.to_owned(), &device)), device };
        let done = self.0.spa.attach_child(old.guid, new, stay, how);
        done.map_err(|error| self.drive_error(&error))?;
        self.record_drive_event(
            if stay == AttachMode::Replace { "replace" } else { "attach" },
            old,
        );
        Ok(())
    }

    /// Detaches drives that were replaced by others which have all, and spares that are not needed any more.
    /// With autoexpand=on, vdevs of which all drives are larger now grow.
    pub(super) fn finish_replacements(&self) -> Result<()> {
        let finished = self.0.spa.finish_replacements();
        if finished.map_err(|error| self.explain_error(&error))? > 0
            && self.is_property_on("autoexpand")?
        {
            self.0.spa.expand_tops(None).map_err(|error| self.explain_error(&error))?;
        }
        Ok(())
    }
}

impl Drives<'_> {
    /// With autoreplace=on: replaces missing drives by empty ones that are now where they were; returns their
    /// paths.
    pub fn replace_missing(self) -> Result<Vec<String>> {
        let mut replaced = Vec::new();
        if self.pool.is_read_only()
            || self.pool.is_suspended()
            || !self.pool.is_property_on("autoreplace")?
        {
            return Ok(replaced);
        }
        for (guid, path) in self.pool.drives().missing() {
            // a drive that holds anything is left alone
            if path.exists() && self.pool.vdevs().replace(&guid.to_string(), None, false).is_ok() {
                replaced.push(path.display().to_string());
            }
        }
        Ok(replaced)
    }
}

impl Pool {
    pub(super) fn open_unused_drive(&self, path: &Path, force: bool) -> Result<Drive> {
        let same = |drive: &PathBuf| {
            let real = |path: &Path| std::fs::canonicalize(path).ok();
            real(drive).is_some_and(|here| Some(here) == real(path))
        };
        if self.drives().list().iter().any(same) {
            let (path, pool) = (path.display().to_string(), self.name().to_owned());
            return Err(Error::DeviceInPool { path, pool });
        }
        open_unused_drive(path, force)
    }

    /// The drive of a path, the last part of one, or a guid.
    pub(super) fn find_drive(&self, wanted: &str) -> Result<VdevConfig> {
        let config = self.0.spa.config();
        let leaves = config.tree.iter().flat_map(VdevConfig::leaves);
        let devices = leaves.filter(|leaf| matches!(leaf.kind, VdevKind::Disk | VdevKind::File));
        let all: Vec<&VdevConfig> = devices.collect();
        let guid: Option<Guid> = wanted.parse().ok().map(Guid::new);
        let absolute = std::path::absolute(wanted).unwrap_or_default();
        let here = |leaf: &VdevConfig| {
            let leaf = self.0.spa.tree().leaf(leaf.guid)?;
            leaf.device().map(|device| device.name().to_owned())
        };
        let is = |leaf: &VdevConfig, path: &Path| {
            here(leaf).iter().chain(&leaf.path).any(|known| Path::new(known) == path)
        };
        let named = |leaf: &VdevConfig| {
            let name = leaf.path.as_deref().and_then(|path| Path::new(path).file_name());
            name.is_some_and(|name| name == wanted)
        };
        let by_guid = all.iter().find(|leaf| Some(leaf.guid) == guid);
        let by_path = || all.iter().find(|leaf| is(leaf, &absolute) || is(leaf, Path::new(wanted)));
        let by_name = || all.iter().find(|leaf| named(leaf));
        let found = by_guid.or_else(by_path).or_else(by_name);
        found
            .map(|leaf| (*leaf).clone())
            .ok_or_else(|| Error::Usage { what: super::offline::NOT_IN_POOL.to_owned() })
    }

    /// The drive, or the distributed spare in use, of a name or guid.
    fn find_drive_or_distributed_spare(&self, wanted: &str) -> Result<VdevConfig> {
        let config = self.0.spa.config();
        let mut leaves = config.tree.iter().flat_map(VdevConfig::leaves);
        let is_named = |leaf: &&VdevConfig| {
            leaf.path.as_deref() == Some(wanted) || leaf.guid.to_string() == wanted
        };
        let spare = leaves.find(|leaf| leaf.kind == VdevKind::DraidSpare && is_named(leaf));
        spare.map_or_else(|| self.find_drive(wanted), |spare| Ok(spare.clone()))
    }

    /// The guid of a drive, be it one of the pool's data, of its cache, or a spare.
    pub(super) fn find_any_drive(&self, wanted: &str) -> Result<Guid> {
        let found = self.find_drive(wanted).map(|leaf| leaf.guid);
        found
            .or_else(|error| self.find_auxiliary_drive(wanted).map(|named| named.guid).ok_or(error))
    }

    pub(super) fn drive_error(&self, error: &spa::Error) -> Error {
        match error {
            spa::Error::DeviceChange(error) => Error::Usage { what: error.to_string() },
            other => self.explain_error(other),
        }
    }

    pub(super) fn record_drive_event(&self, what: &'static str, old: &VdevConfig) {
        let path = old.path.clone().unwrap_or_default();
        // it is done whether it is written down or not
        let _ = self.0.spa.run_sync_task(move |active, change| {
            record_pool_event(active, change, what, &format!("vdev={path}"));
        });
    }
}
