//! Histograms of requests: how many took how long, and how many had which size.

use std::io::{self, Write};

use engine::pool::{DriveIoStats, PoolIoStats};
use units::human_bytes;

use super::rates::{CLASSES, LATENCY, format_time, print_head};
use crate::table::escape_control;

/// log2 of the bytes of the first bucket of sizes.
const MIN_SIZE_SHIFT: u32 = 9;
/// The heads of the columns of sizes. No request is aggregated with others in the queue.
const SIZES: [(&str, &[&str]); 7] = [
    ("sync_read", &["ind", "agg"]),
    ("sync_write", &["ind", "agg"]),
    ("async_read", &["ind", "agg"]),
    ("async_write", &["ind", "agg"]),
    ("scrub", &["ind", "agg"]),
    ("trim", &["ind", "agg"]),
    ("rebuild", &["ind", "agg"]),
];
/// The width of a column, and of that of the buckets.
const WIDTH: usize = 5;
const LABEL_WIDTH: usize = 10;

/// The quantity of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistogramKind {
    /// How long requests took, and waited for their turn.
    Latencies,
    /// How many bytes they had.
    Sizes,
}

impl HistogramKind {
    /// The buckets of the drives of these guids: a row for each bucket, in the order of the columns.
    pub(super) fn sum(
        self,
        now: &PoolIoStats,
        before: Option<&PoolIoStats>,
        guids: &[u64],
    ) -> Vec<Vec<u64>> {
        let mut table: Vec<Vec<u64>> = Vec::new();
        for drive in now.drives.iter().filter(|drive| guids.contains(&drive.guid)) {
            let mut drives = before.iter().flat_map(|all| &all.drives);
            let earlier = drives.find(|earlier| earlier.guid == drive.guid);
            let earlier = earlier.map(|drive| self.columns(drive));
            let columns = self.columns(drive);
            for (column, counts) in columns.iter().enumerate() {
                let past = earlier.as_ref().and_then(|all| all.get(column).copied());
                for (row, count) in counts.iter().enumerate() {
                    let past = past.and_then(|counts| counts.get(row)).copied().unwrap_or(0);
                    if table.len() <= row {
                        table.resize_with(row + 1, || vec![0; columns.len()]);
                    }
                    // a reopened drive counts from 0 again
                    table[row][column] += count.checked_sub(past).unwrap_or(*count);
                }
            }
        }
        table
    }

    /// The counts of each column.
    fn columns(self, drive: &DriveIoStats) -> Vec<&[u64]> {
        let classes = CLASSES.iter().map(|class| class(drive));
        match self {
            Self::Latencies => {
                let totals = [&drive.queue.total_read, &drive.queue.total_write];
                let totals = totals.into_iter().map(|total| &total.latencies[..]);
                let disk = [&drive.read.latencies[..], &drive.write.latencies[..]];
                totals.chain(disk).chain(classes.map(|class| &class.waits[..])).collect()
            }
            Self::Sizes => classes.flat_map(|class| [&class.sizes[..], &[]]).collect(),
        }
    }

    const fn groups(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Self::Latencies => &LATENCY,
            Self::Sizes => &SIZES,
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
        table: &[Vec<u64>],
        (scripted, parsable): (bool, bool),
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let head = if self == Self::Latencies { "latency" } else { "req_size" };
        let name = escape_control(name);
        if !scripted {
            let columns = self.groups().iter().map(|(_, columns)| columns.len()).sum();
            writeln!(out)?;
            print_head(self.groups(), &vec![WIDTH; columns], LABEL_WIDTH, (&name, head), out)?;
        }
        for (bucket, counts) in table.iter().enumerate() {
            let label = self.label(bucket, parsable);
            if scripted {
                let cells: Vec<String> = counts.iter().map(u64::to_string).collect();
                writeln!(out, "{name}\t{label}\t{}", cells.join("\t"))?;
            } else {
                let cells = counts.iter().map(|count| format!("  {count:>WIDTH$}"));
                writeln!(out, "{label:<LABEL_WIDTH$}{}", cells.collect::<String>())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use engine::pool::{ClassIoStats, DriveQueueStats, RequestStats};

    use super::*;

    fn stats(count: u64) -> PoolIoStats {
        let read = RequestStats { latencies: vec![0, count], ..RequestStats::default() };
        let [write, trim, flush] = [0; 3].map(|_| RequestStats::default());
        let scrub =
            ClassIoStats { waits: vec![count], sizes: vec![0, count], ..ClassIoStats::default() };
        let queue = DriveQueueStats { scrub, ..DriveQueueStats::default() };
        let drives = vec![DriveIoStats { guid: 7, read, write, trim, flush, queue }];
        PoolIoStats { name: "tank".to_owned(), milliseconds: 0, drives }
    }

    #[test]
    fn buckets_are_those_since_the_first_reading() {
        let (kind, sizes) = (HistogramKind::Latencies, HistogramKind::Sizes);
        let table = kind.sum(&stats(9), Some(&stats(4)), &[7]);
        assert_eq!(table[0], [0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0]);
        assert_eq!(table[1], [0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        let table = sizes.sum(&stats(9), None, &[7]);
        assert_eq!(table[1], [0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0]);
        assert_eq!(kind.label(20, false), "1ms");
        assert_eq!(sizes.label(3, true), "4096");
    }

    #[test]
    fn histograms_have_the_columns_of_zpool() {
        for (kind, columns) in [(HistogramKind::Latencies, 11), (HistogramKind::Sizes, 14)] {
            let table = kind.sum(&stats(9), None, &[7]);
            let mut out = Vec::new();
            kind.print("tank", &table, (false, false), &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines[1].starts_with("tank ") && lines[1].contains("scrub"), "{text}");
            assert_eq!(lines[2].split_whitespace().count(), columns + 1, "{text}");
            assert_eq!(lines[4].split_whitespace().count(), columns + 1, "{text}");
        }
    }
}
