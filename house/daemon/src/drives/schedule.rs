//! The schedule of self-tests: which one of a drive is due.

use health::{History, SelfTestKind};

/// The seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// The days between two self-tests of a drive; 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) short_days: u64,
    pub(super) long_days: u64,
}

impl Schedule {
    /// The self-test that is due. A long one stands for a short one.
    pub(super) fn due(self, history: &History, now: u64) -> Option<SelfTestKind> {
        let age = |kind: SelfTestKind| {
            let started = history.self_tests.get(kind.as_str());
            started.and_then(|started| now.checked_sub(*started)).map(|seconds| seconds / DAY)
        };
        let (short, long) = (age(SelfTestKind::Short), age(SelfTestKind::Long));
        let is_due = |days: u64, age: Option<u64>| days > 0 && age.is_none_or(|age| age >= days);
        if is_due(self.long_days, long) {
            Some(SelfTestKind::Long)
        } else if is_due(self.short_days, short.into_iter().chain(long).min()) {
            Some(SelfTestKind::Short)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use health::{History, SelfTestKind};

    use super::{DAY, Schedule};

    fn history(tests: &[(&str, u64)]) -> History {
        let self_tests = tests.iter().map(|(kind, day)| ((*kind).to_owned(), day * DAY)).collect();
        History { self_tests, ..History::default() }
    }

    #[test]
    fn tests_are_due_by_their_ages() {
        let schedule = Schedule { short_days: 7, long_days: 30 };
        let due = |tests: &[(&str, u64)], day: u64| schedule.due(&history(tests), day * DAY);
        assert_eq!(due(&[], 100), Some(SelfTestKind::Long));
        assert_eq!(due(&[("long", 100)], 106), None);
        assert_eq!(due(&[("long", 100)], 107), Some(SelfTestKind::Short));
        assert_eq!(due(&[("long", 100), ("short", 107)], 113), None);
        assert_eq!(due(&[("long", 100), ("short", 128)], 130), Some(SelfTestKind::Long));
        assert_eq!(Schedule::default().due(&history(&[]), 100 * DAY), None);
        // the clock was set back
        let short = Schedule { short_days: 7, long_days: 0 };
        assert_eq!(short.due(&history(&[("short", 200)]), 100 * DAY), Some(SelfTestKind::Short));
    }
}
