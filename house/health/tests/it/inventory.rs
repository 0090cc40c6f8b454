//! Drives of a made-up /sys and /dev.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use health::Host;

struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("inventory-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for part in ["sys/block", "sys/class/block", "dev/disk/by-id"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        Self(dir)
    }

    fn host(&self) -> Host {
        Host::with_roots(self.0.join("sys"), self.0.join("dev"))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, target: &str, path: &str) {
        fs::create_dir_all(self.0.join(path).parent().unwrap()).unwrap();
        symlink(target, self.0.join(path)).unwrap();
    }

    fn disk(&self, name: &str, sectors: u64) {
        let dir = format!("sys/block/{name}");
        self.write(&format!("{dir}/size"), &sectors.to_string());
        self.write(&format!("{dir}/queue/rotational"), "1\n");
        self.write(&format!("dev/{name}"), "");
        self.link(&format!("../../block/{name}"), &format!("sys/class/block/{name}"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn drives_have_their_names_and_serials() {
    let machine = Machine::new("names");
    machine.disk("sdb", 100);
    machine.write("sys/block/sdb/device/vendor", "ATA     \n");
    machine.write("sys/block/sdb/device/model", "WDC WD40EFRX-68N\n");
    machine.link("../../sdb", "dev/disk/by-id/ata-WDC_WD40EFRX-68N_WD-WCC7K1234567");
    machine.link("../../sdb1", "dev/disk/by-id/ata-WDC_WD40EFRX-68N_WD-WCC7K1234567-part1");
    machine.disk("nvme0n1", 200);
    machine.write("sys/block/nvme0n1/device/serial", "S5H9NS0N \n");
    machine.disk("loop0", 300);
    machine.disk("sr0", 300);
    machine.write("sys/block/sr0/device/model", "DVD");
    machine.disk("sdc", 0);
    machine.write("sys/block/sdc/device/model", "empty card reader");
    let drives = machine.host().drives();
    let names: Vec<_> = drives.iter().map(|drive| drive.name.as_str()).collect();
    assert_eq!(names, ["sdb", "nvme0n1"]);
    assert_eq!(drives[0].serial.as_deref(), Some("WD-WCC7K1234567"));
    assert_eq!(drives[0].size, 51_200);
    assert_eq!(drives[0].smartctl_type.as_deref(), Some("sat"));
    assert_eq!(drives[1].serial.as_deref(), Some("S5H9NS0N"));
}

#[test]
fn partitions_and_mappings_lead_to_drives() {
    let machine = Machine::new("mappings");
    machine.disk("sda", 100);
    machine.write("sys/block/sda/sda1/partition", "1");
    machine.link("../../block/sda/sda1", "sys/class/block/sda1");
    machine.write("dev/sda1", "");
    machine.disk("dm-0", 90);
    machine.link("../../sda/sda1", "sys/block/dm-0/slaves/sda1");
    machine.link("../../dm-0", "dev/disk/by-id/dm-name-crypt");
    let host = machine.host();
    let drive = |path: &str| host.drive_of(&machine.0.join("dev").join(path));
    assert_eq!(drive("sda").as_deref(), Some("sda"));
    assert_eq!(drive("sda1").as_deref(), Some("sda"));
    assert_eq!(drive("disk/by-id/dm-name-crypt").as_deref(), Some("sda"));
    machine.link("../../sdb", "sys/block/dm-0/slaves/sdb");
    assert_eq!(drive("dm-0"), None);
    assert_eq!(host.drive_of(Path::new("/tmp")), None);
    assert_eq!(drive("absent"), None);
}
