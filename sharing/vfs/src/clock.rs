//! The times of changes: unique and increasing, so that a file's change time is its version.
//!
//! Every change of a file sets its change time (ctime), to the nanosecond, and the pool stores it.
//! NFSv4 requires a number per file that differs after each change and does not repeat after a
//! restart (the change attribute). The stored ctime is that number if no two changes get the same
//! time. So this clock never gives a time twice: while the system's clock stops or goes back a
//! little, it advances by one nanosecond a change. It follows a larger step back (an administrator
//! corrects a wrong clock), because files would have wrong times otherwise; versions then differ
//! from earlier ones but are smaller. Two changes at the same moment can be applied in the other
//! order than that of their times. A protocol that reports the kind of its change attribute must
//! therefore say "time", not "monotonic".

use std::sync::atomic::{AtomicI64, Ordering};

use posix::Time;

/// A source of times that are never given twice.
pub(crate) struct ChangeClock {
    now: Box<dyn Fn() -> Time + Send + Sync>,
    /// Nanoseconds since 1970 of the last time that was given.
    last: AtomicI64,
}

const NANOSECONDS: i64 = 1_000_000_000;
/// The largest step back of the system's clock that is smoothed out, in nanoseconds.
const MAX_STEP_BACK: i64 = NANOSECONDS;

impl ChangeClock {
    pub(crate) fn new(now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self { now: Box::new(now), last: AtomicI64::new(i64::MIN) }
    }

    /// The system's time.
    pub(crate) fn now(&self) -> Time {
        (self.now)()
    }

    /// A time for a change.
    pub(crate) fn next_change(&self) -> Time {
        let now = self.now();
        // times that do not fit (before 1677, after 2262) are not made unique
        let Some(wanted) = to_nanoseconds(now) else { return now };
        let step = |last: i64| Some(next_after(last, wanted));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        last.map_or(now, |last| from_nanoseconds(next_after(last, wanted)))
    }
}

fn next_after(last: i64, wanted: i64) -> i64 {
    let is_small_step = last.checked_sub(wanted).is_some_and(|back| back <= MAX_STEP_BACK);
    match last.checked_add(1) {
        Some(next) if wanted <= last && is_small_step => next,
        _ => wanted,
    }
}

fn to_nanoseconds(time: Time) -> Option<i64> {
    time.seconds.checked_mul(NANOSECONDS)?.checked_add(time.nanoseconds.into())
}

fn from_nanoseconds(all: i64) -> Time {
    let nanoseconds = u32::try_from(all.rem_euclid(NANOSECONDS));
    let nanoseconds = nanoseconds.expect("the remainder of a second");
    Time { seconds: all.div_euclid(NANOSECONDS), nanoseconds }
}

/// The version of a file that was last changed at that time: NFSv4's change attribute.
pub fn change_version(ctime: Time) -> u64 {
    // equal only for equal times as far as nanoseconds since 1970 fit 64 bits; so times after 2554 repeat
    let whole = ctime.seconds.wrapping_mul(NANOSECONDS);
    whole.wrapping_add(ctime.nanoseconds.into()).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use proptest::prelude::*;

    use super::{ChangeClock, Time, change_version};

    proptest! {
        #[test]
        fn change_times_are_unique_and_follow_the_clock(steps in prop::collection::vec(-3_i64..3, 1..50)) {
            let system = Arc::new(Mutex::new(Time { seconds: 1_700_000_000, nanoseconds: 5 }));
            let source = Arc::clone(&system);
            let clock = ChangeClock::new(move || *source.lock());
            let mut last: Option<Time> = None;
            for step in steps {
                // steps of half a second
                let mut now = system.lock();
                let halves = now.seconds * 2 + i64::from(now.nanoseconds >= 500_000_000) + step;
                let late = halves.rem_euclid(2) == 1;
                *now = Time {
                    seconds: halves.div_euclid(2),
                    nanoseconds: if late { 500_000_005 } else { 5 },
                };
                let now_is = *now;
                drop(now);
                let given = clock.next_change();
                let ahead = given.total_nanoseconds() - now_is.total_nanoseconds();
                prop_assert!((0..=1_000_000_001).contains(&ahead), "{}", ahead);
                if let Some(last) = last {
                    prop_assert_ne!(given, last);
                    let back = last.total_nanoseconds() - now_is.total_nanoseconds();
                    prop_assert!(given > last || back > 1_000_000_000);
                    prop_assert_eq!(given > last, change_version(given) > change_version(last));
                }
                last = Some(given);
            }
        }
    }

    #[test]
    fn times_out_of_range_pass_through() {
        let far = Time { seconds: i64::MAX, nanoseconds: 1 };
        let clock = ChangeClock::new(move || far);
        assert_eq!([clock.next_change(), clock.next_change()], [far, far]);
        let before = Time { seconds: -1, nanoseconds: 3 };
        let clock = ChangeClock::new(move || before);
        assert_eq!(clock.next_change(), before);
        assert_eq!(clock.next_change(), Time { seconds: -1, nanoseconds: 4 });
    }
}
