//! Where the transactions of file systems come from.

use std::sync::Arc;

use spa::{Owned, Set};
use txg::Tx;
use zpl::{Begin, Error, Need};

use super::World;

/// Begins transactions of one file system.
pub(super) struct Beginner {
    pub(super) owned: Arc<Owned>,
    pub(super) set: Arc<Set>,
    pub(super) world: World,
}

impl Begin for Beginner {
    fn begin(&self, need: &Need) -> zpl::Result<Tx> {
        let objset = self.set.objset.id();
        if !need.frees && !self.owned.has_room(need.bytes) {
            return Err(Error::NoSpace { objset });
        }
        self.owned.begin().map_err(|_| Error::ReadOnly { objset })
    }

    fn random(&self) -> u64 {
        self.world.number()
    }
}
