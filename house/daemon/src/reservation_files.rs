//! Persistent reservations of volumes that outlast the daemon: a file for each volume in a directory of the state
//! directory, by the guids of the pool and of the volume. They hold for all protocols.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lun::{ReservationStore, Reservations, UnitTable};

use crate::log::Log;
use crate::{Error, Result, StateDir, state_file};

/// The table of open volumes, whose reservations are in the state directory.
pub(crate) fn unit_table(state_dir: &StateDir, log: &Arc<Log>) -> UnitTable {
    let (directory, log) = (state_dir.reservations(), Arc::clone(log));
    UnitTable::new(move |guids, volume| {
        let path = directory.join(guids.to_string());
        load(&path, volume, &log).with_store(store(path, Arc::clone(&log)))
    })
}

/// The reservations of a volume that were kept over a restart.
fn load(path: &Path, volume: &str, log: &Log) -> Reservations {
    let loaded = match fs::read(path) {
        Ok(bytes) => Reservations::load(&bytes).map_err(|why| why.to_string()),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(Reservations::default()),
        Err(why) => Err(why.to_string()),
    };
    loaded.unwrap_or_else(|why| {
        log.write_line(&format!(
            "the persistent reservations of '{volume}' in {} are lost: {why}; cluster nodes have to \
             register again",
            path.display()
        ));
        Reservations::default()
    })
}

/// The place of the reservations of a volume.
fn store(path: PathBuf, log: Arc<Log>) -> ReservationStore {
    ReservationStore::new(move |bytes| {
        let stored = store_reservations(&path, bytes);
        if let Err(why) = &stored {
            log.write_line(&format!("persistent reservations are not kept over a restart: {why}"));
        }
        stored.is_ok()
    })
}

/// Keeps reservations, or removes them.
fn store_reservations(path: &Path, bytes: Option<&[u8]>) -> Result<()> {
    let failed = |why: std::io::Error| Error::file_error(path, &why);
    let Some(bytes) = bytes else {
        return match fs::remove_file(path) {
            Err(why) if why.kind() != ErrorKind::NotFound => Err(failed(why)),
            _ => Ok(()),
        };
    };
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    }
    state_file::replace(path, bytes)
}
