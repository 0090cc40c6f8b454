//! The write path, in the order in which a block goes through it.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use metaslab::{Allocator, Class, Want};
use ondisk::blkptr::{Protection, Regular};
use ondisk::{Blkptr, Compression, Dva, Order};
use parking_lot::Mutex;
use transform::checksum;
use transform::crypt::block::Params;
use units::{MetaslabId, Place, Txg, VdevId};
use vdev::Tree;

use crate::batch::Batch;
use crate::pack::{Packed, Rounding, lsize, pack};
use crate::patience::{is_passing, is_writing, patiently};
use crate::protect::{Random, Salts, protect};
use crate::shared::{Fate, Sharing};
use crate::{Error, Key, Reader, Sink, WriteRequest};

/// Reads the map of a metaslab and feeds it to the allocator: whoever knows where maps are.
pub trait Loader: Send + Sync {
    /// Whether the metaslab is loaded now.
    fn load(&self, vdev: VdevId, metaslab: MetaslabId) -> bool;
}

/// Writes blocks to a pool's vdevs.
pub struct Writer {
    reader: Arc<Reader>,
    allocator: Arc<Allocator>,
    rounding: Rounding,
    random: Arc<dyn Random>,
    salts: Salts,
    loader: OnceLock<Arc<dyn Loader>>,
    pub(crate) sharing: Sharing,
    lost: Mutex<Vec<Error>>,
}

impl Writer {
    /// Where `reader` reads, in the room that `allocator` gives.
    pub fn new(
        reader: Arc<Reader>,
        allocator: Arc<Allocator>,
        rounding: Rounding,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            reader,
            allocator,
            rounding,
            random,
            salts: Salts::default(),
            loader: OnceLock::new(),
            sharing: Sharing::default(),
            lost: Mutex::default(),
        }
    }

    /// Tells who loads metaslabs. Without one, all must be loaded before they are needed.
    pub fn set_loader(&self, loader: Arc<dyn Loader>) {
        let _ = self.loader.set(loader);
    }

    /// The vdevs.
    pub fn tree(&self) -> &Arc<Tree> {
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
    pub fn take_lost(&self) -> Vec<Error> {
        std::mem::take(&mut self.lost.lock())
    }

    fn stored<'a>(
        &self,
        request: &WriteRequest<'a>,
        packed: Packed,
    ) -> Result<(Cow<'a, [u8]>, Regular), Error> {
        let WriteRequest { policy, place, .. } = *request;
        let (mut bytes, compression) = match packed {
            Packed::Compressed(bytes, method) => (Cow::Owned(bytes), method),
            _ => (Cow::Borrowed(request.data), Compression::Off),
        };
        let failed = |why| Error::Transform { place, why };
        let mut block = pointer(request, compression, bytes.len());
        if let Some(key) = &policy.key {
            let fresh = |plain: &[u8]| {
                if policy.dedup {
                    // what is alike must look alike
                    return Params::for_dedup(key, plain);
                }
                self.salts.params(key, self.random())
            };
            block.protection = protect(request, key, bytes.to_mut(), fresh).map_err(failed)?;
        }
        block.sum = self.sum(&block, &bytes).map_err(failed)?;
        Ok((bytes, block))
    }

    /// The checksum as the pointer keeps it.
    pub(crate) fn sum(&self, block: &Regular, bytes: &[u8]) -> Result<[u64; 4], transform::Error> {
        let salt = self.reader.salt();
        let sum = checksum::compute(block.checksum, bytes, block.order, salt)?;
        if !block.has_half_sum() {
            return Ok(sum);
        }
        let [first, second] = checksum::keep_half(block.checksum, &sum);
        Ok([first, second, 0, 0])
    }

    /// All that is to be done before a block needs room.
    fn prepared<'a>(&self, request: &WriteRequest<'a>) -> Result<Prepared<'a>, Error> {
        let length = request.data.len();
        assert!(length > 0 && length.is_multiple_of(512), "a block is of whole sectors");
        let packed = pack(request, self.rounding);
        if let Packed::Pointer(pointer) = packed {
            return Ok(Prepared::Pointer(pointer));
        }
        let (bytes, mut block) = self.stored(request, packed)?;
        if request.policy.dedup {
            self.put_shared(request, &mut block, &bytes)?;
        } else if let Some(old) = unchanged(request, &block) {
            block = *old;
        } else if let Some(old) = rewritable(request, &block) {
            self.rewrite(old, &mut block, &bytes, request.place)?;
        } else {
            return Ok(Prepared::Block(bytes, block));
        }
        Ok(Prepared::Pointer(Blkptr::Regular(Box::new(block))))
    }

    /// Room, and the bytes in it.
    pub(crate) fn put(
        &self,
        request: &WriteRequest<'_>,
        block: &mut Regular,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut taken = Vec::new();
        let result = self.place(request, block, bytes, &mut taken);
        if result.is_err() {
            for dva in taken {
                self.note_lost(request.place, self.allocator.unallocate(&dva, request.txg));
            }
        }
        result
    }

    fn place(
        &self,
        request: &WriteRequest<'_>,
        block: &mut Regular,
        bytes: &[u8],
        taken: &mut Vec<Dva>,
    ) -> Result<(), Error> {
        let want = self.want(request, block, bytes);
        match self.allocate(&want, request.place) {
            Ok(dvas) => {
                taken.extend(dvas.iter().flatten());
                block.dvas = dvas;
                self.write_copies(block, bytes, request.place)
            }
            Err(Error::NoSpace { .. }) if want.psize > SMALLEST => {
                self.write_gang(&want, block, bytes, request.place, taken)
            }
            Err(error) => Err(error),
        }
    }

    /// Which drives a block of so many stored bytes goes to.
    fn class(&self, request: &WriteRequest<'_>, length: usize) -> Class {
        let (class, length) = (request.policy.class, length as u64);
        if class != Class::Normal || length > u64::from(request.policy.small) {
            return class;
        }
        // a quarter is left to metadata
        let usage = self.allocator.usage(Class::Special);
        let taken = usage.allocated.saturating_add(usage.deferred).saturating_add(length);
        if taken < usage.capacity / 4 * 3 { Class::Special } else { class }
    }

    /// The room that a block needs.
    pub(crate) fn want(&self, request: &WriteRequest<'_>, block: &Regular, bytes: &[u8]) -> Want {
        let (copies, class) = (copies_of(request, block), self.class(request, bytes.len()));
        Want { psize: bytes.len() as u64, copies, class, ..Want::new(0, request.txg) }
    }

    /// Room for a block, whatever must be loaded to find it.
    pub(crate) fn allocate(&self, want: &Want, place: Place) -> Result<[Option<Dva>; 3], Error> {
        self.loaded(place, || self.allocator.allocate(want))
    }

    /// Asks the allocator for something until it has loaded what it needs for that.
    pub(crate) fn loaded<T>(
        &self,
        place: Place,
        ask: impl Fn() -> Result<T, metaslab::Error>,
    ) -> Result<T, Error> {
        loop {
            match ask() {
                Ok(found) => return Ok(found),
                Err(metaslab::Error::NotLoaded { vdev, metaslab })
                    if self.loader.get().is_some_and(|loader| loader.load(vdev, metaslab)) => {}
                Err(metaslab::Error::NoSpace { psize }) => {
                    return Err(Error::NoSpace { place, psize });
                }
                Err(why) => return Err(Error::Space { place, why }),
            }
        }
    }

    /// Salt and nonce for a log block.
    pub(crate) fn log_params(&self, key: &Key) -> Params {
        self.salts.params(key, self.random())
    }

    /// Writes all copies of a block that has its addresses.
    pub(crate) fn write_copies(
        &self,
        block: &Regular,
        bytes: &[u8],
        place: Place,
    ) -> Result<(), Error> {
        for dva in block.copies() {
            self.write_at(dva, block.birth_physical, bytes, place)?;
        }
        Ok(())
    }

    /// Writes one copy.
    pub(crate) fn write_at(
        &self,
        dva: Dva,
        birth: Txg,
        bytes: &[u8],
        place: Place,
    ) -> Result<(), Error> {
        // the leaves remember themselves what they missed
        let faults = &mut Vec::new();
        let result = self.tree().write(dva.vdev, dva.offset, bytes, birth, faults);
        result.map_err(|why| Error::Unwritten { place, dva, why })
    }

    pub(crate) fn note_lost(&self, place: Place, result: Result<(), metaslab::Error>) {
        if let Err(why) = result {
            self.note(Error::Space { place, why });
        }
    }

    pub(crate) fn note(&self, error: Error) {
        let mut lost = self.lost.lock();
        if lost.len() < REMEMBERED {
            lost.push(error);
        }
    }
}

/// More mishaps than this are all of a kind.
const REMEMBERED: usize = 1000;

/// Less than a sector cannot be written in pieces.
pub(crate) const SMALLEST: u64 = 512;

impl Writer {
    fn write_once(&self, request: &WriteRequest<'_>) -> Result<Blkptr, Error> {
        match self.prepared(request)? {
            Prepared::Pointer(pointer) => Ok(pointer),
            Prepared::Block(bytes, mut block) => {
                self.put(request, &mut block, &bytes)?;
                Ok(Blkptr::Regular(Box::new(block)))
            }
        }
    }
}

impl Sink for Writer {
    fn write(&self, request: &WriteRequest<'_>) -> Result<Blkptr, Error> {
        patiently(self.reader.patience(), || self.write_once(request))
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Vec<Result<Blkptr, Error>> {
        let mut batch = Batch::default();
        let mut results: Vec<_> = requests
            .iter()
            .enumerate()
            .map(|(index, request)| match self.prepared(request)? {
                Prepared::Pointer(pointer) => Ok(pointer),
                Prepared::Block(bytes, block) => {
                    batch.blocks.push((index, bytes, block));
                    Ok(Blkptr::EMPTY)
                }
            })
            .collect();
        batch.write(self, requests, &mut |index, result| {
            if let Some(place) = results.get_mut(index) {
                *place = result;
            }
        });
        // what drives did not take may be worth waiting for
        for (result, request) in results.iter_mut().zip(requests) {
            if result.as_ref().is_err_and(is_passing) && is_writing() {
                *result = self.write(request);
            }
        }
        results
    }

    fn free(&self, pointer: &Blkptr, txg: Txg) {
        let Blkptr::Regular(block) = pointer else { return };
        if let Fate::Free(dvas) = self.sharing.part(block, txg) {
            self.release(&Regular { dvas, ..**block }, txg);
        }
    }
}

/// What is left to do for a block.
enum Prepared<'a> {
    /// Nothing.
    Pointer(Blkptr),
    /// It needs room, and these bytes in it.
    Block(Cow<'a, [u8]>, Regular),
}

/// How many copies a block gets.
pub(crate) fn copies_of(request: &WriteRequest<'_>, block: &Regular) -> u8 {
    match block.protection {
        // the third address is where salt and nonce stand
        Protection::Encrypted { .. } => request.policy.copies.clamp(1, 2),
        _ => request.policy.copies.clamp(1, 3),
    }
}

/// The pointer, but for its addresses, its sum and its protection.
fn pointer(request: &WriteRequest<'_>, compression: Compression, psize: usize) -> Regular {
    Regular {
        dvas: [None; 3],
        lsize: lsize(request),
        psize: u32::try_from(psize).unwrap_or(u32::MAX),
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
fn unchanged<'a>(request: &WriteRequest<'a>, block: &Regular) -> Option<&'a Regular> {
    let Blkptr::Regular(old) = request.previous else { return None };
    let plain = |block: &Regular| block.protection == Protection::None && !block.dedup;
    let same = request.policy.compares()
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
fn rewritable<'a>(request: &WriteRequest<'a>, block: &Regular) -> Option<&'a Regular> {
    let Blkptr::Regular(old) = request.previous else { return None };
    let copies = old.copies().count();
    let same = old.birth == request.txg
        && old.birth_physical == request.txg
        && old.psize == block.psize
        && !old.dedup
        && (old.is_gang() || copies == usize::from(copies_of(request, block)))
        // the third address is in the way of salt and nonce
        && (copies < 3 || !matches!(block.protection, Protection::Encrypted { .. }));
    same.then_some(&**old)
}
