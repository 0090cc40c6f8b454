//! Opening a pool: from an uberblock down to everything that reading needs.
//!
//! Labels describe only parts of the pool, so it is opened twice: first by the labels,
//! just well enough to read the pool's own configuration; then by that.

use std::sync::Arc;

use arc::{Cache, MemoryBudget};
use dmu::Objset;
use geometry::Reflow;
use ondisk::label::{PoolConfig, VdevConfig};
use ondisk::uberblock::{Scratch, Uberblock};
use units::{Guid, ObjsetId, Txg};
use vdev::{BuildContext, NodeKind, VdevNode, VdevTree};
use zio::{Reader, Source};

use crate::features::{self, FeatureCheck, FeatureState};
use crate::{Candidate, Error, Pool, PoolDirectory, removed, space};

/// As of when a pool is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImportPoint {
    /// The newest uberblock.
    #[default]
    Newest,
    /// The uberblock of that txg.
    Txg(Txg),
    /// The newest with which the pool can be opened.
    Rewind,
    /// The pool's checkpoint.
    Checkpoint,
}

/// How a pool is to be opened.
#[derive(Clone, Debug, Default)]
pub struct PoolOpenOptions {
    /// As of when.
    pub import_point: ImportPoint,
    /// The budget of the cache's memory.
    pub cache: MemoryBudget,
}

/// Puts something between the pool's vdevs and its cache.
pub type SourceWrapper<'a> = &'a dyn Fn(Arc<dyn Source>) -> Arc<dyn Source>;

impl Candidate {
    /// Opens the pool for reading.
    pub fn open(&self, options: &PoolOpenOptions) -> Result<Pool, Error> {
        self.open_with_source(options, &|vdevs| vdevs)
    }

    /// The same, but blocks come through what `between` gives: tests can lie to a whole pool so.
    pub fn open_with_source(
        &self,
        options: &PoolOpenOptions,
        between: SourceWrapper<'_>,
    ) -> Result<Pool, Error> {
        let label = self.config().ok_or(Error::NoConfig)?;
        if !(1..=28).contains(&label.pool.version) && label.pool.version != 5000 {
            return Err(Error::UnsupportedVersion { version: label.pool.version });
        }
        features::check_label_features(&label.pool.features_for_read)?;
        let standing = self.uberblocks();
        match options.import_point {
            ImportPoint::Newest => {
                let newest = standing.first().ok_or(Error::NoUberblock { requested: None })?;
                self.open_at(newest, options, between)
            }
            ImportPoint::Txg(wanted) => {
                let found = standing.iter().find(|uberblock| uberblock.txg == wanted);
                let wanted = Some(wanted);
                self.open_at(
                    found.ok_or(Error::NoUberblock { requested: wanted })?,
                    options,
                    between,
                )
            }
            ImportPoint::Rewind => {
                let mut last = Error::NoUberblock { requested: None };
                for uberblock in standing {
                    match self.open_at(uberblock, options, between) {
                        Ok(pool) => return Ok(pool),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            ImportPoint::Checkpoint => {
                let newest = standing.first().ok_or(Error::NoUberblock { requested: None })?;
                let pool = self.open_at(newest, options, between)?;
                let kept = pool.checkpoint()?.ok_or(Error::NoCheckpoint)?;
                self.open_at(&kept, options, between)
            }
        }
    }

    fn open_at(
        &self,
        uberblock: &Uberblock,
        options: &PoolOpenOptions,
        between: SourceWrapper<'_>,
    ) -> Result<Pool, Error> {
        let tops = self.tops();
        let nodes = self.nodes_from_labels(&tops, uberblock)?;
        let first = OpenedMos::new(nodes, uberblock, options, between)?;
        // the tables may lie on removed vdevs, whose mappings are not known yet
        if let Ok(features) = features::read(&first.directory) {
            refuse_unsupported(&features)?;
        }
        let list = first.directory.nvlist("config")?;
        let list = list.ok_or(Error::NoDirectoryEntry { name: "config" })?;
        let config = PoolConfig::parse(&list)?;
        let opened = match &config.tree {
            Some(tree) => {
                let nodes = self.nodes_from_config(tree, uberblock)?;
                OpenedMos::new(nodes, uberblock, options, between)?
            }
            // so it was in the first versions: the labels know all there is to know
            None => first,
        };
        let OpenedMos { tree, reader, cache, mos, directory } = opened;
        removed::load_mappings(&tree, &directory, &mos, config.tree.as_ref())?;
        let features = features::read(&directory)?;
        refuse_unsupported(&features)?;
        let newest = self.newest_uberblock().map_or(Txg::ZERO, |newest| newest.txg);
        let pool = Pool {
            name: self.name().to_owned(),
            guid: self.guid,
            uberblock: uberblock.clone(),
            config,
            config_nvlist: list,
            features,
            tree,
            reader,
            cache,
            mos,
            directory,
            rewound_to: rewound_to(uberblock, newest),
            newest_txg: newest,
        };
        space::load_dtls(&pool);
        Ok(pool)
    }

    /// The top-level vdevs as far as the labels know them.
    fn nodes_from_labels(
        &self,
        tops: &[Option<&VdevConfig>],
        uberblock: &Uberblock,
    ) -> Result<Vec<VdevNode>, Error> {
        let find = |guid| self.find_leaf(guid);
        let around = BuildContext { find_device: &find, reflow: reflow(uberblock) };
        let build = |top: Option<&VdevConfig>| match top {
            Some(config) => VdevNode::build(config, &around),
            None => Ok(VdevNode { guid: Guid::new(0), kind: NodeKind::Missing }),
        };
        Ok(tops.iter().copied().map(build).collect::<Result<_, _>>()?)
    }

    /// The top-level vdevs as the pool itself knows them.
    fn nodes_from_config(
        &self,
        root: &VdevConfig,
        uberblock: &Uberblock,
    ) -> Result<Vec<VdevNode>, Error> {
        let find = |guid| self.find_leaf(guid);
        let around = BuildContext { find_device: &find, reflow: reflow(uberblock) };
        let mut nodes = Vec::new();
        for child in &root.children {
            let place = units::to_usize(child.id.get());
            while nodes.len() < place.min(1 << 12) {
                nodes.push(VdevNode { guid: Guid::new(0), kind: NodeKind::Missing });
            }
            nodes.push(VdevNode::build(child, &around)?);
        }
        Ok(nodes)
    }
}

fn refuse_unsupported(features: &[FeatureState]) -> Result<(), Error> {
    match features::check_features(features) {
        FeatureCheck::Unsupported(guids) => Err(Error::UnsupportedFeatures { guids }),
        FeatureCheck::Supported | FeatureCheck::ReadOnly(_) => Ok(()),
    }
}

/// The txg of a state that others came after, or of one to which the pool was rewound.
fn rewound_to(uberblock: &Uberblock, newest: Txg) -> Option<Txg> {
    if uberblock.is_checkpoint() {
        return Some(uberblock.checkpoint_txg);
    }
    (uberblock.txg < newest).then_some(uberblock.txg)
}

fn reflow(uberblock: &Uberblock) -> Reflow {
    let said = uberblock.reflow;
    Reflow { offset: said.offset, scratch: said.scratch == Scratch::Valid }
}

/// A pool as far as a list of vdevs leads.
struct OpenedMos {
    tree: Arc<VdevTree>,
    reader: Arc<Reader>,
    cache: Arc<Cache>,
    mos: Objset,
    directory: PoolDirectory,
}

impl OpenedMos {
    fn new(
        nodes: Vec<VdevNode>,
        uberblock: &Uberblock,
        options: &PoolOpenOptions,
        between: SourceWrapper<'_>,
    ) -> Result<Self, Error> {
        let tree = Arc::new(VdevTree::new(nodes));
        let reader = Arc::new(Reader::new(Arc::clone(&tree)));
        let below = between(Arc::clone(&reader) as Arc<dyn Source>);
        let cache = Arc::new(Cache::new(below, &options.cache));
        let source: Arc<dyn Source> = Arc::clone(&cache) as Arc<dyn Source>;
        let mos = Objset::open(source, ObjsetId::MOS, &uberblock.root, None)?;
        let directory = PoolDirectory::open(mos.clone())?;
        if let Some(salt) = directory.lookup_bytes("org.illumos:checksum_salt")?
            && let Ok(salt) = salt.try_into()
        {
            reader.set_salt(salt);
        }
        if directory.lookup_u64("deflate")?.is_none() {
            tree.set_counts_parity();
        }
        Ok(Self { tree, reader, cache, mos, directory })
    }
}
