//! The tree of all datasets of a pool, or of those below one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use engine::Pool;
use engine::files::{Content, File, Files, Kind, Room};
use parking_lot::{Mutex, RwLock};

use crate::control;
use crate::dataset::Dataset;
use crate::number::{Node, Place};
use crate::workers::Workers;
use crate::{Attributes, Error, Listing, Reader, Result, names};

/// The tree of all datasets of a pool, or of those below one. Cheap to clone, and shared between
/// threads.
#[derive(Clone)]
pub struct Tree(Arc<Inner>);

struct Inner {
    pool: Pool,
    /// Those below the target first, then snapshots as they are gone to.
    datasets: RwLock<Vec<Arc<Dataset>>>,
    snapshots: Mutex<HashMap<String, Place>>,
    report: Box<dyn Fn(&str) + Send + Sync>,
    told: Mutex<HashSet<u64>>,
    workers: Workers,
}

/// So many damaged files are named; those of more are the whole pool.
const MOST_TOLD: usize = 10_000;

impl Tree {
    /// The tree below a dataset `POOL/FS` or `POOL/FS@SNAPSHOT`; `report` is told in a sentence of
    /// each file that turns out to be unreadable, once.
    pub fn open(
        pool: Pool,
        target: &str,
        report: Box<dyn Fn(&str) + Send + Sync>,
    ) -> engine::Result<Self> {
        let mut heads = if target.contains('@') { Vec::new() } else { pool.heads_below(target) };
        heads.truncate(usize::try_from(Place::MOST / 2).unwrap_or(usize::MAX));
        let top = heads.first().map_or_else(|| target.to_owned(), |head| head.name.clone());
        let opened = pool.files(&top);
        // a dataset that is locked may have others below it that are not
        if let Err(why) = opened
            && !heads.iter().skip(1).any(|head| !head.is_volume)
        {
            return Err(why);
        }
        let mut all = vec![Dataset::new(top.clone(), Place(0))];
        let mut known = HashMap::from([(top, 0)]);
        for head in heads.iter().skip(1) {
            let Some((above, name)) = head.name.rsplit_once('/') else { continue };
            let number = all.len();
            let place = Place(u32::try_from(number).unwrap_or(u32::MAX));
            let Some(parent) = known.get(above).and_then(|at: &usize| all.get_mut(*at)) else {
                continue;
            };
            let below = if head.is_volume { &mut parent.volumes } else { &mut parent.children };
            below.push((name.as_bytes().to_vec(), place));
            all.push(Dataset::new(head.name.clone(), place));
            known.insert(head.name.clone(), number);
        }
        for dataset in &mut all {
            dataset.children.sort_by(|a, b| a.0.cmp(&b.0));
            dataset.volumes.sort_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(Self(Arc::new(Inner {
            pool,
            datasets: RwLock::new(all.into_iter().map(Arc::new).collect()),
            snapshots: Mutex::default(),
            report,
            told: Mutex::default(),
            workers: Workers::new(),
        })))
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    pub(crate) fn workers(&self) -> &Workers {
        &self.0.workers
    }

    pub(crate) fn dataset(&self, place: Place) -> Result<Arc<Dataset>> {
        let at = usize::try_from(place.0).unwrap_or(usize::MAX);
        self.0.datasets.read().get(at).cloned().ok_or(Error::Absent)
    }

    pub(crate) fn files(&self, dataset: &Dataset) -> Result<Files> {
        dataset.files(self.pool(), &self.0.report).cloned()
    }

    pub(crate) fn content(&self, dataset: &Dataset) -> Result<Content> {
        dataset.content(self.pool(), &self.0.report).cloned()
    }

    pub(crate) fn root_of(&self, dataset: &Dataset) -> Node {
        dataset.root(self.pool(), &self.0.report)
    }

    /// The place of a snapshot that is there.
    pub(crate) fn snapshot(&self, head: &Dataset, name: &str) -> Result<Place> {
        let full = format!("{}@{name}", head.name);
        let mut known = self.0.snapshots.lock();
        if let Some(place) = known.get(&full) {
            return Ok(*place);
        }
        let mut all = self.0.datasets.write();
        let place = Place(u32::try_from(all.len()).unwrap_or(u32::MAX));
        if place.0 >= Place::MOST {
            return Err(Error::TooHigh);
        }
        all.push(Arc::new(Dataset::new(full.clone(), place)));
        known.insert(full, place);
        Ok(place)
    }

    /// The number of the tree's root.
    pub fn root(&self) -> Result<u64> {
        let top = self.dataset(Place(0))?;
        self.root_of(&top).number().ok_or(Error::TooHigh)
    }

    pub(crate) fn node(&self, number: u64) -> Result<(Node, Arc<Dataset>)> {
        let node = Node::of(number).ok_or(Error::Absent)?;
        Ok((node, self.dataset(node.place())?))
    }

    fn file(&self, number: u64) -> Result<File> {
        match self.node(number)? {
            (Node::File(_, object), dataset) => Ok(self.files(&dataset)?.file(object)?),
            _ => Err(Error::Absent),
        }
    }

    /// What there is to know of a node.
    pub fn attributes(&self, number: u64) -> Result<Attributes> {
        let (node, dataset) = self.node(number)?;
        match node {
            Node::File(place, object) => attributes_of(place, &self.files(&dataset)?.file(object)?),
            Node::Volume(_) => {
                let mut made_up = Attributes::made_up(number, Kind::File);
                if let Ok(content) = self.content(&dataset) {
                    (made_up.size, made_up.block_size) = (content.size(), content.block_size());
                }
                Ok(made_up)
            }
            _ => Ok(Attributes::made_up(number, Kind::Directory)),
        }
    }

    /// What a name in a directory names. Names are compared as the dataset wants it.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attributes> {
        let (node, dataset) = self.node(parent)?;
        let Node::File(place, object) = node else {
            let found = control::lookup(self, node, &dataset, name)?;
            return self.attributes(found.number().ok_or(Error::TooHigh)?);
        };
        let files = self.files(&dataset)?;
        if object == files.root_id() {
            if let Some(child) = dataset.child(name) {
                let root = self.root_of(&*self.dataset(child)?);
                return self.attributes(root.number().ok_or(Error::TooHigh)?);
            }
            if name == control::NAME && !dataset.is_snapshot {
                let control = Node::Control(place).number().ok_or(Error::TooHigh)?;
                return self.attributes(control);
            }
        }
        let dir = files.file(object)?;
        match files.lookup(&dir, name) {
            Ok(Some(found)) => attributes_of(place, &found),
            Ok(None) => Err(Error::Absent),
            // the name is there: what it names should be, too
            Err(why) => match Error::from(why) {
                Error::Absent => Err(Error::Unreadable { why: "what it names is gone".into() }),
                other => Err(other),
            },
        }
    }

    /// Where a symbolic link points.
    pub fn target(&self, number: u64) -> Result<Vec<u8>> {
        let file = self.file(number)?;
        if file.facts().kind != Kind::Symlink {
            return Err(Error::NotSymlink);
        }
        Ok(file.target()?)
    }

    /// The names of a node's extended attributes, as Linux lists them.
    pub fn xattr_names(&self, number: u64) -> Result<Vec<Vec<u8>>> {
        match self.node(number)?.0 {
            Node::File(..) => Ok(self.file(number)?.xattr_names()?),
            _ => Ok(Vec::new()),
        }
    }

    /// The value of an extended attribute; none if there is no such attribute.
    pub fn xattr(&self, number: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.node(number)?.0 {
            Node::File(..) => Ok(self.file(number)?.xattr(name)?),
            _ => Ok(None),
        }
    }

    /// A directory's names.
    pub fn list(&self, number: u64) -> Result<Listing> {
        Listing::open(self, number)
    }

    /// The content of a file or a volume.
    pub fn read(&self, number: u64) -> Result<Arc<Reader>> {
        let (node, dataset) = self.node(number)?;
        let content = match node {
            Node::File(_, object) => {
                let file = self.files(&dataset)?.file(object)?;
                if file.facts().is_directory() {
                    return Err(Error::IsDirectory);
                }
                file.content()
            }
            Node::Volume(_) => self.content(&dataset)?,
            _ => return Err(Error::IsDirectory),
        };
        Ok(Reader::new(content, self.workers()))
    }

    /// What the dataset of a node takes and may still take.
    pub fn room(&self, number: u64) -> Result<Room> {
        Ok(self.pool().room(&self.node(number)?.1.name))
    }

    /// A node's name for people: `POOL/FS@SNAP:/PATH`.
    pub fn name(&self, number: u64) -> String {
        names::name(self, number)
    }

    /// Reports that a node cannot be read, once for each.
    pub fn complain(&self, number: u64, why: &Error) {
        let Error::Unreadable { why } = why else { return };
        {
            let mut told = self.0.told.lock();
            if told.len() >= MOST_TOLD || !told.insert(number) {
                return;
            }
        }
        (self.0.report)(&format!("{}: {why}", self.name(number)));
    }

    /// Whether anything turned out to be unreadable.
    pub fn has_complained(&self) -> bool {
        !self.0.told.lock().is_empty()
    }
}

/// The attributes of a file of that dataset.
pub(crate) fn attributes_of(place: Place, file: &File) -> Result<Attributes> {
    let number = Node::File(place, file.id()).number().ok_or(Error::TooHigh)?;
    let block_size = file.content().block_size();
    Ok(Attributes::of_file(number, &file.facts(), file.space(), block_size))
}
