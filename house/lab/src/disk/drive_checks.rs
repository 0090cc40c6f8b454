//! Checks whether a drive has data or is in use: such a drive is never written.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::test_data::AlignedBuffer;
use crate::{Error, System};

/// Bytes at each end that must be empty, and that are never written: file systems, arrays and pools
/// all keep there what finds the rest.
pub(crate) const PROTECTED_END_SIZE: u64 = 1 << 20;

/// The users of a drive, if any: mounted file systems, swap, mappers and arrays.
pub(crate) fn in_use_reason(system: &System, name: &str) -> Option<String> {
    let block = Path::new("sys/block").join(name);
    let mut parts = vec![block.clone()];
    parts.extend(partitions(system, name).into_iter().map(|part| block.join(part)));
    let mounts = system.read_text("proc/self/mountinfo").unwrap_or_default();
    let swaps = system.read_text("proc/swaps").unwrap_or_default();
    for part in parts {
        let title = part.file_name().map(|name| name.to_string_lossy().into_owned());
        let title = title.unwrap_or_default();
        if let Some(holder) = system.list_dir(part.join("holders")).first() {
            return Some(format!("{title} is part of {holder}"));
        }
        let number = system.read_text(part.join("dev")).unwrap_or_default();
        let mounted = mounts
            .lines()
            .find(|line| !number.is_empty() && line.split(' ').nth(2) == Some(number.as_str()));
        if let Some(point) = mounted.and_then(|line| line.split(' ').nth(4)) {
            return Some(format!("{title} is mounted on {point}"));
        }
        let swap = format!("/dev/{title}");
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(swap.as_str())) {
            return Some(format!("{title} is swap"));
        }
    }
    None
}

/// The partitions of a drive.
pub(crate) fn partitions(system: &System, name: &str) -> Vec<String> {
    let block = Path::new("sys/block").join(name);
    let mut names = system.list_dir(&block);
    names.retain(|part| system.read_text(block.join(part).join("partition")).is_some());
    names
}

/// Why a drive must not be written to, if anything stands on it.
pub(crate) fn nonempty_reason(
    file: &File,
    path: &Path,
    size: u64,
) -> Result<Option<String>, Error> {
    if size < 4 * PROTECTED_END_SIZE {
        return Ok(Some("it is smaller than 4 MiB".to_owned()));
    }
    let mut end = AlignedBuffer::new(usize::try_from(PROTECTED_END_SIZE).unwrap_or(0));
    for (at, which) in [(0, "first"), (size / 4096 * 4096 - PROTECTED_END_SIZE, "last")] {
        file.read_exact_at(end.as_mut(), at).map_err(Error::io(path, "read"))?;
        if end.as_mut().iter().any(|byte| *byte != 0) {
            return Ok(Some(format!(
                "its {which} MiB is not empty, so it may hold data; if nothing on it is expected, \
                 make its first and last MiB zeros (blkdiscard -z, dd) and try again"
            )));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt as _;

    use super::{in_use_reason, nonempty_reason};
    use crate::System;

    #[test]
    fn drive_in_use_is_reported() {
        let root = fixtures::scratch_dir("lab-claim");
        let system = System::with_root(&root);
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/block/sda/dev", "8:0\n");
        put("sys/block/sda/sda1/partition", "1\n");
        put("sys/block/sda/sda1/dev", "8:1\n");
        assert_eq!(in_use_reason(&system, "sda"), None);
        put("proc/swaps", "Filename Type\n/dev/sda1 partition 1 2\n");
        assert_eq!(in_use_reason(&system, "sda").as_deref(), Some("sda1 is swap"));
        put("proc/self/mountinfo", "22 27 8:1 / /home rw - ext4 /dev/sda1 rw\n");
        assert_eq!(in_use_reason(&system, "sda").as_deref(), Some("sda1 is mounted on /home"));
        put("sys/block/sda/sda1/holders/dm-0", "");
        assert_eq!(in_use_reason(&system, "sda").as_deref(), Some("sda1 is part of dm-0"));
    }

    #[test]
    fn nonzero_ends_count_as_data() {
        let path = fixtures::scratch_dir("lab-content").join("drive");
        let file = File::create_new(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let why = |size: u64| nonempty_reason(&file, &path, size).unwrap();
        assert_eq!(why(8 << 20), None);
        assert!(why(1 << 20).unwrap().contains("smaller"));
        // in the middle nothing can be found again once both ends are empty
        file.write_all_at(b"x", 4 << 20).unwrap();
        assert_eq!(why(8 << 20), None);
        file.write_all_at(b"x", (8 << 20) - 1).unwrap();
        assert!(why(8 << 20).unwrap().contains("last MiB"));
        file.write_all_at(b"x", 510).unwrap();
        assert!(why(8 << 20).unwrap().contains("first MiB"));
    }
}
