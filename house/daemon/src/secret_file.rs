//! Secrets in files that only their owner may read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of the longest file with a secret.
const MAX_SECRET_FILE: u64 = 4096;

/// The content of a file that only its owner may read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|why| why.to_string())?;
    let metadata = file.metadata().map_err(|why| why.to_string())?;
    if metadata.mode() & 0o077 != 0 {
        return Err(format!("other users may read it; type `chmod 600 {}`", path.display()));
    }
    let mut secret = Vec::new();
    let read = file.take(MAX_SECRET_FILE).read_to_end(&mut secret);
    read.map(|_| secret).map_err(|why| why.to_string())
}
