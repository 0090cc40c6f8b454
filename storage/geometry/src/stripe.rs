//! How many sectors a block's data, parity and padding take in rows of a given width.

/// A block cut into rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// Rows in which every data column has a sector.
    pub(crate) full_rows: usize,
    /// Data sectors of the row after those; 0 where there is no such row.
    pub(crate) last_row_sectors: usize,
    /// Columns, parity included, that have a sector in that last row; 0 where there is no such row.
    pub(crate) last_row_columns: usize,
    /// Sectors of data and parity.
    pub(crate) total_sectors: usize,
}

impl Stripe {
    /// Cuts `sectors` of data. `data`, the data columns of a row, is not 0.
    pub(crate) fn new(sectors: usize, data: usize, parity: usize) -> Self {
        let data = data.max(1);
        let full_rows = sectors / data;
        let last_row_sectors = sectors % data;
        let rows = full_rows + usize::from(last_row_sectors > 0);
        let last_row_columns = if last_row_sectors == 0 { 0 } else { last_row_sectors + parity };
        Self {
            full_rows,
            last_row_sectors,
            last_row_columns,
            total_sectors: sectors + parity * rows,
        }
    }

    /// How many sectors raidz adds: its allocations are multiples of parity + 1 sectors, so that
    /// no free gap is ever too small to be used.
    pub(crate) fn raidz_padding(&self, parity: usize) -> usize {
        self.total_sectors.next_multiple_of(parity + 1) - self.total_sectors
    }

    /// Sectors of the column `index`.
    pub(crate) fn height(&self, index: usize) -> usize {
        self.full_rows + usize::from(index < self.last_row_columns)
    }
}
