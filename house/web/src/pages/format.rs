//! Numbers and times as pages show them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A time span in its largest unit: "3 min", "5 h", "12 d".
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}

/// The time since a moment: "3 min ago".
pub(super) fn ago(time: u64, now: u64) -> String {
    now.checked_sub(time)
        .map_or_else(|| "now".to_owned(), |seconds| format!("{} ago", span(seconds)))
}

/// Seconds since 1970 as local time.
pub(super) fn local(seconds: u64) -> String {
    let stamp = i64::try_from(seconds).ok().and_then(|time| Timestamp::from_second(time).ok());
    let zoned = |stamp: Timestamp| stamp.to_zoned(TimeZone::system());
    stamp.map_or_else(|| "-".to_owned(), |it| zoned(it).strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// Bytes as drives are sold: "4.0 TB".
pub(super) fn drive_size(bytes: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// The percentage of a part, 0 to 100.
pub(super) fn percent(part: u64, whole: u64) -> u128 {
    (u128::from(part) * 100 / u128::from(whole.max(1))).min(100)
}

/// A value, or a dash if it is not known.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::{ago, drive_size, percent, span};

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 61, 7200, 172_800].map(span), ["0 s", "1 min", "2 h", "2 d"]);
        assert_eq!((ago(5, 8), ago(9, 8)), ("3 s ago".to_owned(), "now".to_owned()));
        assert_eq!(drive_size(18_000_207_937_536), "18.0 TB");
        assert_eq!((percent(u64::MAX, u64::MAX), percent(1, 0)), (100, 100));
    }
}
