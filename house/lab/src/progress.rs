//! The course of a measurement: which step it is at, how long the rest will take, whether to stop.

use std::sync::Mutex;
use std::time::Duration;

/// An observer of a measurement.
pub trait Observer: Sync {
    /// Whether the work should stop.
    fn is_cancelled(&self) -> bool;
    /// A step begins that will take about `takes`; `done` of `all` has passed by the plan.
    fn step_started(&self, step: &str, takes: Duration, done: Duration, all: Duration);
}

/// No observer.
#[derive(Clone, Copy, Debug)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn is_cancelled(&self) -> bool {
        false
    }
    fn step_started(&self, _: &str, _: Duration, _: Duration, _: Duration) {}
}

/// The course of one measurement.
pub struct Progress<'a> {
    observer: &'a dyn Observer,
    schedule: Mutex<Schedule>,
}

#[derive(Clone, Copy, Default)]
struct Schedule {
    elapsed: Duration,
    /// The duration of the running step.
    current_step: Duration,
    total: Duration,
}

impl<'a> Progress<'a> {
    /// A course with an observer.
    pub fn new(observer: &'a dyn Observer) -> Self {
        Self { observer, schedule: Mutex::default() }
    }

    /// Sets the time still needed, without the running step.
    pub fn set_remaining(&self, left: Duration) {
        let mut plan = self.lock_schedule();
        plan.total = plan.elapsed + plan.current_step + left;
    }

    /// The step before has ended, and the next begins.
    pub fn start_step(&self, step: &str, takes: Duration) {
        let plan = {
            let mut plan = self.lock_schedule();
            let before = plan.current_step;
            plan.elapsed += before;
            plan.current_step = takes;
            plan.total = plan.total.max(plan.elapsed + takes);
            *plan
        };
        self.observer.step_started(step, takes, plan.elapsed, plan.total);
    }

    /// Whether to stop.
    pub fn is_cancelled(&self) -> bool {
        self.observer.is_cancelled()
    }

    fn lock_schedule(&self) -> std::sync::MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::{Observer, Progress};

    #[derive(Default)]
    struct Log(Mutex<Vec<(String, u64, u64)>>);

    impl Observer for Log {
        fn is_cancelled(&self) -> bool {
            false
        }
        fn step_started(&self, step: &str, _: Duration, done: Duration, all: Duration) {
            self.0.lock().unwrap().push((step.to_owned(), done.as_secs(), all.as_secs()));
        }
    }

    #[test]
    fn step_times_add_up_to_total() {
        let log = Log::default();
        let course = Progress::new(&log);
        let seconds = Duration::from_secs;
        course.start_step("size", seconds(1));
        course.set_remaining(seconds(10));
        course.start_step("a", seconds(4));
        course.start_step("b", seconds(6));
        course.start_step("late", seconds(2));
        let seen = log.0.lock().unwrap().clone();
        let wanted = [("size", 0, 1), ("a", 1, 11), ("b", 5, 11), ("late", 11, 13)];
        assert_eq!(seen, wanted.map(|(step, done, all)| (step.to_owned(), done, all)));
    }
}
