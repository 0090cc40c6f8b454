//! Random operations on a file system and its model. Both are compared, also after the synced state
//! is read again.

use posix::{
    FileFlags, FileType, FlagChange, NewInode, RenameMode, RenameRequest, SetAttributes,
    WriteOffset, XattrMode,
};
use proptest::prelude::*;
use units::ObjectId;
use zpl::{Error, Fs, WriteSettings};

use crate::model::{Model, ModelError, ModelFile, Outcome};
use crate::test_fs::{TestFs, credentials};

/// An operation, and four numbers as its arguments.
type RandomStep = (u8, [u16; 4]);

const NAMES: [&[u8]; 5] = [b"a", b"b", b"cee", b"d with spaces", b"\xff\xfe not text"];

struct TestedFs {
    fs: TestFs,
    model: Model,
    now: i64,
}

fn to_model_error(why: &Error) -> ModelError {
    match why {
        Error::Exists { .. } => ModelError::Exists,
        Error::NoEntry { .. } => ModelError::NoEntry,
        Error::NotEmpty { .. } => ModelError::NotEmpty,
        Error::IsDirectory { .. } => ModelError::IsDirectory,
        Error::NotDirectory { .. } => ModelError::NotDirectory,
        Error::NotPermitted { .. } => ModelError::NotPermitted,
        Error::Invalid { .. } => ModelError::Invalid,
        Error::NoXattr { .. } => ModelError::NoXattr,
        Error::ProjectMismatch { .. } => ModelError::ProjectMismatch,
        other => panic!("{other}"),
    }
}

fn outcome<T>(result: zpl::Result<T>) -> Outcome {
    result.map(drop).map_err(|why| to_model_error(&why))
}

impl TestedFs {
    fn new(settings: WriteSettings) -> Self {
        let fs = TestFs::new(settings);
        let root = fs.writer.fs().master().root;
        Self { fs, model: Model::new(root, 1), now: 1 }
    }

    fn pick_file(&self, number: u16, wanted: impl Fn(&ModelFile) -> bool) -> Option<ObjectId> {
        let fits: Vec<ObjectId> =
            self.model.files.iter().filter(|(_, file)| wanted(file)).map(|(id, _)| *id).collect();
        fits.get(usize::from(number) % fits.len().max(1)).copied()
    }

    fn pick_directory(&self, number: u16) -> ObjectId {
        self.pick_file(number, |file| file.kind == FileType::Directory && file.nlink > 0)
            .expect("the root")
    }

    /// Does one step to both; gives what each made of it.
    fn apply_step(&mut self, (what, n): RandomStep) -> (Outcome, Outcome) {
        self.now += 1;
        let (now, who) = (self.now, credentials(self.now));
        let (dir, name) = (self.pick_directory(n[0]), NAMES[usize::from(n[1]) % NAMES.len()]);
        let other = (self.pick_directory(n[2]), NAMES[usize::from(n[3]) % NAMES.len()]);
        let any = self.pick_file(n[0], |file| file.nlink > 0).expect("the root");
        let writer = &self.fs.writer;
        match what % 16 {
            0 | 1 => self.create(dir, name, FileType::File, n),
            2 => self.create(dir, name, FileType::Directory, n),
            3 => self.create(
                dir,
                name,
                [FileType::Symlink, FileType::Fifo, FileType::CharDevice][usize::from(n[2]) % 3],
                n,
            ),
            4 => (
                outcome(writer.link(&who, any, other.0, other.1)),
                self.model.link(any, other.0, other.1, now),
            ),
            5 => {
                (outcome(writer.unlink(&who, dir, name)), self.model.remove(dir, name, false, now))
            }
            6 => (outcome(writer.rmdir(&who, dir, name)), self.model.remove(dir, name, true, now)),
            7 | 8 => {
                let kinds = [
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                ];
                let kind = kinds[usize::from(what / 16) % 4];
                let how = RenameRequest {
                    from_dir: dir,
                    from_name: name,
                    to_dir: other.0,
                    to_name: other.1,
                    mode: kind,
                };
                let real = outcome(writer.rename(&who, &how));
                (real, self.model.rename((dir, name), other, kind, now))
            }
            9 | 10 => {
                let (offset, count) = (usize::from(n[1]) % 40000, usize::from(n[2]) % 9000);
                let bytes = vec![n[3].to_le_bytes()[0]; count + 1];
                let real = writer.write(&who, any, WriteOffset::At(offset as u64), &bytes);
                (outcome(real), self.model.write(any, offset, &bytes, now))
            }
            11 => {
                let size = usize::from(n[1]) % 50000;
                let real = outcome(writer.truncate(&who, any, size as u64));
                (real, self.model.truncate(any, size, now))
            }
            12 => {
                let range = usize::from(n[1])..usize::from(n[1]) + usize::from(n[2]);
                let real = writer.punch_hole(&who, any, range.start as u64..range.end as u64);
                (outcome(real), self.model.punch_hole(any, range, now))
            }
            13 => self.set_attributes(any, n),
            14 => self.set_xattr(any, n),
            _ => self.sync_or_hold(any, n),
        }
    }

    fn create(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        kind: FileType,
        n: [u16; 4],
    ) -> (Outcome, Outcome) {
        let mode = u32::from(n[3]) & 0o7777 & !0o2000;
        let target: &[u8] =
            if kind == FileType::Symlink { &[b'x'; 700][..=usize::from(n[3]) % 699] } else { b"" };
        let new = NewInode { kind, mode, umask: 0o022, target, ..NewInode::default() };
        let real = self.fs.writer.create(&credentials(self.now), dir, name, &new);
        let model = self.model.check_create(dir, name);
        if let (Ok(made), Ok(())) = (&real, model) {
            let mode = if kind == FileType::Symlink { 0o777 } else { mode & !0o022 };
            let file =
                ModelFile { content: target.to_vec(), ..ModelFile::new(kind, mode, self.now) };
            self.model.create(dir, name, made.id, file, self.now);
        }
        (outcome(real), model)
    }

    fn set_attributes(&mut self, id: ObjectId, n: [u16; 4]) -> (Outcome, Outcome) {
        let now = self.now;
        let file = self.model.file(id);
        let mut set = SetAttributes::default();
        if n[1].is_multiple_of(2) {
            let mode = u32::from(n[2]) & 0o7777 & !0o2000;
            (set.mode, file.mode) = (Some(mode), mode);
        } else if n[1].is_multiple_of(3) && file.kind == FileType::Directory {
            let project = u64::from(n[2] % 3);
            (set.project_id, file.project_id, file.inherits_project) =
                (Some(project), project, true);
            set.flags = Some(FlagChange::set(FileFlags::PROJECT_INHERIT));
        } else {
            let uid = u32::from(n[2]);
            set.uid = Some(uid);
            file.chown(uid);
        }
        file.ctime = now;
        (outcome(self.fs.writer.set_attributes(&credentials(now), id, &set)), Ok(()))
    }

    fn set_xattr(&mut self, id: ObjectId, n: [u16; 4]) -> (Outcome, Outcome) {
        let now = self.now;
        let name = [&b"user.a"[..], b"user.long name", b"trusted.t"][usize::from(n[1]) % 3];
        let value = vec![n[3].to_le_bytes()[0]; value_length(n)];
        let value = (!n[2].is_multiple_of(5)).then_some(value);
        let file = self.model.file(id);
        let model = match &value {
            Some(value) => {
                file.xattrs.insert(name.to_vec(), value.clone());
                Ok(())
            }
            None => file.xattrs.remove(name).map(drop).ok_or(ModelError::NoXattr),
        };
        if model.is_ok() {
            file.ctime = now;
        }
        let mode = XattrMode::Any;
        (
            outcome(self.fs.writer.set_xattr(&credentials(now), id, name, value.as_deref(), mode)),
            model,
        )
    }

    fn sync_or_hold(&mut self, any: ObjectId, n: [u16; 4]) -> (Outcome, Outcome) {
        let held: Vec<ObjectId> = self.model.holds.keys().copied().collect();
        match n[1] % 4 {
            0 => drop(self.fs.sync()),
            1 if !held.is_empty() => {
                let id = held[usize::from(n[2]) % held.len()];
                self.fs.writer.release_file(id).expect("release");
                self.model.release(id);
            }
            2 => {
                let dir = self.pick_directory(n[2]);
                let made = self.fs.writer.create_tmpfile(
                    &credentials(self.now),
                    dir,
                    &NewInode::default(),
                );
                let made = made.expect("a file without a name");
                let file =
                    ModelFile { nlink: 0, ..ModelFile::new(FileType::File, 0o644, self.now) };
                let parent = &self.model.files[&dir];
                let project = if parent.inherits_project { parent.project_id } else { 0 };
                let inherits = parent.inherits_project;
                self.model.files.insert(
                    made.id,
                    ModelFile {
                        project_id: project,
                        inherits_project: inherits,
                        parent: dir,
                        ..file
                    },
                );
                self.model.holds.insert(made.id, 1);
            }
            _ => {
                self.fs.writer.hold_file(any).expect("hold");
                *self.model.holds.entry(any).or_default() += 1;
            }
        }
        (Ok(()), Ok(()))
    }

    fn compare_fs(&self, fs: &Fs) {
        let mut objects = 5;
        for (id, file) in &self.model.files {
            objects += 1 + compare_file(fs, *id, file, true);
        }
        if !fs.objset().is_writable() {
            let found = fs.objset().objects().filter_map(Result::ok).count();
            assert_eq!(found, objects, "objects");
        }
        let mut unlinked = Vec::new();
        fs.for_each_unlinked(&mut |id| {
            unlinked.push(id);
            true
        })
        .expect("unlinked");
        unlinked.sort_unstable();
        let wanted = self.model.files.iter().filter(|(_, file)| file.nlink == 0);
        assert_eq!(unlinked, wanted.map(|(id, _)| *id).collect::<Vec<_>>());
    }
}

/// Compares a file; gives how many objects its extended attributes have.
fn compare_file(fs: &Fs, id: ObjectId, file: &ModelFile, with_times: bool) -> usize {
    let node = fs.inode(id).unwrap_or_else(|why| panic!("{id}: {why}"));
    let found = *node.attributes();
    let seen = (found.kind, found.mode, found.uid, found.nlink, found.size, found.project_id);
    let wanted = (file.kind, file.mode, file.uid, file.nlink, file.size(), file.project_id);
    assert_eq!(seen, wanted, "{id}");
    if with_times {
        assert_eq!((found.mtime.seconds, found.ctime.seconds), (file.mtime, file.ctime), "{id}");
    }
    if file.nlink > 0 {
        assert_eq!(found.parent, file.parent, "{id}");
    }
    match file.kind {
        FileType::Directory => {
            let mut names: Vec<_> = fs
                .list_dir(&node)
                .expect("names")
                .into_iter()
                .map(|entry| {
                    assert_eq!(entry.kind, fs.attributes(entry.object).expect("attributes").kind);
                    (entry.name, entry.object)
                })
                .collect();
            names.sort();
            let wanted: Vec<_> = file.names.clone().into_iter().collect();
            assert_eq!(names, wanted, "{id}");
        }
        FileType::Symlink => assert_eq!(node.read_link().expect("target"), file.content),
        _ => {
            let mut content = vec![1; file.content.len() + 9];
            let count = node.read(0, &mut content).expect("content");
            content.truncate(count);
            assert!(content == file.content, "{id}: content");
        }
    }
    let xattrs = node.xattrs().expect("attributes");
    let pairs = xattrs.into_iter().map(|xattr| {
        let name = xattr.name.clone();
        (name, node.xattr_value(xattr).expect("value"))
    });
    assert!(pairs.eq(file.xattrs.clone()), "{id}: extended attributes");
    if !found.xattr_dir.exists() {
        return 0;
    }
    let hidden = fs.inode(found.xattr_dir).expect("directory of attributes");
    assert_eq!((hidden.attributes().uid, hidden.attributes().parent), (file.uid, id));
    1 + fs.list_dir(&hidden).expect("attributes").len()
}

fn run_steps(settings: WriteSettings, steps: Vec<RandomStep>) {
    let mut both = TestedFs::new(settings);
    for (number, step) in steps.into_iter().enumerate() {
        let (real, model) = both.apply_step(step);
        assert_eq!(real, model, "step {number}: {step:?}");
    }
    both.compare_fs(both.fs.writer.fs());
    let cold = both.fs.reopen_read_only();
    both.compare_fs(&cold);
    let held: Vec<(ObjectId, u64)> = both.model.holds.clone().into_iter().collect();
    for (id, count) in held {
        for _ in 0..count {
            both.fs.writer.release_file(id).expect("release");
            both.model.release(id);
        }
    }
    both.compare_fs(&both.fs.reopen_read_only());
}

/// Whether a step has a log record: steps on files without a name do not, nor do extended
/// attributes without a value.
fn is_logged(step: &RandomStep) -> bool {
    match step.0 % 16 {
        15 => false,
        14 => value_length(step.1) > 0,
        _ => true,
    }
}

fn value_length(n: [u16; 4]) -> usize {
    usize::from(n[3]) % 3000 * usize::from(n[2] % 14)
}

/// Replaying the log restores the committed changes, whatever was lost.
fn run_and_replay(settings: &WriteSettings, before: Vec<RandomStep>, after: Vec<RandomStep>) {
    let mut both = TestedFs::new(settings.clone());
    for step in before {
        let (real, model) = both.apply_step(step);
        assert_eq!(real, model, "{step:?}");
    }
    let root = both.fs.sync();
    *both.fs.transactions.records.lock() = Some(Vec::new());
    for step in after.into_iter().filter(is_logged) {
        let (real, model) = both.apply_step(step);
        assert_eq!(real, model, "{step:?}");
    }
    let promises = both.fs.transactions.records.lock().take().expect("promises");
    let again = both.fs.reopen_from(&root, settings.clone());
    for entry in promises {
        let told = again.writer.replay_record(crate::test_fs::time_at(9), &entry);
        told.unwrap_or_else(|why| panic!("{:?}: {why}", entry.record.body));
    }
    again.writer.drain_unlinked().expect("drain");
    let fs = again.reopen_read_only();
    for (id, file) in both.model.files.iter().filter(|row| row.1.nlink > 0) {
        compare_file(&fs, *id, file, false);
    }
    crate::consistency::check_consistency(&fs);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 5,
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn committed_changes_survive_a_crash(
        before in proptest::collection::vec(any::<RandomStep>(), 1..50),
        after in proptest::collection::vec(any::<RandomStep>(), 1..70),
        xattr_sa: bool,
        slots in 1_u8..4,
    ) {
        let settings = WriteSettings { record_size: 4096, xattr_sa, dnode_slots: slots, ..WriteSettings::default() };
        run_and_replay(&settings, before, after);
    }

    #[test]
    fn files_equal_the_model(
        steps in proptest::collection::vec(any::<RandomStep>(), 1..120), xattr_sa: bool, slots in 1_u8..4,
    ) {
        run_steps(WriteSettings { record_size: 4096, xattr_sa, dnode_slots: slots, ..WriteSettings::default() }, steps);
    }
}
