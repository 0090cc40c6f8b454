//! The tables of the directories that were used last.
//!
//! Opening a table is cheap, but the order of the names in a small one is computed at first use,
//! and used again with every name.

use std::collections::VecDeque;

use parking_lot::Mutex;
use units::ObjectId;
use zap::Zap;

const CAPACITY: usize = 16;

/// The cached tables, the newest last.
#[derive(Debug, Default)]
pub(crate) struct ZapCache(Mutex<VecDeque<(ObjectId, Zap)>>);

impl ZapCache {
    /// The table of a directory; `open` is called if it is not cached.
    pub(crate) fn get_or_open<E>(
        &self,
        id: ObjectId,
        open: impl FnOnce() -> Result<Zap, E>,
    ) -> Result<Zap, E> {
        let known = self.0.lock().iter().find(|row| row.0 == id).map(|row| row.1.clone());
        if let Some(known) = known {
            return Ok(known);
        }
        let zap = open()?;
        let mut rows = self.0.lock();
        if rows.len() >= CAPACITY {
            rows.pop_front();
        }
        rows.push_back((id, zap.clone()));
        Ok(zap)
    }

    /// Forgets the table of a directory that goes: its number may become another one's.
    pub(crate) fn remove(&self, id: ObjectId) {
        self.0.lock().retain(|row| row.0 != id);
    }
}
