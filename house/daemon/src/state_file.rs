//! Files in the state directory that are written whole.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{Error, Result};

/// Others may pass through the state directory, but not read its files.
const MODE: u32 = 0o600;

/// Replaces a file. After a power cut it has its old content or the new.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |why: std::io::Error| Error::file_error(path, &why);
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(MODE);
    let mut file = options.open(&new).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)?;
    let dir = path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all());
    dir.map_err(failed)
}
