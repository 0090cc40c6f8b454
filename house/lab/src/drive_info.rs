//! Drives as the kernel knows them: model, size, and the way they are connected.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::System;

/// A drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveInfo {
    /// Its name in the kernel: `sdb`; of a file, its path.
    pub name: String,
    /// Its model.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Bytes.
    pub size_bytes: u64,
    /// Whether it turns.
    pub rotates: Option<bool>,
    /// Bytes of a sector, as it is addressed.
    pub sector_bytes: Option<u64>,
    /// Bytes of a sector, as it is kept.
    pub physical_sector_bytes: Option<u64>,
    /// The controller: its address on the bus, as `0000:03:00.0`.
    pub controller: Option<String>,
    /// The controller's link, in the kernel's words: `2.5 GT/s PCIe x1`.
    pub controller_link: Option<String>,
    /// The rate of the controller's link, bytes a second.
    pub controller_bytes_per_second: Option<f64>,
    /// The speed of the drive's own link, in the kernel's words: `6.0 Gbps`.
    pub link: Option<String>,
}

impl DriveInfo {
    /// Facts about the drive of that name, `sdb` or `nvme0n1`.
    pub fn read(system: &System, name: &str) -> Self {
        let block = PathBuf::from("sys/block").join(name);
        let queue = block.join("queue");
        let device = system.resolve_link(&block).unwrap_or_default();
        let controller = controller_address(&device);
        let link = controller.as_deref().and_then(|address| pci_link(system, address));
        Self {
            name: name.to_owned(),
            model: system.read_text(block.join("device/model")).filter(|text| !text.is_empty()),
            serial: read_serial(system, &block),
            size_bytes: system.read_number(block.join("size")).unwrap_or(0).saturating_mul(512),
            rotates: system.read_number(queue.join("rotational")).map(|number| number != 0),
            sector_bytes: system.read_number(queue.join("logical_block_size")),
            physical_sector_bytes: system.read_number(queue.join("physical_block_size")),
            controller,
            controller_bytes_per_second: link.as_ref().map(|(_, rate)| *rate),
            controller_link: link.map(|(words, _)| words),
            link: sata_link(system, &device),
        }
    }

    /// The drive's name with its model and serial number, where they are known.
    pub fn title(&self) -> String {
        let known: Vec<&str> =
            [&self.model, &self.serial].into_iter().filter_map(Option::as_deref).collect();
        if known.is_empty() {
            self.name.clone()
        } else {
            format!("{} ({})", self.name, known.join(", "))
        }
    }
}

/// The drives that a device of that number lies on: itself, or those below a mapper or an array.
pub(crate) fn underlying_drives(system: &System, number: &str) -> Vec<DriveInfo> {
    let mut found = Vec::new();
    if let Some(device) = system.resolve_link(Path::new("sys/dev/block").join(number)) {
        collect_drives(system, &device, &mut found, 0);
    }
    found
}

/// Devices stand on devices at most so often.
const MAX_DEVICE_DEPTH: usize = 8;

fn collect_drives(system: &System, device: &Path, found: &mut Vec<DriveInfo>, depth: usize) {
    let slaves = system.list_dir(device.join("slaves"));
    if slaves.is_empty() || depth == MAX_DEVICE_DEPTH {
        let is_partition = system.read_text(device.join("partition")).is_some();
        let whole = if is_partition { device.parent().unwrap_or(device) } else { device };
        let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
        let facts = name.map(|name| DriveInfo::read(system, &name));
        found.extend(facts.filter(|facts| !found.iter().any(|known| known.name == facts.name)));
        return;
    }
    for slave in slaves {
        if let Some(below) = system.resolve_link(device.join("slaves").join(slave)) {
            collect_drives(system, &below, found, depth + 1);
        }
    }
}

fn read_serial(system: &System, block: &Path) -> Option<String> {
    let plain = [block.join("device/serial"), block.join("serial")];
    let found = plain.iter().find_map(|path| system.read_text(path)).or_else(|| {
        // page 0x80 of a SCSI drive: four bytes, then the number
        let page = std::fs::read(system.path(block.join("device/vpd_pg80"))).ok()?;
        Some(String::from_utf8_lossy(page.get(4..)?).trim().to_owned())
    });
    found.filter(|text| !text.is_empty())
}

/// The last device of the PCI bus on the way to a drive.
fn controller_address(device: &Path) -> Option<String> {
    let is_address = |name: &&str| {
        let parts: Vec<&str> = name.split([':', '.']).collect();
        name.len() >= 12 && parts.len() == 4 && parts.iter().all(|part| is_hexadecimal(part))
    };
    let names = device.components().filter_map(|part| part.as_os_str().to_str());
    names.rev().find(is_address).map(str::to_owned)
}

fn is_hexadecimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A PCI device's link: in words, and its rate in bytes a second.
fn pci_link(system: &System, address: &str) -> Option<(String, f64)> {
    let device = Path::new("sys/bus/pci/devices").join(address);
    let speed = system.read_text(device.join("current_link_speed"))?;
    let width = system.read_number(device.join("current_link_width")).filter(|width| *width > 0)?;
    let giga: f64 = speed.split_whitespace().next()?.parse().ok()?;
    // up to 5 GT/s a byte takes ten bits on the line, later 130 bits carry 128
    let useful = if giga <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    let rate = giga * 1e9 * useful / 8.0 * crate::number::to_f64(width);
    (rate > 0.0).then(|| (format!("{speed} x{width}"), rate))
}

/// The speed of a SATA drive's own link.
fn sata_link(system: &System, device: &Path) -> Option<String> {
    let port = device.components().find_map(|part| {
        let digits = part.as_os_str().to_str()?.strip_prefix("ata")?;
        digits.parse::<u32>().ok()
    })?;
    let speed = system.read_text(format!("sys/class/ata_link/link{port}/sata_spd"))?;
    speed.contains("Gbps").then_some(speed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{DriveInfo, controller_address, underlying_drives};
    use crate::System;
    use crate::mount::Mount;

    /// A machine with a SATA drive behind a narrow controller, and a mapper on its partition.
    fn test_system(root: &Path) -> System {
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let pci = "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0";
        let drive = format!("{pci}/ata7/host6/target6:0:0/6:0:0:0/block/sdc");
        put(&format!("{pci}/current_link_speed"), "2.5 GT/s PCIe\n");
        put(&format!("{pci}/current_link_width"), "1\n");
        put(&format!("{drive}/size"), "2000\n");
        put(&format!("{drive}/queue/rotational"), "1\n");
        put(&format!("{drive}/device/model"), "ACME 4000 \n");
        put(&format!("{drive}/device/vpd_pg80"), "\0\u{1}\0\u{4}S123");
        put(&format!("{drive}/sdc1/partition"), "1\n");
        put("sys/class/ata_link/link7/sata_spd", "3.0 Gbps\n");
        let mapper = "sys/devices/virtual/block/dm-0";
        put(&format!("{mapper}/size"), "1000\n");
        let link = |to: &str, from: &str| {
            let from = root.join(from);
            fs::create_dir_all(from.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(root.join(to), from).unwrap();
        };
        link(&drive, "sys/block/sdc");
        link(pci, "sys/bus/pci/devices/0000:03:00.0");
        link(mapper, "sys/dev/block/252:0");
        link(&format!("{drive}/sdc1"), &format!("{mapper}/slaves/sdc1"));
        System::with_root(root)
    }

    #[test]
    fn drive_below_mapper_is_found_with_links() {
        let root = fixtures::scratch_dir("lab-drive");
        let system = test_system(&root);
        let found = underlying_drives(&system, "252:0");
        assert_eq!(found.len(), 1);
        let mount = |kind: &str| {
            let (kind, device) = (kind.to_owned(), "252:0".to_owned());
            Mount { kind, device, ..Mount::default() }.drives(&system).len()
        };
        assert_eq!((mount("ext4"), mount("fuseblk.poolhouse")), (1, 0));
        let drive = &found[0];
        assert_eq!(drive.title(), "sdc (ACME 4000, S123)");
        assert_eq!((drive.size_bytes, drive.rotates), (1_024_000, Some(true)));
        assert_eq!(drive.controller.as_deref(), Some("0000:03:00.0"));
        assert_eq!(drive.controller_link.as_deref(), Some("2.5 GT/s PCIe x1"));
        assert!((drive.controller_bytes_per_second.unwrap() - 250e6).abs() < 1.0);
        assert_eq!(drive.link.as_deref(), Some("3.0 Gbps"));
    }

    #[test]
    fn unknown_drive_has_only_a_name() {
        let drive = DriveInfo::read(&System::with_root("/nonexistent"), "sdz");
        assert_eq!(drive, DriveInfo { name: "sdz".to_owned(), ..DriveInfo::default() });
        assert!(underlying_drives(&System::with_root("/nonexistent"), "8:0").is_empty());
        assert_eq!(controller_address(Path::new("sys/devices/virtual/block/loop0")), None);
    }
}
