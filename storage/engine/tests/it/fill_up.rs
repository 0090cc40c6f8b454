//! Pools that are filled up in every way, again and again: they report it, and work on.

use engine::files::Reason;
use engine::pool::{
    DraidLayout, NewDataset, NewPool, NewVdev, OpenFileSystem, Pool, VdevLayout, VdevRole,
};
use posix::{NewInode, WriteOffset, XattrMode};
use sim::Random;
use units::ObjectId;

use crate::test_pool::{TempDir, check_pool, credentials, environment};

const MIB: u64 = 1 << 20;

/// A pool that is being filled up.
struct FillTest {
    pool: Pool,
    rng: Random,
    has_volume: bool,
    files: Vec<(String, ObjectId)>,
    file_count: u64,
    snapshot_count: u64,
    config: String,
}

fn choose<T: Copy>(chance: &mut Random, of: &[T]) -> T {
    of[usize::try_from(chance.next_below(of.len() as u64)).unwrap()]
}

fn random_bytes(chance: &mut Random, length: u64) -> Vec<u8> {
    (0..length.div_ceil(8)).flat_map(|_| chance.next_u64().to_le_bytes()).collect()
}

impl FillTest {
    fn new(folder: &TempDir, mut rng: Random) -> Self {
        let shapes = [
            (VdevLayout::Single, 1),
            (VdevLayout::Mirror, 2),
            (VdevLayout::Raidz(1), 3),
            (VdevLayout::Raidz(2), 6),
            (VdevLayout::Raidz(3), 8),
            (VdevLayout::Draid(DraidLayout { parity: 1, data: 4, spares: 1 }), 7),
            (VdevLayout::Draid(DraidLayout { parity: 2, data: 4, spares: 0 }), 8),
        ];
        let (shape, count) = choose(&mut rng, &shapes);
        let vdevs =
            vec![NewVdev { layout: shape, drives: folder.drives(count), role: VdevRole::Data }];
        let ashift = choose(&mut rng, &[9, 12, 12, 13]);
        let (name, properties) = ("tank".to_owned(), Vec::new());
        let new = NewPool { name, vdevs, ashift: Some(ashift), properties, force: false };
        let pool = engine::pool::create(&new, &environment()).unwrap();
        let record = choose(&mut rng, &["512", "4K", "128K", "1M"]);
        let compression = choose(&mut rng, &["off", "lz4", "zstd"]);
        let copies = choose(&mut rng, &["1", "1", "2", "3"]);
        let xattr = choose(&mut rng, &["on", "sa"]);
        let set = [
            ("recordsize", record),
            ("compression", compression),
            ("copies", copies),
            ("xattr", xattr),
            ("dedup", choose(&mut rng, &["off", "off", "off", "on"])),
            ("dnodesize", choose(&mut rng, &["legacy", "auto", "16k"])),
        ];
        for (name, value) in &set {
            pool.properties().set("tank", name, value).unwrap();
        }
        let block = choose(&mut rng, &[512, 4096, 16384]);
        let has_volume = rng.chance_percent(50);
        if has_volume {
            let new = NewDataset { name: "tank/vol".to_owned(), properties: Vec::new() };
            pool.volumes().create(&new, 512 * MIB, block, true).unwrap();
        }
        let config =
            format!("{shape:?} of {count}, ashift {ashift}, {set:?}, volume {has_volume} {block}");
        Self { pool, rng, has_volume, files: Vec::new(), file_count: 0, snapshot_count: 0, config }
    }

    fn filesystem(&self) -> OpenFileSystem {
        self.pool.datasets().filesystem("tank").unwrap()
    }

    /// Does a step; false: there is no space for it.
    fn write_something(&mut self) -> bool {
        let done = match self.rng.next_below(12) {
            4..=6 => self.write_file(),
            7 if self.has_volume => self.write_volume(),
            8 => self.set_xattr(),
            9 => self.link_long_name(),
            10 if self.rng.chance_percent(10) => {
                self.snapshot_count += 1;
                let name = format!("tank@s{}", self.snapshot_count);
                self.pool
                    .snapshots()
                    .create(&[name])
                    .map_err(|error| error.to_string())
                    .map_or_else(
                        |why| if why.contains("space") { Ok(false) } else { Err(why) },
                        |()| Ok(true),
                    )
            }
            _ => self.create_file(),
        };
        done.unwrap_or_else(|why| {
            let trouble = self.pool.sync().err();
            panic!("{}: {why}; {trouble:?}", self.config)
        })
    }

    fn as_refusal(done: engine::files::Result<impl Sized>) -> Result<bool, String> {
        match done {
            Ok(_) => Ok(true),
            Err(error) if error.reason() == Reason::NoSpace => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn create_file(&mut self) -> Result<bool, String> {
        self.file_count += 1;
        let fs = self.filesystem();
        let (root, name) =
            (ObjectId::new(fs.reader().root_object()), format!("f{}", self.file_count));
        let id = match fs.create(&credentials(), root, name.as_bytes(), &NewInode::default()) {
            Ok(file) => ObjectId::new(file.ino()),
            refused => return Self::as_refusal(refused),
        };
        self.files.push((name, id));
        let most = choose(&mut self.rng, &[100, 600, 5000, 70_000]);
        let length = self.rng.next_below(most);
        let bytes = random_bytes(&mut self.rng, length);
        Self::as_refusal(fs.write(&credentials(), id, WriteOffset::End, &bytes))
    }

    fn write_file(&mut self) -> Result<bool, String> {
        let Some((_, id)) = self.choose_file() else { return Ok(true) };
        let most = choose(&mut self.rng, &[100, 5000, 300_000, 4 * MIB]);
        let (at, length) = (self.rng.next_below(8 * MIB), self.rng.next_below(most));
        let bytes = random_bytes(&mut self.rng, length);
        let fs = self.filesystem();
        let done = fs.write(&credentials(), id, WriteOffset::At(at), &bytes);
        if self.rng.chance_percent(5) && done.is_ok() {
            return Self::as_refusal(fs.fsync(Some(id.get())));
        }
        Self::as_refusal(done)
    }

    fn write_volume(&mut self) -> Result<bool, String> {
        let most = choose(&mut self.rng, &[512, 20_000, 2 * MIB]);
        let at = 512 * self.rng.next_below(500 * MIB / 512);
        let length = 512 * (1 + self.rng.next_below(most) / 512);
        let bytes = random_bytes(&mut self.rng, length);
        Self::as_refusal(self.pool.volumes().get("tank/vol").unwrap().write(at, &bytes))
    }

    fn set_xattr(&mut self) -> Result<bool, String> {
        let Some((_, id)) = self.choose_file() else { return Ok(true) };
        let length = choose(&mut self.rng, &[10, 1000, 20_000]);
        let value = random_bytes(&mut self.rng, length);
        let name = format!("user.k{}", self.rng.next_below(20));
        let any = XattrMode::Any;
        Self::as_refusal(self.filesystem().set_xattr(
            &credentials(),
            id,
            name.as_bytes(),
            Some(&value),
            any,
        ))
    }

    fn link_long_name(&mut self) -> Result<bool, String> {
        let Some((_, id)) = self.choose_file() else { return Ok(true) };
        self.file_count += 1;
        let name = format!("{}{}", "n".repeat(200), self.file_count);
        let fs = self.filesystem();
        let root = ObjectId::new(fs.reader().root_object());
        let done = fs.link(&credentials(), id, root, name.as_bytes());
        if done.is_ok() {
            self.files.push((name, id));
        }
        Self::as_refusal(done)
    }

    fn choose_file(&mut self) -> Option<(String, ObjectId)> {
        let count = self.files.len() as u64;
        let at = if count == 0 { return None } else { self.rng.next_below(count) };
        self.files.get(usize::try_from(at).unwrap()).cloned()
    }

    /// Removes most files again, which a full pool allows.
    fn empty_pool(&mut self) {
        let fs = self.filesystem();
        let root = ObjectId::new(fs.reader().root_object());
        for (name, id) in std::mem::take(&mut self.files) {
            if self.rng.chance_percent(80) {
                let gone = fs.unlink(&credentials(), root, name.as_bytes());
                gone.unwrap_or_else(|error| panic!("{}: {error}", self.config));
            } else {
                self.files.push((name, id));
            }
        }
        for number in 1..=self.snapshot_count {
            // some could not be made
            let _ = self.pool.datasets().destroy(&format!("tank@s{number}"));
        }
        if self.has_volume {
            let gone = self.pool.volumes().get("tank/vol").unwrap().discard(0..512 * MIB);
            gone.unwrap_or_else(|error| panic!("{}: {error}", self.config));
        }
    }

    fn sync(&self, when: &str) {
        self.pool.sync().unwrap_or_else(|error| panic!("{}: {when}: {error}", self.config));
    }
}

fn fill_and_empty(seed: u64) {
    let folder = TempDir::new(&format!("brim-{seed}"), 8, 80 * MIB);
    let mut brim = FillTest::new(&folder, Random::new(seed));
    for _ in 0..2 {
        let mut refused = 0;
        while refused < 30 {
            refused += u32::from(!brim.write_something());
        }
        brim.sync("full");
        brim.empty_pool();
        for _ in 0..3 {
            brim.sync("emptied");
        }
    }
    brim.pool.export().unwrap();
    let about = brim.config.clone();
    drop(brim);
    assert_eq!(check_pool(&folder, "tank"), Vec::<String>::new(), "{about}");
}

#[test]
fn full_pool_reports_enospc_and_works_on() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let first = number("POOLHOUSE_SEED").unwrap_or(1);
    for seed in first..first + number("POOLHOUSE_BRIMS").unwrap_or(6) {
        println!("POOLHOUSE_SEED={seed}");
        fill_and_empty(seed);
    }
}
