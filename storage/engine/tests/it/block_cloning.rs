//! Cloned blocks: a write to one file does not change the other, freed blocks survive in the
//! clone, and the counts equal those of OpenZFS.

use engine::files::Reason;
use engine::pool::{NewDataset, Pool, VdevLayout};
use posix::{CloneRange, NewInode, SetAttributes, WriteOffset};
use units::ObjectId;

use crate::shared_blocks::{noise_bytes, run_zdb};
use crate::test_pool::{
    TempDir, check_pool, copy_after_cut, credentials, environment, new_pool, read_file, write_file,
};

const RECORD_SIZE: u64 = 128 << 10;

struct CloneTest {
    folder: TempDir,
    pool: Pool,
    /// The expected content of the files.
    model: std::collections::BTreeMap<String, Vec<u8>>,
}

impl CloneTest {
    fn new(name: &str) -> Self {
        let folder = TempDir::new(name, 3, 256 << 20);
        let pool =
            engine::pool::create(&new_pool(&folder, VdevLayout::Raidz(1), 3), &environment())
                .unwrap();
        Self { folder, pool, model: std::collections::BTreeMap::new() }
    }

    fn file_object(&mut self, name: &str) -> ObjectId {
        let fs = self.pool.datasets().filesystem("tank").unwrap();
        if let Some(file) = fs.reader().find(name.as_bytes()).unwrap() {
            return ObjectId::new(file.ino());
        }
        let root = ObjectId::new(fs.reader().root_object());
        self.model.insert(name.to_owned(), Vec::new());
        let made = fs.create(&credentials(), root, name.as_bytes(), &NewInode::default()).unwrap();
        ObjectId::new(made.ino())
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) {
        let file = self.file_object(name);
        let fs = self.pool.datasets().filesystem("tank").unwrap();
        fs.write(&credentials(), file, WriteOffset::At(at), bytes).unwrap();
        self.write_model(name, at, bytes);
    }

    fn write_model(&mut self, name: &str, at: u64, bytes: &[u8]) {
        let known = self.model.get_mut(name).unwrap();
        let at = usize::try_from(at).unwrap();
        known.resize(known.len().max(at + bytes.len()), 0);
        known[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Shares a stretch; gives how much of it was.
    fn clone_range(&mut self, from: (&str, u64), to: (&str, u64), length: u64) -> u64 {
        let stretch = CloneRange {
            source: self.file_object(from.0),
            source_offset: from.1,
            target: self.file_object(to.0),
            target_offset: to.1,
            length,
        };
        let done = self
            .pool
            .datasets()
            .filesystem("tank")
            .unwrap()
            .clone_blocks(&credentials(), &stretch)
            .unwrap();
        let (start, end) = (usize::try_from(from.1).unwrap(), usize::try_from(done).unwrap());
        if done > 0 {
            let bytes = self.model[from.0][start..start + end].to_vec();
            self.write_model(to.0, to.1, &bytes);
        }
        done
    }

    fn compare(&self) {
        for (name, bytes) in &self.model {
            assert!(read_file(&self.pool, "tank", name) == *bytes, "{name}");
        }
    }

    /// Exports the pool, checks it, and imports it again.
    fn export_and_check(self) -> Self {
        let Self { folder, pool: held, model } = self;
        held.export().unwrap();
        drop(held);
        assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
        let held =
            engine::pool::import(&[folder.path().into()], "tank", false, &environment()).unwrap();
        let bench = Self { folder, pool: held, model };
        bench.compare();
        bench
    }
}

#[test]
fn clones_take_no_space_and_outlive_the_original() {
    let mut bench = CloneTest::new("cloning");
    let size = 20 * RECORD_SIZE + 5000;
    bench.write("source", 0, &noise_bytes(1, u32::try_from(size).unwrap()));
    assert_eq!(bench.clone_range(("source", 0), ("early", 0), size), 0, "it waits to be written");
    bench.pool.sync().unwrap();
    let before = bench.pool.status().allocated;
    assert_eq!(bench.clone_range(("source", 0), ("whole", 0), size), size);
    assert_eq!(
        bench.clone_range(("source", RECORD_SIZE), ("part", 3 * RECORD_SIZE), 4 * RECORD_SIZE + 7),
        4 * RECORD_SIZE
    );
    assert_eq!(
        bench.clone_range(("source", 0), ("whole", 100), RECORD_SIZE),
        0,
        "not at a block's beginning"
    );
    bench.compare();
    bench.pool.sync().unwrap();
    assert!(bench.pool.status().allocated < before + (1 << 20), "it takes hardly any space");
    bench.compare();
    check_brt_counts(&bench);
    let mut bench = bench.export_and_check();

    // a write to one file does not change the other
    bench.write("source", 2 * RECORD_SIZE + 10, b"changed here");
    bench.write("whole", 3 * RECORD_SIZE, &noise_bytes(2, 128 << 10));
    bench.compare();
    bench.pool.sync().unwrap();
    bench.compare();
    // cloned again over a clone, and changed before the sync
    assert_eq!(
        bench.clone_range(("source", 5 * RECORD_SIZE), ("whole", 5 * RECORD_SIZE), 5 * RECORD_SIZE),
        5 * RECORD_SIZE
    );
    assert_eq!(
        bench.clone_range(("source", 5 * RECORD_SIZE), ("part", 0), 3 * RECORD_SIZE),
        3 * RECORD_SIZE
    );
    bench.write("part", RECORD_SIZE + 77, b"in the midst of a clone");
    bench.write("source", 6 * RECORD_SIZE, &noise_bytes(3, 256 << 10));
    bench.compare();
    let mut bench = bench.export_and_check();

    // the source goes, in the group in which it is shared once more
    assert_eq!(bench.clone_range(("source", 0), ("heir", 0), size), size);
    let fs = bench.pool.datasets().filesystem("tank").unwrap();
    let root = ObjectId::new(fs.reader().root_object());
    fs.unlink(&credentials(), root, b"source").unwrap();
    drop(fs);
    bench.model.remove("source");
    bench.compare();
    let mut bench = bench.export_and_check();
    for name in ["whole", "part", "early"] {
        let fs = bench.pool.datasets().filesystem("tank").unwrap();
        let half = SetAttributes { size: Some(RECORD_SIZE * 3 / 2), ..SetAttributes::default() };
        let file = bench.file_object(name);
        fs.set_attributes(&credentials(), file, &half).unwrap();
        bench.model.get_mut(name).unwrap().resize(usize::try_from(RECORD_SIZE * 3 / 2).unwrap(), 0);
    }
    let bench = bench.export_and_check();
    for name in bench.model.keys() {
        let fs = bench.pool.datasets().filesystem("tank").unwrap();
        let root = ObjectId::new(fs.reader().root_object());
        fs.unlink(&credentials(), root, name.as_bytes()).unwrap();
    }
    bench.pool.sync().unwrap();
    let CloneTest { folder, pool: held, .. } = bench;
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new());
}

/// The clone counts of zdb, in the pool on the drives: 21 blocks with a second
/// reference, and four of them with a third.
fn check_brt_counts(bench: &CloneTest) {
    let after = copy_after_cut(&bench.folder, "cloning-cut", 3);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
    let told = run_zdb(after.path(), &["-TT"]);
    let wanted = "BRT: vdev 0: refcnt 21; used 2.51M; saved 3.01M";
    assert!(told.is_empty() || told.contains(wanted), "{told}");
}

#[test]
fn small_and_odd_files_are_shared_as_well() {
    let mut bench = CloneTest::new("cloning-odd");
    bench.pool.properties().set("tank", "compression", "off").unwrap();
    for (name, bytes) in [("tiny", 700), ("odd", 70_000), ("two", 2 * 131_072 - 4)] {
        bench.write(name, 0, &noise_bytes(9, bytes));
    }
    bench.pool.sync().unwrap();
    for name in ["tiny", "odd", "two"] {
        let length = bench.model[name].len() as u64;
        let copy = format!("{name}-copy");
        assert_eq!(bench.clone_range((name, 0), (&copy, 0), 1 << 40), length, "{name}");
    }
    // holes stay holes
    bench.write("sparse", 40 * RECORD_SIZE, b"end");
    bench.pool.sync().unwrap();
    let whole = 40 * RECORD_SIZE + 3;
    let shared = bench.clone_range(("sparse", 0), ("sparse-copy", 0), whole);
    assert!(shared >= 40 * RECORD_SIZE, "{shared}");
    // a file with another block size is copied
    bench.pool.properties().set("tank", "recordsize", "16K").unwrap();
    bench.write("finer", 0, &noise_bytes(5, 300_000));
    bench.pool.sync().unwrap();
    assert_eq!(bench.clone_range(("two", 0), ("finer", 0), RECORD_SIZE), 0);
    bench.compare();
    drop(bench.export_and_check());
}

#[test]
fn snapshots_quotas_and_fsync_handle_clones() {
    let mut bench = CloneTest::new("cloning-kept");
    bench.write("source", 0, &noise_bytes(4, 4 << 20));
    bench.pool.sync().unwrap();
    assert_eq!(bench.clone_range(("source", 0), ("clone", 0), 4 << 20), 4 << 20);
    bench.pool.snapshots().create(&["tank@both".to_owned()]).unwrap();
    for name in ["source", "clone"] {
        bench.write(name, RECORD_SIZE, &noise_bytes(6, 1 << 20));
    }
    assert_eq!(bench.clone_range(("source", 3 << 20), ("later", 0), 1 << 20), 1 << 20);
    let id = bench.file_object("later");
    bench.pool.datasets().filesystem("tank").unwrap().fsync(Some(id.get())).unwrap();
    // the power is cut: fsynced data is there
    let after = copy_after_cut(&bench.folder, "cloning-kept-cut", 3);
    let held = engine::pool::import(&[after.path().into()], "tank", false, &environment()).unwrap();
    assert!(read_file(&held, "tank", "later") == bench.model["later"]);
    held.export().unwrap();
    drop(held);
    assert_eq!(check_pool(&after, "tank"), Vec::<String>::new());
    let bench = bench.export_and_check();
    bench.pool.datasets().destroy("tank@both").unwrap();
    let mut bench = bench.export_and_check();

    let properties = vec![("quota".to_owned(), "6M".to_owned())];
    let limited = NewDataset { name: "tank/limited".to_owned(), properties };
    bench.pool.datasets().create_filesystem(&limited).unwrap();
    write_file(&bench.pool, "tank/limited", "first", &noise_bytes(8, 4 << 20));
    bench.pool.sync().unwrap();
    let fs = bench.pool.datasets().filesystem("tank/limited").unwrap();
    let root = ObjectId::new(fs.reader().root_object());
    let from = ObjectId::new(fs.reader().find(b"first").unwrap().unwrap().ino());
    let to = fs.create(&credentials(), root, b"second", &NewInode::default()).unwrap().ino();
    let stretch = CloneRange {
        source: from,
        source_offset: 0,
        target: ObjectId::new(to),
        target_offset: 0,
        length: 4 << 20,
    };
    let error = fs.clone_blocks(&credentials(), &stretch).unwrap_err();
    assert_eq!(error.reason(), Reason::OverQuota, "what is shared counts as if it were a copy");
    drop(fs);
    bench.write("last", 0, b"of all");
    drop(bench.export_and_check());
}
