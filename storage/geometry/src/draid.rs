//! dRAID: rows over a changing choice of drives, with the spares' space spread over all of them.
//!
//! ```text
//! 8 children, 1 spare (so 7 places in use), groups of 3 data + 1 parity
//! place       0    1    2    3    4    5    6  | 7
//! row 0     |-- group 0 --------||-- group 1 --| spare      each cell is 16 MiB of one drive
//! row 1     --||-- group 2 --------||-- group 3| spare
//! row 2     -------||-- group 4 --------||-- gr| spare
//! row 3     ------------||-- group 6 --------| | spare      7 groups fill 4 rows: one slice
//! ```
//!
//! The array's address space is cut into groups of 16 MiB a column. As many groups as fill whole
//! rows make a slice; in each slice the places are dealt to the drives anew (see `permute`). A
//! group that does not fit the rest of a row continues at the start of the next.
//!
//! Within a group the sectors are numbered row by row as in raidz, but a block always takes whole
//! rows, beginning at the group's first column. The rest of its last row is zeros, which parity
//! covers: so a lost drive can be rebuilt without knowing the blocks. A block that crosses the end
//! of a group is two rows in the map.
//!
//! Distributed spare `s` is, in each slice, the drive at place `children - 1 - s`, at the same
//! offset.
//!
//! Learnt from: `vdev_draid.c` of OpenZFS 2.3.2 and pools it made. Proved by:
//! `map_locates_blocks_of_real_pools`.

mod permutations;
mod seeds;

use crate::Error;
use crate::map::{Block, Column, Map, Shape, child};
use crate::stripe::Stripe;
use permutations::Permutations;
use units::{Ashift, MinusOrZero};

/// Bytes that a group takes of each of its drives.
pub const ROW_HEIGHT: u64 = 16 << 20;
/// Bytes at the end of each drive that hold no data, kept for widening the array some day.
pub const REFLOW_RESERVE: u64 = 2 * ROW_HEIGHT;

/// The dRAID parameters of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraidShape {
    /// Drives in the array.
    pub children: u32,
    /// Data columns of each row (`draid_ndata`).
    pub data: u32,
    /// Parity columns of each row (`nparity`).
    pub parity: u32,
    /// Distributed spares (`draid_nspares`).
    pub spares: u32,
    /// Groups of one slice (`draid_ngroups`).
    pub groups: u32,
}

impl DraidShape {
    /// The shape that `zpool create draidP:Dd:Cc:Ss` makes: the fewest groups that fill whole
    /// rows.
    pub fn with_fewest_groups(children: u32, data: u32, parity: u32, spares: u32) -> Self {
        let width = data.saturating_add(parity).max(1);
        let places = children.minus_or_zero(spares).max(1);
        let groups = (1..=places).find(|count| (count * width).is_multiple_of(places));
        Self { children, data, parity, spares, groups: groups.unwrap_or(places) }
    }

    /// Whether the numbers fit together.
    fn is_valid(self) -> bool {
        let Self { children, data, parity, spares, groups } = self;
        (1..=3).contains(&parity)
            && (1..=255).contains(&data)
            && (2..=255).contains(&children)
            && spares <= 100
            && (1..=255).contains(&groups)
            && data + parity + spares <= children
            && ((data + parity) * groups).is_multiple_of(children - spares)
    }
}

/// A dRAID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draid {
    shape: DraidShape,
    ashift: Ashift,
    permutations: Permutations,
}

impl Draid {
    /// Checks the shape and grows the permutations (some 100 KiB at most).
    pub fn new(shape: DraidShape, ashift: Ashift) -> Result<Self, Error> {
        let DraidShape { children, data, parity, spares, groups } = shape;
        shape
            .is_valid()
            .then(|| Permutations::new(children))
            .flatten()
            .map(|permutations| Self { shape, ashift, permutations })
            .ok_or(Error::DraidShape { children, data, parity, spares, groups })
    }

    /// The numbers it was made of.
    pub fn shape(&self) -> DraidShape {
        self.shape
    }

    /// log2 of the sector.
    pub fn ashift(&self) -> Ashift {
        self.ashift
    }

    /// Columns of a row: data and parity.
    pub fn group_width(&self) -> u32 {
        self.shape.data + self.shape.parity
    }

    /// Bytes of the array's address space that one group has.
    pub fn group_size(&self) -> u64 {
        u64::from(self.group_width()) * ROW_HEIGHT
    }

    /// Bytes of one row of sectors: what every allocation is a multiple of, and begins at a
    /// multiple of.
    pub fn row_size(&self) -> u64 {
        u64::from(self.group_width()) << self.ashift.get()
    }

    /// Bytes that one slice takes of each drive.
    pub fn slice_size(&self) -> u64 {
        self.group_size() * u64::from(self.shape.groups) / u64::from(self.active_children())
    }

    /// Bytes that a block of `psize` bytes takes of the array: whole rows.
    pub fn asize(&self, psize: u64) -> u64 {
        let row = u64::from(self.shape.data) << self.ashift.get();
        psize.max(1).div_ceil(row) * self.row_size()
    }

    /// The child that holds the data of distributed spare `spare` at a child's `offset`; it is read
    /// and written at that same offset. `None` if there is no such spare.
    pub fn spare_child(&self, spare: u32, offset: u64) -> Option<usize> {
        let place = self.shape.children.checked_sub(1)?.checked_sub(spare)?;
        (spare < self.shape.spares)
            .then(|| self.permutations.child(offset / self.slice_size(), place as usize))
    }

    /// Where the columns of `block` are: one row, or two where it crosses the end of a group.
    pub fn map(&self, block: Block) -> Result<Map, Error> {
        let sectors = block.sectors(self.ashift)?;
        let Block { offset, .. } = block;
        if !offset.is_multiple_of(self.row_size()) {
            return Err(Error::Unaligned { offset, unit: self.row_size() });
        }
        let (data, width) = (self.shape.data as usize, self.group_width() as usize);
        let parity = self.shape.parity as usize;
        // the number of data sectors that fit into the rest of the group
        let rows_left = (self.group_size() - offset % self.group_size()) / self.row_size();
        let first = sectors.count.min(child(rows_left) * data);
        let rest = sectors.count - first;
        let rows = 1 + usize::from(rest > 0);
        let size = sectors.count << self.ashift.get();
        let padding = (data - first % data) % data + (data - rest % data) % data;
        let mut map = Map::with_shape(Shape { rows, width, parity, size }, padding);
        let next = offset + self.asize((first as u64) << self.ashift.get());
        let parts =
            [Part { offset, first: 0, count: first }, Part { offset: next, first, count: rest }];
        for part in &parts[..rows] {
            self.push_row(&mut map, *part);
        }
        for part in &parts[..rows] {
            self.push_padding(&mut map, *part);
        }
        map.set_zero_padding();
        map.assert_complete(self.asize(units::to_u64(block.size)));
        Ok(map)
    }

    fn push_row(&self, map: &mut Map, part: Part) {
        let (parity, shift) = (self.shape.parity as usize, self.ashift.get());
        let stripe = Stripe::new(part.count, self.shape.data as usize, parity);
        let group = self.group(part.offset);
        let mut data_start = part.first << shift;
        for index in 0..self.group_width() as usize {
            let (child, offset) = group.column(self, index);
            let size = stripe.height(index) << shift;
            let is_data = index >= parity;
            let start = if is_data { data_start } else { 0 };
            map.push(Column { child, offset, size, data_start: start, scratch: false });
            data_start += if is_data { size } else { 0 };
        }
    }

    fn push_padding(&self, map: &mut Map, part: Part) {
        let (parity, shift) = (self.shape.parity as usize, self.ashift.get());
        let stripe = Stripe::new(part.count, self.shape.data as usize, parity);
        if stripe.last_row_sectors == 0 {
            return;
        }
        let group = self.group(part.offset);
        for index in stripe.last_row_columns..self.group_width() as usize {
            let (child, offset) = group.column(self, index);
            let offset = offset + ((stripe.full_rows as u64) << shift);
            map.push(Column { child, offset, size: 1 << shift, data_start: 0, scratch: false });
        }
    }

    /// Drives that are not spare, in each slice.
    fn active_children(&self) -> u32 {
        self.shape.children - self.shape.spares
    }

    /// Where the group that `offset` of the array lies in has that offset.
    fn group(&self, offset: u64) -> Group {
        let (width, places) = (u64::from(self.group_width()), u64::from(self.active_children()));
        let groups = u64::from(self.shape.groups);
        let group = offset / self.group_size();
        let slice = group / groups;
        let before = (group % groups) * width;
        let row = slice * (groups * width / places) + before / places;
        let within = offset % self.group_size() / self.row_size();
        Group {
            slice,
            first_position: child(before % places),
            offset: row * ROW_HEIGHT + (within << self.ashift.get()),
        }
    }
}

/// A part of a block that lies in one group.
#[derive(Clone, Copy)]
struct Part {
    /// Bytes on the top-level vdev.
    offset: u64,
    /// Its first sector of the block's data.
    first: usize,
    /// Its sectors of the block's data.
    count: usize,
}

/// A place in a group.
struct Group {
    slice: u64,
    first_position: usize,
    /// Bytes on the drives of the group's first columns, up to the end of the row of places.
    offset: u64,
}

impl Group {
    /// Child and offset of the group's column `index`.
    fn column(&self, draid: &Draid, index: usize) -> (usize, u64) {
        let places = draid.active_children() as usize;
        let place = self.first_position + index;
        let wrapped = if place >= places { ROW_HEIGHT } else { 0 };
        (draid.permutations.child(self.slice, place % places), self.offset + wrapped)
    }
}
