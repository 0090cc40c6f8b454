//! Where a block's bytes are: rows of columns.
//!
//! ```text
//!            parity       data
//! row 0   | P | Q |  D0 |  D1 |  D2 |     an ordinary raidz block has one row, whose columns
//!         |   |   |     |     |            may be many sectors high (a column is contiguous);
//! row 1   | P | Q |  D0 |  D1 |  -  |     a block on a widened raidz has many, one sector high;
//!                                          a dRAID block has two where it crosses into a group
//! ```
//!
//! Parity is computed along a row: over all its data columns, in order, each taken as if zeros
//! followed it up to the height of the parity columns. A data column of size 0 counts in that too
//! (it shifts the coefficients of the second and third parity), though nothing is read for it.
//! Which bytes of the block a data column holds is said by [`Column::data`]; these ranges, over
//! all rows, tile the block exactly once.

use std::ops::Range;

use crate::{BOOT_SIZE, Error, LABEL_START, MAX_BLOCK};
use units::Ashift;

/// A block's place on a top-level vdev, from its DVA and its block pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins on the top-level vdev, bytes (a DVA's offset).
    pub offset: u64,
    /// Its physical size, bytes; need not be whole sectors.
    pub size: usize,
}

/// One child's part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Which child of the array holds it.
    pub child: usize,
    /// Where on the child, bytes, not counting the labels at the child's start.
    pub offset: u64,
    /// How many bytes; whole sectors, 0 for a data column that is beyond the block's end.
    pub size: usize,
    /// Which byte of the block is its first; 0 for parity.
    pub data_start: usize,
    /// Whether the bytes are still in the scratch copy that an interrupted expansion left in the
    /// child's boot area: then `offset` counts from the start of that area.
    pub scratch: bool,
}

impl Column {
    /// The bytes of the block that a data column holds. The last may reach beyond the block's
    /// physical size, up to the end of the sector.
    pub fn data(&self) -> Range<usize> {
        self.data_start..self.data_start + self.size
    }

    /// Where it is on the drive, counted from the drive's first byte.
    pub fn device_offset(&self) -> u64 {
        let start = if self.scratch { LABEL_START - BOOT_SIZE } else { LABEL_START };
        start + self.offset
    }
}

/// A second place of a column, at the new width of an array that is being expanded: writes go to both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The row of the column.
    pub row: usize,
    /// The index of the column in its row.
    pub index: usize,
    /// Which child of the array holds it.
    pub child: usize,
    /// Where on the child, bytes, counted as in [`Column::offset`].
    pub offset: u64,
    /// Whether it is in the scratch copy in the child's boot area.
    pub scratch: bool,
}

/// One row: the columns that share parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    columns: &'a [Column],
    parity: usize,
}

impl<'a> Row<'a> {
    /// All columns, parity first.
    pub fn columns(self) -> &'a [Column] {
        self.columns
    }

    /// The parity columns: the plain sum, then the powers of 2, then the powers of 4.
    pub fn parity(self) -> &'a [Column] {
        self.columns.get(..self.parity).unwrap_or_default()
    }

    /// The data columns.
    pub fn data(self) -> &'a [Column] {
        self.columns.get(self.parity..).unwrap_or_default()
    }

    /// Whether each column lies on a child of its own, so that a lost child costs one column.
    fn is_spread(self) -> bool {
        let columns = self.columns.iter().enumerate();
        columns.into_iter().all(|(at, column)| {
            let others = self.columns.get(at + 1..).unwrap_or_default();
            others.iter().all(|other| other.child != column.child)
        })
    }

    /// Bytes of each parity column: the height of the row.
    pub fn height(self) -> usize {
        self.columns.first().map_or(0, |column| column.size)
    }
}

/// Where a block's bytes and parities are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The rows one after the other, each `width` long, then the padding: one allocation.
    columns: Vec<Column>,
    shadows: Vec<Shadow>,
    width: usize,
    rows: usize,
    parity: usize,
    size: usize,
    zero_padding: bool,
}

impl Map {
    /// An empty map with capacity for `rows` rows and `padding` sectors without data.
    pub(crate) fn with_shape(shape: Shape, padding: usize) -> Self {
        let Shape { rows, width, parity, size } = shape;
        assert!(parity < width, "a row of {width} columns has data beside {parity} of parity");
        let columns = Vec::with_capacity((rows * width) + padding);
        Self { columns, shadows: Vec::new(), width, rows, parity, size, zero_padding: false }
    }

    /// Adds the next column, or, after all rows are full, a sector of padding.
    pub(crate) fn push(&mut self, column: Column) {
        self.columns.push(column);
    }

    /// Adds a second place of a column.
    pub(crate) fn push_shadow(&mut self, shadow: Shadow) {
        self.shadows.push(shadow);
    }

    /// Second places of columns, by row: none, except while an expansion runs.
    pub fn shadows(&self) -> &[Shadow] {
        &self.shadows
    }

    /// Lets the first two columns of the row that was pushed last change drives.
    pub(crate) fn swap_first_two_of_last_row(&mut self) {
        let start = self.columns.len() - self.width;
        if let Some([a, b, ..]) = self.columns.get_mut(start..) {
            std::mem::swap(&mut a.child, &mut b.child);
            std::mem::swap(&mut a.offset, &mut b.offset);
            std::mem::swap(&mut a.scratch, &mut b.scratch);
        }
    }

    /// Asserts that the map is a whole block, in the space that is allocated for it.
    ///
    /// The allocator and the map compute the size of a block apart. If they differed, a write would reach
    /// into the next block.
    pub(crate) fn assert_complete(&self, asize: u64) {
        let total: usize = self.columns.iter().map(|column| column.size).sum();
        assert_eq!(units::to_u64(total), asize, "columns and padding are what is allocated");
        let data: usize = self.rows().flat_map(Row::data).map(|column| column.size).sum();
        assert_eq!(data, self.size, "the data columns hold the block");
        assert!(
            self.rows().all(|row| row.parity().iter().all(|column| column.size == row.height())),
            "parity columns are as high as their row"
        );
        debug_assert!(self.rows().all(Row::is_spread), "no child has two columns of a row");
    }

    /// Marks the padding as zeros on disk that parity covers (dRAID).
    pub(crate) fn set_zero_padding(&mut self) {
        self.zero_padding = true;
    }

    /// The rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> + Clone {
        let filled = self.columns.get(..self.rows * self.width).unwrap_or_default();
        let parity = self.parity;
        filled.chunks_exact(self.width).map(move |columns| Row { columns, parity })
    }

    /// The sectors that belong to the block's allocation but hold none of its data, each as a
    /// column of one sector. They are never read, except for a rebuild where [`Map::zero_padding`].
    pub fn padding(&self) -> &[Column] {
        self.columns.get(self.rows * self.width..).unwrap_or_default()
    }

    /// Whether the padding must be written as zeros (dRAID, whose rebuild reads whole rows without
    /// knowing blocks) or may hold anything (raidz).
    pub fn zero_padding(&self) -> bool {
        self.zero_padding
    }

    /// How many columns of each row are parity.
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// Bytes of data that the columns hold: the block's physical size in whole sectors.
    pub fn size(&self) -> usize {
        self.size
    }
}

/// The outline of a map.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) parity: usize,
    pub(crate) size: usize,
}

/// A block's place in sectors, checked.
#[derive(Clone, Copy)]
pub(crate) struct Sectors {
    /// The first on the top-level vdev.
    pub(crate) first: u64,
    /// How many hold data.
    pub(crate) count: usize,
}

impl Block {
    /// The same in sectors; refuses what cannot be a block's address.
    pub(crate) fn sectors(self, ashift: Ashift) -> Result<Sectors, Error> {
        let Self { offset, size } = self;
        if !offset.is_multiple_of(ashift.bytes()) {
            return Err(Error::Unaligned { offset, unit: ashift.bytes() });
        }
        if size == 0 || size > MAX_BLOCK {
            return Err(Error::Size { size });
        }
        // so far from overflow that no sum below can reach it
        if offset >= 1 << 62 {
            return Err(Error::OffsetTooLarge { offset });
        }
        Ok(Sectors { first: offset >> ashift.get(), count: size.div_ceil(1 << ashift.get()) })
    }
}

/// The child index for a sector number that was taken modulo a number of children.
pub(crate) fn child(remainder: u64) -> usize {
    units::to_usize(remainder)
}
