//! The key of an encrypted dataset, as a raw stream carries it: closed with the user's key.
//!
//! It is the list `crypt_keydata` in the payload of BEGIN. The receiver stores the key as it is; the user's key
//! is needed only to read the dataset later.
//!
//! ```text
//! DSL_CRYPTO_SUITE         u64        number of the cipher suite
//! DSL_CRYPTO_GUID          u64        identity of the key
//! DSL_CRYPTO_VERSION       u64        version of the key's form: 1
//! DSL_CRYPTO_MASTER_KEY_1  32 bytes   the wrapped key
//! DSL_CRYPTO_HMAC_KEY_1    64 bytes   the wrapped key of the MACs
//! DSL_CRYPTO_IV            12 bytes   nonce of the wrapping
//! DSL_CRYPTO_MAC           16 bytes   MAC of the wrapping
//! portable_mac             32 bytes   MAC of the object set
//! keyformat                u64        1 raw, 2 hex, 3 passphrase
//! pbkdf2iters, pbkdf2salt  u64        how a passphrase becomes the user's key; 0 for other formats
//! mdn_checksum, mdn_compress, mdn_nlevels, mdn_blksz, mdn_indblkshift, mdn_nblkptr, mdn_maxblkid
//!                          u64        shape of the array of dnodes, which the portable MAC covers
//! to_ivset_guid            u64        the set of nonces of the snapshot
//! from_ivset_guid          u64        the set of nonces of the base; 0 for a full stream
//! ```
//!
//! Learnt from: dsl_crypt.c, the streams of the fixture `sent-raw`. Proved by: `raw_streams_equal_those_of_openzfs`.

use crate::nvlist::{Nvlist, Value};
use crate::{Error, Result};

const STRUCTURE: &str = "key of a raw stream (crypt_keydata)";

/// The key of an encrypted dataset in a raw stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CryptKeydata {
    /// The number of the cipher suite.
    pub suite: u64,
    /// The identity of the key.
    pub guid: u64,
    /// The version of the key's form.
    pub version: u64,
    /// The wrapped key.
    pub master: [u8; 32],
    /// The wrapped key of the MACs.
    pub hmac: [u8; 64],
    /// The nonce of the wrapping.
    pub iv: [u8; 12],
    /// The MAC of the wrapping.
    pub mac: [u8; 16],
    /// The MAC of the object set.
    pub portable_mac: [u8; 32],
    /// The form of the user's key: 1 raw, 2 hex, 3 passphrase.
    pub key_format: u64,
    /// Rounds of PBKDF2; 0 without a passphrase.
    pub iterations: u64,
    /// The salt of PBKDF2; 0 without a passphrase.
    pub salt: u64,
    /// The shape of the array of dnodes.
    pub meta: MetaShape,
    /// The set of nonces of the snapshot; 0 in pools that do not record it.
    pub to_ivset_guid: u64,
    /// The set of nonces of the base; 0 for a full stream.
    pub from_ivset_guid: u64,
}

/// The shape of the array of dnodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MetaShape {
    /// The checksum's number in its dnode.
    pub checksum: u8,
    /// The compression's number in its dnode.
    pub compression: u8,
    /// Height of its tree.
    pub levels: u8,
    /// Bytes of a block.
    pub block_size: u32,
    /// log2 of the bytes of an indirect block.
    pub indirect_shift: u8,
    /// Pointers in its dnode.
    pub pointer_count: u8,
    /// The number of its last block.
    pub max_block: u64,
}

fn broken(rule: &'static str) -> Error {
    Error::Rule { structure: STRUCTURE, at: 0, rule, found: 0 }
}

fn number(list: &Nvlist, name: &str) -> Result<u64> {
    list.u64(name).ok_or_else(|| broken("all its numbers are there"))
}

fn small<T: TryFrom<u64>>(list: &Nvlist, name: &str) -> Result<T> {
    T::try_from(number(list, name)?).map_err(|_| broken("a field of a dnode fits its place"))
}

fn bytes<const N: usize>(list: &Nvlist, name: &str) -> Result<[u8; N]> {
    match list.get(name) {
        Some(Value::U8s(found)) => {
            found.as_slice().try_into().map_err(|_| broken("a key or MAC has its length"))
        }
        _ => Err(broken("all its keys and MACs are there")),
    }
}

impl CryptKeydata {
    /// The name of the list in the payload of BEGIN.
    pub const NAME: &'static str = "crypt_keydata";

    /// Reads the list.
    pub fn decode(list: &Nvlist) -> Result<Self> {
        Ok(Self {
            suite: number(list, "DSL_CRYPTO_SUITE")?,
            guid: number(list, "DSL_CRYPTO_GUID")?,
            version: number(list, "DSL_CRYPTO_VERSION")?,
            master: bytes(list, "DSL_CRYPTO_MASTER_KEY_1")?,
            hmac: bytes(list, "DSL_CRYPTO_HMAC_KEY_1")?,
            iv: bytes(list, "DSL_CRYPTO_IV")?,
            mac: bytes(list, "DSL_CRYPTO_MAC")?,
            portable_mac: bytes(list, "portable_mac")?,
            key_format: number(list, "keyformat")?,
            iterations: number(list, "pbkdf2iters")?,
            salt: number(list, "pbkdf2salt")?,
            meta: MetaShape {
                checksum: small(list, "mdn_checksum")?,
                compression: small(list, "mdn_compress")?,
                levels: small(list, "mdn_nlevels")?,
                block_size: small(list, "mdn_blksz")?,
                indirect_shift: small(list, "mdn_indblkshift")?,
                pointer_count: small(list, "mdn_nblkptr")?,
                max_block: number(list, "mdn_maxblkid")?,
            },
            to_ivset_guid: number(list, "to_ivset_guid")?,
            from_ivset_guid: number(list, "from_ivset_guid")?,
        })
    }

    /// The list.
    pub fn encode(&self) -> Nvlist {
        let mut list = Nvlist::new();
        for (name, value) in [
            ("DSL_CRYPTO_SUITE", self.suite),
            ("DSL_CRYPTO_GUID", self.guid),
            ("DSL_CRYPTO_VERSION", self.version),
        ] {
            list.push(name, Value::U64(value));
        }
        for (name, value) in [
            ("DSL_CRYPTO_MASTER_KEY_1", &self.master[..]),
            ("DSL_CRYPTO_HMAC_KEY_1", &self.hmac),
            ("DSL_CRYPTO_IV", &self.iv),
            ("DSL_CRYPTO_MAC", &self.mac),
            ("portable_mac", &self.portable_mac),
        ] {
            list.push(name, Value::U8s(value.to_vec()));
        }
        let meta = &self.meta;
        for (name, value) in [
            ("keyformat", self.key_format),
            ("pbkdf2iters", self.iterations),
            ("pbkdf2salt", self.salt),
            ("mdn_checksum", meta.checksum.into()),
            ("mdn_compress", meta.compression.into()),
            ("mdn_nlevels", meta.levels.into()),
            ("mdn_blksz", meta.block_size.into()),
            ("mdn_indblkshift", meta.indirect_shift.into()),
            ("mdn_nblkptr", meta.pointer_count.into()),
            ("mdn_maxblkid", meta.max_block),
            ("to_ivset_guid", self.to_ivset_guid),
            ("from_ivset_guid", self.from_ivset_guid),
        ] {
            list.push(name, Value::U64(value));
        }
        list
    }
}
