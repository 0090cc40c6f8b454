//! Blocks that an object shares with another object of the same pool (clones).
//!
//! Only a block that is on the drives can be shared; the pointer to it gets the txg as its birth. The
//! sync of the txg counts all its clones ([`Objset::cloned_blocks`]) before it frees anything, so a
//! block that the source frees in the same txg stays for the target. A block that the source frees in
//! an earlier txg would be lost: the caller holds the file's lock, and a transaction that no earlier
//! destruction of the source's dataset precedes.

use std::sync::Arc;

use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use txg::Tx;
use units::{BlockId, Txg};

use super::lookup;
use super::write::{SMALL_DIRTY_BYTES, extend_max_block, free_blocks, set_block_version};
use crate::dirty::record::{BlockLocation, BlockVersion, OverriddenBlock};
use crate::{Object, Objset, Result};

impl Object {
    /// Makes a block the same as one of another object with the same block size. Returns whether that is
    /// possible. Otherwise it must be copied: it is dirty, deduplicated, a gang block, embedded in its pointer,
    /// or of a dataset with another key. Nobody may change either object meanwhile.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn clone_block(&self, tx: &Tx, to: BlockId, from: (&Self, BlockId)) -> Result<bool> {
        let (entry, overlay) = self.require_writable()?;
        if !self.objset().has_same_key(from.0.objset()) {
            return Ok(false);
        }
        let (source, to, from) = (from.0, to.get(), from.1.get());
        lookup::check_path(entry, to..to + 1)?;
        let seen = match source.entry() {
            Some(source) => source.state.read().lookup_block(from),
            // an object of a snapshot
            None => BlockLocation::OnDisk(Arc::clone(&source.tree)),
        };
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
                free_blocks(&mut state, tx.txg(), to..to + 1);
            }
            Some(clone) => {
                set_block_version(&mut state, tx.txg(), to, &BlockVersion::Cloned(clone));
                // Rule W8: the sync counts the references of the txg of the clone. A version of a later
                // txg would have this birth too, and its sync would count the same reference again.
                let newest = state.blocks.get(&to).and_then(|versions| versions.last());
                assert!(
                    newest.is_some_and(|(txg, _)| *txg == tx.txg()),
                    "the file's lock orders the transactions that change a block"
                );
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
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
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
                        assert_eq!(block.birth, txg, "a clone is born in the txg that counts it");
                        found.push(**block);
                    }
                }
            }
        }
        found
    }
}
