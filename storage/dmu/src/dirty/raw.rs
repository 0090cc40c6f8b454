//! Changes that a raw stream brings: blocks as they are stored, and the shape of objects.
//!
//! The key is not needed. Each block comes with its own encryption, and the MACs of indirect blocks are digests
//! of those below. So the trees must become exactly those of the sender: heights, numbers of pointers, last
//! blocks, and the encrypted bonus areas. The encryption of a block of dnodes is kept from its OBJECT_RANGE
//! record until no later record can change that block.

use std::collections::BTreeMap;

use ondisk::{ObjectType, Order};
use parking_lot::Mutex;
use txg::Tx;
use units::{BlockId, Txg};
use zio::{Block, RawBlock};

use crate::dirty::record::{BlockVersion, DirtyState};
use crate::dirty::write::{SMALL_DIRTY_BYTES, set_block_version};
use crate::{Error, Object, Objset, Result};

/// The encryption of dnode blocks, by their number, and the txg of their OBJECT_RANGE record.
#[derive(Default)]
pub(crate) struct DnodeBlockCrypt(Mutex<BTreeMap<u64, (Txg, RawBlock)>>);

impl DnodeBlockCrypt {
    pub(crate) fn get(&self, block: u64) -> Option<RawBlock> {
        self.0.lock().get(&block).map(|(_, raw)| *raw)
    }

    /// Forgets the blocks that a txg wrote completely. Only the last described block can still
    /// change.
    pub(crate) fn finish_txg(&self, txg: Txg) {
        let mut known = self.0.lock();
        let Some(last) = known.keys().next_back().copied() else { return };
        known.retain(|block, (told, _)| *block == last || *told > txg);
    }
}

impl Objset {
    /// Sets the encryption of a dnode block that a raw stream describes next.
    pub fn set_dnode_block_crypt(&self, tx: &Tx, block: BlockId, raw: RawBlock) -> Result<()> {
        let root = units::Zbookmark::root(self.id());
        let overlay = self.overlay().ok_or(Error::ReadOnly { zbookmark: root })?;
        overlay.dnode_crypt.0.lock().insert(block.get(), (tx.txg(), raw));
        Ok(())
    }
}

impl Object {
    /// Stores a block as a raw stream brought it. `stored` are its stored bytes, whole sectors.
    pub fn write_raw(&self, tx: &Tx, block: BlockId, stored: &[u8], raw: RawBlock) -> Result<()> {
        let (entry, overlay) = self.require_writable()?;
        let content = Block::from_slice(stored, Order::Little);
        let version = BlockVersion::Raw(content, std::sync::Arc::new(raw));
        let made = set_block_version(&mut entry.state.write(), tx.txg(), block.get(), &version);
        if made {
            tx.add_dirty_block(stored.len() as u64);
        }
        overlay.mark_dirty(tx.txg(), entry);
        Ok(())
    }

    /// Stores a spill block as a raw stream brought it.
    pub fn set_raw_spill(&self, tx: &Tx, stored: &[u8], raw: RawBlock) -> Result<()> {
        self.set_spill(tx, Some(stored))?;
        let (entry, _) = self.require_writable()?;
        let mut state = entry.state.write();
        let (_, versions) = DirtyState::versions_from(&mut state.raw_spill, tx.txg(), |_| raw);
        for (_, version) in versions {
            *version = raw;
        }
        Ok(())
    }

    /// Sets the object's bonus area and shape from a raw stream. Blocks behind the new last block
    /// must have been freed. A tree grows to the height; it is never taller than that.
    pub fn set_raw_shape(
        &self,
        tx: &Tx,
        (bonus_kind, bonus): (ObjectType, &[u8]),
        shape: &super::RawShape,
    ) -> Result<()> {
        let (entry, overlay) = self.require_writable()?;
        entry.state.write().change_dnode(tx.txg(), &|dnode| {
            dnode.bonus_kind = bonus_kind;
            dnode.bonus = bonus.to_vec();
            dnode.bonus_tail.clone_from(&shape.bonus_tail);
            dnode.levels = dnode.levels.max(shape.levels);
            dnode.max_block = BlockId::new(shape.max_block);
        });
        tx.add_dirty(SMALL_DIRTY_BYTES);
        overlay.mark_dirty(tx.txg(), entry);
        Ok(())
    }
}
