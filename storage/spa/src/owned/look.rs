//! Looking at a pool that is being written: as the last group on the drives has it.

use std::ops::Deref;
use std::sync::Arc;

use dmu::Objset;
use metaslab::Pin;
use units::{ObjsetId, Txg};
use zio::Source;

use super::Owned;
use crate::Error;

/// The pool's own objects, as the last group on the drives has them. As long as this is there, nothing
/// that they lead to is used again; it should be there briefly.
pub struct Look {
    mos: Objset,
    _pin: Pin,
}

impl Deref for Look {
    type Target = Objset;

    fn deref(&self) -> &Objset {
        &self.mos
    }
}

impl Owned {
    /// Its own objects, for who only looks: while a group is written they are as the last one has them.
    pub fn look(&self) -> Look {
        // what is looked up when the pin is there is kept by it
        let pin = self.pin();
        Look { mos: self.mos.synced(), _pin: pin }
    }

    /// As long as this is there, nothing is used again that the last group on the drives leads to.
    pub fn pin(&self) -> Pin {
        self.space.allocator().pin(self.groups.synced_txg())
    }

    /// The pool's own object set as the last group on the drives has it, and that group's txg, read
    /// anew. As long as the pin is there, nothing that it leads to is used anew.
    pub(crate) fn pinned(&self, source: &Arc<dyn Source>) -> Result<(Pin, Txg, Objset), Error> {
        let pin = self.pin();
        let uberblock = self.uberblock.read().clone();
        let mos = Objset::open(Arc::clone(source), ObjsetId::MOS, &uberblock.root, None)?;
        Ok((pin, uberblock.txg, mos))
    }
}
