//! Directories that a rollback brought back after their removal.
//!
//! The kernel takes a removed directory for dead as long as a process works in it. The restored directory
//! gets another generation, so that the kernel knows it as another inode.

use std::collections::HashMap;

use parking_lot::RwLock;
use posix::{Attributes, Ino};

/// How often each directory was restored.
#[derive(Default)]
pub(super) struct RestoredDirs(RwLock<HashMap<Ino, u64>>);

impl RestoredDirs {
    pub(super) fn increment(&self, dirs: impl Iterator<Item = Ino>) {
        let mut all = self.0.write();
        dirs.for_each(|dir| *all.entry(dir).or_default() += 1);
    }

    /// The generation of an inode for the kernel, which compares 32 bits of it.
    pub(super) fn generation(&self, of: &Attributes) -> u64 {
        let times = self.0.read().get(&of.ino).copied().unwrap_or(0);
        of.generation ^ (times & 0xff) << 24
    }
}
