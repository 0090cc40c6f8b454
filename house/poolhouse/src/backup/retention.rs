//! Which snapshots a prune keeps.

use std::collections::{BTreeMap, HashSet};

use engine::backup::SnapshotSummary;

/// How many snapshots of each dataset are kept.
#[expect(clippy::struct_field_names, reason = "the names are those of the options")]
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(super) struct Retention {
    /// Keep the newest N snapshots
    #[arg(long, value_name = "N")]
    keep_last: Option<u64>,
    /// Keep the newest snapshot of each of the last N days that have one
    #[arg(long, value_name = "N")]
    keep_daily: Option<u64>,
    /// The same for weeks, which begin on Monday
    #[arg(long, value_name = "N")]
    keep_weekly: Option<u64>,
    /// The same for months
    #[arg(long, value_name = "N")]
    keep_monthly: Option<u64>,
    /// The same for years
    #[arg(long, value_name = "N")]
    keep_yearly: Option<u64>,
}

/// The number of the period in which a snapshot was created.
type Period = dyn Fn(&SnapshotSummary) -> u64;

const DAY: u64 = 24 * 60 * 60;

impl Retention {
    /// Whether no limit is given: then all snapshots stay.
    pub(super) fn is_empty(&self) -> bool {
        let all = [self.keep_last, self.keep_daily, self.keep_weekly];
        all.iter().chain(&[self.keep_monthly, self.keep_yearly]).all(Option::is_none)
    }

    /// The guids of the snapshots that stay.
    pub(super) fn kept(&self, snapshots: &[SnapshotSummary]) -> HashSet<u64> {
        let mut datasets: BTreeMap<(&str, u64), Vec<&SnapshotSummary>> = BTreeMap::new();
        for snapshot in snapshots {
            datasets.entry((&snapshot.dataset, snapshot.pool)).or_default().push(snapshot);
        }
        let mut kept = HashSet::new();
        for snapshots in datasets.values_mut() {
            snapshots.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.creation, snapshot.txg)));
            let rules: [(Option<u64>, &Period); 5] = [
                (self.keep_last, &|it| it.guid),
                (self.keep_daily, &|it| it.creation / DAY),
                // 1970 began on a Thursday
                (self.keep_weekly, &|it| (it.creation / DAY + 3) / 7),
                (self.keep_monthly, &|it| month(it.creation)),
                (self.keep_yearly, &|it| month(it.creation) / 12),
            ];
            for (count, period) in rules {
                let mut seen = HashSet::new();
                for snapshot in snapshots.iter() {
                    if seen.len() as u64 >= count.unwrap_or(0) {
                        break;
                    }
                    if seen.insert(period(snapshot)) {
                        kept.insert(snapshot.guid);
                    }
                }
            }
        }
        kept
    }
}

/// The month of a time, in months since the year 0 (proleptic Gregorian calendar, UTC).
fn month(seconds: u64) -> u64 {
    let (year, month, _) = units::civil_date(seconds / DAY);
    year * 12 + month - 1
}

#[cfg(test)]
mod tests {
    use super::{DAY, Retention, month};

    fn snapshot(guid: u64, creation: u64) -> engine::backup::SnapshotSummary {
        serde_json::from_value(serde_json::json!({
            "manifest": format!("{:016x}-{:032x}", 1, guid), "dataset": "tank", "snapshot": guid.to_string(),
            "guid": guid, "pool": 1, "txg": guid, "creation": creation, "encrypted": false,
            "volume": false, "referenced": 0, "added": 0, "base": null,
        }))
        .unwrap()
    }

    #[test]
    fn retention_uses_calendar_months() {
        // as `date -u -d @N +%Y-%m` prints it
        for (seconds, year, number) in [
            (0, 1970, 1),
            (951_782_399, 2000, 2),
            (951_782_400, 2000, 2),
            (951_868_800, 2000, 3),
            (1_798_761_599, 2026, 12),
            (1_798_761_600, 2027, 1),
            (4_107_542_400, 2100, 3),
        ] {
            assert_eq!(month(seconds), year * 12 + number - 1, "{seconds}");
        }
    }

    #[test]
    fn the_newest_of_each_period_is_kept() {
        let start = 1_798_761_600; // 2027-01-01, a Friday
        let all: Vec<_> = (0..60).map(|at| snapshot(at + 1, start + at * DAY / 2)).collect();
        let kept = |retention: Retention| {
            let mut kept: Vec<u64> = retention.kept(&all).into_iter().collect();
            kept.sort_unstable();
            kept
        };
        assert_eq!(kept(Retention { keep_last: Some(3), ..Retention::default() }), [58, 59, 60]);
        assert_eq!(kept(Retention { keep_daily: Some(2), ..Retention::default() }), [58, 60]);
        let weekly = Retention { keep_weekly: Some(2), ..Retention::default() };
        assert_eq!(kept(weekly), [48, 60]);
        let monthly = Retention { keep_monthly: Some(5), ..Retention::default() };
        assert_eq!(kept(monthly), [60]);
        assert!(Retention::default().is_empty() && !monthly.is_empty());
    }
}
