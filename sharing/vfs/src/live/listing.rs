//! Directories of a file system that can be written, listed.
//!
//! ```text
//! cookie     what comes next
//! 0          .
//! 1          ..
//! 2          .zfs, in the topmost directory, if it is to be listed
//! 3 ...      the stored names: the engine's cookie and 3; in made-up directories an index and 3
//! ```
//!
//! Cookies of stored names stand for places in the order of their hashes, so that names that come
//! and go do not make others be shown twice or not at all.

use engine::files::Kind;
use engine::held::SnapshotFolder;
use parking_lot::Mutex;

use super::{HEAD, Live, number_of};
use crate::batch::Batch;
use crate::number::Node;
use crate::{Attributes, Error, Item, Result, control};

/// A directory that is being listed.
pub struct LiveListing {
    live: Live,
    number: u64,
    node: Node,
    /// Which of those that may have had its number it is.
    generation: u64,
    batch: Mutex<Batch>,
}

const FOLDER: u64 = 2;
const STORED: u64 = 3;
/// Names in a batch.
const BATCH: usize = 512;

impl LiveListing {
    pub(super) fn open(live: &Live, number: u64) -> Result<Self> {
        let found = live.attributes(number)?;
        if found.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        Ok(Self::new(live, number, (Live::node(number)?, found.generation)))
    }

    pub(super) fn removed(live: &Live, number: u64) -> Self {
        Self::new(live, number, (Node::Closed(HEAD), 0))
    }

    fn new(live: &Live, number: u64, (node, generation): (Node, u64)) -> Self {
        let (live, batch) = (live.clone(), Mutex::new(Batch::new(false)));
        Self { live, number, node, generation, batch }
    }

    /// The same, opened anew after its file system was taken back to a snapshot: empty if it is no more;
    /// none: it stays as it is.
    pub fn again(&self) -> Option<Self> {
        let Node::File(HEAD, _) = self.node else { return None };
        let found = self.live.attributes(self.number).ok();
        let is_there = found.is_some_and(|found| {
            found.kind == Kind::Directory && found.generation == self.generation
        });
        let node = if is_there { self.node } else { Node::Closed(HEAD) };
        Some(Self::new(&self.live, self.number, (node, self.generation)))
    }

    /// Shows the names from a cookie on to `visit`, until it says false: such a name comes again.
    pub fn from(&self, cookie: u64, visit: &mut dyn FnMut(&Item) -> bool) -> Result<()> {
        let mut batch = self.batch.lock();
        let version = self.live.0.versions.of(self.number);
        batch.show((cookie, version), &mut |at| self.fill(at), visit)
    }

    /// Whether its names are changed by nobody but who changes them there ([`Live::is_of_files`]).
    pub fn is_of_files(&self) -> bool {
        Live::is_of_files(self.number)
    }

    /// The attributes of an item, for protocols that give them along with the names. None: it is to be
    /// looked up, and who does is told what is wrong with it.
    pub fn attributes(&self, item: &Item) -> Option<Attributes> {
        if item.is_preliminary { None } else { self.live.attributes(item.number).ok() }
    }

    /// The names from a cookie on, a batch of them; none at the end.
    fn fill(&self, from: u64) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for (cookie, name) in [(0, &b"."[..]), (1, b"..")] {
            if from <= cookie {
                let number = if cookie == 0 { self.number } else { self.parent()? };
                items.push(item(name, number, Kind::Directory, cookie + 1));
            }
        }
        if from <= FOLDER && self.lists_folder() {
            let number = number_of(Node::Control(HEAD))?;
            items.push(item(control::NAME, number, Kind::Directory, FOLDER + 1));
        }
        match self.node {
            Node::File(..) => self.stored(from, &mut items)?,
            Node::Control(_) => self.control(from, &mut items)?,
            Node::Volumes(_) => self.volumes(from, &mut items)?,
            Node::Snapshots(_) => self.snapshots(from, &mut items)?,
            _ => {}
        }
        Ok(items)
    }

    /// Whether `.zfs` is to be listed here.
    fn lists_folder(&self) -> bool {
        let files = self.live.0.files();
        self.number == self.live.root() && files.snapshot_folder() == SnapshotFolder::Listed
    }

    fn stored(&self, from: u64, items: &mut Vec<Item>) -> Result<()> {
        let Node::File(place, object) = self.node else { return Ok(()) };
        let files = self.live.files(place)?;
        let dir = match files.file(object).map_err(Error::from) {
            Ok(dir) => dir,
            // it was removed meanwhile: nothing is in it
            Err(Error::Absent) => return Ok(()),
            Err(why) => return Err(why),
        };
        files.list_from(&dir, from.saturating_sub(STORED), &mut |name, next| {
            let number = Node::File(place, name.id).number();
            let mut item = item(&name.name, 0, name.kind, next.saturating_add(STORED));
            // a number that does not fit is told of when the name is looked up
            item.is_preliminary = number.is_none();
            item.number = number.unwrap_or(u64::MAX);
            items.push(item);
            items.len() < BATCH
        })?;
        Ok(())
    }

    fn control(&self, from: u64, items: &mut Vec<Item>) -> Result<()> {
        let snapshots = Some((control::SNAPSHOTS, Node::Snapshots(HEAD)));
        let any = !self.live.list_volumes()?.is_empty();
        let volumes = any.then_some((control::VOLUMES, Node::Volumes(HEAD)));
        for (index, (name, node)) in (STORED..).zip(snapshots.into_iter().chain(volumes)) {
            if index >= from {
                items.push(item(name, number_of(node)?, Kind::Directory, index + 1));
            }
        }
        Ok(())
    }

    fn volumes(&self, from: u64, items: &mut Vec<Item>) -> Result<()> {
        for (index, volume) in (STORED..).zip(self.live.list_volumes()?) {
            if index >= from {
                let number = number_of(Node::Volume(self.live.0.volumes.place(&volume)?))?;
                items.push(item(volume.0.as_bytes(), number, Kind::File, index + 1));
            }
        }
        Ok(())
    }

    fn snapshots(&self, from: u64, items: &mut Vec<Item>) -> Result<()> {
        let all = self.live.list_snapshots()?;
        for (index, snapshot) in (STORED..).zip(all) {
            if index >= from {
                let name = snapshot.name.clone();
                // opening thousands of snapshots for a listing would take its time
                let number = number_of(Node::Closed(self.live.0.snapshots.place(snapshot)?))?;
                let mut item = item(name.as_bytes(), number, Kind::Directory, index + 1);
                item.is_preliminary = true;
                items.push(item);
            }
        }
        Ok(())
    }

    /// The number for `..`; a root has itself above it.
    pub(super) fn parent(&self) -> Result<u64> {
        match self.node {
            Node::File(place, object) => {
                let files = self.live.files(place)?;
                if object == files.root_id() {
                    return Ok(self.number);
                }
                match files.facts(object).map_err(Error::from) {
                    Ok(facts) => number_of(Node::File(place, facts.parent)),
                    Err(Error::Absent) => Ok(self.number),
                    Err(why) => Err(why),
                }
            }
            Node::Snapshots(_) | Node::Volumes(_) => number_of(Node::Control(HEAD)),
            _ => Ok(self.live.root()),
        }
    }
}

fn item(name: &[u8], number: u64, kind: Kind, next: u64) -> Item {
    Item { name: name.to_vec(), number, kind, next, is_preliminary: false }
}
