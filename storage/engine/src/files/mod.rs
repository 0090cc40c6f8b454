//! Files: the tree of a file system, and the content of files and volumes by range.
//!
//! [`FileSystemReader`] is a file system or a snapshot of one; a [`File`] is one of its files, with
//! its [`FileStat`] as plain data; [`Content`] is the content of a file or a volume. Content is
//! read by the block and without a copy ([`Content::read_chunk`]). Unreadable ranges are reported
//! one by one ([`Content::extents`]), and the rest is read.

mod acl;
mod catalog;
mod changes;
mod content;
mod dataset_details;
mod diff;
mod error;
mod extents;
mod reason;
mod sharing;
mod stat;

use dsl::Dataset;
use units::{MinusOrZero, ObjectId, Txg};
use zil::LogReader;

pub use catalog::DatasetCatalog;
pub use changes::{FileChange, FileChangeKind};
pub use content::{Bytes, Content, ContentChunk};
pub use dataset_details::{DatasetContents, DatasetDetails, IncompleteKind, OwnerSpace};
pub use diff::{ChangedObject, ObjectKind};
pub use error::{Error, Result};
pub use extents::{Extent, Extents};
pub use posix::{FileFlags, FileType, Time};
pub use reason::Reason;
pub use sharing::{DatasetSpace, HeadDataset};
pub use stat::FileStat;

/// Does something for whose reads no thread waits: the drives count them as asynchronous.
pub fn read_ahead<R>(work: impl FnOnce() -> R) -> R {
    vdev::with_class(vdev::IoClass::Async, work)
}

/// How the datasets of a pool are looked at.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// The txg of the uberblock in use: later records of the intent log are applied over the
    /// dataset. None: the log is ignored, and the last txg is shown.
    pub replay_after: Option<Txg>,
    /// Show POSIX ACLs among the extended attributes (property `acltype`).
    pub posix_acls: bool,
    /// Show the users' extended attributes (property `xattr`).
    pub user_xattrs: bool,
}

/// The result of applying an intent log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntentLogSummary {
    /// Records that were laid over the dataset.
    pub records: u64,
    /// Why the rest was not, if there was a rest.
    pub error: Option<String>,
}

/// A file system or a snapshot of one. Cheap to clone.
#[derive(Clone)]
pub struct FileSystemReader {
    fs: zpl::Fs,
    is_snapshot: bool,
    /// Among the topmost directory's names `.zfs` is listed.
    is_snapdir_visible: bool,
}

/// A file of any kind. Cheap to clone.
#[derive(Clone)]
pub struct File {
    node: zpl::Inode,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: any bytes but 0 and `/`.
    pub name: Vec<u8>,
    /// The inode number.
    pub ino: u64,
    /// The file's type.
    pub kind: FileType,
}

impl FileSystemReader {
    /// Opens the content of a dataset; it must be a file system, or a snapshot of one.
    pub fn open(dataset: &Dataset, look: ReadOptions) -> Result<(Self, IntentLogSummary)> {
        let objset = dataset.open_objset()?;
        let redacted = dataset.property("redact_snaps").is_ok_and(|found| found.is_some());
        let ReadOptions { posix_acls, user_xattrs, .. } = look;
        let record_size = dataset.property("recordsize").ok().flatten();
        let record_size = record_size.and_then(|found| found.value.parse().ok());
        let record_size = record_size.unwrap_or(zpl::FsOptions::default().record_size);
        let options =
            zpl::FsOptions { posix_acls, user_xattrs, is_redacted: redacted, record_size };
        let mut log = intent_log_records(dataset, &objset, look);
        let (fs, replayed) = zpl::Fs::open(objset, options, log.as_mut())?;
        let mut trouble = None;
        if let Some((seq, why)) = &replayed.failed_record {
            trouble = Some(format!("record {seq} of the intent log: {why}"));
        } else if let Some(zil::LogEnd::Failed(why)) = log.as_ref().and_then(LogReader::end) {
            trouble = Some(format!("the intent log: {why}"));
        }
        let is_snapshot = dataset.is_snapshot();
        let snapdir = dataset.property("snapdir").ok().flatten().filter(|_| !is_snapshot);
        let lists_snapshots = snapdir.is_some_and(|found| found.value == "visible");
        let log = IntentLogSummary { records: replayed.records, error: trouble };
        Ok((Self { fs, is_snapshot, is_snapdir_visible: lists_snapshots }, log))
    }

    /// A snapshot of a file system.
    pub(crate) fn from_snapshot(fs: zpl::Fs) -> Self {
        Self { fs, is_snapshot: true, is_snapdir_visible: false }
    }

    /// A file system that is being changed.
    pub(crate) fn from_fs(fs: zpl::Fs) -> Self {
        Self { fs, is_snapshot: false, is_snapdir_visible: false }
    }

    /// The topmost directory.
    pub fn root(&self) -> Result<File> {
        Ok(File { node: self.fs.root()? })
    }

    /// The topmost directory's number as Linux shows it: that of a snapshot is made of the
    /// snapshot's own, below the numbers of `.zfs`.
    pub fn root_ino(&self) -> u64 {
        if self.is_snapshot {
            return ZFSCTL_INO_SNAPDIRS.minus_or_zero(self.fs.objset().id().get());
        }
        self.fs.master().root.get()
    }

    /// Links of the topmost directory that Linux shows beyond the stored ones: one for
    /// `.zfs`, if that is listed.
    pub fn extra_root_links(&self) -> u64 {
        u64::from(self.is_snapdir_visible)
    }

    /// The file of that number.
    pub fn file(&self, id: u64) -> Result<File> {
        Ok(File { node: self.fs.inode(ObjectId::new(id))? })
    }

    /// The attributes of a file by its number: cheaper than opening it.
    pub fn stat(&self, id: u64) -> Result<FileStat> {
        let id = ObjectId::new(id);
        Ok(FileStat::new(id, &self.fs.attributes(id)?))
    }

    /// The file of that path from the root, its parts split by `/`. Symbolic links are not
    /// followed.
    pub fn find(&self, path: &[u8]) -> Result<Option<File>> {
        let mut at = self.root()?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if !at.stat().is_directory() {
                return Ok(None);
            }
            match self.fs.lookup(&at.node, name)? {
                Some(node) => at = File { node },
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// The file of that name in a directory.
    pub fn lookup(&self, dir: &File, name: &[u8]) -> Result<Option<File>> {
        Ok(self.fs.lookup(&dir.node, name)?.map(|node| File { node }))
    }

    /// Calls `visit` with the names in a directory, in the order in which they are stored, until it
    /// returns false. `.` and `..` are not among them.
    pub fn read_dir(&self, dir: &File, visit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let mut show = |entry: zpl::DirEntry| {
            let kind = entry.kind;
            visit(DirEntry { name: entry.name, ino: entry.object.get(), kind })
        };
        Ok(self.fs.read_dir(&dir.node, None, &mut show)?)
    }

    /// All names in a directory, in the order of their bytes.
    pub fn read_dir_sorted(&self, dir: &File) -> Result<Vec<DirEntry>> {
        let mut names = Vec::new();
        self.read_dir(dir, &mut |name| {
            names.push(name);
            true
        })?;
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(names)
    }
}

/// From here downwards the roots of snapshots have their numbers (ZFSCTL_INO_SNAPDIRS).
const ZFSCTL_INO_SNAPDIRS: u64 = 0xffff_ffff_fffc;

impl File {
    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.node.id().get()
    }

    /// Its attributes.
    pub fn stat(&self) -> FileStat {
        FileStat::new(self.node.id(), self.node.attributes())
    }

    /// Where a symbolic link points.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        Ok(self.node.read_link()?)
    }

    /// The extended attributes that Linux would list, with their values, in the order of their
    /// names.
    pub fn xattrs(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let named = |xattr: zpl::Xattr| {
            let name = xattr.name.clone();
            Ok((name, self.node.xattr_value(xattr)?))
        };
        self.node.xattrs()?.into_iter().map(named).collect()
    }

    /// Its content.
    pub fn content(&self) -> Content {
        Content::from_node(self.node.clone())
    }
}

/// Opens a volume, or a snapshot of one, as its content.
pub fn open_volume(dataset: &Dataset, look: ReadOptions) -> Result<(Content, IntentLogSummary)> {
    let objset = dataset.open_objset()?;
    let mut log = intent_log_records(dataset, &objset, look);
    let (volume, replayed) = zvol::Volume::open(&objset, log.as_mut())?;
    let mut trouble = None;
    if let Some(seq) = replayed.unexpected_record {
        trouble = Some(format!("record {seq} of the intent log is none that a volume can have"));
    } else if let Some(zil::LogEnd::Failed(why)) = &replayed.log_end {
        trouble = Some(format!("the intent log: {why}"));
    }
    Ok((
        Content::from_volume(volume),
        IntentLogSummary { records: replayed.records, error: trouble },
    ))
}

/// The records of a dataset's log; snapshots have none.
fn intent_log_records(
    dataset: &Dataset,
    objset: &dmu::Objset,
    look: ReadOptions,
) -> Option<LogReader> {
    let txg = look.replay_after.filter(|_| !dataset.is_snapshot())?;
    let header = &objset.header().log;
    let (source, key) = (objset.source().clone(), objset.key().cloned());
    Some(LogReader::new(source, objset.id(), header, key, txg))
}
