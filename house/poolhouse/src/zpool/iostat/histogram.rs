//! Histograms of requests: how many took how long, and how many had which size.

use std::io::{self, Write};

use engine::pool::{DriveIoStats, PoolIoStats, RequestStats};
use units::human_bytes;

use super::rates::format_time;
use crate::table::escape_control;

/// log2 of the bytes of the first bucket of sizes.
const MIN_SIZE_SHIFT: u32 = 9;

/// The quantity of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistogramKind {
    /// How long requests took.
    Latencies,
    /// How many bytes they had.
    Sizes,
}

impl HistogramKind {
    /// The buckets of the drives of these guids: reads, writes and trims.
    pub(super) fn sum(
        self,
        now: &PoolIoStats,
        before: Option<&PoolIoStats>,
        guids: &[u64],
    ) -> Vec<[u64; 3]> {
        let mut table: Vec<[u64; 3]> = Vec::new();
        for drive in now.drives.iter().filter(|drive| guids.contains(&drive.guid)) {
            let mut drives = before.iter().flat_map(|all| &all.drives);
            let earlier = drives.find(|earlier| earlier.guid == drive.guid);
            for (column, stats) in kinds(drive).into_iter().enumerate() {
                let earlier = earlier.map(|drive| self.buckets(kinds(drive)[column]));
                for (row, count) in self.buckets(stats).iter().enumerate() {
                    let past = earlier.and_then(|counts| counts.get(row)).copied().unwrap_or(0);
                    if table.len() <= row {
                        table.resize(row + 1, [0; 3]);
                    }
                    // a reopened drive counts from 0 again
                    table[row][column] += count.checked_sub(past).unwrap_or(*count);
                }
            }
        }
        table
    }

    fn buckets(self, stats: &RequestStats) -> &[u64] {
        match self {
            Self::Latencies => &stats.latencies,
            Self::Sizes => &stats.sizes,
        }
    }

    /// The least value of a bucket.
    fn label(self, bucket: usize, parsable: bool) -> String {
        let bucket = u32::try_from(bucket).unwrap_or(u32::MAX);
        let value = |shift: u32| 1_u64.checked_shl(shift).unwrap_or(u64::MAX);
        match self {
            Self::Latencies if parsable => value(bucket).to_string(),
            Self::Latencies => format_time(value(bucket)),
            Self::Sizes if parsable => value(bucket + MIN_SIZE_SHIFT).to_string(),
            Self::Sizes => human_bytes(value(bucket + MIN_SIZE_SHIFT)),
        }
    }

    /// Prints the buckets, a row for each.
    pub(super) fn print(
        self,
        name: &str,
        table: &[[u64; 3]],
        (scripted, parsable): (bool, bool),
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let head = if self == Self::Latencies { "latency" } else { "req_size" };
        let name = escape_control(name);
        if !scripted {
            writeln!(out, "\n{name}\n{head:<10}   read  write   trim")?;
            writeln!(out, "----------  -----  -----  -----")?;
        }
        for (bucket, counts) in table.iter().enumerate() {
            let label = self.label(bucket, parsable);
            let [read, write, trim] = counts;
            if scripted {
                writeln!(out, "{name}\t{label}\t{read}\t{write}\t{trim}")?;
            } else {
                writeln!(out, "{label:<10}  {read:>5}  {write:>5}  {trim:>5}")?;
            }
        }
        Ok(())
    }
}

fn kinds(drive: &DriveIoStats) -> [&RequestStats; 3] {
    [&drive.read, &drive.write, &drive.trim]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_since_the_first_reading() {
        let stats = |count: u64| {
            let read = RequestStats { latencies: vec![0, count], ..RequestStats::default() };
            let [write, trim, flush] = [0; 3].map(|_| RequestStats::default());
            let scan = engine::pool::QueueDepth::default();
            let drives = vec![DriveIoStats { guid: 7, read, write, trim, flush, scan }];
            PoolIoStats { name: "tank".to_owned(), milliseconds: 0, drives }
        };
        let table = HistogramKind::Latencies.sum(&stats(9), Some(&stats(4)), &[7]);
        assert_eq!(table, [[0, 0, 0], [5, 0, 0]]);
        assert_eq!(HistogramKind::Latencies.label(20, false), "1ms");
        assert_eq!(HistogramKind::Sizes.label(3, true), "4096");
    }
}
