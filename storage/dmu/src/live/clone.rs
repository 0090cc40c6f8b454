//! Blocks that an object shares with another from now on (clones).
//!
//! Only what is on the drives as it is seen can be shared; the pointer to it gets the group as its
//! birth. The one who writes the group is told of all its clones before anything of it is freed
//! ([`Objset::clones`]), so that what an object gives up in the same group stays for the other.

use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use txg::Tx;
use units::{BlockId, Txg};

use super::change::{SMALL, forget, put, reach};
use super::see;
use crate::live::entry::{Content, Seen, Shared};
use crate::{Object, Objset, Result};

impl Object {
    /// A block becomes the same as one of another object whose blocks are as large; gives whether
    /// that can be. If not, it has to be copied: it waits to be written, is deduplicated, in pieces
    /// or within its pointer. Nobody may change either object meanwhile.
    pub fn share(&self, tx: &Tx, to: BlockId, from: (&Self, BlockId)) -> Result<bool> {
        let (entry, live) = self.being_changed()?;
        let (source, _) = from.0.being_changed()?;
        let (to, from) = (to.get(), from.1.get());
        see::way(entry, to..to.saturating_add(1))?;
        let seen = source.state.read().see(from);
        let tree = match seen {
            Seen::Hole => None,
            Seen::Below(tree) => Some(tree),
            Seen::Here(_) | Seen::Shared(_) | Seen::Coming(_) => return Ok(false),
        };
        let pointer = tree.as_ref().map(|tree| tree.find(0, from)).transpose()?;
        let clone = match (tree, pointer.map(|spot| spot.pointer)) {
            (Some(tree), Some(Blkptr::Regular(block))) => {
                if block.dedup || block.is_gang() {
                    return Ok(false);
                }
                let pointer = Blkptr::Regular(Box::new(Regular { birth: tx.txg(), ..*block }));
                Some(Shared::new(pointer, tree))
            }
            (None, _) | (_, None | Some(Blkptr::Hole(_))) => None,
            _ => return Ok(false),
        };
        let mut state = entry.state.write();
        match clone {
            None => {
                reach(&mut state, tx.txg(), to);
                forget(&mut state, tx.txg(), to..to.saturating_add(1));
            }
            Some(clone) => {
                put(&mut state, tx.txg(), to, &Content::Cloned(clone));
                live.cloned.lock().insert(tx.txg());
            }
        }
        drop(state);
        tx.dirtied(SMALL);
        live.soil(tx.txg(), entry);
        Ok(true)
    }
}

impl Objset {
    /// The blocks that a group shares with others. Nobody holds it any more.
    pub fn clones(&self, txg: Txg) -> Vec<Regular> {
        let Some(live) = self.live().filter(|live| live.cloned.lock().contains(&txg)) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for entry in live.dirty(txg) {
            let state = entry.state.read();
            for versions in state.blocks.values() {
                for (known, content) in versions {
                    if let (true, Content::Cloned(clone)) = (*known == txg, content)
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
