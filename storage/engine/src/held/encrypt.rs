//! Encrypted datasets of a held pool: made, unlocked, locked.

use std::sync::Arc;

use dsl::write::NewKey;
use dsl::{Dataset, KeyFormat};
use transform::crypt::{DatasetKey, Suite, WrappedKey, WrappingKey, wrap_key};
use zio::Key;

use super::{Held, NewDataset};
use crate::keys::{self, EncryptionRoot};
use crate::{Error, Result};

/// How often a passphrase is stretched where nothing else is said.
const ITERATIONS: u64 = 350_000;
/// Not less often, lest it be guessed.
const LEAST_ITERATIONS: u64 = 100_000;
const NAMES: [&str; 4] = ["encryption", "keyformat", "keylocation", "pbkdf2iters"];

/// What the properties of a dataset that is to be say about its encryption.
#[derive(Debug, Default)]
struct Wish {
    encryption: Option<String>,
    format: Option<String>,
    location: Option<String>,
    iterations: Option<String>,
}

/// The keys of a dataset that is to be.
pub(super) struct Keying {
    wrapped: WrappedKey,
    wrapping: Arc<WrappingKey>,
    key: Key,
    own: bool,
    format: KeyFormat,
    salt: u64,
    iterations: u64,
}

impl Keying {
    /// What the datasets' floor writes down of it.
    pub(super) fn below(&self) -> NewKey<'_> {
        let Self { wrapped, own, format, salt, iterations, .. } = self;
        let (own, format, salt, iterations) = (*own, *format, *salt, *iterations);
        NewKey { wrapped, own, format, salt, iterations }
    }

    /// With what its blocks are ciphered.
    pub(super) fn key(&self) -> Key {
        Arc::clone(&self.key)
    }

    /// The user's key, if it is the dataset's own.
    pub(super) fn of_user(&self) -> Option<Arc<WrappingKey>> {
        self.own.then(|| Arc::clone(&self.wrapping))
    }
}

/// The cipher suite of that name; none: no encryption.
fn suite(name: &str) -> Option<Option<Suite>> {
    Some(Some(match name {
        "off" => return Some(None),
        "on" | "aes-256-gcm" => Suite::Aes256Gcm,
        "aes-128-ccm" => Suite::Aes128Ccm,
        "aes-192-ccm" => Suite::Aes192Ccm,
        "aes-256-ccm" => Suite::Aes256Ccm,
        "aes-128-gcm" => Suite::Aes128Gcm,
        "aes-192-gcm" => Suite::Aes192Gcm,
        _ => return None,
    }))
}

fn usage(name: &str, why: &str) -> Error {
    Error::Usage { what: format!("'{name}' cannot be made: {why}") }
}

impl Wish {
    /// Takes what is about encryption out of the properties.
    fn take(new: &mut NewDataset) -> Self {
        let mut wish = Self::default();
        let (about, rest) = std::mem::take(&mut new.properties)
            .into_iter()
            .partition(|(name, _)| NAMES.contains(&name.as_str()));
        new.properties = rest;
        for (name, value) in about {
            let place = match name.as_str() {
                "encryption" => &mut wish.encryption,
                "keyformat" => &mut wish.format,
                "keylocation" => &mut wish.location,
                _ => &mut wish.iterations,
            };
            *place = Some(value);
        }
        wish
    }

    fn asks_for_key(&self) -> bool {
        self.format.is_some() || self.location.is_some() || self.iterations.is_some()
    }
}

impl Held {
    /// How a dataset that is to be is encrypted, if it is. What its properties say of that is taken
    /// out of them, but for the place of its key. `secret` is the user's key, if it is to have one
    /// of its own.
    pub(super) fn keying(
        &self,
        new: &mut NewDataset,
        above: Option<&Dataset>,
        secret: Option<&[u8]>,
    ) -> Result<Option<Keying>> {
        let wish = Wish::take(new);
        let name = new.name.clone();
        let failed = |error: dsl::Error| Error::of_dataset(&name, &error);
        let facts = above.map(Dataset::key_facts).transpose().map_err(failed)?.flatten();
        let inherited = facts.as_ref().and_then(|facts| Suite::from_code(facts.suite).ok());
        let suite = match wish.encryption.as_deref() {
            Some(word) => suite(word)
                .ok_or_else(|| usage(&name, &format!("there is no encryption '{word}'")))?,
            None => inherited,
        };
        let Some(suite) = suite else {
            if wish.asks_for_key() || secret.is_some() {
                return Err(usage(&name, "a key is of no use without encryption"));
            }
            if facts.is_some() {
                let why = "what is above it is encrypted, and so it must be";
                return Err(usage(&name, why));
            }
            return Ok(None);
        };
        let (key, iv) = self.new_key(suite);
        if !wish.asks_for_key() && secret.is_none() {
            let facts = facts.ok_or_else(|| usage(&name, "encryption needs a keyformat"))?;
            let above = above.ok_or_else(|| usage(&name, "encryption needs a keyformat"))?;
            let wrapping = above.tree().wrapping(above).map_err(failed)?;
            let wrapping = wrapping.ok_or_else(|| keys::locked(above))?;
            let wrapped =
                wrap_key(&wrapping, &key, iv).map_err(|why| usage(&name, &why.to_string()))?;
            let format = facts.format.unwrap_or(KeyFormat::Raw);
            let (salt, iterations, own) = (facts.salt, facts.iterations, false);
            let key = Arc::new(key);
            return Ok(Some(Keying { wrapped, wrapping, key, own, format, salt, iterations }));
        }
        self.own_key(new, &wish, (key, iv), secret).map(Some)
    }

    fn own_key(
        &self,
        new: &mut NewDataset,
        wish: &Wish,
        (key, iv): (DatasetKey, [u8; 12]),
        secret: Option<&[u8]>,
    ) -> Result<Keying> {
        let name = &new.name;
        let word = wish.format.as_deref();
        let word = word.ok_or_else(|| usage(name, "a key of its own needs a keyformat"))?;
        let format = KeyFormat::by_name(word)
            .ok_or_else(|| usage(name, "keyformat is raw, hex or passphrase"))?;
        let passphrase = format == KeyFormat::Passphrase;
        let iterations = match wish.iterations.as_deref().map(str::parse::<u64>) {
            Some(Ok(count)) if passphrase && count >= LEAST_ITERATIONS => count,
            Some(_) if passphrase => {
                return Err(usage(name, &format!("pbkdf2iters is {LEAST_ITERATIONS} at least")));
            }
            Some(_) => return Err(usage(name, "pbkdf2iters is for passphrases")),
            None if passphrase => ITERATIONS,
            None => 0,
        };
        let salt = if passphrase { self.0.world.number().max(1) } else { 0 };
        let location = wish.location.clone().unwrap_or_else(|| "prompt".to_owned());
        judge_location(name, &location)?;
        let secret = secret.ok_or_else(|| usage(name, "its key was not given"))?;
        let wrapping = format.wrapping(secret, salt, iterations).map_err(|why| match why {
            transform::Error::KeyForm { wanted } => {
                Error::KeyForm { dataset: name.clone(), wanted: wanted.to_owned() }
            }
            why => usage(name, &why.to_string()),
        })?;
        let wrapped = wrap_key(&wrapping, &key, iv).map_err(|why| usage(name, &why.to_string()))?;
        new.properties.push(("keylocation".to_owned(), location));
        let (wrapping, key) = (Arc::new(wrapping), Arc::new(key));
        Ok(Keying { wrapped, wrapping, key, own: true, format, salt, iterations })
    }

    /// New keys for a dataset, and a nonce to close them with.
    fn new_key(&self, suite: Suite) -> (DatasetKey, [u8; 12]) {
        let mut iv = [0; 12];
        (self.0.world.random)(&mut iv);
        (DatasetKey::generate(suite, &*self.0.world.random), iv)
    }

    /// Unlocks a dataset, and so all that have their key from the same encryption root. `secret` is
    /// what the user has: the passphrase, the hexadecimal digits (a line's end after either is
    /// ignored) or the raw bytes.
    pub fn load_key(&self, dataset: &str, secret: &[u8]) -> Result<()> {
        let tree = self.tree()?;
        let found = tree.find(dataset).map_err(|error| Error::of_dataset(dataset, &error))?;
        tree.unlock(&found, secret).map_err(|error| Error::of_dataset(dataset, &error))?;
        Ok(())
    }

    /// Locks a dataset again, and all that have their key from the same encryption root. None of
    /// them is open afterwards.
    pub fn unload_key(&self, dataset: &str) -> Result<()> {
        self.sync()?;
        let tree = self.tree()?;
        let failed = |error: dsl::Error| Error::of_dataset(dataset, &error);
        let found = tree.find(dataset).map_err(failed)?;
        let root = found.key_facts().map_err(failed)?.map(|facts| facts.root);
        for head in tree.heads().flatten() {
            if root.is_some() && head.key_facts().map_err(failed)?.map(|facts| facts.root) == root {
                self.let_go(&head.name());
            }
        }
        tree.lock(&found).map_err(failed)
    }

    /// The encryption roots in the pool, by name.
    pub fn encryption_roots(&self) -> Result<Vec<EncryptionRoot>> {
        Ok(keys::roots(&self.tree()?))
    }
}

/// Where a key may be.
fn judge_location(name: &str, location: &str) -> Result<()> {
    let known = ["file:///", "https://", "http://"].iter().any(|way| location.starts_with(way));
    if location == "prompt" || known {
        return Ok(());
    }
    Err(usage(name, "keylocation is prompt, file:///PATH or an http or https address"))
}
