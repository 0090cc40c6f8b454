//! Blocks that an object shares with another from now on (clones).
//!
//! Only a block that is on the drives in its present version can be shared; the pointer to it gets
//! the txg as its birth. The sync learns of all clones before it frees anything
//! ([`Objset::cloned_blocks`]). So a block that its old object frees in the same txg survives for
//! the clone.

use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use txg::Tx;
use units::{BlockId, Txg};

use super::lookup;
use super::write::{SMALL_DIRTY_BYTES, extend_max_block, free_blocks, set_block_version};
use crate::dirty::record::{BlockLocation, BlockVersion, OverriddenBlock};
use crate::{Object, Objset, Result};

impl Object {
    /// Makes a block share that of another object with the same block size; returns whether that is
    /// possible. If not, the caller copies it: the block is dirty, deduplicated, a gang block or
    /// embedded. Both objects must be locked against changes.
    pub fn clone_block(&self, tx: &Tx, to: BlockId, from: (&Self, BlockId)) -> Result<bool> {
        let (entry, overlay) = self.require_writable()?;
        let (source, _) = from.0.require_writable()?;
        let (to, from) = (to.get(), from.1.get());
        lookup::check_path(entry, to..to.saturating_add(1))?;
        let seen = source.state.read().lookup_block(from);
        let tree = match seen {
            BlockLocation::Hole => None,
            BlockLocation::OnDisk(tree) => Some(tree),
            BlockLocation::InMemory(_)
            | BlockLocation::Overridden(_)
            | BlockLocation::InFlight(_)
            | BlockLocation::Encrypted => return Ok(false),
        };
        let pointer = tree.as_ref().map(|tree| tree.find(0, from)).transpose()?;
        let clone = match (tree, pointer.map(|spot| spot.pointer)) {
            (Some(tree), Some(Blkptr::Regular(block))) => {
                if block.dedup || block.is_gang() {
                    return Ok(false);
                }
                let pointer = Blkptr::Regular(Box::new(Regular { birth: tx.txg(), ..*block }));
                Some(OverriddenBlock::new(pointer, tree))
            }
            (None, _) | (_, None | Some(Blkptr::Hole(_))) => None,
            _ => return Ok(false),
        };
        let mut state = entry.state.write();
        match clone {
            None => {
                extend_max_block(&mut state, tx.txg(), to);
                free_blocks(&mut state, tx.txg(), to..to.saturating_add(1));
            }
            Some(clone) => {
                set_block_version(&mut state, tx.txg(), to, &BlockVersion::Cloned(clone));
                overlay.cloned_txgs.lock().insert(tx.txg());
            }
        }
        drop(state);
        tx.add_dirty(SMALL_DIRTY_BYTES);
        overlay.mark_dirty(tx.txg(), entry);
        Ok(true)
    }
}

impl Objset {
    /// The cloned blocks of a txg, which no thread holds any more.
    pub fn cloned_blocks(&self, txg: Txg) -> Vec<Regular> {
        let Some(overlay) =
            self.overlay().filter(|overlay| overlay.cloned_txgs.lock().contains(&txg))
        else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for entry in overlay.dirty_objects(txg) {
            let state = entry.state.read();
            for versions in state.blocks.values() {
                for (known, content) in versions {
                    if let (true, BlockVersion::Cloned(clone)) = (*known == txg, content)
                        && let Blkptr::Regular(block) = &clone.pointer
                    {
                        found.push(**block);
                    }
                }
            }
        }
        found
    }
}
