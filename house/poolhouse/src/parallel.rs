//! Work done on several threads, its results taken in order.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError, mpsc};

/// How many threads suit this machine; `wanted` if that is not 0.
pub(crate) fn thread_count(wanted: usize) -> usize {
    let own = || std::thread::available_parallelism().map_or(2, NonZero::get).clamp(2, 16);
    if wanted == 0 { own() } else { wanted.min(64) }
}

/// Does `work` for each of `jobs` on this many threads, and passes the results to `sink` in the
/// order of the jobs, until it breaks. At most `window` jobs run or wait for their turn, so that
/// memory stays bounded.
pub(crate) fn run_ordered<J: Send, R: Send>(
    threads: usize,
    window: usize,
    mut jobs: impl Iterator<Item = J>,
    work: impl Fn(J) -> R + Sync,
    mut sink: impl FnMut(R) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let window = window.max(threads).max(1);
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<(u64, J)>(window);
        let (answer, answers) = mpsc::sync_channel::<(u64, R)>(window);
        let receive = std::sync::Arc::new(Mutex::new(receive));
        for _ in 0..threads.max(1) {
            let (receive, answer, work) = (receive.clone(), answer.clone(), &work);
            scope.spawn(move || {
                loop {
                    let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((number, job)) = next else { break };
                    if answer.send((number, work(job))).is_err() {
                        break;
                    }
                }
            });
        }
        drop((receive, answer));
        let (mut sent, mut taken) = (0_u64, 0_u64);
        let mut early = BTreeMap::new();
        loop {
            while sent - taken < window as u64 {
                let Some(job) = jobs.next() else { break };
                if send.send((sent, job)).is_err() {
                    return ControlFlow::Break(());
                }
                sent += 1;
            }
            if sent == taken {
                return ControlFlow::Continue(());
            }
            while !early.contains_key(&taken) {
                let Ok((number, result)) = answers.recv() else { return ControlFlow::Break(()) };
                early.insert(number, result);
            }
            while let Some(result) = early.remove(&taken) {
                taken += 1;
                sink(result)?;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::run_ordered;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let mut seen = Vec::new();
        let slow_start = |job: u64| {
            for _ in 0..(100 - job) * 100 {
                std::hint::spin_loop();
            }
            job * 2
        };
        let end = run_ordered(3, 8, 0..100, slow_start, |result| {
            seen.push(result);
            ControlFlow::Continue(())
        });
        assert!(end.is_continue());
        assert_eq!(seen, (0..100).map(|job| job * 2).collect::<Vec<_>>());
    }

    #[test]
    fn a_sink_that_has_enough_ends_it() {
        let mut seen = 0;
        let end = run_ordered(
            2,
            4,
            0..,
            |job: u64| job,
            |_| {
                seen += 1;
                if seen == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert!(end.is_break());
        assert_eq!(seen, 10);
    }
}
