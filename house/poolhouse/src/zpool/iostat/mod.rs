//! `poolhouse zpool iostat`: the I/O of pools' drives, as rates between two readings of their
//! counters.
//!
//! A vdev shows the sum of its drives, parity and copies included. The columns of classes are
//! those of the drives' queues (`vdev::queue`).

mod histogram;
mod rates;

use std::io::{self, Write};
use std::thread;

use api::{GetIoStats, PoolReport};
use engine::pool::{PoolIoStats, VdevStatus};

use self::histogram::HistogramKind;
use self::rates::{Columns, Rates};
use super::query_reports;
use super::repeat::RepeatArgs;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// Show I/O statistics of pools
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Without an interval it shows the mean since the pool was imported. The first of several
reports shows that, too, unless -y is given.

Examples:
  poolhouse zpool iostat tank 5        rates of the last five seconds, again and again
  poolhouse zpool iostat -v tank 5 3   for each drive, three times
  poolhouse zpool iostat -vly tank 5   with latencies
  poolhouse zpool iostat -w tank       histograms of latencies"
)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command")]
pub(super) struct Args {
    /// Each vdev and drive, too
    #[arg(short = 'v')]
    verbose: bool,
    /// How long requests take, too
    #[arg(short = 'l')]
    latency: bool,
    /// Include the number of requests in flight
    #[arg(short = 'q')]
    queue: bool,
    /// How many requests had which size
    #[arg(short = 'r', conflicts_with_all = ["latency", "queue", "histogram"])]
    sizes: bool,
    /// How many requests took how long
    #[arg(short = 'w', conflicts_with_all = ["latency", "queue"])]
    histogram: bool,
    /// Without the first report, of the time since the import
    #[arg(short = 'y')]
    omit_first: bool,
    /// The head only once
    #[arg(short = 'n')]
    head_once: bool,
    /// No head, columns separated by tabs
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers; times in nanoseconds
    #[arg(short = 'p')]
    parsable: bool,
    /// Whole paths of drives, as is done without it
    #[arg(short = 'P')]
    _paths: bool,
    /// Programs for more columns: refused
    #[arg(short = 'c', value_name = "SCRIPT", hide = true)]
    script: Option<String>,
    #[command(flatten)]
    repeat: RepeatArgs,
}

/// Gives the row of some vdevs, with their label, and with the bytes allocated and free where they are known.
type RatesFn<'a> = &'a dyn Fn(String, &[VdevStatus], Option<(u64, u64)>) -> Rates;

/// A reading of the counts of pools.
struct Reading {
    pools: Vec<PoolReport>,
    stats: Vec<PoolIoStats>,
}

impl Reading {
    fn new(asking: &DaemonArgs, names: &[String]) -> Result<Self, Failure> {
        let stats = asking.request(&GetIoStats { names: names.to_vec() })?;
        Ok(Self { pools: query_reports(asking, names)?, stats })
    }

    fn of(&self, pool: &str) -> Option<&PoolIoStats> {
        self.stats.iter().find(|stats| stats.name == pool)
    }
}

impl Args {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        if self.script.is_some() {
            return Err(Failure::usage(
                "-c is not supported: the daemon runs no scripts for users",
            ));
        }
        let plan = self.repeat.plan()?;
        let (mut before, mut printed) = (None, 0);
        if self.omit_first && plan.interval.is_some() {
            before = Some(Reading::new(asking, plan.pools)?);
        }
        loop {
            if let Some(interval) = plan.interval.filter(|_| before.is_some()) {
                thread::sleep(interval);
            }
            let now = Reading::new(asking, plan.pools)?;
            self.repeat.print_time()?;
            self.print_report(before.as_ref(), &now, printed == 0, asking)?;
            io::stdout().flush()?;
            printed += 1;
            if plan.interval.is_none() || plan.count.is_some_and(|count| printed >= count) {
                return Ok(Outcome::Complete);
            }
            before = Some(now);
        }
    }

    fn print_report(
        &self,
        before: Option<&Reading>,
        now: &Reading,
        first: bool,
        asking: &DaemonArgs,
    ) -> Result<(), Failure> {
        if asking.json {
            return Ok(print::json(&now.stats)?);
        }
        let mut out = io::stdout().lock();
        if now.pools.is_empty() {
            return Ok(writeln!(out, "no pools available")?);
        }
        let kind = match (self.sizes, self.histogram) {
            (true, _) => Some(HistogramKind::Sizes),
            (_, true) => Some(HistogramKind::Latencies),
            _ => None,
        };
        if let Some(kind) = kind {
            for pool in &now.pools {
                self.print_histograms(kind, before, now, pool, &mut out)?;
            }
            return Ok(());
        }
        let rows = self.rows(before, now);
        let columns = Columns { latency: self.latency, queue: self.queue, parsable: self.parsable };
        if self.scripted {
            return Ok(columns.print_tab_separated(&rows, &mut out)?);
        }
        let has_head = first || (self.verbose && !self.head_once);
        Ok(columns.print(&rows, has_head, &mut out)?)
    }

    /// A row for each pool, and with -v for each vdev.
    fn rows(&self, before: Option<&Reading>, now: &Reading) -> Vec<Rates> {
        let mut rows = Vec::new();
        for pool in &now.pools {
            let (status, name) = (&pool.status, &pool.status.name);
            let Some(stats) = now.of(name) else { continue };
            let earlier = before.and_then(|before| before.of(name));
            let of = |label: String, vdevs: &[VdevStatus], space| {
                let guids = leaf_guids(vdevs);
                Rates::new(label, space, stats, earlier, &guids)
            };
            let free = status.size.saturating_sub(status.allocated);
            rows.push(of(name.clone(), &status.vdevs, Some((status.allocated, free))));
            if self.verbose {
                let of_class = |class: Option<&'static str>| {
                    status.vdevs.iter().filter(move |vdev| vdev.class.as_deref() == class)
                };
                of_class(None).for_each(|vdev| self.add_rows(vdev, 1, &of, &mut rows));
                for (head, vdevs) in [
                    ("dedup", of_class(Some("dedup")).collect::<Vec<_>>()),
                    ("special", of_class(Some("special")).collect()),
                    ("logs", of_class(Some("log")).collect()),
                    ("cache", status.caches.iter().collect()),
                ] {
                    rows.extend((!vdevs.is_empty()).then(|| Rates::class(head)));
                    for vdev in vdevs {
                        self.add_rows(vdev, 1, &of, &mut rows);
                    }
                }
            }
        }
        rows
    }

    fn add_rows(&self, vdev: &VdevStatus, depth: usize, of: RatesFn<'_>, rows: &mut Vec<Rates>) {
        let label = format!("{}{}", "  ".repeat(depth), self.repeat.vdev_name(vdev));
        let free = vdev.size.saturating_sub(vdev.allocated);
        let space = (depth == 1).then_some((vdev.allocated, free));
        rows.push(of(label, std::slice::from_ref(vdev), space));
        vdev.children.iter().for_each(|child| self.add_rows(child, depth + 1, of, rows));
    }

    fn print_histograms(
        &self,
        kind: HistogramKind,
        before: Option<&Reading>,
        now: &Reading,
        pool: &PoolReport,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let name = &pool.status.name;
        let Some(stats) = now.of(name) else { return Ok(()) };
        let earlier = before.and_then(|before| before.of(name));
        let mut print = |label: &str, vdevs: &[VdevStatus]| {
            let guids = leaf_guids(vdevs);
            let table = kind.sum(stats, earlier, &guids);
            kind.print(label, &table, (self.scripted, self.parsable), out)
        };
        print(name, &pool.status.vdevs)?;
        if self.verbose {
            let mut all: Vec<&VdevStatus> = Vec::new();
            pool.status.vdevs.iter().for_each(|vdev| flatten(vdev, &mut all));
            for vdev in all {
                print(&self.repeat.vdev_name(vdev), std::slice::from_ref(vdev))?;
            }
        }
        Ok(())
    }
}

/// The guids of the drives of some vdevs.
fn leaf_guids(vdevs: &[VdevStatus]) -> Vec<u64> {
    let mut guids = Vec::new();
    for vdev in vdevs {
        add_leaves(vdev, &mut guids);
    }
    guids
}

/// The guids of the drives below a vdev, or its own.
fn add_leaves(vdev: &VdevStatus, guids: &mut Vec<u64>) {
    if vdev.children.is_empty() {
        guids.push(vdev.guid);
    }
    vdev.children.iter().for_each(|child| add_leaves(child, guids));
}

/// A vdev and all below it.
fn flatten<'a>(vdev: &'a VdevStatus, all: &mut Vec<&'a VdevStatus>) {
    all.push(vdev);
    vdev.children.iter().for_each(|child| flatten(child, all));
}
