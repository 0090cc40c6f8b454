//! Operations: their effects on the model, and on the pool.

use std::sync::Arc;

use engine::files::{FileType, Time};
use engine::pool::{NewDataset, OpenFileSystem, Pool, PoolProperty};
use posix::{
    ChangeContext, CloneRange, Credentials, NewInode, RenameMode, RenameRequest,
    SetAttributes as Attrs, WriteOffset, XattrMode,
};
use units::ObjectId;

use crate::content::generate_content;
use crate::file_state::FileContent;
use crate::model::{DatasetModel, Model};
use crate::pool::POOL_CREATED_AT;
use crate::tree::{OWNER_UID, Tree, parent_path};

/// An operation on files. An extended attribute without a length is removed; a named file is
/// written before it gets its name; a clone is a new file, and blocks that cannot be shared are
/// copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOp {
    Create {
        path: String,
    },
    Write {
        path: String,
        offset: u64,
        length: usize,
        seed: u64,
    },
    Append {
        path: String,
        length: usize,
        seed: u64,
    },
    Truncate {
        path: String,
        size: u64,
    },
    PunchHole {
        path: String,
        start: u64,
        end: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Link {
        path: String,
        to: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    SetAttr {
        path: String,
        mode: u32,
        owner: u32,
    },
    SetXattr {
        path: String,
        name: String,
        length: Option<usize>,
        seed: u64,
    },
    LinkTmpfile {
        path: String,
        length: usize,
        seed: u64,
    },
    CloneBlocks {
        path: String,
        to: String,
    },
    /// Shares blocks of a file of another file system, or of a snapshot, which has this content.
    CloneFrom {
        source: String,
        path: String,
        to: String,
        content: Arc<Vec<u8>>,
    },
}

/// An operation on a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field's name of it")]
pub enum Op {
    File {
        dataset: String,
        op: FileOp,
    },
    Sync,
    /// All that was done to the files of a file system.
    Fsync {
        dataset: String,
    },
    CreateDataset {
        dataset: String,
    },
    DestroyDataset {
        dataset: String,
    },
    Snapshot {
        dataset: String,
        name: String,
    },
    DestroySnapshot {
        dataset: String,
        name: String,
    },
    Rollback {
        dataset: String,
    },
    Clone {
        dataset: String,
        snapshot: String,
        target: String,
    },
    /// Makes a checkpoint of the pool, or discards the one that there is.
    ToggleCheckpoint,
}

impl Op {
    pub(crate) fn apply_to_model(&self, model: &mut Model, now: i64) {
        match self {
            Self::File { dataset: set, op: act } => {
                act.apply_to_tree(Arc::make_mut(&mut model.dataset_mut(set).tree), now);
            }
            Self::Sync | Self::Fsync { .. } | Self::ToggleCheckpoint => {}
            Self::CreateDataset { dataset: set } => {
                // its files are created at the time of the pool's own clock
                model.datasets.insert(
                    set.clone(),
                    DatasetModel::new(Arc::new(Tree::new(POOL_CREATED_AT)), None),
                );
            }
            Self::DestroyDataset { dataset: set } => drop(model.datasets.remove(set)),
            Self::Snapshot { dataset: set, name } => {
                let set = model.dataset_mut(set);
                set.snapshots.push((name.clone(), Arc::clone(&set.tree)));
            }
            Self::DestroySnapshot { dataset: set, name } => {
                model.dataset_mut(set).snapshots.retain(|(known, _)| known != name);
            }
            Self::Rollback { dataset: set } => {
                let set = model.dataset_mut(set);
                let newest = set.snapshots.last().expect("there is one to go back to");
                set.tree = Arc::clone(&newest.1);
            }
            Self::Clone { dataset: set, snapshot: name, target: new } => {
                let snapshots = &model.datasets[set].snapshots;
                let found = snapshots.iter().find(|(known, _)| known == name);
                let tree = Arc::clone(&found.expect("the clone's origin exists").1);
                let origin = Some(format!("{set}@{name}"));
                model.datasets.insert(new.clone(), DatasetModel::new(tree, origin));
            }
        }
    }

    pub(crate) fn apply_to_pool(&self, held: &Pool, now: i64) -> Result<(), String> {
        let plain = |set: &String| NewDataset { name: set.clone(), properties: Vec::new() };
        let done = match self {
            Self::File { dataset: set, op: act } => {
                let fs =
                    held.datasets().filesystem(set).map_err(|error| format!("{set}: {error}"))?;
                return FileOpExecutor { pool: held, filesystem: fs, now }
                    .execute(act)
                    .map_err(|why| format!("{self:?}: {why}"));
            }
            Self::Sync => held.sync(),
            Self::ToggleCheckpoint => match held.activities().checkpoint_status() {
                None if !can_have_checkpoint(held) => held.sync(),
                None => held.activities().create_checkpoint(),
                Some(kept) if kept.state == "exists" => {
                    let activities = held.activities();
                    activities
                        .discard_checkpoint()
                        .and_then(|()| activities.continue_discard())
                        .map(drop)
                }
                // it was interrupted
                Some(_) => held.activities().continue_discard().map(drop),
            },
            Self::Fsync { dataset: set } => {
                let fs =
                    held.datasets().filesystem(set).map_err(|error| format!("{set}: {error}"))?;
                return fs.fsync(None).map_err(|error| format!("{self:?}: {error}"));
            }
            Self::CreateDataset { dataset: set } => held.datasets().create_filesystem(&plain(set)),
            Self::DestroyDataset { dataset: set } => held.datasets().destroy(set),
            Self::Snapshot { dataset: set, name } => {
                held.snapshots().create(&[format!("{set}@{name}")])
            }
            Self::DestroySnapshot { dataset: set, name } => {
                held.datasets().destroy(&format!("{set}@{name}"))
            }
            Self::Rollback { dataset: set } => held.snapshots().rollback(set),
            Self::Clone { dataset: set, snapshot: name, target: new } => {
                held.snapshots().clone_snapshot(&format!("{set}@{name}"), &plain(new))
            }
        };
        done.map_err(|error| format!("{self:?}: {error}"))
    }
}

/// Whether the pool has the feature for checkpoints. The features that an upgrade would enable do
/// not tell, because its `compatibility` may exclude it.
fn can_have_checkpoint(held: &Pool) -> bool {
    let has = |all: Vec<PoolProperty>| {
        all.iter().any(|it| it.name == "feature@zpool_checkpoint" && it.value != "disabled")
    };
    held.properties().of_pool().is_ok_and(has)
}

impl FileOp {
    fn apply_to_tree(&self, tree: &mut Tree, now: i64) {
        match self {
            Self::Create { path } => {
                tree.create(path, FileContent::File(Arc::default()), 0o644, now);
            }
            Self::Write { path, offset: at, length, seed } => {
                let start = usize::try_from(*at).unwrap_or(0);
                tree.edit_content(path, now, |bytes| {
                    write_bytes(bytes, start, &generate_content(*seed, *length));
                });
            }
            Self::Append { path, length, seed } => {
                tree.edit_content(path, now, |bytes| {
                    bytes.extend(generate_content(*seed, *length));
                });
            }
            Self::Truncate { path, size } => {
                let size = usize::try_from(*size).unwrap_or(0);
                tree.edit_content(path, now, |bytes| bytes.resize(size, 0));
            }
            Self::PunchHole { path, start: from, end: to } => {
                let end = usize::try_from(*to).unwrap_or(0).min(tree.size(path));
                let start = usize::try_from(*from).unwrap_or(0);
                if start < end {
                    tree.edit_content(path, now, |bytes| bytes[start..end].fill(0));
                }
            }
            Self::Rename { from, to } => tree.rename(from, to, now),
            Self::Unlink { path } | Self::Rmdir { path } => tree.unlink(path, now),
            Self::Mkdir { path } => tree.create(path, FileContent::Directory, 0o755, now),
            Self::Link { path, to } => tree.link(path, to, now),
            Self::Symlink { path, target } => {
                tree.create(path, FileContent::Symlink(target.clone()), 0o777, now);
            }
            Self::SetAttr { path, mode, owner } => tree.set_mode_and_owner(path, *mode, *owner),
            Self::SetXattr { path, name, length, seed } => {
                tree.set_xattr(path, name, length.map(|length| generate_content(*seed, length)));
            }
            Self::LinkTmpfile { path, length, seed } => {
                let bytes = Arc::new(generate_content(*seed, *length));
                tree.create(path, FileContent::File(bytes), 0o644, now);
            }
            Self::CloneBlocks { path, to } => {
                let bytes = tree.content(path);
                tree.create(to, FileContent::File(bytes), 0o644, now);
            }
            Self::CloneFrom { to, content, .. } => {
                tree.create(to, FileContent::File(Arc::clone(content)), 0o644, now);
            }
        }
    }
}

fn write_bytes(bytes: &mut Vec<u8>, start: usize, new: &[u8]) {
    let end = start + new.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(new);
}

/// Does to a file system what operations say.
struct FileOpExecutor<'a> {
    pool: &'a Pool,
    filesystem: OpenFileSystem,
    now: i64,
}

impl FileOpExecutor<'_> {
    fn credentials(&self) -> ChangeContext {
        let now = Time { seconds: self.now, nanoseconds: 0 };
        ChangeContext { credentials: Credentials::new(OWNER_UID, 100), now }
    }

    fn find_object(&self, path: &str) -> Result<ObjectId, String> {
        let found =
            self.filesystem.reader().find(path.as_bytes()).map_err(|error| error.to_string())?;
        let found = found.ok_or_else(|| format!("/{path} is not there"))?;
        Ok(ObjectId::new(found.ino()))
    }

    /// The directory that a path is in, and the name there.
    fn parent_and_name<'a>(&self, path: &'a str) -> Result<(ObjectId, &'a [u8]), String> {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        Ok((self.find_object(parent_path(path))?, name.as_bytes()))
    }

    fn create(&self, path: &str, new: &NewInode<'_>) -> Result<(), String> {
        let (dir, name) = self.parent_and_name(path)?;
        let made = self.filesystem.create(&self.credentials(), dir, name, new);
        made.map(drop).map_err(|error| error.to_string())
    }

    fn link_tmpfile(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        let (dir, name) = self.parent_and_name(path)?;
        let name_it = || {
            let file =
                self.filesystem.create_tmpfile(&self.credentials(), dir, &NewInode::default())?.ino;
            self.filesystem.write(
                &self.credentials(),
                ObjectId::new(file),
                WriteOffset::At(0),
                bytes,
            )?;
            self.filesystem.link(&self.credentials(), ObjectId::new(file), dir, name)?;
            self.filesystem.release_file(ObjectId::new(file))
        };
        name_it().map_err(|error| error.to_string())
    }

    fn clone_blocks(&self, path: &str, to: &str) -> Result<(), String> {
        let from = self.find_object(path)?;
        self.create(to, &NewInode::default())?;
        let to = self.find_object(to)?;
        let share = || {
            let source = self.filesystem.reader().file(from.get())?;
            let mut bytes = vec![0; usize::try_from(source.stat().size).unwrap_or(0)];
            source.content().read(0, &mut bytes)?;
            let length = source.stat().size;
            let stretch =
                CloneRange { source: from, source_offset: 0, target: to, target_offset: 0, length };
            let done = self.filesystem.clone_blocks(&self.credentials(), &stretch)?;
            let rest = &bytes[usize::try_from(done).unwrap_or(0)..];
            if rest.is_empty() {
                return Ok(());
            }
            self.filesystem.write(&self.credentials(), to, WriteOffset::At(done), rest).map(drop)
        };
        share().map_err(|error: engine::files::Error| error.to_string())
    }

    fn clone_from(&self, source: &str, path: &str, to: &str, bytes: &[u8]) -> Result<(), String> {
        let reader = if source.contains('@') {
            self.pool.datasets().synced_reader(source).map_err(|error| error.to_string())?
        } else {
            let files =
                self.pool.datasets().filesystem(source).map_err(|error| error.to_string())?;
            files.reader().clone()
        };
        self.create(to, &NewInode::default())?;
        let to = self.find_object(to)?;
        let share = || {
            let Some(file) = reader.find(path.as_bytes())? else { return Ok(None) };
            let (from, length) = (file.content(), bytes.len() as u64);
            let shared =
                self.filesystem.clone_content(&self.credentials(), (&from, 0), (to, 0), length)?;
            let rest = &bytes[usize::try_from(shared).unwrap_or(0)..];
            if !rest.is_empty() {
                let at = WriteOffset::At(shared);
                self.filesystem.write(&self.credentials(), to, at, rest)?;
            }
            Ok(Some(()))
        };
        let done = share().map_err(|error: engine::files::Error| error.to_string())?;
        done.ok_or_else(|| format!("/{path} of {source} is not there"))
    }

    fn execute(&self, act: &FileOp) -> Result<(), String> {
        let (caller, fs) = (self.credentials(), &self.filesystem);
        let done = match act {
            FileOp::Create { path } => return self.create(path, &NewInode::default()),
            FileOp::Mkdir { path } => {
                let kind = FileType::Directory;
                return self.create(path, &NewInode { kind, mode: 0o777, ..NewInode::default() });
            }
            FileOp::Symlink { path, target } => {
                let (kind, target) = (FileType::Symlink, target.as_bytes());
                let new = NewInode { kind, mode: 0o777, target, ..NewInode::default() };
                return self.create(path, &new);
            }
            FileOp::Write { path, offset: at, length, seed } => {
                let bytes = generate_content(*seed, *length);
                fs.write(&caller, self.find_object(path)?, WriteOffset::At(*at), &bytes).map(drop)
            }
            FileOp::Append { path, length, seed } => {
                let bytes = generate_content(*seed, *length);
                fs.write(&caller, self.find_object(path)?, WriteOffset::End, &bytes).map(drop)
            }
            FileOp::Truncate { path, size } => {
                let set = Attrs { size: Some(*size), ..Attrs::default() };
                fs.set_attributes(&caller, self.find_object(path)?, &set)
            }
            FileOp::PunchHole { path, start: from, end: to } => {
                fs.punch_hole(&caller, self.find_object(path)?, *from..*to)
            }
            FileOp::Rename { from, to } => {
                let ((from_dir, from), (to_dir, to)) =
                    (self.parent_and_name(from)?, self.parent_and_name(to)?);
                let kind = RenameMode::Replace;
                fs.rename(
                    &caller,
                    &RenameRequest { from_dir, from_name: from, to_dir, to_name: to, mode: kind },
                )
            }
            FileOp::Unlink { path } => {
                let (dir, name) = self.parent_and_name(path)?;
                fs.unlink(&caller, dir, name)
            }
            FileOp::Rmdir { path } => {
                let (dir, name) = self.parent_and_name(path)?;
                fs.rmdir(&caller, dir, name)
            }
            FileOp::Link { path, to } => {
                let (dir, name) = self.parent_and_name(to)?;
                fs.link(&caller, self.find_object(path)?, dir, name)
            }
            FileOp::SetAttr { path, mode, owner } => {
                let set = Attrs { mode: Some(*mode), uid: Some(*owner), ..Attrs::default() };
                fs.set_attributes(&caller, self.find_object(path)?, &set)
            }
            FileOp::SetXattr { path, name, length, seed } => {
                let value = length.map(|length| generate_content(*seed, length));
                let (file, name, mode) = (self.find_object(path)?, name.as_bytes(), XattrMode::Any);
                fs.set_xattr(&caller, file, name, value.as_deref(), mode)
            }
            FileOp::LinkTmpfile { path, length, seed } => {
                return self.link_tmpfile(path, &generate_content(*seed, *length));
            }
            FileOp::CloneBlocks { path, to } => return self.clone_blocks(path, to),
            FileOp::CloneFrom { source, path, to, content } => {
                return self.clone_from(source, path, to, content);
            }
        };
        done.map_err(|error| error.to_string())
    }
}
