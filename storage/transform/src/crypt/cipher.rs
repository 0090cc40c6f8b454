//! Ciphers: AES in counter mode with a code over it, in two constructions and three key sizes.

use std::fmt;

use aes::cipher::consts::{U12, U16};
use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ccm::Ccm;
use ccm::aead::{AeadInPlace, KeyInit};

use crate::Error;

/// Bytes of the code that authenticates a block.
pub(super) const MAC: usize = 16;
/// Bytes of a block's nonce.
pub(super) const IV: usize = 12;

/// A cipher suite, as `zfs get encryption` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// aes-128-ccm
    Aes128Ccm,
    /// aes-192-ccm
    Aes192Ccm,
    /// aes-256-ccm
    Aes256Ccm,
    /// aes-128-gcm
    Aes128Gcm,
    /// aes-192-gcm
    Aes192Gcm,
    /// aes-256-gcm, what `encryption=on` means
    Aes256Gcm,
}

const SUITES: [(u64, Suite); 6] = [
    (3, Suite::Aes128Ccm),
    (4, Suite::Aes192Ccm),
    (5, Suite::Aes256Ccm),
    (6, Suite::Aes128Gcm),
    (7, Suite::Aes192Gcm),
    (8, Suite::Aes256Gcm),
];

impl Suite {
    /// The suite with this code (`DSL_CRYPTO_SUITE`).
    pub fn from_code(code: u64) -> Result<Self, Error> {
        SUITES
            .iter()
            .find_map(|(c, suite)| (*c == code).then_some(*suite))
            .ok_or(Error::Unsupported { feature: "encryption suite", code })
    }

    /// The code on disk (`DSL_CRYPTO_SUITE`).
    pub fn code(self) -> u64 {
        SUITES.iter().find_map(|(code, s)| (*s == self).then_some(*code)).unwrap_or(0)
    }

    /// Bytes of the master key and of every block key.
    pub fn key_len(self) -> usize {
        match self {
            Suite::Aes128Ccm | Suite::Aes128Gcm => 16,
            Suite::Aes192Ccm | Suite::Aes192Gcm => 24,
            Suite::Aes256Ccm | Suite::Aes256Gcm => 32,
        }
    }

    /// The suite that wraps keys for this one: same construction, always 256 bits.
    pub(super) fn wrapping(self) -> Self {
        match self {
            Suite::Aes128Ccm | Suite::Aes192Ccm | Suite::Aes256Ccm => Suite::Aes256Ccm,
            Suite::Aes128Gcm | Suite::Aes192Gcm | Suite::Aes256Gcm => Suite::Aes256Gcm,
        }
    }
}

/// A suite with its key set up.
pub(super) enum Cipher {
    Gcm(Box<LessSafeKey>),
    Ccm128(Box<Ccm<Aes128, U16, U12>>),
    Ccm192(Box<Ccm<Aes192, U16, U12>>),
    Ccm256(Box<Ccm<Aes256, U16, U12>>),
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    /// `None` if `key` has not the suite's length.
    pub(super) fn new(suite: Suite, key: &[u8]) -> Option<Self> {
        let gcm = |algorithm| {
            let key = UnboundKey::new(algorithm, key).ok()?;
            Some(Cipher::Gcm(Box::new(LessSafeKey::new(key))))
        };
        match suite {
            Suite::Aes128Gcm => gcm(&AES_128_GCM),
            Suite::Aes192Gcm => gcm(&AES_192_GCM),
            Suite::Aes256Gcm => gcm(&AES_256_GCM),
            Suite::Aes128Ccm => Ccm::new_from_slice(key).ok().map(|c| Self::Ccm128(Box::new(c))),
            Suite::Aes192Ccm => Ccm::new_from_slice(key).ok().map(|c| Self::Ccm192(Box::new(c))),
            Suite::Aes256Ccm => Ccm::new_from_slice(key).ok().map(|c| Self::Ccm256(Box::new(c))),
        }
    }

    /// Decrypts `src` into `dst` (same length). False: the code is wrong, `dst` is zeros.
    pub(super) fn open(
        &self,
        iv: &[u8; IV],
        aad: &[u8],
        mac: &[u8; MAC],
        src: &[u8],
        dst: &mut [u8],
    ) -> bool {
        if src.len() != dst.len() {
            return false;
        }
        let opened = match self {
            Cipher::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(*iv);
                key.open_separate_gather(nonce, Aad::from(aad), src, mac, dst).is_ok()
            }
            Cipher::Ccm128(key) => open_ccm(&**key, iv, aad, mac, src, dst),
            Cipher::Ccm192(key) => open_ccm(&**key, iv, aad, mac, src, dst),
            Cipher::Ccm256(key) => open_ccm(&**key, iv, aad, mac, src, dst),
        };
        if !opened {
            dst.fill(0);
        }
        opened
    }

    /// Encrypts `data` in place and gives its code. `None`: the data is too long for the suite.
    pub(super) fn seal(&self, iv: &[u8; IV], aad: &[u8], data: &mut [u8]) -> Option<[u8; MAC]> {
        match self {
            Cipher::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(*iv);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), data).ok()?;
                tag.as_ref().try_into().ok()
            }
            Cipher::Ccm128(key) => seal_ccm(&**key, iv, aad, data),
            Cipher::Ccm192(key) => seal_ccm(&**key, iv, aad, data),
            Cipher::Ccm256(key) => seal_ccm(&**key, iv, aad, data),
        }
    }
}

trait CcmKey: AeadInPlace<NonceSize = U12, TagSize = U16> {}
impl<T: AeadInPlace<NonceSize = U12, TagSize = U16>> CcmKey for T {}

fn open_ccm(
    key: &impl CcmKey,
    iv: &[u8; IV],
    aad: &[u8],
    mac: &[u8; MAC],
    src: &[u8],
    dst: &mut [u8],
) -> bool {
    dst.copy_from_slice(src);
    key.decrypt_in_place_detached(iv.into(), aad, dst, mac.into()).is_ok()
}

fn seal_ccm(key: &impl CcmKey, iv: &[u8; IV], aad: &[u8], data: &mut [u8]) -> Option<[u8; MAC]> {
    key.encrypt_in_place_detached(iv.into(), aad, data).ok().map(Into::into)
}
