//! Datasets of pools on files: created, changed and destroyed at random, checked by zdb.

use std::path::Path;

use dmu::{NewObject, Objset};
use dsl::write::{self, SetSource, SyncTaskContext};
use dsl::{DatasetKind, DatasetTree, PoolInfo, PropertyValue};
use ondisk::ObjectType;
use spa::vdev_layout::VdevLayout;
use spa::{ActivePool, create_pool};
use units::{ObjectId, ObjsetId};

use crate::create::{TestDir, environment, new_pool, open_devices};

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

struct RandomRun {
    pool: ActivePool,
    random: Random,
    name_count: u64,
}

fn new_file() -> NewObject {
    let mut new = NewObject::new(ObjectType::PLAIN_OTHER, 16 << 10);
    new.indirect_shift = 14;
    new
}

impl RandomRun {
    fn tree(&self) -> DatasetTree {
        let facts = PoolInfo { name: self.pool.name().to_owned(), usable_space: 1 << 40 };
        DatasetTree::open(self.pool.mos().clone(), facts).unwrap()
    }

    fn run_sync_task<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SyncTaskContext<'_>) -> Result<T, dsl::Error> + Send + 'static,
    ) -> Result<T, dsl::Error> {
        self.pool.run_sync_task(move |_, change| work(change)).unwrap()
    }

    fn reopen_dataset(&self, id: ObjsetId) {
        self.pool.close_dataset(id);
        let dataset = self.tree().dataset(id).unwrap();
        let root = dataset.phys().unwrap().root.clone();
        let objset = Objset::open(self.pool.source(), id, &root, None).unwrap();
        self.pool.open_dataset(objset.to_writable(), spa::StorageSettings::default());
    }

    fn write_dataset(&mut self, id: ObjsetId) {
        let Some(set) = self.pool.dataset(id) else { return };
        let tx = self.pool.begin_tx().unwrap();
        let files: Vec<_> = set.objset().objects().filter_map(|it| Some(it.ok()?.0)).collect();
        for _ in 0..=self.random.below(4) {
            let at = self.random.below(200) as u64 * 16384;
            let file = files.get(self.random.below(files.len().max(1)));
            let object = set.objset().object(*file.unwrap_or(&ObjectId::new(1)));
            match (self.random.below(6), object) {
                (0, _) | (_, Err(_)) => drop(set.objset().create(&tx, &new_file()).unwrap()),
                (1, Ok(object)) if files.len() > 3 => set.objset().free(&tx, object.id()).unwrap(),
                (2, Ok(object)) => object.free_range(&tx, at..u64::MAX).unwrap(),
                (_, Ok(object)) => {
                    let bytes: Vec<u8> =
                        (0..6000).flat_map(|_| self.random.next().to_le_bytes()).collect();
                    object.write(&tx, at, &bytes).unwrap();
                }
            }
        }
    }

    fn run_step(&mut self) {
        for dataset in self.tree().heads().map(Result::unwrap) {
            if self.random.next().is_multiple_of(2) {
                self.write_dataset(dataset.id().unwrap());
            }
        }
        self.pool.sync().unwrap();
        // a refused operation changes nothing
        if let Err(error) = self.run_operation() {
            assert!(error.zbookmark().is_none(), "{error}");
        }
    }

    fn run_operation(&mut self) -> Result<(), dsl::Error> {
        let heads: Vec<_> = self.tree().heads().map(Result::unwrap).collect();
        let head = heads[self.random.below(heads.len())].clone();
        let snapshots = head.snapshots().unwrap();
        let snapshot = match snapshots.len() {
            0 => None,
            count => Some(snapshots[self.random.below(count)].name()),
        };
        self.name_count += 1;
        let (path, made, id) = (head.name(), self.name_count, head.id().unwrap());
        let part = |kind: char| format!("{path}{kind}new{made}");
        let what = self.random.below(12);
        match (what, snapshot) {
            (0, _) => {
                let name = part('/');
                let (source, settings) = (self.pool.source(), spa::StorageSettings::default());
                let make = move |active: &ActivePool, change: &SyncTaskContext<'_>| {
                    let id = write::create_dataset(change, &name)?;
                    let kind = ondisk::objset::Kind::Filesystem;
                    let objset = Objset::new_empty(source, id, kind, None);
                    objset.create(change.tx, &new_file()).unwrap();
                    active.open_dataset(objset, settings);
                    Ok::<_, dsl::Error>(())
                };
                self.pool.run_sync_task(make).unwrap()?;
            }
            (1 | 2, Some(origin)) => {
                let name = part('/');
                let id =
                    self.run_sync_task(move |change| write::create_clone(change, &name, &origin))?;
                self.reopen_dataset(id);
            }
            (3, _) => {
                self.run_sync_task(move |change| write::destroy(change, &path))?;
                self.pool.close_dataset(id);
            }
            (4 | 5, Some(name)) => {
                self.run_sync_task(move |change| write::destroy_snapshot(change, &name, true))?;
            }
            (6, Some(_)) => {
                self.run_sync_task(move |change| write::rollback(change, &path, None))?;
                self.reopen_dataset(id);
            }
            (7, _) => self.run_sync_task(move |change| write::promote(change, &path).map(drop))?,
            (8, Some(snapshot)) => {
                let name = part('#');
                self.run_sync_task(move |change| write::create_bookmark(change, &name, &snapshot))?;
            }
            (9, Some(snapshot)) => {
                self.run_sync_task(move |change| write::hold(change, &snapshot, "keep"))?;
            }
            (10, _) => {
                let value = PropertyValue::Number(made * 300_000);
                let property = ["refreservation", "reservation", "quota"][self.random.below(3)];
                self.run_sync_task(move |change| {
                    let by = SetSource::Local;
                    write::set_property(
                        change,
                        &path,
                        DatasetKind::Filesystem,
                        (property, &value),
                        by,
                    )
                })?;
            }
            _ => drop(self.run_sync_task({
                let name = part('@');
                move |change| write::create_snapshots(change, &[&name])
            })?),
        }
        Ok(())
    }
}

/// The output of zdb for a pool; `None` if it is not installed.
fn run_zdb(folder: &Path, options: &[&str]) -> Option<String> {
    let mut command = fixtures::zdb_command();
    let output = command.args(options).arg("-e").arg("-p").arg(folder).arg("made").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}\n{text}");
    Some(text)
}

fn create_run(folder: &TestDir, shape: VdevLayout, count: usize) -> RandomRun {
    let drives = folder.create_devices(count, 256 << 20);
    let new = new_pool((shape, 12), &drives, open_devices(&drives));
    let mut fill = |_: &ActivePool, set: &spa::OpenDataset, tx: &txg::Tx| {
        set.objset().create(tx, &new_file())?;
        Ok(())
    };
    let made = create_pool(new, environment(), &mut fill).unwrap();
    RandomRun { pool: made.pool, random: Random(1), name_count: 0 }
}

/// Datasets of a pool are changed at random; zdb counts its blocks, leaked objects, the
/// uses of features, and the allocated space of livelists.
fn check_with_zdb(name: &str, shape: VdevLayout, count: usize, seed: u64) {
    let folder = TestDir::new(name);
    let mut run = create_run(&folder, shape, count);
    run.random = Random(seed);
    for _ in 0..40 {
        run.run_step();
    }
    run.pool.sync().unwrap();
    drop(run);
    let Some(blocks) = run_zdb(folder.path(), &["-bcc"]) else {
        eprintln!("zdb is not installed: datasets were changed, and not checked");
        return;
    };
    assert!(blocks.contains("No leaks (block sum matches space maps exactly)"), "{blocks}");
    let objects = run_zdb(folder.path(), &["-d"]).unwrap_or_default();
    assert!(!objects.contains("leaked") && !objects.contains("mismatch"), "{objects}");
    let livelists = run_zdb(folder.path(), &["-y"]).unwrap_or_default();
    let wrong = ["leaked", "ERROR", "Unbalanced", "invalid", "mismatch"];
    assert!(!wrong.iter().any(|word| livelists.contains(word)), "{livelists}");
}

#[test]
fn zdb_finds_nothing_wrong_with_changed_datasets() {
    check_with_zdb("datasets-mirror", VdevLayout::Mirror, 2, 77);
    check_with_zdb("datasets-raidz", VdevLayout::Raidz(1), 4, 78);
}

/// A snapshot has all writes before its request, and a discarded log has only blocks of earlier
/// txgs.
#[test]
fn sync_task_runs_in_open_or_later_txg() {
    let folder = TestDir::new("datasets-asked");
    let run = create_run(&folder, VdevLayout::Single, 1);
    run.pool.sync().unwrap();
    assert!(!run.pool.is_dirty());
    let hold = run.pool.begin_tx().unwrap();
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            std::thread::yield_now();
        }
    };
    let (asked_in, done_in) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| run.pool.sync().unwrap());
        until(&|| run.pool.txgs().open_txg() > hold.txg());
        let asked_in = run.pool.txgs().open_txg();
        let asker = scope.spawn(|| run.pool.run_sync_task(|_, change| change.tx.txg()).unwrap());
        until(&|| run.pool.is_dirty());
        drop(hold);
        writer.join().unwrap();
        (asked_in, asker.join().unwrap())
    });
    assert!(done_in >= asked_in, "requested in {asked_in}, done in {done_in}");
}

#[test]
fn clone_has_no_log_of_its_origin() {
    let folder = TestDir::new("datasets-log");
    let run = create_run(&folder, VdevLayout::Single, 1);
    let id = run.tree().find("made").unwrap().id().unwrap();
    let tx = run.pool.begin_tx().unwrap();
    let set = run.pool.dataset(id).unwrap();
    set.edit_header(&tx, |header| header.log.replay_seq = 7);
    drop(tx);
    run.run_sync_task(|change| write::create_snapshots(change, &["made@s"])).unwrap();
    let log = |name: &str| {
        let dataset = run.tree().find(name).unwrap();
        dataset.objset(None).unwrap().header().log.clone()
    };
    assert_eq!(log("made@s").replay_seq, 7);
    let make = |active: &ActivePool, change: &SyncTaskContext<'_>| {
        let id = write::create_clone(change, "made/c", "made@s").unwrap();
        active.clear_log_header(change, id, None).unwrap();
    };
    run.pool.run_sync_task(make).unwrap();
    assert_eq!(log("made/c"), ondisk::objset::LogHeader::default());
    let dataset = run.tree().find("made/c").unwrap();
    assert!(dataset.phys().unwrap().unique > 0);
}
