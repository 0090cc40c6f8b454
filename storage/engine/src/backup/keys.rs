//! Keys of encrypted snapshots in a repository.
//!
//! A manifest holds the dataset's wrapped keys. A user's key unwraps those of its encryption root.

use std::collections::HashMap;
use std::sync::Arc;

use dsl::{KeyFormat, Pbkdf2Params};
use parking_lot::Mutex;
use repository::{Manifest, ManifestKey};
use transform::crypt::unwrap_key;
use zio::Key;

use super::BackupRepository;
use crate::{Error, Result};

/// The keys that users gave.
#[derive(Default)]
pub(super) struct LoadedKeys {
    /// The secrets as they were given, with the encryption roots that they are for.
    secrets: Mutex<Vec<(String, Secret)>>,
    /// Unwrapped keys by their guids.
    keys: Mutex<HashMap<u64, Key>>,
}

/// Overwritten when it is dropped.
type Secret = zeroize::Zeroizing<Vec<u8>>;

impl BackupRepository {
    /// Unlocks the snapshots of a dataset, and all that have their key from the same encryption root. `secret`
    /// is the passphrase, the hexadecimal digits (a line's end after either is ignored) or the raw bytes.
    pub fn load_key(&self, dataset: &str, secret: &[u8]) -> Result<()> {
        let mut is_known = false;
        for snapshot in self.snapshots().iter().rev() {
            if !snapshot.encrypted && snapshot.dataset != dataset {
                continue;
            }
            let manifest = self.manifest(snapshot)?;
            is_known |= snapshot.dataset == dataset;
            let Some(key) = &manifest.key else { continue };
            if key.encryption_root != dataset && snapshot.dataset != dataset {
                continue;
            }
            let unwrapped = unwrap(&manifest, key, secret)?;
            self.0.keys.keys.lock().insert(key.guid, unwrapped);
            let secret = (key.encryption_root.clone(), Secret::new(secret.to_vec()));
            self.0.keys.secrets.lock().push(secret);
            return Ok(());
        }
        let dataset = dataset.to_owned();
        Err(if is_known {
            Error::NotEncrypted { dataset }
        } else {
            Error::NoSuchDataset { name: dataset }
        })
    }

    /// The key of a snapshot; none if it is not encrypted.
    pub(super) fn key_of(&self, manifest: &Manifest) -> Result<Option<Key>> {
        let Some(key) = &manifest.key else { return Ok(None) };
        if let Some(known) = self.0.keys.keys.lock().get(&key.guid) {
            return Ok(Some(Arc::clone(known)));
        }
        let secrets = self.0.keys.secrets.lock().clone();
        let of_root = secrets.iter().rev().filter(|(root, _)| *root == key.encryption_root);
        for (_, secret) in of_root {
            match unwrap(manifest, key, secret) {
                Ok(unwrapped) => {
                    self.0.keys.keys.lock().insert(key.guid, Arc::clone(&unwrapped));
                    return Ok(Some(unwrapped));
                }
                Err(Error::WrongKey { .. }) => {}
                Err(why) => return Err(why),
            }
        }
        let (root, dataset) = (key.encryption_root.clone(), manifest.name());
        Err(Error::Locked { dataset, root })
    }
}

fn unwrap(manifest: &Manifest, key: &ManifestKey, secret: &[u8]) -> Result<Key> {
    let failed = |why: transform::Error| {
        let name = manifest.dataset.clone();
        Error::from_dsl_error(&manifest.dataset, &dsl::Error::Key { name, why })
    };
    let format = KeyFormat::from_name(&key.format).ok_or_else(|| Error::Unsupported {
        what: format!("'{}' has a key of the form '{}'", manifest.name(), key.format),
    })?;
    let stretching = Pbkdf2Params { salt: key.pbkdf2_salt, iterations: key.pbkdf2_iterations };
    let wrapping = format.derive_wrapping_key(secret, stretching).map_err(failed)?;
    let subject = format!("the manifest of '{}'", manifest.name());
    let wrapped = key.wrapped().map_err(|why| Error::Unreadable { subject, why })?;
    Ok(Arc::new(unwrap_key(&wrapping, &wrapped).map_err(failed)?))
}
