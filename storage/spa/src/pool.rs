//! An open pool.

use std::sync::Arc;

use arc::Cache;
use dmu::Objset;
use ondisk::label::PoolConfig;
use ondisk::nvlist::Nvlist;
use ondisk::uberblock::Uberblock;
use units::{Guid, Txg};
use vdev::VdevTree;
use zio::{Reader, Source};

use crate::features::{self, FeatureCheck, FeatureState};
use crate::{Error, PoolDirectory};

/// An open pool.
pub struct Pool {
    pub(crate) name: String,
    pub(crate) guid: Guid,
    pub(crate) uberblock: Uberblock,
    pub(crate) config: PoolConfig,
    pub(crate) config_nvlist: Nvlist,
    pub(crate) features: Vec<FeatureState>,
    pub(crate) tree: Arc<VdevTree>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) mos: Objset,
    pub(crate) directory: PoolDirectory,
    /// The txg as of which it was opened, if there were later ones, or to which it was rewound.
    pub(crate) rewound_to: Option<Txg>,
    /// The newest txg that its drives know.
    pub(crate) newest_txg: Txg,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool('{}', {}, txg {})", self.name, self.guid, self.txg())
    }
}

impl Pool {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets another name; its labels get it at the next sync.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        self.config.name = Some(name.to_owned());
    }

    /// Gives it another name until it is left; its labels keep the one that it has.
    pub fn set_temporary_name(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Its guid.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// The last txg that is in it.
    pub fn txg(&self) -> Txg {
        self.uberblock.txg
    }

    /// Makes the next txg higher than all txgs of its drives; returns whether the drives have later
    /// ones, because it was opened as of an earlier one. The sync then discards those for good
    /// ([`crate::ActivePool::commit_rewind`]).
    pub(crate) fn continue_after_newest(&mut self) -> bool {
        let goes_back = self.newest_txg > self.uberblock.txg;
        if goes_back {
            self.uberblock.txg = self.newest_txg.next();
        }
        goes_back
    }

    /// The txg of its state, if later ones were discarded, or are ignored. Records of intent logs
    /// then apply to those, and must not be replayed here.
    pub fn rewound_to(&self) -> Option<Txg> {
        self.rewound_to
    }

    /// The uberblock with which it was opened.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// Its configuration.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The same in its stored form.
    pub fn config_nvlist(&self) -> &Nvlist {
        &self.config_nvlist
    }

    /// Its features.
    pub fn features(&self) -> &[FeatureState] {
        &self.features
    }

    /// The permissions from its features.
    pub fn feature_check(&self) -> FeatureCheck {
        features::check_features(&self.features)
    }

    /// How often a feature is in use; 0 where it is not enabled.
    pub fn feature_refcount(&self, guid: &str) -> u64 {
        self.features.iter().find(|feature| feature.guid == guid).map_or(0, |found| found.refcount)
    }

    /// Its vdevs.
    pub fn tree(&self) -> &Arc<VdevTree> {
        &self.tree
    }

    /// The reader of its blocks.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// The cache before that.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The cache, as a source of blocks.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.cache) as Arc<dyn Source>
    }

    /// The pool's own object set.
    pub fn mos(&self) -> &Objset {
        &self.mos
    }

    /// The pool's directory.
    pub fn directory(&self) -> &PoolDirectory {
        &self.directory
    }

    /// Why it can only be read, if so: it is in the midst of something that writing does not know how to
    /// continue with, or uses features that are not known.
    pub fn read_only_reason(&self) -> Option<String> {
        match crate::space::check_writable(self) {
            Err(Error::NotWritable { why }) => Some(why),
            // unreadable blocks are reported when they are read
            Ok(()) | Err(_) => None,
        }
    }

    /// The uberblock of its checkpoint, if it has one.
    pub fn checkpoint(&self) -> Result<Option<Uberblock>, Error> {
        let Some(entry) = self.directory.zap().lookup(b"com.delphix:zpool_checkpoint")? else {
            return Ok(None);
        };
        let bytes: Vec<u8> = entry.u64s().iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(Some(Uberblock::parse_required(&bytes)?))
    }
}
