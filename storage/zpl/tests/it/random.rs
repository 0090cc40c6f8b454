//! Random operations, each done to a file system and to its model; then both are compared, as the
//! file system is in memory and as it is read anew from what was synced.

use proptest::prelude::*;
use units::ObjectId;
use zpl::{Error, Fs, Kind, Move, MoveKind, New, Position, Set, Settings, XattrMode};

use crate::model::{File, Model, Outcome, Refusal};
use crate::pool::{Pool, caller};

/// What to do, and four numbers to do it with.
type Step = (u8, [u16; 4]);

const NAMES: [&[u8]; 5] = [b"a", b"b", b"cee", b"d with spaces", b"\xff\xfe not text"];

struct Both {
    pool: Pool,
    model: Model,
    now: i64,
}

fn refusal(why: &Error) -> Refusal {
    match why {
        Error::Exists { .. } => Refusal::Exists,
        Error::NoEntry { .. } => Refusal::NoEntry,
        Error::NotEmpty { .. } => Refusal::NotEmpty,
        Error::IsDirectory { .. } => Refusal::IsDirectory,
        Error::NotDirectory { .. } => Refusal::NotDirectory,
        Error::NotPermitted { .. } => Refusal::NotPermitted,
        Error::Invalid { .. } => Refusal::Invalid,
        Error::NoXattr { .. } => Refusal::NoXattr,
        Error::OtherProject { .. } => Refusal::OtherProject,
        other => panic!("{other}"),
    }
}

fn outcome<T>(result: zpl::Result<T>) -> Outcome {
    result.map(drop).map_err(|why| refusal(&why))
}

impl Both {
    fn new(settings: Settings) -> Self {
        let pool = Pool::new(settings);
        let root = pool.writer.fs().master().root;
        Self { pool, model: Model::new(root, 1), now: 1 }
    }

    fn pick(&self, number: u16, wanted: impl Fn(&File) -> bool) -> Option<ObjectId> {
        let fits: Vec<ObjectId> =
            self.model.files.iter().filter(|(_, file)| wanted(file)).map(|(id, _)| *id).collect();
        fits.get(usize::from(number) % fits.len().max(1)).copied()
    }

    fn dir(&self, number: u16) -> ObjectId {
        self.pick(number, |file| file.kind == Kind::Directory && file.links > 0).expect("the root")
    }

    /// Does one step to both; gives what each made of it.
    fn step(&mut self, (what, n): Step) -> (Outcome, Outcome) {
        self.now += 1;
        let (now, who) = (self.now, caller(self.now));
        let (dir, name) = (self.dir(n[0]), NAMES[usize::from(n[1]) % NAMES.len()]);
        let other = (self.dir(n[2]), NAMES[usize::from(n[3]) % NAMES.len()]);
        let any = self.pick(n[0], |file| file.links > 0).expect("the root");
        let writer = &self.pool.writer;
        match what % 16 {
            0 | 1 => self.make(dir, name, Kind::File, n),
            2 => self.make(dir, name, Kind::Directory, n),
            3 => self.make(
                dir,
                name,
                [Kind::Symlink, Kind::Fifo, Kind::CharDevice][usize::from(n[2]) % 3],
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
                let kinds =
                    [MoveKind::Replace, MoveKind::Replace, MoveKind::NoReplace, MoveKind::Exchange];
                let kind = kinds[usize::from(what / 16) % 4];
                let how = Move { from_dir: dir, from: name, to_dir: other.0, to: other.1, kind };
                let real = outcome(writer.rename(&who, &how));
                (real, self.model.rename((dir, name), other, kind, now))
            }
            9 | 10 => {
                let (offset, count) = (usize::from(n[1]) % 40000, usize::from(n[2]) % 9000);
                let bytes = vec![n[3].to_le_bytes()[0]; count + 1];
                let real = writer.write(&who, any, Position::At(offset as u64), &bytes);
                (outcome(real), self.model.write(any, offset, &bytes, now))
            }
            11 => {
                let size = usize::from(n[1]) % 50000;
                let real = outcome(writer.truncate(&who, any, size as u64));
                (real, self.model.truncate(any, size, now))
            }
            12 => {
                let range = usize::from(n[1])..usize::from(n[1]) + usize::from(n[2]);
                let real = writer.punch(&who, any, range.start as u64..range.end as u64);
                (outcome(real), self.model.punch(any, range, now))
            }
            13 => self.set(any, n),
            14 => self.xattr(any, n),
            _ => self.keep(any, n),
        }
    }

    fn make(&mut self, dir: ObjectId, name: &[u8], kind: Kind, n: [u16; 4]) -> (Outcome, Outcome) {
        let mode = u32::from(n[3]) & 0o7777 & !0o2000;
        let target: &[u8] =
            if kind == Kind::Symlink { &[b'x'; 700][..=usize::from(n[3]) % 699] } else { b"" };
        let new = New { kind, mode, umask: 0o022, target, ..New::default() };
        let real = self.pool.writer.make(&caller(self.now), dir, name, &new);
        let model = self.model.may_make(dir, name);
        if let (Ok(made), Ok(())) = (&real, model) {
            let mode = if kind == Kind::Symlink { 0o777 } else { mode & !0o022 };
            let file = File { content: target.to_vec(), ..File::new(kind, mode, self.now) };
            self.model.made(dir, name, made.id, file, self.now);
        }
        (outcome(real), model)
    }

    fn set(&mut self, id: ObjectId, n: [u16; 4]) -> (Outcome, Outcome) {
        let now = self.now;
        let file = self.model.file(id);
        let mut set = Set::default();
        if n[1].is_multiple_of(2) {
            let mode = u32::from(n[2]) & 0o7777 & !0o2000;
            (set.mode, file.mode) = (Some(mode), mode);
        } else if n[1].is_multiple_of(3) && file.kind == Kind::Directory {
            let project = u64::from(n[2] % 3);
            (set.project, file.project, file.inherits) = (Some(project), project, true);
            set.flags = Some((ondisk::znode::flag::PROJINHERIT, u64::MAX));
        } else {
            let uid = u32::from(n[2]);
            set.uid = Some(uid);
            file.chown(uid);
        }
        file.ctime = now;
        (outcome(self.pool.writer.set(&caller(now), id, &set)), Ok(()))
    }

    fn xattr(&mut self, id: ObjectId, n: [u16; 4]) -> (Outcome, Outcome) {
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
            None => file.xattrs.remove(name).map(drop).ok_or(Refusal::NoXattr),
        };
        if model.is_ok() {
            file.ctime = now;
        }
        let mode = XattrMode::Any;
        (outcome(self.pool.writer.set_xattr(&caller(now), id, name, value.as_deref(), mode)), model)
    }

    fn keep(&mut self, any: ObjectId, n: [u16; 4]) -> (Outcome, Outcome) {
        let held: Vec<ObjectId> = self.model.held.keys().copied().collect();
        match n[1] % 4 {
            0 => drop(self.pool.sync()),
            1 if !held.is_empty() => {
                let id = held[usize::from(n[2]) % held.len()];
                self.pool.writer.release(id).expect("release");
                self.model.release(id);
            }
            2 => {
                let dir = self.dir(n[2]);
                let made = self.pool.writer.make_unnamed(&caller(self.now), dir, &New::default());
                let made = made.expect("a file without a name");
                let file = File { links: 0, ..File::new(Kind::File, 0o644, self.now) };
                let parent = &self.model.files[&dir];
                let project = if parent.inherits { parent.project } else { 0 };
                let inherits = parent.inherits;
                self.model.files.insert(made.id, File { project, inherits, parent: dir, ..file });
                self.model.held.insert(made.id, 1);
            }
            _ => {
                self.pool.writer.hold(any).expect("hold");
                *self.model.held.entry(any).or_default() += 1;
            }
        }
        (Ok(()), Ok(()))
    }

    fn compare(&self, fs: &Fs) {
        let mut objects = 5;
        for (id, file) in &self.model.files {
            objects += 1 + same(fs, *id, file, true);
        }
        if !fs.objset().is_writable() {
            let found = fs.objset().objects().filter_map(Result::ok).count();
            assert_eq!(found, objects, "objects");
        }
        let mut unlinked = Vec::new();
        fs.unlinked(&mut |id| {
            unlinked.push(id);
            true
        })
        .expect("unlinked");
        unlinked.sort_unstable();
        let wanted = self.model.files.iter().filter(|(_, file)| file.links == 0);
        assert_eq!(unlinked, wanted.map(|(id, _)| *id).collect::<Vec<_>>());
    }
}

/// Compares a file; gives how many objects its extended attributes have.
fn same(fs: &Fs, id: ObjectId, file: &File, with_times: bool) -> usize {
    let node = fs.node(id).unwrap_or_else(|why| panic!("{id}: {why}"));
    let found = *node.attributes();
    let seen = (found.kind, found.mode, found.uid, found.links, found.size, found.project);
    let wanted = (file.kind, file.mode, file.uid, file.links, file.size(), file.project);
    assert_eq!(seen, wanted, "{id}");
    if with_times {
        assert_eq!((found.mtime.seconds, found.ctime.seconds), (file.mtime, file.ctime), "{id}");
    }
    if file.links > 0 {
        assert_eq!(found.parent, file.parent, "{id}");
    }
    match file.kind {
        Kind::Directory => {
            let mut names: Vec<_> = fs
                .list(&node)
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
        Kind::Symlink => assert_eq!(node.readlink().expect("target"), file.content),
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
    let hidden = fs.node(found.xattr_dir).expect("directory of attributes");
    assert_eq!((hidden.attributes().uid, hidden.attributes().parent), (file.uid, id));
    1 + fs.list(&hidden).expect("attributes").len()
}

fn run(settings: Settings, steps: Vec<Step>) {
    let mut both = Both::new(settings);
    for (number, step) in steps.into_iter().enumerate() {
        let (real, model) = both.step(step);
        assert_eq!(real, model, "step {number}: {step:?}");
    }
    both.compare(both.pool.writer.fs());
    let cold = both.pool.cold();
    both.compare(&cold);
    let held: Vec<(ObjectId, u64)> = both.model.held.clone().into_iter().collect();
    for (id, count) in held {
        for _ in 0..count {
            both.pool.writer.release(id).expect("release");
            both.model.release(id);
        }
    }
    both.compare(&both.pool.cold());
}

/// Whether what a step does is told to the log: files without a name are not, nor are extended
/// attributes without a value.
fn is_promised(step: &Step) -> bool {
    match step.0 % 16 {
        15 => false,
        14 => value_length(step.1) > 0,
        _ => true,
    }
}

fn value_length(n: [u16; 4]) -> usize {
    usize::from(n[3]) % 3000 * usize::from(n[2] % 14)
}

/// A log that is replayed leaves what was promised, whatever was lost.
fn run_and_replay(settings: &Settings, before: Vec<Step>, after: Vec<Step>) {
    let mut both = Both::new(settings.clone());
    for step in before {
        let (real, model) = both.step(step);
        assert_eq!(real, model, "{step:?}");
    }
    let root = both.pool.sync();
    *both.pool.host.promises.lock() = Some(Vec::new());
    for step in after.into_iter().filter(is_promised) {
        let (real, model) = both.step(step);
        assert_eq!(real, model, "{step:?}");
    }
    let promises = both.pool.host.promises.lock().take().expect("promises");
    let again = both.pool.again_from(&root, settings.clone());
    for entry in promises {
        let told = again.writer.replay(crate::pool::at(9), &entry);
        told.unwrap_or_else(|why| panic!("{:?}: {why}", entry.record.body));
    }
    again.writer.drain().expect("drain");
    let fs = again.cold();
    for (id, file) in both.model.files.iter().filter(|row| row.1.links > 0) {
        same(&fs, *id, file, false);
    }
    crate::sound::check(&fs);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 5,
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_was_promised_is_there_after_a_crash(
        before in proptest::collection::vec(any::<Step>(), 1..50),
        after in proptest::collection::vec(any::<Step>(), 1..70),
        xattr_sa: bool,
        slots in 1_u8..4,
    ) {
        let settings = Settings { record_size: 4096, xattr_sa, slots, ..Settings::default() };
        run_and_replay(&settings, before, after);
    }

    #[test]
    fn files_are_as_the_model_has_them(
        steps in proptest::collection::vec(any::<Step>(), 1..120), xattr_sa: bool, slots in 1_u8..4,
    ) {
        run(Settings { record_size: 4096, xattr_sa, slots, ..Settings::default() }, steps);
    }
}
