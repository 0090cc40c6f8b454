//! The write path, in the order in which a block goes through it.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use metaslab::{AllocRequest, Allocator, Class};
use ondisk::blkptr::{Protection, Regular};
use ondisk::{Blkptr, Compression, Dva, Order};
use parking_lot::{Mutex, RwLock};
use transform::checksum;
use transform::crypt::block::Params;
use units::{MetaslabId, Txg, VdevId, Zbookmark};
use vdev::VdevTree;

use crate::batch::WriteBatch;
use crate::encode::{EncodedBlock, SizeRounding, encode_block, lsize};
use crate::protect::{Random, SaltCache, protect_block, protect_without_key, raw_protection};
use crate::shared_blocks::{FreeOutcome, SharingState};
use crate::suspend_gate::{is_syncing_thread, is_transient, retry_while_suspended};
use crate::{Error, Key, RawBlock, Reader, Sink, WriteRequest};

/// Reads the map of a metaslab and feeds it to the allocator: whoever knows where maps are.
pub trait MetaslabLoader: Send + Sync {
    /// Whether the metaslab is loaded now.
    fn load(&self, vdev: VdevId, metaslab: MetaslabId) -> bool;
}

/// Writes blocks to a pool's vdevs.
pub struct Writer {
    reader: Arc<Reader>,
    allocator: Arc<Allocator>,
    rounding: RwLock<SizeRounding>,
    random: Arc<dyn Random>,
    salts: SaltCache,
    loader: OnceLock<Arc<dyn MetaslabLoader>>,
    pub(crate) sharing: SharingState,
    leaked_space: Mutex<Vec<Error>>,
}

impl Writer {
    /// Where `reader` reads, in the room that `allocator` gives.
    pub fn new(
        reader: Arc<Reader>,
        allocator: Arc<Allocator>,
        rounding: SizeRounding,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            reader,
            allocator,
            rounding: RwLock::new(rounding),
            random,
            salts: SaltCache::default(),
            loader: OnceLock::new(),
            sharing: SharingState::default(),
            leaked_space: Mutex::default(),
        }
    }

    /// Tells who loads metaslabs. Without one, all must be loaded before they are needed.
    pub fn set_loader(&self, loader: Arc<dyn MetaslabLoader>) {
        let _ = self.loader.set(loader);
    }

    /// Sets to what sizes stored blocks are rounded, after vdevs were added.
    pub fn set_rounding(&self, rounding: SizeRounding) {
        *self.rounding.write() = rounding;
    }

    /// The vdevs.
    pub fn tree(&self) -> &Arc<VdevTree> {
        self.reader.tree()
    }

    /// What reads what is written here.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Who gives room.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// The source of nonces.
    pub fn random(&self) -> &dyn Random {
        &*self.random
    }

    /// Why space was not given up that should have been, since this was last asked.
    pub fn drain_leaked_space(&self) -> Vec<Error> {
        std::mem::take(&mut self.leaked_space.lock())
    }

    fn build_block<'a>(
        &self,
        request: &WriteRequest<'a>,
        packed: EncodedBlock,
    ) -> Result<(Cow<'a, [u8]>, Regular), Error> {
        let WriteRequest { policy, zbookmark: place, .. } = *request;
        let (mut bytes, compression) = match packed {
            EncodedBlock::Compressed(bytes, method) => (Cow::Owned(bytes), method),
            _ => (Cow::Borrowed(request.data), Compression::Off),
        };
        let failed = |error| Error::Transform { zbookmark: place, why: error };
        let mut block = new_block_pointer(request, compression, bytes.len());
        if let Some(key) = &policy.key {
            let fresh = |plain: &[u8]| {
                if policy.dedup {
                    // what is alike must look alike
                    return Params::for_dedup(key, plain);
                }
                self.salts.next_params(key, self.random())
            };
            block.protection =
                protect_block(request, key, bytes.to_mut(), fresh).map_err(failed)?;
        } else if policy.keyless {
            block.protection = protect_without_key(request)?;
        }
        assert_eq!(bytes.len(), block.psize as usize, "encryption keeps the length");
        // Rule: the checksum comes last, over the bytes that are written.
        block.sum = self.checksum(&block, &bytes).map_err(failed)?;
        debug_assert!(self.reader.is_valid(&block, &bytes), "a block verifies by its own sum");
        Ok((bytes, block))
    }

    /// The checksum as the pointer keeps it.
    pub(crate) fn checksum(
        &self,
        block: &Regular,
        bytes: &[u8],
    ) -> Result<[u64; 4], transform::Error> {
        let salt = self.reader.salt();
        let sum = checksum::compute(block.checksum, bytes, block.order, salt)?;
        if !block.has_half_sum() {
            return Ok(sum);
        }
        let [first, second] = checksum::truncate_sum(block.checksum, &sum);
        Ok([first, second, 0, 0])
    }

    /// All that is to be done before a block needs room.
    fn prepare<'a>(&self, request: &WriteRequest<'a>) -> Result<PreparedBlock<'a>, Error> {
        let length = request.data.len();
        assert!(length > 0 && length.is_multiple_of(512), "a block is of whole sectors");
        if let Some(raw) = request.raw {
            return self.prepare_raw(request, raw);
        }
        let packed = encode_block(request, *self.rounding.read());
        if let EncodedBlock::Pointer(pointer) = packed {
            return Ok(PreparedBlock::Pointer(pointer));
        }
        let (bytes, mut block) = self.build_block(request, packed)?;
        if request.policy.dedup {
            self.write_dedup(request, &mut block, &bytes)?;
        } else if let Some(old) = nopwrite_match(request, &block) {
            block = *old;
        } else if let Some(old) = rewrite_target(request, &block) {
            self.rewrite_in_place(old, &mut block, &bytes, request.zbookmark)?;
        } else {
            return Ok(PreparedBlock::Block(bytes, block));
        }
        Ok(PreparedBlock::Pointer(Blkptr::Regular(Box::new(block))))
    }

    /// A block that a raw stream brought: its bytes and its encryption stay as they are.
    fn prepare_raw<'a>(
        &self,
        request: &WriteRequest<'a>,
        raw: &RawBlock,
    ) -> Result<PreparedBlock<'a>, Error> {
        let mut block = new_block_pointer(request, raw.compression, request.data.len());
        block.protection = raw_protection(request.kind, raw);
        let failed = |error| Error::Transform { zbookmark: request.zbookmark, why: error };
        block.sum = self.checksum(&block, request.data).map_err(failed)?;
        if let Some(old) = rewrite_target(request, &block) {
            self.rewrite_in_place(old, &mut block, request.data, request.zbookmark)?;
            return Ok(PreparedBlock::Pointer(Blkptr::Regular(Box::new(block))));
        }
        Ok(PreparedBlock::Block(Cow::Borrowed(request.data), block))
    }

    /// Room, and the bytes in it.
    pub(crate) fn allocate_and_write(
        &self,
        request: &WriteRequest<'_>,
        block: &mut Regular,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut taken = Vec::new();
        let result = self.try_allocate_and_write(request, block, bytes, &mut taken);
        if result.is_err() {
            for dva in taken {
                self.record_leak(request.zbookmark, self.allocator.unallocate(&dva, request.txg));
            }
        }
        result
    }

    fn try_allocate_and_write(
        &self,
        request: &WriteRequest<'_>,
        block: &mut Regular,
        bytes: &[u8],
        taken: &mut Vec<Dva>,
    ) -> Result<(), Error> {
        let want = self.alloc_request(request, block, bytes);
        match self.allocate(&want, request.zbookmark) {
            Ok(dvas) => {
                taken.extend(dvas.iter().flatten());
                assert_eq!(taken.len(), usize::from(want.copies), "each copy has its space");
                block.dvas = dvas;
                self.write_copies(block, bytes, request.zbookmark)
            }
            Err(Error::NoSpace { .. }) if want.psize > MIN_BLOCK_SIZE => {
                self.write_gang(&want, block, bytes, request.zbookmark, taken)
            }
            Err(error) => Err(error),
        }
    }

    /// Which drives a block of so many stored bytes goes to.
    fn select_class(&self, request: &WriteRequest<'_>, length: usize) -> Class {
        let (class, length) = (request.policy.class, length as u64);
        if class != Class::Normal || length > u64::from(request.policy.special_small_blocks) {
            return class;
        }
        // a quarter is left to metadata
        let usage = self.allocator.class_usage(Class::Special);
        let taken = (usage.allocated + usage.deferred) + length;
        if taken < usage.capacity / 4 * 3 { Class::Special } else { class }
    }

    /// The room that a block needs.
    pub(crate) fn alloc_request(
        &self,
        request: &WriteRequest<'_>,
        block: &Regular,
        bytes: &[u8],
    ) -> AllocRequest {
        let (copies, class) = (copy_count(request, block), self.select_class(request, bytes.len()));
        assert!((1..=3).contains(&copies), "a block has {copies} copies");
        AllocRequest {
            psize: bytes.len() as u64,
            copies,
            class,
            ..AllocRequest::new(0, request.txg)
        }
    }

    /// Room for a block, whatever must be loaded to find it.
    pub(crate) fn allocate(
        &self,
        want: &AllocRequest,
        zbookmark: Zbookmark,
    ) -> Result<[Option<Dva>; 3], Error> {
        self.with_loaded_metaslabs(zbookmark, || self.allocator.allocate(want))
    }

    /// Asks the allocator for something until it has loaded what it needs for that.
    pub(crate) fn with_loaded_metaslabs<T>(
        &self,
        place: Zbookmark,
        ask: impl Fn() -> Result<T, metaslab::Error>,
    ) -> Result<T, Error> {
        loop {
            match ask() {
                Ok(found) => return Ok(found),
                Err(metaslab::Error::NotLoaded { vdev, metaslab })
                    if self.loader.get().is_some_and(|loader| loader.load(vdev, metaslab)) => {}
                Err(metaslab::Error::NoSpace { psize }) => {
                    return Err(Error::NoSpace { zbookmark: place, psize });
                }
                Err(error) => return Err(Error::Allocator { zbookmark: place, why: error }),
            }
        }
    }

    /// Salt and nonce for a log block.
    pub(crate) fn log_crypt_params(&self, key: &Key) -> Params {
        self.salts.next_params(key, self.random())
    }

    /// Writes all copies of a block that has its addresses.
    pub(crate) fn write_copies(
        &self,
        block: &Regular,
        bytes: &[u8],
        zbookmark: Zbookmark,
    ) -> Result<(), Error> {
        assert!(block.dvas[0].is_some(), "a block that is written at {zbookmark} has an address");
        // of a log block only the part with records is written
        let is_within = bytes.len() <= units::to_usize(block.psize);
        for dva in block.copies() {
            // of a gang block these are the bytes of its header
            let fits = is_within && dva.asize >= u64::from(block.psize);
            assert!(
                dva.gang || fits,
                "a block has no more bytes than its psize, and fits what is allocated"
            );
            self.write_copy(dva, block.birth_physical, bytes, zbookmark)?;
        }
        Ok(())
    }

    /// Writes one copy.
    pub(crate) fn write_copy(
        &self,
        dva: Dva,
        birth: Txg,
        bytes: &[u8],
        place: Zbookmark,
    ) -> Result<(), Error> {
        // the leaves remember themselves what they missed
        let faults = &mut Vec::new();
        let result = self.tree().write(dva.vdev, dva.offset, bytes, birth, faults);
        result.map_err(|error| Error::WriteFailed { zbookmark: place, dva, why: error })
    }

    pub(crate) fn record_leak(&self, place: Zbookmark, result: Result<(), metaslab::Error>) {
        if let Err(error) = result {
            self.push_leak(Error::Allocator { zbookmark: place, why: error });
        }
    }

    pub(crate) fn push_leak(&self, error: Error) {
        let mut lost = self.leaked_space.lock();
        if lost.len() < MAX_LEAK_RECORDS {
            lost.push(error);
        }
    }
}

/// More mishaps than this are all of a kind.
const MAX_LEAK_RECORDS: usize = 1000;

/// Less than a sector cannot be written in pieces.
pub(crate) const MIN_BLOCK_SIZE: u64 = 512;

impl Writer {
    fn write_once(&self, request: &WriteRequest<'_>) -> Result<Blkptr, Error> {
        match self.prepare(request)? {
            PreparedBlock::Pointer(pointer) => Ok(pointer),
            PreparedBlock::Block(bytes, mut block) => {
                self.allocate_and_write(request, &mut block, &bytes)?;
                Ok(Blkptr::Regular(Box::new(block)))
            }
        }
    }
}

impl Sink for Writer {
    fn write(&self, request: &WriteRequest<'_>) -> Result<Blkptr, Error> {
        retry_while_suspended(self.reader.suspend_gate(), || self.write_once(request))
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Vec<Result<Blkptr, Error>> {
        let mut batch = WriteBatch::default();
        let mut results: Vec<_> = requests
            .iter()
            .enumerate()
            .map(|(index, request)| match self.prepare(request)? {
                PreparedBlock::Pointer(pointer) => Ok(pointer),
                PreparedBlock::Block(bytes, block) => {
                    batch.blocks.push((index, bytes, block));
                    Ok(Blkptr::EMPTY)
                }
            })
            .collect();
        let (wanted, mut answered) = (batch.blocks.len(), 0);
        batch.write(self, requests, &mut |index, result| {
            answered += 1;
            if let Some(place) = results.get_mut(index) {
                *place = result;
            }
        });
        // An answer that is missing would leave a hole in the place of the block.
        assert_eq!(answered, wanted, "each block of a batch is answered once");
        // what drives did not take may be worth waiting for
        for (result, request) in results.iter_mut().zip(requests) {
            if result.as_ref().is_err_and(is_transient) && is_syncing_thread() {
                *result = self.write(request);
            }
        }
        results
    }

    fn free(&self, pointer: &Blkptr, txg: Txg) {
        // Rule W8: the tables of shared blocks are asked before the space is freed. A block with references left
        // belongs to other pointers, and a crash after its reuse would leave them with other data.
        let Blkptr::Regular(block) = pointer else { return };
        if let FreeOutcome::Free(dvas) = self.sharing.release(block, txg) {
            self.free_copies(&Regular { dvas, ..**block }, txg);
        }
    }
}

/// What is left to do for a block.
enum PreparedBlock<'a> {
    /// Nothing.
    Pointer(Blkptr),
    /// It needs room, and these bytes in it.
    Block(Cow<'a, [u8]>, Regular),
}

/// How many copies a block gets.
pub(crate) fn copy_count(request: &WriteRequest<'_>, block: &Regular) -> u8 {
    match block.protection {
        // the third address is where salt and nonce stand
        Protection::Encrypted { .. } => request.policy.copies.clamp(1, 2),
        _ => request.policy.copies.clamp(1, 3),
    }
}

/// The pointer, but for its addresses, its sum and its protection.
fn new_block_pointer(
    request: &WriteRequest<'_>,
    compression: Compression,
    psize: usize,
) -> Regular {
    let lsize = lsize(request);
    assert!(
        units::to_u64(psize) <= u64::from(lsize) && psize.is_multiple_of(512),
        "a block is stored in whole sectors, no more than its content has"
    );
    Regular {
        dvas: [None; 3],
        lsize,
        psize: units::narrow::<u32>(psize),
        compression,
        checksum: request.policy.checksum,
        kind: request.kind,
        level: request.level,
        dedup: false,
        order: Order::Little,
        birth: request.txg,
        birth_physical: request.txg,
        fill: request.fill,
        sum: [0; 4],
        protection: Protection::None,
    }
}

/// The block that stands there already, if it is the very same (nopwrite).
fn nopwrite_match<'a>(request: &WriteRequest<'a>, block: &Regular) -> Option<&'a Regular> {
    let Blkptr::Regular(old) = request.previous else { return None };
    let plain = |block: &Regular| block.protection == Protection::None && !block.dedup;
    let same = request.policy.uses_nopwrite()
        && block.level.get() == 0
        && plain(block)
        && plain(old)
        && (old.checksum, old.compression) == (block.checksum, block.compression)
        && (old.lsize, old.psize, old.kind) == (block.lsize, block.psize, block.kind)
        && old.order == block.order
        && old.copies().count() == usize::from(request.policy.copies)
        && old.sum == block.sum;
    same.then_some(&**old)
}

/// The block of the same txg in whose place this one can be written.
fn rewrite_target<'a>(request: &WriteRequest<'a>, block: &Regular) -> Option<&'a Regular> {
    let Blkptr::Regular(old) = request.previous else { return None };
    let copies = old.copies().count();
    let same = old.birth == request.txg
        && old.birth_physical == request.txg
        && old.psize == block.psize
        && !old.dedup
        && (old.is_gang() || copies == usize::from(copy_count(request, block)))
        // the third address is in the way of salt and nonce
        && (copies < 3 || !matches!(block.protection, Protection::Encrypted { .. }));
    same.then_some(&**old)
}
