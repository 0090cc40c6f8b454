//! Rates of requests, and the table of them.

use std::io::{self, Write};

use engine::pool::{DriveIoStats, PoolIoStats, QueueDepth, RequestStats};
use units::human_bytes;

use crate::table::escape_control;

/// The I/O of a vdev between two readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    label: String,
    /// Whether it is the row above the vdevs of a class, such as `logs`.
    is_class: bool,
    /// Bytes allocated and free.
    space: Option<(u64, u64)>,
    read: RequestRate,
    write: RequestRate,
    trim: RequestRate,
    scan: QueueDepth,
}

/// The requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RequestRate {
    /// Requests a second.
    requests: u64,
    /// Bytes a second.
    bytes: u64,
    /// Nanoseconds that one of them took; none: there were none.
    latency: Option<u64>,
    /// Requests in flight.
    in_flight: u64,
}

impl RequestRate {
    /// Of drives: the present and earlier counters, and the milliseconds between.
    fn new<'a>(
        drives: impl Iterator<Item = (&'a RequestStats, Option<&'a RequestStats>)>,
        milliseconds: u64,
    ) -> Self {
        let mut sum = RequestStats::default();
        for (now, before) in drives {
            let since = |of: fn(&RequestStats) -> u64| {
                // a reopened drive counts from 0 again
                let before = before.map_or(0, of);
                of(now).checked_sub(before).unwrap_or(of(now))
            };
            sum.requests += since(|stats| stats.requests);
            sum.bytes += since(|stats| stats.bytes);
            sum.nanoseconds += since(|stats| stats.nanoseconds);
            sum.in_flight += now.in_flight;
        }
        let rate = |count: u64| {
            let rate = u128::from(count) * 1000 / u128::from(milliseconds.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Self {
            requests: rate(sum.requests),
            bytes: rate(sum.bytes),
            latency: sum.nanoseconds.checked_div(sum.requests),
            in_flight: sum.in_flight,
        }
    }
}

impl Rates {
    /// Of the drives of these guids.
    pub(super) fn new(
        label: String,
        space: Option<(u64, u64)>,
        now: &PoolIoStats,
        before: Option<&PoolIoStats>,
        guids: &[u64],
    ) -> Self {
        let milliseconds = before.map_or(now.milliseconds, |before| {
            // the counters of a pool that was imported again start from 0
            let passed = now.milliseconds.checked_sub(before.milliseconds);
            passed.unwrap_or(now.milliseconds)
        });
        let of = |kind: fn(&DriveIoStats) -> &RequestStats| {
            let own = now.drives.iter().filter(|drive| guids.contains(&drive.guid));
            let pairs = own.map(|drive| {
                let earlier = before.and_then(|all| {
                    all.drives.iter().find(|earlier| earlier.guid == drive.guid).map(kind)
                });
                (kind(drive), earlier)
            });
            RequestRate::new(pairs, milliseconds)
        };
        let (read, write) = (of(|drive| &drive.read), of(|drive| &drive.write));
        let own = now.drives.iter().filter(|drive| guids.contains(&drive.guid));
        let scan = own.fold(QueueDepth::default(), |sum, drive| QueueDepth {
            waiting: sum.waiting + drive.scan.waiting,
            active: sum.active + drive.scan.active,
        });
        Self { label, is_class: false, space, read, write, trim: of(|drive| &drive.trim), scan }
    }

    /// The row above the vdevs of a class.
    pub(super) fn class(name: &str) -> Self {
        let (none, scan) = (RequestRate::default(), QueueDepth::default());
        let label = name.to_owned();
        Self { label, is_class: true, space: None, read: none, write: none, trim: none, scan }
    }
}

/// Which columns there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    /// How long requests take.
    pub(super) latency: bool,
    /// The number in flight.
    pub(super) queue: bool,
    /// Exact numbers.
    pub(super) parsable: bool,
}

/// Columns under one head: their heads, and how wide each is at least.
const CAPACITY: (&str, &[&str]) = ("capacity", &["alloc", "free"]);
const OPERATIONS: (&str, &[&str]) = ("operations", &["read", "write"]);
const BANDWIDTH: (&str, &[&str]) = ("bandwidth", &["read", "write"]);
const LATENCY: [(&str, &[&str]); 7] = [
    ("total_wait", &["read", "write"]),
    ("disk_wait", &["read", "write"]),
    ("syncq_wait", &["read", "write"]),
    ("asyncq_wait", &["read", "write"]),
    ("scrub", &["wait"]),
    ("trim", &["wait"]),
    ("rebuild", &["wait"]),
];
const QUEUE: [(&str, &[&str]); 7] = [
    ("syncq_read", &["pend", "activ"]),
    ("syncq_write", &["pend", "activ"]),
    ("asyncq_read", &["pend", "activ"]),
    ("asyncq_write", &["pend", "activ"]),
    ("scrubq_read", &["pend", "activ"]),
    ("trimq_write", &["pend", "activ"]),
    ("rebuildq_write", &["pend", "activ"]),
];
/// The least width of a column, and of the names.
const MIN_WIDTH: usize = 5;
const MIN_NAME_WIDTH: usize = 10;

impl Columns {
    fn groups(self) -> Vec<(&'static str, &'static [&'static str])> {
        let mut groups = vec![CAPACITY, OPERATIONS, BANDWIDTH];
        groups.extend(LATENCY.iter().filter(|_| self.latency));
        groups.extend(QUEUE.iter().filter(|_| self.queue));
        groups
    }

    /// The cells of a row behind its name, in the order of the groups.
    fn cells(self, rates: &Rates) -> Vec<String> {
        let bytes = |bytes: u64| if self.parsable { bytes.to_string() } else { human_bytes(bytes) };
        let count =
            |count: u64| if self.parsable { count.to_string() } else { format_count(count) };
        let time = |time: Option<u64>| match time {
            None => "-".to_owned(),
            Some(time) if self.parsable => time.to_string(),
            Some(time) => format_time(time),
        };
        let (read, write) = (&rates.read, &rates.write);
        let (allocated, free) = rates.space.unzip();
        let space = |space: Option<u64>| space.map_or_else(|| "-".to_owned(), bytes);
        let mut cells = vec![space(allocated), space(free)];
        cells.extend([count(read.requests), count(write.requests)]);
        cells.extend([bytes(read.bytes), bytes(write.bytes)]);
        let none = || "-".to_owned();
        if self.latency {
            let waits = [time(read.latency), time(write.latency)];
            cells.extend(waits.iter().chain(&waits).cloned());
            cells.extend((0..5).map(|_| none()));
            cells.extend([time(rates.trim.latency), none()]);
        }
        if self.queue {
            // requests of users are at their drive as soon as they are made; those of scans wait
            let active = |requests: u64| ["0".to_owned(), count(requests)];
            let QueueDepth { waiting, active: scans } = rates.scan;
            // both are read one after the other, and a request of a scan may have begun between
            let reads = read.in_flight.max(scans) - scans;
            cells.extend(active(reads).into_iter().chain(active(write.in_flight)));
            cells.extend((0..4).map(|_| none()));
            cells.extend([count(waiting), count(scans)]);
            cells.extend(active(rates.trim.in_flight));
            cells.extend((0..2).map(|_| none()));
        }
        cells
    }

    /// The cells of the row above the vdevs of a class.
    fn class_cells(self) -> Vec<String> {
        self.groups()
            .iter()
            .flat_map(|(_, columns)| columns.iter().map(|_| "-".to_owned()))
            .collect()
    }

    pub(super) fn print_tab_separated(self, rows: &[Rates], out: &mut dyn Write) -> io::Result<()> {
        for row in rows.iter().filter(|row| !row.is_class) {
            let cells = self.cells(row).join("\t");
            writeln!(out, "{}\t{cells}", escape_control(row.label.trim_start()))?;
        }
        Ok(())
    }

    pub(super) fn print(
        self,
        rows: &[Rates],
        has_head: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let names = rows.iter().map(|row| row.label.chars().count());
        let name_width = names.max().unwrap_or(0).max(MIN_NAME_WIDTH);
        let all: Vec<Vec<String>> = rows
            .iter()
            .map(|row| if row.is_class { self.class_cells() } else { self.cells(row) })
            .collect();
        let groups = self.groups();
        let width_at = |at: usize| {
            let cells = all.iter().filter_map(|cells| cells.get(at)).map(String::len);
            cells.max().unwrap_or(0).max(MIN_WIDTH)
        };
        let count = groups.iter().map(|(_, columns)| columns.len()).sum();
        let widths: Vec<usize> = (0..count).map(width_at).collect();
        if has_head {
            print_head(&groups, &widths, name_width, out)?;
        }
        for (row, cells) in rows.iter().zip(&all) {
            write!(out, "{:name_width$}", escape_control(&row.label))?;
            for (cell, width) in cells.iter().zip(&widths) {
                write!(out, "  {cell:>width$}")?;
            }
            writeln!(out)?;
        }
        if rows.len() > 1 {
            print_rule(&widths, name_width, out)?;
        }
        Ok(())
    }
}

fn print_head(
    groups: &[(&str, &[&str])],
    widths: &[usize],
    name_width: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (mut line, mut at) = (" ".repeat(name_width), 0);
    for (head, columns) in groups {
        let end = at + columns.len();
        let width = widths[at..end].iter().sum::<usize>() + 2 * (columns.len() - 1);
        // centred as zpool(8) does it: of an odd rest the greater part is before the head
        let before = width.saturating_sub(head.len()).div_ceil(2);
        let after = width.saturating_sub(head.len() + before);
        line += &format!("  {:before$}{head}{:after$}", "", "");
        at = end;
    }
    writeln!(out, "{line}")?;
    write!(out, "{:name_width$}", "pool")?;
    let heads = groups.iter().flat_map(|(_, columns)| columns.iter());
    for (head, width) in heads.zip(widths) {
        write!(out, "  {head:>width$}")?;
    }
    writeln!(out)?;
    print_rule(widths, name_width, out)
}

fn print_rule(widths: &[usize], name_width: usize, out: &mut dyn Write) -> io::Result<()> {
    let columns = widths.iter().map(|width| "-".repeat(*width));
    let all: Vec<String> = std::iter::once("-".repeat(name_width)).chain(columns).collect();
    writeln!(out, "{}", all.join("  "))
}

/// A number with the letter of its thousands.
fn format_count(count: u64) -> String {
    let (mut value, mut unit) = (count, 0);
    while value >= 10_000 && unit < 5 {
        (value, unit) = (value / 1000, unit + 1);
    }
    format!("{value}{}", ["", "K", "M", "G", "T", "P"][unit])
}

/// Nanoseconds with the unit that gives three digits.
pub(super) fn format_time(nanoseconds: u64) -> String {
    let (mut value, mut unit) = (nanoseconds, 0);
    while value >= 1000 && unit < 3 {
        (value, unit) = (value / 1000, unit + 1);
    }
    format!("{value}{}", ["ns", "us", "ms", "s"][unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(milliseconds: u64, requests: u64) -> PoolIoStats {
        let read = RequestStats {
            requests,
            bytes: requests * 4096,
            nanoseconds: requests * 1_500_000,
            ..RequestStats::default()
        };
        let (write, trim, flush) =
            (RequestStats::default(), RequestStats::default(), RequestStats::default());
        let drives =
            vec![DriveIoStats { guid: 7, read, write, trim, flush, scan: QueueDepth::default() }];
        PoolIoStats { name: "tank".to_owned(), milliseconds, drives }
    }

    #[test]
    fn rates_are_of_the_time_between_two_readings() {
        let (before, now) = (stats(1000, 100), stats(3000, 500));
        let rates =
            Rates::new("tank".to_owned(), Some((1 << 20, 1 << 30)), &now, Some(&before), &[7]);
        assert_eq!((rates.read.requests, rates.read.bytes), (200, 819_200));
        assert_eq!((rates.read.latency, rates.write.latency), (Some(1_500_000), None));
        let anew = Rates::new("tank".to_owned(), None, &before, Some(&now), &[7]);
        assert_eq!(anew.read.requests, 100, "the pool was imported anew");
        assert_eq!(Rates::new(String::new(), None, &now, None, &[8]).read.requests, 0);
    }

    #[test]
    fn table_has_the_heads_of_zpool() {
        let row = Rates::new("tank".to_owned(), Some((0, 0)), &stats(1000, 10), None, &[7]);
        let columns = Columns { latency: true, queue: true, parsable: false };
        let cells: usize = columns.groups().iter().map(|(_, columns)| columns.len()).sum();
        assert_eq!(columns.cells(&row).len(), cells);
        let mut out = Vec::new();
        let columns = Columns { latency: false, queue: false, parsable: true };
        columns.print(&[row], true, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "              capacity     operations     bandwidth ");
        assert_eq!(lines[1], "pool        alloc   free   read  write   read  write");
        assert_eq!(lines[2], "----------  -----  -----  -----  -----  -----  -----");
        assert_eq!(lines[3], "tank            0      0     10      0  40960      0");
    }
}
