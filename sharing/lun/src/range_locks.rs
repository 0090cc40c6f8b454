//! Locks of byte ranges within one unit, held for the time of one request.
//!
//! Writes share a range with each other. A compare-and-write excludes all writes of its range between its read and
//! its write. Requests get their turn in the order of their arrival as far as they conflict, so that none starves.

use std::ops::Range;

use parking_lot::{Condvar, Mutex};

/// The locks of one unit.
#[derive(Default)]
pub(crate) struct RangeLocks {
    /// Held and waiting, in the order of their arrival.
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    entries: Vec<Entry>,
    next: u64,
}

struct Entry {
    ticket: u64,
    range: Range<u64>,
    is_exclusive: bool,
}

/// A lock that is held until this is dropped.
pub(crate) struct RangeLock<'a> {
    locks: &'a RangeLocks,
    ticket: u64,
}

impl RangeLocks {
    /// Locks a range beside other shared locks.
    pub(crate) fn lock_shared(&self, range: Range<u64>) -> RangeLock<'_> {
        self.lock(range, false)
    }

    /// Locks a range alone.
    pub(crate) fn lock_exclusive(&self, range: Range<u64>) -> RangeLock<'_> {
        self.lock(range, true)
    }

    fn lock(&self, range: Range<u64>, is_exclusive: bool) -> RangeLock<'_> {
        let mut queue = self.queue.lock();
        let ticket = queue.next;
        queue.next += 1;
        queue.entries.push(Entry { ticket, range, is_exclusive });
        while queue.is_blocked(ticket) {
            self.changed.wait(&mut queue);
        }
        RangeLock { locks: self, ticket }
    }
}

impl Queue {
    /// Whether an earlier entry conflicts with that of a ticket.
    fn is_blocked(&self, ticket: u64) -> bool {
        let Some(at) = self.entries.iter().position(|entry| entry.ticket == ticket) else {
            return false;
        };
        let (before, rest) = self.entries.split_at(at);
        let own = rest.first();
        own.is_some_and(|own| before.iter().any(|other| other.conflicts_with(own)))
    }
}

impl Entry {
    fn conflicts_with(&self, other: &Self) -> bool {
        let overlaps = self.range.start < other.range.end && other.range.start < self.range.end;
        overlaps && (self.is_exclusive || other.is_exclusive)
    }
}

impl Drop for RangeLock<'_> {
    fn drop(&mut self) {
        let mut queue = self.locks.queue.lock();
        queue.entries.retain(|entry| entry.ticket != self.ticket);
        drop(queue);
        self.locks.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use super::RangeLocks;

    #[test]
    fn exclusive_locks_exclude_and_shared_ones_share() {
        let (locks, inside) = (RangeLocks::default(), AtomicI64::new(0));
        let both = (locks.lock_shared(0..10), locks.lock_shared(5..15));
        drop((both, locks.lock_exclusive(20..30)));
        std::thread::scope(|threads| {
            for thread in 0..3_u64 {
                let (locks, inside) = (&locks, &inside);
                threads.spawn(move || {
                    for round in 0..300 {
                        if (round + thread) % 3 == 0 {
                            let _lock = locks.lock_exclusive(3..6);
                            assert_eq!(inside.swap(1000, SeqCst), 0);
                            inside.store(0, SeqCst);
                        } else {
                            let _lock = locks.lock_shared(round % 4..8);
                            assert!(inside.fetch_add(1, SeqCst) < 1000);
                            inside.fetch_sub(1, SeqCst);
                        }
                    }
                });
            }
        });
        assert!(locks.queue.lock().entries.is_empty());
    }
}
