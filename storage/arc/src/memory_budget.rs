//! Memory that several caches share.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use units::MinusOrZero as _;

/// Reservations may grow by this many bytes before caches are notified.
const NOTIFY_STEP: usize = 1 << 20;

/// A holder of blocks within a share.
pub(crate) trait MemoryUser: Send + Sync {
    /// Makes it shrink to this many bytes at once: its next read may be long in coming.
    fn shrink(&self, bytes: usize);
}

/// A number of bytes for all caches that are made with a clone of this.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<BudgetInner>);

struct BudgetInner {
    bytes: usize,
    user_count: AtomicUsize,
    users: Mutex<Vec<Weak<dyn MemoryUser>>>,
    /// The bytes of all reservations.
    reserved: AtomicUsize,
}

impl MemoryBudget {
    /// A budget of this many bytes.
    pub fn with_bytes(bytes: usize) -> Self {
        let (caches, holders, reserved) = Default::default();
        Self(Arc::new(BudgetInner { bytes, user_count: caches, users: holders, reserved }))
    }

    /// All of it.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Adds a cache; the others shrink to their new shares.
    pub(crate) fn add_user(&self, holder: Weak<dyn MemoryUser>) -> MemoryShare {
        self.0.user_count.fetch_add(1, Ordering::Relaxed);
        let mut holders = self.0.users.lock();
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
        drop(holders);
        self.shrink_users();
        MemoryShare(self.clone())
    }

    /// The share of each cache.
    fn share_bytes(&self) -> usize {
        let left = self.bytes().minus_or_zero(self.0.reserved.load(Ordering::Relaxed));
        left / self.0.user_count.load(Ordering::Relaxed).max(1)
    }

    /// Makes all caches shrink to their present shares.
    fn shrink_users(&self) {
        let holders: Vec<_> = self.0.users.lock().iter().filter_map(Weak::upgrade).collect();
        for holder in holders {
            holder.shrink(self.share_bytes());
        }
    }

    /// Reserves memory for something other than blocks, at first no bytes.
    pub fn reserve(&self) -> MemoryReservation {
        MemoryReservation { budget: self.clone(), bytes: AtomicUsize::default() }
    }
}

impl fmt::Debug for BudgetInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes for {} caches", self.bytes, self.user_count.load(Ordering::Relaxed))
    }
}

impl Default for MemoryBudget {
    /// The memory of a reader that reads each thing once.
    fn default() -> Self {
        Self::with_bytes(160 << 20)
    }
}

/// The share of one cache.
#[derive(Debug)]
pub(crate) struct MemoryShare(MemoryBudget);

impl MemoryShare {
    /// Bytes, now: others come and go.
    pub(crate) fn bytes(&self) -> usize {
        self.0.share_bytes()
    }
}

/// Memory for something other than blocks, which caches leave free.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: MemoryBudget,
    bytes: AtomicUsize,
}

impl MemoryReservation {
    /// Sets its size in bytes. Caches evict blocks before this returns, if it grew.
    ///
    /// # Panics
    ///
    /// If the reservations of the budget are not the sum of their parts, which is a mistake here.
    pub fn set_bytes(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        let reserved = &self.budget.0.reserved;
        reserved.fetch_add(bytes, Ordering::Relaxed);
        let all = reserved.fetch_sub(before, Ordering::Relaxed);
        assert!(all >= before, "the reservations are the sum of their parts");
        if bytes / NOTIFY_STEP > before / NOTIFY_STEP {
            self.budget.shrink_users();
        }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        let before = self.0.0.user_count.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a cache leaves that has a share");
    }
}
