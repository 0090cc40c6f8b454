//! Looking at a pool that is being written: as the last group on the drives has it.

use std::ops::Deref;
use std::sync::Arc;

use dmu::Objset;
use metaslab::Pin;
use units::{ObjsetId, Txg};
use zio::Source;

use super::ActivePool;
use crate::{Error, Pool, PoolDirectory, features};

/// The pool's own objects, as the last group on the drives has them. As long as this is there, nothing
/// that they lead to is used again; it should be there briefly.
pub struct SyncedMos {
    mos: Objset,
    _pin: Pin,
}

impl Deref for SyncedMos {
    type Target = Objset;

    fn deref(&self) -> &Objset {
        &self.mos
    }
}

impl ActivePool {
    /// Its own objects, for who only looks: while a group is written they are as the last one has them.
    pub fn synced_mos(&self) -> SyncedMos {
        // what is looked up when the pin is there is kept by it
        let pin = self.pin();
        SyncedMos { mos: self.mos.synced(), _pin: pin }
    }

    /// The pool as the last txg has it, for code that reads pools. As long as the pin is there, nothing that
    /// it leads to is used again.
    pub(super) fn synced_pool(&self) -> Result<(SyncedMos, Pool), Error> {
        let mos = self.synced_mos();
        let directory = PoolDirectory::open(mos.clone())?;
        let config = self.config();
        let pool = Pool {
            name: self.name.clone(),
            guid: self.guid(),
            uberblock: self.uberblock.read().clone(),
            config_nvlist: config.to_list(),
            config,
            features: features::read(&directory)?,
            tree: Arc::clone(&self.tree),
            reader: Arc::clone(&self.reader),
            cache: Arc::clone(&self.cache),
            mos: mos.clone(),
            directory,
            rewound_to: self.rewound_to,
            newest_txg: self.txgs.synced_txg(),
        };
        Ok((mos, pool))
    }

    /// As long as this is there, nothing is used again that the last group on the drives leads to.
    pub fn pin(&self) -> Pin {
        self.space.allocator().pin(self.txgs.synced_txg())
    }

    /// The pool's own object set as the last group on the drives has it, and that group's txg, read
    /// anew. As long as the pin is there, nothing that it leads to is used anew.
    pub(crate) fn open_pinned_mos(
        &self,
        source: &Arc<dyn Source>,
    ) -> Result<(Pin, Txg, Objset), Error> {
        let pin = self.pin();
        let uberblock = self.uberblock.read().clone();
        let mos = Objset::open(Arc::clone(source), ObjsetId::MOS, &uberblock.root, None)?;
        Ok((pin, uberblock.txg, mos))
    }
}
