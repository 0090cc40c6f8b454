//! The ranks that a thread holds.

#[cfg(debug_assertions)]
use std::cell::RefCell;

#[cfg(debug_assertions)]
use crate::rank;

#[cfg(debug_assertions)]
thread_local! {
    static HELD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A rank that the thread holds until this is dropped.
///
/// Guards do not leave their thread, so the drop finds the rank where it was noted.
#[derive(Debug)]
pub(crate) struct HeldRank {
    #[cfg(debug_assertions)]
    rank: u8,
}

#[cfg(debug_assertions)]
impl HeldRank {
    /// Notes a rank, if all that the thread holds come before it.
    #[track_caller]
    pub(crate) fn acquire(rank: u8) -> Self {
        let last = HELD.with_borrow(|held| held.iter().max().copied());
        // a destructor during an unwind may lock anything: the first failure is the one to see
        assert!(
            last.is_none_or(|last| last < rank) || std::thread::panicking(),
            "the lock '{}' is taken under the lock '{}': docs/threads-and-locks.md has the order",
            rank::name(rank),
            rank::name(last.unwrap_or_default())
        );
        HELD.with_borrow_mut(|held| held.push(rank));
        Self { rank }
    }
}

#[cfg(debug_assertions)]
impl Drop for HeldRank {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            // guards may be dropped in any order
            if let Some(at) = held.iter().rposition(|rank| *rank == self.rank) {
                held.swap_remove(at);
            }
        });
    }
}

#[cfg(not(debug_assertions))]
impl HeldRank {
    /// Nothing is noted without assertions.
    pub(crate) const fn acquire(_: u8) -> Self {
        Self {}
    }
}
