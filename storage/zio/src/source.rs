//! Where the floors above get blocks from.

use std::sync::Arc;

use ondisk::Blkptr;
use units::Zbookmark;

use crate::{Block, Error};

/// The key of an encrypted dataset; it travels with each request.
pub type Key = Arc<transform::crypt::DatasetKey>;

/// A block that is wanted as part of a long stretch.
pub struct BlockRead<'a> {
    /// What points to it.
    pub pointer: &'a Blkptr,
    /// Where it belongs.
    pub zbookmark: Zbookmark,
    /// Memory for its content.
    pub into: &'a mut [u8],
    /// Whether the content is there now.
    pub is_done: bool,
}

/// Gives the block that a pointer points to: the drives, or a cache before them.
pub trait Source: Send + Sync {
    /// The block's content, verified, decrypted and decompressed. A hole gives zeros of its size.
    /// `place` is where the block belongs, for errors; `key` is wanted for encrypted blocks only.
    fn read(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error>;

    /// The same, for who will not ask for it again: a cache does not take it in.
    fn read_once(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        self.read(pointer, zbookmark, key)
    }

    /// The same, for who reads a long stretch and has the memory for it: a cache takes in only what
    /// comes by again soon, and the bytes are copied no more often than they must be. Gives how long
    /// the block is; if `into` is as long, it holds the content. After an error it holds anything.
    fn read_into(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
        into: &mut [u8],
    ) -> Result<usize, Error> {
        self.read_once(pointer, zbookmark, key).map(|block| block.copy_to(into))
    }

    /// Reads of neighbouring blocks those that can be had together, and nothing is in the way of.
    /// The others are for [`Source::read_into`]; their memory holds anything.
    fn read_blocks(&self, blocks: &mut [BlockRead<'_>]) {
        let _ = blocks;
    }
}
