//! The manifest of a snapshot: its metadata, without its blocks.

use ondisk::{Blkptr, Order};
use serde::{Deserialize, Serialize};

/// A property of a snapshot or of its dataset, as it was when the backup ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestProperty {
    /// Its name.
    pub name: String,
    /// Its value, numbers in full.
    pub value: String,
    /// Where it is set, in zfs(8)'s words.
    pub source: String,
}

/// The wrapped keys of an encrypted dataset. The user's key unwraps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestKey {
    /// The encryption root when the backup ran.
    pub encryption_root: String,
    /// "passphrase", "hex" or "raw".
    pub format: String,
    /// Salt of PBKDF2; 0 if it is not used.
    pub pbkdf2_salt: u64,
    /// Iterations of PBKDF2; 0 if it is not used.
    pub pbkdf2_iterations: u64,
    /// The code of the cipher suite.
    pub suite: u64,
    /// The key's guid.
    pub guid: u64,
    /// The version of the key's format.
    pub version: u64,
    /// Nonce, 12 bytes, hexadecimal.
    pub iv: String,
    /// MAC, 16 bytes, hexadecimal.
    pub mac: String,
    /// The wrapped master key, 32 bytes, hexadecimal.
    pub master: String,
    /// The wrapped HMAC key, 64 bytes, hexadecimal.
    pub hmac: String,
    /// The snapshot's set of nonces, which raw streams name; 0: the pool does not record it. None: an older
    /// version made the backup.
    #[serde(default)]
    pub ivset_guid: Option<u64>,
}

/// The manifest of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The repository's ID.
    pub repository: String,
    /// The dataset's full name.
    pub dataset: String,
    /// The part after `@`.
    pub snapshot: String,
    /// The snapshot's guid.
    pub guid: u64,
    /// The name of the pool.
    pub pool_name: String,
    /// The guid of the pool.
    pub pool: u64,
    /// The pool's salt for checksums, 32 bytes, hexadecimal.
    pub checksum_salt: String,
    /// The number of the snapshot's object set.
    pub objset: u64,
    /// The txg in which the snapshot was created.
    pub txg: u64,
    /// When it was created, seconds since 1970.
    pub creation: u64,
    /// When the backup ran, seconds since 1970.
    pub time: u64,
    /// The guid of the snapshot that its dataset is a clone of.
    pub origin: Option<u64>,
    /// Whether it is a snapshot of a volume.
    pub volume: bool,
    /// Bytes that it refers to.
    pub referenced: u64,
    /// The block pointer of its object set's root, 128 bytes little-endian, hexadecimal.
    pub root: String,
    /// The wrapped keys; none: it is not encrypted.
    pub key: Option<ManifestKey>,
    /// Features that its blocks use, by their short names, which streams name. None: an older version made
    /// the backup.
    #[serde(default)]
    pub features: Option<Vec<String>>,
    /// Its properties.
    pub properties: Vec<ManifestProperty>,
}

impl Manifest {
    /// Parses the object of a manifest. The error is the rule that it breaks.
    pub fn parse(object: &[u8]) -> Result<Self, String> {
        crate::sealed::open(object)
    }

    /// The snapshot's full name.
    pub fn name(&self) -> String {
        format!("{}@{}", self.dataset, self.snapshot)
    }

    /// A block pointer as the manifest holds it.
    pub fn encode_root(root: &Blkptr) -> String {
        encode_hex(&root.encode())
    }

    /// The block pointer of the root. The error is the rule that it breaks.
    pub fn root_pointer(&self) -> Result<Blkptr, String> {
        let bytes: [u8; Blkptr::SIZE] = decode_hex(&self.root)?;
        let mut reader = ondisk::Reader::new("root block pointer", &bytes, Order::Little);
        Blkptr::read(&mut reader).map_err(|why| why.to_string())
    }

    /// The pool's salt for checksums.
    pub fn salt(&self) -> Result<[u8; 32], String> {
        decode_hex(&self.checksum_salt)
    }

    /// The value of a property.
    pub fn property(&self, name: &str) -> Option<&str> {
        let found = self.properties.iter().find(|property| property.name == name);
        found.map(|property| property.value.as_str())
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hexadecimal digits.
pub(crate) fn decode_hex<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let wrong = || format!("'{text}' is not {N} bytes in hexadecimal digits");
    let bytes: Option<Vec<u8>> = (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at.checked_add(2)?)?, 16).ok())
        .collect();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)
}

impl ManifestKey {
    /// From the wrapped keys of a dataset.
    pub fn set_wrapped(&mut self, key: &transform::crypt::WrappedKey) {
        (self.suite, self.guid, self.version) = (key.suite.code(), key.guid, key.version);
        (self.iv, self.mac) = (encode_hex(&key.iv), encode_hex(&key.mac));
        (self.master, self.hmac) = (encode_hex(&key.master), encode_hex(&key.hmac));
    }

    /// The wrapped keys. The error is the rule that they break.
    pub fn wrapped(&self) -> Result<transform::crypt::WrappedKey, String> {
        let suite =
            transform::crypt::Suite::from_code(self.suite).map_err(|why| why.to_string())?;
        Ok(transform::crypt::WrappedKey {
            suite,
            guid: self.guid,
            version: self.version,
            iv: decode_hex(&self.iv)?,
            mac: decode_hex(&self.mac)?,
            master: decode_hex(&self.master)?,
            hmac: decode_hex(&self.hmac)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{decode_hex, encode_hex};

    #[test]
    fn wrong_digits_are_refused() {
        assert_eq!(decode_hex(&encode_hex(&[0, 127, 255])), Ok([0, 127, 255]));
        for wrong in ["", "00", "00ff", "00ffzz", "00fff", "0\u{e9}ff", "00ff00ff"] {
            assert!(decode_hex::<3>(wrong).is_err(), "{wrong}");
        }
    }
}
