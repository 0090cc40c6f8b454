//! One encrypted block: its salt, nonce and code, and the way between it and its plaintext.
//!
//! Salt, nonce and code come from the block's pointer (see `ondisk::blkptr::Protection`); only
//! the code of a log block lies in the block itself.

use std::ops::Range;

use ondisk::{ObjectType, Order};

use super::cipher::{IV, MAC};
use super::key::DatasetKey;
use super::{dnodes, log};
use crate::Error;
use crate::checksum::embedded::log_mac;

/// How much of a block is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All of it.
    Whole,
    /// A block of dnodes: the bonus buffers with user data.
    Dnodes,
    /// A block of the intent log: the bodies of its records.
    Log,
}

impl Layout {
    /// The layout of leaf blocks of this object type; `None` if they are not encrypted, only
    /// authenticated (see [`super::mac`]).
    pub fn for_object_type(kind: ObjectType) -> Option<Self> {
        const LOG: ObjectType = ObjectType(9);
        const DNODES: ObjectType = ObjectType(10);
        match kind {
            LOG => Some(Layout::Log),
            DNODES => Some(Layout::Dnodes),
            other => other.is_encrypted().then_some(Layout::Whole),
        }
    }
}

/// The facts, besides the key, that decryption of a block needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// Picks the block key.
    pub salt: [u8; 8],
    /// The nonce.
    pub iv: [u8; IV],
    /// The authentication code.
    pub mac: [u8; MAC],
}

impl Params {
    /// The same with the code that the log block `data` carries.
    pub fn for_log(self, data: &[u8]) -> Result<Self, Error> {
        let short = Error::CorruptLayout { structure: "a log block", rule: "it is cut off" };
        Ok(Self { mac: log_mac(data).ok_or(short)?, ..self })
    }

    /// Salt and nonce for a block that is to be deduplicated: they follow from its plaintext.
    /// The code is left zero.
    pub fn for_dedup(key: &DatasetKey, plain: &[u8]) -> Self {
        let tag = aws_lc_rs::hmac::sign(key.hmac(), plain);
        let mut params = Self { salt: [0; 8], iv: [0; IV], mac: [0; MAC] };
        let (salt, rest) = tag.as_ref().split_at(8);
        params.salt.copy_from_slice(salt);
        params.iv.copy_from_slice(&rest[..IV]);
        params
    }
}

/// Decrypts `src` into `dst`, both the block's physical size. On failure `dst` is zeros.
///
/// `order` is that of the block's content, as its pointer says.
pub fn decrypt_block(
    key: &DatasetKey,
    layout: Layout,
    params: &Params,
    order: Order,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), Error> {
    let result = decrypt(key, layout, params, order, src, dst);
    if result.is_err() {
        dst.fill(0);
    }
    result
}

fn decrypt(
    key: &DatasetKey,
    layout: Layout,
    params: &Params,
    order: Order,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), Error> {
    if src.len() != dst.len() {
        return Err(Error::CorruptLayout {
            structure: "an encrypted block",
            rule: "its plaintext is not as long as itself",
        });
    }
    let cipher = key.cipher(params.salt)?;
    let forged = Error::MacMismatch { structure: "an encrypted block" };
    let Some(parts) = Parts::find(key, layout, order, src)? else {
        let opened = cipher.open(&params.iv, &[], &params.mac, src, dst);
        return opened.then_some(()).ok_or(forged);
    };
    let secret = parts.gather(src);
    let mut plain = vec![0; secret.len()];
    if !cipher.open(&params.iv, &parts.aad, &params.mac, &secret, &mut plain) {
        return Err(forged);
    }
    parts.scatter(src, &plain, dst);
    Ok(())
}

/// Encrypts `src` into `dst` and gives the code; `params.mac` is not looked at.
///
/// The pair of salt and nonce must never have been used with this key for another plaintext.
/// For a log block the caller puts the code where [`log_mac`] finds it.
pub fn encrypt_block(
    key: &DatasetKey,
    layout: Layout,
    params: &Params,
    order: Order,
    src: &[u8],
    dst: &mut [u8],
) -> Result<[u8; MAC], Error> {
    let unusable =
        Error::CorruptLayout { structure: "a block to encrypt", rule: "its size does not suit" };
    if src.len() != dst.len() {
        return Err(unusable);
    }
    let cipher = key.cipher(params.salt)?;
    let Some(parts) = Parts::find(key, layout, order, src)? else {
        dst.copy_from_slice(src);
        return cipher.seal(&params.iv, &[], dst).ok_or(unusable);
    };
    let mut secret = parts.gather(src);
    let mac = cipher.seal(&params.iv, &parts.aad, &mut secret).ok_or(unusable)?;
    parts.scatter(src, &secret, dst);
    Ok(mac)
}

/// The encrypted parts of a block that is not encrypted whole, in order and apart.
struct Parts {
    encrypted: Vec<Range<usize>>,
    aad: Vec<u8>,
    used: usize,
}

impl Parts {
    fn find(
        key: &DatasetKey,
        layout: Layout,
        order: Order,
        block: &[u8],
    ) -> Result<Option<Self>, Error> {
        let mut aad = Vec::with_capacity(block.len());
        let (private, used) = match layout {
            Layout::Whole => return Ok(None),
            Layout::Dnodes => {
                let parts = dnodes::encrypted_parts(block, key.version(), order, &mut aad)?;
                (parts, block.len())
            }
            Layout::Log => {
                let parts = log::encrypted_parts(block, order, &mut aad)?;
                (parts.encrypted, parts.used)
            }
        };
        assert!(
            private.is_sorted_by(|one, next| one.end <= next.start)
                && private.last().is_none_or(|last| last.end <= used),
            "the encrypted parts lie in the used bytes, one after the other"
        );
        Ok(Some(Self { encrypted: private, aad, used }))
    }

    fn gather(&self, block: &[u8]) -> Vec<u8> {
        let length: usize = self.encrypted.iter().map(Range::len).sum();
        let gathered: Vec<u8> =
            self.encrypted.iter().flat_map(|part| &block[part.clone()]).copied().collect();
        assert_eq!(gathered.len(), length, "each encrypted byte is gathered once");
        gathered
    }

    /// `dst` becomes `src` with its private parts replaced.
    fn scatter(&self, src: &[u8], private: &[u8], dst: &mut [u8]) {
        let (used, unused) = dst.split_at_mut(self.used);
        used.copy_from_slice(&src[..self.used]);
        unused.fill(0);
        let mut rest = private;
        for part in &self.encrypted {
            let (this, after) = rest.split_at(part.len());
            used[part.clone()].copy_from_slice(this);
            rest = after;
        }
        assert!(rest.is_empty(), "each encrypted byte has its place");
    }
}
