//! Random work on the files of a file system. Refused changes are skipped.

use engine::files::{File, FileType, Reason, Time};
use engine::pool::OpenFileSystem;
use posix::{
    Capability, ChangeContext, CloneRange, Credentials, FlagChange, NewInode, RenameMode,
    RenameRequest, SetAttributes, SetTime, WriteOffset, XattrMode,
};
use sim::Random;
use units::ObjectId;

use super::{RoundError, START_TIME, random_element};

const NAME_LETTERS: [&str; 13] = [
    "a", "b", "c", "Z", "0", "_", " ", "-", "e\u{301}", "\u{e9}", "\u{df}", "\u{65e5}", "\u{fb01}",
];

/// Content of one of several kinds: nothing, text, pieces that repeat, noise.
pub(super) fn random_content(chance: &mut Random, length: usize) -> Vec<u8> {
    let piece = match chance.next_below(5) {
        0 => vec![0],
        1 => format!("the quick brown fox {} ", chance.next_below(100)).into_bytes(),
        2 => {
            let length = random_element(chance, &[16, 512, 4096]);
            random_bytes(chance, length)
        }
        _ => random_bytes(chance, length),
    };
    piece.iter().copied().cycle().take(length).collect()
}

fn random_bytes(chance: &mut Random, length: usize) -> Vec<u8> {
    let words = std::iter::repeat_with(|| chance.next_u64().to_le_bytes());
    words.take(length.div_ceil(8)).flatten().take(length).collect()
}

/// A name of a file.
#[derive(Clone)]
struct NamedFile {
    dir: ObjectId,
    name: Vec<u8>,
    id: ObjectId,
    kind: FileType,
}

/// Work on a file system.
pub(super) struct FileWorkload<'a> {
    fs: OpenFileSystem,
    random: &'a mut Random,
    dirs: Vec<ObjectId>,
    files: Vec<NamedFile>,
    now: i64,
}

type StepResult = engine::files::Result<()>;

impl<'a> FileWorkload<'a> {
    /// On existing files.
    pub(super) fn new(fs: OpenFileSystem, chance: &'a mut Random) -> Result<Self, RoundError> {
        let root = fs.reader().root().map_err(|error| format!("root: {error}"))?;
        let now = i64::try_from(START_TIME).unwrap_or(0);
        let (dirs, names) = (vec![ObjectId::new(root.ino())], Vec::new());
        let mut churn = Self { fs, random: chance, dirs, files: names, now };
        churn.scan_tree(&root)?;
        Ok(churn)
    }

    /// Notes all names below a directory.
    fn scan_tree(&mut self, root: &File) -> Result<(), RoundError> {
        let mut left = vec![root.clone()];
        while let Some(dir) = left.pop() {
            let files = self.fs.reader().clone();
            let told = |why: &dyn std::fmt::Display| format!("directory {}: {why}", dir.ino());
            for name in files.read_dir_sorted(&dir).map_err(|error| told(&error))? {
                let id = ObjectId::new(name.ino);
                if name.kind == FileType::Directory {
                    self.dirs.push(id);
                    left.push(files.file(name.ino).map_err(|error| told(&error))?);
                }
                let dir = ObjectId::new(dir.ino());
                self.files.push(NamedFile { dir, name: name.name, id, kind: name.kind });
            }
        }
        Ok(())
    }

    pub(super) fn run_steps(&mut self, count: u64) -> Result<(), RoundError> {
        for _ in 0..count {
            self.now += 1;
            let done = self.run_step();
            if let Err(error) = done {
                let bad = [Reason::Unreadable, Reason::Locked, Reason::ReadOnly];
                if bad.contains(&error.reason()) {
                    return Err(error.to_string());
                }
            }
        }
        Ok(())
    }

    fn run_step(&mut self) -> StepResult {
        let files: Vec<usize> =
            (0..self.files.len()).filter(|at| self.files[*at].kind == FileType::File).collect();
        if files.is_empty() || self.random.chance_percent(40) {
            return self.create_file();
        }
        let at = if self.random.chance_percent(75) {
            random_element(self.random, &files)
        } else {
            usize::try_from(self.random.next_below(self.files.len() as u64)).unwrap_or(0)
        };
        let named = self.files[at].clone();
        match self.random.next_below(28) {
            20 => self.set_attributes(&named, |chance| {
                // no dump, immutable; its project is inherited
                let (project, flags) = random_element(
                    chance,
                    &[(0, 0), (7, 0x40 | immutable_flag(&named)), (4_000_000, 0x2000_0000)],
                );
                SetAttributes {
                    project_id: Some(project),
                    flags: Some(FlagChange::from_linux(flags)),
                    ..SetAttributes::default()
                }
            }),
            21 | 22 => self.clone_blocks(&named, &files),
            23 => self.rename(at, RenameMode::Whiteout),
            24 | 25 => self.set_posix_acl(&named),
            26 => self.create_tmpfile(),
            27 => self.set_attributes(&named, |chance| SetAttributes {
                crtime: Some(random_time(chance)),
                ..SetAttributes::default()
            }),
            0..=3 => self.write_file(&named),
            4 => self.truncate(&named),
            5 => self.punch_hole(&named),
            6 | 7 => self.rename(at, RenameMode::Replace),
            8 => self.rename(at, RenameMode::Exchange),
            9 => self.link(&named),
            10 | 11 => self.remove(at),
            12 => self.set_attributes(&named, |chance| SetAttributes {
                mode: Some(u32::try_from(chance.next_below(0o10000)).unwrap_or(0)),
                ..SetAttributes::default()
            }),
            13 => self.set_attributes(&named, |chance| SetAttributes {
                uid: Some(random_element(chance, &[0, 1001, 65534, 4_000_000_000])),
                gid: Some(random_element(chance, &[0, 100, 4_000_000_001])),
                ..SetAttributes::default()
            }),
            14 => self.set_attributes(&named, |chance| SetAttributes {
                atime: Some(SetTime::At(random_time(chance))),
                mtime: Some(SetTime::At(random_time(chance))),
                ..SetAttributes::default()
            }),
            15..=17 => self.set_xattrs(&named),
            18 => self.remove_xattrs(&named),
            _ => self.fs.fsync(self.random.chance_percent(50).then_some(named.id.get())),
        }
    }

    fn next_credentials(&mut self) -> ChangeContext {
        let nanoseconds = u32::try_from(self.random.next_below(1_000_000_000)).unwrap_or(0);
        let now = Time { seconds: self.now, nanoseconds };
        let uid = random_element(self.random, &[0, 0, 1001]);
        let credentials = Credentials::new(uid, 100).with_capability(Capability::FileSetId);
        ChangeContext { credentials, now }
    }

    fn random_location(&mut self) -> (ObjectId, Vec<u8>) {
        // the manifest's own program cannot read longer paths
        let longest = self.fs.max_name_len().min(255);
        let length = random_element(self.random, &[1, 2, 5, 9, 20, 49, 50, 90, 200, longest]);
        let letters =
            (0..length).map(|_| random_element(self.random, &NAME_LETTERS)).collect::<String>();
        let most = if length == longest { longest } else { 200 };
        let ends = letters.char_indices().map(|(at, _)| at).chain([letters.len()]);
        let end = ends.take_while(|at| *at <= most).last();
        let name = letters[..end.filter(|end| *end > 0).unwrap_or(letters.len())].trim();
        let name = if name.is_empty() { "n" } else { name };
        (random_element(self.random, &self.dirs), name.as_bytes().to_vec())
    }

    fn create_file(&mut self) -> StepResult {
        let mode = random_element(self.random, &[0o644, 0o600, 0o755, 0o6711, 0o2770, 0o1777]);
        let target = match self.random.next_below(4) {
            0 => b"a/relative target".to_vec(),
            _ => vec![b't'; random_element(self.random, &[1, 67, 300, 1000, 3000])],
        };
        let device = (
            u32::try_from(self.random.next_below(300)).unwrap_or(0),
            u32::try_from(self.random.next_below(70000)).unwrap_or(0),
        );
        let other = [FileType::Fifo, FileType::Socket, FileType::CharDevice, FileType::BlockDevice];
        let kind = match self.random.next_below(10) {
            0..=5 => FileType::File,
            6 | 7 => FileType::Directory,
            8 => FileType::Symlink,
            _ => random_element(self.random, &other),
        };
        let target = if kind == FileType::Symlink { target } else { Vec::new() };
        let (dir, name) = self.random_location();
        let (rdev, target) = (device, target.as_slice());
        let new = NewInode { kind, mode, umask: 0o022, rdev, target, times: None };
        let caller = self.next_credentials();
        let made = self.fs.create(&caller, dir, &name, &new)?;
        let id = ObjectId::new(made.ino());
        if kind == FileType::Directory {
            self.dirs.push(id);
        }
        let named = NamedFile { dir, name, id, kind };
        self.files.push(named.clone());
        match kind {
            FileType::File if self.random.chance_percent(15) => self.write_sparse(&named),
            FileType::File => self.write_file(&named),
            _ => Ok(()),
        }
    }

    fn write_file(&mut self, to: &NamedFile) -> StepResult {
        let size = self.fs.reader().stat(to.id.get())?.size;
        for _ in 0..random_element(self.random, &[1, 1, 1, 3]) {
            let at = match self.random.next_below(6) {
                0 | 1 => 0,
                2 => size.min(1 << 40),
                3 => self.random.next_below(size.min(1 << 24) + 1),
                4 => self.random.next_below(1 << 22),
                _ => 4096 * self.random.next_below(300),
            };
            let lengths = [0, 1, 100, 112, 513, 4096, 5000, 30000, 131_072, 200_000];
            let length = random_element(self.random, &lengths);
            let bytes = random_content(self.random, length);
            let caller = self.next_credentials();
            self.fs.write(&caller, to.id, WriteOffset::At(at), &bytes)?;
        }
        if self.random.chance_percent(10) { self.fs.fsync(Some(to.id.get())) } else { Ok(()) }
    }

    /// Little in a huge file.
    fn write_sparse(&mut self, to: &NamedFile) -> StepResult {
        for _ in 0..3 {
            let length = random_element(self.random, &[1, 700, 9000]);
            let bytes = random_content(self.random, length);
            let most = random_element(self.random, &[20, 24, 30, 40, 60]);
            let at = self.random.next_below(1 << most);
            let caller = self.next_credentials();
            self.fs.write(&caller, to.id, WriteOffset::At(at), &bytes)?;
        }
        Ok(())
    }

    fn truncate(&mut self, file: &NamedFile) -> StepResult {
        let (near, far) = (self.random.next_below(1 << 20), self.random.next_below(1 << 35));
        let size = random_element(self.random, &[0, 1, 100, 4096, near, far]);
        self.set_attributes(file, |_| SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        })
    }

    fn punch_hole(&mut self, file: &NamedFile) -> StepResult {
        let (from, length) = (self.random.next_below(1 << 18), 1 + self.random.next_below(1 << 18));
        let caller = self.next_credentials();
        self.fs.punch_hole(&caller, file.id, from..from + length)
    }

    fn rename(&mut self, at: usize, kind: RenameMode) -> StepResult {
        let named = self.files[at].clone();
        let other = usize::try_from(self.random.next_below(self.files.len() as u64)).unwrap_or(0);
        let (to_dir, to) = if kind == RenameMode::Exchange {
            (self.files[other].dir, self.files[other].name.clone())
        } else {
            self.random_location()
        };
        let how = RenameRequest {
            from_dir: named.dir,
            from_name: &named.name,
            to_dir,
            to_name: &to,
            mode: kind,
        };
        let caller = self.next_credentials();
        self.fs.rename(&caller, &how)?;
        if kind == RenameMode::Exchange {
            let (id, kind) = (self.files[other].id, self.files[other].kind);
            (self.files[other].id, self.files[other].kind) = (named.id, named.kind);
            (self.files[at].id, self.files[at].kind) = (id, kind);
        } else {
            (self.files[at].dir, self.files[at].name) = (to_dir, to);
        }
        Ok(())
    }

    fn link(&mut self, file: &NamedFile) -> StepResult {
        let (dir, name) = self.random_location();
        let caller = self.next_credentials();
        self.fs.link(&caller, file.id, dir, &name)?;
        self.files.push(NamedFile { dir, name, ..file.clone() });
        Ok(())
    }

    fn remove(&mut self, at: usize) -> StepResult {
        let named = self.files[at].clone();
        let caller = self.next_credentials();
        if named.kind == FileType::Directory {
            self.fs.rmdir(&caller, named.dir, &named.name)?;
            self.dirs.retain(|dir| *dir != named.id);
        } else {
            self.fs.unlink(&caller, named.dir, &named.name)?;
        }
        self.files.swap_remove(at);
        Ok(())
    }

    fn set_attributes(
        &mut self,
        file: &NamedFile,
        what: impl FnOnce(&mut Random) -> SetAttributes,
    ) -> StepResult {
        let set = what(self.random);
        let caller = self.next_credentials();
        self.fs.set_attributes(&caller, file.id, &set)
    }

    fn set_xattrs(&mut self, file: &NamedFile) -> StepResult {
        for _ in 0..random_element(self.random, &[1, 1, 5, 30]) {
            let space = random_element(self.random, &["user.", "user.", "trusted."]);
            let name = format!("{space}k{}", self.random.next_below(40));
            let length = random_element(self.random, &[0, 1, 30, 200, 1000, 20000]);
            let value = random_content(self.random, length);
            let caller = self.next_credentials();
            let (name, any) = (name.as_bytes(), XattrMode::Any);
            self.fs.set_xattr(&caller, file.id, name, Some(&value), any)?;
        }
        Ok(())
    }

    /// Has another file share blocks of this one.
    fn clone_blocks(&mut self, from: &NamedFile, files: &[usize]) -> StepResult {
        if from.kind != FileType::File {
            return Ok(());
        }
        // a new file has no blocks of another size yet
        let to = if self.random.chance_percent(60) {
            let (dir, name) = self.random_location();
            let caller = self.next_credentials();
            let id = self.fs.create(&caller, dir, &name, &NewInode::default())?.ino();
            let id = ObjectId::new(id);
            self.files.push(NamedFile { dir, name, id, kind: FileType::File });
            id
        } else {
            self.files[random_element(self.random, files)].id
        };
        let (size, record) = (self.fs.reader().stat(from.id.get())?.size, 1 << 17);
        let start = record * self.random.next_below(size.min(1 << 24) / record + 1);
        let at = random_element(self.random, &[start, 0, record, 5 * record]);
        let length =
            random_element(self.random, &[size.saturating_sub(start).min(1 << 24), record]);
        let caller = self.next_credentials();
        self.fs
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

    /// Gives a file a POSIX ACL, or a directory a default ACL.
    fn set_posix_acl(&mut self, to: &NamedFile) -> StepResult {
        let is_for_new = to.kind == FileType::Directory && self.random.chance_percent(60);
        let name: &[u8] =
            if is_for_new { b"system.posix_acl_default" } else { b"system.posix_acl_access" };
        let none = u32::MAX;
        let user = u32::try_from(1000 + self.random.next_below(5)).unwrap_or(0);
        let rows = [(1, none), (2, user), (4, none), (8, 50), (16, none), (32, none)];
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, id) in rows {
            let may = u16::try_from(self.random.next_below(8)).unwrap_or(0);
            value.extend([u16::to_le_bytes(tag), may.to_le_bytes()].concat());
            value.extend(id.to_le_bytes());
        }
        let value = if self.random.chance_percent(85) { Some(value.as_slice()) } else { None };
        let caller = self.next_credentials();
        self.fs.set_xattr(&caller, to.id, name, value, XattrMode::Any)
    }

    /// Makes a file without a name, and mostly gives it one.
    fn create_tmpfile(&mut self) -> StepResult {
        let (dir, name) = self.random_location();
        let caller = self.next_credentials();
        let made = self.fs.create_tmpfile(&caller, dir, &NewInode::default())?;
        let id = ObjectId::new(made.ino);
        let named = NamedFile { dir, name, id, kind: FileType::File };
        let written = self.write_file(&named);
        let done = if self.random.chance_percent(70) {
            let caller = self.next_credentials();
            written.and_then(|()| self.fs.link(&caller, id, dir, &named.name))
        } else {
            written
        };
        if done.is_ok() && self.fs.reader().stat(id.get())?.nlink > 0 {
            self.files.push(named);
        }
        self.fs.release_file(id)?;
        done
    }

    fn remove_xattrs(&mut self, file: &NamedFile) -> StepResult {
        let names = self.fs.reader().file(file.id.get())?.xattrs()?;
        for (name, _) in names.into_iter().take(3) {
            let caller = self.next_credentials();
            self.fs.set_xattr(&caller, file.id, &name, None, XattrMode::Any)?;
        }
        Ok(())
    }
}

/// Of some files the flag that they are immutable.
fn immutable_flag(file: &NamedFile) -> u32 {
    if file.kind == FileType::File && file.id.get().is_multiple_of(3) { 0x10 } else { 0 }
}

fn random_time(chance: &mut Random) -> Time {
    let seconds = i64::try_from(chance.next_below(5_000_000_000)).unwrap_or(0) - 1_000_000_000;
    Time { seconds, nanoseconds: u32::try_from(chance.next_below(1_000_000_000)).unwrap_or(0) }
}
