//! Rates of requests, and the table of them.

use std::io::{self, Write};

use engine::pool::{ClassIoStats, DriveIoStats, PoolIoStats, RequestStats};
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
    /// Nanoseconds that reads and writes took with the wait for their turn; none: there were none.
    totals: [Option<u64>; 2],
    /// In the order of [`CLASSES`].
    classes: [ClassRate; CLASSES.len()],
}

/// The requests of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClassRate {
    waiting: u64,
    active: u64,
    /// Nanoseconds that one of them waited for its turn; none: there were none.
    wait: Option<u64>,
}

/// The classes that have columns.
pub(super) const CLASSES: [fn(&DriveIoStats) -> &ClassIoStats; 7] = [
    |drive| &drive.queue.sync_read,
    |drive| &drive.queue.sync_write,
    |drive| &drive.queue.async_read,
    |drive| &drive.queue.async_write,
    |drive| &drive.queue.scrub,
    |drive| &drive.queue.trim,
    |drive| &drive.queue.rebuild,
];

/// A drive as it is now, and at the earlier reading.
type DrivePair<'a> = (&'a DriveIoStats, Option<&'a DriveIoStats>);

/// The growth of a count; a reopened drive counts from 0 again.
pub(super) fn growth<T>(now: &T, before: Option<&T>, of: impl Fn(&T) -> u64) -> u64 {
    of(now).checked_sub(before.map_or(0, &of)).unwrap_or(of(now))
}

/// The quotient of what two counts grew by.
fn mean(
    drives: &[DrivePair<'_>],
    sum: impl Fn(&DriveIoStats) -> u64,
    count: impl Fn(&DriveIoStats) -> u64,
) -> Option<u64> {
    let all = |of: &dyn Fn(&DriveIoStats) -> u64| -> u64 {
        drives.iter().map(|(now, before)| growth(*now, *before, of)).sum()
    };
    all(&sum).checked_div(all(&count))
}

impl ClassRate {
    fn new(drives: &[DrivePair<'_>], class: fn(&DriveIoStats) -> &ClassIoStats) -> Self {
        let sum = |of: fn(&ClassIoStats) -> u64| drives.iter().map(|(now, _)| of(class(now))).sum();
        let wait =
            mean(drives, |drive| class(drive).wait_nanoseconds, |drive| class(drive).requests);
        Self { waiting: sum(|class| class.waiting), active: sum(|class| class.active), wait }
    }
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
}

impl RequestRate {
    /// Of drives: the present and earlier counters, and the milliseconds between.
    fn new(
        drives: &[DrivePair<'_>],
        kind: fn(&DriveIoStats) -> &RequestStats,
        milliseconds: u64,
    ) -> Self {
        let mut sum = RequestStats::default();
        for (now, before) in drives {
            let since = |of: fn(&RequestStats) -> u64| growth(kind(now), before.map(kind), of);
            sum.requests += since(|stats| stats.requests);
            sum.bytes += since(|stats| stats.bytes);
            sum.nanoseconds += since(|stats| stats.nanoseconds);
        }
        let rate = |count: u64| {
            let rate = u128::from(count) * 1000 / u128::from(milliseconds.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Self {
            requests: rate(sum.requests),
            bytes: rate(sum.bytes),
            latency: sum.nanoseconds.checked_div(sum.requests),
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
        let own = now.drives.iter().filter(|drive| guids.contains(&drive.guid));
        let earlier = |drive: &DriveIoStats| {
            before.and_then(|all| all.drives.iter().find(|earlier| earlier.guid == drive.guid))
        };
        let drives: Vec<DrivePair<'_>> = own.map(|drive| (drive, earlier(drive))).collect();
        let requests = |latencies: &[u64]| latencies.iter().sum();
        let total_read = mean(
            &drives,
            |drive| drive.queue.total_read.nanoseconds,
            |drive| requests(&drive.queue.total_read.latencies),
        );
        let total_write = mean(
            &drives,
            |drive| drive.queue.total_write.nanoseconds,
            |drive| requests(&drive.queue.total_write.latencies),
        );
        Self {
            label,
            is_class: false,
            space,
            read: RequestRate::new(&drives, |drive| &drive.read, milliseconds),
            write: RequestRate::new(&drives, |drive| &drive.write, milliseconds),
            totals: [total_read, total_write],
            classes: CLASSES.map(|class| ClassRate::new(&drives, class)),
        }
    }

    /// The row above the vdevs of a class.
    pub(super) fn class(name: &str) -> Self {
        let none = RequestRate::default();
        Self {
            label: name.to_owned(),
            is_class: true,
            space: None,
            read: none,
            write: none,
            totals: [None; 2],
            classes: Default::default(),
        }
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
pub(super) const LATENCY: [(&str, &[&str]); 7] = [
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
        if self.latency {
            cells.extend(rates.totals.map(time));
            cells.extend([time(read.latency), time(write.latency)]);
            cells.extend(rates.classes.iter().map(|class| time(class.wait)));
        }
        if self.queue {
            let depth = |class: &ClassRate| [count(class.waiting), count(class.active)];
            cells.extend(rates.classes.iter().flat_map(depth));
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
            print_head(&groups, &widths, name_width, ("", "pool"), out)?;
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

/// Prints the heads of groups of columns, and of the columns. `first` are the heads of the first column.
pub(super) fn print_head(
    groups: &[(&str, &[&str])],
    widths: &[usize],
    name_width: usize,
    first: (&str, &str),
    out: &mut dyn Write,
) -> io::Result<()> {
    let (mut line, mut at) = (format!("{:name_width$}", first.0), 0);
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
    write!(out, "{:name_width$}", first.1)?;
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
    use engine::pool::DriveQueueStats;

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
        let sync_read =
            ClassIoStats { requests, wait_nanoseconds: requests * 700, ..ClassIoStats::default() };
        let scrub = ClassIoStats { waiting: 9, active: 1, ..ClassIoStats::default() };
        let queue = DriveQueueStats { sync_read, scrub, ..DriveQueueStats::default() };
        let drives = vec![DriveIoStats { guid: 7, read, write, trim, flush, queue }];
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
        let shown = columns.cells(&row);
        assert_eq!(shown.len(), cells);
        // the mean wait of sync reads, and the queues of them and of scrubs
        assert_eq!(
            (&shown[10..12], &shown[17..19]),
            (&["700ns", "-"].map(String::from)[..], &["0", "0"].map(String::from)[..])
        );
        assert_eq!(&shown[25..27], ["9", "1"]);
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
