//! From a block's content to the bytes that its pointer refers to: of a block of which no copy can be read any more.
//!
//! The pointer says how the block is compressed and encrypted, and has the checksum of the result. So a wrong content, or a
//! compressor that works otherwise than the one that wrote the block, gives no bytes at all.

use ondisk::ObjectType;
use ondisk::blkptr::{Protection, Regular};
use transform::compress;
use transform::crypt::block::{self as cipher, Layout, Params};
use transform::crypt::mac;

use crate::{Key, Reader};

impl Reader {
    /// Whether bytes are what the pointer of a block refers to.
    pub fn is_stored_form(&self, block: &Regular, bytes: &[u8]) -> bool {
        bytes.len() == block.psize as usize && self.is_valid(block, bytes)
    }

    /// The stored bytes of a block of this content; `None`: another content was stored, or other bytes of a compressor.
    pub fn rebuild_stored(
        &self,
        block: &Regular,
        (kind, content): (ObjectType, &[u8]),
        (key, zstd_level): (Option<&Key>, i32),
    ) -> Option<Vec<u8>> {
        if content.len() != block.lsize as usize {
            return None;
        }
        let size = block.psize as usize;
        let mut stored = if block.compression.is_off() {
            content.to_vec()
        } else {
            compress::compress(block.compression, zstd_level, content, size)?
        };
        stored.resize(size, 0);
        let stored = protect_again(block, kind, key, stored)?;
        self.is_stored_form(block, &stored).then_some(stored)
    }
}

/// Encrypts bytes with the parameters of the pointer; `None` if their MAC is another.
fn protect_again(
    block: &Regular,
    kind: ObjectType,
    key: Option<&Key>,
    stored: Vec<u8>,
) -> Option<Vec<u8>> {
    match block.protection {
        Protection::None => Some(stored),
        Protection::Authenticated { mac } => {
            (mac::leaf_mac(key?, &stored) == mac).then_some(stored)
        }
        Protection::Encrypted { salt, iv, mac } => {
            let layout = Layout::for_object_type(kind)?;
            let params = Params { salt, iv, mac };
            let mut ciphered = vec![0; stored.len()];
            let found =
                cipher::encrypt_block(key?, layout, &params, block.order, &stored, &mut ciphered);
            (found.ok()? == mac).then_some(ciphered)
        }
        // no data block has these
        Protection::Objset | Protection::Indirect { .. } => None,
    }
}
