//! Where the floors above give blocks to.

use metaslab::Class;
use ondisk::{Blkptr, Checksum, Compression, ObjectType};
use units::{Level, Txg, Zbookmark};

use crate::{Error, Key};

/// Takes blocks and returns their pointers: on drives, or in memory.
pub trait Sink: Send + Sync {
    /// Stores the block and gives the pointer to it: a hole, the block within the pointer, or
    /// addresses.
    ///
    /// Where the first address is that of `request.previous`, nothing was allocated and nothing is
    /// to be freed: the block was written over its predecessor of the same txg, or (the pointers
    /// being equal) nothing had to be written.
    fn write(&self, request: &WriteRequest<'_>) -> Result<Blkptr, Error>;

    /// Stores several blocks, and returns the pointer of each, in the same order: adjacent blocks
    /// may be written together.
    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Vec<Result<Blkptr, Error>> {
        requests.iter().map(|request| self.write(request)).collect()
    }

    /// In that txg the block is no longer wanted: all its copies, and the pieces of a gang.
    fn free(&self, pointer: &Blkptr, txg: Txg);
}

/// One block that is to be stored.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest<'a> {
    /// The content: as many bytes as the object sees (lsize, whole sectors).
    pub data: &'a [u8],
    /// The type of its object.
    pub kind: ObjectType,
    /// Its height in the object's tree.
    pub level: Level,
    /// Non-hole blocks (for a dnode block: dnodes in use) at and below it.
    pub fill: u64,
    /// The txg that is being written.
    pub txg: Txg,
    /// How it is to be stored.
    pub policy: &'a WritePolicy,
    /// The block that it replaces. If that was written in the same txg, its space is reused.
    pub previous: &'a Blkptr,
    /// Its address in the pool's tree, for errors.
    pub zbookmark: Zbookmark,
    /// The block is stored just as a raw stream brought it: `data` are its stored bytes.
    pub raw: Option<&'a RawBlock>,
}

/// How the stored bytes of a block were made that a raw stream brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawBlock {
    /// Bytes of the block as its object sees it.
    pub lsize: u32,
    /// How the stored bytes are compressed.
    pub compression: Compression,
    /// The salt of its encryption; zeros if it is only authenticated.
    pub salt: [u8; 8],
    /// The nonce; zeros if it is only authenticated.
    pub iv: [u8; 12],
    /// The MAC.
    pub mac: [u8; 16],
}

/// The policy of storing blocks: from the properties of a dataset, for one kind of blocks.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "features and properties, each on its own")]
pub struct WritePolicy {
    /// An algorithm (nothing that is inherited).
    pub checksum: Checksum,
    /// An algorithm, or off.
    pub compression: Compression,
    /// For zstd: 1 to 19, the fast ones below 0; 0 is the default.
    pub zstd_level: i32,
    /// How many copies, 1 to 3.
    pub copies: u8,
    /// Where a block with the same strong checksum stands already, it is left there.
    pub nopwrite: bool,
    /// Where a block with the same strong checksum is anywhere in the table of deduplication, that
    /// is pointed to.
    pub dedup: bool,
    /// But only if it can be read, and is the same byte by byte.
    pub verify: bool,
    /// The pool may have blocks within their pointers (feature `embedded_data`).
    pub embedded_data: bool,
    /// Zeros are stored as a hole.
    pub zeros_to_hole: bool,
    /// Holes have a birth txg (feature `hole_birth`).
    pub hole_birth: bool,
    /// The key of an encrypted dataset.
    pub key: Option<Key>,
    /// The dataset is encrypted, and its key is not needed: a raw stream brings its blocks and their MACs.
    pub keyless: bool,
    /// Its allocation class.
    pub class: Class,
    /// The most stored bytes with which it goes to the special class, while that has enough space.
    pub special_small_blocks: u32,
}

impl WritePolicy {
    /// Whether a block is compared with the one that stands in its place (nopwrite).
    pub const fn uses_nopwrite(&self) -> bool {
        let strong = matches!(
            self.checksum,
            Checksum::Sha256
                | Checksum::Sha512
                | Checksum::Skein
                | Checksum::EdonR
                | Checksum::Blake3
        );
        self.nopwrite && strong && !self.compression.is_off()
    }
}

impl Default for WritePolicy {
    /// One copy with fletcher4, as it is; zeros are holes.
    fn default() -> Self {
        Self {
            checksum: Checksum::Fletcher4,
            compression: Compression::Off,
            zstd_level: 0,
            copies: 1,
            nopwrite: false,
            dedup: false,
            verify: false,
            embedded_data: false,
            zeros_to_hole: true,
            hole_birth: true,
            key: None,
            keyless: false,
            class: Class::Normal,
            special_small_blocks: 0,
        }
    }
}
