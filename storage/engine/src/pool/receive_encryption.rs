//! Encryption of a received file system: a key of its own (-o), or the one of the file system above.
//!
//! A raw stream brings its own key, and an increment goes into a dataset that is encrypted or not. Neither can be changed.

use zeroize::Zeroizing;

use super::Pool;
use super::encryption::is_encryption_property;
use super::receive::{Mode, ReceiveRequest, receive_error};
use super::received_properties::ReceiveProperties;
use crate::{Error, Result};

/// Properties of a key. Its place may change at any time, so keylocation is not one of them.
const KEY_PROPERTIES: [&str; 4] = ["encryption", "keyformat", "pbkdf2iters", "pbkdf2salt"];

/// A user's key: a passphrase, hexadecimal digits or raw bytes. It is never shown, and wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct UserSecret(Zeroizing<Vec<u8>>);

impl UserSecret {
    /// The key in these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for UserSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserSecret")
    }
}

impl ReceiveProperties {
    /// The first property of a key that is set, or if there is none, left out.
    fn key_property(&self, is_set: bool) -> Option<&str> {
        let set = self.set.iter().map(|(name, _)| name).filter(|_| is_set);
        let excluded = self.excluded.iter().filter(|_| !is_set);
        set.chain(excluded).map(String::as_str).find(|name| KEY_PROPERTIES.contains(name))
    }

    /// Whether a key of its own is asked for.
    pub(super) fn sets_key(&self) -> bool {
        self.key_property(true).is_some()
    }

    /// Takes the properties of an encryption that is to be out of the list.
    pub(super) fn take_encryption(&mut self) -> Vec<(String, String)> {
        let all = std::mem::take(&mut self.set).into_iter();
        let (encryption, rest) = all.partition(|(name, _)| is_encryption_property(name));
        self.set = rest;
        encryption
    }
}

impl Pool {
    /// Refuses properties of a key that the stream or the target decides.
    pub(super) fn check_key_properties(
        &self,
        request: &ReceiveRequest,
        (mode, is_resumed, is_raw): (&Mode, bool, bool),
    ) -> Result<()> {
        let (target, properties) = (&request.target, &request.properties);
        let set = properties.key_property(true);
        let excluded = properties.key_property(false);
        if let Some(name) = set.or(excluded).filter(|_| is_raw) {
            let why =
                format!("encryption property '{name}' cannot be set or excluded for raw streams.");
            return Err(receive_error(target, why));
        }
        let Some(name) = set else { return Ok(()) };
        // the first part of a resumed stream began with the same options
        let is_new = match mode {
            Mode::Full if is_resumed => self.is_encrypted(target)?,
            Mode::Full => true,
            Mode::Replace | Mode::Clone(_) | Mode::Incremental(_) => false,
        };
        if is_new {
            return Ok(());
        }
        let why = format!("encryption property '{name}' cannot be set for incremental streams.");
        Err(receive_error(target, why))
    }

    fn is_encrypted(&self, name: &str) -> Result<bool> {
        let found = self.find_dataset(name)?;
        let key = found.key_object().map_err(|why| Error::from_dsl_error(name, &why))?;
        Ok(key.is_some())
    }
}
