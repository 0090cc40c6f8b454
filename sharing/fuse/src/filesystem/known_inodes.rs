//! The inodes that the kernel has in its cache, by the replies that named them.
//!
//! The kernel counts the replies with each inode and sends the count back when it drops the inode (FORGET). An inode
//! is known as long as the counts differ. The table is only read when changes of other doors were lost, so that the
//! kernel has to drop everything.

use std::collections::HashMap;

use parking_lot::Mutex;
use posix::Ino;

/// Shards of the table with a lock each: many threads do lookups.
const SHARDS: usize = 16;

pub(super) struct KnownInodes(Vec<Mutex<HashMap<Ino, u64>>>);

impl Default for KnownInodes {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl KnownInodes {
    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, u64>> {
        let index = usize::try_from(ino.get() % SHARDS as u64);
        &self.0[index.expect("a number below the count of shards")]
    }

    /// A reply names an inode.
    pub(super) fn add(&self, ino: Ino) {
        *self.shard(ino).lock().entry(ino).or_default() += 1;
    }

    /// The kernel has dropped an inode that `lookups` replies had named.
    pub(super) fn remove(&self, ino: Ino, lookups: u64) {
        let mut shard = self.shard(ino).lock();
        if let Some(count) = shard.get_mut(&ino) {
            match count.checked_sub(lookups) {
                Some(left) if left > 0 => *count = left,
                _ => drop(shard.remove(&ino)),
            }
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Ino> {
        self.0.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use posix::Ino;

    use super::KnownInodes;

    #[test]
    fn inodes_are_known_until_all_lookups_are_forgotten() {
        let known = KnownInodes::default();
        for ino in [7, 7, 23, 7] {
            known.add(Ino::new(ino));
        }
        known.remove(Ino::new(7), 2);
        let mut all = known.all();
        all.sort_unstable();
        assert_eq!(all, [7, 23].map(Ino::new));
        known.remove(Ino::new(7), 1);
        known.remove(Ino::new(9), 1);
        assert_eq!(known.all(), [Ino::new(23)]);
    }
}
