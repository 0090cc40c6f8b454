//! Inodes without a name that a door still knows.
//!
//! The kernel keeps inodes of a mount until it sends FORGET: a process may work in a removed
//! directory, or may be about to open a file whose name was just given to another one. Such a
//! process gets the attributes that the inode had, with no links.
//!
//! A file whose name was given to another, and a special file, gets a hold ([`UnlinkedHold`]), so
//! that every request still works on it. Of a removed plain file and of a directory only the
//! attributes are kept: a hold on each would make removing many files take a third longer.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use posix::{Attributes, FileType, Ino, Time};

use super::UnlinkedHold;

/// The most inodes in the table; the oldest give way. The kernel soon forgets unused ones.
const MAX_UNLINKED: usize = 1 << 14;

/// The inodes without a name.
#[derive(Default)]
pub(super) struct UnlinkedInodes(Mutex<UnlinkedTable>);

#[derive(Default)]
struct UnlinkedTable {
    entries: HashMap<Ino, UnlinkedInode>,
    /// The inodes in the order of their removal.
    order: BTreeMap<u64, Ino>,
    next_sequence: u64,
}

struct UnlinkedInode {
    attributes: Attributes,
    sequence: u64,
    _hold: Option<UnlinkedHold>,
}

impl UnlinkedInodes {
    /// Adds an inode that lost its last name at that time.
    pub(super) fn insert(&self, before: Attributes, kept: Option<UnlinkedHold>, now: Time) {
        // a removed directory is empty
        let size = if before.kind == FileType::Directory { 0 } else { before.size };
        let like = Attributes { nlink: 0, size, ctime: now, ..before };
        let freed = {
            let mut table = self.0.lock();
            let place = table.next_sequence;
            table.next_sequence = place + 1;
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
        // a drop may free a file, which takes long: not under the lock
        drop(freed);
    }

    /// Removes an inode that the door has forgotten.
    pub(super) fn remove(&self, number: Ino) {
        let gone = self.0.lock().remove(number);
        drop(gone);
    }

    /// Empties the table. Returns the directories: they have no holds.
    pub(super) fn drain(&self) -> Vec<Ino> {
        let all = std::mem::take(&mut *self.0.lock()).entries;
        let dirs = all.values().filter(|gone| gone.attributes.kind == FileType::Directory);
        dirs.map(|gone| gone.attributes.ino).collect()
    }

    /// The last attributes of an inode without a name.
    pub(super) fn get(&self, number: Ino) -> Option<Attributes> {
        self.0.lock().entries.get(&number).map(|gone| gone.attributes)
    }
}

impl UnlinkedTable {
    fn remove(&mut self, number: Ino) -> Option<UnlinkedInode> {
        let gone = self.entries.remove(&number)?;
        self.order.remove(&gone.sequence);
        Some(gone)
    }
}

#[cfg(test)]
mod tests {
    use posix::{Attributes, FileFlags, FileType, Ino, Time};

    use super::{MAX_UNLINKED, UnlinkedInodes};

    fn sample_attributes(number: Ino, kind: FileType) -> Attributes {
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
            flags: FileFlags::NONE,
            project_id: 0,
            generation: 9,
        }
    }

    #[test]
    fn unlinked_inodes_are_known_until_forgotten() {
        let (removed, now) = (UnlinkedInodes::default(), Time { seconds: 5, nanoseconds: 0 });
        for number in (0..10).map(Ino::new) {
            removed.insert(sample_attributes(number, FileType::Fifo), None, now);
        }
        let found = removed.get(Ino::new(3)).unwrap();
        assert_eq!((found.nlink, found.size, found.ctime), (0, 7, now));
        removed.remove(Ino::new(3));
        assert!(removed.get(Ino::new(3)).is_none());
        // the second insert makes it one of the newest
        removed.insert(sample_attributes(Ino::new(4), FileType::Fifo), None, now);
        let most = u64::try_from(MAX_UNLINKED).unwrap();
        for number in (100..100 + most - 1).map(Ino::new) {
            removed.insert(sample_attributes(number, FileType::Directory), None, now);
        }
        assert!([0, 5, 9].iter().all(|number| removed.get(Ino::new(*number)).is_none()));
        assert!(
            removed.get(Ino::new(4)).is_some() && removed.get(Ino::new(100)).unwrap().size == 0
        );
        assert_eq!(removed.drain().len(), MAX_UNLINKED - 1, "only directories");
        assert!(removed.get(Ino::new(100)).is_none());
    }
}
