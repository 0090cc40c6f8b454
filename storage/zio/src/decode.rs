//! From a block's stored bytes to its content: checksum, decryption, decompression.
//!
//! All readers share this: those of drives, and those of blocks stored elsewhere.

use std::sync::OnceLock;

use device::buffer;
use ondisk::blkptr::{Embedded, Protection, Regular};
use ondisk::zil::Verifier;
use ondisk::{Checksum, Compression, ObjectType};
use transform::checksum::{self, embedded};
use transform::compress;
use transform::crypt::block::{self as cipher, Layout, Params};
use transform::crypt::mac;
use units::Zbookmark;

use crate::{Block, Error, Key};

/// Verifies and decodes the stored bytes of a pool's blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoder {
    salt: OnceLock<[u8; 32]>,
    /// Give dnode blocks of locked datasets as they are stored, their bonuses encrypted.
    raw_dnodes: bool,
}

impl Decoder {
    /// Sets the pool's salt. Only the first call counts.
    pub(crate) fn set_salt(&self, salt: [u8; 32]) {
        let _ = self.salt.set(salt);
    }

    /// The pool's salt, if it is known.
    pub(crate) fn salt(&self) -> Option<&[u8; 32]> {
        self.salt.get()
    }

    /// The same decoder, which gives dnode blocks of locked datasets as they are stored.
    pub(crate) fn with_raw_dnodes(&self) -> Self {
        Self { salt: self.salt.clone(), raw_dnodes: true }
    }

    /// Refuses blocks whose checksum cannot be computed: that must not look like damage.
    pub(crate) fn require_salt(&self, block: &Regular, place: Zbookmark) -> Result<(), Error> {
        let name = match block.checksum {
            Checksum::Skein | Checksum::EdonR | Checksum::Blake3 => block.checksum.name(),
            _ => return Ok(()),
        };
        let error = transform::Error::SaltMissing { checksum: name };
        self.salt().map(|_| ()).ok_or(Error::Transform { zbookmark: place, why: error })
    }

    /// Whether bytes are the stored bytes of the block.
    pub(crate) fn is_valid(&self, block: &Regular, bytes: &[u8]) -> bool {
        let half = block.has_half_sum();
        if block.checksum.is_embedded() {
            // a log block's verifier uses all four words, also where others have a MAC in two
            let verifier = match block.checksum {
                Checksum::Zilog | Checksum::Zilog2 => Verifier::from_pointer(block).words(),
                _ => block.sum,
            };
            return embedded::verify(bytes, &verifier, block.checksum, half);
        }
        let salt = self.salt();
        checksum::matches(block.checksum, bytes, block.order, salt, &block.sum, half)
            .unwrap_or(false)
    }

    /// Returns the block's content: verified stored bytes, decrypted and decompressed.
    pub(crate) fn decode(
        &self,
        block: &Regular,
        stored: Vec<u8>,
        place: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Vec<u8>, Error> {
        let stored = self.decrypt(block, stored, place, key)?;
        let plain = decompress(block.compression, stored, block.lsize, place)?;
        let failed = |error| Error::Transform { zbookmark: place, why: error };
        match block.protection {
            Protection::Indirect { mac } => {
                mac::verify_pointers(&plain, block.order, &mac).map_err(failed)?;
            }
            Protection::Objset => {
                if let Some(key) = key {
                    mac::verify_objset(key, &plain, block.order).map_err(failed)?;
                }
            }
            _ => {}
        }
        assert_eq!(plain.len(), block.lsize as usize, "content has the length in its pointer");
        Ok(plain)
    }

    fn decrypt(
        &self,
        block: &Regular,
        stored: Vec<u8>,
        place: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Vec<u8>, Error> {
        let failed = |error| Error::Transform { zbookmark: place, why: error };
        match (block.protection, key) {
            (Protection::Encrypted { salt, iv, mac }, Some(key)) => {
                let layout = Layout::for_object_type(block.kind).unwrap_or(Layout::Whole);
                let mut params = Params { salt, iv, mac };
                if layout == Layout::Log {
                    params = params.for_log(&stored).map_err(failed)?;
                }
                let mut plain = buffer::alloc(stored.len());
                cipher::decrypt_block(key, layout, &params, block.order, &stored, &mut plain)
                    .map_err(failed)?;
                buffer::recycle(stored);
                Ok(plain)
            }
            (Protection::Encrypted { .. }, None) => {
                let raw = self.raw_dnodes
                    && block.kind == ObjectType::DNODE
                    && block.compression.is_off();
                if raw { Ok(stored) } else { Err(Error::KeyNotLoaded { zbookmark: place }) }
            }
            (Protection::Authenticated { mac }, Some(key)) => {
                mac::verify_leaf(key, &stored, &mac).map_err(failed)?;
                Ok(stored)
            }
            _ => Ok(stored),
        }
    }
}

pub(crate) fn decode_embedded(embedded: &Embedded, zbookmark: Zbookmark) -> Result<Block, Error> {
    let payload = embedded.payload.clone();
    let plain = decompress(embedded.compression, payload, embedded.lsize, zbookmark)?;
    Ok(Block::new(plain, embedded.order))
}

fn decompress(
    method: Compression,
    mut stored: Vec<u8>,
    lsize: u32,
    place: Zbookmark,
) -> Result<Vec<u8>, Error> {
    let lsize = lsize as usize;
    if method.is_off() {
        // an embedded or a raw-received block may be padded, never cut
        if stored.len() < lsize {
            let error = ondisk::Error::Rule {
                structure: "block pointer",
                at: 48,
                rule: "an uncompressed block is stored whole",
                found: stored.len() as u64,
            };
            return Err(Error::Corrupt { zbookmark: place, why: error });
        }
        stored.truncate(lsize);
        return Ok(stored);
    }
    let mut plain = buffer::alloc(lsize);
    compress::decompress(method, &stored, &mut plain)
        .map_err(|error| Error::Transform { zbookmark: place, why: error })?;
    buffer::recycle(stored);
    Ok(plain)
}
