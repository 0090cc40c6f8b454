//! Drives as the kernel knows them: model, size, and the way they are connected.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::System;

/// A drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveFacts {
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
    /// How the controller is connected, as the kernel says: `2.5 GT/s PCIe x1`.
    pub controller_link: Option<String>,
    /// What the controller's connection carries, bytes a second.
    pub controller_bytes_per_second: Option<f64>,
    /// The speed of the drive's own link, as the kernel says: `6.0 Gbps`.
    pub link: Option<String>,
}

impl DriveFacts {
    /// Facts about the drive of that name, `sdb` or `nvme0n1`.
    pub fn of(system: &System, name: &str) -> Self {
        let block = PathBuf::from("sys/block").join(name);
        let queue = block.join("queue");
        let device = system.resolve(&block).unwrap_or_default();
        let controller = controller(&device);
        let link = controller.as_deref().and_then(|address| pci_link(system, address));
        Self {
            name: name.to_owned(),
            model: system.text(block.join("device/model")).filter(|text| !text.is_empty()),
            serial: serial(system, &block),
            size_bytes: system.number(block.join("size")).unwrap_or(0).saturating_mul(512),
            rotates: system.number(queue.join("rotational")).map(|number| number != 0),
            sector_bytes: system.number(queue.join("logical_block_size")),
            physical_sector_bytes: system.number(queue.join("physical_block_size")),
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
pub(crate) fn below(system: &System, number: &str) -> Vec<DriveFacts> {
    let mut found = Vec::new();
    if let Some(device) = system.resolve(Path::new("sys/dev/block").join(number)) {
        gather(system, &device, &mut found, 0);
    }
    found
}

/// Devices stand on devices at most so often.
const DEEPEST: usize = 8;

fn gather(system: &System, device: &Path, found: &mut Vec<DriveFacts>, depth: usize) {
    let slaves = system.names(device.join("slaves"));
    if slaves.is_empty() || depth == DEEPEST {
        let is_partition = system.text(device.join("partition")).is_some();
        let whole = if is_partition { device.parent().unwrap_or(device) } else { device };
        let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
        let facts = name.map(|name| DriveFacts::of(system, &name));
        found.extend(facts.filter(|facts| !found.iter().any(|known| known.name == facts.name)));
        return;
    }
    for slave in slaves {
        if let Some(below) = system.resolve(device.join("slaves").join(slave)) {
            gather(system, &below, found, depth + 1);
        }
    }
}

fn serial(system: &System, block: &Path) -> Option<String> {
    let plain = [block.join("device/serial"), block.join("serial")];
    let found = plain.iter().find_map(|path| system.text(path)).or_else(|| {
        // page 0x80 of a SCSI drive: four bytes, then the number
        let page = std::fs::read(system.path(block.join("device/vpd_pg80"))).ok()?;
        Some(String::from_utf8_lossy(page.get(4..)?).trim().to_owned())
    });
    found.filter(|text| !text.is_empty())
}

/// The last device of the PCI bus on the way to a drive.
fn controller(device: &Path) -> Option<String> {
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

/// How a PCI device is connected: in words, and what it carries in bytes a second.
fn pci_link(system: &System, address: &str) -> Option<(String, f64)> {
    let device = Path::new("sys/bus/pci/devices").join(address);
    let speed = system.text(device.join("current_link_speed"))?;
    let width = system.number(device.join("current_link_width")).filter(|width| *width > 0)?;
    let giga: f64 = speed.split_whitespace().next()?.parse().ok()?;
    // up to 5 GT/s a byte takes ten bits on the line, later 130 bits carry 128
    let useful = if giga <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    let rate = giga * 1e9 * useful / 8.0 * crate::number::float(width);
    (rate > 0.0).then(|| (format!("{speed} x{width}"), rate))
}

/// The speed of a SATA drive's own link.
fn sata_link(system: &System, device: &Path) -> Option<String> {
    let port = device.components().find_map(|part| {
        let digits = part.as_os_str().to_str()?.strip_prefix("ata")?;
        digits.parse::<u32>().ok()
    })?;
    let speed = system.text(format!("sys/class/ata_link/link{port}/sata_spd"))?;
    speed.contains("Gbps").then_some(speed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{DriveFacts, below, controller};
    use crate::System;
    use crate::mount::Mount;

    /// A machine with a SATA drive behind a narrow controller, and a mapper on its partition.
    fn machine(root: &Path) -> System {
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
        System::at(root)
    }

    #[test]
    fn a_drive_is_found_below_a_mapper_with_all_its_links() {
        let root = fixtures::scratch("lab-drive");
        let system = machine(&root);
        let found = below(&system, "252:0");
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
    fn what_is_unknown_is_left_out() {
        let drive = DriveFacts::of(&System::at("/nonexistent"), "sdz");
        assert_eq!(drive, DriveFacts { name: "sdz".to_owned(), ..DriveFacts::default() });
        assert!(below(&System::at("/nonexistent"), "8:0").is_empty());
        assert_eq!(controller(Path::new("sys/devices/virtual/block/loop0")), None);
    }
}
