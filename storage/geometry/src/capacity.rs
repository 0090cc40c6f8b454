//! The capacity of a vdev and of a pool of given drives.
//!
//! ```text
//! a drive's bytes
//!   -> whole labels, less those at both ends            leaf_space
//!   -> of the smallest child, times the children        vdev_space     ("asize" in the label)
//!   -> cut into metaslabs, the rest is lost             Vdev::space    (SIZE in `zpool list`)
//!   -> times the deflate ratio                          Vdev::deflated
//!   -> summed, less what is kept back (slop)            Pool::usable   (USED + AVAIL of the
//!                                                                       root dataset)
//! ```
//!
//! Learnt from: `vdev.c`, `spa_misc.c`, `spa.c`, `dsl_pool.c` of OpenZFS 2.3.2. Proved by:
//! `real_pools_have_the_computed_capacity`.

use crate::draid::{REFLOW_RESERVE, ROW_HEIGHT};
use crate::{LABEL_END, LABEL_START, Layout};
use units::MinusOrZero as _;

/// Bytes of one of a drive's four labels; sizes are whole multiples of it.
pub const LABEL_SIZE: u64 = 256 << 10;
/// The smallest drive that may be part of a pool, bytes.
pub const MIN_DEVICE_SIZE: u64 = 64 << 20;

/// Metaslabs that a vdev of moderate size has at most.
const DEFAULT_METASLABS: u64 = 200;
/// Metaslabs that a vdev has at least, where they are not then smaller than the largest block.
const MIN_METASLABS: u64 = 16;
/// Metaslabs that a vdev has at most when new.
const MAX_METASLABS: u64 = 1 << 17;
/// log2 of the sizes of metaslabs: the smallest, the usual, the largest.
const METASLAB_SHIFTS: [u32; 3] = [24, 29, 34];
/// A vdev with more metaslabs than this gives one to the intent log.
const EMBEDDED_SLOG_MIN_METASLABS: u64 = 64;

/// Metaslabs that vdevs of any size were cut into before 0.8, and log2 of their smallest size.
const METASLABS_BEFORE_0_8: u64 = 200;
const MIN_SHIFT_BEFORE_0_8: u32 = 17;

/// Bounds of the space that a pool keeps back.
const SLOP_SHIFT: u32 = 5;
const MIN_SLOP: u64 = 128 << 20;
const MAX_SLOP: u64 = 128 << 30;

/// Bytes that a drive of `bytes` bytes has for data; `None` for one too small to be used.
pub fn leaf_space(bytes: u64) -> Option<u64> {
    let whole = bytes - bytes % LABEL_SIZE;
    (whole >= MIN_DEVICE_SIZE).then(|| whole - (LABEL_START + LABEL_END))
}

/// Bytes of the address space of a top-level vdev whose smallest child has `smallest` bytes for
/// data (see [`leaf_space`]). (`asize` in its label)
pub fn vdev_space(layout: &Layout, smallest: u64) -> u64 {
    let asize = match layout {
        Layout::Plain(_) => smallest,
        Layout::Raidz(raidz) => {
            // a drive that is just being added does not count yet
            let children = raidz.current().width() - u32::from(raidz.reflow().is_some());
            smallest.saturating_mul(u64::from(children))
        }
        Layout::Draid(draid) => {
            let shape = draid.shape();
            let rows = smallest.minus_or_zero(REFLOW_RESERVE) / ROW_HEIGHT;
            let places = u64::from(shape.children - shape.spares);
            let groups = (rows * ROW_HEIGHT).saturating_mul(places) / draid.group_size();
            groups * draid.group_size()
        }
    };
    asize - asize % LABEL_SIZE
}

/// log2 of the size of metaslabs that a new vdev of `asize` bytes gets: about 200 of them,
/// between 512 MiB and 16 GiB each, but no fewer than 16 and no more than 131072. (2.0 and later;
/// an existing vdev's label says what it got)
pub fn metaslab_shift(asize: u64) -> u32 {
    let bits = |count: u64| u64::BITS - (asize / count).leading_zeros();
    let [least, usual, most] = METASLAB_SHIFTS;
    let count = asize >> usual;
    let shift = if count < MIN_METASLABS {
        bits(MIN_METASLABS)
    } else if count > DEFAULT_METASLABS {
        bits(DEFAULT_METASLABS)
    } else {
        usual
    };
    if shift <= most {
        return shift.max(least);
    }
    if asize >> most > MAX_METASLABS { bits(MAX_METASLABS) } else { most }
}

/// The metaslab shift of releases before 0.8: between 100 and 200 metaslabs of any size.
pub fn metaslab_shift_before_0_8(asize: u64) -> u32 {
    let size = asize / METASLABS_BEFORE_0_8;
    (u64::BITS - size.leading_zeros()).max(MIN_SHIFT_BEFORE_0_8)
}

/// The role of a vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Data of any kind.
    Normal,
    /// Metadata and small blocks, or deduplication tables: counted in the pool's size, not in the
    /// available space.
    Special,
    /// The intent log: counted nowhere.
    Log,
}

/// One metaslab's part of a vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metaslab {
    /// Where it begins on the vdev, bytes.
    pub start: u64,
    /// How many bytes can be allocated in it.
    pub size: u64,
}

/// The space of a top-level vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vdev {
    /// The role of the vdev.
    pub class: Class,
    /// How many metaslabs it has.
    pub metaslabs: u64,
    /// Bytes in all of its metaslabs.
    pub space: u64,
    /// The same, less parity as a typical block has it.
    pub deflated: u64,
    /// How much of `deflated` is in the metaslab that serves the intent log.
    pub log_deflated: u64,
    /// Whether new blocks may go there (`false` where the label says `non_allocating`).
    pub allocating: bool,
}

impl Vdev {
    /// A vdev of `asize` bytes with metaslabs of 2^`shift` bytes, as its label says (a new one:
    /// [`vdev_space`] and [`metaslab_shift`]).
    pub fn new(layout: &Layout, asize: u64, shift: u32, class: Class) -> Self {
        let metaslabs = asize.checked_shr(shift).unwrap_or(0);
        let space = match layout {
            // bounded, as the count is read from a disk
            Layout::Draid(_) => (0..metaslabs.min(1 << 24))
                .map(|index| metaslab(layout, index, shift).size)
                .fold(0, u64::saturating_add),
            Layout::Plain(_) | Layout::Raidz(_) => metaslabs.checked_shl(shift).unwrap_or(0),
        };
        let takes_log = class == Class::Normal && metaslabs > EMBEDDED_SLOG_MIN_METASLABS;
        let log = if takes_log { metaslab(layout, 0, shift).size } else { 0 };
        Self {
            class,
            metaslabs,
            space,
            deflated: layout.deflated(space),
            log_deflated: layout.deflated(log),
            allocating: true,
        }
    }
}

/// The space of metaslab `index` of a vdev whose metaslabs have 2^`shift` bytes. On a dRAID only
/// its whole rows count.
pub fn metaslab(layout: &Layout, index: u64, shift: u32) -> Metaslab {
    let size = 1_u64.checked_shl(shift).unwrap_or(0);
    let start = index.saturating_mul(size);
    let Layout::Draid(draid) = layout else {
        return Metaslab { start, size };
    };
    let row = draid.row_size();
    let first = start.div_ceil(row).saturating_mul(row);
    let rows = size.minus_or_zero(first - start) / row;
    Metaslab { start: first, size: rows * row }
}

/// How much a pool keeps back, so that it can always still delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlopRule {
    /// OpenZFS 2.1 and later: at most 128 GiB, and less by the space of the intent log.
    Since2_1,
    /// 0.6.4 to 2.0: a 32nd, however large the pool. No metaslab is the intent log's.
    Before2_1,
    /// Until 0.6.3 (2014): a 64th.
    Before0_6_4,
}

/// The space of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Bytes in all drives, parity included. (SIZE in `zpool list`)
    pub size: u64,
    /// The space of datasets without parity, if there were no slop.
    pub deflated: u64,
    /// The slop space of that. (`spa_get_slop_space`)
    pub slop: u64,
}

impl Pool {
    /// Sums up the pool's top-level vdevs.
    pub fn new(vdevs: &[Vdev], rule: SlopRule) -> Self {
        let sum = |part: fn(&Vdev) -> u64| vdevs.iter().map(part).fold(0, u64::saturating_add);
        let size = sum(|vdev| if vdev.class == Class::Log { 0 } else { vdev.space });
        let counts = |vdev: &Vdev| vdev.class == Class::Normal && vdev.allocating;
        let normal = vdevs.iter().filter(|vdev| counts(vdev));
        let (deflated, log) = normal.fold((0_u64, 0_u64), |(all, log), vdev| {
            let log_part = match rule {
                SlopRule::Since2_1 => vdev.log_deflated.min(vdev.deflated),
                SlopRule::Before2_1 | SlopRule::Before0_6_4 => 0,
            };
            (all.saturating_add(vdev.deflated - log_part), log.saturating_add(log_part))
        });
        Self { size, deflated, slop: slop(deflated, log, rule) }
    }

    /// The sum of used and available space of the root dataset. `saved` is the space that
    /// deduplication and block cloning save; `held` is the space of a checkpoint and of deferred
    /// frees.
    pub fn usable_space(&self, saved: u64, held: u64) -> u64 {
        self.deflated.saturating_add(saved).saturating_sub(held).saturating_sub(self.slop)
    }
}

/// The slop space of `deflated` bytes, with `log` bytes in metaslabs that serve the intent log.
fn slop(deflated: u64, log: u64, rule: SlopRule) -> u64 {
    let share = deflated >> SLOP_SHIFT;
    let wanted = match rule {
        SlopRule::Before2_1 => share,
        SlopRule::Before0_6_4 => share / 2,
        SlopRule::Since2_1 => {
            let share = share.min(MAX_SLOP);
            share - log.min(share / 2)
        }
    };
    wanted.max(MIN_SLOP.min(deflated / 2))
}
