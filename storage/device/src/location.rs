//! The path of a device: a disk that is put in again may have another name.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A place, and where the device was found later. None is forgotten, as its name may be in use.
#[derive(Debug)]
pub(crate) struct DeviceLocation {
    path: PathBuf,
    name: String,
    moved_to: OnceLock<Box<Self>>,
}

impl DeviceLocation {
    pub(crate) fn new(path: &Path) -> Self {
        let name = path.display().to_string();
        Self { path: path.to_owned(), name, moved_to: OnceLock::new() }
    }

    fn current(&self) -> &Self {
        let mut now = self;
        while let Some(later) = now.moved_to.get() {
            now = later;
        }
        now
    }

    pub(crate) fn path(&self) -> &Path {
        &self.current().path
    }

    pub(crate) fn name(&self) -> &str {
        &self.current().name
    }

    /// Sets the current path.
    pub(crate) fn update(&self, path: &Path) {
        if self.path() != path {
            // another thread was quicker; its path is right as well
            let _ = self.current().moved_to.set(Box::new(Self::new(path)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceLocation;
    use std::path::Path;

    #[test]
    fn a_device_is_where_it_was_found_last() {
        let place = DeviceLocation::new(Path::new("/dev/sdb"));
        let first = place.name();
        place.update(Path::new("/dev/sdb"));
        for path in ["/dev/sdf", "/dev/sdg"] {
            place.update(Path::new(path));
            assert_eq!((place.name(), place.path()), (path, Path::new(path)));
        }
        assert_eq!(first, "/dev/sdb");
    }
}
