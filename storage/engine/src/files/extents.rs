//! Data ranges, holes and unreadable ranges of content.

use dmu::{BlockVisit, WalkControl, WalkOptions};
use units::MinusOrZero as _;

use super::{Content, Error, Result};

/// A range of content.
#[derive(Clone, Debug)]
pub enum Extent {
    /// It holds data.
    Data {
        /// The offset of its first byte.
        start: u64,
        /// The offset behind its last byte.
        end: u64,
    },
    /// The range is unreadable.
    Unreadable {
        /// The offset of its first byte.
        start: u64,
        /// The offset behind its last byte.
        end: u64,
        /// Why not.
        why: Error,
    },
}

/// Walks over the ranges of a content, holes left out; ends with the content.
pub struct Extents {
    content: Content,
    offset: u64,
    size: u64,
}

impl Extents {
    pub(crate) fn new(content: Content, from: u64) -> Self {
        let size = content.size();
        Self { content, offset: from, size }
    }

    fn unreadable_extent(&mut self, at: u64, why: Error) -> Extent {
        let end = self.content.error_end(at, &why);
        self.offset = end;
        Extent::Unreadable { start: at, end, why }
    }
}

impl Iterator for Extents {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        if self.offset >= self.size {
            return None;
        }
        let start = match self.content.next_data(self.offset) {
            Ok(None) => {
                self.offset = self.size;
                return None;
            }
            Ok(Some(start)) => start,
            Err(why) => {
                let from = self.content.error_start(self.offset, &why);
                return Some(self.unreadable_extent(from, why));
            }
        };
        if start >= self.size {
            self.offset = self.size;
            return None;
        }
        let end = match self.content.next_hole(start) {
            Ok(end) => end,
            // the data before the unreadable range is still data
            Err(why) => match self.content.error_start(start, &why) {
                bad if bad > start => bad,
                _ => return Some(self.unreadable_extent(start, why)),
            },
        };
        let end = end.clamp(start + 1, self.size);
        self.offset = end;
        Some(Extent::Data { start, end })
    }
}

impl Content {
    /// Bytes allocated for its blocks, with indirect blocks, parity and all copies. Dirty data
    /// is not counted, nor a file embedded in its attributes.
    pub fn allocated(&self) -> Result<u64> {
        let (mut sum, mut trouble) = (0_u64, None);
        if let Some(object) = self.object() {
            object.walk(&WalkOptions::default(), &mut |_, found| {
                match found {
                    BlockVisit::Pointer(pointer) => sum += pointer.allocated(),
                    BlockVisit::Error(error) => trouble = Some(error.clone()),
                }
                if trouble.is_some() { WalkControl::Stop } else { WalkControl::Descend }
            });
        }
        trouble.map_or(Ok(sum), |error| Err(error.into()))
    }

    /// How many bytes a block of a level spans.
    fn block_span(&self, level: u8) -> u64 {
        let Some(object) = self.object() else { return self.block_size() };
        let pointers = u64::from(object.dnode().indirect_size()) / 128;
        let below = pointers.checked_pow(level.into()).unwrap_or(u64::MAX);
        self.block_size().saturating_mul(below.max(1))
    }

    /// The range of the block that an error is about, if it is one of this content.
    fn error_range(&self, why: &Error) -> Option<(u64, u64)> {
        let (place, object) = (why.zbookmark()?, self.object()?);
        if place.object != object.id() || place.objset != object.objset().id() {
            return None;
        }
        let span = self.block_span(place.level.get());
        let start = place.block.get().checked_mul(span)?;
        Some((start, start.checked_add(span)?))
    }

    fn error_start(&self, at: u64, why: &Error) -> u64 {
        let start = self.error_range(why).map_or(at, |(start, _)| start.max(at));
        start.min(self.size().minus_or_zero(1)).max(at)
    }

    /// The position after an error at `at`: behind the unreadable range.
    pub fn error_end(&self, at: u64, why: &Error) -> u64 {
        let size = self.block_size();
        let next = (at.checked_div(size).unwrap_or(0) + 1) * size;
        let end = self.error_range(why).map_or(next, |(_, end)| end.max(next));
        end.min(self.size()).max(at + 1)
    }
}
