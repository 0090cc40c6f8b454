//! Space as the pool counts it, and what directories use.
//!
//! ```text
//! used           the deflated bytes of all copies, parity not counted
//! compressed     psize
//! uncompressed   lsize; of metadata psize
//! ```
//!
//! A directory's used space counts as used by all directories above it. If bytes are reserved in
//! it, the directory above counts the used or the reserved bytes, whichever is more.

use ondisk::Blkptr;
use ondisk::dsl::{Dir as DirPhys, UsedBreakdown};
use units::ObjectId;

use super::SyncTaskContext;
use crate::{Error, Result};

/// Bytes in the three ways in which the pool counts them. A difference, which may be negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceDelta {
    /// Bytes of the pool's deflated space.
    pub used: i64,
    /// The same before redundancy.
    pub compressed: i64,
    /// The same before compression.
    pub uncompressed: i64,
}

impl SpaceDelta {
    /// The space of a block; `deflated` gives its deflated size.
    pub fn of_block(pointer: &Blkptr, deflated: &dyn Fn(&Blkptr) -> u64) -> Self {
        let (psize, lsize) = match pointer {
            Blkptr::Hole(_) | Blkptr::Redacted(_) => return Self::default(),
            Blkptr::Regular(block) => (i64::from(block.psize), i64::from(block.lsize)),
            // it takes no space of its own
            Blkptr::Embedded(block) => (0, i64::from(block.lsize)),
        };
        let metadata = pointer.level().get() > 0 || pointer.kind().is_metadata();
        Self {
            used: to_i64(deflated(pointer)),
            compressed: psize,
            uncompressed: if metadata { psize } else { lsize },
        }
    }

    /// From three counts.
    pub(crate) fn from_counts([used, compressed, uncompressed]: [u64; 3]) -> Self {
        Self {
            used: to_i64(used),
            compressed: to_i64(compressed),
            uncompressed: to_i64(uncompressed),
        }
    }

    /// Only bytes used, as when something is reserved.
    pub(crate) const fn only_used(used: i64) -> Self {
        Self { used, compressed: 0, uncompressed: 0 }
    }

    /// Adds to three counts of a record on disk, by [`add_signed`].
    pub(crate) fn add_to(self, [used, compressed, uncompressed]: [&mut u64; 3]) {
        add_signed(used, self.used);
        add_signed(compressed, self.compressed);
        add_signed(uncompressed, self.uncompressed);
    }
}

impl std::ops::Add for SpaceDelta {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            used: self.used.wrapping_add(other.used),
            compressed: self.compressed.wrapping_add(other.compressed),
            uncompressed: self.uncompressed.wrapping_add(other.uncompressed),
        }
    }
}

impl std::ops::Neg for SpaceDelta {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            used: self.used.wrapping_neg(),
            compressed: self.compressed.wrapping_neg(),
            uncompressed: self.uncompressed.wrapping_neg(),
        }
    }
}

impl std::ops::Sub for SpaceDelta {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

/// Adds to a count of a record on disk. A count that would leave 64 bits stays at the end of the range.
///
/// Older versions of ZFS left wrong counts in pools: such a pool must stay usable, and `check` reports the
/// difference. So this is no assertion.
pub(crate) const fn add_signed(count: &mut u64, delta: i64) {
    *count = count.saturating_add_signed(delta);
}

/// A limit of bytes with more bytes. The largest number stands for no limit, and stays.
pub(crate) const fn raise_limit(limit: u64, bytes: u64) -> u64 {
    limit.saturating_add(bytes)
}

/// The count with a change, by [`add_signed`].
pub(crate) const fn with_delta(mut count: u64, delta: i64) -> u64 {
    add_signed(&mut count, delta);
    count
}

/// Counts beyond this are wrong, and are taken for this one: sums of a few stay within 63 bits.
const MAX_COUNT: u64 = 1 << 60;

/// A count of a record on disk with a sign.
pub(crate) fn to_i64(count: u64) -> i64 {
    units::narrow(if count < MAX_COUNT { count } else { MAX_COUNT })
}

/// How much more is counted when bytes that count as at least `reserved` become more or fewer.
pub(crate) fn parent_delta(before: u64, delta: i64, reserved: u64) -> i64 {
    let counted =
        to_i64(with_delta(before, delta).max(reserved)).wrapping_sub(to_i64(before.max(reserved)));
    // a reservation or a count at the end of its range takes away, and adds nothing
    assert!(
        counted.unsigned_abs() <= delta.unsigned_abs()
            && (counted == 0 || (counted > 0) == (delta > 0)),
        "a directory counts no more to its parent than changed in it"
    );
    counted
}

/// The breakdown of a directory's used bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UsedBy {
    Head,
    Snapshots,
    Children,
    ChildReservations,
    Refreservation,
}

impl UsedBy {
    fn field_mut(self, breakdown: &mut UsedBreakdown) -> &mut u64 {
        match self {
            Self::Head => &mut breakdown.head,
            Self::Snapshots => &mut breakdown.snapshots,
            Self::Children => &mut breakdown.children,
            Self::ChildReservations => &mut breakdown.child_reservations,
            Self::Refreservation => &mut breakdown.refreservation,
        }
    }

    fn add(self, dir: &mut DirPhys, delta: i64) {
        if dir.has_breakdown() {
            add_signed(self.field_mut(&mut dir.breakdown), delta);
        }
    }
}

/// No directory lies deeper.
const MAX_DEPTH: usize = 256;

impl SyncTaskContext<'_> {
    pub(crate) fn space_of(&self, pointer: &Blkptr) -> SpaceDelta {
        SpaceDelta::of_block(pointer, &self.dsize)
    }

    /// Adds to or subtracts from a directory's used space (dsl_dir_diduse_space).
    ///
    /// Rule: a directory gives back no more than it uses. Other versions left counts in pools that are too low,
    /// and the ancestors' breakdown must stay the sum of what their children use.
    pub(crate) fn add_space(
        &self,
        dir: ObjectId,
        what: UsedBy,
        mut delta: SpaceDelta,
    ) -> Result<()> {
        let (parent, counted) = self.update_dir(dir, |dir| {
            delta.used = delta.used.max(to_i64(dir.used).wrapping_neg());
            let counted = parent_delta(dir.used, delta.used, dir.reserved);
            delta.add_to([&mut dir.used, &mut dir.compressed, &mut dir.uncompressed]);
            what.add(dir, delta.used);
            (dir.parent, counted)
        })?;
        self.add_space_to_ancestors(parent, SpaceDelta { used: counted, ..delta }, delta.used)
    }

    /// Adds to a directory's used space: `taken` is used for `to`, and the rest was reserved before
    /// and counted as `from` (dsl_dir_diduse_transfer_space).
    pub(crate) fn transfer_space(
        &self,
        dir: ObjectId,
        delta: SpaceDelta,
        taken: i64,
        [from, to]: [UsedBy; 2],
    ) -> Result<()> {
        let (parent, counted) =
            self.update_dir(dir, |dir| add_transfer(dir, delta, taken, [from, to]))?;
        self.add_space_to_ancestors(parent, SpaceDelta { used: counted, ..delta }, delta.used)
    }

    fn add_space_to_ancestors(
        &self,
        first: ObjectId,
        mut delta: SpaceDelta,
        mut taken: i64,
    ) -> Result<()> {
        let mut at = first;
        for _ in 0..MAX_DEPTH {
            if !at.exists() {
                return Ok(());
            }
            let which = [UsedBy::ChildReservations, UsedBy::Children];
            let (parent, counted) =
                self.update_dir(at, |dir| add_transfer(dir, delta, taken, which))?;
            (taken, delta.used) = (delta.used, counted);
            at = parent;
        }
        Err(Error::Cycle { object: first, links: "directories" })
    }

    /// Bytes of a directory are used for something else than before.
    pub(crate) fn move_space(
        &self,
        dir: ObjectId,
        bytes: i64,
        [from, to]: [UsedBy; 2],
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.update_dir(dir, |dir| {
            from.add(dir, bytes.wrapping_neg());
            to.add(dir, bytes);
        })
    }
}

fn add_transfer(
    dir: &mut DirPhys,
    delta: SpaceDelta,
    taken: i64,
    [from, to]: [UsedBy; 2],
) -> (ObjectId, i64) {
    let counted = parent_delta(dir.used, delta.used, dir.reserved);
    delta.add_to([&mut dir.used, &mut dir.compressed, &mut dir.uncompressed]);
    from.add(dir, delta.used.wrapping_sub(taken));
    to.add(dir, taken);
    (dir.parent, counted)
}
