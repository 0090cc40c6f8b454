//! Blocks that several pointers share: by deduplication as they are written, or as clones.

use std::sync::{Arc, OnceLock};

use ondisk::blkptr::Regular;
use ondisk::{Blkptr, Dva};
use parking_lot::Mutex;
use units::{Place, Txg};

use crate::writer::copies_of;
use crate::{Error, Reader, Sink, WriteRequest, Writer};

/// Where a block of the table of deduplication lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Its copies.
    pub dvas: [Option<Dva>; 3],
    /// The txg in which it was written.
    pub birth: Txg,
}

/// What the table of deduplication says of a content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It is there, and has one more pointer now.
    Known(Known),
    /// It is not there.
    Nothing,
    /// It is to be written as if there were no deduplication: what is there does not suit, and
    /// there cannot be two of it.
    Apart,
}

/// What becomes of a block to which a pointer goes away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Another pointer still wants it.
    Kept,
    /// Nobody wants it: these are its copies, maybe more than the last pointer knew of.
    Free([Option<Dva>; 3]),
}

/// Knows which blocks several pointers share: the tables of deduplication and of clones.
pub trait Shared: Send + Sync {
    /// One pointer to the block goes away in `txg`.
    fn part(&self, block: &Regular, txg: Txg) -> Fate;

    /// The block of that checksum, sizes and compression, if the table of deduplication has it in
    /// so many copies at least: one more pointer to it comes in `txg`. `block` has no addresses
    /// yet. Never asked about the same content by two at a time.
    fn find(&self, block: &Regular, copies: u8, txg: Txg) -> Found;

    /// A block that was not found is written, and has one pointer. False: the table has no place
    /// for it, and it is a block like any other.
    fn add(&self, block: &Regular, txg: Txg) -> bool;

    /// One more pointer to a block of a file comes in `txg`; gives whether that can be: it must have been
    /// there before.
    fn share(&self, block: &Regular, txg: Txg) -> bool;
}

/// So many different blocks may be looked for at a time.
const TURNS: usize = 64;

/// Who knows of shared blocks, and the turns of those who ask.
pub(crate) struct Sharing {
    known: OnceLock<Arc<dyn Shared>>,
    turns: [Mutex<()>; TURNS],
}

impl Default for Sharing {
    fn default() -> Self {
        Self { known: OnceLock::new(), turns: [const { Mutex::new(()) }; TURNS] }
    }
}

impl Sharing {
    /// What becomes of a block to which a pointer goes away.
    pub(crate) fn part(&self, block: &Regular, txg: Txg) -> Fate {
        match self.known.get() {
            Some(known) => known.part(block, txg),
            None if block.dedup => Fate::Kept,
            None => Fate::Free(block.dvas),
        }
    }
}

impl Writer {
    /// Tells who knows of shared blocks. Without one, deduplicated blocks are never given up, none
    /// is deduplicated, and no block may be shared by clones.
    pub fn set_shared(&self, shared: Arc<dyn Shared>) {
        let _ = self.sharing.known.set(shared);
    }

    /// One more pointer to a block of a file comes in a group; gives whether that can be.
    pub fn share(&self, block: &Regular, txg: Txg) -> bool {
        self.sharing.known.get().is_some_and(|known| known.share(block, txg))
    }

    /// Whether a block that is there already can be read, and has just these stored bytes.
    fn is_same(&self, block: &Regular, bytes: &[u8], place: Place) -> bool {
        self.reader().stored(block, place).is_ok_and(|stored| {
            let same = stored == bytes;
            Reader::give_back(stored);
            same
        })
    }

    /// Points to the block that is there already, or writes it so that others can.
    pub(crate) fn put_shared(
        &self,
        request: &WriteRequest<'_>,
        block: &mut Regular,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let Some(shared) = self.sharing.known.get() else {
            return self.put(request, block, bytes);
        };
        block.dedup = true;
        let turn = usize::from(block.sum[0].to_le_bytes()[0]) % TURNS;
        let _turn = self.sharing.turns[turn].lock();
        let copies = copies_of(request, block);
        match shared.find(block, copies, request.txg) {
            Found::Known(known) => {
                let own = *block;
                block.dvas = known.dvas;
                block.birth_physical = known.birth;
                if !request.policy.verify || self.is_same(block, bytes, request.place) {
                    return Ok(());
                }
                // nobody is to point there after all
                self.free(&Blkptr::Regular(Box::new(*block)), request.txg);
                *block = own;
                block.dedup = false;
                return self.put(request, block, bytes);
            }
            Found::Apart => {
                block.dedup = false;
                return self.put(request, block, bytes);
            }
            Found::Nothing => {}
        }
        self.put(request, block, bytes)?;
        block.dedup = shared.add(block, request.txg);
        Ok(())
    }
}
