//! Snapshot policies: which snapshots are due, and which are surplus.
//!
//! ```toml
//! [[policy]]
//! dataset = "tank/photos"   # and what is below it, unless recursive = false
//! hourly = 24               # how many snapshots of each kind are kept; 0: none is taken
//! daily = 30
//! monthly = 6
//! ```
//!
//! The words and the names of snapshots are sanoid's: `autosnap_2026-11-27_10:00:00_hourly`. A snapshot of a
//! kind is due if the newest one of that kind is older than the current hour, day, week, month or year. So
//! none is taken twice, also after a restart or when the clock is set back.

use engine::pool::Snapshot;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;
use units::MinusOrZero as _;

/// A section `[[policy]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyConfig {
    /// The file system or volume.
    pub(crate) dataset: String,
    /// Also the descendants.
    #[serde(default = "enabled")]
    pub(crate) recursive: bool,
    /// Snapshots of each kind that are kept.
    #[serde(default)]
    hourly: usize,
    #[serde(default)]
    daily: usize,
    #[serde(default)]
    weekly: usize,
    #[serde(default)]
    monthly: usize,
    #[serde(default)]
    yearly: usize,
    /// Take snapshots.
    #[serde(default = "enabled")]
    pub(crate) autosnap: bool,
    /// Destroy surplus snapshots.
    #[serde(default = "enabled")]
    pub(crate) autoprune: bool,
}

const fn enabled() -> bool {
    true
}

/// A kind of automatic snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    Hourly,
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

impl Period {
    pub(crate) const ALL: [Self; 5] =
        [Self::Hourly, Self::Daily, Self::Weekly, Self::Monthly, Self::Yearly];

    /// The word in names and in the configuration.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
        }
    }

    /// When the period that contains a time began, in seconds since 1970; `None` for times that no
    /// calendar has.
    pub(crate) fn start(self, now: u64, zone: &TimeZone) -> Option<u64> {
        const HOUR: u64 = 3600;
        if self == Self::Hourly {
            return Some(now - now % HOUR);
        }
        let stamp = Timestamp::from_second(i64::try_from(now).ok()?).ok()?;
        let date = stamp.to_zoned(zone.clone()).date();
        let first = match self {
            Self::Hourly | Self::Daily => date,
            Self::Weekly => {
                let days = i64::from(date.weekday().to_monday_zero_offset());
                date.checked_sub(jiff::Span::new().days(days)).ok()?
            }
            Self::Monthly => date.first_of_month(),
            Self::Yearly => date.first_of_year(),
        };
        let start = first.to_zoned(zone.clone()).ok()?.timestamp().as_second();
        u64::try_from(start).ok()
    }
}

impl PolicyConfig {
    /// How many snapshots of a kind are kept.
    pub(crate) const fn keep(&self, period: Period) -> usize {
        match period {
            Period::Hourly => self.hourly,
            Period::Daily => self.daily,
            Period::Weekly => self.weekly,
            Period::Monthly => self.monthly,
            Period::Yearly => self.yearly,
        }
    }

    /// Whether the policy is of a file system or volume, or of one above it.
    pub(crate) fn covers(&self, dataset: &str) -> bool {
        let rest = dataset.strip_prefix(&self.dataset);
        rest.is_some_and(|rest| rest.is_empty() || (self.recursive && rest.starts_with('/')))
    }

    /// The kinds of which a snapshot is due.
    pub(crate) fn due(&self, snapshots: &[Snapshot], now: u64, zone: &TimeZone) -> Vec<Period> {
        let is_due = |period: &Period| {
            let newest = automatic(snapshots, *period).map(|it| it.created).max();
            let start = period.start(now, zone);
            self.keep(*period) > 0 && start.is_some_and(|start| newest.is_none_or(|it| it < start))
        };
        let periods = Period::ALL.into_iter().filter(|_| self.autosnap);
        periods.filter(is_due).collect()
    }

    /// The automatic snapshots beyond those that are kept, the oldest first.
    pub(crate) fn surplus<'a>(&self, snapshots: &'a [Snapshot]) -> Vec<&'a Snapshot> {
        let mut surplus = Vec::new();
        for period in Period::ALL.into_iter().filter(|_| self.autoprune) {
            let mut all: Vec<_> = automatic(snapshots, period).collect();
            all.sort_by_key(|snapshot| snapshot.txg);
            all.truncate(all.len().minus_or_zero(self.keep(period)));
            surplus.extend(all);
        }
        surplus
    }
}

/// The policy of a file system or volume: that of the nearest one above it.
pub(crate) fn policy_of<'a>(
    policies: &'a [PolicyConfig],
    dataset: &str,
) -> Option<&'a PolicyConfig> {
    let covering = policies.iter().filter(|policy| policy.covers(dataset));
    covering.max_by_key(|policy| policy.dataset.len())
}

/// The name of an automatic snapshot, behind the `@`.
pub(crate) fn snapshot_name(period: Period, now: u64, zone: &TimeZone) -> Option<String> {
    let stamp = Timestamp::from_second(i64::try_from(now).ok()?).ok()?;
    let time = stamp.to_zoned(zone.clone()).strftime("%Y-%m-%d_%H:%M:%S").to_string();
    Some(format!("autosnap_{time}_{}", period.word()))
}

/// The automatic snapshots of a kind.
pub(crate) fn automatic(snapshots: &[Snapshot], period: Period) -> impl Iterator<Item = &Snapshot> {
    snapshots.iter().filter(move |snapshot| {
        let rest = snapshot.name.strip_prefix("autosnap_");
        rest.and_then(|rest| rest.strip_suffix(period.word())).is_some_and(|it| it.ends_with('_'))
    })
}

#[cfg(test)]
mod tests {
    use engine::pool::Snapshot;
    use jiff::tz::TimeZone;

    use super::{Period, PolicyConfig, policy_of, snapshot_name};

    /// Friday, 2026-11-27, 10:47:59 UTC.
    const NOW: u64 = 1_795_776_479;

    fn policy(text: &str) -> PolicyConfig {
        toml_edit::de::from_str(text).unwrap()
    }

    fn snapshot(period: Period, created: u64) -> Snapshot {
        let name = snapshot_name(period, created, &TimeZone::UTC).unwrap();
        Snapshot { name, id: created, guid: created, created, txg: created }
    }

    #[test]
    fn periods_begin_at_calendar_boundaries() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let start = |period: Period| {
            let start = period.start(NOW, &zone).unwrap();
            snapshot_name(period, start, &zone).unwrap()
        };
        assert_eq!(start(Period::Hourly), "autosnap_2026-11-27_11:00:00_hourly");
        assert_eq!(start(Period::Daily), "autosnap_2026-11-27_00:00:00_daily");
        assert_eq!(start(Period::Weekly), "autosnap_2026-11-23_00:00:00_weekly");
        assert_eq!(start(Period::Monthly), "autosnap_2026-11-01_00:00:00_monthly");
        assert_eq!(start(Period::Yearly), "autosnap_2026-01-01_00:00:00_yearly");
        assert_eq!(Period::Daily.start(u64::MAX, &zone), None);
    }

    #[test]
    fn no_snapshot_is_taken_twice() {
        let policy = policy("dataset = 'tank'\nhourly = 2\ndaily = 1");
        let due = |snapshots: &[Snapshot], now| policy.due(snapshots, now, &TimeZone::UTC);
        assert_eq!(due(&[], NOW), [Period::Hourly, Period::Daily]);
        let taken = [snapshot(Period::Hourly, NOW), snapshot(Period::Daily, NOW)];
        assert!(due(&taken, NOW).is_empty());
        // the clock was set back
        assert!(due(&taken, NOW - 90_000).is_empty());
        assert_eq!(due(&taken, NOW + 3600), [Period::Hourly]);
        assert_eq!(due(&taken, NOW + 90_000), [Period::Hourly, Period::Daily]);
    }

    #[test]
    fn surplus_snapshots_are_the_oldest_of_their_kind() {
        let policy = policy("dataset = 'tank'\nhourly = 2\ndaily = 1\nautosnap = false");
        let mut all: Vec<_> =
            (0..4).map(|hour| snapshot(Period::Hourly, NOW + hour * 3600)).collect();
        all.push(snapshot(Period::Daily, NOW));
        all.push(snapshot(Period::Weekly, NOW + 5));
        all.push(Snapshot { name: "mine_hourly".to_owned(), ..snapshot(Period::Hourly, 1) });
        let surplus: Vec<u64> = policy.surplus(&all).iter().map(|it| it.created).collect();
        assert_eq!(surplus, [NOW, NOW + 3600, NOW + 5]);
        assert!(policy.due(&all, NOW + 90_000, &TimeZone::UTC).is_empty());
    }

    #[test]
    fn nearest_policy_counts() {
        let policies = [
            policy("dataset = 'tank'\ndaily = 1"),
            policy("dataset = 'tank/a'\nrecursive = false\nhourly = 1"),
        ];
        let of = |name| policy_of(&policies, name).map(|policy| policy.dataset.as_str());
        assert_eq!(of("tank/a"), Some("tank/a"));
        assert_eq!(of("tank/a/b"), Some("tank"));
        assert_eq!((of("tank/ab"), of("tanker")), (Some("tank"), None));
    }
}
