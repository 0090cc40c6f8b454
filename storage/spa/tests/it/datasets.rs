//! Datasets of pools on files: made, changed and destroyed at random, judged by zdb.

use std::path::Path;

use dmu::{NewObject, Objset};
use dsl::write::{self, By, Change};
use dsl::{Kind, PoolFacts, Setting, Tree};
use ondisk::ObjectType;
use spa::design::Shape;
use spa::{Owned, create};
use units::{ObjectId, ObjsetId};

use crate::made::{Folder, devices, new_pool, world};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

struct Run {
    owned: Owned,
    random: Random,
    made: u64,
}

fn file() -> NewObject {
    let mut new = NewObject::new(ObjectType::PLAIN_OTHER, 16 << 10);
    new.indirect_shift = 14;
    new
}

impl Run {
    fn tree(&self) -> Tree {
        let facts = PoolFacts { name: self.owned.name().to_owned(), usable: 1 << 40 };
        Tree::open(self.owned.mos().clone(), facts).unwrap()
    }

    fn perform<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Change<'_>) -> Result<T, dsl::Error> + Send + 'static,
    ) -> Result<T, dsl::Error> {
        self.owned.perform(move |_, change| work(change)).unwrap()
    }

    fn reopen(&self, id: ObjsetId) {
        self.owned.forget(id);
        let dataset = self.tree().dataset(id).unwrap();
        let root = dataset.phys().unwrap().root.clone();
        let objset = Objset::open(self.owned.source(), id, &root, None).unwrap();
        self.owned.adopt(objset.to_writable(), spa::Settings::default());
    }

    fn write(&mut self, id: ObjsetId) {
        let Some(set) = self.owned.set(id) else { return };
        let tx = self.owned.begin().unwrap();
        let files: Vec<_> = set.objset.objects().filter_map(|it| Some(it.ok()?.0)).collect();
        for _ in 0..=self.random.below(4) {
            let at = self.random.below(200) as u64 * 16384;
            let file = files.get(self.random.below(files.len().max(1)));
            let object = set.objset.object(*file.unwrap_or(&ObjectId::new(1)));
            match (self.random.below(6), object) {
                (0, _) | (_, Err(_)) => drop(set.objset.create(&tx, &self::file()).unwrap()),
                (1, Ok(object)) if files.len() > 3 => set.objset.free(&tx, object.id()).unwrap(),
                (2, Ok(object)) => object.free_range(&tx, at..u64::MAX).unwrap(),
                (_, Ok(object)) => {
                    let bytes: Vec<u8> =
                        (0..6000).flat_map(|_| self.random.next().to_le_bytes()).collect();
                    object.write(&tx, at, &bytes).unwrap();
                }
            }
        }
    }

    fn step(&mut self) {
        for dataset in self.tree().heads().map(Result::unwrap) {
            if self.random.next().is_multiple_of(2) {
                self.write(dataset.id().unwrap());
            }
        }
        self.owned.sync().unwrap();
        // what is refused changes nothing
        if let Err(why) = self.operation() {
            assert!(why.place().is_none(), "{why}");
        }
    }

    fn operation(&mut self) -> Result<(), dsl::Error> {
        let heads: Vec<_> = self.tree().heads().map(Result::unwrap).collect();
        let head = heads[self.random.below(heads.len())].clone();
        let snapshots = head.snapshots().unwrap();
        let snapshot = match snapshots.len() {
            0 => None,
            count => Some(snapshots[self.random.below(count)].name()),
        };
        self.made += 1;
        let (path, made, id) = (head.name(), self.made, head.id().unwrap());
        let part = |kind: char| format!("{path}{kind}new{made}");
        let what = self.random.below(12);
        match (what, snapshot) {
            (0, _) => {
                let name = part('/');
                let (source, settings) = (self.owned.source(), spa::Settings::default());
                let make = move |owned: &Owned, change: &Change<'_>| {
                    let id = write::create(change, &name)?;
                    let kind = ondisk::objset::Kind::Filesystem;
                    let objset = Objset::new_empty(source, id, kind, None);
                    objset.create(change.tx, &file()).unwrap();
                    owned.adopt(objset, settings);
                    Ok::<_, dsl::Error>(())
                };
                self.owned.perform(make).unwrap()?;
            }
            (1 | 2, Some(origin)) => {
                let name = part('/');
                let id = self.perform(move |change| write::clone(change, &name, &origin))?;
                self.reopen(id);
            }
            (3, _) => {
                self.perform(move |change| write::destroy(change, &path))?;
                self.owned.forget(id);
            }
            (4 | 5, Some(name)) => {
                self.perform(move |change| write::destroy_snapshot(change, &name, true))?;
            }
            (6, Some(_)) => {
                self.perform(move |change| write::rollback(change, &path, None))?;
                self.reopen(id);
            }
            (7, _) => self.perform(move |change| write::promote(change, &path))?,
            (8, Some(snapshot)) => {
                let name = part('#');
                self.perform(move |change| write::bookmark(change, &name, &snapshot))?;
            }
            (9, Some(snapshot)) => {
                self.perform(move |change| write::hold(change, &snapshot, "keep"))?;
            }
            (10, _) => {
                let value = Setting::Number(made * 300_000);
                let property = ["refreservation", "reservation", "quota"][self.random.below(3)];
                self.perform(move |change| {
                    let by = By::User;
                    write::set(change, &path, Kind::Filesystem, (property, &value), by)
                })?;
            }
            _ => drop(self.perform({
                let name = part('@');
                move |change| write::snapshot(change, &[&name])
            })?),
        }
        Ok(())
    }
}

/// What zdb says of a pool; `None` where it is not installed.
fn zdb(folder: &Path, options: &[&str]) -> Option<String> {
    let mut command = fixtures::zdb();
    let output = command.args(options).arg("-e").arg("-p").arg(folder).arg("made").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}\n{text}");
    Some(text)
}

fn pool(folder: &Folder, shape: Shape, count: usize) -> Run {
    let drives = folder.drives(count, 256 << 20);
    let new = new_pool((shape, 12), &drives, devices(&drives));
    let mut fill = |_: &Owned, set: &spa::Set, tx: &txg::Tx| {
        set.objset.create(tx, &file())?;
        Ok(())
    };
    let made = create(new, world(), &mut fill).unwrap();
    Run { owned: made.owned, random: Random(1), made: 0 }
}

/// Datasets of a pool are changed at random; zdb counts its blocks, the objects that nothing leads
/// to, the uses of features, and what livelists say is allocated.
fn judged(name: &str, shape: Shape, count: usize, seed: u64) {
    let folder = Folder::new(name);
    let mut run = pool(&folder, shape, count);
    run.random = Random(seed);
    for _ in 0..40 {
        run.step();
    }
    run.owned.sync().unwrap();
    drop(run);
    let Some(blocks) = zdb(folder.path(), &["-bcc"]) else {
        eprintln!("zdb is not installed: datasets were changed, and not judged");
        return;
    };
    assert!(blocks.contains("No leaks (block sum matches space maps exactly)"), "{blocks}");
    let objects = zdb(folder.path(), &["-d"]).unwrap_or_default();
    assert!(!objects.contains("leaked") && !objects.contains("mismatch"), "{objects}");
    let livelists = zdb(folder.path(), &["-y"]).unwrap_or_default();
    let wrong = ["leaked", "ERROR", "Unbalanced", "invalid", "mismatch"];
    assert!(!wrong.iter().any(|word| livelists.contains(word)), "{livelists}");
}

#[test]
fn zdb_finds_nothing_wrong_with_changed_datasets() {
    judged("datasets-mirror", Shape::Mirror, 2, 77);
    judged("datasets-raidz", Shape::Raidz(1), 4, 78);
}

/// A snapshot has all that was written before it was asked for, and a log that is given up has only
/// blocks that groups before that know of.
#[test]
fn what_is_asked_for_is_done_with_no_group_that_was_closed_before() {
    let folder = Folder::new("datasets-asked");
    let run = pool(&folder, Shape::Single, 1);
    run.owned.sync().unwrap();
    assert!(!run.owned.is_dirty());
    let hold = run.owned.begin().unwrap();
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            std::thread::yield_now();
        }
    };
    let (asked_in, done_in) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| run.owned.sync().unwrap());
        until(&|| run.owned.groups().open_txg() > hold.txg());
        let asked_in = run.owned.groups().open_txg();
        let asker = scope.spawn(|| run.owned.perform(|_, change| change.tx.txg()).unwrap());
        until(&|| run.owned.is_dirty());
        drop(hold);
        writer.join().unwrap();
        (asked_in, asker.join().unwrap())
    });
    assert!(done_in >= asked_in, "asked for in {asked_in}, done in {done_in}");
}

#[test]
fn a_clone_has_no_part_of_the_log_of_its_origin() {
    let folder = Folder::new("datasets-log");
    let run = pool(&folder, Shape::Single, 1);
    let id = run.tree().find("made").unwrap().id().unwrap();
    let tx = run.owned.begin().unwrap();
    let set = run.owned.set(id).unwrap();
    set.edit(&tx, |header| header.log.replay_seq = 7);
    drop(tx);
    run.perform(|change| write::snapshot(change, &["made@s"])).unwrap();
    let log = |name: &str| {
        let dataset = run.tree().find(name).unwrap();
        dataset.objset(None).unwrap().header().log.clone()
    };
    assert_eq!(log("made@s").replay_seq, 7);
    let make = |owned: &Owned, change: &Change<'_>| {
        let id = write::clone(change, "made/c", "made@s").unwrap();
        owned.empty_log(change, id, None).unwrap();
    };
    run.owned.perform(make).unwrap();
    assert_eq!(log("made/c"), ondisk::objset::LogHeader::default());
    let dataset = run.tree().find("made/c").unwrap();
    assert!(dataset.phys().unwrap().unique > 0);
}
