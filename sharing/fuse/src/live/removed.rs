//! Directories that were removed while a program may still be in them: it may look at them on, and
//! sees that they have no name any more. If they are there again, as their file system was taken back
//! to a snapshot, they are others to the kernel, which lets nobody do anything in the dead.

use std::collections::{HashMap, VecDeque};

use parking_lot::{Mutex, RwLock};
use vfs::{Attributes, Kind, Time};

/// So many are known at a time; nobody looks at one that went long ago.
const MOST: usize = 1024;

/// What those that went last were like.
#[derive(Default)]
pub(super) struct Removed(Mutex<VecDeque<Attributes>>);

impl Removed {
    /// One went at that time. What is no directory lives as long as somebody has it open.
    pub(super) fn add(&self, before: Attributes, now: Time) {
        if before.kind != Kind::Directory {
            return;
        }
        let mut all = self.0.lock();
        all.retain(|other| other.number != before.number);
        all.push_back(Attributes { links: 0, size: 0, ctime: now, ..before });
        if all.len() > MOST {
            all.pop_front();
        }
    }

    /// Their numbers; they are as good as never known.
    pub(super) fn take(&self) -> Vec<u64> {
        self.0.lock().drain(..).map(|one| one.number).collect()
    }

    pub(super) fn find(&self, number: u64) -> Option<Attributes> {
        self.0.lock().iter().find(|one| one.number == number).copied()
    }
}

/// Those that are there again, and how often they were.
#[derive(Default)]
pub(super) struct Revived(RwLock<HashMap<u64, u64>>);

impl Revived {
    pub(super) fn add(&self, numbers: impl Iterator<Item = u64>) {
        let mut all = self.0.write();
        numbers.for_each(|number| *all.entry(number).or_default() += 1);
    }

    /// By which the kernel tells one from others that had its number; it looks at 32 bits.
    pub(super) fn generation(&self, of: &Attributes) -> u64 {
        let times = self.0.read().get(&of.number).copied().unwrap_or(0);
        of.generation ^ (times & 0xff) << 24
    }
}
