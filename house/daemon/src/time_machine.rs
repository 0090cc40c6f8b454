//! Backups of Time Machine: when one is finished, and which of their snapshots are surplus.
//!
//! A Mac keeps its backups in a disk image, a folder on the share:
//!
//! ```text
//! NAME.sparsebundle/ (or NAME.backupbundle/)
//!  ├ bands/                                        the content of the image, in pieces
//!  ├ com.apple.TimeMachine.SnapshotHistory.plist   the finished backups; written when one is finished
//!  ├ com.apple.TimeMachine.Results.plist           the progress of the last backup; often says that one still runs
//!  └ token, lock                                   open while the image is in use
//! ```
//!
//! So a backup is finished when the history is another one than in the newest snapshot, and did not change for a while.
//! The state is in the pool alone: nothing is lost if the daemon restarts.

use engine::files::FileSystemReader;
use engine::pool::Snapshot;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use posix::Time;
use serde::Deserialize;

/// The start of the names of snapshots of finished backups.
const PREFIX: &str = "timemachine_";
const HISTORY_FILE: &[u8] = b"com.apple.TimeMachine.SnapshotHistory.plist";
/// The ends of the names of disk images.
const BUNDLES: [&[u8]; 2] = [b".sparsebundle", b".backupbundle"];
/// The newest snapshots that are kept, however old they are.
const KEEP_NEWEST: usize = 3;
const DAY: u64 = 86400;

/// The section `[timemachine]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TimeMachineConfig {
    /// Seconds for which the history of backups must not have changed before a snapshot is taken.
    pub(crate) settle: u64,
    /// Days for which the last snapshot of each day is kept; all snapshots are kept for one day.
    pub(crate) keep_days: u64,
}

impl Default for TimeMachineConfig {
    fn default() -> Self {
        Self { settle: 60, keep_days: 14 }
    }
}

/// The history of backups in a disk image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupHistory {
    bundle: Vec<u8>,
    object: u64,
    size: u64,
    mtime: Time,
    ctime: Time,
}

/// The histories of all disk images of a file system.
pub(crate) fn read_histories(
    files: &FileSystemReader,
) -> engine::files::Result<Vec<BackupHistory>> {
    let mut histories = Vec::new();
    for entry in files.read_dir_sorted(&files.root()?)? {
        if !BUNDLES.iter().any(|end| entry.name.ends_with(end)) {
            continue;
        }
        let path = [entry.name.as_slice(), HISTORY_FILE].join(&b'/');
        let Some(file) = files.find(&path)? else { continue };
        let stat = file.stat();
        let (bundle, object) = (entry.name, stat.ino);
        let (mtime, ctime) = (stat.mtime, stat.ctime);
        histories.push(BackupHistory { bundle, object, size: stat.size, mtime, ctime });
    }
    Ok(histories)
}

/// Whether backups were finished since a snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No backup was finished.
    Unchanged,
    /// The history changed, less than the time to settle ago.
    Settling,
    /// A backup was finished.
    Finished {
        /// When the history last changed, in seconds since 1970.
        at: u64,
    },
}

/// Compares the histories now with those in the newest snapshot. `now` is in seconds since 1970.
pub(crate) fn progress(
    current: &[BackupHistory],
    snapshot: &[BackupHistory],
    now: u64,
    settle: u64,
) -> Progress {
    let is_known = |history: &&BackupHistory| snapshot.contains(history);
    let changed = current.iter().filter(|history| !is_known(history));
    let Some(at) = changed.map(|history| unix_time(history.ctime)).max() else {
        return Progress::Unchanged;
    };
    // a time in the future is of a clock that was set back
    let is_settled = now.checked_sub(at).is_none_or(|age| age >= settle);
    if is_settled { Progress::Finished { at } } else { Progress::Settling }
}

/// When a Mac last finished a backup, in seconds since 1970.
pub(crate) fn last_backup(current: &[BackupHistory]) -> Option<u64> {
    current.iter().map(|history| unix_time(history.mtime)).max()
}

/// The name of the snapshot of a backup, behind the `@`. `at`: when it was finished, in seconds since 1970.
pub(crate) fn snapshot_name(at: u64) -> Option<String> {
    let stamp = Timestamp::from_second(i64::try_from(at).ok()?).ok()?;
    let time = stamp.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d_%H:%M:%SZ").to_string();
    Some(format!("{PREFIX}{time}"))
}

/// The snapshots of finished backups, oldest first.
pub(crate) fn backup_snapshots(all: &[Snapshot]) -> Vec<&Snapshot> {
    let mut own: Vec<_> = all.iter().filter(|it| it.name.starts_with(PREFIX)).collect();
    own.sort_by_key(|snapshot| snapshot.txg);
    own
}

/// The snapshots of finished backups that need not be kept, oldest first.
pub(crate) fn surplus(all: &[Snapshot], now: u64, keep_days: u64) -> Vec<&Snapshot> {
    let own = backup_snapshots(all);
    let day = |snapshot: &Snapshot| snapshot.created / DAY;
    let is_younger = |snapshot: &Snapshot, days: u64| {
        now.checked_sub(snapshot.created).is_none_or(|age| age / DAY < days)
    };
    let is_surplus = |(at, snapshot): (usize, &&Snapshot)| {
        let is_last_of_day = own.get(at + 1).is_none_or(|next| day(next) != day(snapshot));
        let is_newest = own.len() - at <= KEEP_NEWEST;
        let is_kept_daily = is_last_of_day && is_younger(snapshot, keep_days);
        !(is_newest || is_younger(snapshot, 1) || is_kept_daily)
    };
    let numbered = own.iter().enumerate().filter(|it| is_surplus(*it));
    numbered.map(|(_, snapshot)| *snapshot).collect()
}

/// Whole seconds since 1970; 0 for times before.
fn unix_time(time: Time) -> u64 {
    time.seconds.max(0).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use engine::pool::Snapshot;
    use posix::Time;

    use super::{BackupHistory, DAY, Progress, progress, snapshot_name, surplus};

    /// Friday, 2026-11-27, 10:47:59 UTC.
    const NOW: u64 = 1_795_776_479;

    fn history(bundle: &str, at: u64) -> BackupHistory {
        let time = Time { seconds: i64::try_from(at).unwrap(), nanoseconds: 0 };
        let bundle = bundle.as_bytes().to_vec();
        BackupHistory { bundle, object: 7, size: 9, mtime: time, ctime: time }
    }

    #[test]
    fn changed_histories_are_finished_backups() {
        let (old, new) = (history("a.sparsebundle", NOW - 3600), history("a.sparsebundle", NOW));
        let one = |current: &BackupHistory, snapshot: &[BackupHistory], now| {
            progress(std::slice::from_ref(current), snapshot, now, 60)
        };
        assert_eq!(progress(&[], &[], NOW, 60), Progress::Unchanged);
        assert_eq!(one(&old, &[], NOW), Progress::Finished { at: NOW - 3600 });
        assert_eq!(one(&old, std::slice::from_ref(&old), NOW), Progress::Unchanged);
        assert_eq!(one(&new, std::slice::from_ref(&old), NOW + 59), Progress::Settling);
        let finished = Progress::Finished { at: NOW };
        assert_eq!(one(&new, std::slice::from_ref(&old), NOW + 60), finished);
        // the clock was set back
        assert_eq!(one(&new, std::slice::from_ref(&old), NOW - 60), finished);
        // a second Mac of the same user
        let both = [old.clone(), history("b.backupbundle", NOW)];
        assert_eq!(progress(&both, &[old], NOW + 60, 60), finished);
    }

    #[test]
    fn snapshots_are_kept_for_a_day_then_daily() {
        let taken = |age: u64| {
            let created = NOW - age;
            let name = snapshot_name(created).unwrap();
            Snapshot { name, id: created, guid: created, created, txg: created }
        };
        let hourly = (0..24 * 20).rev().map(|hour| taken(hour * 3600));
        let mut all: Vec<_> = hourly.collect();
        assert_eq!(all.last().unwrap().name, "timemachine_2026-11-27_10:47:59Z");
        all.push(Snapshot { name: "mine".to_owned(), ..taken(19 * DAY) });
        let gone = surplus(&all, NOW, 14);
        let kept: Vec<_> = all.iter().filter(|it| !gone.contains(it)).collect();
        // the newest 24, the last ones of 13 days before, and that of the owner
        assert_eq!(kept.len(), 24 + 13 + 1, "{kept:?}");
        assert!(kept.iter().any(|it| it.name == "mine"));
        assert_eq!(kept[0].created, NOW - 13 * DAY - 11 * 3600);
        // a Mac that was away for a long time keeps its newest snapshots
        let old: Vec<_> = (30..40).rev().map(|days| taken(days * DAY)).collect();
        assert_eq!(surplus(&old, NOW, 14).len(), 7);
        assert_eq!(surplus(&old, 0, 14), [] as [&Snapshot; 0]);
    }
}
