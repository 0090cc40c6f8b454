//! The stores of backup repositories: folders and buckets.
//!
//! [`open`] takes the address as a user writes it: `file:///mnt/usb/backup`, `s3://BUCKET/FOLDER`.
#![forbid(unsafe_code)]

mod cached;
mod folder;
mod retention;
mod s3;

use std::path::PathBuf;
use std::sync::Arc;

use engine::backup::ObjectStore;

pub use cached::CachedStore;
pub use folder::FolderStore;
pub use s3::{S3Access, S3Store};

/// Opens the store at an address. `create` makes a folder that does not exist. `s3`: how buckets are reached.
pub fn open(
    location: &str,
    create: bool,
    s3: Option<&S3Access>,
) -> engine::Result<Arc<dyn ObjectStore>> {
    let usage = |what: String| engine::Error::Usage { what };
    if location.starts_with("s3://") {
        let missing = || {
            usage(format!(
                "{location}: there is no access key; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and \
                 AWS_ENDPOINT_URL for a service other than AWS"
            ))
        };
        return Ok(Arc::new(S3Store::open(location, s3.ok_or_else(missing)?)?));
    }
    let Some(path) = location.strip_prefix("file://").map(PathBuf::from) else {
        return Err(usage(format!(
            "'{location}' is not the address of a repository; file:///FOLDER or s3://BUCKET/FOLDER is \
             expected, as in file:///mnt/usb/backup"
        )));
    };
    if !path.is_absolute() {
        return Err(usage(format!(
            "'{location}': an absolute path is expected, as in file:///mnt/usb/backup"
        )));
    }
    Ok(Arc::new(FolderStore::open(path, create)?))
}
