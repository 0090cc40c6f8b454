//! Reads a pool that is being written, as of the last synced txg.

use std::ops::Deref;
use std::sync::Arc;

use dmu::Objset;
use metaslab::Pin;
use units::{ObjsetId, Txg};
use zio::Source;

use super::ActivePool;
use crate::{Error, Pool, PoolDirectory, features};

/// The MOS as of the last synced txg. While this exists, none of its blocks is reused; it should be
/// held briefly.
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
    /// Its MOS for readers: during a sync it is that of the last txg.
    pub fn synced_mos(&self) -> SyncedMos {
        // Rule W1: the pin comes before the lookup. A sync in between would free blocks of the MOS that is returned,
        // and their space could be reused while the reader follows them.
        let pin = self.pin();
        SyncedMos { mos: self.mos.synced(), _pin: pin }
    }

    /// The pool as of the last txg, for code that reads pools. While the pin exists, none of its
    /// blocks is reused.
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

    /// While this exists, no block of the last synced txg is reused.
    pub fn pin(&self) -> Pin {
        self.space.allocator().pin(self.txgs.synced_txg())
    }

    /// The MOS as of the last synced txg, and that txg, read again. While the pin exists, none of
    /// its blocks is reused.
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
