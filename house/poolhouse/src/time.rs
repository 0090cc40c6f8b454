//! Formats times.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Seconds since 1970 as local time, "2026-11-21 09:30:05+01:00"; "-" for 0, which is not a time.
pub(crate) fn format_local(seconds: u64) -> String {
    format_in_zone(seconds, TimeZone::system(), "%Y-%m-%d %H:%M:%S%:z")
}

/// Seconds since 1970 as zpool(8) shows times, "2026-11-21.09:30:05".
pub(crate) fn format_zpool(seconds: u64) -> String {
    format_in_zone(seconds, TimeZone::system(), "%Y-%m-%d.%H:%M:%S")
}

/// Seconds since 1970 as date(1) shows times, "Sat Nov 21 09:30:05 2026".
pub(crate) fn format_date(seconds: u64) -> String {
    format_in_zone(seconds, TimeZone::system(), "%a %b %e %H:%M:%S %Y")
}

/// The same with the time zone, "Sat Nov 21 09:30:05 CET 2026".
pub(crate) fn format_date_in_zone(seconds: u64) -> String {
    format_in_zone(seconds, TimeZone::system(), "%a %b %e %H:%M:%S %Z %Y")
}

/// Seconds since 1970 as zfs(8) shows times, "Sat Nov 21 09:30 2026".
pub(crate) fn format_zfs(seconds: u64) -> String {
    format_in_zone(seconds, TimeZone::system(), "%a %b %e %H:%M %Y")
}

/// Now, in RFC 3339 form.
pub(crate) fn now_rfc3339() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The same to the minute, for tables.
pub(crate) fn format_minutes(seconds: u64) -> String {
    format_in_zone(seconds, TimeZone::system(), "%Y-%m-%d %H:%M")
}

fn format_in_zone(seconds: u64, zone: TimeZone, form: &str) -> String {
    let stamp = i64::try_from(seconds).ok().and_then(|time| Timestamp::from_second(time).ok());
    match stamp {
        Some(stamp) if seconds != 0 => stamp.to_zoned(zone).strftime(form).to_string(),
        Some(_) => "-".to_owned(),
        None => seconds.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::format_in_zone;
    use jiff::tz::TimeZone;

    #[test]
    fn times_are_in_iso_form() {
        let form = |seconds| format_in_zone(seconds, TimeZone::UTC, "%Y-%m-%d %H:%M:%S%:z");
        assert_eq!(form(1_795_210_986), "2026-11-20 21:43:06+00:00");
        assert_eq!(form(0), "-");
        assert_eq!(form(u64::MAX), u64::MAX.to_string());
    }
}
