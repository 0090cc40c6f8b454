//! Opening a pool: from an uberblock down to everything that reading needs.
//!
//! Labels describe only parts of the pool, so it is opened twice: first as the labels know it,
//! just well enough to read the pool's own description; then as that says.

use std::sync::Arc;

use arc::{Cache, MemoryBudget};
use dmu::Objset;
use geometry::Reflow;
use ondisk::label::{PoolConfig, VdevConfig};
use ondisk::uberblock::{Scratch, Uberblock};
use units::{Guid, ObjsetId, Txg};
use vdev::{BuildContext, NodeKind, VdevNode, VdevTree};
use zio::{Reader, Source};

use crate::features::{self, Verdict};
use crate::{Candidate, Directory, Error, Pool, removed, space};

/// As of when a pool is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
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
pub struct Options {
    /// As of when.
    pub choice: Choice,
    /// Of what memory the cache takes its share.
    pub cache: MemoryBudget,
}

/// Puts something between the pool's vdevs and its cache.
pub type Between<'a> = &'a dyn Fn(Arc<dyn Source>) -> Arc<dyn Source>;

impl Candidate {
    /// Opens the pool for reading.
    pub fn open(&self, options: &Options) -> Result<Pool, Error> {
        self.open_through(options, &|vdevs| vdevs)
    }

    /// The same, but blocks come through what `between` gives: tests can lie to a whole pool so.
    pub fn open_through(&self, options: &Options, between: Between<'_>) -> Result<Pool, Error> {
        let label = self.config().ok_or(Error::NoConfig)?;
        if !(1..=28).contains(&label.pool.version) && label.pool.version != 5000 {
            return Err(Error::Version { version: label.pool.version });
        }
        features::judge_label(&label.pool.features_for_read)?;
        let standing = self.uberblocks();
        match options.choice {
            Choice::Newest => {
                let newest = standing.first().ok_or(Error::NoUberblock { wanted: None })?;
                self.open_at(newest, options, between)
            }
            Choice::Txg(wanted) => {
                let found = standing.iter().find(|uberblock| uberblock.txg == wanted);
                let wanted = Some(wanted);
                self.open_at(found.ok_or(Error::NoUberblock { wanted })?, options, between)
            }
            Choice::Rewind => {
                let mut last = Error::NoUberblock { wanted: None };
                for uberblock in standing {
                    match self.open_at(uberblock, options, between) {
                        Ok(pool) => return Ok(pool),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            Choice::Checkpoint => {
                let newest = standing.first().ok_or(Error::NoUberblock { wanted: None })?;
                let pool = self.open_at(newest, options, between)?;
                let kept = pool.checkpoint()?.ok_or(Error::NoCheckpoint)?;
                self.open_at(&kept, options, between)
            }
        }
    }

    fn open_at(
        &self,
        uberblock: &Uberblock,
        options: &Options,
        between: Between<'_>,
    ) -> Result<Pool, Error> {
        let tops = self.tops();
        let nodes = self.provisional(&tops, uberblock)?;
        let first = Opened::new(nodes, uberblock, options, between)?;
        let features = features::read(&first.directory)?;
        if let Verdict::Refused(guids) = features::judge(&features) {
            return Err(Error::Features { guids });
        }
        let list = first.directory.list("config")?;
        let list = list.ok_or(Error::NoEntry { name: "config" })?;
        let config = PoolConfig::parse(&list)?;
        let opened = match &config.tree {
            Some(tree) => {
                let nodes = self.trusted(tree, uberblock)?;
                Opened::new(nodes, uberblock, options, between)?
            }
            // so it was in the first versions: the labels know all there is to know
            None => first,
        };
        let Opened { tree, reader, cache, mos, directory } = opened;
        removed::load(&tree, &directory, &mos, config.tree.as_ref())?;
        let newest = self.newest().map_or(Txg::ZERO, |newest| newest.txg);
        let pool = Pool {
            name: self.name().to_owned(),
            guid: self.guid,
            uberblock: uberblock.clone(),
            config,
            list,
            features,
            tree,
            reader,
            cache,
            mos,
            directory,
            taken_back: taken_back(uberblock, newest),
            newest,
        };
        space::load_away(&pool);
        Ok(pool)
    }

    /// The top-level vdevs as far as the labels know them.
    fn provisional(
        &self,
        tops: &[Option<&VdevConfig>],
        uberblock: &Uberblock,
    ) -> Result<Vec<VdevNode>, Error> {
        let find = |guid| self.find(guid);
        let around = BuildContext { find_device: &find, reflow: reflow(uberblock) };
        let build = |top: Option<&VdevConfig>| match top {
            Some(config) => VdevNode::build(config, &around),
            None => Ok(VdevNode { guid: Guid::new(0), kind: NodeKind::Missing }),
        };
        Ok(tops.iter().copied().map(build).collect::<Result<_, _>>()?)
    }

    /// The top-level vdevs as the pool itself knows them.
    fn trusted(&self, root: &VdevConfig, uberblock: &Uberblock) -> Result<Vec<VdevNode>, Error> {
        let find = |guid| self.find(guid);
        let around = BuildContext { find_device: &find, reflow: reflow(uberblock) };
        let mut nodes = Vec::new();
        for child in &root.children {
            let place = usize::try_from(child.id.get()).unwrap_or(usize::MAX);
            while nodes.len() < place.min(1 << 12) {
                nodes.push(VdevNode { guid: Guid::new(0), kind: NodeKind::Missing });
            }
            nodes.push(VdevNode::build(child, &around)?);
        }
        Ok(nodes)
    }
}

/// The txg of a state that others came after, or of one to which the pool was taken back.
fn taken_back(uberblock: &Uberblock, newest: Txg) -> Option<Txg> {
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
struct Opened {
    tree: Arc<VdevTree>,
    reader: Arc<Reader>,
    cache: Arc<Cache>,
    mos: Objset,
    directory: Directory,
}

impl Opened {
    fn new(
        nodes: Vec<VdevNode>,
        uberblock: &Uberblock,
        options: &Options,
        between: Between<'_>,
    ) -> Result<Self, Error> {
        let tree = Arc::new(VdevTree::new(nodes));
        let reader = Arc::new(Reader::new(Arc::clone(&tree)));
        let below = between(Arc::clone(&reader) as Arc<dyn Source>);
        let cache = Arc::new(Cache::new(below, &options.cache));
        let source: Arc<dyn Source> = Arc::clone(&cache) as Arc<dyn Source>;
        let mos = Objset::open(source, ObjsetId::MOS, &uberblock.root, None)?;
        let directory = Directory::open(mos.clone())?;
        if let Some(salt) = directory.bytes("org.illumos:checksum_salt")?
            && let Ok(salt) = salt.try_into()
        {
            reader.set_salt(salt);
        }
        if directory.number("deflate")?.is_none() {
            tree.set_counts_parity();
        }
        Ok(Self { tree, reader, cache, mos, directory })
    }
}
