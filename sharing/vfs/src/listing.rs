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

use engine::files::{File, Files, Kind};
use parking_lot::Mutex;

use crate::batch::Batch;
use crate::control;
use crate::dataset::Dataset;
use crate::number::Node;
use crate::{Attributes, Error, Result, Tree};

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The name: any bytes but 0 and `/`.
    pub name: Vec<u8>,
    /// The number of what it names. The root of a snapshot has another one when it is looked up.
    pub number: u64,
    /// What that is.
    pub kind: Kind,
    /// The cookie of the place behind it.
    pub next: u64,
    /// Whether a protocol should look it up rather than ask for the attributes of `number`.
    pub is_preliminary: bool,
}

/// A directory that is being listed.
pub struct Listing {
    tree: Tree,
    number: u64,
    node: Node,
    dataset: Arc<Dataset>,
    batch: Mutex<Batch>,
}

const STORED: u64 = 2;
const BELOW: u64 = 1 << 62;
/// Names in a batch.
const BATCH: usize = 2048;

impl Listing {
    pub(crate) fn open(tree: &Tree, number: u64) -> Result<Self> {
        let (node, dataset) = tree.node(number)?;
        match node {
            Node::File(_, object) if !tree.files(&dataset)?.facts(object)?.is_directory() => {
                return Err(Error::NotDirectory);
            }
            Node::Closed(_) if dataset.children.is_empty() => {
                return Err(control::why_closed(tree, &dataset));
            }
            Node::Volume(_) => return Err(Error::NotDirectory),
            _ => {}
        }
        Ok(Self { tree: tree.clone(), number, node, dataset, batch: Mutex::new(Batch::new(true)) })
    }

    /// Shows the names from a cookie on to `visit`, until it says false: such a name comes again.
    pub fn from(&self, cookie: u64, visit: &mut dyn FnMut(&Item) -> bool) -> Result<()> {
        self.batch.lock().show((cookie, 0), &mut |at| self.fill(at), visit)
    }

    /// The attributes of an item, for protocols that give them along with the names. None: it is to be
    /// looked up, and who does is told what is wrong with it.
    pub fn attributes(&self, item: &Item) -> Option<Attributes> {
        if item.is_preliminary { None } else { self.tree.attributes(item.number).ok() }
    }

    /// The names from a cookie on, a batch of them; none at the end.
    fn fill(&self, from: u64) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for (cookie, name) in [(0, &b"."[..]), (1, b"..")] {
            if from <= cookie {
                let number = if cookie == 0 { self.number } else { self.parent() };
                items.push(item(name, Some(number), Kind::Directory, cookie + 1));
            }
        }
        let Node::File(_, object) = self.node else {
            items.extend(self.made_up(from.saturating_sub(STORED))?);
            return Ok(items);
        };
        let files = self.tree.files(&self.dataset)?;
        if from < BELOW && !self.stored(&files, &files.file(object)?, from, &mut items)? {
            return Ok(items);
        }
        if object == files.root_id() {
            self.below(&files, from.saturating_sub(BELOW), &mut items)?;
        }
        Ok(items)
    }

    /// Adds names that the dataset stores; gives whether these were all.
    fn stored(&self, files: &Files, dir: &File, from: u64, items: &mut Vec<Item>) -> Result<bool> {
        let is_root = dir.id() == files.root_id();
        let before = items.len();
        let mut is_all = true;
        let listed = files.list_from(dir, from.saturating_sub(STORED), &mut |name, next| {
            let child = if is_root { self.dataset.child(&name.name) } else { None };
            let kind = if child.is_some() { Kind::Directory } else { name.kind };
            let number = match child {
                Some(child) => self.root_number(child),
                None => Node::File(self.dataset.place, name.id).number(),
            };
            items.push(item(&name.name, number, kind, next.saturating_add(STORED)));
            is_all = items.len() < BATCH;
            is_all
        });
        match listed {
            Ok(()) => Ok(is_all),
            Err(_) if items.len() > before => Ok(false),
            Err(why) => {
                let why = Error::from(why);
                self.tree.complain(self.number, &why);
                Err(why)
            }
        }
    }

    /// Adds the datasets below that no stored name stands for.
    fn below(&self, files: &Files, from: u64, items: &mut Vec<Item>) -> Result<()> {
        let root = files.root()?;
        for (index, (name, place)) in (0_u64..).zip(&self.dataset.children) {
            if index >= from && !matches!(files.lookup(&root, name), Ok(Some(_))) {
                let next = BELOW.saturating_add(index).saturating_add(1);
                items.push(item(name, self.root_number(*place), Kind::Directory, next));
            }
        }
        Ok(())
    }

    /// The names in a directory that no dataset stores, from an index on.
    fn made_up(&self, from: u64) -> Result<Vec<Item>> {
        let place = self.dataset.place;
        let mut all: Vec<(&[u8], Node)> = Vec::new();
        let names;
        match self.node {
            Node::Control(_) => {
                all.push((control::SNAPSHOTS, Node::Snapshots(place)));
                if !self.dataset.volumes.is_empty() {
                    all.push((control::VOLUMES, Node::Volumes(place)));
                }
            }
            Node::Snapshots(_) => {
                names = self.dataset.snapshots(self.tree.pool())?;
                // opening thousands of snapshots for a listing would take its time
                for name in names {
                    let place = self.tree.snapshot(&self.dataset, name)?;
                    all.push((name.as_bytes(), Node::Closed(place)));
                }
            }
            Node::Volumes(_) => {
                let volumes = self.dataset.volumes.iter();
                all.extend(volumes.map(|(name, place)| (&name[..], Node::Volume(*place))));
            }
            Node::Closed(_) => {
                for (name, place) in &self.dataset.children {
                    all.push((name, self.tree.root_of(&*self.tree.dataset(*place)?)));
                }
            }
            Node::File(..) | Node::Volume(_) => {}
        }
        let is_snapshots = matches!(self.node, Node::Snapshots(_));
        let numbered = (0_u64..).zip(all).filter(|(index, _)| *index >= from);
        let plain = numbered.map(|(index, (name, node))| {
            let is_volume = matches!(node, Node::Volume(_));
            let kind = if is_volume { Kind::File } else { Kind::Directory };
            let next = index.saturating_add(STORED + 1);
            let mut item = item(name, node.number(), kind, next);
            item.is_preliminary |= is_snapshots;
            item
        });
        Ok(plain.collect())
    }

    fn root_number(&self, place: crate::number::Place) -> Option<u64> {
        self.tree.root_of(&*self.tree.dataset(place).ok()?).number()
    }

    /// The number for `..`; a root has itself above it.
    fn parent(&self) -> u64 {
        let place = self.dataset.place;
        let above = match self.node {
            Node::File(_, object) => {
                let facts = self.tree.files(&self.dataset).and_then(|files| {
                    let is_root = object == files.root_id();
                    Ok((!is_root).then_some(files.facts(object)?.parent))
                });
                facts.ok().flatten().map(|parent| Node::File(place, parent))
            }
            Node::Snapshots(_) | Node::Volumes(_) => Some(Node::Control(place)),
            Node::Control(_) => Some(self.tree.root_of(&self.dataset)),
            Node::Closed(_) | Node::Volume(_) => None,
        };
        above.and_then(Node::number).unwrap_or(self.number)
    }
}

fn item(name: &[u8], number: Option<u64>, kind: Kind, next: u64) -> Item {
    // a number that does not fit is told of when the name is looked up
    let is_preliminary = number.is_none();
    Item { name: name.to_vec(), number: number.unwrap_or(u64::MAX), kind, next, is_preliminary }
}
