//! Encryption and authentication of a block before its checksum.

use std::collections::HashMap;

use ondisk::blkptr::Protection;
use ondisk::{ObjectType, Order};
use parking_lot::Mutex;
use transform::Error;
use transform::crypt::DatasetKey;
use transform::crypt::block::{self as cipher, Layout, Params};
use transform::crypt::mac;

use crate::{Error as ZioError, RawBlock, WriteRequest};

/// Unpredictable random numbers: nonces, salts, the names of log chains.
pub trait Random: Send + Sync {
    /// Fills `bytes` with such.
    fn fill(&self, bytes: &mut [u8]);
}

/// The most blocks with one salt: with more, nonces could collide.
const MAX_SALT_USES: u64 = 400_000_000;
/// The rules for codes over pointers, as all writers follow them today.
const INDIRECT_MAC_VERSION: u64 = 1;
/// Where an object set keeps its two codes.
const OBJSET_MACS: std::ops::Range<usize> = 720..784;

/// The salts in use, by the identity of the key.
#[derive(Default)]
pub(crate) struct SaltCache(Mutex<HashMap<u64, ([u8; 8], u64)>>);

impl SaltCache {
    /// A salt for one more block, and a nonce.
    pub(crate) fn next_params(&self, key: &DatasetKey, random: &dyn Random) -> Params {
        let mut iv = [0; 12];
        random.fill(&mut iv);
        let mut salts = self.0.lock();
        let (salt, uses) = salts.entry(key.guid()).or_insert(([0; 8], MAX_SALT_USES));
        if *uses >= MAX_SALT_USES {
            random.fill(salt);
            *uses = 0;
        }
        *uses += 1;
        Params { salt: *salt, iv, mac: [0; 16] }
    }
}

/// Ciphers or authenticates `stored`, the bytes of the request's block as they are to be stored.
pub(crate) fn protect_block(
    request: &WriteRequest<'_>,
    key: &DatasetKey,
    stored: &mut Vec<u8>,
    fresh: impl FnOnce(&[u8]) -> Params,
) -> Result<Protection, Error> {
    let order = Order::Little;
    if request.level.get() > 0 {
        let mac = mac::pointers_mac(request.data, INDIRECT_MAC_VERSION, order);
        return Ok(Protection::Indirect { mac });
    }
    if request.kind == ObjectType::OBJSET {
        let (portable, local) = mac::objset_macs(key, stored, order)?;
        if let Some(place) = stored.get_mut(OBJSET_MACS) {
            place.copy_from_slice([portable, local].as_flattened());
        }
        return Ok(Protection::Objset);
    }
    let Some(layout) = Layout::for_object_type(request.kind) else {
        return Ok(Protection::Authenticated { mac: mac::leaf_mac(key, stored) });
    };
    let params = fresh(stored);
    let mut ciphered = vec![0; stored.len()];
    let mac = cipher::encrypt_block(key, layout, &params, order, stored, &mut ciphered)?;
    *stored = ciphered;
    Ok(Protection::Encrypted { salt: params.salt, iv: params.iv, mac })
}

/// Authenticates a block of an encrypted dataset whose key is not loaded: the MACs of indirect
/// blocks need none, and the object set has the MAC of the raw stream. Other blocks come with
/// theirs.
pub(crate) fn protect_without_key(request: &WriteRequest<'_>) -> Result<Protection, ZioError> {
    if request.level.get() > 0 {
        let mac = mac::pointers_mac(request.data, INDIRECT_MAC_VERSION, Order::Little);
        return Ok(Protection::Indirect { mac });
    }
    if request.kind == ObjectType::OBJSET {
        return Ok(Protection::Objset);
    }
    Err(ZioError::KeyNotLoaded { zbookmark: request.zbookmark })
}

/// The encryption of a block that a raw stream brought.
pub(crate) fn raw_protection(kind: ObjectType, raw: &RawBlock) -> Protection {
    let RawBlock { salt, iv, mac, .. } = *raw;
    match Layout::for_object_type(kind) {
        Some(_) => Protection::Encrypted { salt, iv, mac },
        None => Protection::Authenticated { mac },
    }
}
