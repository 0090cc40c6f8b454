//! Encrypted datasets of an imported pool: created, keys loaded and unloaded.

use std::sync::Arc;

use dsl::write::NewKey;
use dsl::{Dataset, KeyFormat, Pbkdf2Params};
use transform::crypt::{DatasetKey, Suite, WrappedKey, WrappingKey, wrap_key};
use zio::Key;

use super::{Environment, NewDataset, Pool};
use crate::keys::{self, EncryptionRoot};
use crate::pool::handles::Keys;
use crate::{Error, Result};

/// The default number of PBKDF2 iterations.
const DEFAULT_ITERATIONS: u64 = 350_000;
/// The least number: fewer make guessing easy.
const MIN_ITERATIONS: u64 = 100_000;
const ENCRYPTION_PROPERTIES: [&str; 4] = ["encryption", "keyformat", "keylocation", "pbkdf2iters"];

/// The encryption properties of a new dataset.
#[derive(Debug, Default)]
pub(super) struct EncryptionOptions {
    pub(super) encryption: Option<String>,
    pub(super) format: Option<String>,
    pub(super) location: Option<String>,
    iterations: Option<String>,
}

/// The keys of a dataset that is to be.
pub(super) struct DatasetEncryption {
    wrapped_key: WrappedKey,
    wrapping_key: Arc<WrappingKey>,
    key: Key,
    is_encryption_root: bool,
    format: KeyFormat,
    salt: u64,
    iterations: u64,
}

impl DatasetEncryption {
    /// The part of it that the crate dsl stores.
    pub(super) fn as_new_key(&self) -> NewKey<'_> {
        let Self {
            wrapped_key: wrapped, is_encryption_root: own, format, salt, iterations, ..
        } = self;
        let (own, format, salt, iterations) = (*own, *format, *salt, *iterations);
        NewKey { wrapped, is_encryption_root: own, format, salt, iterations }
    }

    /// The same for the topmost file system of a pool that is to be.
    pub(super) fn to_root_key(&self) -> spa::RootKey {
        let Self { wrapped_key: wrapped, format, salt, iterations, .. } = self;
        let (wrapped, key) = (wrapped.clone(), self.key());
        spa::RootKey { wrapped, format: *format, salt: *salt, iterations: *iterations, key }
    }

    /// With what its blocks are ciphered.
    pub(super) fn key(&self) -> Key {
        Arc::clone(&self.key)
    }

    /// The user's key, if it is the dataset's own.
    pub(super) fn user_key(&self) -> Option<Arc<WrappingKey>> {
        self.is_encryption_root.then(|| Arc::clone(&self.wrapping_key))
    }
}

/// The cipher suite of a property's value, if it is one.
fn parse_suite(word: &str) -> Result<Option<Suite>> {
    Ok(Some(match word {
        "off" => return Ok(None),
        "on" | "aes-256-gcm" => Suite::Aes256Gcm,
        "aes-128-ccm" => Suite::Aes128Ccm,
        "aes-192-ccm" => Suite::Aes192Ccm,
        "aes-256-ccm" => Suite::Aes256Ccm,
        "aes-128-gcm" => Suite::Aes128Gcm,
        "aes-192-gcm" => Suite::Aes192Gcm,
        _ => return Err(encryption_error(&format!("'{word}' is not a cipher suite"))),
    }))
}

/// Whether a property is about encryption.
pub fn is_encryption_property(property: &str) -> bool {
    ENCRYPTION_PROPERTIES.contains(&property)
}

pub(super) fn encryption_error(why: &str) -> Error {
    Error::Usage { what: why.to_owned() }
}

impl EncryptionOptions {
    /// Takes the encryption properties out of the list.
    pub(super) fn extract(new: &mut NewDataset) -> Self {
        let mut options = Self::default();
        let (about, rest) = std::mem::take(&mut new.properties)
            .into_iter()
            .partition(|(name, _)| is_encryption_property(name));
        new.properties = rest;
        for (name, value) in about {
            let place = match name.as_str() {
                "encryption" => &mut options.encryption,
                "keyformat" => &mut options.format,
                "keylocation" => &mut options.location,
                _ => &mut options.iterations,
            };
            *place = Some(value);
        }
        options
    }

    /// How often a passphrase is stretched; 0 for other keys.
    fn pbkdf2_iterations(&self, format: KeyFormat) -> Result<u64> {
        let wanted = self.iterations.as_deref().map(str::parse::<u64>);
        match (format, wanted) {
            (KeyFormat::Passphrase, None) => Ok(DEFAULT_ITERATIONS),
            (KeyFormat::Passphrase, Some(Ok(count))) if count >= MIN_ITERATIONS => Ok(count),
            (KeyFormat::Passphrase, _) => {
                Err(encryption_error(&format!("pbkdf2iters is {MIN_ITERATIONS} at least")))
            }
            (_, None) => Ok(0),
            _ => Err(encryption_error("pbkdf2iters is for passphrases")),
        }
    }

    /// The wrapping key from the user's key, in the named format.
    pub(super) fn derive_user_key(
        &self,
        world: &Environment,
        name: &str,
        format: &str,
        secret: Option<&[u8]>,
    ) -> Result<UserKey> {
        let format = KeyFormat::from_name(format)
            .ok_or_else(|| encryption_error("keyformat is raw, hex or passphrase"))?;
        let iterations = self.pbkdf2_iterations(format)?;
        let salt = if iterations == 0 { 0 } else { world.random_u64().max(1) };
        let secret = secret.ok_or_else(|| encryption_error("its key was not given"))?;
        let stretching = Pbkdf2Params { salt, iterations };
        let wrapping =
            format.derive_wrapping_key(secret, stretching).map_err(|error| match error {
                transform::Error::KeyFormat { expected: wanted } => {
                    Error::InvalidKey { dataset: name.to_owned(), expected: wanted.to_owned() }
                }
                error => encryption_error(&error.to_string()),
            })?;
        Ok(UserKey { wrapping_key: wrapping, format, pbkdf2: stretching })
    }

    fn has_key_options(&self) -> bool {
        self.format.is_some() || self.location.is_some() || self.iterations.is_some()
    }
}

/// The encryption of a new dataset, if it is encrypted. Takes its properties out of the list,
/// except for the keylocation. `secret` is the user's key, if it is to be an encryption
/// root.
pub(super) fn new_encryption(
    world: &Environment,
    new: &mut NewDataset,
    above: Option<&Dataset>,
    secret: Option<&[u8]>,
) -> Result<Option<DatasetEncryption>> {
    let options = EncryptionOptions::extract(new);
    let failed = |error: dsl::Error| Error::from_dsl_error(&new.name, &error);
    let facts = above.map(Dataset::key_info).transpose().map_err(failed)?.flatten();
    let inherited = facts.as_ref().and_then(|facts| Suite::from_code(facts.suite_code).ok());
    let suite = match options.encryption.as_deref() {
        Some(word) => parse_suite(word)?,
        None => inherited,
    };
    let Some(suite) = suite else {
        if options.has_key_options() || secret.is_some() {
            return Err(encryption_error(
                "Encryption must be turned on to set encryption properties.",
            ));
        }
        return Ok(None);
    };
    let key = (DatasetKey::generate(suite, &*world.random), random_iv(world));
    let (Some(facts), Some(above), false) =
        (facts, above, options.has_key_options() || secret.is_some())
    else {
        return new_root_encryption(world, new, &options, key, secret).map(Some);
    };
    let wrapping = above.tree().wrapping_key(above).map_err(failed)?;
    let wrapping = wrapping.ok_or_else(|| keys::locked_error(above))?;
    let wrapped = wrap_key(&wrapping, &key.0, key.1);
    Ok(Some(DatasetEncryption {
        wrapped_key: wrapped.map_err(|why| encryption_error(&why.to_string()))?,
        wrapping_key: wrapping,
        key: Arc::new(key.0),
        is_encryption_root: false,
        format: facts.format.unwrap_or(KeyFormat::Raw),
        salt: facts.salt,
        iterations: facts.iterations,
    }))
}

fn new_root_encryption(
    world: &Environment,
    new: &mut NewDataset,
    options: &EncryptionOptions,
    (key, iv): (DatasetKey, [u8; 12]),
    secret: Option<&[u8]>,
) -> Result<DatasetEncryption> {
    let name = &new.name;
    let word = options.format.as_deref();
    let missing = || encryption_error("Keyformat required for new encryption root.");
    let word = word.ok_or_else(missing)?;
    let location = options.location.clone().unwrap_or_else(|| "prompt".to_owned());
    check_location_format(&location)?;
    let UserKey { wrapping_key: wrapping, format, pbkdf2: stretching } =
        options.derive_user_key(world, name, word, secret)?;
    let Pbkdf2Params { salt, iterations } = stretching;
    let wrapped =
        wrap_key(&wrapping, &key, iv).map_err(|error| encryption_error(&error.to_string()))?;
    new.properties.push(("keylocation".to_owned(), location));
    let (wrapping, key) = (Arc::new(wrapping), Arc::new(key));
    Ok(DatasetEncryption {
        wrapped_key: wrapped,
        wrapping_key: wrapping,
        key,
        is_encryption_root: true,
        format,
        salt,
        iterations,
    })
}

/// A user's key, as it is from now on.
pub(super) struct UserKey {
    pub(super) wrapping_key: WrappingKey,
    pub(super) format: KeyFormat,
    pub(super) pbkdf2: Pbkdf2Params,
}

pub(super) fn random_iv(world: &Environment) -> [u8; 12] {
    let mut iv = [0; 12];
    (world.random)(&mut iv);
    iv
}

impl Keys<'_> {
    /// Loads the key of a dataset, and so of all with the same encryption root. `secret` is
    /// the user's key: the passphrase or the hexadecimal digits (a trailing newline is
    /// ignored), or the raw bytes.
    pub fn load(self, dataset: &str, secret: &[u8]) -> Result<()> {
        let tree = self.pool.tree()?;
        let found = tree.find(dataset).map_err(|error| Error::from_dsl_error(dataset, &error))?;
        tree.load_key(&found, secret).map_err(|error| Error::from_dsl_error(dataset, &error))?;
        Ok(())
    }

    /// Checks that a key is the one of a dataset, loaded or not. Nothing changes.
    pub fn check(self, dataset: &str, secret: &[u8]) -> Result<()> {
        let tree = self.pool.tree()?;
        let failed = |error| Error::from_dsl_error(dataset, &error);
        tree.check_key(&tree.find(dataset).map_err(failed)?, secret).map_err(failed)
    }

    /// Unloads the key of a dataset, and of all with the same encryption root. None of
    /// them is open afterwards; it is refused while a program has one open as a volume.
    pub fn unload(self, dataset: &str) -> Result<()> {
        self.pool.sync()?;
        // no thread opens one again before its key is unloaded
        self.pool.close_datasets_with(|close| self.pool.unload_key_with(dataset, close))
    }
}

impl Pool {
    /// `close` closes a head.
    fn unload_key_with(
        &self,
        dataset: &str,
        close: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let tree = self.tree()?;
        let failed = |error: dsl::Error| Error::from_dsl_error(dataset, &error);
        let found = tree.find(dataset).map_err(failed)?;
        let root = found.key_info().map_err(failed)?.map(|facts| facts.encryption_root);
        let mut names = Vec::new();
        for head in tree.heads().flatten() {
            if root.is_some()
                && head.key_info().map_err(failed)?.map(|facts| facts.encryption_root) == root
            {
                names.push(head.name());
                if head.id().is_some_and(|id| self.0.dataset_holds.is_held(id)) {
                    let what = format!("'{}' is busy: a program has it open", head.name());
                    return Err(Error::Refused { what });
                }
            }
        }
        names.iter().try_for_each(|name| close(name))?;
        tree.unload_key(&found).map_err(failed)
    }
}

impl Keys<'_> {
    /// The encryption root of a dataset; none if it is not encrypted.
    pub fn encryption_root(self, dataset: &str) -> Result<Option<String>> {
        let found = self.pool.find_dataset(dataset)?;
        let root = found.tree().encryption_root(&found);
        let root = root.map_err(|error| Error::from_dsl_error(dataset, &error))?;
        Ok(root.map(|root| root.name()))
    }
}

impl Pool {
    /// Whether a dataset's key may be reported as loaded: the dataset must be encrypted.
    pub(super) fn check_key_location(&self, name: &str, location: &str) -> Result<()> {
        match self.keys().encryption_root(name)? {
            Some(root) if root == name => check_location_format(location),
            None if location == "none" => Ok(()),
            _ => Err(encryption_error("it has no key of its own, so that has no location")),
        }
    }
}

impl Keys<'_> {
    /// The encryption roots in the pool, by name.
    pub fn encryption_roots(self) -> Result<Vec<EncryptionRoot>> {
        Ok(keys::encryption_roots(&self.pool.tree()?))
    }
}

/// Where a key may be.
pub(super) fn check_location_format(location: &str) -> Result<()> {
    let known = ["file:///", "https://", "http://"].iter().any(|way| location.starts_with(way));
    if location == "prompt" || known {
        return Ok(());
    }
    Err(encryption_error("keylocation is prompt, file:///PATH or an http or https address"))
}
