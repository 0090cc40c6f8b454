//! Secrets of DH-HMAC-CHAP as `nvme gen-dhchap-key` prints them.
//!
//! ```text
//! DHHC-1:HH:BASE64:
//! HH      00 the secret is the key; 01, 02, 03 the key is its HMAC by SHA-256, SHA-384, SHA-512
//! BASE64  the secret of 32, 48 or 64 bytes, and its CRC-32 (4 bytes, little-endian)
//! ```
//! Learnt from: NVM Express Base Specification 2.0, section 8.13.5.8.

use std::fmt;

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

use super::hash::Hash;
use crate::{Error, Result};

/// Bytes of the CRC-32.
const SUM_SIZE: usize = 4;
/// The text in the HMAC that transforms a secret, after the name.
const TRANSFORM_TEXT: &[u8] = b"NVMe-over-Fabrics";

/// A secret of a host or of the controller.
#[derive(Clone)]
pub struct Secret {
    bytes: Zeroizing<Vec<u8>>,
    transform: Option<Hash>,
}

impl Secret {
    /// The secret of a text like `DHHC-1:01:...:`.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |why: &'static str| Error::Secret { why };
        let mut parts = text.split(':');
        if parts.next() != Some("DHHC-1") {
            return Err(invalid("it does not begin with DHHC-1:"));
        }
        let transform = match parts.next() {
            Some("00") => None,
            Some("01") => Some(Hash::Sha256),
            Some("02") => Some(Hash::Sha384),
            Some("03") => Some(Hash::Sha512),
            _ => return Err(invalid("its hash is none of 00, 01, 02 and 03")),
        };
        let (Some(encoded), Some(""), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(invalid("it does not end with one ':'"));
        };
        let decoded = Base64::decode_vec(encoded).map_err(|_| invalid("it is not Base64"))?;
        let decoded = Zeroizing::new(decoded);
        let (bytes, sum) =
            decoded.split_last_chunk::<SUM_SIZE>().ok_or(invalid("it is too short"))?;
        if ![32, 48, 64].contains(&bytes.len()) {
            return Err(invalid("it has not 32, 48 or 64 bytes"));
        }
        if crc32fast::hash(bytes).to_le_bytes() != *sum {
            return Err(invalid("its check sum is wrong: a letter may be missing or mistyped"));
        }
        Ok(Self { bytes: Zeroizing::new(bytes.to_vec()), transform })
    }

    /// The key of the one with this name.
    pub(super) fn key(&self, name: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.bytes.clone(),
            Some(hash) => hash.hmac(&self.bytes, &[name.as_bytes(), TRANSFORM_TEXT]),
        }
    }

    /// Whether two secrets are the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

/// The secret is not shown.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Secret").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret of the bytes 0 to 31.
    const PRINTED: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    #[test]
    fn printed_secrets_are_read() {
        let secret = Secret::parse(PRINTED).unwrap();
        let expected: Vec<u8> = (0..32).collect();
        assert_eq!(*secret.key("nqn.any"), expected);
        assert!(!format!("{secret:?}").contains("31"));
        let transformed = Secret::parse(&PRINTED.replace(":00:", ":01:")).unwrap();
        assert_ne!(transformed.key("nqn.one"), transformed.key("nqn.other"));
        assert!(transformed.is_same(&secret));
    }

    #[test]
    fn damaged_secrets_are_refused() {
        for (from, to, why) in [
            ("DHHC-1", "DHHC-2", "begin with"),
            (":00:", ":04:", "hash"),
            ("AAEC", "AAED", "check sum"),
            ("AAEC", "!AEC", "Base64"),
            ("AAECAwQF", "", "32, 48 or 64"),
            ("iaR:", "iaR", "end with"),
        ] {
            let text = PRINTED.replacen(from, to, 1);
            let found = Secret::parse(&text).unwrap_err().to_string();
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
