//! Random work on the files of a file system. What is refused is left undone.

use engine::files::{File, FileType, Reason, Time};
use engine::pool::OpenFileSystem;
use posix::{
    Capability, ChangeContext, CloneRange, Credentials, FlagChange, NewInode, RenameMode,
    RenameRequest, SetAttributes, SetTime, WriteOffset, XattrMode,
};
use sim::Seed;
use units::ObjectId;

use super::{START, Trouble, one};

const LETTERS: [&str; 13] = [
    "a", "b", "c", "Z", "0", "_", " ", "-", "e\u{301}", "\u{e9}", "\u{df}", "\u{65e5}", "\u{fb01}",
];

/// Content of one of several kinds: nothing, text, pieces that repeat, noise.
pub(super) fn bytes(chance: &mut Seed, length: usize) -> Vec<u8> {
    let piece = match chance.below(5) {
        0 => vec![0],
        1 => format!("the quick brown fox {} ", chance.below(100)).into_bytes(),
        2 => {
            let length = one(chance, &[16, 512, 4096]);
            noise(chance, length)
        }
        _ => noise(chance, length),
    };
    piece.iter().copied().cycle().take(length).collect()
}

fn noise(chance: &mut Seed, length: usize) -> Vec<u8> {
    let words = std::iter::repeat_with(|| chance.next_u64().to_le_bytes());
    words.take(length.div_ceil(8)).flatten().take(length).collect()
}

/// A name of a file.
#[derive(Clone)]
struct Named {
    dir: ObjectId,
    name: Vec<u8>,
    id: ObjectId,
    kind: FileType,
}

/// Work on a file system.
pub(super) struct Churn<'a> {
    live: OpenFileSystem,
    chance: &'a mut Seed,
    dirs: Vec<ObjectId>,
    names: Vec<Named>,
    now: i64,
}

type Done = engine::files::Result<()>;

impl<'a> Churn<'a> {
    /// On what is there.
    pub(super) fn of(live: OpenFileSystem, chance: &'a mut Seed) -> Result<Self, Trouble> {
        let root = live.reader().root().map_err(|why| format!("root: {why}"))?;
        let now = i64::try_from(START).unwrap_or(0);
        let (dirs, names) = (vec![ObjectId::new(root.ino())], Vec::new());
        let mut churn = Self { live, chance, dirs, names, now };
        churn.look(&root)?;
        Ok(churn)
    }

    /// Notes all names below a directory.
    fn look(&mut self, root: &File) -> Result<(), Trouble> {
        let mut left = vec![root.clone()];
        while let Some(dir) = left.pop() {
            let files = self.live.reader().clone();
            let told = |why: &dyn std::fmt::Display| format!("directory {}: {why}", dir.ino());
            for name in files.read_dir_sorted(&dir).map_err(|why| told(&why))? {
                let id = ObjectId::new(name.ino);
                if name.kind == FileType::Directory {
                    self.dirs.push(id);
                    left.push(files.file(name.ino).map_err(|why| told(&why))?);
                }
                let dir = ObjectId::new(dir.ino());
                self.names.push(Named { dir, name: name.name, id, kind: name.kind });
            }
        }
        Ok(())
    }

    pub(super) fn steps(&mut self, count: u64) -> Result<(), Trouble> {
        for _ in 0..count {
            self.now += 1;
            let done = self.step();
            if let Err(why) = done {
                let bad = [Reason::Unreadable, Reason::Locked, Reason::ReadOnly];
                if bad.contains(&why.reason()) {
                    return Err(why.to_string());
                }
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Done {
        let files: Vec<usize> =
            (0..self.names.len()).filter(|at| self.names[*at].kind == FileType::File).collect();
        if files.is_empty() || self.chance.percent(40) {
            return self.fresh();
        }
        let at = if self.chance.percent(75) {
            one(self.chance, &files)
        } else {
            usize::try_from(self.chance.below(self.names.len() as u64)).unwrap_or(0)
        };
        let named = self.names[at].clone();
        match self.chance.below(28) {
            20 => self.set(&named, |chance| {
                // no dump, immutable; its project is inherited
                let (project, flags) =
                    one(chance, &[(0, 0), (7, 0x40 | immutable(&named)), (4_000_000, 0x2000_0000)]);
                SetAttributes {
                    project_id: Some(project),
                    flags: Some(FlagChange::from_linux(flags)),
                    ..SetAttributes::default()
                }
            }),
            21 | 22 => self.share(&named, &files),
            23 => self.rename(at, RenameMode::Whiteout),
            24 | 25 => self.access_list(&named),
            26 => self.unnamed(),
            27 => self.set(&named, |chance| SetAttributes {
                crtime: Some(time(chance)),
                ..SetAttributes::default()
            }),
            0..=3 => self.write(&named),
            4 => self.truncate(&named),
            5 => self.punch(&named),
            6 | 7 => self.rename(at, RenameMode::Replace),
            8 => self.rename(at, RenameMode::Exchange),
            9 => self.link(&named),
            10 | 11 => self.remove(at),
            12 => self.set(&named, |chance| SetAttributes {
                mode: Some(u32::try_from(chance.below(0o10000)).unwrap_or(0)),
                ..SetAttributes::default()
            }),
            13 => self.set(&named, |chance| SetAttributes {
                uid: Some(one(chance, &[0, 1001, 65534, 4_000_000_000])),
                gid: Some(one(chance, &[0, 100, 4_000_000_001])),
                ..SetAttributes::default()
            }),
            14 => self.set(&named, |chance| SetAttributes {
                atime: Some(SetTime::At(time(chance))),
                mtime: Some(SetTime::At(time(chance))),
                ..SetAttributes::default()
            }),
            15..=17 => self.xattr(&named),
            18 => self.no_xattr(&named),
            _ => self.live.fsync(self.chance.percent(50).then_some(named.id.get())),
        }
    }

    fn caller(&mut self) -> ChangeContext {
        let nanoseconds = u32::try_from(self.chance.below(1_000_000_000)).unwrap_or(0);
        let now = Time { seconds: self.now, nanoseconds };
        let uid = one(self.chance, &[0, 0, 1001]);
        let credentials = Credentials::new(uid, 100).with_capability(Capability::FileSetId);
        ChangeContext { credentials, now }
    }

    fn place(&mut self) -> (ObjectId, Vec<u8>) {
        // what is longer the manifest's own program cannot look at
        let longest = self.live.max_name_len().min(255);
        let length = one(self.chance, &[1, 2, 5, 9, 20, 49, 50, 90, 200, longest]);
        let letters = (0..length).map(|_| one(self.chance, &LETTERS)).collect::<String>();
        let most = if length == longest { longest } else { 200 };
        let ends = letters.char_indices().map(|(at, _)| at).chain([letters.len()]);
        let end = ends.take_while(|at| *at <= most).last();
        let name = letters[..end.filter(|end| *end > 0).unwrap_or(letters.len())].trim();
        let name = if name.is_empty() { "n" } else { name };
        (one(self.chance, &self.dirs), name.as_bytes().to_vec())
    }

    fn fresh(&mut self) -> Done {
        let mode = one(self.chance, &[0o644, 0o600, 0o755, 0o6711, 0o2770, 0o1777]);
        let target = match self.chance.below(4) {
            0 => b"a/relative target".to_vec(),
            _ => vec![b't'; one(self.chance, &[1, 67, 300, 1000, 3000])],
        };
        let device = (
            u32::try_from(self.chance.below(300)).unwrap_or(0),
            u32::try_from(self.chance.below(70000)).unwrap_or(0),
        );
        let other = [FileType::Fifo, FileType::Socket, FileType::CharDevice, FileType::BlockDevice];
        let kind = match self.chance.below(10) {
            0..=5 => FileType::File,
            6 | 7 => FileType::Directory,
            8 => FileType::Symlink,
            _ => one(self.chance, &other),
        };
        let target = if kind == FileType::Symlink { target } else { Vec::new() };
        let (dir, name) = self.place();
        let new = NewInode { kind, mode, umask: 0o022, rdev: device, target: &target };
        let caller = self.caller();
        let made = self.live.create(&caller, dir, &name, &new)?;
        let id = ObjectId::new(made.ino());
        if kind == FileType::Directory {
            self.dirs.push(id);
        }
        let named = Named { dir, name, id, kind };
        self.names.push(named.clone());
        match kind {
            FileType::File if self.chance.percent(15) => self.far(&named),
            FileType::File => self.write(&named),
            _ => Ok(()),
        }
    }

    fn write(&mut self, to: &Named) -> Done {
        let size = self.live.reader().stat(to.id.get())?.size;
        for _ in 0..one(self.chance, &[1, 1, 1, 3]) {
            let at = match self.chance.below(6) {
                0 | 1 => 0,
                2 => size.min(1 << 40),
                3 => self.chance.below(size.min(1 << 24) + 1),
                4 => self.chance.below(1 << 22),
                _ => 4096 * self.chance.below(300),
            };
            let lengths = [0, 1, 100, 112, 513, 4096, 5000, 30000, 131_072, 200_000];
            let length = one(self.chance, &lengths);
            let bytes = bytes(self.chance, length);
            let caller = self.caller();
            self.live.write(&caller, to.id, WriteOffset::At(at), &bytes)?;
        }
        if self.chance.percent(10) { self.live.fsync(Some(to.id.get())) } else { Ok(()) }
    }

    /// Little in a huge file.
    fn far(&mut self, to: &Named) -> Done {
        for _ in 0..3 {
            let length = one(self.chance, &[1, 700, 9000]);
            let bytes = bytes(self.chance, length);
            let most = one(self.chance, &[20, 24, 30, 40, 60]);
            let at = self.chance.below(1 << most);
            let caller = self.caller();
            self.live.write(&caller, to.id, WriteOffset::At(at), &bytes)?;
        }
        Ok(())
    }

    fn truncate(&mut self, file: &Named) -> Done {
        let (near, far) = (self.chance.below(1 << 20), self.chance.below(1 << 35));
        let size = one(self.chance, &[0, 1, 100, 4096, near, far]);
        self.set(file, |_| SetAttributes { size: Some(size), ..SetAttributes::default() })
    }

    fn punch(&mut self, file: &Named) -> Done {
        let (from, length) = (self.chance.below(1 << 18), 1 + self.chance.below(1 << 18));
        let caller = self.caller();
        self.live.punch_hole(&caller, file.id, from..from + length)
    }

    fn rename(&mut self, at: usize, kind: RenameMode) -> Done {
        let named = self.names[at].clone();
        let other = usize::try_from(self.chance.below(self.names.len() as u64)).unwrap_or(0);
        let (to_dir, to) = if kind == RenameMode::Exchange {
            (self.names[other].dir, self.names[other].name.clone())
        } else {
            self.place()
        };
        let how = RenameRequest {
            from_dir: named.dir,
            from_name: &named.name,
            to_dir,
            to_name: &to,
            mode: kind,
        };
        let caller = self.caller();
        self.live.rename(&caller, &how)?;
        if kind == RenameMode::Exchange {
            let (id, kind) = (self.names[other].id, self.names[other].kind);
            (self.names[other].id, self.names[other].kind) = (named.id, named.kind);
            (self.names[at].id, self.names[at].kind) = (id, kind);
        } else {
            (self.names[at].dir, self.names[at].name) = (to_dir, to);
        }
        Ok(())
    }

    fn link(&mut self, file: &Named) -> Done {
        let (dir, name) = self.place();
        let caller = self.caller();
        self.live.link(&caller, file.id, dir, &name)?;
        self.names.push(Named { dir, name, ..file.clone() });
        Ok(())
    }

    fn remove(&mut self, at: usize) -> Done {
        let named = self.names[at].clone();
        let caller = self.caller();
        if named.kind == FileType::Directory {
            self.live.rmdir(&caller, named.dir, &named.name)?;
            self.dirs.retain(|dir| *dir != named.id);
        } else {
            self.live.unlink(&caller, named.dir, &named.name)?;
        }
        self.names.swap_remove(at);
        Ok(())
    }

    fn set(&mut self, file: &Named, what: impl FnOnce(&mut Seed) -> SetAttributes) -> Done {
        let set = what(self.chance);
        let caller = self.caller();
        self.live.set_attributes(&caller, file.id, &set)
    }

    fn xattr(&mut self, file: &Named) -> Done {
        for _ in 0..one(self.chance, &[1, 1, 5, 30]) {
            let space = one(self.chance, &["user.", "user.", "trusted."]);
            let name = format!("{space}k{}", self.chance.below(40));
            let length = one(self.chance, &[0, 1, 30, 200, 1000, 20000]);
            let value = bytes(self.chance, length);
            let caller = self.caller();
            let (name, any) = (name.as_bytes(), XattrMode::Any);
            self.live.set_xattr(&caller, file.id, name, Some(&value), any)?;
        }
        Ok(())
    }

    /// Has another file share blocks of this one.
    fn share(&mut self, from: &Named, files: &[usize]) -> Done {
        if from.kind != FileType::File {
            return Ok(());
        }
        // what is new has no blocks of another size yet
        let to = if self.chance.percent(60) {
            let (dir, name) = self.place();
            let caller = self.caller();
            let id = self.live.create(&caller, dir, &name, &NewInode::default())?.ino();
            let id = ObjectId::new(id);
            self.names.push(Named { dir, name, id, kind: FileType::File });
            id
        } else {
            self.names[one(self.chance, files)].id
        };
        let (size, record) = (self.live.reader().stat(from.id.get())?.size, 1 << 17);
        let start = record * self.chance.below(size.min(1 << 24) / record + 1);
        let at = one(self.chance, &[start, 0, record, 5 * record]);
        let length = one(self.chance, &[size.saturating_sub(start).min(1 << 24), record]);
        let caller = self.caller();
        self.live
            .clone_blocks(
                &caller,
                &CloneRange {
                    source: from.id,
                    source_offset: start,
                    target: to,
                    target_offset: at,
                    length,
                },
            )
            .map(drop)
    }

    /// Gives a file a POSIX ACL, or a directory one for what is made in it.
    fn access_list(&mut self, to: &Named) -> Done {
        let is_for_new = to.kind == FileType::Directory && self.chance.percent(60);
        let name: &[u8] =
            if is_for_new { b"system.posix_acl_default" } else { b"system.posix_acl_access" };
        let none = u32::MAX;
        let user = u32::try_from(1000 + self.chance.below(5)).unwrap_or(0);
        let rows = [(1, none), (2, user), (4, none), (8, 50), (16, none), (32, none)];
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, id) in rows {
            let may = u16::try_from(self.chance.below(8)).unwrap_or(0);
            value.extend([u16::to_le_bytes(tag), may.to_le_bytes()].concat());
            value.extend(id.to_le_bytes());
        }
        let value = if self.chance.percent(85) { Some(value.as_slice()) } else { None };
        let caller = self.caller();
        self.live.set_xattr(&caller, to.id, name, value, XattrMode::Any)
    }

    /// Makes a file without a name, and mostly gives it one.
    fn unnamed(&mut self) -> Done {
        let (dir, name) = self.place();
        let caller = self.caller();
        let made = self.live.create_tmpfile(&caller, dir, &NewInode::default())?;
        let id = ObjectId::new(made.ino);
        let named = Named { dir, name, id, kind: FileType::File };
        let written = self.write(&named);
        let done = if self.chance.percent(70) {
            let caller = self.caller();
            written.and_then(|()| self.live.link(&caller, id, dir, &named.name))
        } else {
            written
        };
        if done.is_ok() && self.live.reader().stat(id.get())?.nlink > 0 {
            self.names.push(named);
        }
        self.live.release_file(id)?;
        done
    }

    fn no_xattr(&mut self, file: &Named) -> Done {
        let names = self.live.reader().file(file.id.get())?.xattrs()?;
        for (name, _) in names.into_iter().take(3) {
            let caller = self.caller();
            self.live.set_xattr(&caller, file.id, &name, None, XattrMode::Any)?;
        }
        Ok(())
    }
}

/// Of some files the flag that they are immutable.
fn immutable(file: &Named) -> u32 {
    if file.kind == FileType::File && file.id.get().is_multiple_of(3) { 0x10 } else { 0 }
}

fn time(chance: &mut Seed) -> Time {
    let seconds = i64::try_from(chance.below(5_000_000_000)).unwrap_or(0) - 1_000_000_000;
    Time { seconds, nanoseconds: u32::try_from(chance.below(1_000_000_000)).unwrap_or(0) }
}
