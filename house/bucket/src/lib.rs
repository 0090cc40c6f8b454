//! The stores of backup repositories: folders and buckets.
//!
//! [`open`] takes the address as a user writes it: `file:///mnt/usb/backup`.
#![forbid(unsafe_code)]

mod folder;

use std::path::PathBuf;
use std::sync::Arc;

use engine::backup::ObjectStore;

pub use folder::FolderStore;

/// Opens the store at an address. `create` makes a folder that does not exist.
pub fn open(location: &str, create: bool) -> engine::Result<Arc<dyn ObjectStore>> {
    let Some(path) = location.strip_prefix("file://") else {
        return Err(engine::Error::Usage {
            what: format!(
                "'{location}' is not the address of a repository; file:///FOLDER is expected, as in \
                 file:///mnt/usb/backup"
            ),
        });
    };
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        let what =
            format!("'{location}': an absolute path is expected, as in file:///mnt/usb/backup");
        return Err(engine::Error::Usage { what });
    }
    Ok(Arc::new(FolderStore::open(path, create)?))
}
