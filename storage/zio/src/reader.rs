//! The read path, in the order in which a block goes through it.

use std::sync::{Arc, OnceLock};

use device::buffer;
use ondisk::blkptr::{Protection, Regular};
use ondisk::gang::GangHeader;
use ondisk::{Blkptr, Checksum, Dva};
use transform::compress;
use units::{Guid, Zbookmark};
use vdev::{LeafError, ReadRequest, RunBlock, VdevTree};

use crate::decode::{Decoder, decode_embedded};
use crate::gang::GangReader;
use crate::secondary_cache::is_cacheable;
use crate::suspend_gate::retry_while_suspended;
use crate::{
    Block, BlockRead, CopyError, Error, Key, SecondaryCache, SelfHealer, Source, SuspendGate,
};

/// Reads blocks from a pool's vdevs.
#[derive(Debug)]
pub struct Reader {
    tree: Arc<VdevTree>,
    decoder: Decoder,
    suspend_gate: OnceLock<Arc<dyn SuspendGate>>,
    secondary_cache: OnceLock<Arc<dyn SecondaryCache>>,
    self_healer: OnceLock<Arc<dyn SelfHealer>>,
}

/// The findings of an examination of a block.
#[derive(Debug)]
pub struct VerifiedBlock {
    /// For each copy: the leaves' faults, and whether the copy could be read in spite of them.
    pub copies: Vec<(Dva, Vec<LeafError>, Result<(), vdev::Error>)>,
    /// The stored bytes, if any copy could be read.
    pub bytes: Option<Vec<u8>>,
    /// Of a block in pieces: where its pieces lie, headers (of 512 bytes) of pieces in pieces too.
    pub pieces: Vec<Dva>,
}

impl VerifiedBlock {
    /// All faults of all copies.
    pub fn faults(&self) -> impl Iterator<Item = LeafError> + '_ {
        self.copies.iter().flat_map(|copy| copy.1.iter().copied())
    }
}

impl Reader {
    /// Over a tree of vdevs.
    pub fn new(tree: Arc<VdevTree>) -> Self {
        let (decoder, suspend_gate, secondary_cache, self_healer) = Default::default();
        Self { tree, decoder, suspend_gate, secondary_cache, self_healer }
    }

    /// The same, but without a key the dnodes of an encrypted dataset are returned as stored:
    /// their trees can be followed, their bonus buffers are noise. For examinations.
    #[must_use]
    pub fn with_raw_dnodes(&self) -> Self {
        let tree = Arc::clone(&self.tree);
        let (decoder, suspend_gate) = (self.decoder.with_raw_dnodes(), self.suspend_gate.clone());
        let (secondary_cache, self_healer) = Default::default();
        Self { tree, decoder, suspend_gate, secondary_cache, self_healer }
    }

    /// Sets the secondary cache. Only the first call counts.
    pub fn set_secondary_cache(&self, aside: Arc<dyn SecondaryCache>) {
        let _ = self.secondary_cache.set(aside);
    }

    /// Sets the self-healer. Only the first call counts.
    pub fn set_self_healer(&self, healer: Arc<dyn SelfHealer>) {
        let _ = self.self_healer.set(healer);
    }

    /// Sets the gate that waits for failed drives during a sync.
    pub fn set_suspend_gate(&self, patience: Arc<dyn SuspendGate>) {
        let _ = self.suspend_gate.set(patience);
    }

    pub(crate) fn suspend_gate(&self) -> Option<&dyn SuspendGate> {
        self.suspend_gate.get().map(|patience| &**patience)
    }

    /// Sets the pool's salt, which some checksums need. Only the first call counts.
    pub fn set_salt(&self, salt: [u8; 32]) {
        self.decoder.set_salt(salt);
    }

    /// The pool's salt, if it was set.
    pub(crate) fn salt(&self) -> Option<&[u8; 32]> {
        self.decoder.salt()
    }

    /// The header of a block in pieces, from the first copy of it that can be read.
    pub(crate) fn gang_header(
        &self,
        block: &Regular,
        zbookmark: Zbookmark,
    ) -> Result<GangHeader, Error> {
        self.gang_header_bytes(block, zbookmark).map(|(_, header)| header)
    }

    /// The same, with its bytes as they are stored.
    pub(crate) fn gang_header_bytes(
        &self,
        block: &Regular,
        place: Zbookmark,
    ) -> Result<(Vec<u8>, GangHeader), Error> {
        let mut faults = Vec::new();
        for dva in block.copies() {
            let (faulty, pieces) = (&mut Vec::new(), &mut Vec::new());
            let mut gang = GangReader {
                reader: self,
                zbookmark: place,
                verify_all: false,
                faults: faulty,
                pieces,
            };
            match gang.read_header(dva, block) {
                Ok(header) => return Ok(header),
                Err(error) => faults.push(CopyError { dva, why: error }),
            }
        }
        Err(Error::Unreadable { zbookmark: place, faults })
    }

    /// The vdevs.
    pub fn tree(&self) -> &Arc<VdevTree> {
        &self.tree
    }

    /// The block's stored bytes, from the first copy with a right checksum.
    pub fn read_stored(&self, block: &Regular, zbookmark: Zbookmark) -> Result<Vec<u8>, Error> {
        let mut bytes = buffer::alloc(block.psize as usize);
        let result = self.read_stored_into(block, zbookmark, &mut bytes);
        if result.is_err() {
            buffer::recycle(std::mem::take(&mut bytes));
        }
        result.map(|()| bytes)
    }

    /// The same, into memory that is as long as they are.
    fn read_stored_into(
        &self,
        block: &Regular,
        place: Zbookmark,
        into: &mut [u8],
    ) -> Result<(), Error> {
        self.decoder.require_salt(block, place)?;
        let (mut faults, mut of_leaves) = (Vec::new(), Vec::new());
        for dva in block.copies() {
            match self.read_copy(block, dva, place, into, &mut of_leaves) {
                Ok(()) => {
                    self.report_damage(block, place, into, &of_leaves);
                    return Ok(());
                }
                Err(error) => faults.push(CopyError { dva, why: error }),
            }
        }
        self.report_lost_block(block, place, &faults);
        Err(Error::Unreadable { zbookmark: place, faults })
    }

    /// Reports a block that cannot be read. Blocks on missing devices are not lost: they may come back. A log block
    /// may be missing at the end of its chain.
    fn report_lost_block(&self, block: &Regular, zbookmark: Zbookmark, faults: &[CopyError]) {
        let is_missing = |fault: &CopyError| {
            matches!(fault.why, vdev::Error::Unavailable { .. } | vdev::Error::NoVdev(_))
        };
        let is_log = matches!(block.checksum, Checksum::Zilog | Checksum::Zilog2);
        if let Some(healer) =
            self.self_healer.get().filter(|_| !is_log && !faults.iter().any(is_missing))
        {
            healer.report_lost_block(block, zbookmark);
        }
    }

    /// Reports wrong parts of a block to the self-healer. Gang blocks are left to a scrub.
    fn report_damage(
        &self,
        block: &Regular,
        zbookmark: Zbookmark,
        stored: &[u8],
        faults: &[LeafError],
    ) {
        let wrong = faults.iter().filter(|fault| fault.error.is_repairable());
        let guilty: Vec<Guid> = wrong.map(|fault| fault.leaf).collect();
        if let Some(healer) =
            self.self_healer.get().filter(|_| !guilty.is_empty() && !block.is_gang())
        {
            healer.report_damage(block, zbookmark, stored, &guilty);
        }
    }

    fn read_copy(
        &self,
        block: &Regular,
        dva: Dva,
        place: Zbookmark,
        into: &mut [u8],
        faults: &mut Vec<LeafError>,
    ) -> Result<(), vdev::Error> {
        let judge = |bytes: &[u8]| self.is_valid(block, bytes);
        if dva.gang {
            let pieces = &mut Vec::new();
            let mut gang =
                GangReader { reader: self, zbookmark: place, verify_all: false, faults, pieces };
            let mut parts = Vec::with_capacity(into.len());
            gang.read(dva, block, into.len(), &mut parts)?;
            if parts.len() != into.len() || !judge(&parts) {
                return Err(vdev::Error::ChecksumMismatch);
            }
            into.copy_from_slice(&parts);
            return Ok(());
        }
        self.tree.read(dva.vdev, &read_request(block, dva, &judge), into, faults)
    }

    /// Reads every copy of a block on every drive, and parity.
    pub fn verify_block(
        &self,
        block: &Regular,
        zbookmark: Zbookmark,
    ) -> Result<VerifiedBlock, Error> {
        self.decoder.require_salt(block, zbookmark)?;
        Ok(self.verify_regular_block(block, zbookmark))
    }

    pub(crate) fn verify_regular_block(&self, block: &Regular, place: Zbookmark) -> VerifiedBlock {
        let judge = |bytes: &[u8]| self.is_valid(block, bytes);
        let mut examined =
            VerifiedBlock { copies: Vec::with_capacity(1), bytes: None, pieces: Vec::new() };
        for dva in block.copies() {
            let mut faults = Vec::new();
            let mut bytes = buffer::alloc(block.psize as usize);
            let result = if dva.gang {
                bytes.clear();
                let mut pieces = Vec::new();
                let mut gang = GangReader {
                    reader: self,
                    zbookmark: place,
                    verify_all: true,
                    faults: &mut faults,
                    pieces: &mut pieces,
                };
                let gathered = gang.read(dva, block, block.psize as usize, &mut bytes);
                // all copies of a header name the same pieces
                pieces.retain(|piece| !examined.pieces.contains(piece));
                examined.pieces.append(&mut pieces);
                gathered
                    .and_then(|()| judge(&bytes).then_some(()).ok_or(vdev::Error::ChecksumMismatch))
            } else {
                let request = read_request(block, dva, &judge);
                self.tree.verify_block(dva.vdev, &request, &mut bytes, &mut faults)
            };
            if result.is_ok() && examined.bytes.is_none() {
                examined.bytes = Some(bytes);
            } else {
                buffer::recycle(bytes);
            }
            examined.copies.push((dva, faults, result));
        }
        examined
    }

    /// Gives back the memory of bytes that are no longer needed.
    pub fn recycle(bytes: Vec<u8>) {
        buffer::recycle(bytes);
    }

    /// Whether bytes are the stored bytes of the block.
    pub(crate) fn is_valid(&self, block: &Regular, bytes: &[u8]) -> bool {
        self.decoder.is_valid(block, bytes)
    }

    /// From the stored bytes, which have been verified, to the block's content: for callers of
    /// [`Reader::verify_block`].
    pub fn decode(
        &self,
        block: &Regular,
        stored: Vec<u8>,
        place: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Vec<u8>, Error> {
        self.decoder.decode(block, stored, place, key)
    }
}

impl Source for Reader {
    fn read(&self, pointer: &Blkptr, place: Zbookmark, key: Option<&Key>) -> Result<Block, Error> {
        match pointer {
            Blkptr::Hole(hole) => Ok(Block::zeros(hole.lsize as usize, ondisk::Order::Little)),
            Blkptr::Redacted(_) => Err(Error::Redacted { zbookmark: place }),
            Blkptr::Embedded(embedded) => decode_embedded(embedded, place),
            Blkptr::Regular(block) => self.read_block(block, place, key, true),
        }
    }

    fn read_once(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
    ) -> Result<Block, Error> {
        match pointer {
            Blkptr::Regular(block) => self.read_block(block, zbookmark, key, false),
            _ => self.read(pointer, zbookmark, key),
        }
    }

    fn read_into(
        &self,
        pointer: &Blkptr,
        zbookmark: Zbookmark,
        key: Option<&Key>,
        into: &mut [u8],
    ) -> Result<usize, Error> {
        match pointer {
            Blkptr::Regular(block) if is_unprotected(block, into) => {
                self.read_block_into(block, zbookmark, into).map(|()| into.len())
            }
            _ => self.read_once(pointer, zbookmark, key).map(|block| block.copy_to(into)),
        }
    }

    fn read_blocks(&self, blocks: &mut [BlockRead<'_>]) {
        let plain: Vec<Option<(&Regular, Dva)>> =
            blocks.iter_mut().map(|wanted| self.direct_read_target(wanted)).collect();
        let judges: Vec<_> = (plain.iter().flatten())
            .map(|(block, _)| move |bytes: &[u8]| self.is_valid(block, bytes))
            .collect();
        let chosen =
            blocks.iter_mut().zip(&plain).filter_map(|(wanted, it)| Some((wanted, (*it)?)));
        let (mut dones, mut parts) = (Vec::new(), Vec::new());
        for ((wanted, (block, dva)), judge) in chosen.zip(&judges) {
            let request = read_request(block, dva, judge);
            parts.push(RunBlock {
                vdev: dva.vdev,
                request,
                into: &mut *wanted.into,
                is_done: false,
            });
            dones.push(&mut wanted.is_done);
        }
        self.tree.read_blocks(&mut parts);
        dones.into_iter().zip(&parts).for_each(|(done, part)| *done = part.is_done);
    }
}

impl Reader {
    /// A block's content. `again`: it may be read again.
    fn read_block(
        &self,
        block: &Regular,
        zbookmark: Zbookmark,
        key: Option<&Key>,
        again: bool,
    ) -> Result<Block, Error> {
        let stored = if let Some(kept) = self.read_cached(block, zbookmark) {
            kept
        } else {
            let stored =
                retry_while_suspended(self.suspend_gate(), || self.read_stored(block, zbookmark))?;
            if let Some(aside) = self.cache_for(block).filter(|_| again) {
                aside.offer(block, zbookmark, &stored);
            }
            stored
        };
        let plain = self.decode(block, stored, zbookmark, key)?;
        Ok(Block::new(plain, block.order))
    }

    /// The content of an unprotected block, into memory of its length. Uncompressed content
    /// goes there straight from the drives.
    fn read_block_into(
        &self,
        block: &Regular,
        place: Zbookmark,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let stored = match self.read_cached(block, place) {
            Some(kept) => kept,
            None if is_uncompressed(block) => {
                return retry_while_suspended(self.suspend_gate(), || {
                    self.read_stored_into(block, place, into)
                });
            }
            None => retry_while_suspended(self.suspend_gate(), || self.read_stored(block, place))?,
        };
        let result = compress::decompress(block.compression, &stored, into);
        buffer::recycle(stored);
        result.map_err(|error| Error::Transform { zbookmark: place, why: error })
    }

    /// The address of the first copy of a block whose stored bytes are its content. Blocks of the
    /// secondary cache are read from there.
    fn direct_read_target<'a>(&self, wanted: &mut BlockRead<'a>) -> Option<(&'a Regular, Dva)> {
        let Blkptr::Regular(block) = wanted.pointer else { return None };
        let dva =
            block.copies().next().filter(|dva| !dva.gang && self.tree.can_read_runs(dva.vdev))?;
        let may_be = is_unprotected(block, wanted.into) && is_uncompressed(block);
        if !may_be || self.decoder.require_salt(block, wanted.zbookmark).is_err() {
            return None;
        }
        if let Some(kept) = self.read_cached(block, wanted.zbookmark) {
            wanted.is_done = kept.len() == wanted.into.len();
            if wanted.is_done {
                wanted.into.copy_from_slice(&kept);
            }
            buffer::recycle(kept);
            return None;
        }
        Some((&**block, dva))
    }

    /// The secondary cache, if it may have this block.
    fn cache_for(&self, block: &Regular) -> Option<&dyn SecondaryCache> {
        self.secondary_cache.get().filter(|_| is_cacheable(block)).map(|aside| &**aside)
    }

    /// The block's stored bytes, if they are beside the drives.
    fn read_cached(&self, block: &Regular, zbookmark: Zbookmark) -> Option<Vec<u8>> {
        let aside = self
            .cache_for(block)
            .filter(|_| self.decoder.require_salt(block, zbookmark).is_ok())?;
        aside.fetch(block, &|bytes: &[u8]| self.is_valid(block, bytes))
    }
}

/// Whether nothing protects a block, and `into` is as long as its content.
fn is_unprotected(block: &Regular, into: &[u8]) -> bool {
    block.protection == Protection::None && usize::try_from(block.lsize) == Ok(into.len())
}

/// Whether a block is stored as it is.
fn is_uncompressed(block: &Regular) -> bool {
    block.compression.is_off() && block.psize == block.lsize
}

fn read_request<'a>(block: &Regular, dva: Dva, judge: vdev::BlockValidator<'a>) -> ReadRequest<'a> {
    let strict = !matches!(block.checksum, Checksum::Off | Checksum::NoParity);
    let expected = !matches!(block.checksum, Checksum::Zilog | Checksum::Zilog2);
    let size = block.psize as usize;
    let birth = block.birth_physical;
    ReadRequest {
        offset: dva.offset,
        size,
        birth,
        is_valid: judge,
        has_checksum: strict,
        must_exist: expected,
    }
}
