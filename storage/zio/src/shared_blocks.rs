//! Blocks that several pointers share: by deduplication as they are written, or as clones.

use std::sync::{Arc, OnceLock};

use ondisk::blkptr::Regular;
use ondisk::{Blkptr, Dva};
use parking_lot::Mutex;
use units::{Txg, Zbookmark};

use crate::writer::copy_count;
use crate::{Error, Reader, Sink, WriteRequest, Writer};

/// Where a block of the table of deduplication lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupMatch {
    /// Its copies.
    pub dvas: [Option<Dva>; 3],
    /// The txg in which it was written.
    pub birth: Txg,
}

/// The dedup table's answer about a content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DedupLookup {
    /// It is stored, and has one more reference now.
    Found(DedupMatch),
    /// It is not there.
    NotFound,
    /// It must be written without deduplication: the stored one does not suit, and the table cannot
    /// have two.
    Unusable,
}

/// The result of removing a reference to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeOutcome {
    /// Another pointer still wants it.
    StillReferenced,
    /// It has no references left: these are its copies, maybe more than the last pointer had.
    Free([Option<Dva>; 3]),
}

/// Knows which blocks several pointers share: the tables of deduplication and of clones.
pub trait SharedBlocks: Send + Sync {
    /// Removes one reference to the block in `txg`.
    fn release(&self, block: &Regular, txg: Txg) -> FreeOutcome;

    /// The block of that checksum, sizes and compression, if the dedup table has it with enough
    /// copies: adds a reference to it in `txg`. `block` has no addresses yet. Two threads never
    /// look up the same content at once.
    fn find_duplicate(&self, block: &Regular, copies: u8, txg: Txg) -> DedupLookup;

    /// A block that was not found is written, with one reference. False: the table has no space
    /// for it, and it is an ordinary block.
    fn insert(&self, block: &Regular, txg: Txg) -> bool;

    /// One more pointer to a block of a file comes in `txg`; gives whether that can be: it must have been
    /// there before.
    fn add_reference(&self, block: &Regular, txg: Txg) -> bool;
}

/// The most concurrent lookups of different blocks.
const LOCK_COUNT: usize = 64;

/// The tables of shared blocks, and the turns of lookups.
pub(crate) struct SharingState {
    shared_blocks: OnceLock<Arc<dyn SharedBlocks>>,
    locks: [Mutex<()>; LOCK_COUNT],
}

impl Default for SharingState {
    fn default() -> Self {
        Self { shared_blocks: OnceLock::new(), locks: [const { Mutex::new(()) }; LOCK_COUNT] }
    }
}

impl SharingState {
    /// Removes a reference to a block, and returns the result.
    pub(crate) fn release(&self, block: &Regular, txg: Txg) -> FreeOutcome {
        match self.shared_blocks.get() {
            Some(known) => known.release(block, txg),
            None if block.dedup => FreeOutcome::StillReferenced,
            None => FreeOutcome::Free(block.dvas),
        }
    }
}

impl Writer {
    /// Sets the tables of shared blocks. Without them, deduplicated blocks are never freed, none
    /// is deduplicated, and no block may be cloned.
    pub fn set_shared_blocks(&self, shared: Arc<dyn SharedBlocks>) {
        let _ = self.sharing.shared_blocks.set(shared);
    }

    /// One more pointer to a block of a file comes in a group; gives whether that can be.
    pub fn add_reference(&self, block: &Regular, txg: Txg) -> bool {
        self.sharing.shared_blocks.get().is_some_and(|known| known.add_reference(block, txg))
    }

    /// Whether a stored block can be read, and has exactly these stored bytes.
    fn is_same_content(&self, block: &Regular, bytes: &[u8], zbookmark: Zbookmark) -> bool {
        self.reader().read_stored(block, zbookmark).is_ok_and(|stored| {
            let same = stored == bytes;
            Reader::recycle(stored);
            same
        })
    }

    /// Refers to the stored block, or writes it so that others can.
    pub(crate) fn write_dedup(
        &self,
        request: &WriteRequest<'_>,
        block: &mut Regular,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let Some(shared) = self.sharing.shared_blocks.get() else {
            return self.allocate_and_write(request, block, bytes);
        };
        block.dedup = true;
        let turn = usize::from(block.sum[0].to_le_bytes()[0]) % LOCK_COUNT;
        let _turn = self.sharing.locks[turn].lock();
        // Rule: the reference is counted, or the entry inserted, before the pointer is returned. Both are synced with
        // the txg of the pointer: without the count, the first free would free the block of all others.
        let copies = copy_count(request, block);
        match shared.find_duplicate(block, copies, request.txg) {
            DedupLookup::Found(known) => {
                let own = *block;
                block.dvas = known.dvas;
                block.birth_physical = known.birth;
                if !request.policy.verify || self.is_same_content(block, bytes, request.zbookmark) {
                    return Ok(());
                }
                // the new reference is removed again
                self.free(&Blkptr::Regular(Box::new(*block)), request.txg);
                *block = own;
                block.dedup = false;
                return self.allocate_and_write(request, block, bytes);
            }
            DedupLookup::Unusable => {
                block.dedup = false;
                return self.allocate_and_write(request, block, bytes);
            }
            DedupLookup::NotFound => {}
        }
        self.allocate_and_write(request, block, bytes)?;
        block.dedup = shared.insert(block, request.txg);
        Ok(())
    }
}
