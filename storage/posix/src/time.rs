//! A point in time.

/// Seconds and nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds; below 1,000,000,000 in a valid time.
    pub nanoseconds: u32,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The time of the change (`UTIME_NOW`). Write permission is enough to set this one.
    Now,
    /// This time. Only the owner may set it.
    At(Time),
}

impl SetTime {
    /// The time to store, at a change of that time.
    pub const fn resolve(self, now: Time) -> Time {
        match self {
            Self::Now => now,
            Self::At(time) => time,
        }
    }
}

impl Time {
    /// The time in two 64-bit words, as ZFS stores it: seconds, then nanoseconds.
    pub const fn from_words(words: [u64; 2]) -> Self {
        let [seconds, nanoseconds] = words;
        let [a, b, c, d, ..] = nanoseconds.to_le_bytes();
        Self { seconds: seconds.cast_signed(), nanoseconds: u32::from_le_bytes([a, b, c, d]) }
    }

    /// The two words of [`Time::from_words`].
    pub const fn to_words(self) -> [u64; 2] {
        [self.seconds.cast_unsigned(), self.nanoseconds as u64]
    }

    /// Nanoseconds since 1970, negative before.
    pub fn total_nanoseconds(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}
