//! Files in the state directory that are written whole.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{Error, Result, environment};

/// Others may pass through the state directory, but not read its files.
const MODE: u32 = 0o600;

/// The bytes of a secret before they are written as digits.
const SECRET_BYTES: usize = 32;

/// Reads a secret of 64 hexadecimal digits from its file. A file that does not exist is created with a new one.
pub(crate) fn load_or_create_secret(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().len() == 2 * SECRET_BYTES => return Ok(text.trim().to_owned()),
        Ok(_) => {
            let why = "it is not a secret of 64 digits; remove it, and the daemon makes another";
            return Err(Error::File { path: path.display().to_string(), why: why.to_owned() });
        }
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => (),
        Err(why) => return Err(Error::file_error(path, &why)),
    }
    let mut bytes = [0; SECRET_BYTES];
    environment::fill_random(&mut bytes).map_err(|why| Error::file_error(path, &why.into()))?;
    let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    replace(path, format!("{secret}\n").as_bytes())?;
    Ok(secret)
}

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
