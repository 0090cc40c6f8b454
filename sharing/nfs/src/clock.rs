//! The time of the system, as the server uses it.

use std::time::{SystemTime, UNIX_EPOCH};

use posix::Time;

/// The time now. A clock before 1970 is taken as 1970.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).expect("a clock before the year 292,277,026,596");
    Time { seconds, nanoseconds: since.subsec_nanos() }
}

/// Nanoseconds since 1970.
pub(crate) fn nanoseconds(time: Time) -> u64 {
    vfs::change_version(time)
}
