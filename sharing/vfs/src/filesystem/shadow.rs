//! `.zfs/shadow`: the snapshots of a file system under the names that SMB clients know.
//!
//! ```text
//! @GMT-YYYY.MM.DD-HH.MM.SS   when the snapshot was taken, in UTC
//! ```
//!
//! Samba's module shadow_copy2 finds snapshots by such names and shows them as Previous Versions. The names follow
//! from the creation time, so the snapshots may have any name. Of several snapshots of one second, the latest is shown.

use engine::pool::Snapshot;
use units::civil_date;

const SECONDS_PER_DAY: u64 = 86400;

/// The snapshots with their names, oldest first. `all` is in this order.
pub(super) fn list(all: Vec<Snapshot>) -> Vec<(String, Snapshot)> {
    let mut shown: Vec<(String, Snapshot)> = Vec::with_capacity(all.len());
    for snapshot in all {
        let name = gmt_name(snapshot.created);
        match shown.last_mut() {
            Some(last) if last.0 == name => last.1 = snapshot,
            _ => shown.push((name, snapshot)),
        }
    }
    shown
}

/// The snapshot of a name. `all` is oldest first.
pub(super) fn find(all: Vec<Snapshot>, name: &[u8]) -> Option<Snapshot> {
    all.into_iter().rev().find(|snapshot| gmt_name(snapshot.created).as_bytes() == name)
}

/// The name of a snapshot that was taken at `created`, in seconds since 1970.
fn gmt_name(created: u64) -> String {
    let (days, seconds) = (created / SECONDS_PER_DAY, created % SECONDS_PER_DAY);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("@GMT-{year:04}.{month:02}.{day:02}-{hour:02}.{minute:02}.{second:02}")
}

#[cfg(test)]
mod tests {
    use engine::pool::Snapshot;

    use super::{find, gmt_name, list};

    fn snapshot(name: &str, created: u64) -> Snapshot {
        Snapshot { name: name.to_owned(), id: created, guid: created, created, txg: created }
    }

    #[test]
    fn names_are_creation_times_in_utc() {
        // as `date -u -d @SECONDS +@GMT-%Y.%m.%d-%H.%M.%S` prints them
        for (created, name) in [
            (0, "@GMT-1970.01.01-00.00.00"),
            (951_782_399, "@GMT-2000.02.28-23.59.59"),
            (951_782_400, "@GMT-2000.02.29-00.00.00"),
            (1_709_251_199, "@GMT-2024.02.29-23.59.59"),
            (1_709_251_200, "@GMT-2024.03.01-00.00.00"),
            (1_795_779_845, "@GMT-2026.11.27-11.44.05"),
            (4_107_542_400, "@GMT-2100.03.01-00.00.00"),
        ] {
            assert_eq!(gmt_name(created), name);
        }
        // a pool may store any time: the name is then odd, but nothing overflows
        assert!(gmt_name(u64::MAX).starts_with("@GMT-5845540"));
    }

    #[test]
    fn of_one_second_the_latest_snapshot_is_shown() {
        let all = || vec![snapshot("a", 5), snapshot("b", 9), snapshot("c", 9)];
        let shown: Vec<_> = list(all()).into_iter().map(|(name, it)| (name, it.name)).collect();
        let [five, nine] = ["@GMT-1970.01.01-00.00.05", "@GMT-1970.01.01-00.00.09"];
        assert_eq!(
            shown,
            [five, nine]
                .map(str::to_owned)
                .into_iter()
                .zip(["a", "c"].map(str::to_owned))
                .collect::<Vec<_>>()
        );
        assert_eq!(find(all(), nine.as_bytes()).map(|it| it.name).as_deref(), Some("c"));
        assert_eq!(find(all(), b"@GMT-1970.01.01-00.00.06"), None);
    }
}
