//! A volume that is being changed.

use std::ops::Range;
use std::sync::Arc;

use dmu::{NewObject, Object, Objset};
use ondisk::objset::Kind;
use ondisk::zil::{Body, Write};
use ondisk::{Blkptr, ObjectType};
use parking_lot::{Mutex, RwLock};
use txg::{GatedTxgs, Tx};
use units::{BlockId, MinusOrZero};
use zap::{NewZap, Zap};
use zil::{IntentLog, Itx, ReplayEntry};
use zio::{Block, MemoryParts};

use crate::volume::{SIZE_PROPERTY, ZVOL_OBJ, ZVOL_ZAP_OBJ};
use crate::{Error, Result};

/// The options of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct NewVolume {
    /// Bytes of it (volsize): a multiple of the block's.
    pub size: u64,
    /// Bytes of a block (volblocksize): a power of two, 512 to 16 MiB.
    pub block_size: u32,
    /// A random number for the hash of the table of its properties.
    pub salt: u64,
}

impl NewVolume {
    /// The largest block that there is.
    pub const MAX_BLOCK_SIZE: u32 = 16 << 20;

    /// Makes a volume in a live object set in which nothing is yet.
    pub fn create(&self, objset: &Objset, tx: &Tx) -> Result<()> {
        let block_size = self.block_size;
        if !block_size.is_power_of_two() || !(512..=Self::MAX_BLOCK_SIZE).contains(&block_size) {
            return Err(Error::BadBlockSize { bytes: block_size });
        }
        check_size(self.size, block_size)?;
        objset.create_at(tx, ZVOL_OBJ, &NewObject::new(ObjectType::ZVOL, block_size))?;
        let new = NewZap { salt: self.salt, ..NewZap::default() };
        let table = Zap::create_at(objset, tx, ZVOL_ZAP_OBJ, ObjectType::ZVOL_PROP, &new)?;
        Ok(table.insert_u64(tx, SIZE_PROPERTY, self.size)?)
    }
}

/// A size must be whole blocks, and some.
fn check_size(size: u64, block_size: u32) -> Result<()> {
    if size == 0 || !size.is_multiple_of(block_size.into()) || i64::try_from(size).is_err() {
        return Err(Error::BadSize { bytes: size, block_size });
    }
    Ok(())
}

/// A volume that can be changed. Written data can be read at once; it survives a power cut
/// when its txg is on the drives, or after [`WritableVolume::flush`].
#[derive(Debug)]
pub struct WritableVolume {
    pub(crate) objset: Objset,
    pub(crate) data: Object,
    txgs: GatedTxgs,
    pub(crate) log: Arc<IntentLog>,
    /// The lock of its bytes. Writers share it; truncations, holes and clones lock it exclusively, so that
    /// the log has the changes of a range in their order.
    pub(crate) size: RwLock<u64>,
    /// Locked during a resize.
    resize_lock: Mutex<()>,
}

/// The most bytes written with one hold on a txg.
const MAX_TX_BYTES: usize = 4 << 20;
/// The most blocks freed with one hold on a txg.
const MAX_TX_FREED_BLOCKS: u64 = 32768;

impl WritableVolume {
    /// Opens the volume of a live object set. Its log must be replayed
    /// ([`WritableVolume::replay_log`]) before any other call.
    pub fn open(objset: Objset, txgs: GatedTxgs, log: Arc<IntentLog>) -> Result<Self> {
        let id = objset.id();
        if objset.header().kind != Kind::Volume {
            return Err(Error::NotVolume { objset: id });
        }
        let table = Zap::open(objset.object(ZVOL_ZAP_OBJ)?)?;
        let size = table.lookup_u64(SIZE_PROPERTY)?.ok_or(Error::MissingSize { objset: id })?;
        let data = objset.object(ZVOL_OBJ)?;
        Ok(Self { objset, data, txgs, log, size: RwLock::new(size), resize_lock: Mutex::default() })
    }

    /// Bytes of it (volsize).
    pub fn size(&self) -> u64 {
        *self.size.read()
    }

    /// Bytes of a block (volblocksize).
    pub fn block_size(&self) -> u32 {
        self.data.block_size()
    }

    fn begin_tx(&self) -> Result<Tx> {
        self.txgs.begin_tx().ok_or(Error::Stopped)
    }

    /// Reads from byte `offset` on; returns the number of bytes, less than requested at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let size = self.size.read();
        let left = units::to_usize(size.minus_or_zero(offset));
        let count = left.min(into.len());
        self.data.read(offset, into.get_mut(..count).unwrap_or_default())?;
        Ok(count)
    }

    /// The bytes from `offset` on as parts of blocks, if all of them are in the volume and in memory: waits neither
    /// for a drive nor for another thread.
    pub fn parts_in_memory(&self, offset: u64, length: usize) -> Option<MemoryParts> {
        let size = self.size.try_read()?;
        self.check_range(offset, length, *size).ok()?;
        self.data.parts_in_memory(offset, length)
    }

    /// First byte from `from` on that takes space on the drives or waits to be written; none: the rest of the
    /// volume is not mapped.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        let size = self.size.read();
        Ok(self.data.next_data(from)?.filter(|found| *found < *size))
    }

    /// First byte of a range that is not mapped; the end of the range or of the volume if there is none.
    pub fn next_hole(&self, range: Range<u64>) -> Result<u64> {
        let size = self.size.read();
        let end = range.end.min(*size);
        Ok(self.data.next_hole_within(range.start..end)?.min(end))
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _long = self.objset.begin_long_write(bytes.len());
        let size = self.size.read();
        let mut at = self.check_range(offset, bytes.len(), *size)?;
        for part in bytes.chunks(MAX_TX_BYTES) {
            let length = units::to_u64(part.len());
            let tx = self.begin_tx()?;
            self.data.write(&tx, at, part)?;
            // the commit reads the data: many writes are never committed
            let (object, pointer, data) = (ZVOL_OBJ, Blkptr::EMPTY, None);
            let write = Write { object, offset: at, length, pointer, data };
            self.log.add_itx(&tx, Itx::new_per_object(Body::Write(Box::new(write))));
            at += length;
        }
        assert_eq!(at, offset + units::to_u64(bytes.len()), "all bytes are written");
        Ok(())
    }

    /// The start of a range that must be within the volume.
    fn check_range(&self, offset: u64, length: usize, size: u64) -> Result<u64> {
        let end = u64::try_from(length).ok().and_then(|length| offset.checked_add(length));
        match end {
            Some(end) if end <= size => Ok(offset),
            _ => Err(Error::OutOfRange { objset: self.objset.id(), offset }),
        }
    }

    /// Discards a range: whole blocks in it become holes. Partial blocks stay unchanged.
    pub fn discard(&self, range: Range<u64>) -> Result<()> {
        let block = u64::from(self.block_size());
        let end = range.end.min(*self.size.read());
        let Some(start) = range.start.checked_next_multiple_of(block) else { return Ok(()) };
        let end = end - end.checked_rem(block).unwrap_or(0);
        self.free_range(start, end, true)
    }

    /// Makes zeros of a range, as holes where whole blocks are in it.
    pub fn write_zeros(&self, range: Range<u64>) -> Result<()> {
        let length = units::to_usize(range.end.minus_or_zero(range.start));
        self.check_range(range.start, length, *self.size.read())?;
        self.free_range(range.start, range.end, true)
    }

    /// Frees a range in steps: others read and write between them, and no txg frees too much.
    /// `is_told`: the log records it.
    fn free_range(&self, mut start: u64, end: u64, is_told: bool) -> Result<()> {
        let step = u64::from(self.block_size()) * MAX_TX_FREED_BLOCKS;
        while let Some(from) = self.data.next_data(start)?
            && from < end
        {
            self.txgs.txgs().throttle_frees();
            // no thread writes a part of a block meanwhile
            let _size = self.size.write();
            let next = self.data.next_data(from + step)?.unwrap_or(end);
            let to = next.min(end);
            assert!(start <= from && from < to, "each step frees something, further on");
            let tx = self.begin_tx()?;
            tx.add_freed(MAX_TX_FREED_BLOCKS);
            if is_told {
                let (object, length) = (ZVOL_OBJ, to - from);
                self.log.add_itx(
                    &tx,
                    Itx::new_per_object(Body::Truncate { object, offset: from, length }),
                );
            }
            self.data.free_range(&tx, from..to)?;
            start = to;
        }
        Ok(())
    }

    /// Changes the size; content beyond a shorter end is freed. Returns when the change is on the
    /// drives, because the log has no record of it.
    pub fn resize(&self, bytes: u64) -> Result<()> {
        check_size(bytes, self.block_size())?;
        let _one = self.resize_lock.lock();
        // content beyond the end: a power cut may have left it there during a shrink
        let end = *self.size.read();
        self.free_range(end, u64::MAX, false)?;
        let mut size = self.size.write();
        let tx = self.begin_tx()?;
        Zap::open(self.objset.object(ZVOL_ZAP_OBJ)?)?.update_u64(&tx, SIZE_PROPERTY, bytes)?;
        let txg = tx.txg();
        drop(tx);
        *size = bytes;
        drop(size);
        self.free_range(bytes, u64::MAX, false)?;
        if self.txgs.txgs().wait_txg_synced(txg) { Ok(()) } else { Err(Error::Stopped) }
    }

    /// Returns when all that was written will outlast a power cut.
    pub fn flush(&self) -> Result<()> {
        Ok(self.log.commit(Some(ZVOL_OBJ))?)
    }

    /// Replays the log that an import found, and frees it. Returns the number of records; after an
    /// error the rest stays for another attempt.
    pub fn replay_log(&self, records: &mut zil::LogReader) -> Result<u64> {
        let mut count = 0_u64;
        for entry in &mut *records {
            let entry = entry?;
            let tx = self.begin_tx()?;
            self.replay_entry(&tx, &entry)?;
            self.log.record_replayed(&tx, entry.record.seq);
            count += 1;
        }
        let tx = self.begin_tx()?;
        self.log.finish_replay(&tx);
        Ok(count)
    }

    /// A cloned block. The replay copies it: the sharing is not recorded again.
    fn read_cloned_block(&self, pointer: &Blkptr, at: u64) -> Result<Block> {
        let number = at.checked_div(self.block_size().into()).unwrap_or(0);
        let zbookmark = self.data.zbookmark(BlockId::new(number));
        let block = self.objset.source().read(pointer, zbookmark, self.objset.key());
        Ok(block.map_err(dmu::Error::from)?)
    }

    fn replay_entry(&self, tx: &Tx, entry: &ReplayEntry) -> Result<()> {
        let size = self.size.read();
        let put = |offset: u64, bytes: &[u8]| {
            // the volume may have become shorter since
            let left = units::to_usize(size.minus_or_zero(offset));
            self.data.write(tx, offset, bytes.get(..left.min(bytes.len())).unwrap_or_default())
        };
        match &entry.record.body {
            Body::Write(write) => match (&write.data, &entry.block) {
                (Some(bytes), _) => put(write.offset, bytes)?,
                (None, Some(block)) => put(block.offset, &block.content)?,
                (None, None) => {
                    let end = write.offset.saturating_add(write.length);
                    self.data.free_range(tx, write.offset..end)?;
                }
            },
            Body::Truncate { offset, length, .. } => {
                self.data.free_range(tx, *offset..offset.saturating_add(*length))?;
            }
            Body::Clone { offset, block_size, pointers, .. } => {
                let mut at = *offset;
                for pointer in pointers {
                    put(at, &self.read_cloned_block(pointer, at)?)?;
                    at = at.saturating_add(*block_size);
                }
            }
            Body::WriteSynced { .. } => {}
            _ => {
                return Err(Error::UnexpectedRecord {
                    objset: self.objset.id(),
                    seq: entry.record.seq,
                });
            }
        }
        Ok(())
    }
}
