//! The drives of this machine, from sysfs and the links that udev makes. Nothing here reads a drive.
//!
//! ```text
//! /sys/block/sda/size                 in units of 512 bytes, whatever the sector size
//! /sys/block/sda/device/{vendor,model,wwid}
//! /sys/block/nvme0n1/device/{serial,model,firmware_rev}
//! /sys/block/sda/queue/rotational     1: it has platters
//! /sys/class/block/sda1/partition     is there: sda1 is a partition of the directory above
//! /sys/class/block/dm-0/slaves/       the devices below a mapping (LUKS, LVM)
//! /dev/disk/by-id/ata-MODEL_SERIAL -> ../../sda
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The unit of `size` in sysfs, in bytes.
const SYSFS_SECTOR: u64 = 512;
/// Block devices that have a `device` link but are not drives.
const NO_DRIVES: [&str; 3] = ["sr", "fd", "nbd"];
/// The deepest stack of mappings that is followed.
const MAX_MAPPINGS: usize = 8;

/// The roots of the trees that describe this machine's drives.
#[derive(Clone, Debug)]
pub struct Host {
    sys: PathBuf,
    dev: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into() }
    }
}

/// A drive as the kernel knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// The kernel's name: `sda`, `nvme0n1`.
    pub name: String,
    /// The device node.
    pub path: PathBuf,
    /// The names in `/dev/disk/by-id`.
    pub ids: Vec<String>,
    /// The size in bytes.
    pub size: u64,
    /// Whether it has platters.
    pub is_rotational: bool,
    /// The model.
    pub model: Option<String>,
    /// The serial number, if the kernel or udev knows it.
    pub serial: Option<String>,
    /// The type for `smartctl -d`; none: smartctl finds it out.
    pub smartctl_type: Option<String>,
}

impl Host {
    /// A machine whose trees are in other places.
    pub fn with_roots(sys: PathBuf, dev: PathBuf) -> Self {
        Self { sys, dev }
    }

    /// The drives, in the order of their names. Partitions, mappings, loop devices and empty card readers are
    /// left out.
    pub fn drives(&self) -> Vec<BlockDevice> {
        let ids = self.ids();
        let mut drives: Vec<_> = file_names(&self.sys.join("block"))
            .filter(|name| !NO_DRIVES.iter().any(|kind| name.starts_with(kind)))
            .filter_map(|name| self.drive(&name, &ids))
            .collect();
        drives.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        drives
    }

    /// The device of a drive in sysfs.
    pub(crate) fn device_dir(&self, drive: &str) -> PathBuf {
        self.sys.join("block").join(drive).join("device")
    }

    fn drive(&self, name: &str, ids: &BTreeMap<String, Vec<String>>) -> Option<BlockDevice> {
        let dir = self.sys.join("block").join(name);
        if !dir.join("device").exists() {
            return None;
        }
        let size = read_text(&dir.join("size"))?.parse::<u64>().ok()?.checked_mul(SYSFS_SECTOR)?;
        if size == 0 {
            return None;
        }
        let ids = ids.get(name).cloned().unwrap_or_default();
        let vendor = read_text(&dir.join("device/vendor"));
        Some(BlockDevice {
            name: name.to_owned(),
            path: self.dev.join(name),
            size,
            is_rotational: read_text(&dir.join("queue/rotational")).as_deref() == Some("1"),
            model: read_text(&dir.join("device/model")),
            serial: read_text(&dir.join("device/serial")).or_else(|| serial_of(&ids)),
            // without the type, smartctl's search for it may wake the drive
            smartctl_type: (vendor.as_deref() == Some("ATA")).then(|| "sat".to_owned()),
            ids,
        })
    }

    /// The names in `/dev/disk/by-id` of each device. Those of partitions are left out.
    fn ids(&self) -> BTreeMap<String, Vec<String>> {
        let dir = self.dev.join("disk/by-id");
        let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for id in file_names(&dir) {
            let target = fs::read_link(dir.join(&id)).ok();
            let name = target.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
            if let Some(name) = name {
                ids.entry(name.to_owned()).or_default().push(id);
            }
        }
        for all in ids.values_mut() {
            all.sort();
        }
        ids
    }

    /// The kernel's name of the drive below a path: of a partition its drive, of an encrypted
    /// mapping the drive under it. None if the path is not a block device, or is on several drives.
    pub fn drive_of(&self, path: &Path) -> Option<String> {
        let node = fs::canonicalize(path).ok()?;
        let name = node.strip_prefix(fs::canonicalize(&self.dev).ok()?).ok()?;
        self.below_mappings(name.file_name()?.to_str()?)
    }

    fn below_mappings(&self, name: &str) -> Option<String> {
        let mut name = name.to_owned();
        for _ in 0..MAX_MAPPINGS {
            let dir = fs::canonicalize(self.sys.join("class/block").join(&name)).ok()?;
            if dir.join("partition").exists() {
                return Some(dir.parent()?.file_name()?.to_str()?.to_owned());
            }
            let mut below = file_names(&dir.join("slaves"));
            match (below.next(), below.next()) {
                (None, _) => return Some(name),
                (Some(only), None) => name = only,
                (Some(_), Some(_)) => return None,
            }
        }
        None
    }
}

/// The serial number at the end of udev's `ata-MODEL_SERIAL` and `scsi-SVENDOR_MODEL_SERIAL`.
fn serial_of(ids: &[String]) -> Option<String> {
    let with_serial = ["ata-", "nvme-", "scsi-S", "usb-", "virtio-"];
    let of =
        |id: &String| with_serial.iter().find_map(|kind| Some(id.strip_prefix(kind)?.to_owned()));
    let id = ids.iter().find_map(of)?;
    let serial = id.rsplit('_').next().filter(|serial| !serial.is_empty())?;
    Some(serial.to_owned())
}

fn file_names(dir: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The text of a file of sysfs; nothing if it is empty or cannot be read.
fn read_text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
