//! Keys of encrypted datasets.

use dsl::{Dataset, DatasetTree, KeyFormat, KeyStatus};

use crate::{Error, RescuePool, Result};

/// Whether a dataset can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// It is not encrypted.
    None,
    /// A key is wanted.
    Locked,
    /// It is encrypted, and its key is loaded.
    Unlocked,
}

/// An encryption root: its key opens itself and its descendants.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EncryptionRoot {
    /// Its name.
    pub name: String,
    /// The form of its key: "passphrase", "hex" or "raw".
    pub format: String,
    /// Its keylocation: "file:///root/key", or "prompt".
    pub location: String,
    /// Whether its key is loaded.
    pub state: KeyState,
}

impl RescuePool {
    /// The encryption roots in the pool, by name.
    pub fn encryption_roots(&self) -> Vec<EncryptionRoot> {
        encryption_roots(self.tree())
    }

    /// Loads the key of a dataset, and so of all with the same encryption root. `secret`
    /// is the user's key: the passphrase or the hexadecimal digits (a trailing newline is
    /// ignored), or the raw bytes.
    pub fn load_key(&self, dataset: &str, secret: &[u8]) -> Result<()> {
        let found = self.find_dataset(dataset)?;
        self.tree()
            .load_key(&found, secret)
            .map_err(|error| Error::from_dsl_error(dataset, &error))?;
        Ok(())
    }

    /// Why a dataset without a key cannot be read.
    pub fn locked_error(&self, dataset: &str) -> Error {
        match self.find_dataset(dataset) {
            Ok(found) => locked_error(&found),
            Err(_) => Error::Locked { root: dataset.to_owned(), dataset: dataset.to_owned() },
        }
    }
}

/// Why a dataset without a key cannot be read.
pub(crate) fn locked_error(dataset: &Dataset) -> Error {
    let root = dataset.tree().encryption_root(dataset).ok().flatten().map(|root| root.name());
    let dataset = dataset.name();
    Error::Locked { root: root.unwrap_or_else(|| dataset.clone()), dataset }
}

/// The encryption roots in a tree of datasets, by name.
pub(crate) fn encryption_roots(tree: &DatasetTree) -> Vec<EncryptionRoot> {
    let mut roots: Vec<EncryptionRoot> = Vec::new();
    for head in tree.heads() {
        let Ok(head) = head else { continue };
        let Ok(Some(root)) = tree.encryption_root(&head) else { continue };
        if roots.iter().any(|known| known.name == root.name()) {
            continue;
        }
        let format = format_name(root.key_info().ok().flatten().and_then(|facts| facts.format));
        let location = root.property("keylocation").ok().flatten();
        roots.push(EncryptionRoot {
            name: root.name(),
            format: format.to_owned(),
            location: location.map(|found| found.value).unwrap_or_default(),
            state: key_state(&root),
        });
    }
    roots
}

/// The name of a key format.
pub(crate) fn format_name(format: Option<KeyFormat>) -> &'static str {
    match format {
        Some(KeyFormat::Passphrase) => "passphrase",
        Some(KeyFormat::Hex) => "hex",
        Some(KeyFormat::Raw) | None => "raw",
    }
}

pub(crate) fn key_state(dataset: &Dataset) -> KeyState {
    match dataset.key_status() {
        Ok(Some(KeyStatus::Available)) => KeyState::Unlocked,
        Ok(Some(KeyStatus::Unavailable)) => KeyState::Locked,
        // a bookmark, or nothing to be known of it
        Ok(None) | Err(_) => KeyState::None,
    }
}
