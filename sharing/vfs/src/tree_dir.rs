//! Directories listed: a batch of names at a time, so that memory stays flat however many there
//! are, and from any place that a cookie stands for.
//!
//! ```text
//! cookie     what comes next
//! 0          .
//! 1          ..
//! 2 ...      the stored names: the engine's cookie and 2; in made-up directories an index and 2
//! 2^62 ...   datasets below that no stored name stands for: an index and 2^62
//! ```

use std::sync::Arc;

use engine::files::{File, FileSystemReader};
use parking_lot::Mutex;
use posix::{Attributes, FileType, Ino};
use units::MinusOrZero as _;

use crate::control_dir;
use crate::entry_batch::EntryBatch;
use crate::tree_dataset::TreeDataset;
use crate::vnode::Vnode;
use crate::{DatasetTree, Error, Result};

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: any bytes but 0 and `/`.
    pub name: Vec<u8>,
    /// The number of its object. The root of a snapshot gets another one when it is looked up.
    pub ino: Ino,
    /// The type of its object.
    pub kind: FileType,
    /// The cookie of the place behind it.
    pub next_cookie: u64,
    /// Whether a protocol should look it up rather than get the attributes of `number`.
    pub needs_lookup: bool,
}

/// A directory that is being listed.
pub struct TreeDir {
    tree: DatasetTree,
    ino: Ino,
    vnode: Vnode,
    dataset: Arc<TreeDataset>,
    batch: Mutex<EntryBatch>,
}

const STORED_COOKIE: u64 = 2;
const CHILD_COOKIE: u64 = 1 << 62;
/// Names in a batch.
const BATCH_LEN: usize = 2048;

impl TreeDir {
    pub(crate) fn open(tree: &DatasetTree, number: Ino) -> Result<Self> {
        let (node, dataset) = tree.vnode(number)?;
        match node {
            Vnode::File(_, object) if !tree.files(&dataset)?.stat(object)?.is_directory() => {
                return Err(Error::NotDirectory);
            }
            Vnode::Unopened(_) if dataset.children.is_empty() => {
                return Err(control_dir::open_error(tree, &dataset));
            }
            Vnode::Volume(_) => return Err(Error::NotDirectory),
            _ => {}
        }
        Ok(Self {
            tree: tree.clone(),
            ino: number,
            vnode: node,
            dataset,
            batch: Mutex::new(EntryBatch::new(true)),
        })
    }

    /// Calls `visit` with the names from a cookie on, until it returns false: that name comes
    /// again.
    pub fn visit_from(&self, cookie: u64, visit: &mut dyn FnMut(&DirEntry) -> bool) -> Result<()> {
        self.batch.lock().visit_from((cookie, 0), &mut |at| self.read_batch(at), visit)
    }

    /// The attributes of an item, for protocols that return them with the names. None: the client
    /// looks the name up, and gets the error then.
    pub fn attributes(&self, item: &DirEntry) -> Option<Attributes> {
        if item.needs_lookup { None } else { self.tree.attributes(item.ino).ok() }
    }

    /// The names from a cookie on, a batch of them; none at the end.
    fn read_batch(&self, from: u64) -> Result<Vec<DirEntry>> {
        let mut items = Vec::new();
        for (cookie, name) in [(0, &b"."[..]), (1, b"..")] {
            if from <= cookie {
                let number = if cookie == 0 { self.ino } else { self.parent_ino() };
                items.push(new_entry(name, Some(number), FileType::Directory, cookie + 1));
            }
        }
        let Vnode::File(_, object) = self.vnode else {
            items.extend(self.synthetic_entries(from.minus_or_zero(STORED_COOKIE))?);
            return Ok(items);
        };
        let files = self.tree.files(&self.dataset)?;
        if from < CHILD_COOKIE
            && !self.push_stored(&files, &files.file(object)?, from, &mut items)?
        {
            return Ok(items);
        }
        if object == files.root_object() {
            self.push_children(&files, from.minus_or_zero(CHILD_COOKIE), &mut items)?;
        }
        Ok(items)
    }

    /// Adds names that the dataset stores; gives whether these were all.
    fn push_stored(
        &self,
        files: &FileSystemReader,
        dir: &File,
        from: u64,
        items: &mut Vec<DirEntry>,
    ) -> Result<bool> {
        let is_root = dir.ino() == files.root_object();
        let before = items.len();
        let mut is_all = true;
        let listed =
            files.read_dir_from(dir, from.minus_or_zero(STORED_COOKIE), &mut |name, next| {
                let child = if is_root { self.dataset.child(&name.name) } else { None };
                let kind = if child.is_some() { FileType::Directory } else { name.kind };
                let number = match child {
                    Some(child) => self.root_ino(child),
                    None => Vnode::File(self.dataset.index, name.ino).ino(),
                };
                items.push(new_entry(&name.name, number, kind, next + STORED_COOKIE));
                is_all = items.len() < BATCH_LEN;
                is_all
            });
        match listed {
            Ok(()) => Ok(is_all),
            Err(_) if items.len() > before => Ok(false),
            Err(why) => {
                let why = Error::from(why);
                self.tree.report_unreadable(self.ino, &why);
                Err(why)
            }
        }
    }

    /// Adds the datasets below that no stored name stands for.
    fn push_children(
        &self,
        files: &FileSystemReader,
        from: u64,
        items: &mut Vec<DirEntry>,
    ) -> Result<()> {
        let root = files.root()?;
        for (index, (name, place)) in (0_u64..).zip(&self.dataset.children) {
            if index >= from && !matches!(files.lookup(&root, name), Ok(Some(_))) {
                let next = (CHILD_COOKIE + index) + 1;
                items.push(new_entry(name, self.root_ino(*place), FileType::Directory, next));
            }
        }
        Ok(())
    }

    /// The names in a directory that no dataset stores, from an index on.
    fn synthetic_entries(&self, from: u64) -> Result<Vec<DirEntry>> {
        let place = self.dataset.index;
        let mut all: Vec<(&[u8], Vnode)> = Vec::new();
        let names;
        match self.vnode {
            Vnode::ControlDir(_) => {
                all.push((control_dir::SNAPSHOT_DIR, Vnode::SnapshotDir(place)));
                if !self.dataset.volumes.is_empty() {
                    all.push((control_dir::VOLUME_DIR, Vnode::VolumeDir(place)));
                }
            }
            Vnode::SnapshotDir(_) => {
                names = self.dataset.snapshots(self.tree.catalog())?;
                // opening thousands of snapshots for a listing would take its time
                for name in names {
                    let place = self.tree.snapshot_index(&self.dataset, name)?;
                    all.push((name.as_bytes(), Vnode::Unopened(place)));
                }
            }
            Vnode::VolumeDir(_) => {
                let volumes = self.dataset.volumes.iter();
                all.extend(volumes.map(|(name, place)| (&name[..], Vnode::Volume(*place))));
            }
            Vnode::Unopened(_) => {
                for (name, place) in &self.dataset.children {
                    all.push((name, self.tree.root_vnode(&*self.tree.dataset(*place)?)));
                }
            }
            Vnode::File(..) | Vnode::Volume(_) | Vnode::ShadowDir(_) => {}
        }
        let is_snapshots = matches!(self.vnode, Vnode::SnapshotDir(_));
        let numbered = (0_u64..).zip(all).filter(|(index, _)| *index >= from);
        let plain = numbered.map(|(index, (name, node))| {
            let is_volume = matches!(node, Vnode::Volume(_));
            let kind = if is_volume { FileType::File } else { FileType::Directory };
            let next = index + STORED_COOKIE + 1;
            let mut item = new_entry(name, node.ino(), kind, next);
            item.needs_lookup |= is_snapshots;
            item
        });
        Ok(plain.collect())
    }

    fn root_ino(&self, place: crate::vnode::DatasetIndex) -> Option<Ino> {
        self.tree.root_vnode(&*self.tree.dataset(place).ok()?).ino()
    }

    /// The number for `..`; a root has itself above it.
    pub(crate) fn parent_ino(&self) -> Ino {
        let place = self.dataset.index;
        let above = match self.vnode {
            Vnode::File(_, object) => {
                let facts = self.tree.files(&self.dataset).and_then(|files| {
                    let is_root = object == files.root_object();
                    Ok((!is_root).then_some(files.stat(object)?.parent))
                });
                facts.ok().flatten().map(|parent| Vnode::File(place, parent))
            }
            Vnode::SnapshotDir(_) | Vnode::VolumeDir(_) | Vnode::ShadowDir(_) => {
                Some(Vnode::ControlDir(place))
            }
            Vnode::ControlDir(_) => Some(self.tree.root_vnode(&self.dataset)),
            Vnode::Unopened(_) | Vnode::Volume(_) => None,
        };
        above.and_then(Vnode::ino).unwrap_or(self.ino)
    }
}

fn new_entry(name: &[u8], number: Option<Ino>, kind: FileType, next: u64) -> DirEntry {
    // the lookup of the name reports a number that does not fit
    let is_preliminary = number.is_none();
    DirEntry {
        name: name.to_vec(),
        ino: number.unwrap_or(Ino::new(u64::MAX)),
        kind,
        next_cookie: next,
        needs_lookup: is_preliminary,
    }
}
