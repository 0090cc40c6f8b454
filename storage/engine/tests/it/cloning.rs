//! Files that share blocks: what is written to one is not seen in the other, what one gives up
//! stays for the other, and what is shared is counted as OpenZFS counts it.

use engine::files::Reason;
use engine::held::{Held, New, NewDataset, Position, Set, Shape, Stretch};
use units::ObjectId;

use crate::held::{Folder, caller, cut, faults, new_pool, read_file, world, write_file};
use crate::shared::{noise, zdb};

const RECORD: u64 = 128 << 10;

struct Bench {
    folder: Folder,
    held: Held,
    /// What the files are to hold.
    model: std::collections::BTreeMap<String, Vec<u8>>,
}

impl Bench {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name, 3, 256 << 20);
        let held = engine::held::create(&new_pool(&folder, Shape::Raidz(1), 3), &world()).unwrap();
        Self { folder, held, model: std::collections::BTreeMap::new() }
    }

    fn file(&mut self, name: &str) -> ObjectId {
        let live = self.held.files("tank").unwrap();
        if let Some(file) = live.files().find(name.as_bytes()).unwrap() {
            return ObjectId::new(file.id());
        }
        let root = ObjectId::new(live.files().root_id());
        self.model.insert(name.to_owned(), Vec::new());
        let made = live.make(&caller(), root, name.as_bytes(), &New::default()).unwrap();
        ObjectId::new(made.id())
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) {
        let file = self.file(name);
        let live = self.held.files("tank").unwrap();
        live.write(&caller(), file, Position::At(at), bytes).unwrap();
        self.put(name, at, bytes);
    }

    fn put(&mut self, name: &str, at: u64, bytes: &[u8]) {
        let known = self.model.get_mut(name).unwrap();
        let at = usize::try_from(at).unwrap();
        known.resize(known.len().max(at + bytes.len()), 0);
        known[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Shares a stretch; gives how much of it was.
    fn share(&mut self, from: (&str, u64), to: (&str, u64), length: u64) -> u64 {
        let stretch = Stretch {
            from: self.file(from.0),
            start: from.1,
            to: self.file(to.0),
            at: to.1,
            length,
        };
        let done = self.held.files("tank").unwrap().share(&caller(), &stretch).unwrap();
        let (start, end) = (usize::try_from(from.1).unwrap(), usize::try_from(done).unwrap());
        if done > 0 {
            let bytes = self.model[from.0][start..start + end].to_vec();
            self.put(to.0, to.1, &bytes);
        }
        done
    }

    fn compare(&self) {
        for (name, bytes) in &self.model {
            assert!(read_file(&self.held, "tank", name) == *bytes, "{name}");
        }
    }

    /// Leaves the pool, has it judged, and takes it over again.
    fn judge(self) -> Self {
        let Self { folder, held, model } = self;
        held.export().unwrap();
        drop(held);
        assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
        let held = engine::held::hold(&[folder.path().into()], "tank", false, &world()).unwrap();
        let bench = Self { folder, held, model };
        bench.compare();
        bench
    }
}

#[test]
fn what_is_shared_takes_no_space_and_outlasts_who_shared_it() {
    let mut bench = Bench::new("cloning");
    let size = 20 * RECORD + 5000;
    bench.write("source", 0, &noise(1, u32::try_from(size).unwrap()));
    assert_eq!(bench.share(("source", 0), ("early", 0), size), 0, "it waits to be written");
    bench.held.sync().unwrap();
    let before = bench.held.status().allocated;
    assert_eq!(bench.share(("source", 0), ("whole", 0), size), size);
    assert_eq!(bench.share(("source", RECORD), ("part", 3 * RECORD), 4 * RECORD + 7), 4 * RECORD);
    assert_eq!(bench.share(("source", 0), ("whole", 100), RECORD), 0, "not at a block's beginning");
    bench.compare();
    bench.held.sync().unwrap();
    assert!(bench.held.status().allocated < before + (1 << 20), "it takes hardly any space");
    bench.compare();
    judge_counts(&bench);
    let mut bench = bench.judge();

    // what is written to one is not seen in the other
    bench.write("source", 2 * RECORD + 10, b"changed here");
    bench.write("whole", 3 * RECORD, &noise(2, 128 << 10));
    bench.compare();
    bench.held.sync().unwrap();
    bench.compare();
    // shared again over what is shared already, and changed before any of it was written
    assert_eq!(bench.share(("source", 5 * RECORD), ("whole", 5 * RECORD), 5 * RECORD), 5 * RECORD);
    assert_eq!(bench.share(("source", 5 * RECORD), ("part", 0), 3 * RECORD), 3 * RECORD);
    bench.write("part", RECORD + 77, b"in the midst of a clone");
    bench.write("source", 6 * RECORD, &noise(3, 256 << 10));
    bench.compare();
    let mut bench = bench.judge();

    // the source goes, in the group in which it is shared once more
    assert_eq!(bench.share(("source", 0), ("heir", 0), size), size);
    let live = bench.held.files("tank").unwrap();
    let root = ObjectId::new(live.files().root_id());
    live.unlink(&caller(), root, b"source").unwrap();
    drop(live);
    bench.model.remove("source");
    bench.compare();
    let mut bench = bench.judge();
    for name in ["whole", "part", "early"] {
        let live = bench.held.files("tank").unwrap();
        let half = Set { size: Some(RECORD * 3 / 2), ..Set::default() };
        let file = bench.file(name);
        live.set(&caller(), file, &half).unwrap();
        bench.model.get_mut(name).unwrap().resize(usize::try_from(RECORD * 3 / 2).unwrap(), 0);
    }
    let bench = bench.judge();
    for name in bench.model.keys() {
        let live = bench.held.files("tank").unwrap();
        let root = ObjectId::new(live.files().root_id());
        live.unlink(&caller(), root, name.as_bytes()).unwrap();
    }
    bench.held.sync().unwrap();
    let Bench { folder, held, .. } = bench;
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

/// What zdb counts of clones, in the pool as it is on the drives now: 21 blocks with another
/// reference, and four of them with a second.
fn judge_counts(bench: &Bench) {
    let after = cut(&bench.folder, "cloning-cut", 3);
    assert_eq!(faults(&after, "tank"), Vec::<String>::new());
    let told = zdb(after.path(), &["-TT"]);
    let wanted = "BRT: vdev 0: refcnt 21; used 2.51M; saved 3.01M";
    assert!(told.is_empty() || told.contains(wanted), "{told}");
}

#[test]
fn small_and_odd_files_are_shared_as_well() {
    let mut bench = Bench::new("cloning-odd");
    bench.held.set("tank", "compression", "off").unwrap();
    for (name, bytes) in [("tiny", 700), ("odd", 70_000), ("two", 2 * 131_072 - 4)] {
        bench.write(name, 0, &noise(9, bytes));
    }
    bench.held.sync().unwrap();
    for name in ["tiny", "odd", "two"] {
        let length = bench.model[name].len() as u64;
        let copy = format!("{name}-copy");
        assert_eq!(bench.share((name, 0), (&copy, 0), 1 << 40), length, "{name}");
    }
    // holes stay holes
    bench.write("sparse", 40 * RECORD, b"end");
    bench.held.sync().unwrap();
    let whole = 40 * RECORD + 3;
    let shared = bench.share(("sparse", 0), ("sparse-copy", 0), whole);
    assert!(shared >= 40 * RECORD, "{shared}");
    // a file whose blocks are of another size is copied
    bench.held.set("tank", "recordsize", "16K").unwrap();
    bench.write("finer", 0, &noise(5, 300_000));
    bench.held.sync().unwrap();
    assert_eq!(bench.share(("two", 0), ("finer", 0), RECORD), 0);
    bench.compare();
    drop(bench.judge());
}

#[test]
fn snapshots_quotas_and_fsync_know_of_what_is_shared() {
    let mut bench = Bench::new("cloning-kept");
    bench.write("source", 0, &noise(4, 4 << 20));
    bench.held.sync().unwrap();
    assert_eq!(bench.share(("source", 0), ("clone", 0), 4 << 20), 4 << 20);
    bench.held.snapshot(&["tank@both".to_owned()]).unwrap();
    for name in ["source", "clone"] {
        bench.write(name, RECORD, &noise(6, 1 << 20));
    }
    assert_eq!(bench.share(("source", 3 << 20), ("later", 0), 1 << 20), 1 << 20);
    let id = bench.file("later");
    bench.held.files("tank").unwrap().fsync(Some(id.get())).unwrap();
    // the power is cut: what was fsynced is there
    let after = cut(&bench.folder, "cloning-kept-cut", 3);
    let held = engine::held::hold(&[after.path().into()], "tank", false, &world()).unwrap();
    assert!(read_file(&held, "tank", "later") == bench.model["later"]);
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&after, "tank"), Vec::<String>::new());
    let bench = bench.judge();
    bench.held.destroy("tank@both").unwrap();
    let mut bench = bench.judge();

    let properties = vec![("quota".to_owned(), "6M".to_owned())];
    let limited = NewDataset { name: "tank/limited".to_owned(), properties };
    bench.held.create_filesystem(&limited).unwrap();
    write_file(&bench.held, "tank/limited", "first", &noise(8, 4 << 20));
    bench.held.sync().unwrap();
    let live = bench.held.files("tank/limited").unwrap();
    let root = ObjectId::new(live.files().root_id());
    let from = ObjectId::new(live.files().find(b"first").unwrap().unwrap().id());
    let to = live.make(&caller(), root, b"second", &New::default()).unwrap().id();
    let stretch = Stretch { from, start: 0, to: ObjectId::new(to), at: 0, length: 4 << 20 };
    let why = live.share(&caller(), &stretch).unwrap_err();
    assert_eq!(why.reason(), Reason::OverQuota, "what is shared counts as if it were a copy");
    drop(live);
    bench.write("last", 0, b"of all");
    drop(bench.judge());
}
