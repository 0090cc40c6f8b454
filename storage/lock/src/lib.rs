//! Locks with ranks: a thread that takes them in the wrong order fails, where assertions are on.
//!
//! Two threads that take two locks in different orders wait for each other, one day. So each lock of the pool that
//! is held together with others has a [`rank`], and a thread takes locks in the order of their ranks only:
//!
//! ```text
//! Mutex<T, { rank::CONFIG }>::lock    the thread holds no rank like it or above  →  it holds CONFIG, too
//!                                     else                                       →  a failed assertion
//! ```
//!
//! The assertion does not wait for the day: one thread alone shows the wrong order, in any test that comes along that
//! path. Without debug assertions the locks are those of `parking_lot`, and cost nothing more.
//!
//! `docs/threads-and-locks.md` has the same list, with the reasons; a test below compares them. A lock without a rank
//! is held alone, or is the last one that its thread takes.
#![forbid(unsafe_code)]

mod held;
pub mod rank;

use std::fmt;
use std::ops::{Deref, DerefMut};

use held::HeldRank;

/// A mutual exclusion with a rank.
pub struct Mutex<T, const RANK: u8>(parking_lot::Mutex<T>);

/// The guard of a [`Mutex`].
pub struct MutexGuard<'a, T> {
    // dropped first: the rank is held for at least as long as the lock
    inner: parking_lot::MutexGuard<'a, T>,
    _held: HeldRank,
}

/// A lock for one writer or several readers, with a rank.
pub struct RwLock<T, const RANK: u8>(parking_lot::RwLock<T>);

/// The guard of a reader.
pub struct ReadGuard<'a, T> {
    inner: parking_lot::RwLockReadGuard<'a, T>,
    _held: HeldRank,
}

/// The guard of a writer.
pub struct WriteGuard<'a, T> {
    inner: parking_lot::RwLockWriteGuard<'a, T>,
    _held: HeldRank,
}

impl<T, const RANK: u8> Mutex<T, RANK> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// Where debug assertions are on: if the thread holds a lock that comes after this one.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // checked before the wait, which would not end if another thread has the two locks the other way round
        let held = HeldRank::acquire(RANK);
        MutexGuard { inner: self.0.lock(), _held: held }
    }
}

impl<T, const RANK: u8> RwLock<T, RANK> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    /// Waits until there is no writer.
    ///
    /// # Panics
    /// Where debug assertions are on: if the thread holds this lock, or one that comes after it. A second read waits
    /// for ever if a writer came in between.
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let held = HeldRank::acquire(RANK);
        ReadGuard { inner: self.0.read(), _held: held }
    }

    /// Waits until there is no writer, and no reader.
    ///
    /// # Panics
    /// Where debug assertions are on: if the thread holds this lock, or one that comes after it.
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let held = HeldRank::acquire(RANK);
        WriteGuard { inner: self.0.write(), _held: held }
    }
}

impl<T: Default, const RANK: u8> Default for Mutex<T, RANK> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Default, const RANK: u8> Default for RwLock<T, RANK> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug, const RANK: u8> fmt::Debug for Mutex<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: fmt::Debug, const RANK: u8> fmt::Debug for RwLock<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests;
