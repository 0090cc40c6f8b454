//! The pool's tree of directories.
//!
//! Directories are read when the tree is opened, each once; snapshots and what is set in a
//! directory when somebody asks. A directory that cannot be read is left out with all below it,
//! and told of by [`Tree::faults`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use dmu::Objset;
use units::{ObjectId, ObjsetId};
use zap::Zap;

use crate::dir::{Dir, dataset_record, table};
use crate::keys::Keys;
use crate::{Dataset, Error, Result};

/// What the tree must know of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// Its name, with which all names in the tree begin.
    pub name: String,
    /// Bytes that the root directory has used and available together: the pool's deflated space
    /// and what dedup and cloning save, less what is kept back and what is held.
    pub usable: u64,
}

/// The pool's tree of directories and datasets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tree(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mos: Objset,
    facts: PoolFacts,
    root: ObjectId,
    origin: Option<ObjsetId>,
    by_path: BTreeMap<String, Arc<Dir>>,
    by_id: HashMap<ObjectId, Arc<Dir>>,
    faults: Vec<(String, Error)>,
    keys: Arc<Keys>,
}

/// No name has more parts; deeper nesting is a circle.
const DEEPEST: usize = 256;

impl Tree {
    /// The directory object of the MOS.
    const DIRECTORY: ObjectId = ObjectId::new(1);
    const ROOT: &'static str = "root_dataset";

    /// Reads all directories.
    pub fn open(mos: Objset, facts: PoolFacts) -> Result<Self> {
        Self::open_with(mos, facts, Arc::default())
    }

    /// The same, with keys that were unlocked before.
    pub fn open_with(mos: Objset, facts: PoolFacts, keys: Arc<Keys>) -> Result<Self> {
        let directory = Zap::open(mos.object(Self::DIRECTORY)?)?;
        let root = directory.lookup_u64(Self::ROOT.as_bytes())?;
        let root = ObjectId::new(root.ok_or(Error::Missing { name: Self::ROOT })?);
        let mut walk = Walk::default();
        walk.visit(&mos, root, facts.name.clone(), None, 0);
        if let (None, Some((_, why))) = (walk.by_path.get(&facts.name), walk.faults.first()) {
            return Err(why.clone());
        }
        let Walk { by_path, by_id, faults, .. } = walk;
        let origin = None;
        let mut inner = Inner { mos, facts, root, origin, by_path, by_id, faults, keys };
        inner.origin = inner.find_origin();
        Ok(Self(Arc::new(inner)))
    }

    /// The pool's own object set.
    pub fn mos(&self) -> &Objset {
        &self.0.mos
    }

    /// What it was opened with.
    pub fn facts(&self) -> &PoolFacts {
        &self.0.facts
    }

    /// The topmost directory's object.
    pub fn root(&self) -> ObjectId {
        self.0.root
    }

    /// Directories that could not be read, by name.
    pub fn faults(&self) -> &[(String, Error)] {
        &self.0.faults
    }

    /// All directories, the pool's own and half received ones too, by name.
    pub fn dirs(&self) -> impl Iterator<Item = &Arc<Dir>> {
        self.0.by_path.values()
    }

    /// A directory by its object.
    pub fn dir(&self, id: ObjectId) -> Option<&Arc<Dir>> {
        self.0.by_id.get(&id)
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    /// The snapshot that is every dataset's first, of nothing (`$ORIGIN@$ORIGIN`).
    pub fn origin_snapshot(&self) -> Option<ObjsetId> {
        self.0.origin
    }

    /// The file systems and volumes that users see, by name.
    pub fn heads(&self) -> impl Iterator<Item = Result<Dataset>> + '_ {
        let seen = self.dirs().filter(|dir| !dir.is_hidden() && dir.phys().head.exists());
        seen.map(|dir| Dataset::head(self, dir))
    }

    /// The same, but only those whose names are chosen: no records of others are read.
    pub fn heads_named<'a>(
        &'a self,
        chosen: &'a dyn Fn(&str) -> bool,
    ) -> impl Iterator<Item = Result<Dataset>> + 'a {
        let seen = self.dirs().filter(|dir| chosen(dir.path()));
        let seen = seen.filter(|dir| !dir.is_hidden() && dir.phys().head.exists());
        seen.map(|dir| Dataset::head(self, dir))
    }

    /// The paths of all heads, hidden ones too, that were received in part and cannot be gone on with.
    pub fn lost_receives(&self) -> Vec<String> {
        let all = self.dirs().filter(|dir| dir.phys().head.exists());
        // one that cannot be read is nobody's to destroy
        let heads = all.filter_map(|dir| Dataset::head(self, dir).ok());
        let lost = heads.filter(|head| head.is_inconsistent() && !head.can_be_resumed());
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

impl Inner {
    fn find_origin(&self) -> Option<ObjsetId> {
        let dir = self.by_path.get(&format!("{}/$ORIGIN", self.facts.name))?;
        let (_, head) = dir.head().ok()?;
        head.previous.exists().then(|| ObjsetId::new(head.previous.get()))
    }
}

#[derive(Default)]
struct Walk {
    by_path: BTreeMap<String, Arc<Dir>>,
    by_id: HashMap<ObjectId, Arc<Dir>>,
    seen: HashSet<ObjectId>,
    faults: Vec<(String, Error)>,
}

impl Walk {
    fn visit(
        &mut self,
        mos: &Objset,
        id: ObjectId,
        path: String,
        parent: Option<&Arc<Dir>>,
        depth: usize,
    ) {
        if depth > DEEPEST || !self.seen.insert(id) {
            let why = Error::Circle { object: id, what: "directories" };
            self.faults.push((path, why));
            return;
        }
        let dir = match Dir::read(mos, id, path.clone(), parent.cloned()) {
            Ok(dir) => Arc::new(dir),
            Err(why) => return self.faults.push((path, why)),
        };
        self.by_id.insert(id, Arc::clone(&dir));
        self.by_path.insert(path.clone(), Arc::clone(&dir));
        let children = match table(mos, dir.phys().children) {
            Ok(children) => children,
            Err(why) => return self.faults.push((path, why)),
        };
        for entry in children.iter().flat_map(Zap::entries) {
            match entry {
                Ok(entry) => {
                    let child = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                    let id = ObjectId::new(entry.value.u64().unwrap_or(0));
                    self.visit(mos, id, child, Some(&dir), depth.saturating_add(1));
                }
                Err(why) => self.faults.push((path.clone(), why.into())),
            }
        }
    }
}
