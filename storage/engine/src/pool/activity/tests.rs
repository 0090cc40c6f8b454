//! The scheduler with activities that a test defines.

use std::sync::atomic::AtomicU32;

use sim::DiskArray;

use super::*;
use crate::Error;
use crate::pool::replay_tests::create_pool;

/// Work that a test defines: it is due once, and then runs the function.
struct TestActivity<'a> {
    work: Work,
    starts: AtomicU32,
    run: &'a (dyn Fn(&Job) -> Result<Step> + Sync),
}

impl<'a> TestActivity<'a> {
    fn new(work: Work, run: &'a (dyn Fn(&Job) -> Result<Step> + Sync)) -> Self {
        Self { work, starts: AtomicU32::new(0), run }
    }
}

impl Activity for TestActivity<'_> {
    fn work(&self) -> Work {
        self.work
    }

    fn is_due(&self, _: &Pool) -> bool {
        self.starts.fetch_add(1, Ordering::SeqCst) == 0
    }

    fn step(&self, _: &Pool, job: &Arc<Job>) -> Result<Step> {
        (self.run)(job)
    }

    fn describe(&self, _: &Pool) -> Vec<ActivityStatus> {
        Vec::new()
    }
}

fn wait_for(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Does something while a scheduler runs activities.
fn with_scheduler(activities: &[&dyn Activity], work: impl FnOnce(&Scheduler, &Pool)) {
    let pool = create_pool(&DiskArray::new(&[64 << 20]));
    let (scheduler, stop) = (Scheduler::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| scheduler.run(&pool, activities, &stop));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(&scheduler, &pool);
        }));
        stop.store(true, Ordering::Release);
        done.unwrap();
    });
}

#[test]
fn activities_run_together_unless_they_exclude() {
    let [expands, trims, removes] = [0; 3].map(|_| AtomicBool::new(false));
    let steps = AtomicU32::new(0);
    let expand = |_: &Job| {
        expands.store(true, Ordering::SeqCst);
        wait_for(|| trims.load(Ordering::SeqCst));
        assert!(!removes.load(Ordering::SeqCst), "both move data");
        if steps.fetch_add(1, Ordering::SeqCst) < 20 {
            std::thread::sleep(Duration::from_millis(1));
            return Ok(Step::More);
        }
        expands.store(false, Ordering::SeqCst);
        Ok(Step::Done)
    };
    let remove = |_: &Job| {
        assert!(!expands.load(Ordering::SeqCst), "both move data");
        removes.store(true, Ordering::SeqCst);
        Ok(Step::Done)
    };
    let trim = |_: &Job| {
        wait_for(|| expands.load(Ordering::SeqCst));
        trims.store(true, Ordering::SeqCst);
        Ok(Step::Done)
    };
    let expansion = TestActivity::new(Work::Expansion, &expand);
    let removal = TestActivity::new(Work::Removal, &remove);
    let trimming = TestActivity::new(Work::Sweep, &trim);
    with_scheduler(&[&expansion, &removal, &trimming], |_, _| {
        wait_for(|| removes.load(Ordering::SeqCst));
    });
    assert_eq!(steps.load(Ordering::SeqCst), 21);
}

#[test]
fn failed_activity_rests_until_it_is_woken() {
    let fail = |_: &Job| Err(Error::Usage { what: "no room".to_owned() });
    let removal = TestActivity::new(Work::Removal, &fail);
    with_scheduler(&[&removal], |scheduler, _| {
        wait_for(|| scheduler.last_error(Work::Removal).is_some());
        assert_eq!(scheduler.last_error(Work::Removal).unwrap(), "no room");
        assert_eq!(scheduler.state.lock().slots[Work::Removal as usize].rest, REST_POLLS);
        let before = removal.starts.load(Ordering::SeqCst);
        scheduler.wake(Work::Removal);
        wait_for(|| removal.starts.load(Ordering::SeqCst) > before);
    });
}

#[test]
fn closing_and_interrupting_wait_for_the_end() {
    let is_running = AtomicBool::new(false);
    let work = |job: &Job| {
        is_running.store(true, Ordering::SeqCst);
        wait_for(|| job.cancel.is_cancelled());
        is_running.store(false, Ordering::SeqCst);
        Ok(Step::More)
    };
    for is_interrupted in [false, true] {
        let trim = TestActivity::new(Work::Sweep, &work);
        with_scheduler(&[&trim], |scheduler, pool| {
            wait_for(|| is_running.load(Ordering::SeqCst));
            if is_interrupted {
                scheduler.interrupt(Work::Sweep, pool);
            } else {
                scheduler.close(pool);
            }
            assert!(!is_running.load(Ordering::SeqCst));
        });
    }
}
