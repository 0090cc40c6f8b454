//! Work that is shared out among threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::Result;

/// Does something for each item, several at a time; gives the results in the items' order, or the
/// first error that was met.
pub(crate) fn map_parallel<T: Sync, R: Send>(
    workers: usize,
    items: &[T],
    work: &(dyn Fn(&T) -> Result<R> + Sync),
) -> Result<Vec<R>> {
    if workers <= 1 || items.len() <= 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let failed = Mutex::new(None);
    let take = || {
        while failed.lock().is_none() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            match work(item) {
                Ok(result) => done.lock().push((at, result)),
                Err(error) => drop(failed.lock().get_or_insert(error)),
            }
        }
    };
    thread::scope(|scope| {
        let writing = zio::is_syncing_thread();
        // the caller only waits: if it worked, it would compete with the thread that it just
        // started
        let started = (0..workers.min(items.len())).filter(|_| {
            let help = move || zio::while_syncing(writing, take);
            thread::Builder::new().spawn_scoped(scope, help).is_ok()
        });
        // if the system cannot start more threads
        if started.count() == 0 {
            take();
        }
    });
    if let Some(error) = failed.into_inner() {
        return Err(error);
    }
    let mut done = done.into_inner();
    assert_eq!(done.len(), items.len(), "each item has its result");
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::map_parallel;
    use crate::Error;

    #[test]
    fn results_are_ordered_and_errors_stop() {
        let items: Vec<u64> = (0..1000).collect();
        let squares = map_parallel(3, &items, &|item| Ok(item * item)).unwrap();
        assert!(squares.iter().enumerate().all(|(at, square)| *square == (at * at) as u64));
        let place = units::Zbookmark::default();
        let failed = map_parallel(3, &items, &|item| {
            if *item == 500 { Err(Error::NoContent { zbookmark: place }) } else { Ok(()) }
        });
        assert_eq!(failed, Err(Error::NoContent { zbookmark: place }));
    }
}
