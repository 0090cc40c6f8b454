//! Keys of a pool before its import: the encryption roots, and whether given keys are right.

use std::path::PathBuf;

use super::Rewind;
use crate::keys::EncryptionRoot;
use crate::{Error, ImportPoint, Result};

/// The encryption roots of the pool of that name or guid, from drives among `paths`, before its
/// import: those whose keys may be needed.
pub fn encryption_roots(
    paths: &[PathBuf],
    wanted: &str,
    (destroyed, rewind): (bool, Rewind),
) -> Result<Vec<EncryptionRoot>> {
    Ok(open_for_probe(paths, wanted, (destroyed, rewind))?.encryption_roots())
}

/// Keys of encryption roots, which were tried.
#[derive(Debug, Default)]
pub struct KeyProbe {
    /// The keys that are right.
    pub valid: Vec<(String, Vec<u8>)>,
    /// Messages about the others.
    pub errors: Vec<Error>,
}

/// Tries keys for encryption roots of a pool that is not imported.
pub fn try_keys(
    paths: &[PathBuf],
    wanted: &str,
    which: (bool, Rewind),
    given: impl Iterator<Item = (String, Vec<u8>)>,
) -> Result<KeyProbe> {
    let pool = open_for_probe(paths, wanted, which)?;
    let own = pool.encryption_roots();
    let mut tried = KeyProbe::default();
    for (root, secret) in given.filter(|(name, _)| own.iter().any(|root| root.name == *name)) {
        match pool.load_key(&root, &secret) {
            Ok(()) => tried.valid.push((root, secret)),
            Err(error) => tried.errors.push(error),
        }
    }
    Ok(tried)
}

/// Opens a pool that is not imported, read-only.
fn open_for_probe(
    paths: &[PathBuf],
    wanted: &str,
    (destroyed, rewind): (bool, Rewind),
) -> Result<crate::RescuePool> {
    let search = crate::search(paths).filter_destroyed(destroyed);
    let moment = match rewind {
        Rewind::No => ImportPoint::Newest,
        Rewind::Recent | Rewind::Extreme => ImportPoint::Rewind,
        Rewind::Txg(txg) => ImportPoint::Txg(txg),
        Rewind::Checkpoint => ImportPoint::Checkpoint,
    };
    let options = crate::OpenOptions { import_point: moment, ..crate::OpenOptions::default() };
    search.open(wanted, &options)
}
