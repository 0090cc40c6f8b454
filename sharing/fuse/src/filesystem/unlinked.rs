//! What lost its last name while the kernel may still know it: a program may be in such a directory, or
//! have looked at such a file, or be just about to open it by the name that was another's until now. It
//! is told on what that was like, and that it has no name any more, until the kernel forgets it.
//!
//! Files whose name was given to another, and what is no plain file, are kept for that: all can be
//! done to them as if they were open. Of plain files that were just removed, and of directories, no
//! more is known than what they were like, as to keep each would make removing many take a third
//! longer. If a directory is there again, as its file system was taken back to a snapshot, it is
//! another to the kernel, which lets nobody do anything in the dead.

use std::collections::{BTreeMap, HashMap};

use parking_lot::{Mutex, RwLock};
use vfs::{Attributes, FileType, Time, UnlinkedHold};

/// So many are known at a time, then those that went first are forgotten: the kernel soon tells of
/// those that nobody uses.
const MAX_UNLINKED: usize = 1 << 14;

/// Those that went.
#[derive(Default)]
pub(super) struct UnlinkedInodes(Mutex<UnlinkedTable>);

#[derive(Default)]
struct UnlinkedTable {
    entries: HashMap<u64, UnlinkedInode>,
    /// Their numbers, in the order in which they went.
    order: BTreeMap<u64, u64>,
    next_sequence: u64,
}

struct UnlinkedInode {
    attributes: Attributes,
    sequence: u64,
    _hold: Option<UnlinkedHold>,
}

impl UnlinkedInodes {
    /// One went at that time.
    pub(super) fn insert(&self, before: Attributes, kept: Option<UnlinkedHold>, now: Time) {
        // of a directory nothing is left in it
        let size = if before.kind == FileType::Directory { 0 } else { before.size };
        let like = Attributes { nlink: 0, size, ctime: now, ..before };
        let freed = {
            let mut table = self.0.lock();
            let place = table.next_sequence;
            table.next_sequence = place.saturating_add(1);
            let other = table.remove(before.ino);
            table.entries.insert(
                before.ino,
                UnlinkedInode { attributes: like, sequence: place, _hold: kept },
            );
            table.order.insert(place, before.ino);
            let first = table.order.first_key_value().map(|(_, number)| *number);
            let first = first.filter(|_| table.order.len() > MAX_UNLINKED);
            (other, first.and_then(|first| table.remove(first)))
        };
        // to free files takes its time
        drop(freed);
    }

    /// The kernel does not know a number any more.
    pub(super) fn remove(&self, number: u64) {
        let gone = self.0.lock().remove(number);
        drop(gone);
    }

    /// All; gives the numbers of the directories, which are as good as never known.
    pub(super) fn drain(&self) -> Vec<u64> {
        let all = std::mem::take(&mut *self.0.lock()).entries;
        let dirs = all.values().filter(|gone| gone.attributes.kind == FileType::Directory);
        dirs.map(|gone| gone.attributes.ino).collect()
    }

    pub(super) fn get(&self, number: u64) -> Option<Attributes> {
        self.0.lock().entries.get(&number).map(|gone| gone.attributes)
    }
}

impl UnlinkedTable {
    fn remove(&mut self, number: u64) -> Option<UnlinkedInode> {
        let gone = self.entries.remove(&number)?;
        self.order.remove(&gone.sequence);
        Some(gone)
    }
}

/// Those that are there again, and how often they were.
#[derive(Default)]
pub(super) struct RestoredDirs(RwLock<HashMap<u64, u64>>);

impl RestoredDirs {
    pub(super) fn increment(&self, numbers: impl Iterator<Item = u64>) {
        let mut all = self.0.write();
        numbers.for_each(|number| *all.entry(number).or_default() += 1);
    }

    /// By which the kernel tells one from others that had its number; it looks at 32 bits.
    pub(super) fn generation(&self, of: &Attributes) -> u64 {
        let times = self.0.read().get(&of.ino).copied().unwrap_or(0);
        of.generation ^ (times & 0xff) << 24
    }
}

#[cfg(test)]
mod tests {
    use vfs::{Attributes, FileType, Time};

    use super::{MAX_UNLINKED, UnlinkedInodes};

    fn sample_attributes(number: u64, kind: FileType) -> Attributes {
        let none = Time::default();
        Attributes {
            ino: number,
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 7,
            allocated: 512,
            block_size: 512,
            nlink: 1,
            atime: none,
            mtime: none,
            ctime: none,
            crtime: none,
            rdev: (0, 0),
            flags: 0,
            project_id: 0,
            generation: 9,
        }
    }

    #[test]
    fn those_that_went_are_known_until_they_are_forgotten_or_too_many() {
        let (removed, now) = (UnlinkedInodes::default(), Time { seconds: 5, nanoseconds: 0 });
        for number in 0..10 {
            removed.insert(sample_attributes(number, FileType::Fifo), None, now);
        }
        let found = removed.get(3).unwrap();
        assert_eq!((found.nlink, found.size, found.ctime), (0, 7, now));
        removed.remove(3);
        assert!(removed.get(3).is_none());
        // again, so that it is one of the last
        removed.insert(sample_attributes(4, FileType::Fifo), None, now);
        let most = u64::try_from(MAX_UNLINKED).unwrap();
        for number in 100..100 + most - 1 {
            removed.insert(sample_attributes(number, FileType::Directory), None, now);
        }
        assert!([0, 5, 9].iter().all(|number| removed.get(*number).is_none()));
        assert!(removed.get(4).is_some() && removed.get(100).unwrap().size == 0);
        assert_eq!(removed.drain().len(), MAX_UNLINKED - 1, "only directories");
        assert!(removed.get(100).is_none());
    }
}
