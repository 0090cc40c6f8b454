//! A file system of a held pool, to be read and written.
//!
//! Its numbers are those of a [`crate::Tree`] (`number.rs`): place 0 is the file system, whose files
//! keep the numbers that OpenZFS shows; each snapshot that somebody looks into gets a place of its
//! own. What is changed is so for everybody at once, and on the drives after [`Live::fsync`], or
//! when the pool's next group is written.

mod back;
mod change;
mod listing;
mod open;
mod snapshots;
mod versions;
mod volumes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::files::{Content, File, Files, Kind, Room, Time};
use engine::held::{Held, LiveFiles, Snapshot, SnapshotFolder};
use parking_lot::{RwLock, RwLockReadGuard};
use units::ObjectId;

use crate::number::{Node, Place};
use crate::workers::Workers;
use crate::{Attributes, Error, Reason, Result, control};
pub use back::Changed;
pub use change::{By, New};
pub use listing::LiveListing;
pub use open::{Kept, Open};
use snapshots::Snapshots;
use versions::Versions;
use volumes::Volumes;

/// A file system that can be written. Cheap to clone.
#[derive(Clone)]
pub struct Live(Arc<Inner>);

struct Inner {
    held: Held,
    dataset: String,
    /// Others take their place when the file system is taken back to a snapshot.
    files: RwLock<LiveFiles>,
    snapshots: Snapshots,
    volumes: Volumes,
    versions: Versions,
    /// How often a file was given capabilities; the first time is 1.
    capabilities: AtomicU64,
    workers: Workers,
    now: Box<dyn Fn() -> Time + Send + Sync>,
    /// Nothing is noted of who reads.
    is_still: AtomicBool,
}

impl Inner {
    fn files(&self) -> RwLockReadGuard<'_, LiveFiles> {
        self.files.read_recursive()
    }
}

/// The place of the file system itself.
const HEAD: Place = Place(0);

impl Live {
    /// Opens a file system of a held pool. `now` tells the time.
    pub fn open(
        held: &Held,
        dataset: &str,
        now: impl Fn() -> Time + Send + Sync + 'static,
    ) -> Result<Self> {
        let files = held.files(dataset)?;
        Ok(Self(Arc::new(Inner {
            held: held.clone(),
            dataset: dataset.to_owned(),
            files: RwLock::new(files),
            snapshots: Snapshots::default(),
            volumes: Volumes::default(),
            versions: Versions::default(),
            capabilities: AtomicU64::new(1),
            workers: Workers::new(),
            now: Box::new(now),
            is_still: AtomicBool::new(false),
        })))
    }

    /// Its full name.
    pub fn dataset(&self) -> &str {
        &self.0.dataset
    }

    /// The number of its topmost directory.
    pub fn root(&self) -> u64 {
        self.0.files().files().root_id()
    }

    /// Whether files may have POSIX ACLs.
    pub fn has_posix_acls(&self) -> bool {
        self.0.files().has_posix_acls()
    }

    /// Whether a name is the same only if all its bytes are.
    pub fn names_are_exact(&self) -> bool {
        self.0.files().names_are_exact()
    }

    /// The most bytes of a name.
    pub fn longest_name(&self) -> usize {
        self.0.files().longest_name()
    }

    /// Whether who was told that the pool is stopped is to wait and ask again (failmode).
    pub fn waits(&self) -> bool {
        self.0.held.waits()
    }

    /// Whether drives failed, and nothing is written until the pool is cleared.
    pub fn is_standing_still(&self) -> bool {
        self.0.held.is_standing_still()
    }

    /// The time, as the one who opened this tells it.
    pub fn now(&self) -> Time {
        (self.0.now)()
    }

    /// Whether who reads here leaves no trace, as where it is mounted to be read only.
    pub fn set_still(&self, is_still: bool) {
        self.0.is_still.store(is_still, Ordering::Relaxed);
    }

    fn is_still(&self) -> bool {
        self.0.is_still.load(Ordering::Relaxed)
    }

    /// Returns when all that was done to a file, and to names before that, will outlast a power
    /// cut, unless the dataset does without (sync=disabled).
    pub fn fsync(&self, number: u64) -> Result<()> {
        if let Some(volume) = self.volume(number)? {
            return Ok(volume.flush()?);
        }
        // nothing of a snapshot waits to be written
        let Node::File(HEAD, object) = Self::node(number)? else { return Ok(()) };
        Ok(self.0.files().fsync(Some(object))?)
    }

    /// The same of all files of the file system.
    pub fn fsync_all(&self) -> Result<()> {
        Ok(self.0.files().fsync(None)?)
    }

    /// Returns when all that was done to the file system and to the volumes below it that were looked at will
    /// outlast a power cut.
    pub fn sync(&self) -> Result<()> {
        self.flush_volumes()?;
        self.fsync_all()
    }

    /// The same where the file system wants that of all that is done (sync=always): for whoever was told
    /// that something is done, but not that it will outlast ([`Reason::Unkept`]).
    pub fn settle(&self) -> Result<()> {
        Ok(self.0.files().settle()?)
    }

    /// Whether a directory is one of the file system's or of a snapshot's, so that its names are
    /// changed by nobody but who changes them here. Those below `.zfs` come and go by themselves.
    pub fn is_of_files(number: u64) -> bool {
        matches!(Self::node(number), Ok(Node::File(..)))
    }

    fn node(number: u64) -> Result<Node> {
        Node::of(number).ok_or(Error::Absent)
    }

    /// Where a node is that can be changed.
    fn object(number: u64) -> Result<ObjectId> {
        match Self::node(number)? {
            Node::File(HEAD, object) => Ok(ObjectId::new(object)),
            _ => Err(Error::Refused { reason: Reason::ReadOnly }),
        }
    }

    /// The files of a place.
    fn files(&self, place: Place) -> Result<Files> {
        match place {
            HEAD => Ok(self.0.files().files().clone()),
            place => self.0.snapshots.files(&self.0.held, &self.0.dataset, place),
        }
    }

    fn file(&self, number: u64) -> Result<File> {
        match Self::node(number)? {
            Node::File(place, object) => Ok(self.files(place)?.file(object)?),
            _ => Err(Error::IsDirectory),
        }
    }

    fn list_snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(self.0.held.snapshots(&self.0.dataset)?)
    }

    /// What there is to know of a node.
    pub fn attributes(&self, number: u64) -> Result<Attributes> {
        match Self::node(number)? {
            Node::File(place, object) => shown(place, &self.files(place)?.file(object)?),
            Node::Control(HEAD) | Node::Snapshots(HEAD) | Node::Volumes(HEAD) | Node::Closed(_) => {
                Ok(Attributes::made_up(number, Kind::Directory))
            }
            Node::Volume(place) => {
                let volume = self.0.volumes.open(&self.0.held, &self.0.dataset, place)?;
                Ok(Self::attributes_of_volume(number, &volume))
            }
            _ => Err(Error::Absent),
        }
    }

    /// What a name in a directory names.
    pub fn lookup(&self, dir: u64, name: &[u8]) -> Result<Attributes> {
        if name.len() > self.longest_name() {
            return Err(Error::Refused { reason: Reason::NameTooLong });
        }
        match Self::node(dir)? {
            Node::File(place, object) => {
                let files = self.files(place)?;
                let is_root = place == HEAD && object == files.root_id();
                if is_root
                    && name == control::NAME
                    && self.0.files().snapshot_folder() != SnapshotFolder::Absent
                {
                    return self.attributes(number_of(Node::Control(HEAD))?);
                }
                match files.lookup(&files.file(object)?, name)? {
                    Some(found) => shown(place, &found),
                    None => Err(Error::Absent),
                }
            }
            Node::Control(HEAD) if name == control::SNAPSHOTS => {
                self.attributes(number_of(Node::Snapshots(HEAD))?)
            }
            Node::Snapshots(HEAD) => {
                let all = self.list_snapshots()?;
                let found = all.into_iter().find(|each| each.name.as_bytes() == name);
                let place = self.0.snapshots.place(found.ok_or(Error::Absent)?)?;
                let root = self.files(place)?.root_id();
                self.attributes(number_of(Node::File(place, root))?)
            }
            Node::Control(HEAD) if name == control::VOLUMES && !self.list_volumes()?.is_empty() => {
                self.attributes(number_of(Node::Volumes(HEAD))?)
            }
            Node::Volumes(HEAD) => {
                let all = self.list_volumes()?;
                let found = all.iter().find(|each| each.0.as_bytes() == name);
                let place = self.0.volumes.place(found.ok_or(Error::Absent)?)?;
                self.attributes(number_of(Node::Volume(place))?)
            }
            Node::Control(_) | Node::Snapshots(_) | Node::Volumes(_) => Err(Error::Absent),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Where a symbolic link points.
    pub fn target(&self, number: u64) -> Result<Vec<u8>> {
        Ok(self.file(number)?.target()?)
    }

    /// The names of a node's extended attributes, as Linux lists them.
    pub fn xattr_names(&self, number: u64) -> Result<Vec<Vec<u8>>> {
        match Self::node(number)? {
            Node::File(..) => Ok(self.file(number)?.xattr_names()?),
            _ => Ok(Vec::new()),
        }
    }

    /// The value of an extended attribute; none if there is no such attribute.
    pub fn xattr(&self, number: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match Self::node(number)? {
            Node::File(..) => Ok(self.file(number)?.xattr(name)?),
            _ => Ok(None),
        }
    }

    /// Opens a file. It stays although it may lose its last name, until this is dropped.
    pub fn read(&self, number: u64) -> Result<Open> {
        if let Some(in_use) = self.hold_volume(number)? {
            return Ok(Open::of_volume(self, number, in_use));
        }
        let file = self.file(number)?;
        if file.facts().is_directory() {
            return Err(Error::IsDirectory);
        }
        Open::new(self, number, &file)
    }

    /// Keeps a file of any kind, but no directory, although it may lose its last name.
    pub fn keep(&self, number: u64) -> Result<Kept> {
        Kept::new(&self.0.files(), Self::object(number)?)
    }

    /// Lists a directory.
    pub fn list(&self, number: u64) -> Result<LiveListing> {
        LiveListing::open(self, number)
    }

    /// Lists a directory that is no more: nothing is in it.
    pub fn list_removed(&self, number: u64) -> LiveListing {
        LiveListing::removed(self, number)
    }

    /// The number of the directory above a directory; a root has itself above it.
    pub fn parent(&self, dir: u64) -> Result<u64> {
        self.list(dir)?.parent()
    }

    /// What the file system takes and may still take.
    pub fn room(&self) -> Room {
        self.0.held.room(&self.0.dataset)
    }

    /// The content of a file as it is now.
    fn content(&self, number: u64) -> Result<Content> {
        Ok(self.file(number)?.content())
    }
}

fn number_of(node: Node) -> Result<u64> {
    node.number().ok_or(Error::TooHigh)
}

/// The attributes of a file of that place.
fn shown(place: Place, file: &File) -> Result<Attributes> {
    crate::tree::attributes_of(place, file)
}
