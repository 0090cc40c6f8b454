//! Where the floors above get blocks from.

use std::sync::Arc;

use ondisk::Blkptr;
use units::Place;

use crate::{Block, Error};

/// The key of an encrypted dataset; it travels with each request.
pub type Key = Arc<transform::crypt::DatasetKey>;

/// Gives the block that a pointer points to: the drives, or a cache before them.
pub trait Source: Send + Sync {
    /// The block's content, verified, decrypted and decompressed. A hole gives zeros of its size.
    /// `place` is where the block belongs, for errors; `key` is wanted for encrypted blocks only.
    fn read(&self, pointer: &Blkptr, place: Place, key: Option<&Key>) -> Result<Block, Error>;

    /// The same, for who will not ask for it again: a cache does not take it in.
    fn read_once(&self, pointer: &Blkptr, place: Place, key: Option<&Key>) -> Result<Block, Error> {
        self.read(pointer, place, key)
    }

    /// The same, for who reads a long stretch and has the memory for it: a cache takes in only what
    /// comes by again soon, and the bytes are copied no more often than they must be. Gives how long
    /// the block is; if `into` is as long, it holds the content. After an error it holds anything.
    fn read_into(
        &self,
        pointer: &Blkptr,
        place: Place,
        key: Option<&Key>,
        into: &mut [u8],
    ) -> Result<usize, Error> {
        self.read_once(pointer, place, key).map(|block| block.copy_to(into))
    }
}
