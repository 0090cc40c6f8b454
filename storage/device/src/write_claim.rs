//! The files that this process has open for writing.
//!
//! A record lock belongs to the process, not to the handle: closing any handle of the file releases
//! it. So no second handle of such a file may be opened here, not even for reading.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

static CLAIMED: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// The claim on a file that this process has open for writing; dropping it releases the claim.
#[derive(Debug)]
pub(crate) struct WriteClaim((u64, u64));

impl WriteClaim {
    /// Claims the file; `None` if it is claimed already.
    pub(crate) fn acquire(facts: &Metadata) -> Option<Self> {
        let identity = (facts.dev(), facts.ino());
        let mut held = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(identity).then(|| Self(identity))
    }

    /// Whether it is that of this file.
    pub(crate) fn matches(&self, facts: &Metadata) -> bool {
        self.0 == (facts.dev(), facts.ino())
    }

    /// Whether the file is claimed.
    pub(crate) fn is_claimed(facts: &Metadata) -> bool {
        let held = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        held.contains(&(facts.dev(), facts.ino()))
    }
}

/// Whether this process has the file open for writing.
pub fn is_open_for_writing(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| WriteClaim::is_claimed(&facts))
}

impl Drop for WriteClaim {
    fn drop(&mut self) {
        let was = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        assert!(was || std::thread::panicking(), "a claim is released once");
    }
}
