//! What may be asked of a pool's keys before it is taken over: which are wanted, and whether those at hand
//! fit.

use std::path::PathBuf;

use super::Rewind;
use crate::keys::EncryptionRoot;
use crate::{Error, Moment, Result};

/// The encryption roots of the pool of that name or guid, which is on drives among `paths` and
/// which nobody holds: those whose keys may be wanted to take it over.
pub fn encryption_roots(
    paths: &[PathBuf],
    wanted: &str,
    (destroyed, rewind): (bool, Rewind),
) -> Result<Vec<EncryptionRoot>> {
    Ok(open_to_look(paths, wanted, (destroyed, rewind))?.encryption_roots())
}

/// Keys of encryption roots, which were tried.
#[derive(Debug, Default)]
pub struct Tried {
    /// Those that open what they are for.
    pub fit: Vec<(String, Vec<u8>)>,
    /// What is to be said of those that do not.
    pub refused: Vec<Error>,
}

/// Tries those of some keys that are for encryption roots of a pool which nobody holds.
pub fn try_keys(
    paths: &[PathBuf],
    wanted: &str,
    which: (bool, Rewind),
    given: impl Iterator<Item = (String, Vec<u8>)>,
) -> Result<Tried> {
    let pool = open_to_look(paths, wanted, which)?;
    let own = pool.encryption_roots();
    let mut tried = Tried::default();
    for (root, secret) in given.filter(|(name, _)| own.iter().any(|root| root.name == *name)) {
        match pool.unlock(&root, &secret) {
            Ok(()) => tried.fit.push((root, secret)),
            Err(why) => tried.refused.push(why),
        }
    }
    Ok(tried)
}

/// Opens a pool that nobody holds, to be looked at.
fn open_to_look(
    paths: &[PathBuf],
    wanted: &str,
    (destroyed, rewind): (bool, Rewind),
) -> Result<crate::Pool> {
    let search = crate::search(paths).only(destroyed);
    let moment = match rewind {
        Rewind::No => Moment::Newest,
        Rewind::Near | Rewind::Far => Moment::Rewind,
        Rewind::To(txg) => Moment::Txg(txg),
        Rewind::Checkpoint => Moment::Checkpoint,
    };
    let options = crate::OpenOptions { moment, ..crate::OpenOptions::default() };
    search.open(wanted, &options)
}
