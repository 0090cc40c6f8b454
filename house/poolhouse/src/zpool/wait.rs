//! `poolhouse zpool wait`, and the waiting of other commands.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use api::GetPoolProperties;
use engine::pool::{PoolStatus, ScanKind, VdevStatus};
use units::human_bytes;

use super::query_reports;
use super::repeat::print_time;
use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};

/// How often it is looked whether an activity has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An activity of a pool that ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Activity {
    /// Space of a discarded checkpoint is freed
    Discard,
    /// Space of destroyed datasets is freed
    Free,
    /// Free space of drives is written
    Initialize,
    /// A drive takes the place of another
    Replace,
    /// A vdev is removed
    Remove,
    /// A resilver
    Resilver,
    /// All is read, and repaired
    Scrub,
    /// A trim
    Trim,
    /// A raidz vdev gets one more drive
    RaidzExpand,
}

impl Activity {
    const ALL: [Self; 9] = [
        Self::Discard,
        Self::Free,
        Self::Initialize,
        Self::Replace,
        Self::Remove,
        Self::Resilver,
        Self::Scrub,
        Self::Trim,
        Self::RaidzExpand,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Discard => "DISCARD",
            Self::Free => "FREE",
            Self::Initialize => "INITIALIZE",
            Self::Replace => "REPLACE",
            Self::Remove => "REMOVE",
            Self::Resilver => "RESILVER",
            Self::Scrub => "SCRUB",
            Self::Trim => "TRIM",
            Self::RaidzExpand => "RAIDZ_EXPAND",
        }
    }

    /// Bytes that are left to do, as far as they are known; none: the activity does not continue.
    fn remaining(self, pool: &PoolStatus, freeing: u64) -> Option<u64> {
        let scan = |kind| {
            let scan = pool.scan.as_ref()?;
            let is_kind =
                scan.scan == kind || (kind == ScanKind::Scrub && scan.scan == ScanKind::ErrorScrub);
            let goes_on = is_kind && scan.is_scanning();
            goes_on.then(|| scan.total.saturating_sub(scan.scanned))
        };
        match self {
            Self::Discard => {
                let kept = pool.checkpoint.as_ref()?;
                (kept.state == "discarding").then_some(kept.bytes)
            }
            Self::Free => (freeing > 0).then_some(freeing),
            Self::Initialize => sum_leaves(pool, &|leaf| leaf.initialize.as_ref()),
            Self::Trim => sum_leaves(pool, &|leaf| leaf.trim.as_ref()),
            Self::Replace => {
                scan(ScanKind::Resilver).filter(|_| pool.vdevs.iter().any(has_replacement))
            }
            Self::Resilver => scan(ScanKind::Resilver),
            Self::Scrub => scan(ScanKind::Scrub),
            Self::RaidzExpand => {
                let expansion = pool.expansion.as_ref().filter(|it| it.state != "finished")?;
                Some(expansion.total.saturating_sub(expansion.copied))
            }
            Self::Remove => {
                let goes_on = |state: &str| matches!(state, "evacuating" | "paused");
                let removal = pool.removal.as_ref().filter(|it| goes_on(&it.state))?;
                Some(removal.total.saturating_sub(removal.copied))
            }
        }
    }
}

/// Whether a vdev, or one below it, is being replaced.
fn has_replacement(vdev: &VdevStatus) -> bool {
    vdev.name.starts_with("replacing-") || vdev.children.iter().any(has_replacement)
}

/// Bytes that an activity of leaves has still to process; none: it runs on no leaf.
fn sum_leaves(
    pool: &PoolStatus,
    activity: &dyn Fn(&VdevStatus) -> Option<&engine::pool::VdevActivity>,
) -> Option<u64> {
    fn visit(
        vdev: &VdevStatus,
        activity: &dyn Fn(&VdevStatus) -> Option<&engine::pool::VdevActivity>,
        sum: &mut Option<u64>,
    ) {
        if let Some(found) = activity(vdev).filter(|found| found.state == "active") {
            let left = vdev.size / 100 * 100_u64.saturating_sub(found.percent);
            *sum = Some(sum.unwrap_or(0).saturating_add(left));
        }
        vdev.children.iter().for_each(|child| visit(child, activity, sum));
    }
    let mut sum = None;
    pool.vdevs.iter().for_each(|vdev| visit(vdev, activity, &mut sum));
    sum
}

/// Wait until activities of a pool have ended
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse zpool wait tank                   until no activity is left
  poolhouse zpool wait -t scrub,resilver tank
  poolhouse zpool wait tank 10                print the rest every ten seconds")]
pub(super) struct Args {
    /// No head, columns separated by tabs
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    parsable: bool,
    /// With the time before it: u as seconds since 1970, d as a date
    #[arg(short = 'T', value_name = "u|d", value_parser = ["u", "d"])]
    time: Option<String>,
    /// Only these activities
    #[arg(short = 't', value_name = "ACTIVITY,...", value_delimiter = ',', value_parser = parse_activity)]
    activities: Vec<Activity>,
    /// The pool
    pool: String,
    /// Every how many seconds it is shown how much is left
    #[arg(value_name = "SECONDS")]
    interval: Option<f64>,
}

/// An activity by its name.
fn parse_activity(word: &str) -> Result<Activity, String> {
    <Activity as clap::ValueEnum>::from_str(word, false).map_err(|_| {
        let names = Activity::ALL.map(|activity| activity.name().to_lowercase());
        format!("invalid activity '{word}': choose from {}", names.join(", "))
    })
}

impl Args {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let wanted = if self.activities.is_empty() { &Activity::ALL[..] } else { &self.activities };
        let interval = match self.interval {
            None => None,
            Some(seconds) if seconds > 0.0 => Duration::try_from_secs_f64(seconds).ok(),
            Some(_) => return Err(Failure::usage("the interval must be above 0 seconds")),
        };
        let (mut shown, mut rows) = (None::<Instant>, 0);
        loop {
            let left = remaining(asking, &self.pool, wanted)?;
            let is_due = |interval| shown.is_none_or(|shown| shown.elapsed() >= interval);
            if interval.is_some_and(is_due) {
                self.print_row(wanted, &left, rows == 0)?;
                (shown, rows) = (Some(Instant::now()), rows + 1);
            }
            if left.iter().all(Option::is_none) {
                return Ok(Outcome::Complete);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn print_row(&self, wanted: &[Activity], left: &[Option<u64>], first: bool) -> io::Result<()> {
        print_time(self.time.as_deref())?;
        let mut out = io::stdout().lock();
        if first && !self.scripted {
            let heads = wanted.iter().map(|activity| format!("{:>10}", activity.name()));
            writeln!(out, "{}", heads.collect::<Vec<_>>().join("  "))?;
        }
        let cell = |left: &Option<u64>| match left {
            None => "-".to_owned(),
            Some(left) if self.parsable => left.to_string(),
            Some(left) => human_bytes(*left),
        };
        let cells: Vec<String> = left.iter().map(cell).collect();
        if self.scripted {
            return writeln!(out, "{}", cells.join("\t"));
        }
        let pad = |(activity, cell): (&Activity, &String)| {
            format!("{cell:>width$}", width = activity.name().len().max(10))
        };
        writeln!(out, "{}", wanted.iter().zip(&cells).map(pad).collect::<Vec<_>>().join("  "))
    }
}

/// Bytes that each of these activities of a pool has left; none where it does not continue.
fn remaining(
    asking: &DaemonArgs,
    pool: &str,
    activities: &[Activity],
) -> Result<Vec<Option<u64>>, Failure> {
    let names = [pool.to_owned()];
    let found = query_reports(asking, &names)?;
    let freeing =
        if activities.contains(&Activity::Free) { query_freeing(asking, pool)? } else { 0 };
    let left = |activity: &Activity| {
        found.iter().find_map(|pool| activity.remaining(&pool.status, freeing))
    };
    Ok(activities.iter().map(left).collect())
}

/// Bytes of destroyed datasets that are not freed yet.
fn query_freeing(asking: &DaemonArgs, pool: &str) -> Result<u64, Failure> {
    let all = asking.request(&GetPoolProperties { names: vec![pool.to_owned()] })?;
    let own = all.iter().flat_map(|(_, own)| own);
    let mut freeing = own.filter(|property| property.name == "freeing");
    Ok(freeing.next().and_then(|property| property.value.parse().ok()).unwrap_or(0))
}

/// Waits until the initializing or the trim of these drives, by path or guid, has ended; no drives: of all.
pub(super) fn wait_until_drives_idle(
    asking: &DaemonArgs,
    pool: &str,
    activity: Activity,
    drives: &[String],
) -> Result<(), Failure> {
    if drives.is_empty() {
        return wait_until_idle(asking, pool, &[activity]);
    }
    let names = [pool.to_owned()];
    loop {
        let found = query_reports(asking, &names)?;
        let vdevs = found.iter().flat_map(|pool| &pool.status.vdevs);
        if !vdevs.into_iter().any(|vdev| is_drive_active(vdev, activity, drives)) {
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Whether the initializing or the trim runs on one of these drives at or below a vdev.
fn is_drive_active(vdev: &VdevStatus, activity: Activity, drives: &[String]) -> bool {
    let of_vdev =
        if activity == Activity::Trim { vdev.trim.as_ref() } else { vdev.initialize.as_ref() };
    let is_named =
        drives.iter().any(|drive| *drive == vdev.name || *drive == vdev.guid.to_string());
    is_named && of_vdev.is_some_and(|found| found.state == "active")
        || vdev.children.iter().any(|child| is_drive_active(child, activity, drives))
}

/// Waits until none of these activities of a pool runs.
pub(super) fn wait_until_idle(
    asking: &DaemonArgs,
    pool: &str,
    activities: &[Activity],
) -> Result<(), Failure> {
    while remaining(asking, pool, activities)?.iter().any(Option::is_some) {
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
