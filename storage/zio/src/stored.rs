//! Blocks of a pool that are stored outside the pool's drives, as a backup repository stores them.
//!
//! [`StoredReader`] reads them by their own block pointers. The checksum in the pointer is verified
//! as it is for blocks on drives, and the pointer's addresses only identify the block.

use std::sync::Arc;

use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use units::Zbookmark;

use crate::decode::{Decoder, decode_embedded};
use crate::{Block, Error, Key, Source};

/// Gives the stored bytes of blocks.
pub trait BlockStore: Send + Sync {
    /// The stored bytes of a block, `psize` of them. The caller verifies their checksum.
    /// The error is a sentence: the block is not stored, or the store cannot be reached.
    fn fetch(&self, block: &Regular) -> Result<Vec<u8>, String>;
}

/// Reads blocks that are stored outside the pool's drives.
pub struct StoredReader {
    blocks: Arc<dyn BlockStore>,
    decoder: Decoder,
}

impl StoredReader {
    /// Reads from `blocks`, which are of a pool with that checksum salt.
    pub fn new(blocks: Arc<dyn BlockStore>, salt: [u8; 32]) -> Self {
        let decoder = Decoder::default();
        decoder.set_salt(salt);
        Self { blocks, decoder }
    }

    /// The same reader, which gives dnode blocks of locked datasets as they are stored. Their trees
    /// can be followed; their bonus buffers are encrypted.
    #[must_use]
    pub fn with_raw_dnodes(&self) -> Self {
        Self { blocks: Arc::clone(&self.blocks), decoder: self.decoder.with_raw_dnodes() }
    }

    /// The block's stored bytes, verified.
    pub fn read_stored(&self, block: &Regular, zbookmark: Zbookmark) -> Result<Vec<u8>, Error> {
        self.decoder.require_salt(block, zbookmark)?;
        let stored = self.blocks.fetch(block).map_err(|why| Error::NotStored { zbookmark, why })?;
        let is_whole = u32::try_from(stored.len()) == Ok(block.psize);
        if is_whole && self.decoder.is_valid(block, &stored) {
            return Ok(stored);
        }
        Err(Error::NotStored {
            zbookmark,
            why: "the stored bytes have a wrong checksum".to_owned(),
        })
    }
}

impl Source for StoredReader {
    fn read(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        match pointer {
            Blkptr::Hole(hole) => Ok(Block::zeros(hole.lsize as usize, ondisk::Order::Little)),
            Blkptr::Redacted(_) => Err(Error::Redacted { zbookmark }),
            Blkptr::Embedded(embedded) => decode_embedded(embedded, zbookmark),
            Blkptr::Regular(block) => {
                let stored = self.read_stored(block, zbookmark)?;
                let content = self.decoder.decode(block, stored, zbookmark, key)?;
                Ok(Block::new(content, block.order))
            }
        }
    }
}
