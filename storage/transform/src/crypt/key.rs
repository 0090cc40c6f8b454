//! A dataset's keys, once unwrapped: one to make block keys from, one to make codes with.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::{hkdf, hmac};
use zeroize::Zeroizing;

use super::cipher::{Cipher, Suite};
use crate::Error;

/// The longest master key, in bytes; shorter ones are followed by zeros.
pub(super) const MASTER: usize = 32;
/// Bytes of the key for authentication codes.
pub(super) const HMAC: usize = 64;
const SALT: usize = 8;

/// The keys of a dataset and of all its snapshots and clones.
///
/// The block key of the last salt is cached, because consecutive blocks mostly share one salt.
pub struct DatasetKey {
    suite: Suite,
    guid: u64,
    version: u64,
    master: Zeroizing<[u8; MASTER]>,
    hmac_bytes: Zeroizing<[u8; HMAC]>,
    hmac: hmac::Key,
    latest_cipher: Mutex<Option<([u8; SALT], Arc<Cipher>)>>,
}

impl fmt::Debug for DatasetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetKey")
            .field("suite", &self.suite)
            .field("guid", &self.guid)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl DatasetKey {
    /// Keys in the clear, as a new dataset makes them from randomness.
    ///
    /// `version` is 1 for all that is written today (`DSL_CRYPTO_VERSION`); of `master` only the
    /// suite's key length is used.
    pub fn new(
        suite: Suite,
        guid: u64,
        version: u64,
        master: &[u8; MASTER],
        hmac_key: &[u8; HMAC],
    ) -> Self {
        let mut cut = Zeroizing::new([0; MASTER]);
        cut[..suite.key_len()].copy_from_slice(&master[..suite.key_len()]);
        Self {
            suite,
            guid,
            version,
            master: cut,
            hmac_bytes: Zeroizing::new(*hmac_key),
            hmac: hmac::Key::new(hmac::HMAC_SHA512, hmac_key),
            latest_cipher: Mutex::new(None),
        }
    }

    /// The keys of a new dataset; `fill` must give bytes of a cryptographic random generator.
    pub fn generate(suite: Suite, fill: &dyn Fn(&mut [u8])) -> Self {
        /// The rules for codes, as all writers follow them today.
        const VERSION: u64 = 1;
        let (mut master, mut hmac) = (Zeroizing::new([0; MASTER]), Zeroizing::new([0; HMAC]));
        let mut guid = [0; 8];
        fill(&mut *master);
        fill(&mut *hmac);
        fill(&mut guid);
        Self::new(suite, u64::from_le_bytes(guid), VERSION, &master, &hmac)
    }

    /// The cipher suite of the dataset's blocks.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The key's identity (`DSL_CRYPTO_GUID`).
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Whether both are the same key: by identity, suite and content.
    pub fn is_same(&self, other: &Self) -> bool {
        self.guid == other.guid && self.suite == other.suite && self.master == other.master
    }

    /// The version of the rules for codes (`DSL_CRYPTO_VERSION`): 0 or 1.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn master(&self) -> &[u8] {
        &self.master[..self.suite.key_len()]
    }

    pub(super) fn hmac_bytes(&self) -> &[u8; HMAC] {
        &self.hmac_bytes
    }

    pub(super) fn hmac(&self) -> &hmac::Key {
        &self.hmac
    }

    /// The block key for `salt`.
    pub(super) fn cipher(&self, salt: [u8; SALT]) -> Result<Arc<Cipher>, Error> {
        let mut latest = self.latest_cipher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, cipher)) = &*latest
            && *known == salt
        {
            return Ok(Arc::clone(cipher));
        }
        let unusable = Error::Unsupported { feature: "encryption suite", code: self.suite.code() };
        let cipher = Arc::new(self.derive(salt).ok_or(unusable)?);
        *latest = Some((salt, Arc::clone(&cipher)));
        Ok(cipher)
    }

    fn derive(&self, salt: [u8; SALT]) -> Option<Cipher> {
        let mut block_key = Zeroizing::new([0; MASTER]);
        let out = &mut block_key[..self.suite.key_len()];
        hkdf::Salt::new(hkdf::HKDF_SHA512, &[])
            .extract(self.master())
            .expand(&[&salt], KeyLength(out.len()))
            .and_then(|okm| okm.fill(out))
            .ok()?;
        Cipher::new(self.suite, out)
    }
}

struct KeyLength(usize);

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        self.0
    }
}
