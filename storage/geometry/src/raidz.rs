//! raidz1 to 3 whose blocks were all written at the array's present width.
//!
//! The array's sectors are numbered across its drives, row by row: sector `n` is on drive
//! `n % width`, at sector `n / width` of it. A block takes consecutive numbers. Its first row
//! begins with the parity columns, and each column continues straight down its drive.
//!
//! ```text
//! width 5, parity 1, a block of 6 data sectors at sector 2
//! drive    0     1     2     3     4
//! row 0                P0    D0    D2
//! row 1    D4    D5    P1    D1    D3        columns: P D0-1 D2-3 D4 D5
//! ```
//!
//! The block's bytes go down the columns: column 1 has the first, column 2 the next ones.
//!
//! One exception is part of the format: with a single parity, in every other MiB of the array
//! (bit 20 of the block's offset), the parity column and the first data column change drives.
//!
//! Learnt from: `vdev_raidz.c` of OpenZFS 2.3.2 and pools it made. Proved by:
//! `map_locates_blocks_of_real_pools`.

use crate::map::{Block, Column, Map, Shape, child};
use crate::stripe::Stripe;
use crate::{Error, MAX_BLOCK};
use units::Ashift;

/// The bit of a block's offset that selects each other MiB, in which a single parity changes
/// places.
pub(crate) const SWAP_BIT: u64 = 1 << 20;

/// A raidz of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raidz {
    width: u32,
    parity: u32,
    ashift: Ashift,
}

impl Raidz {
    /// An array of `children` drives, 2 to 255, with `parity` 1 to 3.
    pub fn new(children: u32, parity: u32, ashift: Ashift) -> Result<Self, Error> {
        if !(1..=3).contains(&parity) || children <= parity || children > 255 {
            return Err(Error::RaidzShape { children, parity });
        }
        Ok(Self { width: children, parity, ashift })
    }

    /// How many children each row spans.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// How many parity columns each row has.
    pub fn parity(&self) -> u32 {
        self.parity
    }

    /// log2 of the sector.
    pub fn ashift(&self) -> Ashift {
        self.ashift
    }

    /// Bytes that a block of `psize` bytes takes of the array, parity and padding included.
    /// Saturates beyond any size a block can have.
    pub fn asize(&self, psize: u64) -> u64 {
        let bounded = units::to_usize(psize.max(1)).min(4 * MAX_BLOCK);
        let stripe = self.stripe(bounded.div_ceil(1 << self.ashift.get()));
        let sectors = stripe.total_sectors + stripe.raidz_padding(self.parity as usize);
        (sectors as u64) << self.ashift.get()
    }

    /// Where the columns of `block` are: one row.
    ///
    /// # Panics
    /// If the columns do not hold the block: our own arithmetic is wrong.
    pub fn map(&self, block: Block) -> Result<Map, Error> {
        let sectors = block.sectors(self.ashift)?;
        let (width, parity) = (self.width as usize, self.parity as usize);
        let shift = self.ashift.get();
        let stripe = self.stripe(sectors.count);
        let padding = stripe.raidz_padding(parity);
        let columns = if stripe.full_rows == 0 { stripe.last_row_columns } else { width };
        let shape = Shape { rows: 1, width: columns, parity, size: sectors.count << shift };
        let mut map = Map::with_shape(shape, padding);

        let place = |number: usize| {
            let sector = sectors.first + number as u64;
            let width = u64::from(self.width);
            (child(sector % width), (sector / width) << shift)
        };
        let mut data_start = 0;
        for index in 0..columns {
            let (child, offset) = place(index);
            let size = stripe.height(index) << shift;
            let is_data = index >= parity;
            let start = if is_data { data_start } else { 0 };
            map.push(Column { child, offset, size, data_start: start, scratch: false });
            data_start += if is_data { size } else { 0 };
        }
        if parity == 1 && block.offset & SWAP_BIT != 0 {
            map.swap_first_two_of_last_row();
        }
        for number in stripe.total_sectors..stripe.total_sectors + padding {
            let (child, offset) = place(number);
            map.push(Column { child, offset, size: 1 << shift, data_start: 0, scratch: false });
        }
        map.assert_complete(self.asize(units::to_u64(block.size)));
        Ok(map)
    }

    fn stripe(&self, sectors: usize) -> Stripe {
        Stripe::new(sectors, (self.width - self.parity) as usize, self.parity as usize)
    }
}
