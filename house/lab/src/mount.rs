//! Which file system a folder lies on, and whether its reads can be kept from caches.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::System;
use crate::drive_info::{self, DriveInfo};

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its kind: `ext4`, `zfs`, `nfs4`.
    pub kind: String,
    /// The mounted source: a device, a dataset, a share.
    pub source: String,
    /// Its options.
    pub options: String,
    /// The number of its device.
    pub device: String,
}

impl Mount {
    /// The one that `path` lies on.
    pub fn find(system: &System, path: &Path) -> Option<Self> {
        let path = path.canonicalize().ok()?;
        let device = std::fs::metadata(&path).ok()?.dev();
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let table = system.read_text("proc/self/mountinfo")?;
        let all: Vec<Self> = table.lines().filter_map(Self::parse).collect();
        // the last mount on the longest point is the one that is seen; file systems with many
        // volumes have device numbers that the table does not know
        let above = all.iter().filter(|mount| path.starts_with(&mount.point));
        let best =
            above.max_by_key(|mount| (mount.device == number, mount.point.components().count()));
        best.cloned()
    }

    /// Of a line of the kernel's table.
    fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        Some(Self {
            point: PathBuf::from(unescape(left.get(4)?)),
            kind: (*right.first()?).to_owned(),
            source: unescape(right.get(1)?),
            options: format!("{},{}", left.get(5)?, right.get(2)?),
            device: (*left.get(2)?).to_owned(),
        })
    }

    /// The other layer that caches reads despite direct I/O; none if direct reads come from the
    /// drives.
    pub fn external_cache(&self) -> Option<&'static str> {
        match self.kind.as_str() {
            "zfs" => Some("ZFS, whose cache direct reads may pass through"),
            "tmpfs" | "ramfs" => Some("the machine: this file system is memory"),
            "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "9p" | "virtiofs" | "ceph" => {
                Some("the server, in its own memory")
            }
            kind if kind.starts_with("fuse") => Some("the program that serves this file system"),
            "overlay" => Some("the file system below"),
            _ => None,
        }
    }

    /// Whether it is reached over the network.
    pub fn is_remote(&self) -> bool {
        matches!(
            self.kind.as_str(),
            "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "ceph" | "fuse.sshfs"
        )
    }

    /// The drives that it lies on. A mounted pool stands on a loop device that holds nothing of it.
    pub fn drives(&self, system: &System) -> Vec<DriveInfo> {
        match self.kind.as_str() {
            "fuseblk.poolhouse" => Vec::new(),
            _ => drive_info::underlying_drives(system, &self.device),
        }
    }

    /// In a few words.
    pub fn description(&self) -> String {
        format!("{} ({} on {})", self.kind, self.source, self.point.display())
    }
}

/// Spaces and the like are octal in the table.
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let digits: Vec<u8> = if byte == b'\\' {
            bytes.clone().take(3).take_while(|digit| (b'0'..b'8').contains(digit)).collect()
        } else {
            Vec::new()
        };
        let code = digits.iter().fold(0_u32, |code, digit| code * 8 + u32::from(digit - b'0'));
        match u8::try_from(code) {
            Ok(code) if digits.len() == 3 => {
                out.push(code);
                bytes.nth(2);
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Mount, unescape};
    use crate::System;

    #[test]
    fn mountinfo_lines_are_parsed() {
        let line = "36 35 0:50 / /mnt/a\\040b rw,noatime master:1 - nfs4 nas:/tank rw,vers=4.2";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt/a b"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("nfs4", "nas:/tank"));
        assert_eq!(mount.options, "rw,noatime,rw,vers=4.2");
        assert!(mount.is_remote() && mount.external_cache().is_some());
        assert_eq!(Mount::parse("36 35"), None);
    }

    #[test]
    fn invalid_escapes_are_kept() {
        for (text, plain) in [("a\\134b", "a\\b"), ("a\\9", "a\\9"), ("\\04", "\\04"), ("", "")] {
            assert_eq!(unescape(text), plain);
        }
    }

    #[test]
    fn current_dir_has_a_mount() {
        let mount = Mount::find(&System::default(), Path::new(".")).unwrap();
        assert!(!mount.kind.is_empty(), "{mount:?}");
        assert_eq!(Mount::find(&System::default(), Path::new("/nonexistent")), None);
    }
}
