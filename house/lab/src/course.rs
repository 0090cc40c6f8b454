//! The course of a measurement: which step it is at, how long the rest will take, whether to stop.

use std::sync::Mutex;
use std::time::Duration;

/// Who looks on while it is measured.
pub trait Onlooker: Sync {
    /// Whether the work should come to an end.
    fn wants_stop(&self) -> bool;
    /// A step begins that will take about `takes`; `done` of `all` has passed by the plan.
    fn begins(&self, step: &str, takes: Duration, done: Duration, all: Duration);
}

/// Nobody looks on.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Onlooker for Nobody {
    fn wants_stop(&self) -> bool {
        false
    }
    fn begins(&self, _: &str, _: Duration, _: Duration, _: Duration) {}
}

/// The course of one measurement.
pub struct Course<'a> {
    onlooker: &'a dyn Onlooker,
    plan: Mutex<Planned>,
}

#[derive(Clone, Copy, Default)]
struct Planned {
    done: Duration,
    /// What the step takes that is under way.
    step: Duration,
    all: Duration,
}

impl<'a> Course<'a> {
    /// A course that somebody watches.
    pub fn new(onlooker: &'a dyn Onlooker) -> Self {
        Self { onlooker, plan: Mutex::default() }
    }

    /// So much time will be needed from now on, the step under way not counted.
    pub fn expect(&self, left: Duration) {
        let mut plan = self.plan();
        plan.all = plan.done + plan.step + left;
    }

    /// The step before has ended, and the next begins.
    pub fn begin(&self, step: &str, takes: Duration) {
        let plan = {
            let mut plan = self.plan();
            let before = plan.step;
            plan.done += before;
            plan.step = takes;
            plan.all = plan.all.max(plan.done + takes);
            *plan
        };
        self.onlooker.begins(step, takes, plan.done, plan.all);
    }

    /// Whether to stop.
    pub fn stopped(&self) -> bool {
        self.onlooker.wants_stop()
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Planned> {
        self.plan.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::{Course, Onlooker};

    #[derive(Default)]
    struct Log(Mutex<Vec<(String, u64, u64)>>);

    impl Onlooker for Log {
        fn wants_stop(&self) -> bool {
            false
        }
        fn begins(&self, step: &str, _: Duration, done: Duration, all: Duration) {
            self.0.lock().unwrap().push((step.to_owned(), done.as_secs(), all.as_secs()));
        }
    }

    #[test]
    fn steps_add_up_to_the_whole() {
        let log = Log::default();
        let course = Course::new(&log);
        let seconds = Duration::from_secs;
        course.begin("size", seconds(1));
        course.expect(seconds(10));
        course.begin("a", seconds(4));
        course.begin("b", seconds(6));
        course.begin("late", seconds(2));
        let seen = log.0.lock().unwrap().clone();
        let wanted = [("size", 0, 1), ("a", 1, 11), ("b", 5, 11), ("late", 11, 13)];
        assert_eq!(seen, wanted.map(|(step, done, all)| (step.to_owned(), done, all)));
    }
}
