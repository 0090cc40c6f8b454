//! Expected speed from the drives' own, and how long a resilver takes. Estimates, unlike sizes.
//!
//! ```text
//! sequential   all drives stream; what passes under their heads is data, parity and padding in the
//!              proportion of a block of the record size. Mirrors read from all copies.
//! random read  a block keeps as many drives busy as it has columns of data
//! random write the same, and its parity or its copies
//! resilver     a failed drive's part is read from the others and written, in runs: blocks are
//!              sorted, 32 columns lie side by side, and an operation has at most 1 MiB; between
//!              runs the head moves. dRAID with a spare writes to all drives at once.
//! ```

use serde::Serialize;

use crate::capacity::{AllocationShares, VdevPlan, to_f64};
use crate::drive_spec::DriveSpec;
use crate::pool_layout::GroupKind;
use crate::{MAX_RESILVER_IO, RecordMix};

/// Columns that lie side by side on a drive once a resilver has sorted its blocks.
const SORTED_COLUMNS: f64 = 32.0;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// The expected figures of a pool, for the chosen record mix.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Speed {
    /// Sequential reads, bytes a second.
    pub sequential_read: f64,
    /// Sequential writes, bytes a second.
    pub sequential_write: f64,
    /// Random reads of whole records a second, with many at a time.
    pub random_reads: f64,
    /// Random writes of whole records a second, each by itself.
    pub random_writes: f64,
    /// Hours until a failed drive's data are on another one (of the slowest vdev).
    pub resilver_hours: f64,
}

impl Speed {
    /// Sums up the vdevs. `fill` is the part of the pool that is in use.
    pub(crate) fn new(vdevs: &[VdevPlan], drive: &DriveSpec, mix: &RecordMix, fill: f64) -> Self {
        let sum = |value: fn(&VdevPlan, &DriveSpec, u64) -> f64| -> f64 {
            // blocks are spread over vdevs by their size
            let all: f64 = vdevs.iter().map(|vdev| to_f64(vdev.size_bytes)).sum();
            let pace = |record| {
                let paces = vdevs.iter().filter(|vdev| vdev.size_bytes > 0);
                let share = |vdev: &VdevPlan| to_f64(vdev.size_bytes) / all;
                paces.map(|vdev| value(vdev, drive, record) / share(vdev)).reduce(f64::min)
            };
            mix.harmonic_mean(|record| pace(record).unwrap_or(0.0))
        };
        let records = |value: fn(&VdevPlan, &DriveSpec, u64) -> f64| -> f64 {
            // by the number of blocks, not by their bytes
            let mean = mix.mean_block_size();
            let time: f64 = (mix.shares().iter())
                .map(|(size, share)| {
                    let number = share * mean / to_f64(*size);
                    number / vdevs.iter().map(|vdev| value(vdev, drive, *size)).sum::<f64>()
                })
                .sum();
            if time > 0.0 { 1.0 / time } else { 0.0 }
        };
        let hours = vdevs.iter().map(|vdev| resilver_hours(vdev, drive, mix, fill));
        Self {
            sequential_read: sum(sequential_read),
            sequential_write: sum(sequential_write),
            random_reads: records(random_reads),
            random_writes: records(random_writes),
            resilver_hours: hours.fold(0.0, f64::max),
        }
    }
}

/// Drives of a vdev that work at the same time.
fn active_drives(vdev: &VdevPlan) -> f64 {
    let spares = match vdev.group.kind {
        GroupKind::Draid { spares, .. } => u64::from(spares),
        _ => 0,
    };
    to_f64(vdev.drives.len() as u64 - spares)
}

fn sequential_read(vdev: &VdevPlan, drive: &DriveSpec, record: u64) -> f64 {
    let data = match vdev.group.kind {
        GroupKind::Mirror => 1.0,
        _ => AllocationShares::new(vdev, record).data,
    };
    active_drives(vdev) * drive.bytes_per_second * data
}

fn sequential_write(vdev: &VdevPlan, drive: &DriveSpec, record: u64) -> f64 {
    active_drives(vdev) * drive.bytes_per_second * AllocationShares::new(vdev, record).data
}

/// Drives that hold data of one block, and those that hold its parity or copies.
fn column_counts(vdev: &VdevPlan, record: u64) -> (f64, f64) {
    let sectors = vdev.geometry.ashift().sectors(record);
    let width = vdev.drives.len() as u64;
    let (data, parity) = match vdev.group.kind {
        GroupKind::Stripe | GroupKind::Spare => (1, 0),
        GroupKind::Mirror => (1, width - 1),
        GroupKind::Raidz(parity) => (sectors.min(width - u64::from(parity)), parity.into()),
        // a row is always whole
        GroupKind::Draid { parity, data, .. } => (sectors.min(data.into()), parity.into()),
    };
    (to_f64(data.max(1)), to_f64(parity))
}

/// Operations of a drive with one column of a block in each.
fn column_iops(drive: &DriveSpec, column: f64) -> f64 {
    1.0 / (1.0 / drive.operations_per_second + column / drive.bytes_per_second)
}

fn random_reads(vdev: &VdevPlan, drive: &DriveSpec, record: u64) -> f64 {
    let (data, _) = column_counts(vdev, record);
    active_drives(vdev) / data * column_iops(drive, to_f64(record) / data)
}

fn random_writes(vdev: &VdevPlan, drive: &DriveSpec, record: u64) -> f64 {
    let (data, parity) = column_counts(vdev, record);
    active_drives(vdev) / (data + parity) * column_iops(drive, to_f64(record) / data)
}

/// Hours to rebuild one drive of a vdev; 0 where nothing can be rebuilt.
pub(crate) fn resilver_hours(
    vdev: &VdevPlan,
    drive: &DriveSpec,
    mix: &RecordMix,
    fill: f64,
) -> f64 {
    if vdev.tolerance == 0 {
        return 0.0;
    }
    let bytes = to_f64(vdev.child_bytes) * fill;
    let run = if let GroupKind::Draid { .. } = vdev.group.kind {
        MAX_RESILVER_IO
    } else {
        let record = mix.mean_block_size();
        let (data, _) = column_counts(vdev, crate::capacity::to_u64(record));
        (record / data * SORTED_COLUMNS).min(MAX_RESILVER_IO)
    };
    let per_byte = 1.0 / drive.bytes_per_second + 1.0 / (drive.operations_per_second * run);
    let seconds = match vdev.group.kind {
        GroupKind::Draid { parity, data, spares } if spares > 0 => {
            // each byte needs the others of its row read, and is written, by all drives together
            let others = to_f64(vdev.drives.len() as u64 - 1);
            let work = to_f64(u64::from(data + parity - 1)) + 1.0;
            bytes * per_byte * work / others
        }
        _ => bytes * per_byte,
    };
    seconds / SECONDS_PER_HOUR
}
