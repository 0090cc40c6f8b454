//! Wrapping: how a dataset's keys lie on disk, and how the user's key opens them.
//!
//! The entries of a DSL crypto key (a ZAP in the MOS), as far as they are keys:
//!
//! ```text
//! DSL_CRYPTO_SUITE         u64        code of the cipher suite
//! DSL_CRYPTO_GUID          u64        identity of the key
//! DSL_CRYPTO_VERSION       u64        0 (absent) or 1
//! DSL_CRYPTO_IV            12 bytes   nonce of the wrapping
//! DSL_CRYPTO_MAC           16 bytes   code of the wrapping
//! DSL_CRYPTO_MASTER_KEY_1  32 bytes   wrapped; as many as the suite's key has, then zeros
//! DSL_CRYPTO_HMAC_KEY_1    64 bytes   wrapped
//! ```
//!
//! Both keys are one message to the wrapping cipher, which is the suite's construction with a
//! key of 256 bits whatever the suite. It also authenticates, each as a little-endian u64: the
//! guid, and since version 1 the suite's code and the version.
//!
//! Learnt from: the crypto keys of an encrypted pool. Proved by: `tests/it`.

use std::fmt;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use zeroize::{Zeroize, Zeroizing};

use super::cipher::{Cipher, IV, MAC, Suite};
use super::key::{DatasetKey, HMAC, MASTER};
use crate::Error;

const WRAPPING: usize = 32;
const PASSPHRASE_LENGTHS: std::ops::RangeInclusive<usize> = 8..=512;

/// The user's key, in the one form that wraps: 32 bytes.
pub struct WrappingKey(Zeroizing<[u8; WRAPPING]>);

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrappingKey")
    }
}

impl WrappingKey {
    /// `keyformat=raw`: exactly 32 bytes.
    pub fn from_raw(bytes: &[u8]) -> Result<Self, Error> {
        let key = bytes.try_into().map_err(|_| Error::KeyFormat { expected: "32 raw bytes" })?;
        Ok(Self(Zeroizing::new(key)))
    }

    /// `keyformat=hex`: exactly 64 hexadecimal digits, of either case.
    pub fn from_hex(text: &[u8]) -> Result<Self, Error> {
        let wrong = Error::KeyFormat { expected: "64 hexadecimal digits" };
        let digits: &[u8; 2 * WRAPPING] = text.try_into().map_err(|_| wrong)?;
        let digit = |c: u8| (c as char).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let mut key = Zeroizing::new([0; WRAPPING]);
        for (byte, [high, low]) in key.iter_mut().zip(digits.as_chunks::<2>().0) {
            *byte = digit(*high).ok_or(wrong)? << 4 | digit(*low).ok_or(wrong)?;
        }
        Ok(Self(key))
    }

    /// `keyformat=passphrase`: stretched with PBKDF2 (HMAC-SHA-1).
    ///
    /// `salt` and `iterations` are the dataset's properties `pbkdf2salt` and `pbkdf2iters`.
    pub fn from_passphrase(text: &[u8], salt: u64, iterations: u64) -> Result<Self, Error> {
        if !PASSPHRASE_LENGTHS.contains(&text.len()) {
            return Err(Error::KeyFormat { expected: "a passphrase of 8 to 512 bytes" });
        }
        let rounds = u32::try_from(iterations).ok().and_then(NonZeroU32::new);
        let rounds = rounds
            .ok_or(Error::Unsupported { feature: "number of pbkdf2 rounds", code: iterations })?;
        let mut key = Zeroizing::new([0; WRAPPING]);
        let salt = salt.to_le_bytes();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, rounds, &salt, text, &mut *key);
        Ok(Self(key))
    }

    fn cipher(&self, suite: Suite) -> Result<Cipher, Error> {
        Cipher::new(suite.wrapping(), &*self.0)
            .ok_or(Error::Unsupported { feature: "encryption suite", code: suite.code() })
    }
}

/// A dataset's keys as they are stored on disk, wrapped. None of this is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// `DSL_CRYPTO_SUITE`
    pub suite: Suite,
    /// `DSL_CRYPTO_GUID`
    pub guid: u64,
    /// `DSL_CRYPTO_VERSION`; 0 if the entry is missing
    pub version: u64,
    /// `DSL_CRYPTO_IV`
    pub iv: [u8; IV],
    /// `DSL_CRYPTO_MAC`
    pub mac: [u8; MAC],
    /// `DSL_CRYPTO_MASTER_KEY_1`, encrypted
    pub master: [u8; MASTER],
    /// `DSL_CRYPTO_HMAC_KEY_1`, encrypted
    pub hmac: [u8; HMAC],
}

/// Opens a dataset's keys with the user's key.
pub fn unwrap_key(user: &WrappingKey, wrapped: &WrappedKey) -> Result<DatasetKey, Error> {
    let WrappedKey { suite, guid, version, .. } = *wrapped;
    let aad = wrapping_aad(suite, guid, version)?;
    let len = suite.key_len();
    let message = [&wrapped.master[..len], &wrapped.hmac[..]].concat();
    let mut opened = Zeroizing::new([0; MASTER + HMAC]);
    let opened = &mut opened[..message.len()];
    if !user.cipher(suite)?.open(&wrapped.iv, &aad, &wrapped.mac, &message, opened) {
        return Err(Error::WrongKey);
    }
    let mut master = Zeroizing::new([0; MASTER]);
    let mut hmac = Zeroizing::new([0; HMAC]);
    master[..len].copy_from_slice(&opened[..len]);
    hmac.copy_from_slice(&opened[len..]);
    Ok(DatasetKey::new(suite, guid, version, &master, &hmac))
}

/// Closes a dataset's keys with the user's key; `iv` must be new for every wrapping.
pub fn wrap_key(user: &WrappingKey, key: &DatasetKey, iv: [u8; IV]) -> Result<WrappedKey, Error> {
    let (suite, guid, version) = (key.suite(), key.guid(), key.version());
    let aad = wrapping_aad(suite, guid, version)?;
    let len = suite.key_len();
    let mut message = [key.master(), key.hmac_bytes()].concat();
    let sealed = user.cipher(suite)?.seal(&iv, &aad, &mut message);
    let Some(mac) = sealed else {
        message.zeroize();
        return Err(Error::WrongKey);
    };
    let mut wrapped =
        WrappedKey { suite, guid, version, iv, mac, master: [0; MASTER], hmac: [0; HMAC] };
    wrapped.master[..len].copy_from_slice(&message[..len]);
    wrapped.hmac.copy_from_slice(&message[len..]);
    Ok(wrapped)
}

fn wrapping_aad(suite: Suite, guid: u64, version: u64) -> Result<Vec<u8>, Error> {
    let fields: &[u64] = match version {
        0 => &[guid],
        1 => &[guid, suite.code(), version],
        _ => return Err(Error::Unsupported { feature: "encryption version", code: version }),
    };
    Ok(fields.iter().flat_map(|f| f.to_le_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_unwraps_only_with_its_key() {
        let user = WrappingKey::from_raw(&[9; 32]).unwrap();
        let other = WrappingKey::from_raw(&[8; 32]).unwrap();
        for code in 3..=8 {
            let suite = Suite::from_code(code).unwrap();
            assert_eq!(suite.code(), code);
            for version in 0..2 {
                let key = DatasetKey::new(suite, 77, version, &[1; 32], &[2; 64]);
                let wrapped = wrap_key(&user, &key, [3; 12]).unwrap();
                let again = unwrap_key(&user, &wrapped).unwrap();
                assert_eq!(again.master(), key.master());
                assert_eq!(again.hmac_bytes(), key.hmac_bytes());
                assert_eq!(unwrap_key(&other, &wrapped).unwrap_err(), Error::WrongKey);
                let moved = WrappedKey { guid: 78, ..wrapped };
                assert_eq!(unwrap_key(&user, &moved).unwrap_err(), Error::WrongKey);
            }
        }
        for code in [0, 1, 2, 9, u64::MAX] {
            assert!(Suite::from_code(code).is_err());
        }
    }

    #[test]
    fn passphrase_derivation_matches_rfc_6070() {
        // RFC 6070's long vector; its salt is not 8 bytes long, so only the function is tested
        let mut key = [0; 25];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA1,
            NonZeroU32::new(4096).unwrap(),
            b"saltSALTsaltSALTsaltSALTsaltSALTsalt",
            b"passwordPASSWORDpassword",
            &mut key,
        );
        assert_eq!(key[..4], [0x3d, 0x2e, 0xec, 0x4f]);
    }

    #[test]
    fn malformed_keys_are_refused_and_never_printed() {
        assert!(WrappingKey::from_raw(&[0; 31]).is_err());
        assert!(WrappingKey::from_hex(&[b'0'; 63]).is_err());
        assert!(WrappingKey::from_hex(&[b'g'; 64]).is_err());
        assert!(WrappingKey::from_passphrase(b"short", 0, 1000).is_err());
        assert!(WrappingKey::from_passphrase(b"long enough", 0, 0).is_err());
        let hex = WrappingKey::from_hex(&[b'a'; 64]).unwrap();
        assert_eq!(*hex.0, [0xaa; 32]);
        assert_eq!(format!("{hex:?}"), "WrappingKey");
        let key = DatasetKey::new(Suite::Aes256Gcm, 1, 1, &[0xee; 32], &[0xdd; 64]);
        let shown = format!("{key:?}");
        assert!(!shown.contains("238") && !shown.contains("221"), "{shown}");
    }
}
