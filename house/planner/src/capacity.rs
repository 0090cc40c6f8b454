//! The capacity of a layout, to the byte, and the use of the other bytes.
//!
//! The arithmetic is [`geometry::capacity`], with which the engine allocates; this file deals the
//! drives to the groups, and accounts for every byte of them:
//!
//! ```text
//! all drives = partitions + labels + tails + spares + rounding + parity + padding + slop + usable
//! ```
//!
//! Proved by: `plan_matches_real_pools`, `every_byte_is_accounted_for`.

use geometry::capacity::{
    Class, Pool, SlopRule, Vdev, leaf_space, metaslab_shift, metaslab_shift_before_0_8, vdev_space,
};
use geometry::{Layout, Raidz};
use serde::Serialize;
use units::{Ashift, Txg};

use crate::drives::partition_size;
use crate::pool_layout::{GroupKind, LayoutGroup, PoolLayout};
use crate::{Error, RecordMix};

/// Bytes of all drives at most, so that no sum overflows.
const MAX_RAW_BYTES: u64 = 1 << 60;

/// The OpenZFS release whose rules of slop space apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpaceRules {
    /// Until 0.6.3: a 64th is kept back, metaslabs are a 200th of the vdev.
    Before0_6_4,
    /// 0.6.4 to 0.7: a 32nd is kept back.
    Since0_6_4,
    /// 0.8 and 2.0: metaslabs of 512 MiB to 16 GiB.
    Since0_8,
    /// 2.1 and later: at most 128 GiB is kept back, and each vdev gives a metaslab to the log.
    #[default]
    Since2_1,
}

impl SpaceRules {
    /// By the year that it is called by.
    pub fn from_year(year: &str) -> Option<Self> {
        Some(match year {
            "2014" => Self::Before0_6_4,
            "2015" => Self::Since0_6_4,
            "2019" => Self::Since0_8,
            "2021" => Self::Since2_1,
            _ => return None,
        })
    }

    fn slop_rule(self) -> SlopRule {
        match self {
            Self::Before0_6_4 => SlopRule::Before0_6_4,
            Self::Since0_6_4 | Self::Since0_8 => SlopRule::Before2_1,
            Self::Since2_1 => SlopRule::Since2_1,
        }
    }

    fn metaslab_shift(self, asize: u64) -> u32 {
        match self {
            Self::Before0_6_4 | Self::Since0_6_4 => metaslab_shift_before_0_8(asize),
            Self::Since0_8 | Self::Since2_1 => metaslab_shift(asize),
        }
    }
}

/// A top-level vdev.
#[derive(Clone, Debug, Serialize)]
pub struct VdevPlan {
    /// Its type, in zpool's words.
    pub layout: String,
    /// Its drives, bytes each.
    pub drives: Vec<u64>,
    /// Its address space, bytes. (`asize` in its label)
    pub asize: u64,
    /// log2 of the size of its metaslabs.
    pub metaslab_shift: u32,
    /// How many metaslabs it has.
    pub metaslabs: u64,
    /// Bytes in its metaslabs: its part of the pool's size.
    pub size_bytes: u64,
    /// The part for data by the pool's own accounting (of blocks of 128 KiB), before slop.
    pub deflated_bytes: u64,
    /// Bytes of each drive that the vdev uses for data, parity and spare space.
    pub child_bytes: u64,
    /// How many of its drives may fail at once.
    pub tolerance: usize,
    /// How it lays out blocks.
    #[serde(skip)]
    pub geometry: Layout,
    /// The group it is (for a stripe, one drive of it).
    #[serde(skip)]
    pub group: LayoutGroup,
}

/// Where the bytes of all drives go; they add up to the raw capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_field_names, reason = "programs read the unit in the names")]
pub struct SpaceAccount {
    /// The parts of whole disks outside of the pool's partition.
    pub partition_bytes: u64,
    /// Labels and boot area.
    pub label_bytes: u64,
    /// The space of larger drives beyond the smallest of their vdev.
    pub tail_bytes: u64,
    /// Hot spares, and the spare space of dRAID.
    pub spare_bytes: u64,
    /// The remainder that is too little for another metaslab or row, and for the count of blocks.
    pub rounding_bytes: u64,
    /// Parity, or the other copies of mirrors.
    pub parity_bytes: u64,
    /// Padding of raidz and dRAID, in blocks of 128 KiB.
    pub padding_bytes: u64,
    /// The metaslabs that serve the intent log (less parity).
    pub log_bytes: u64,
    /// The slop space, which lets a full pool still delete.
    pub slop_bytes: u64,
    /// The rest: USED + AVAIL of the empty pool.
    pub usable_bytes: u64,
}

impl SpaceAccount {
    /// The parts with their names, in the order in which they are shown.
    pub fn parts(&self) -> [(&'static str, u64); 10] {
        [
            ("usable", self.usable_bytes),
            ("slop", self.slop_bytes),
            ("intent log", self.log_bytes),
            ("parity", self.parity_bytes),
            ("padding", self.padding_bytes),
            ("rounding", self.rounding_bytes),
            ("spare", self.spare_bytes),
            ("tails", self.tail_bytes),
            ("labels", self.label_bytes),
            ("partitions", self.partition_bytes),
        ]
    }

    /// All of it.
    pub fn raw_bytes(&self) -> u64 {
        self.parts().iter().map(|part| part.1).sum()
    }
}

/// The capacity for blocks of one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RecordPlan {
    /// The block's size, bytes.
    pub record_bytes: u64,
    /// Part of the allocated bytes that is data.
    pub efficiency: f64,
    /// Part that is parity or other copies.
    pub parity: f64,
    /// Part that is padding.
    pub padding: f64,
    /// How much data of this kind fits, bytes; other than usable bytes, which suppose blocks of
    /// 128 KiB. Not compressed.
    pub fits_bytes: u64,
}

/// The capacity of a layout.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// SIZE in `zpool list`, bytes.
    pub size_bytes: u64,
    /// Drives less parity, as advertisements count; bytes.
    pub net_bytes: u64,
    /// The size in `df`; bytes, less the little that the empty pool has used.
    pub df_bytes: u64,
    /// Where the bytes go.
    pub account: SpaceAccount,
    /// The top-level vdevs.
    pub vdevs: Vec<VdevPlan>,
}

/// How drives are taken.
#[derive(Clone, Copy, Debug)]
pub struct CapacityOptions {
    /// log2 of the sector.
    pub ashift: Ashift,
    /// Whether OpenZFS partitions the drives.
    pub whole_disks: bool,
    /// By which rules.
    pub rules: SpaceRules,
}

impl Capacity {
    /// Deals `drives` to the groups of `words`, in order.
    pub fn new(
        words: &PoolLayout,
        drives: &[u64],
        taking: CapacityOptions,
        mix: &RecordMix,
    ) -> Result<Self, Error> {
        let raw = drives.iter().try_fold(0_u64, |sum, drive| sum.checked_add(*drive));
        if raw.is_none_or(|raw| raw > MAX_RAW_BYTES) {
            return Err(Error::CapacityTooLarge);
        }
        let mut account = SpaceAccount::default();
        let (mut vdevs, mut spaces, mut net_bytes) = (Vec::new(), Vec::new(), 0_u64);
        let mut rest = drives;
        for group in &words.0 {
            let (dealt, left) = rest
                .split_at_checked(group.width)
                .ok_or(Error::DriveCountMismatch { required: group.width, given: rest.len() })?;
            rest = left;
            if group.kind == GroupKind::Spare {
                account.spare_bytes += dealt.iter().sum::<u64>();
                continue;
            }
            let single = LayoutGroup::new(GroupKind::Stripe, 1);
            let (each, size) = match group.kind {
                GroupKind::Stripe => (single, 1),
                _ => (*group, group.width),
            };
            for drives in dealt.chunks(size) {
                let (vdev, space) = plan_vdev(each, drives, taking, &mut account)?;
                net_bytes = net_bytes.saturating_add(vdev_net_bytes(&vdev));
                vdevs.push(vdev);
                spaces.push(space);
            }
        }
        let pool = Pool::new(&spaces, taking.rules.slop_rule());
        account.slop_bytes = pool.slop;
        account.usable_bytes = pool.usable_space(0, 0);
        let deflated: u64 = spaces.iter().map(|space| space.deflated).sum();
        account.log_bytes = deflated - pool.deflated;
        let df_bytes = account.usable_bytes - account.usable_bytes % mix.largest_size();
        Ok(Self { size_bytes: pool.size, net_bytes, df_bytes, account, vdevs })
    }

    /// The capacity for blocks of `record` bytes.
    pub fn record_plan(&self, record: u64) -> RecordPlan {
        let mut plan = RecordPlan {
            record_bytes: record,
            efficiency: 0.0,
            parity: 0.0,
            padding: 0.0,
            fits_bytes: 0,
        };
        let deflated: u64 = self.vdevs.iter().map(|vdev| vdev.deflated_bytes).sum();
        // slop and log are taken from each vdev alike
        let kept = ratio(self.account.usable_bytes, deflated.max(1));
        let mut fits = 0.0;
        for vdev in &self.vdevs {
            let share = ratio(vdev.size_bytes, self.size_bytes.max(1));
            let parts = AllocationShares::new(vdev, record);
            plan.efficiency += share * parts.data;
            plan.parity += share * parts.parity;
            plan.padding += share * parts.padding;
            let taken = vdev.geometry.asize(record, Txg::ZERO).max(1);
            let counted = vdev.geometry.deflated(taken).max(1);
            fits += to_f64(vdev.deflated_bytes) * kept * ratio(record, counted);
        }
        plan.fits_bytes = to_u64(fits);
        plan
    }
}

/// Sizes one top-level vdev, and accounts for what its drives lose on the way.
fn plan_vdev(
    group: LayoutGroup,
    drives: &[u64],
    taking: CapacityOptions,
    account: &mut SpaceAccount,
) -> Result<(VdevPlan, Vdev), Error> {
    let geometry = group.layout(taking.ashift)?;
    let mut leaves = Vec::with_capacity(drives.len());
    for &drive in drives {
        let bytes = if taking.whole_disks { partition_size(drive) } else { drive };
        let leaf = leaf_space(bytes).ok_or(Error::DriveTooSmall { bytes })?;
        account.partition_bytes += drive - bytes;
        account.label_bytes += bytes - leaf;
        leaves.push(leaf);
    }
    let smallest = leaves.iter().copied().min().ok_or(Error::NoDrives)?;
    account.tail_bytes += leaves.iter().map(|leaf| leaf - smallest).sum::<u64>();
    let asize = vdev_space(&geometry, smallest);
    let shift = taking.rules.metaslab_shift(asize);
    let space = Vdev::new(&geometry, asize, shift, Class::Normal);
    let (copies, spares) = match group.kind {
        GroupKind::Mirror => (drives.len() as u64, 0),
        GroupKind::Draid { spares, .. } => (1, u64::from(spares)),
        _ => (1, 0),
    };
    let plan = VdevPlan {
        layout: group.to_string(),
        drives: drives.to_vec(),
        asize,
        metaslab_shift: shift,
        metaslabs: space.metaslabs,
        size_bytes: space.space,
        deflated_bytes: space.deflated,
        child_bytes: smallest,
        tolerance: group.tolerance(),
        geometry,
        group,
    };
    // the rest is rounding
    let parts = AllocationShares::new(&plan, 1 << 17);
    let parity = to_u64(to_f64(space.space) * parts.parity_on_vdev);
    let padding = to_u64(to_f64(space.space) * parts.padding_on_vdev);
    let spare = smallest * spares;
    let mirrored = space.space * (copies - 1);
    let all = smallest * drives.len() as u64;
    let named = space.deflated + parity + padding + spare + mirrored;
    account.parity_bytes += parity + mirrored;
    account.padding_bytes += padding;
    account.spare_bytes += spare;
    account.rounding_bytes += all.saturating_sub(named);
    Ok((plan, space))
}

/// Drives less parity and spares, each as large as the smallest.
fn vdev_net_bytes(vdev: &VdevPlan) -> u64 {
    let smallest = vdev.drives.iter().copied().min().unwrap_or(0);
    let count = vdev.drives.len() as u64;
    match vdev.group.kind {
        GroupKind::Spare => 0,
        GroupKind::Stripe | GroupKind::Mirror => smallest,
        GroupKind::Raidz(parity) => smallest * (count - u64::from(parity)),
        GroupKind::Draid { parity, data, spares } => {
            let places = u128::from(count - u64::from(spares)) * u128::from(smallest);
            let net = places * u128::from(data) / u128::from(data + parity);
            u64::try_from(net).unwrap_or(u64::MAX)
        }
    }
}

/// How a block's allocation is made up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationShares {
    /// Of all bytes on drives, copies of mirrors included.
    pub(crate) data: f64,
    pub(crate) parity: f64,
    pub(crate) padding: f64,
    /// Of the vdev's address space, in which a mirror's copies are one.
    parity_on_vdev: f64,
    padding_on_vdev: f64,
}

impl AllocationShares {
    pub(crate) fn new(vdev: &VdevPlan, record: u64) -> Self {
        let ashift = vdev.geometry.ashift();
        let sector = ashift.bytes();
        let data = ashift.sectors(record);
        let taken = vdev.geometry.asize(record, Txg::ZERO);
        let parity = match vdev.group.kind {
            GroupKind::Stripe | GroupKind::Mirror | GroupKind::Spare => 0,
            GroupKind::Raidz(parity) => {
                raidz_parity_sectors(data, vdev.drives.len() as u64, parity.into())
            }
            GroupKind::Draid { parity, data: columns, .. } => {
                data.div_ceil(columns.into()) * u64::from(parity)
            }
        };
        let parity_part = ratio(parity * sector, taken);
        let data_part = ratio(record, taken);
        let padding_part = (1.0 - parity_part - data_part).max(0.0);
        let copies = match vdev.group.kind {
            GroupKind::Mirror => to_f64(vdev.drives.len() as u64),
            _ => 1.0,
        };
        Self {
            data: data_part / copies,
            parity: parity_part + (1.0 - parity_part) * (1.0 - 1.0 / copies),
            padding: padding_part / copies,
            parity_on_vdev: parity_part,
            padding_on_vdev: padding_part,
        }
    }
}

/// Sectors of parity for `data` sectors on a raidz.
fn raidz_parity_sectors(data: u64, width: u64, parity: u64) -> u64 {
    data.div_ceil((width - parity).max(1)) * parity
}

/// The part of a block's allocation that is data, on a raidz of a width.
pub fn raidz_efficiency(width: u32, parity: u32, ashift: Ashift, record: u64) -> Option<f64> {
    let raidz = Raidz::new(width, parity, ashift).ok()?;
    Some(ratio(record, raidz.asize(record)))
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "shares and estimates need no more than 53 bits")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

/// `part` of `all`.
pub(crate) fn ratio(part: u64, all: u64) -> f64 {
    to_f64(part) / to_f64(all)
}

/// An estimate as a whole number; 0 if it is not a number, or negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(crate) fn to_u64(number: f64) -> u64 {
    number as u64
}
