//! The changes of a log to one object's content: ranges laid over the dataset's own content.
//!
//! Later writes cover earlier ones. Blocks that the log points to stay pointers and are read when
//! they are wanted, so that memory is bounded by the size of the log itself.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use ondisk::Blkptr;

/// The content of a range.
#[derive(Clone, Debug)]
pub enum ExtentContent {
    /// It was freed.
    Zeros,
    /// Bytes from a record, from `skip` on.
    Bytes {
        /// All bytes of the record.
        data: Arc<[u8]>,
        /// How many of them come before the range.
        skip: usize,
    },
    /// A block that a record points to, from `skip` on.
    Block {
        /// The block.
        pointer: Arc<Blkptr>,
        /// How many of its bytes come before the range.
        skip: usize,
    },
}

impl ExtentContent {
    fn skip_forward(&self, distance: u64) -> Self {
        let distance = units::to_usize(distance);
        let mut out = self.clone();
        match &mut out {
            Self::Zeros => {}
            Self::Bytes { skip, .. } | Self::Block { skip, .. } => {
                *skip += distance;
            }
        }
        out
    }
}

/// A part of a wanted range.
#[derive(Clone, Copy, Debug)]
pub struct ExtentSlice<'a> {
    /// Its first byte.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
    /// The content from the log; `None` where the dataset's own content is visible.
    pub content: Option<&'a ExtentContent>,
}

/// The ranges that a log put over an object's content; they do not overlap.
#[derive(Clone, Debug, Default)]
pub struct LogExtents {
    /// By their first byte: the byte after their last, and their content.
    ranges: BTreeMap<u64, (u64, ExtentContent)>,
}

impl LogExtents {
    /// Whether the log left the content alone.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Lays `content` over the bytes from `start` up to `end`.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn insert(&mut self, start: u64, end: u64, content: ExtentContent) {
        if start >= end {
            return;
        }
        // an older range that overlaps the start is cut, and its part after the end is kept
        if let Some((&first, (last, _))) = self.ranges.range(..start).next_back()
            && *last > start
        {
            let last = *last;
            if let Some((cut, old)) = self.ranges.get_mut(&first) {
                *cut = start;
                let tail = old.skip_forward(end - first);
                if last > end {
                    self.ranges.insert(end, (last, tail));
                }
            }
        }
        while let Some((&first, (last, _))) = self.ranges.range(start..end).next() {
            let last = *last;
            let Some((_, old)) = self.ranges.remove(&first) else { break };
            if last > end {
                self.ranges.insert(end, (last, old.skip_forward(end - first)));
            }
        }
        let before = self.ranges.range(..start).next_back();
        let after = self.ranges.range(start..).next();
        assert!(
            before.is_none_or(|(_, (last, _))| *last <= start)
                && after.is_none_or(|(first, _)| *first >= end),
            "the ranges of a log do not overlap"
        );
        self.ranges.insert(start, (end, content));
    }

    /// The piece that holds the byte at `at`, as far as `end` at most.
    pub fn slice_at(&self, at: u64, end: u64) -> ExtentSlice<'_> {
        if let Some((_, (last, content))) = self.ranges.range(..=at).next_back()
            && *last > at
        {
            return ExtentSlice { start: at, end: end.min(*last), content: Some(content) };
        }
        let next = self.ranges.range((Excluded(at), Unbounded)).next();
        let until = next.map_or(end, |(first, _)| end.min(*first));
        ExtentSlice { start: at, end: until, content: None }
    }

    /// How many bytes of the content of the range at `at` come before `at`.
    pub fn skip_at(&self, at: u64) -> usize {
        let Some((first, (_, content))) = self.ranges.range(..=at).next_back() else { return 0 };
        let inside = units::to_usize(at - *first);
        match content {
            ExtentContent::Zeros => inside,
            ExtentContent::Bytes { skip, .. } | ExtentContent::Block { skip, .. } => skip + inside,
        }
    }
}

/// Copies `all` from `skip` on, and zeros after its end.
pub fn copy_padded(all: &[u8], skip: usize, into: &mut [u8]) {
    let from = all.get(skip..).unwrap_or(&[]);
    let count = from.len().min(into.len());
    let (head, tail) = into.split_at_mut(count);
    if let Some(from) = from.get(..count) {
        head.copy_from_slice(from);
    }
    tail.fill(0);
}

#[cfg(test)]
mod tests {
    use super::{ExtentContent, LogExtents, copy_padded};

    fn bytes(text: &[u8]) -> ExtentContent {
        ExtentContent::Bytes { data: text.into(), skip: 0 }
    }

    fn render(extents: &LogExtents, base: &[u8]) -> String {
        let mut out = base.to_vec();
        let (mut at, end) = (0, out.len() as u64);
        while at < end {
            let piece = extents.slice_at(at, end);
            let place = |at: u64| usize::try_from(at).unwrap();
            let range = &mut out[place(piece.start)..place(piece.end)];
            match piece.content {
                Some(ExtentContent::Bytes { data: all, .. }) => {
                    copy_padded(all, extents.skip_at(at), range);
                }
                Some(_) => range.fill(b'0'),
                None => {}
            }
            at = piece.end;
        }
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn later_writes_cover_earlier_ones() {
        let mut extents = LogExtents::default();
        assert_eq!(render(&extents, b"----------"), "----------");
        extents.insert(2, 8, bytes(b"abcdef"));
        assert_eq!(render(&extents, b"----------"), "--abcdef--");
        extents.insert(4, 6, bytes(b"XY"));
        assert_eq!(render(&extents, b"----------"), "--abXYef--");
        extents.insert(1, 3, bytes(b"PQ"));
        assert_eq!(render(&extents, b"----------"), "-PQbXYef--");
        extents.insert(7, u64::MAX, ExtentContent::Zeros);
        assert_eq!(render(&extents, b"----------"), "-PQbXYe000");
        extents.insert(0, 9, bytes(b"123456789"));
        assert_eq!(render(&extents, b"----------"), "1234567890");
        extents.insert(5, 5, ExtentContent::Zeros);
        assert_eq!(render(&extents, b"----------"), "1234567890");
    }
}
