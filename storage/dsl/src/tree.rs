//! The pool's tree of directories.
//!
//! The tree reads each directory once when it is opened; snapshots and properties on demand. An
//! unreadable directory is left out with its descendants, and [`DatasetTree::errors`] reports it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use dmu::Objset;
use units::{ObjectId, ObjsetId};
use zap::Zap;

use crate::dir::{Dir, dataset_record, open_zap};
use crate::keys::Keyring;
use crate::{Dataset, Error, Result};

/// The facts about the pool that the tree needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// Its name, with which all names in the tree begin.
    pub name: String,
    /// Bytes that the root directory has used and available together: the pool's deflated space,
    /// plus the savings of dedup and cloning, minus slop and held space.
    pub usable_space: u64,
}

/// The pool's tree of directories and datasets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DatasetTree(Arc<TreeInner>);

#[derive(Debug)]
struct TreeInner {
    mos: Objset,
    pool_info: PoolInfo,
    root: ObjectId,
    origin_snapshot: Option<ObjsetId>,
    by_path: BTreeMap<String, Arc<Dir>>,
    by_id: HashMap<ObjectId, Arc<Dir>>,
    errors: Vec<(String, Error)>,
    loaded_keys: Arc<Keyring>,
}

/// No name has more parts; deeper nesting is a circle.
const MAX_DEPTH: usize = 256;

impl DatasetTree {
    /// The directory object of the MOS.
    const POOL_DIRECTORY: ObjectId = ObjectId::new(1);
    const ROOT_DATASET: &'static str = "root_dataset";

    /// Reads all directories.
    pub fn open(mos: Objset, facts: PoolInfo) -> Result<Self> {
        Self::open_with_keys(mos, facts, Arc::default())
    }

    /// The same, with keys that were unlocked before.
    pub fn open_with_keys(mos: Objset, facts: PoolInfo, keys: Arc<Keyring>) -> Result<Self> {
        let directory = Zap::open(mos.object(Self::POOL_DIRECTORY)?)?;
        let root = directory.lookup_u64(Self::ROOT_DATASET.as_bytes())?;
        let root = ObjectId::new(root.ok_or(Error::NoDirectoryEntry { name: Self::ROOT_DATASET })?);
        let mut walk = DirWalk::default();
        walk.visit(&mos, root, facts.name.clone(), None, 0);
        if let (None, Some((_, error))) = (walk.by_path.get(&facts.name), walk.errors.first()) {
            return Err(error.clone());
        }
        let DirWalk { by_path, by_id, errors: faults, .. } = walk;
        let origin = None;
        let mut inner = TreeInner {
            mos,
            pool_info: facts,
            root,
            origin_snapshot: origin,
            by_path,
            by_id,
            errors: faults,
            loaded_keys: keys,
        };
        inner.origin_snapshot = inner.find_origin_snapshot();
        Ok(Self(Arc::new(inner)))
    }

    /// The pool's own object set.
    pub fn mos(&self) -> &Objset {
        &self.0.mos
    }

    /// The options of the opening.
    pub fn pool_info(&self) -> &PoolInfo {
        &self.0.pool_info
    }

    /// The topmost directory's object.
    pub fn root(&self) -> ObjectId {
        self.0.root
    }

    /// Directories that could not be read, by name.
    pub fn errors(&self) -> &[(String, Error)] {
        &self.0.errors
    }

    /// All directories, the pool's own and half received ones too, by name.
    pub fn dirs(&self) -> impl Iterator<Item = &Arc<Dir>> {
        self.0.by_path.values()
    }

    /// A directory by its object.
    pub fn dir(&self, id: ObjectId) -> Option<&Arc<Dir>> {
        self.0.by_id.get(&id)
    }

    pub(crate) fn loaded_keys(&self) -> &Keyring {
        &self.0.loaded_keys
    }

    /// The snapshot that is every dataset's first, of nothing (`$ORIGIN@$ORIGIN`).
    pub fn origin_snapshot(&self) -> Option<ObjsetId> {
        self.0.origin_snapshot
    }

    /// The file systems and volumes that users see, by name.
    pub fn heads(&self) -> impl Iterator<Item = Result<Dataset>> + '_ {
        let seen = self.dirs().filter(|dir| !dir.is_hidden() && dir.phys().head.exists());
        seen.map(|dir| Dataset::head(self, dir))
    }

    /// The same, but only those with chosen names: other records are not read.
    pub fn heads_matching<'a>(
        &'a self,
        chosen: &'a dyn Fn(&str) -> bool,
    ) -> impl Iterator<Item = Result<Dataset>> + 'a {
        let seen = self.dirs().filter(|dir| chosen(dir.path()));
        let seen = seen.filter(|dir| !dir.is_hidden() && dir.phys().head.exists());
        seen.map(|dir| Dataset::head(self, dir))
    }

    /// The paths of all heads, hidden ones too, that were received in part and cannot be gone on with.
    pub fn abandoned_receives(&self) -> Vec<String> {
        let all = self.dirs().filter(|dir| dir.phys().head.exists());
        // an unreadable one is never destroyed
        let heads = all.filter_map(|dir| Dataset::head(self, dir).ok());
        let lost = heads.filter(|head| head.is_inconsistent() && !head.can_resume_receive());
        lost.map(|head| head.dir().path().to_owned()).collect()
    }

    /// Everything that users see: each file system or volume with its snapshots, oldest first,
    /// and its bookmarks.
    pub fn datasets(&self) -> impl Iterator<Item = Result<Dataset>> + '_ {
        self.heads().flat_map(|head| {
            let (more, fault) = match &head {
                Ok(head) => {
                    let snapshots = head.snapshots();
                    let bookmarks = head.bookmarks();
                    let faults = [snapshots.as_ref().err(), bookmarks.as_ref().err()];
                    let faults: Vec<_> = faults.into_iter().flatten().cloned().collect();
                    let all = snapshots.unwrap_or_default().into_iter();
                    (all.chain(bookmarks.unwrap_or_default()).collect(), faults)
                }
                Err(_) => (Vec::new(), Vec::new()),
            };
            let more = more.into_iter().map(Ok).chain(fault.into_iter().map(Err));
            std::iter::once(head).chain(more)
        })
    }

    /// A dataset by its name: `pool/a`, `pool/a@snapshot`, `pool/a#bookmark`.
    pub fn find(&self, name: &str) -> Result<Dataset> {
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        let cut = name.find(['@', '#']).unwrap_or(name.len());
        let (path, rest) = name.split_at_checked(cut).ok_or_else(missing)?;
        let head = Dataset::head(self, self.0.by_path.get(path).ok_or_else(missing)?)?;
        let found = match (rest.strip_prefix('@'), rest.strip_prefix('#')) {
            (Some(snapshot), _) => head.snapshot(snapshot)?,
            (_, Some(bookmark)) => head.bookmark(bookmark)?,
            _ => Some(head),
        };
        found.ok_or_else(missing)
    }

    /// A dataset by its object: a head or a snapshot.
    pub fn dataset(&self, id: ObjsetId) -> Result<Dataset> {
        let (object, phys) = dataset_record(self.mos(), id)?;
        let dir = self.dir(phys.dir).ok_or_else(|| Error::NoSuchDataset {
            name: format!("dataset {id} of directory {}", phys.dir),
        })?;
        Dataset::from_record(self, dir, id, object, phys)
    }
}

impl TreeInner {
    fn find_origin_snapshot(&self) -> Option<ObjsetId> {
        let dir = self.by_path.get(&format!("{}/$ORIGIN", self.pool_info.name))?;
        let (_, head) = dir.head().ok()?;
        head.previous.exists().then(|| ObjsetId::new(head.previous.get()))
    }
}

#[derive(Default)]
struct DirWalk {
    by_path: BTreeMap<String, Arc<Dir>>,
    by_id: HashMap<ObjectId, Arc<Dir>>,
    visited: HashSet<ObjectId>,
    errors: Vec<(String, Error)>,
}

impl DirWalk {
    fn visit(
        &mut self,
        mos: &Objset,
        id: ObjectId,
        path: String,
        parent: Option<&Arc<Dir>>,
        depth: usize,
    ) {
        if depth > MAX_DEPTH || !self.visited.insert(id) {
            let error = Error::Cycle { object: id, links: "directories" };
            self.errors.push((path, error));
            return;
        }
        let dir = match Dir::read(mos, id, path.clone(), parent.cloned()) {
            Ok(dir) => Arc::new(dir),
            Err(error) => return self.errors.push((path, error)),
        };
        self.by_id.insert(id, Arc::clone(&dir));
        self.by_path.insert(path.clone(), Arc::clone(&dir));
        let children = match open_zap(mos, dir.phys().children) {
            Ok(children) => children,
            Err(error) => return self.errors.push((path, error)),
        };
        for entry in children.iter().flat_map(Zap::entries) {
            match entry {
                Ok(entry) => {
                    let child = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                    let id = ObjectId::new(entry.value.u64().unwrap_or(0));
                    self.visit(mos, id, child, Some(&dir), depth + 1);
                }
                Err(error) => self.errors.push((path.clone(), error.into())),
            }
        }
    }
}
