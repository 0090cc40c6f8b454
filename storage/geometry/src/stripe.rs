//! How many sectors a block's data, parity and padding take in rows of a given width.

/// A block cut into rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// Rows in which every data column has a sector.
    pub(crate) full: usize,
    /// Data sectors of the row after those; 0 where there is no such row.
    pub(crate) rest: usize,
    /// Columns, parity included, that have a sector in that last row; 0 where there is no such row.
    pub(crate) big: usize,
    /// Sectors of data and parity.
    pub(crate) total: usize,
}

impl Stripe {
    /// Cuts `sectors` of data. `data`, the data columns of a row, is not 0.
    pub(crate) fn new(sectors: usize, data: usize, parity: usize) -> Self {
        let data = data.max(1);
        let full = sectors / data;
        let rest = sectors % data;
        let rows = full + usize::from(rest > 0);
        let big = if rest == 0 { 0 } else { rest + parity };
        Self { full, rest, big, total: sectors + parity * rows }
    }

    /// How many sectors raidz adds: its allocations are multiples of parity + 1 sectors, so that
    /// no free gap is ever too small to be used.
    pub(crate) fn raidz_padding(&self, parity: usize) -> usize {
        self.total.next_multiple_of(parity + 1) - self.total
    }

    /// Sectors of the column `index`.
    pub(crate) fn height(&self, index: usize) -> usize {
        self.full + usize::from(index < self.big)
    }
}
