//! The limits of a replica: how fast it sends, when it may run, and how old its copies may become.

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use units::MinusOrZero as _;

/// A throttle does not make up for more idle time than this.
const MAX_BURST: Duration = Duration::from_secs(1);

/// Bytes per second, as `20M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct RateLimit(pub(crate) u64);

impl TryFrom<String> for RateLimit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let shift = match text.chars().last() {
            Some('K' | 'k') => 10,
            Some('M' | 'm') => 20,
            Some('G' | 'g') => 30,
            _ => 0,
        };
        let digits = if shift == 0 { &*text } else { text.get(..text.len() - 1).unwrap_or("") };
        let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift));
        let bytes = count.filter(|bytes| *bytes >= 1024);
        bytes
            .map(Self)
            .ok_or_else(|| format!("\"{text}\" is not a rate; give bytes per second: 20M"))
    }
}

/// Delays a stream so that it keeps its rate.
#[derive(Debug)]
pub(crate) struct Throttle {
    limit: Option<RateLimit>,
    /// When the next bytes may be sent.
    next: Instant,
}

impl Throttle {
    pub(crate) fn new(limit: Option<RateLimit>) -> Self {
        Self { limit, next: Instant::now() }
    }

    /// How long to wait after this many bytes.
    pub(crate) fn delay(&mut self, bytes: u64, now: Instant) -> Duration {
        let Some(RateLimit(rate)) = self.limit else { return Duration::ZERO };
        let earliest = now.checked_sub(MAX_BURST).unwrap_or(now);
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let span = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.next = self.next.max(earliest) + span;
        self.next.saturating_duration_since(now)
    }
}

/// Hours of the day, as `22:00-06:00`: a replica may run in them, or the machine is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Window {
    /// Minutes since midnight.
    from: u16,
    to: u16,
}

impl TryFrom<String> for Window {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let minutes = |time: &str| {
            let (hour, minute) = time.trim().split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then_some(hour * 60 + minute)
        };
        let parsed =
            text.split_once('-').and_then(|(from, to)| Some((minutes(from)?, minutes(to)?)));
        match parsed {
            Some((from, to)) if from != to => Ok(Self { from, to }),
            _ => Err(format!("\"{text}\" is not a time of day; give two times: 22:00-06:00")),
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

impl Window {
    /// The window from a time on, for some minutes.
    #[cfg(test)]
    pub(crate) fn around(now: u64, minutes: u16) -> Option<Self> {
        let from = minute_of_day(now)?;
        Some(Self { from, to: (from + minutes) % (24 * 60) })
    }

    /// Whether the local time is within. `now` is in seconds since 1970. A clock without a sane time closes no window.
    pub(crate) fn is_open(self, now: u64) -> bool {
        minute_of_day(now).is_none_or(|minute| self.contains(minute))
    }

    /// When the window opens next. Times are in seconds since 1970.
    pub(crate) fn next_begin(self, now: u64) -> Option<u64> {
        let local = local_time(now)?;
        let (hour, minute) =
            (i8::try_from(self.from / 60).ok()?, i8::try_from(self.from % 60).ok()?);
        let on = |day: jiff::civil::Date| {
            let begin = day.at(hour, minute, 0, 0).to_zoned(TimeZone::system()).ok()?;
            u64::try_from(begin.timestamp().as_second()).ok()
        };
        let today = on(local.date())?;
        if today > now { Some(today) } else { on(local.date().tomorrow().ok()?) }
    }

    /// Whether a minute of the day, counted from midnight, is within.
    const fn contains(self, minute: u16) -> bool {
        if self.from < self.to {
            self.from <= minute && minute < self.to
        } else {
            self.from <= minute || minute < self.to
        }
    }
}

fn local_time(now: u64) -> Option<Zoned> {
    let seconds = i64::try_from(now).ok()?;
    Some(Timestamp::from_second(seconds).ok()?.to_zoned(TimeZone::system()))
}

/// The minute of the local day.
fn minute_of_day(now: u64) -> Option<u16> {
    let time = local_time(now)?;
    Some(u16::try_from(time.hour()).ok()? * 60 + u16::try_from(time.minute()).ok()?)
}

/// The age that the newest copy may have, in seconds, as `36h`, `2d` or `1w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct MaxAge(pub(crate) u64);

impl TryFrom<String> for MaxAge {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let unit = match text.chars().last() {
            Some('h') => Some(3600),
            Some('d') => Some(86_400),
            Some('w') => Some(604_800),
            _ => None,
        };
        let count =
            text.get(..text.len().minus_or_zero(1)).and_then(|count| count.parse::<u64>().ok());
        let seconds = count.zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
        let seconds = seconds.filter(|seconds| *seconds > 0);
        seconds.map(Self).ok_or_else(|| format!("\"{text}\" is not an age; give 36h, 2d or 1w"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{MaxAge, RateLimit, Throttle, Window};

    #[test]
    fn throttle_delays_to_its_rate() {
        let start = Instant::now();
        let mut throttle = Throttle { limit: Some(RateLimit(1 << 20)), next: start };
        assert_eq!(throttle.delay(1 << 20, start), Duration::from_secs(1));
        assert_eq!(throttle.delay(1 << 19, start), Duration::from_millis(1500));
        // an idle stream gains one second at most
        let later = start + Duration::from_mins(1);
        assert_eq!(throttle.delay(2 << 20, later), Duration::from_secs(1));
        assert_eq!(Throttle::new(None).delay(u64::MAX, start), Duration::ZERO);
    }

    #[test]
    fn windows_may_pass_midnight() {
        let window = |text: &str| Window::try_from(text.to_owned());
        let night = window("22:00-06:00").unwrap();
        assert!(night.contains(22 * 60) && night.contains(0) && !night.contains(6 * 60));
        assert_eq!(night.to_string(), "22:00-06:00");
        let noon = window("12:00-13:30").unwrap();
        assert!(noon.contains(12 * 60) && !noon.contains(0) && !noon.contains(13 * 60 + 30));
        for bad in ["", "22-6", "24:00-06:00", "06:00-06:00", "06:00"] {
            assert!(window(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_are_read_with_units() {
        assert_eq!(RateLimit::try_from("20M".to_owned()), Ok(RateLimit(20 << 20)));
        assert!(RateLimit::try_from("7".to_owned()).is_err());
        assert_eq!(MaxAge::try_from("36h".to_owned()), Ok(MaxAge(129_600)));
        assert_eq!(MaxAge::try_from("2d".to_owned()), Ok(MaxAge(172_800)));
        for bad in ["", "d", "0h", "3", "-1d", "ä"] {
            assert!(MaxAge::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
