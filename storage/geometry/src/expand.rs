//! raidz that was expanded by a drive, or is being expanded.
//!
//! An expansion moves every sector of the array, in order, so that sector `n` is on drive
//! `n % new_width` instead of `n % old_width`. The rows of a block do not change: a block written
//! when the array was 4 wide keeps rows of 4 (its *logical* width). Those 4 consecutive sectors now
//! begin on any drive of the wider array, and columns no longer go straight down a drive. So each
//! row is placed by itself:
//!
//! ```text
//! logical width 3, parity 1, on 4 drives; 4 data sectors at sector 2
//! drive    0     1     2     3
//! row 0                P0    D0           row 0 of the block: P0 D0 D2
//! row 1    D2    P1    D1    D3           row 1 of the block: P1 D1 D3
//! ```
//!
//! The bytes of a column are those of an ordinary block: they go down the columns.
//!
//! A block's width follows from its (physical) birth: the label lists the txgs in which expansions
//! finished, and each one at or before the birth adds a drive.
//!
//! While an expansion runs, the uberblock records its progress as an offset. Rows that end at or
//! before that offset are found at the new width, all others at the old one. At the very start,
//! sectors would overwrite themselves, so a scratch copy in the boot area holds them, laid out at
//! the new width. An uberblock with that state makes readers use the scratch copy.
//!
//! Copying runs ahead of what the uberblock records. A write to a sector that is copied already, in a row
//! that is still read at the old width, goes to both places: the second is the column's *shadow*.
//!
//! ```text
//! raidz_reflow_info of the uberblock, one 64-bit word
//! bits   0-54  offset, in units of 512 bytes of the array
//! bits  55-63  state of the scratch copy: 1 = it holds the data, all others = not in use
//! ```
//!
//! Learnt from: `vdev_raidz.c`, `uberblock_impl.h` of OpenZFS 2.3.2 and pools it made. Proved by:
//! `map_locates_blocks_of_real_pools`.

use crate::map::{Block, Column, Map, Sectors, Shadow, Shape, child};
use crate::raidz::{Raidz, SWAP_BIT};
use crate::stripe::Stripe;
use crate::{BOOT_SIZE, Error};
use units::Txg;

/// How far a running expansion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflow {
    /// Everything below is at its new place; bytes of the top-level vdev.
    pub offset: u64,
    /// Whether sectors below this offset are read from the scratch copy in the boot area.
    pub scratch: bool,
}

impl Reflow {
    /// Reads the uberblock's word, `ub_raidz_reflow_info`.
    pub fn from_uberblock(info: u64) -> Self {
        Self { offset: (info & ((1 << 55) - 1)) << 9, scratch: info >> 55 == 1 }
    }
}

impl From<Reflow> for ReflowPosition {
    fn from(reflow: Reflow) -> Self {
        Self { synced: reflow.offset, next: reflow.offset, scratch: reflow.scratch }
    }
}

/// The progress of a running expansion in memory: copying runs ahead of the uberblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflowPosition {
    /// The uberblock on the drives records this offset: bytes of the top-level vdev.
    pub synced: u64,
    /// All sectors below are copied to their new place; bytes, not less than `synced`.
    pub next: u64,
    /// Whether the scratch copy holds all sectors below `synced`.
    pub scratch: bool,
}

/// A raidz, as its label describes it, that may have been expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expandable {
    current: Raidz,
    original_width: u32,
    /// When the expansions were finished, ascending.
    expansion_txgs: Vec<Txg>,
    reflow: Option<Reflow>,
}

impl Expandable {
    /// `now` has the number of children that the label lists; `finished` is the label's
    /// `raidz_expand_txgs` in any order; `reflow` is there while the label says
    /// `raidz_expanding`.
    pub fn new(now: Raidz, finished: &[Txg], reflow: Option<Reflow>) -> Result<Self, Error> {
        let expansions = finished.len() + usize::from(reflow.is_some());
        let original = u32::try_from(expansions)
            .ok()
            .and_then(|count| now.width().checked_sub(count))
            .filter(|width| *width > now.parity())
            .ok_or(Error::ExpansionCount {
                children: now.width(),
                parity: now.parity(),
                expansions,
            })?;
        let mut finished = finished.to_vec();
        finished.sort_unstable();
        Ok(Self { current: now, original_width: original, expansion_txgs: finished, reflow })
    }

    /// The array at its present number of children.
    pub fn current(&self) -> Raidz {
        self.current
    }

    /// The number of children at its creation. It determines the deflate ratio, which never
    /// changes.
    pub fn original_width(&self) -> u32 {
        self.original_width
    }

    /// The expansion that is running.
    pub fn reflow(&self) -> Option<Reflow> {
        self.reflow
    }

    /// The width of the rows of a block that was born in `birth` (the physical birth).
    pub fn logical_width(&self, birth: Txg) -> u32 {
        let grown = self.expansion_txgs.partition_point(|txg| *txg <= birth);
        self.original_width + units::narrow::<u32>(grown)
    }

    /// Bytes that a block of `psize` bytes takes of the array if born in `birth`.
    pub fn asize(&self, psize: u64, birth: Txg) -> u64 {
        self.at_width(self.logical_width(birth)).asize(psize)
    }

    /// Where the columns of `block`, born in `birth` (physically), are.
    pub fn map(&self, block: Block, birth: Txg) -> Result<Map, Error> {
        self.map_during(block, birth, self.reflow.map(ReflowPosition::from))
    }

    /// The map while an expansion is at `position`. Sectors that are copied already, in rows that
    /// are still read at the old width, get [shadows](Map::shadows) at the new width.
    pub fn map_during(
        &self,
        block: Block,
        birth: Txg,
        position: Option<ReflowPosition>,
    ) -> Result<Map, Error> {
        let width = self.logical_width(birth);
        if width == self.current.width() && position.is_none() {
            return self.current.map(block);
        }
        self.map_by_rows(block, width, position)
    }

    /// The same array with one more child, from which an expansion begins.
    pub fn start_expansion(&self) -> Result<Self, Error> {
        let Self { current, expansion_txgs, .. } = self;
        let wider = Raidz::new(current.width() + 1, current.parity(), current.ashift())?;
        Self::new(wider, expansion_txgs, Some(Reflow { offset: 0, scratch: false }))
    }

    /// The same array after its expansion; blocks born in `txg` or later have the new width.
    #[must_use]
    pub fn finish_expansion(&self, txg: Txg) -> Self {
        let mut finished = self.clone();
        finished.reflow = None;
        finished.expansion_txgs.push(txg);
        finished
    }

    fn at_width(&self, width: u32) -> Raidz {
        Raidz::new(width, self.current.parity(), self.current.ashift()).unwrap_or(self.current)
    }

    fn map_by_rows(
        &self,
        block: Block,
        logical: u32,
        position: Option<ReflowPosition>,
    ) -> Result<Map, Error> {
        let (ashift, array) = (self.current.ashift(), self.at_width(logical));
        let (parity, logical) = (self.current.parity() as usize, logical as usize);
        let sectors = block.sectors(ashift)?;
        let stripe = Stripe::new(sectors.count, logical - parity, parity);
        let padding = stripe.raidz_padding(parity);
        assert!(array.width() <= self.current.width(), "an array never becomes narrower");
        let rows = stripe.total_sectors.div_ceil(logical);
        let width = stripe.total_sectors.min(logical);
        let size = sectors.count << ashift.get();
        let mut map = Map::with_shape(Shape { rows, width, parity, size }, padding);
        let placement = Placement { array: self, sectors, logical, width, position };
        let sector_bytes = 1_usize << ashift.get();

        for row in 0..rows {
            for index in 0..width {
                let mut column = placement.column(row, index);
                column.size = sector_bytes;
                if index >= parity {
                    let sector = data_sector(stripe, rows, index - parity, row);
                    column.data_start = sector.unwrap_or(0) << ashift.get();
                    column.size = if sector.is_some() { sector_bytes } else { 0 };
                }
                map.push(column);
            }
            let swaps = parity == 1 && width > 1 && block.offset & SWAP_BIT != 0;
            if swaps {
                map.swap_first_two_of_last_row();
            }
            for index in 0..width {
                let sector = if swaps && index < 2 { 1 - index } else { index };
                if let Some((child, offset, scratch)) = placement.shadow(row, sector) {
                    map.push_shadow(Shadow { row, index, child, offset, scratch });
                }
            }
        }
        for number in stripe.total_sectors..stripe.total_sectors + padding {
            let mut column = placement.column(number / logical, number % logical);
            column.size = sector_bytes;
            map.push(column);
        }
        map.assert_complete(array.asize(units::to_u64(block.size)));
        Ok(map)
    }
}

/// Which sector of the block the data column `index` has in `row`: the bytes go down the columns,
/// and only the first `rest` data columns reach into the last row if that is not full.
fn data_sector(stripe: Stripe, rows: usize, index: usize, row: usize) -> Option<usize> {
    let tall = if stripe.last_row_sectors == 0 { usize::MAX } else { stripe.last_row_sectors };
    if index < tall {
        return Some(index * rows + row);
    }
    (row < stripe.full_rows).then(|| tall * rows + (index - tall) * stripe.full_rows + row)
}

/// Places the sectors of one block.
struct Placement<'a> {
    array: &'a Expandable,
    sectors: Sectors,
    logical: usize,
    width: usize,
    position: Option<ReflowPosition>,
}

impl Placement<'_> {
    /// The first sector of a row on the top-level vdev.
    fn first_sector(&self, row: usize) -> u64 {
        self.sectors.first + (row * self.logical) as u64
    }

    /// Whether a row is read at the old width. The last row of a block counts as full.
    fn is_at_old_width(&self, row: usize, position: ReflowPosition) -> bool {
        let shift = self.array.current.ashift().get();
        self.first_sector(row) + self.width as u64 > position.synced >> shift
    }

    /// The place of a sector of the block, by its row and its index there.
    fn column(&self, row: usize, index: usize) -> Column {
        let shift = self.array.current.ashift().get();
        let mut physical = u64::from(self.array.current.width());
        let mut scratch = false;
        if let Some(position) = self.position {
            if self.is_at_old_width(row, position) {
                physical -= 1;
            } else {
                scratch = position.scratch;
            }
        }
        let sector = self.first_sector(row) + index as u64;
        let offset = (sector / physical) << shift;
        // the copy is no larger than the boot area, so later sectors cannot be in it
        scratch &= offset < BOOT_SIZE;
        Column { child: child(sector % physical), offset, size: 0, data_start: 0, scratch }
    }

    /// The child, the offset there, and whether it is in the scratch copy, of a sector's place at the new
    /// width; none where the sector is not copied yet, or read there.
    fn shadow(&self, row: usize, index: usize) -> Option<(usize, u64, bool)> {
        let position = self.position?;
        let shift = self.array.current.ashift().get();
        let sector = self.first_sector(row) + index as u64;
        if !self.is_at_old_width(row, position) || sector >= position.next >> shift {
            return None;
        }
        let physical = u64::from(self.array.current.width());
        let offset = (sector / physical) << shift;
        Some((child(sector % physical), offset, position.scratch && offset < BOOT_SIZE))
    }
}

/// An array that never grew.
impl From<Raidz> for Expandable {
    fn from(now: Raidz) -> Self {
        Self { current: now, original_width: now.width(), expansion_txgs: Vec::new(), reflow: None }
    }
}
