//! From the paths that a user names to the devices that may hold parts of pools.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::lost_partition::{self, LostVdev};
use crate::{Device, DeviceSlice, Error, File, partitions};

/// The devices found at the paths.
#[derive(Debug, Default)]
pub struct ProbeResult {
    /// Devices to be looked at for labels, in the order of their paths.
    pub devices: Vec<Arc<dyn Device>>,
    /// The paths, or entries of named folders, that could not be opened.
    pub errors: Vec<Error>,
    /// Whether disks without partitions are read from end to end.
    pub is_deep: bool,
}

/// Too small to hold four labels and anything else (SPA_MINDEVSIZE is 64 MiB; labels need 1 MiB).
const MIN_DEVICE_SIZE: u64 = 4 * (256 << 10);

/// Opens every file and block device that the paths name, and those that lie in named folders
/// (not in folders below). Images of whole disks give their partitions as well. A device that is
/// named in several ways, such as by the links in /dev/disk, is opened once.
///
/// A disk without partitions is searched at the offsets where systems put their first partition.
pub fn probe(paths: &[PathBuf]) -> ProbeResult {
    probe_with(paths, false)
}

/// The same; of a disk without partitions all is read, to find vdevs wherever they begin.
pub fn probe_deep(paths: &[PathBuf]) -> ProbeResult {
    probe_with(paths, true)
}

fn probe_with(paths: &[PathBuf], is_deep: bool) -> ProbeResult {
    let mut found = ProbeResult { is_deep, ..ProbeResult::default() };
    let mut seen = BTreeSet::new();
    for path in paths {
        match fs::metadata(path) {
            Err(error) => found.errors.push(Error::Open {
                path: path.display().to_string(),
                reason: io_error_text(&error),
            }),
            Ok(facts) if facts.is_dir() => probe_dir(path, &mut seen, &mut found),
            Ok(_) => open_device(path, true, &mut seen, &mut found),
        }
    }
    found
}

/// The device's path in the same folder, if it is not at its old path; none if `judge` recognizes
/// several.
pub fn find_moved_device(path: &Path, judge: &dyn Fn(&Arc<dyn Device>) -> bool) -> Option<PathBuf> {
    let found = probe(&[path.parent()?.to_owned()]);
    let mut known = found.devices.iter().filter(|found| found.path().is_some() && judge(found));
    match (known.next(), known.next()) {
        (Some(found), None) => found.path().map(Path::to_path_buf),
        _ => None,
    }
}

fn probe_dir(path: &Path, seen: &mut BTreeSet<(u64, u64, u64)>, found: &mut ProbeResult) {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => {
            let path = path.display().to_string();
            found.errors.push(Error::Open { path, reason: io_error_text(&error) });
            return;
        }
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort_by_key(|path| natural_sort_key(&path.to_string_lossy()));
    for path in paths {
        let wanted = fs::metadata(&path).is_ok_and(|facts| {
            facts.is_file() && facts.len() >= MIN_DEVICE_SIZE || facts.file_type().is_block_device()
        });
        if wanted {
            open_device(&path, false, seen, found);
        }
    }
}

/// Orders d2 before d10.
fn natural_sort_key(name: &str) -> Vec<(bool, u64, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let digits = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        parts.push((digits, part.parse().unwrap_or(0), part.to_owned()));
        rest = tail;
    }
    parts
}

fn open_device(
    path: &Path,
    named: bool,
    seen: &mut BTreeSet<(u64, u64, u64)>,
    found: &mut ProbeResult,
) {
    let identity = fs::metadata(path).map(|facts| {
        let device = if facts.file_type().is_block_device() { facts.rdev() } else { 0 };
        if device == 0 { (facts.dev(), facts.ino(), 0) } else { (0, 0, device) }
    });
    if identity.is_ok_and(|identity| !seen.insert(identity)) {
        return;
    }
    match File::open(path) {
        // in a folder of devices the system shows the partitions of its disks itself
        Ok(file) if !named && is_block_device(path) => found.devices.push(Arc::new(file)),
        Ok(file) => add_device(Arc::new(file), found),
        // what merely lies in a folder need not be ours to open, unless it is in use
        Err(error) if named || matches!(error, Error::WriteLocked { .. }) => {
            found.errors.push(error);
        }
        Err(_) => {}
    }
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device())
}

fn add_device(device: Arc<dyn Device>, found: &mut ProbeResult) {
    let parts = partitions(device.as_ref());
    if parts.is_empty() {
        let lost = if found.is_deep {
            lost_partition::find_anywhere(device.as_ref())
        } else {
            lost_partition::find_at_usual_starts(device.as_ref())
        };
        // a vdev on the whole disk is the device itself
        for LostVdev { start, size } in lost.into_iter().filter(|vdev| vdev.start > 0) {
            let name = format!("{} (from byte {start} on)", device.name());
            let window = DeviceSlice::new(name, Arc::clone(&device), start, size);
            found.devices.push(Arc::new(window));
        }
    }
    for part in parts {
        let name = format!("{} (partition {})", device.name(), part.number);
        let window = DeviceSlice::new(name, Arc::clone(&device), part.start, part.size);
        found.devices.push(Arc::new(window));
    }
    found.devices.push(device);
}

/// The system's words without the number behind them.
pub(crate) fn io_error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let cut = text.find(" (os error").unwrap_or(text.len());
    let mut plain = text[..cut].to_owned();
    if let Some(first) = plain.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::natural_sort_key;

    #[test]
    fn d2_comes_before_d10() {
        let mut names = ["d10.img", "d2.img", "d1.img"];
        names.sort_by_key(|name| natural_sort_key(name));
        assert_eq!(names, ["d1.img", "d2.img", "d10.img"]);
    }
}
