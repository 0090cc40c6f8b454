//! The tree of all datasets of a pool or a backup repository, or of those below one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use engine::files::{Content, DatasetCatalog, DatasetSpace, File, FileSystemReader};
use parking_lot::{Mutex, RwLock};
use posix::{Attributes, FileType, Ino};

use crate::control_dir;
use crate::prefetch::PrefetchWorkers;
use crate::tree_dataset::TreeDataset;
use crate::vnode::{DatasetIndex, Vnode};
use crate::{Error, FileReader, Result, TreeDir, attributes, names};

/// The tree of all datasets of a pool or a backup repository, or of those below one. Cheap to clone, and
/// shared between threads.
#[derive(Clone)]
pub struct DatasetTree(Arc<Inner>);

struct Inner {
    catalog: Arc<dyn DatasetCatalog>,
    /// Those below the target first, then snapshots in the order of their first access.
    datasets: RwLock<Vec<Arc<TreeDataset>>>,
    snapshots: Mutex<HashMap<String, DatasetIndex>>,
    report: Box<dyn Fn(&str) + Send + Sync>,
    reported: Mutex<HashSet<Ino>>,
    prefetch_workers: PrefetchWorkers,
}

/// The most damaged files that are reported; with more the whole pool is reported.
const MAX_REPORTED: usize = 10_000;

impl DatasetTree {
    /// The tree below a dataset `POOL/FS` or `POOL/FS@SNAPSHOT`; `report` gets a sentence about
    /// each unreadable file, once.
    pub fn open(
        catalog: impl DatasetCatalog + 'static,
        target: &str,
        report: Box<dyn Fn(&str) + Send + Sync>,
    ) -> engine::Result<Self> {
        let mut heads = if target.contains('@') { Vec::new() } else { catalog.heads_below(target) };
        heads.truncate(units::to_usize(DatasetIndex::LIMIT / 2));
        let top = heads.first().map_or_else(|| target.to_owned(), |head| head.name.clone());
        let opened = catalog.open_filesystem(&top);
        // a dataset that is locked may have others below it that are not
        if let Err(why) = opened
            && !heads.iter().skip(1).any(|head| !head.is_volume)
        {
            return Err(why);
        }
        let mut all = vec![TreeDataset::new(top.clone(), DatasetIndex(0))];
        let mut known = HashMap::from([(top, 0)]);
        for head in heads.iter().skip(1) {
            let Some((above, name)) = head.name.rsplit_once('/') else { continue };
            let number = all.len();
            let place = DatasetIndex(units::narrow::<u32>(number));
            let Some(parent) = known.get(above).and_then(|at: &usize| all.get_mut(*at)) else {
                continue;
            };
            let below = if head.is_volume { &mut parent.volumes } else { &mut parent.children };
            below.push((name.as_bytes().to_vec(), place));
            all.push(TreeDataset::new(head.name.clone(), place));
            known.insert(head.name.clone(), number);
        }
        for dataset in &mut all {
            dataset.children.sort_by(|a, b| a.0.cmp(&b.0));
            dataset.volumes.sort_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(Self(Arc::new(Inner {
            catalog: Arc::new(catalog),
            datasets: RwLock::new(all.into_iter().map(Arc::new).collect()),
            snapshots: Mutex::default(),
            report,
            reported: Mutex::default(),
            prefetch_workers: PrefetchWorkers::new(),
        })))
    }

    pub(crate) fn catalog(&self) -> &dyn DatasetCatalog {
        &*self.0.catalog
    }

    pub(crate) fn prefetch_workers(&self) -> &PrefetchWorkers {
        &self.0.prefetch_workers
    }

    pub(crate) fn dataset(&self, place: DatasetIndex) -> Result<Arc<TreeDataset>> {
        let at = units::to_usize(place.0);
        self.0.datasets.read().get(at).cloned().ok_or(Error::NotFound)
    }

    pub(crate) fn files(&self, dataset: &TreeDataset) -> Result<FileSystemReader> {
        dataset.files(self.catalog(), &self.0.report).cloned()
    }

    pub(crate) fn content(&self, dataset: &TreeDataset) -> Result<Content> {
        dataset.content(self.catalog(), &self.0.report).cloned()
    }

    pub(crate) fn root_vnode(&self, dataset: &TreeDataset) -> Vnode {
        dataset.root(self.catalog(), &self.0.report)
    }

    /// The index of an existing snapshot.
    pub(crate) fn snapshot_index(&self, head: &TreeDataset, name: &str) -> Result<DatasetIndex> {
        let full = format!("{}@{name}", head.name);
        let mut known = self.0.snapshots.lock();
        if let Some(place) = known.get(&full) {
            return Ok(*place);
        }
        let mut all = self.0.datasets.write();
        let place = DatasetIndex(units::narrow::<u32>(all.len()));
        if place.0 >= DatasetIndex::LIMIT {
            return Err(Error::InoOverflow);
        }
        all.push(Arc::new(TreeDataset::new(full.clone(), place)));
        known.insert(full, place);
        Ok(place)
    }

    /// The number of the tree's root.
    pub fn root_ino(&self) -> Result<Ino> {
        let top = self.dataset(DatasetIndex(0))?;
        self.root_vnode(&top).ino().ok_or(Error::InoOverflow)
    }

    pub(crate) fn vnode(&self, number: Ino) -> Result<(Vnode, Arc<TreeDataset>)> {
        let node = Vnode::from_ino(number).ok_or(Error::NotFound)?;
        Ok((node, self.dataset(node.dataset_index())?))
    }

    pub(crate) fn file(&self, number: Ino) -> Result<File> {
        match self.vnode(number)? {
            (Vnode::File(_, object), dataset) => Ok(self.files(&dataset)?.file(object)?),
            _ => Err(Error::NotFound),
        }
    }

    /// The attributes of a node.
    pub fn attributes(&self, number: Ino) -> Result<Attributes> {
        let (node, dataset) = self.vnode(number)?;
        match node {
            Vnode::File(place, object) => {
                file_attributes(place, &self.files(&dataset)?.file(object)?)
            }
            Vnode::Volume(_) => {
                let mut made_up = attributes::synthetic(number, FileType::File);
                if let Ok(content) = self.content(&dataset) {
                    (made_up.size, made_up.block_size) = (content.size(), content.block_size());
                }
                Ok(made_up)
            }
            _ => Ok(attributes::synthetic(number, FileType::Directory)),
        }
    }

    /// The object of a name in a directory. Names are compared by the dataset's rule.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let (node, dataset) = self.vnode(parent)?;
        let Vnode::File(place, object) = node else {
            let found = control_dir::lookup(self, node, &dataset, name)?;
            return self.attributes(found.ino().ok_or(Error::InoOverflow)?);
        };
        let files = self.files(&dataset)?;
        if object == files.root_object() {
            if let Some(child) = dataset.child(name) {
                let root = self.root_vnode(&*self.dataset(child)?);
                return self.attributes(root.ino().ok_or(Error::InoOverflow)?);
            }
            if name == control_dir::CONTROL_DIR && !dataset.is_snapshot {
                let control = Vnode::ControlDir(place).ino().ok_or(Error::InoOverflow)?;
                return self.attributes(control);
            }
        }
        let dir = files.file(object)?;
        match files.lookup(&dir, name) {
            Ok(Some(found)) => file_attributes(place, &found),
            Ok(None) => Err(Error::NotFound),
            // the name exists: its object should exist, too
            Err(why) => match Error::from(why) {
                Error::NotFound => {
                    Err(Error::Unreadable { why: "the file of the name does not exist".into() })
                }
                other => Err(other),
            },
        }
    }

    /// Where a symbolic link points.
    pub fn read_link(&self, number: Ino) -> Result<Vec<u8>> {
        let file = self.file(number)?;
        if file.stat().kind != FileType::Symlink {
            return Err(Error::NotSymlink);
        }
        Ok(file.read_link()?)
    }

    /// The names of a node's extended attributes, as Linux lists them.
    pub fn xattr_names(&self, number: Ino) -> Result<Vec<Vec<u8>>> {
        match self.vnode(number)?.0 {
            Vnode::File(..) => Ok(self.file(number)?.xattr_names()?),
            _ => Ok(Vec::new()),
        }
    }

    /// The value of an extended attribute; none if it does not exist.
    pub fn xattr(&self, number: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.vnode(number)?.0 {
            Vnode::File(..) => Ok(self.file(number)?.xattr(name)?),
            _ => Ok(None),
        }
    }

    /// A directory's names.
    pub fn open_dir(&self, number: Ino) -> Result<TreeDir> {
        TreeDir::open(self, number)
    }

    /// The content of a file or a volume.
    pub fn open_file(&self, number: Ino) -> Result<Arc<FileReader>> {
        let (node, dataset) = self.vnode(number)?;
        let content = match node {
            Vnode::File(_, object) => {
                let file = self.files(&dataset)?.file(object)?;
                if file.stat().is_directory() {
                    return Err(Error::IsDirectory);
                }
                file.content()
            }
            Vnode::Volume(_) => self.content(&dataset)?,
            _ => return Err(Error::IsDirectory),
        };
        Ok(FileReader::new(content, self.prefetch_workers()))
    }

    /// The used and available space of a node's dataset.
    pub fn space(&self, number: Ino) -> Result<DatasetSpace> {
        Ok(self.catalog().space(&self.vnode(number)?.1.name))
    }

    /// A node's path for messages: `POOL/FS@SNAP:/PATH`.
    pub fn display_name(&self, number: Ino) -> String {
        names::display_name(self, number)
    }

    /// Reports that a node cannot be read, once for each.
    pub fn report_unreadable(&self, number: Ino, why: &Error) {
        let Error::Unreadable { why } = why else { return };
        {
            let mut told = self.0.reported.lock();
            if told.len() >= MAX_REPORTED || !told.insert(number) {
                return;
            }
        }
        (self.0.report)(&format!("{}: {why}", self.display_name(number)));
    }

    /// Whether anything turned out to be unreadable.
    pub fn has_unreadable(&self) -> bool {
        !self.0.reported.lock().is_empty()
    }
}

/// The attributes of a file of that dataset.
pub(crate) fn file_attributes(place: DatasetIndex, file: &File) -> Result<Attributes> {
    let number = Vnode::File(place, file.ino()).ino().ok_or(Error::InoOverflow)?;
    let block_size = file.content().block_size();
    Ok(attributes::stored(number, &file.stat(), file.allocated(), block_size))
}
