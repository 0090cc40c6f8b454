//! Drives that the system itself uses: a file system of theirs is mounted, they hold swap, or another block
//! device (LVM, RAID, encryption) is built on them. No page of the dashboard offers such a drive to a pool.

use std::fs;
use std::path::Path;

/// The devices that the system used when it was asked. With many mounts the tables are long, so one list of drives
/// reads them once.
pub(super) struct SystemUse {
    tables: Vec<String>,
    root: Option<String>,
}

impl SystemUse {
    pub(super) fn read() -> Self {
        let tables = ["/proc/self/mounts", "/proc/swaps"].map(fs::read_to_string);
        Self { tables: tables.into_iter().flatten().collect(), root: root_device() }
    }

    /// Whether the system uses a block device, by the kernel's name, or a partition of it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tables.iter().any(|table| is_listed(table, name))
            || self.root.as_ref().is_some_and(|root| is_part_of(root, name))
            || has_holders(Path::new("/sys/block"), name)
    }
}

/// Whether the first column of a table has the node of the device, or of a partition.
fn is_listed(table: &str, name: &str) -> bool {
    let nodes = table.lines().filter_map(|line| line.split_whitespace().next());
    nodes.filter_map(|node| node.strip_prefix("/dev/")).any(|node| is_part_of(node, name))
}

/// Whether a node is the device, or a partition: `sda1` of `sda`, `nvme0n1p2` of `nvme0n1`.
fn is_part_of(node: &str, name: &str) -> bool {
    let Some(rest) = node.strip_prefix(name) else { return false };
    let has_digit = name.ends_with(|last: char| last.is_ascii_digit());
    let number = if has_digit { rest.strip_prefix('p') } else { Some(rest) };
    let is_number =
        |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    rest.is_empty() || number.is_some_and(is_number)
}

/// The kernel's name of the device of the root file system, whose node some systems call `/dev/root`.
fn root_device() -> Option<String> {
    let device = rustix::fs::stat("/").ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(place.file_name()?.to_str()?.to_owned())
}

/// Whether another block device is built on the device, or on a partition.
fn has_holders(blocks: &Path, name: &str) -> bool {
    let device = blocks.join(name);
    let parts = fs::read_dir(&device).into_iter().flatten().flatten().map(|entry| entry.path());
    let has_holder = |part: std::path::PathBuf| {
        fs::read_dir(part.join("holders")).is_ok_and(|mut holders| holders.next().is_some())
    };
    std::iter::once(device.clone()).chain(parts).any(has_holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_belong_to_their_drive() {
        for (node, name) in [("sda", "sda"), ("sda1", "sda"), ("nvme0n1p2", "nvme0n1")] {
            assert!(is_part_of(node, name), "{node}");
        }
        for (node, name) in [("sdab", "sda"), ("nvme0n12", "nvme0n1"), ("vda1", "sda")] {
            assert!(!is_part_of(node, name), "{node}");
        }
    }

    #[test]
    fn mounted_partitions_are_listed() {
        let table = "proc /proc proc rw 0 0\n/dev/sdb2 / ext4 rw 0 0\n";
        assert!(is_listed(table, "sdb") && !is_listed(table, "sda"));
    }

    #[test]
    fn devices_below_others_have_holders() {
        let dir = std::env::temp_dir().join(format!("system-use-{}", std::process::id()));
        fs::create_dir_all(dir.join("sda/sda1/holders/dm-0")).unwrap();
        fs::create_dir_all(dir.join("sdb/holders")).unwrap();
        assert!(has_holders(&dir, "sda") && !has_holders(&dir, "sdb"));
        fs::remove_dir_all(dir).unwrap();
    }
}
