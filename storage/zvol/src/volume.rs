//! A volume: its size, its content by range.

use std::sync::Arc;

use dmu::{Object, Objset};
use ondisk::objset::Kind;
use units::{BlockId, Level, MinusOrZero, ObjectId, Zbookmark};
use zap::Zap;
use zil::extents::{self, ExtentContent, LogExtents};

use crate::replay::{self, ReplaySummary};
use crate::{Error, Result};

pub(crate) const ZVOL_OBJ: ObjectId = ObjectId::new(1);
pub(crate) const ZVOL_ZAP_OBJ: ObjectId = ObjectId::new(2);
/// The property that holds its size.
pub(crate) const SIZE_PROPERTY: &[u8] = b"size";

/// A volume. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Volume {
    data: Object,
    size: u64,
    log_extents: Arc<LogExtents>,
}

impl Volume {
    /// Opens the volume that an object set holds. If `log` gives records, they are laid over it in
    /// memory, as an import would replay them; without it the last txg shows as it is.
    pub fn open(
        objset: &Objset,
        log: Option<&mut zil::LogReader>,
    ) -> Result<(Self, ReplaySummary)> {
        let id = objset.id();
        if objset.header().kind != Kind::Volume {
            return Err(Error::NotVolume { objset: id });
        }
        let table = Zap::open(objset.object(ZVOL_ZAP_OBJ)?)?;
        let size = table.lookup_u64(SIZE_PROPERTY)?.ok_or(Error::MissingSize { objset: id })?;
        let data = objset.object(ZVOL_OBJ)?;
        let (log, replayed) = match log {
            Some(log) => replay::apply_log(log),
            None => (LogExtents::default(), ReplaySummary::default()),
        };
        Ok((Self { data, size, log_extents: Arc::new(log) }, replayed))
    }

    /// Bytes of it (volsize).
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a block (volblocksize).
    pub fn block_size(&self) -> u32 {
        self.data.block_size()
    }

    /// The object that holds its content.
    pub fn object(&self) -> &Object {
        &self.data
    }

    /// Whether the intent log has content for it: then [`Volume::object`] does not show the present
    /// content.
    pub fn is_overlaid(&self) -> bool {
        !self.log_extents.is_empty()
    }

    /// Reads from byte `offset` on; returns the number of bytes, less than requested at the end.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let left = units::to_usize(self.size.minus_or_zero(offset));
        let count = left.min(into.len());
        let end = offset + units::to_u64(count);
        let (mut at, mut rest) = (offset, into);
        while at < end {
            let piece = self.log_extents.slice_at(at, end);
            assert!(at < piece.end && piece.end <= end, "each piece is a part of the range");
            let length = units::to_usize(piece.end - at);
            let (now, later) = rest.split_at_mut(length.min(rest.len()));
            match piece.content {
                None => self.data.read(at, now)?,
                Some(ExtentContent::Zeros) => now.fill(0),
                Some(ExtentContent::Bytes { data: all, .. }) => {
                    extents::copy_padded(all, self.log_extents.skip_at(at), now);
                }
                Some(ExtentContent::Block { pointer, .. }) if pointer.is_hole() => now.fill(0),
                Some(ExtentContent::Block { pointer, .. }) => {
                    let objset = self.data.objset();
                    let number = at.checked_div(pointer.lsize().into()).unwrap_or(0);
                    let zbookmark =
                        Zbookmark::new(objset.id(), ZVOL_OBJ, Level::new(0), BlockId::new(number));
                    let block = objset.source().read(pointer, zbookmark, objset.key());
                    let block = block.map_err(dmu::Error::from)?;
                    extents::copy_padded(&block, self.log_extents.skip_at(at), now);
                }
            }
            (at, rest) = (piece.end, later);
        }
        Ok(count)
    }

    /// The first byte from `from` on that is not in a hole; `None` if there is none.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        let mut at = from;
        while at < self.size {
            let piece = self.log_extents.slice_at(at, self.size);
            match piece.content {
                Some(ExtentContent::Zeros) => {}
                Some(_) => return Ok(Some(at)),
                None => {
                    let found = self.data.next_data(at)?.filter(|found| *found < piece.end);
                    if found.is_some() {
                        return Ok(found);
                    }
                }
            }
            at = piece.end;
        }
        Ok(None)
    }

    /// The first byte from `from` on that is in a hole; the end of the volume is one.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        let mut at = from;
        while at < self.size {
            let piece = self.log_extents.slice_at(at, self.size);
            match piece.content {
                Some(ExtentContent::Zeros) => return Ok(at),
                Some(_) => {}
                None => {
                    let found = self.data.next_hole(at)?;
                    if found < piece.end {
                        return Ok(found);
                    }
                }
            }
            at = piece.end;
        }
        Ok(self.size.max(from))
    }
}
