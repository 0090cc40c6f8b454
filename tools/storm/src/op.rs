//! Operations: what they do to the model, and to the pool.

use std::sync::Arc;

use engine::files::{FileType, Time};
use engine::pool::{NewDataset, OpenFileSystem, Pool};
use posix::{
    ChangeContext, CloneRange, Credentials, NewInode, RenameMode, RenameRequest,
    SetAttributes as Attrs, WriteOffset, XattrMode,
};
use units::ObjectId;

use crate::bytes::content;
use crate::model::{Model, Set};
use crate::pool::START;
use crate::seen::What;
use crate::tree::{OWNER, Tree, parent};

/// An operation on files. An extended attribute without a length goes; what is named is written while it
/// has no name; what shares is new, and has what cannot be shared copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Create { path: String },
    Write { path: String, at: u64, length: usize, seed: u64 },
    Append { path: String, length: usize, seed: u64 },
    Truncate { path: String, size: u64 },
    Punch { path: String, from: u64, to: u64 },
    Rename { from: String, to: String },
    Unlink { path: String },
    Mkdir { path: String },
    Rmdir { path: String },
    Link { path: String, to: String },
    Symlink { path: String, target: String },
    SetAttr { path: String, mode: u32, owner: u32 },
    SetXattr { path: String, name: String, length: Option<usize>, seed: u64 },
    Name { path: String, length: usize, seed: u64 },
    Share { path: String, to: String },
}

/// An operation on a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field's name of it")]
pub enum Op {
    File {
        set: String,
        act: Act,
    },
    Sync,
    /// All that was done to the files of a file system.
    Fsync {
        set: String,
    },
    NewSet {
        set: String,
    },
    DestroySet {
        set: String,
    },
    Snapshot {
        set: String,
        name: String,
    },
    DestroySnapshot {
        set: String,
        name: String,
    },
    Rollback {
        set: String,
    },
    Clone {
        set: String,
        name: String,
        new: String,
    },
}

impl Op {
    pub(crate) fn model(&self, model: &mut Model, now: i64) {
        match self {
            Self::File { set, act } => act.model(Arc::make_mut(&mut model.set(set).tree), now),
            Self::Sync | Self::Fsync { .. } => {}
            Self::NewSet { set } => {
                // its files are made at the time that the pool's own clock says
                model.sets.insert(set.clone(), Set::new(Arc::new(Tree::new(START)), None));
            }
            Self::DestroySet { set } => drop(model.sets.remove(set)),
            Self::Snapshot { set, name } => {
                let set = model.set(set);
                set.snapshots.push((name.clone(), Arc::clone(&set.tree)));
            }
            Self::DestroySnapshot { set, name } => {
                model.set(set).snapshots.retain(|(known, _)| known != name);
            }
            Self::Rollback { set } => {
                let set = model.set(set);
                let newest = set.snapshots.last().expect("there is one to go back to");
                set.tree = Arc::clone(&newest.1);
            }
            Self::Clone { set, name, new } => {
                let snapshots = &model.sets[set].snapshots;
                let found = snapshots.iter().find(|(known, _)| known == name);
                let tree = Arc::clone(&found.expect("what is cloned is there").1);
                let origin = Some(format!("{set}@{name}"));
                model.sets.insert(new.clone(), Set::new(tree, origin));
            }
        }
    }

    pub(crate) fn pool(&self, held: &Pool, now: i64) -> Result<(), String> {
        let plain = |set: &String| NewDataset { name: set.clone(), properties: Vec::new() };
        let done = match self {
            Self::File { set, act } => {
                let live = held.filesystem(set).map_err(|why| format!("{set}: {why}"))?;
                return Hand { live, now }.act(act).map_err(|why| format!("{self:?}: {why}"));
            }
            Self::Sync => held.sync(),
            Self::Fsync { set } => {
                let live = held.filesystem(set).map_err(|why| format!("{set}: {why}"))?;
                return live.fsync(None).map_err(|why| format!("{self:?}: {why}"));
            }
            Self::NewSet { set } => held.create_filesystem(&plain(set)),
            Self::DestroySet { set } => held.destroy(set),
            Self::Snapshot { set, name } => held.create_snapshots(&[format!("{set}@{name}")]),
            Self::DestroySnapshot { set, name } => held.destroy(&format!("{set}@{name}")),
            Self::Rollback { set } => held.rollback_dataset(set),
            Self::Clone { set, name, new } => {
                held.clone_snapshot(&format!("{set}@{name}"), &plain(new))
            }
        };
        done.map_err(|why| format!("{self:?}: {why}"))
    }
}

impl Act {
    fn model(&self, tree: &mut Tree, now: i64) {
        match self {
            Self::Create { path } => tree.make(path, What::File(Arc::default()), 0o644, now),
            Self::Write { path, at, length, seed } => {
                let start = usize::try_from(*at).unwrap_or(0);
                tree.change(path, now, |bytes| put(bytes, start, &content(*seed, *length)));
            }
            Self::Append { path, length, seed } => {
                tree.change(path, now, |bytes| bytes.extend(content(*seed, *length)));
            }
            Self::Truncate { path, size } => {
                let size = usize::try_from(*size).unwrap_or(0);
                tree.change(path, now, |bytes| bytes.resize(size, 0));
            }
            Self::Punch { path, from, to } => {
                let end = usize::try_from(*to).unwrap_or(0).min(tree.size(path));
                let start = usize::try_from(*from).unwrap_or(0);
                if start < end {
                    tree.change(path, now, |bytes| bytes[start..end].fill(0));
                }
            }
            Self::Rename { from, to } => tree.rename(from, to, now),
            Self::Unlink { path } | Self::Rmdir { path } => tree.unlink(path, now),
            Self::Mkdir { path } => tree.make(path, What::Directory, 0o755, now),
            Self::Link { path, to } => tree.link(path, to, now),
            Self::Symlink { path, target } => {
                tree.make(path, What::Link(target.clone()), 0o777, now);
            }
            Self::SetAttr { path, mode, owner } => tree.set(path, *mode, *owner),
            Self::SetXattr { path, name, length, seed } => {
                tree.set_attribute(path, name, length.map(|length| content(*seed, length)));
            }
            Self::Name { path, length, seed } => {
                let bytes = Arc::new(content(*seed, *length));
                tree.make(path, What::File(bytes), 0o644, now);
            }
            Self::Share { path, to } => {
                let bytes = tree.content(path);
                tree.make(to, What::File(bytes), 0o644, now);
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, start: usize, new: &[u8]) {
    let end = start + new.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(new);
}

/// Does to a file system what operations say.
struct Hand {
    live: OpenFileSystem,
    now: i64,
}

impl Hand {
    fn caller(&self) -> ChangeContext {
        let now = Time { seconds: self.now, nanoseconds: 0 };
        ChangeContext { credentials: Credentials::new(OWNER, 100), now }
    }

    fn find(&self, path: &str) -> Result<ObjectId, String> {
        let found = self.live.reader().find(path.as_bytes()).map_err(|why| why.to_string())?;
        let found = found.ok_or_else(|| format!("/{path} is not there"))?;
        Ok(ObjectId::new(found.ino()))
    }

    /// The directory that a path is in, and the name there.
    fn place<'a>(&self, path: &'a str) -> Result<(ObjectId, &'a [u8]), String> {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        Ok((self.find(parent(path))?, name.as_bytes()))
    }

    fn make(&self, path: &str, new: &NewInode<'_>) -> Result<(), String> {
        let (dir, name) = self.place(path)?;
        let made = self.live.create(&self.caller(), dir, name, new);
        made.map(drop).map_err(|why| why.to_string())
    }

    fn name(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        let (dir, name) = self.place(path)?;
        let name_it = || {
            let file = self.live.create_tmpfile(&self.caller(), dir, &NewInode::default())?.ino;
            self.live.write(&self.caller(), ObjectId::new(file), WriteOffset::At(0), bytes)?;
            self.live.link(&self.caller(), ObjectId::new(file), dir, name)?;
            self.live.release_file(ObjectId::new(file))
        };
        name_it().map_err(|why| why.to_string())
    }

    fn share(&self, path: &str, to: &str) -> Result<(), String> {
        let from = self.find(path)?;
        self.make(to, &NewInode::default())?;
        let to = self.find(to)?;
        let share = || {
            let source = self.live.reader().file(from.get())?;
            let mut bytes = vec![0; usize::try_from(source.stat().size).unwrap_or(0)];
            source.content().read(0, &mut bytes)?;
            let length = source.stat().size;
            let stretch =
                CloneRange { source: from, source_offset: 0, target: to, target_offset: 0, length };
            let done = self.live.clone_blocks(&self.caller(), &stretch)?;
            let rest = &bytes[usize::try_from(done).unwrap_or(0)..];
            if rest.is_empty() {
                return Ok(());
            }
            self.live.write(&self.caller(), to, WriteOffset::At(done), rest).map(drop)
        };
        share().map_err(|why: engine::files::Error| why.to_string())
    }

    fn act(&self, act: &Act) -> Result<(), String> {
        let (caller, live) = (self.caller(), &self.live);
        let done = match act {
            Act::Create { path } => return self.make(path, &NewInode::default()),
            Act::Mkdir { path } => {
                return self.make(
                    path,
                    &NewInode { kind: FileType::Directory, mode: 0o777, ..NewInode::default() },
                );
            }
            Act::Symlink { path, target } => {
                let target = target.as_bytes();
                return self.make(
                    path,
                    &NewInode {
                        kind: FileType::Symlink,
                        mode: 0o777,
                        target,
                        ..NewInode::default()
                    },
                );
            }
            Act::Write { path, at, length, seed } => {
                let bytes = content(*seed, *length);
                live.write(&caller, self.find(path)?, WriteOffset::At(*at), &bytes).map(drop)
            }
            Act::Append { path, length, seed } => {
                let bytes = content(*seed, *length);
                live.write(&caller, self.find(path)?, WriteOffset::End, &bytes).map(drop)
            }
            Act::Truncate { path, size } => {
                let set = Attrs { size: Some(*size), ..Attrs::default() };
                live.set_attributes(&caller, self.find(path)?, &set)
            }
            Act::Punch { path, from, to } => live.punch_hole(&caller, self.find(path)?, *from..*to),
            Act::Rename { from, to } => {
                let ((from_dir, from), (to_dir, to)) = (self.place(from)?, self.place(to)?);
                let kind = RenameMode::Replace;
                live.rename(
                    &caller,
                    &RenameRequest { from_dir, from_name: from, to_dir, to_name: to, mode: kind },
                )
            }
            Act::Unlink { path } => {
                let (dir, name) = self.place(path)?;
                live.unlink(&caller, dir, name)
            }
            Act::Rmdir { path } => {
                let (dir, name) = self.place(path)?;
                live.rmdir(&caller, dir, name)
            }
            Act::Link { path, to } => {
                let (dir, name) = self.place(to)?;
                live.link(&caller, self.find(path)?, dir, name)
            }
            Act::SetAttr { path, mode, owner } => {
                let set = Attrs { mode: Some(*mode), uid: Some(*owner), ..Attrs::default() };
                live.set_attributes(&caller, self.find(path)?, &set)
            }
            Act::SetXattr { path, name, length, seed } => {
                let value = length.map(|length| content(*seed, length));
                let (file, name, mode) = (self.find(path)?, name.as_bytes(), XattrMode::Any);
                live.set_xattr(&caller, file, name, value.as_deref(), mode)
            }
            Act::Name { path, length, seed } => return self.name(path, &content(*seed, *length)),
            Act::Share { path, to } => return self.share(path, to),
        };
        done.map_err(|why| why.to_string())
    }
}
