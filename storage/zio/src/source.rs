//! Where the floors above get blocks from.

use std::sync::Arc;

use ondisk::Blkptr;
use units::Zbookmark;

use crate::{Block, Error, Trimmed};

/// The key of an encrypted dataset; it travels with each request.
pub type Key = Arc<transform::crypt::DatasetKey>;

/// A block that is wanted as part of a long stretch.
pub struct BlockRead<'a> {
    /// The pointer to it.
    pub pointer: &'a Blkptr,
    /// Its address.
    pub zbookmark: Zbookmark,
    /// Memory for its content.
    pub into: &'a mut [u8],
    /// Whether the content is available now.
    pub is_done: bool,
}

/// Gives the block that a pointer points to: the drives, or a cache before them.
pub trait Source: Send + Sync {
    /// The block's content, verified, decrypted and decompressed. A hole gives zeros of its size.
    /// `place` is the block's address, for errors; `key` is needed for encrypted blocks only.
    fn read(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error>;

    /// The same, for a reader that will not read it again: a cache does not take it in.
    fn read_once(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        self.read(pointer, zbookmark, key)
    }

    /// The same, for a reader of a long range with its own memory: a cache takes in only blocks
    /// that are soon read again, and the bytes are copied as seldom as possible. Returns the
    /// block's length; if `into` has it, it holds the content. After an error it holds anything.
    fn read_into(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
        into: &mut [u8],
    ) -> Result<usize, Error> {
        self.read_once(pointer, zbookmark, key).map(|block| block.copy_to(into))
    }

    /// The block's content, if this has it in memory; holes and embedded blocks are not looked for.
    fn read_cached(&self, pointer: &Blkptr) -> Option<Trimmed> {
        let _ = pointer;
        None
    }

    /// Reads those of several adjacent blocks that can be read together without an error.
    /// The others are for [`Source::read_into`]; their memory holds anything.
    fn read_blocks(&self, blocks: &mut [BlockRead<'_>]) {
        let _ = blocks;
    }
}
