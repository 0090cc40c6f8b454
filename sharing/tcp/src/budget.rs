//! The memory budget of a server: bytes of data that requests have in memory.
//!
//! A thread takes the bytes of its request before it allocates them, and waits while there are too
//! few. It reads no further request meanwhile, so that the client is slowed down. One connection
//! has at most a quarter of the budget, or one request: so slow clients cannot use it up.

use parking_lot::{Condvar, Mutex};

/// The budget of a server.
pub struct MemoryBudget {
    limit: usize,
    used: Mutex<usize>,
    freed: Condvar,
}

/// The part of a budget that one connection uses, in bytes.
#[derive(Default)]
pub struct ConnectionShare(Mutex<usize>);

/// Bytes that are taken until this is dropped.
pub struct Reserved<'a> {
    budget: &'a MemoryBudget,
    share: &'a ConnectionShare,
    bytes: usize,
}

impl MemoryBudget {
    /// A budget of this many bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: Mutex::default(), freed: Condvar::new() }
    }

    /// Takes bytes for a connection; waits until there are enough.
    ///
    /// # Panics
    /// If a request is larger than the budget, because it would wait forever.
    pub fn reserve<'a>(&'a self, share: &'a ConnectionShare, bytes: usize) -> Reserved<'a> {
        assert!(bytes <= self.limit, "{bytes} bytes of a budget of {}", self.limit);
        let mut used = self.used.lock();
        loop {
            let mut own = share.0.lock();
            let is_fair = *own == 0 || *own + bytes <= self.limit / 4;
            if is_fair && *used + bytes <= self.limit {
                *used += bytes;
                *own += bytes;
                return Reserved { budget: self, share, bytes };
            }
            drop(own);
            self.freed.wait(&mut used);
        }
    }

    #[cfg(test)]
    fn used(&self) -> usize {
        *self.used.lock()
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock();
        *used -= self.bytes;
        *self.share.0.lock() -= self.bytes;
        drop(used);
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn connections_keep_to_budget_and_share() {
        let (budget, in_use) = (MemoryBudget::new(1000), AtomicUsize::new(0));
        let shares = [const { ConnectionShare(Mutex::new(0)) }; 3];
        std::thread::scope(|threads| {
            for share in &shares {
                for _ in 0..3 {
                    threads.spawn(|| {
                        for bytes in (0..300).chain([1000, 0, 999]) {
                            let reserved = budget.reserve(share, bytes);
                            assert!(in_use.fetch_add(bytes, SeqCst) + bytes <= 1000);
                            assert!(*share.0.lock() <= 250 || bytes > 250 || bytes == 0);
                            in_use.fetch_sub(bytes, SeqCst);
                            drop(reserved);
                        }
                    });
                }
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
