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

/// What the table of deduplication says of a content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DedupLookup {
    /// It is there, and has one more pointer now.
    Found(DedupMatch),
    /// It is not there.
    NotFound,
    /// It is to be written as if there were no deduplication: what is there does not suit, and
    /// there cannot be two of it.
    Unusable,
}

/// What becomes of a block to which a pointer goes away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeOutcome {
    /// Another pointer still wants it.
    StillReferenced,
    /// Nobody wants it: these are its copies, maybe more than the last pointer knew of.
    Free([Option<Dva>; 3]),
}

/// Knows which blocks several pointers share: the tables of deduplication and of clones.
pub trait SharedBlocks: Send + Sync {
    /// One pointer to the block goes away in `txg`.
    fn release(&self, block: &Regular, txg: Txg) -> FreeOutcome;

    /// The block of that checksum, sizes and compression, if the table of deduplication has it in
    /// so many copies at least: one more pointer to it comes in `txg`. `block` has no addresses
    /// yet. Never asked about the same content by two at a time.
    fn find_duplicate(&self, block: &Regular, copies: u8, txg: Txg) -> DedupLookup;

    /// A block that was not found is written, and has one pointer. False: the table has no place
    /// for it, and it is a block like any other.
    fn insert(&self, block: &Regular, txg: Txg) -> bool;

    /// One more pointer to a block of a file comes in `txg`; gives whether that can be: it must have been
    /// there before.
    fn add_reference(&self, block: &Regular, txg: Txg) -> bool;
}

/// So many different blocks may be looked for at a time.
const LOCK_COUNT: usize = 64;

/// Who knows of shared blocks, and the turns of those who ask.
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
    /// What becomes of a block to which a pointer goes away.
    pub(crate) fn release(&self, block: &Regular, txg: Txg) -> FreeOutcome {
        match self.shared_blocks.get() {
            Some(known) => known.release(block, txg),
            None if block.dedup => FreeOutcome::StillReferenced,
            None => FreeOutcome::Free(block.dvas),
        }
    }
}

impl Writer {
    /// Tells who knows of shared blocks. Without one, deduplicated blocks are never given up, none
    /// is deduplicated, and no block may be shared by clones.
    pub fn set_shared_blocks(&self, shared: Arc<dyn SharedBlocks>) {
        let _ = self.sharing.shared_blocks.set(shared);
    }

    /// One more pointer to a block of a file comes in a group; gives whether that can be.
    pub fn add_reference(&self, block: &Regular, txg: Txg) -> bool {
        self.sharing.shared_blocks.get().is_some_and(|known| known.add_reference(block, txg))
    }

    /// Whether a block that is there already can be read, and has just these stored bytes.
    fn is_same_content(&self, block: &Regular, bytes: &[u8], zbookmark: Zbookmark) -> bool {
        self.reader().read_stored(block, zbookmark).is_ok_and(|stored| {
            let same = stored == bytes;
            Reader::recycle(stored);
            same
        })
    }

    /// Points to the block that is there already, or writes it so that others can.
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
        let copies = copy_count(request, block);
        match shared.find_duplicate(block, copies, request.txg) {
            DedupLookup::Found(known) => {
                let own = *block;
                block.dvas = known.dvas;
                block.birth_physical = known.birth;
                if !request.policy.verify || self.is_same_content(block, bytes, request.zbookmark) {
                    return Ok(());
                }
                // nobody is to point there after all
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
