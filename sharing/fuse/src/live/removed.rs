//! Directories that were removed while a program may still be in them: it may look at them on, and
//! sees that they have no name any more.

use std::collections::VecDeque;

use parking_lot::Mutex;
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

    /// All are as good as never known.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }

    pub(super) fn find(&self, number: u64) -> Option<Attributes> {
        self.0.lock().iter().find(|one| one.number == number).copied()
    }
}
