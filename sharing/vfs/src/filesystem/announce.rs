//! Changes of a file system, published to the other doors.
//!
//! A change is published whatever came of the request: one that failed may have been done in part, or is done and only
//! not committed. What another door looks up again costs little.

use engine::files::Time;

use super::FileSystem;
use crate::changes::{Change, ChangeKind};
use crate::clock;

impl FileSystem {
    /// Publishes what happened to a file.
    pub(super) fn announce(&self, at: Time, ino: u64, kind: ChangeKind) {
        let (version, door) = (clock::version_of(at), self.1);
        self.0.changes.publish(&Change { ino, kind, version, door });
    }

    /// Whether anybody listens.
    pub(super) fn is_heard(&self) -> bool {
        self.0.changes.has_subscribers_besides(self.1)
    }

    /// The file of a name that is about to change, if anybody listens.
    pub(super) fn named_ino(&self, dir: u64, name: &[u8]) -> Option<u64> {
        if self.is_heard() { self.lookup(dir, name).ok().map(|found| found.ino) } else { None }
    }
}
