//! Symbolic links with the names of volumes, as OpenZFS's udev rules make them: `/dev/zvol/POOL/VOLUME[@SNAPSHOT]`.
//!
//! A space in a name is a plus sign in the link.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// Other users may list the links, as in /dev.
const DIRECTORY_MODE: u32 = 0o755;
/// A dataset's name has fewer parts.
const MAX_DEPTH: usize = 256;

/// A directory of links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkDir {
    root: PathBuf,
}

impl LinkDir {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The link of a volume or snapshot.
    pub(crate) fn path_of(&self, dataset: &str) -> PathBuf {
        self.root.join(dataset.replace(' ', "+"))
    }

    /// Creates the link of a dataset to a device. A link to another existing device stays: a volume
    /// of another program has that name.
    pub(crate) fn create(&self, dataset: &str, device: &Path) -> io::Result<()> {
        let link = self.path_of(dataset);
        if let Some(parent) = link.parent() {
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(parent)?;
        }
        match fs::read_link(&link) {
            Ok(target) if target == device => return Ok(()),
            Ok(target) if is_attached(&target) => {
                let what = format!("another volume of that name has {}", target.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            Ok(_) => fs::remove_file(&link)?,
            Err(_) => (),
        }
        symlink(device, link)
    }

    /// Removes the link of a dataset if it leads to that device, and directories that are empty then.
    pub(crate) fn remove(&self, dataset: &str, device: &Path) {
        let link = self.path_of(dataset);
        if fs::read_link(&link).is_ok_and(|target| target == device) {
            let _ = fs::remove_file(&link);
            self.remove_empty_parents(&link);
        }
    }

    /// Removes links to loop devices without a file: a killed daemon left them.
    pub(crate) fn remove_stale(&self) {
        let mut links = Vec::new();
        collect_links(&self.root, MAX_DEPTH, &mut links);
        for link in links {
            if fs::read_link(&link).is_ok_and(|target| is_loop(&target) && !is_attached(&target)) {
                let _ = fs::remove_file(&link);
                self.remove_empty_parents(&link);
            }
        }
    }

    fn remove_empty_parents(&self, link: &Path) {
        for dir in link.ancestors().skip(1).take_while(|dir| *dir != self.root) {
            // this fails if another link exists
            if fs::remove_dir(dir).is_err() {
                return;
            }
        }
    }
}

fn collect_links(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => found.push(entry.path()),
            Ok(kind) if kind.is_dir() && depth > 0 => {
                collect_links(&entry.path(), depth - 1, found);
            }
            _ => (),
        }
    }
}

fn is_loop(device: &Path) -> bool {
    device.to_str().is_some_and(|path| path.starts_with("/dev/loop"))
}

/// Whether a device is a loop device with a file, or an existing device of another kind.
fn is_attached(device: &Path) -> bool {
    if !is_loop(device) {
        return device.exists();
    }
    let name = device.file_name().unwrap_or_default();
    Path::new("/sys/block").join(name).join("loop/backing_file").exists()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::LinkDir;

    fn temp_dir(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("poolhouse-{name}-{}", std::process::id()))
    }

    #[test]
    fn removing_a_link_removes_empty_directories() {
        let root = temp_dir("links");
        let links = LinkDir::new(root.clone());
        let device = Path::new("/dev/null");
        links.create("tank/a b/vol", device).unwrap();
        links.create("tank/vol@now", device).unwrap();
        assert_eq!(fs::read_link(root.join("tank/a+b/vol")).unwrap(), device);
        links.remove("tank/a b/vol", Path::new("/dev/zero"));
        assert!(root.join("tank/a+b/vol").is_symlink(), "the device of another volume");
        links.remove("tank/a b/vol", device);
        assert!(!root.join("tank/a+b").exists() && root.join("tank").exists());
        links.remove("tank/vol@now", device);
        assert!(!root.join("tank").exists() && root.exists());
        fs::remove_dir(root).unwrap();
    }

    #[test]
    fn stale_links_go_and_devices_of_others_stay() {
        let root = temp_dir("stale-links");
        let links = LinkDir::new(root.clone());
        links.create("tank/stale", Path::new("/dev/loop9999999")).unwrap();
        links.create("tank/other", Path::new("/dev/null")).unwrap();
        links.remove_stale();
        assert!(!root.join("tank/stale").is_symlink() && root.join("tank/other").is_symlink());
        let taken = links.create("tank/other", Path::new("/dev/zero")).unwrap_err();
        assert!(taken.to_string().contains("/dev/null"), "{taken}");
        fs::remove_dir_all(root).unwrap();
    }
}
