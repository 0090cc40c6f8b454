//! Block devices of volumes on this machine.
//!
//! ```text
//! /dev/zvol/tank/vm          a symbolic link (`links`)
//!  └ /dev/loop3              the kernel's loop device: direct I/O
//!    └ RUN/volumes/7         a file in a FUSE mount that only root can enter
//!      └ lun::Lun            the volume, or a snapshot of it
//! ```
//!
//! A device is found again by the guid of its dataset, so it stays the same over a rename.

mod links;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::pool::{OwnVolume, Pool};
use fuse::{DetachOutcome, LoopDevice, LoopOptions, MountHandle, VolumeFileId, VolumeFiles};
use lun::{LunOptions, OpenUnit, UnitTable};

pub(crate) use links::LinkDir;

/// The directory of OpenZFS for the devices of volumes.
pub(crate) const VOLUME_DEVICES: &str = "/dev/zvol";
/// A program that has just looked at a device, as udev(7) does, closes it soon.
const DETACH_RETRIES: u32 = 5;
const DETACH_RETRY_DELAY: Duration = Duration::from_millis(40);

/// A volume or snapshot that is to have a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedDevice {
    /// The full name.
    pub(crate) name: String,
    pub(crate) guid: u64,
    pub(crate) is_read_only: bool,
    /// The kernel shows the partitions on it (volmode=full).
    pub(crate) has_partitions: bool,
}

/// The directory of files that loop devices use.
pub(crate) struct BackingDir {
    dir: PathBuf,
    files: VolumeFiles,
    _mount: MountHandle,
}

impl BackingDir {
    /// Mounts the directory. Devices and a mount that a killed daemon left there are removed.
    pub(crate) fn mount(dir: &Path) -> Result<Self, String> {
        let failed = |why: io::Error| format!("{}: {why}", dir.display());
        clear_stale(dir);
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let dir = fs::canonicalize(dir).map_err(failed)?;
        let files = VolumeFiles::default();
        let mount = fuse::mount_volumes(&files, &dir).map_err(|why| why.to_string())?;
        Ok(Self { dir, files, _mount: mount })
    }

    fn path_of(&self, id: VolumeFileId) -> PathBuf {
        self.dir.join(id.to_string())
    }
}

/// Removes the devices and the mount that a killed daemon left.
pub(crate) fn clear_stale(dir: &Path) {
    // the kernel shows paths without links; the directory itself may be a dead mount
    let parent = dir.parent().and_then(|parent| fs::canonicalize(parent).ok());
    let shown = parent.zip(dir.file_name()).map(|(parent, name)| parent.join(name));
    for device in LoopDevice::over_files_in(shown.as_deref().unwrap_or(dir)) {
        // a program that still has it open gets errors until it closes it
        let _ = device.detach(true);
    }
    fuse::unmount_dead(dir);
}

/// The block device of a volume.
pub(crate) struct VolumeDevice {
    wanted: WantedDevice,
    /// Bytes of the device.
    size: u64,
    unit: OpenUnit,
    file: VolumeFileId,
    device: LoopDevice,
    /// No pool may lie on it.
    own: Option<OwnVolume>,
}

impl VolumeDevice {
    /// Opens a volume and makes its device.
    pub(crate) fn attach(
        backing: &BackingDir,
        (pool, units): (&Pool, &UnitTable),
        wanted: WantedDevice,
    ) -> Result<Self, String> {
        let opened = units.open(pool, &wanted.name, LunOptions::default());
        let unit = opened.map_err(|why| why.to_string())?;
        let size = unit.lun.geometry().size();
        let file = backing.files.add(Arc::clone(&unit.lun));
        let options =
            LoopOptions { read_only: wanted.is_read_only, has_partitions: wanted.has_partitions };
        let attached = LoopDevice::attach(&backing.path_of(file), &wanted.name, options);
        let device = attached.map_err(|why| {
            backing.files.remove(file);
            format!("no loop device can be had: {why}")
        })?;
        let own = device.number().map(|number| OwnVolume::register(number, &wanted.name));
        Ok(Self { wanted, size, unit, file, device, own: own.ok() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.wanted.name
    }

    pub(crate) fn guid(&self) -> u64 {
        self.wanted.guid
    }

    pub(crate) fn path(&self) -> &Path {
        self.device.path()
    }

    /// Whether the volume was destroyed, or its pool exported.
    pub(crate) fn is_gone(&self) -> bool {
        self.unit.is_gone()
    }

    /// Applies a new name, size and access.
    pub(crate) fn update(&mut self, backing: &BackingDir, wanted: WantedDevice) -> io::Result<()> {
        if wanted.is_read_only != self.wanted.is_read_only {
            self.device.set_read_only(wanted.is_read_only)?;
        }
        if wanted.name != self.wanted.name {
            let number = self.device.number()?;
            // the old entry has the same number
            drop(self.own.take());
            self.own = Some(OwnVolume::register(number, &wanted.name));
        }
        self.wanted = wanted;
        let size = self.unit.lun.geometry().size();
        if size != self.size {
            self.device.update_size(&backing.path_of(self.file))?;
            self.size = size;
        }
        Ok(())
    }

    /// Removes the device and closes the volume, unless a program has the device open. `force`:
    /// programs that have it open get errors from now on.
    pub(crate) fn detach(&self, backing: &BackingDir, force: bool) -> io::Result<DetachOutcome> {
        for tried in 0..DETACH_RETRIES {
            if tried > 0 {
                std::thread::sleep(DETACH_RETRY_DELAY);
            }
            if self.device.detach(false)? == DetachOutcome::Detached {
                backing.files.remove(self.file);
                return Ok(DetachOutcome::Detached);
            }
        }
        if force {
            self.device.detach(true)?;
            backing.files.remove(self.file);
        }
        Ok(DetachOutcome::InUse)
    }
}
