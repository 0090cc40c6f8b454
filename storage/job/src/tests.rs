//! A clock that only moves when slept on.

use std::cell::Cell;

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn rate_limited_job_sleeps_for_its_bytes() {
    let job = Job::default();
    job.rate_limit.set_rate(100);
    job.progress.set_bytes_total(1000);
    let now = Cell::new(seconds(5));
    for _ in 0..10 {
        job.step(100, 2, || now.get(), |wait| now.set(now.get() + wait)).unwrap();
    }
    assert_eq!(now.get(), seconds(15));
    let progress = &job.progress;
    assert_eq!(
        (progress.bytes_done(), progress.bytes_total(), progress.items_done()),
        (1000, 1000, 20)
    );
}

#[test]
fn idle_time_gives_no_burst_credit() {
    let pace = RateLimit::default();
    pace.set_rate(10);
    assert_eq!(pace.delay_after(20, seconds(0)), seconds(2));
    // Half a second late, then a minute idle: no credit for either.
    assert_eq!(pace.delay_after(10, seconds(2) + Duration::from_millis(500)), seconds(1));
    assert_eq!(pace.delay_after(10, seconds(60)), seconds(1));
    // Early, because the worker did not wait: the debt adds up.
    assert_eq!(pace.delay_after(10, seconds(60)), seconds(2));
    pace.set_rate(0);
    assert_eq!(pace.delay_after(u64::MAX, seconds(60)), Duration::ZERO);
    pace.set_rate(1);
    assert!(pace.delay_after(u64::MAX, seconds(60)) > seconds(1 << 33), "saturates");
}

#[test]
fn cancelled_job_counts_its_last_step() {
    let job = Job::default();
    let never = |_| unreachable!("no pace, no sleep");
    assert_eq!(job.step(1, 1, Duration::default, never), Ok(()));
    job.cancel.cancel();
    assert_eq!(job.step(1, 1, Duration::default, never), Err(Cancelled));
    assert_eq!(job.progress.items_done(), 2);
}

#[test]
fn cancel_during_sleep_stops_the_job() {
    let job = Job::default();
    job.rate_limit.set_rate(1);
    let result = job.step(1, 0, Duration::default, |wait| {
        assert_eq!(wait, seconds(1));
        job.cancel.cancel();
    });
    assert_eq!(result, Err(Cancelled));
}

#[test]
fn progress_is_visible_across_threads() {
    let job = Job::default();
    assert_eq!(job.progress.message(), "");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            job.progress.set_message("reading");
            job.cancel.cancel();
        });
    });
    assert!(job.cancel.is_cancelled());
    assert_eq!(job.progress.message(), "reading");
}
