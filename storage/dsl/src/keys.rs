//! Keys of encrypted datasets: their records, and unlocking.
//!
//! An encrypted directory has a record of its own wrapped keys (a ZAP in the MOS), shared by its
//! snapshots and clones. The wrapping key belongs to an *encryption root*, itself or a directory
//! above. A user's key for the root unwraps all directories under it.
//!
//! ```text
//! keyformat              1 raw, 2 hex, 3 passphrase
//! pbkdf2salt, -iters     how a passphrase is stretched
//! DSL_CRYPTO_ROOT_DDOBJ  the encryption root's directory
//! DSL_CRYPTO_...         the wrapped keys, see `transform::crypt`
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use dmu::Objset;
use ondisk::dsl::Dir as DirPhys;
use parking_lot::Mutex;
use transform::crypt::{Suite, WrappedKey, WrappingKey, unwrap_key};
use units::ObjectId;
use zap::Zap;
use zio::Key;

use crate::{Dataset, DatasetTree, Error, Result};

/// The form of a user's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyFormat {
    /// 32 bytes.
    Raw,
    /// 64 hexadecimal digits.
    Hex,
    /// Text.
    Passphrase,
}

/// How a passphrase is stretched; zeros for other keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pbkdf2Params {
    /// With what.
    pub salt: u64,
    /// How often.
    pub iterations: u64,
}

impl KeyFormat {
    /// Derives the wrapping key from the user's key: a passphrase or hexadecimal digits (a trailing
    /// newline is ignored), or the raw bytes.
    pub fn derive_wrapping_key(
        self,
        secret: &[u8],
        stretching: Pbkdf2Params,
    ) -> std::result::Result<WrappingKey, transform::Error> {
        let line = secret.strip_suffix(b"\n").unwrap_or(secret);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self {
            Self::Raw => WrappingKey::from_raw(secret),
            Self::Hex => WrappingKey::from_hex(line),
            Self::Passphrase => {
                let Pbkdf2Params { salt, iterations } = stretching;
                WrappingKey::from_passphrase(line, salt, iterations)
            }
        }
    }

    /// The number of the form in the property `keyformat`.
    pub const fn code(self) -> u64 {
        match self {
            Self::Raw => 1,
            Self::Hex => 2,
            Self::Passphrase => 3,
        }
    }

    /// The form of a number in the property `keyformat`.
    pub const fn from_code(code: u64) -> Option<Self> {
        match code {
            1 => Some(Self::Raw),
            2 => Some(Self::Hex),
            3 => Some(Self::Passphrase),
            _ => None,
        }
    }

    /// The form of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "raw" => Some(Self::Raw),
            "hex" => Some(Self::Hex),
            "passphrase" => Some(Self::Passphrase),
            _ => None,
        }
    }
}

/// Whether a dataset's key is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyStatus {
    /// It was unlocked.
    Available,
    /// It was not.
    Unavailable,
}

/// The record of an encrypted dataset's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// The record's object.
    pub record: ObjectId,
    /// The encryption root's directory.
    pub encryption_root: ObjectId,
    /// The code of the cipher suite.
    pub suite_code: u64,
    /// The key's identity.
    pub guid: u64,
    /// The form of the user's key; `None` for a number that is not known.
    pub format: Option<KeyFormat>,
    /// The PBKDF2 parameters of a passphrase.
    pub salt: u64,
    /// How often.
    pub iterations: u64,
}

/// The keys of a pool that were unlocked. Trees of the pool, as it is at different times, can share
/// them.
#[derive(Debug, Default)]
pub struct Keyring {
    /// By the encryption root's directory.
    wrapping_keys: Mutex<HashMap<ObjectId, Arc<WrappingKey>>>,
    /// By the key's record.
    dataset_keys: Mutex<HashMap<ObjectId, Key>>,
}

impl KeyInfo {
    fn read(mos: &Objset, record: ObjectId) -> Result<Self> {
        let table = Zap::open(mos.object(record)?)?;
        let number = |entry: &'static str| {
            let found = table.lookup_u64(entry.as_bytes())?;
            found.ok_or(Error::KeyEntry { object: record, entry })
        };
        Ok(Self {
            record,
            encryption_root: ObjectId::new(number("DSL_CRYPTO_ROOT_DDOBJ")?),
            suite_code: number("DSL_CRYPTO_SUITE")?,
            guid: number("DSL_CRYPTO_GUID")?,
            format: table.lookup_u64(b"keyformat")?.and_then(KeyFormat::from_code),
            salt: table.lookup_u64(b"pbkdf2salt")?.unwrap_or(0),
            iterations: table.lookup_u64(b"pbkdf2iters")?.unwrap_or(0),
        })
    }
}

impl Dataset {
    /// The record of its key; `None` if it is not encrypted.
    pub fn key_object(&self) -> Result<Option<ObjectId>> {
        if self.bookmark_record().is_some() {
            return Ok(None);
        }
        self.dir().zap_field_object(DirPhys::CRYPTO_KEY)
    }

    /// The content of that record.
    pub fn key_info(&self) -> Result<Option<KeyInfo>> {
        let record = self.key_object()?;
        record.map(|record| KeyInfo::read(self.tree().mos(), record)).transpose()
    }

    /// Its key, if its encryption root was unlocked.
    pub fn key(&self) -> Result<Option<Key>> {
        let Some(record) = self.key_object()? else { return Ok(None) };
        let keys = self.tree().loaded_keys();
        let facts = KeyInfo::read(self.tree().mos(), record)?;
        // a destroyed dataset's record may have left its number to another object
        let known = keys.dataset_keys.lock().get(&record).map(Arc::clone);
        let wrapping = keys.wrapping_keys.lock().get(&facts.encryption_root).cloned();
        if let Some(key) = known.filter(|key| wrapping.is_some() && key.guid() == facts.guid) {
            return Ok(Some(key));
        }
        let Some(wrapping) = wrapping else { return Ok(None) };
        let key = match self.unwrap_with(record, &wrapping) {
            Err(Error::Key { why: transform::Error::WrongKey, .. }) => return Ok(None),
            other => other?,
        };
        keys.dataset_keys.lock().insert(record, Arc::clone(&key));
        Ok(Some(key))
    }

    /// Whether its key is loaded; `None` if it is not encrypted.
    pub fn key_status(&self) -> Result<Option<KeyStatus>> {
        if self.key_object()?.is_none() {
            return Ok(None);
        }
        let key = self.key().unwrap_or(None);
        Ok(Some(if key.is_some() { KeyStatus::Available } else { KeyStatus::Unavailable }))
    }

    fn unwrap_with(&self, record: ObjectId, wrapping: &WrappingKey) -> Result<Key> {
        let wrapped = self.read_wrapped_key(record)?;
        let key = unwrap_key(wrapping, &wrapped).map_err(|error| self.key_error(error))?;
        Ok(Arc::new(key))
    }

    fn key_error(&self, error: transform::Error) -> Error {
        Error::Key { name: self.name(), why: error }
    }

    /// Its wrapped keys; `None` if it is not encrypted.
    pub fn wrapped_key(&self) -> Result<Option<WrappedKey>> {
        self.key_object()?.map(|record| self.read_wrapped_key(record)).transpose()
    }

    fn read_wrapped_key(&self, record: ObjectId) -> Result<WrappedKey> {
        wrapped_key(&Zap::open(self.tree().mos().object(record)?)?, record, &self.name())
    }
}

/// The closed keys in a record, which is that of the dataset `name`.
pub(crate) fn wrapped_key(table: &Zap, record: ObjectId, name: &str) -> Result<WrappedKey> {
    let number = |entry: &str| table.lookup_u64(entry.as_bytes());
    let lacks = |entry| Error::KeyEntry { object: record, entry };
    let suite = number("DSL_CRYPTO_SUITE")?.ok_or(lacks("DSL_CRYPTO_SUITE"))?;
    let suite = Suite::from_code(suite);
    Ok(WrappedKey {
        suite: suite.map_err(|error| Error::Key { name: name.to_owned(), why: error })?,
        guid: number("DSL_CRYPTO_GUID")?.ok_or(lacks("DSL_CRYPTO_GUID"))?,
        version: number("DSL_CRYPTO_VERSION")?.unwrap_or(0),
        iv: read_bytes(table, record, "DSL_CRYPTO_IV")?,
        mac: read_bytes(table, record, "DSL_CRYPTO_MAC")?,
        master: read_bytes(table, record, "DSL_CRYPTO_MASTER_KEY_1")?,
        hmac: read_bytes(table, record, "DSL_CRYPTO_HMAC_KEY_1")?,
    })
}

/// The bytes of an entry; missing ones are zeros.
fn read_bytes<const N: usize>(
    table: &Zap,
    object: ObjectId,
    entry: &'static str,
) -> Result<[u8; N]> {
    let value = table.lookup(entry.as_bytes())?.filter(|value| value.int_size() == 1);
    let value = value.ok_or(Error::KeyEntry { object, entry })?;
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(value.bytes()) {
        *to = *from;
    }
    Ok(out)
}

impl DatasetTree {
    /// Unlocks the encryption root of `dataset`, and so all that is under it, with the secret as
    /// the user gave it: the passphrase, the hexadecimal digits (a line's end after either is
    /// ignored) or the raw bytes.
    pub fn load_key(&self, dataset: &Dataset, secret: &[u8]) -> Result<Key> {
        let (own, wrapping, key) = self.open_key(dataset, secret)?;
        self.loaded_keys().wrapping_keys.lock().insert(own.encryption_root, Arc::new(wrapping));
        self.loaded_keys().dataset_keys.lock().insert(own.record, Arc::clone(&key));
        Ok(key)
    }

    /// Checks that a secret is the one of the encryption root of `dataset`. No key is loaded.
    pub fn check_key(&self, dataset: &Dataset, secret: &[u8]) -> Result<()> {
        self.open_key(dataset, secret).map(drop)
    }

    /// The keys that a secret opens.
    fn open_key(&self, dataset: &Dataset, secret: &[u8]) -> Result<(KeyInfo, WrappingKey, Key)> {
        let not_encrypted = || Error::NotEncrypted { name: dataset.name() };
        let own = dataset.key_info()?.ok_or_else(not_encrypted)?;
        // the root's record has the key's parameters; if it is gone, the dataset's own record has
        // them
        let root = self.dir(own.encryption_root).map(|dir| Dataset::head(self, dir));
        let root = match root {
            Some(Ok(root)) => root.key_info()?,
            _ => None,
        };
        let facts = root.as_ref().unwrap_or(&own);
        let wrapping =
            derive_wrapping_key(facts, secret).map_err(|error| dataset.key_error(error))?;
        let key = dataset.unwrap_with(own.record, &wrapping)?;
        Ok((own, wrapping, key))
    }

    /// The user's key that opens `dataset`, if it was given.
    pub fn wrapping_key(&self, dataset: &Dataset) -> Result<Option<Arc<WrappingKey>>> {
        let Some(facts) = dataset.key_info()? else { return Ok(None) };
        Ok(self.loaded_keys().wrapping_keys.lock().get(&facts.encryption_root).cloned())
    }

    /// Keeps the user's key of an encryption root that was just made.
    pub fn store_wrapping_key(&self, root: &Dataset, wrapping: Arc<WrappingKey>) -> Result<()> {
        let facts = root.key_info()?;
        let facts = facts.ok_or_else(|| Error::NotEncrypted { name: root.name() })?;
        self.loaded_keys().wrapping_keys.lock().insert(facts.encryption_root, wrapping);
        Ok(())
    }

    /// Forgets the key of the encryption root of `dataset`: all under it are locked again.
    pub fn unload_key(&self, dataset: &Dataset) -> Result<()> {
        let facts = dataset.key_info()?;
        let facts = facts.ok_or_else(|| Error::NotEncrypted { name: dataset.name() })?;
        self.loaded_keys().wrapping_keys.lock().remove(&facts.encryption_root);
        Ok(())
    }

    /// The encryption root of `dataset`; `None` if that is not encrypted.
    pub fn encryption_root(&self, dataset: &Dataset) -> Result<Option<Dataset>> {
        let Some(facts) = dataset.key_info()? else { return Ok(None) };
        self.dir(facts.encryption_root).map(|dir| Dataset::head(self, dir)).transpose()
    }
}

fn derive_wrapping_key(
    facts: &KeyInfo,
    secret: &[u8],
) -> std::result::Result<WrappingKey, transform::Error> {
    let unknown = transform::Error::Unsupported { feature: "key format", code: 0 };
    let stretching = Pbkdf2Params { salt: facts.salt, iterations: facts.iterations };
    facts.format.ok_or(unknown)?.derive_wrapping_key(secret, stretching)
}
