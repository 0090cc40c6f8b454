//! Pools that are filled up in every way there is, again and again: they say that they are full, and go on.

use engine::files::Reason;
use engine::held::{
    Groups, Held, LiveFiles, New, NewDataset, NewPool, NewVdev, Position, Purpose, Shape, XattrMode,
};
use sim::Seed;
use units::ObjectId;

use crate::held::{Folder, caller, faults, world};

const MIB: u64 = 1 << 20;

/// A pool that is being filled up.
struct Brim {
    held: Held,
    chance: Seed,
    volume: bool,
    files: Vec<(String, ObjectId)>,
    made: u64,
    snapshots: u64,
    about: String,
}

fn one<T: Copy>(chance: &mut Seed, of: &[T]) -> T {
    of[usize::try_from(chance.below(of.len() as u64)).unwrap()]
}

fn noise(chance: &mut Seed, length: u64) -> Vec<u8> {
    (0..length.div_ceil(8)).flat_map(|_| chance.next_u64().to_le_bytes()).collect()
}

impl Brim {
    fn new(folder: &Folder, mut chance: Seed) -> Self {
        let shapes = [
            (Shape::Single, 1),
            (Shape::Mirror, 2),
            (Shape::Raidz(1), 3),
            (Shape::Raidz(2), 6),
            (Shape::Raidz(3), 8),
            (Shape::Draid(Groups { parity: 1, data: 4, spares: 1 }), 7),
            (Shape::Draid(Groups { parity: 2, data: 4, spares: 0 }), 8),
        ];
        let (shape, count) = one(&mut chance, &shapes);
        let vdevs = vec![NewVdev { shape, drives: folder.drives(count), purpose: Purpose::Data }];
        let ashift = one(&mut chance, &[9, 12, 12, 13]);
        let (name, properties) = ("tank".to_owned(), Vec::new());
        let new = NewPool { name, vdevs, ashift: Some(ashift), properties, force: false };
        let held = engine::held::create(&new, &world()).unwrap();
        let record = one(&mut chance, &["512", "4K", "128K", "1M"]);
        let compression = one(&mut chance, &["off", "lz4", "zstd"]);
        let copies = one(&mut chance, &["1", "1", "2", "3"]);
        let xattr = one(&mut chance, &["on", "sa"]);
        let set = [
            ("recordsize", record),
            ("compression", compression),
            ("copies", copies),
            ("xattr", xattr),
            ("dedup", one(&mut chance, &["off", "off", "off", "on"])),
            ("dnodesize", one(&mut chance, &["legacy", "auto", "16k"])),
        ];
        for (name, value) in &set {
            held.set("tank", name, value).unwrap();
        }
        let block = one(&mut chance, &[512, 4096, 16384]);
        let volume = chance.percent(50);
        if volume {
            let new = NewDataset { name: "tank/vol".to_owned(), properties: Vec::new() };
            held.create_volume(&new, 512 * MIB, block, true).unwrap();
        }
        let about =
            format!("{shape:?} of {count}, ashift {ashift}, {set:?}, volume {volume} {block}");
        Self { held, chance, volume, files: Vec::new(), made: 0, snapshots: 0, about }
    }

    fn live(&self) -> LiveFiles {
        self.held.files("tank").unwrap()
    }

    /// Does something; false: there is no room for it.
    fn fill(&mut self) -> bool {
        let done = match self.chance.below(12) {
            4..=6 => self.write(),
            7 if self.volume => self.write_volume(),
            8 => self.xattr(),
            9 => self.long_name(),
            10 if self.chance.percent(10) => {
                self.snapshots += 1;
                let name = format!("tank@s{}", self.snapshots);
                self.held.snapshot(&[name]).map_err(|why| why.to_string()).map_or_else(
                    |why| if why.contains("space") { Ok(false) } else { Err(why) },
                    |()| Ok(true),
                )
            }
            _ => self.make(),
        };
        done.unwrap_or_else(|why| {
            let trouble = self.held.sync().err();
            panic!("{}: {why}; {trouble:?}", self.about)
        })
    }

    fn told(done: engine::files::Result<impl Sized>) -> Result<bool, String> {
        match done {
            Ok(_) => Ok(true),
            Err(why) if why.reason() == Reason::NoSpace => Ok(false),
            Err(why) => Err(why.to_string()),
        }
    }

    fn make(&mut self) -> Result<bool, String> {
        self.made += 1;
        let live = self.live();
        let (root, name) = (ObjectId::new(live.files().root_id()), format!("f{}", self.made));
        let id = match live.make(&caller(), root, name.as_bytes(), &New::default()) {
            Ok(file) => ObjectId::new(file.id()),
            refused => return Self::told(refused),
        };
        self.files.push((name, id));
        let most = one(&mut self.chance, &[100, 600, 5000, 70_000]);
        let length = self.chance.below(most);
        let bytes = noise(&mut self.chance, length);
        Self::told(live.write(&caller(), id, Position::End, &bytes))
    }

    fn write(&mut self) -> Result<bool, String> {
        let Some((_, id)) = self.any() else { return Ok(true) };
        let most = one(&mut self.chance, &[100, 5000, 300_000, 4 * MIB]);
        let (at, length) = (self.chance.below(8 * MIB), self.chance.below(most));
        let bytes = noise(&mut self.chance, length);
        let live = self.live();
        let done = live.write(&caller(), id, Position::At(at), &bytes);
        if self.chance.percent(5) && done.is_ok() {
            return Self::told(live.fsync(Some(id.get())));
        }
        Self::told(done)
    }

    fn write_volume(&mut self) -> Result<bool, String> {
        let most = one(&mut self.chance, &[512, 20_000, 2 * MIB]);
        let at = 512 * self.chance.below(500 * MIB / 512);
        let length = 512 * (1 + self.chance.below(most) / 512);
        let bytes = noise(&mut self.chance, length);
        Self::told(self.held.volume("tank/vol").unwrap().write(at, &bytes))
    }

    fn xattr(&mut self) -> Result<bool, String> {
        let Some((_, id)) = self.any() else { return Ok(true) };
        let length = one(&mut self.chance, &[10, 1000, 20_000]);
        let value = noise(&mut self.chance, length);
        let name = format!("user.k{}", self.chance.below(20));
        let any = XattrMode::Any;
        Self::told(self.live().set_xattr(&caller(), id, name.as_bytes(), Some(&value), any))
    }

    fn long_name(&mut self) -> Result<bool, String> {
        let Some((_, id)) = self.any() else { return Ok(true) };
        self.made += 1;
        let name = format!("{}{}", "n".repeat(200), self.made);
        let live = self.live();
        let root = ObjectId::new(live.files().root_id());
        let done = live.link(&caller(), id, root, name.as_bytes());
        if done.is_ok() {
            self.files.push((name, id));
        }
        Self::told(done)
    }

    fn any(&mut self) -> Option<(String, ObjectId)> {
        let count = self.files.len() as u64;
        let at = if count == 0 { return None } else { self.chance.below(count) };
        self.files.get(usize::try_from(at).unwrap()).cloned()
    }

    /// Takes most away again, which a full pool lets anybody do.
    fn empty(&mut self) {
        let live = self.live();
        let root = ObjectId::new(live.files().root_id());
        for (name, id) in std::mem::take(&mut self.files) {
            if self.chance.percent(80) {
                let gone = live.unlink(&caller(), root, name.as_bytes());
                gone.unwrap_or_else(|why| panic!("{}: {why}", self.about));
            } else {
                self.files.push((name, id));
            }
        }
        for number in 1..=self.snapshots {
            // some could not be made
            let _ = self.held.destroy(&format!("tank@s{number}"));
        }
        if self.volume {
            let gone = self.held.volume("tank/vol").unwrap().discard(0..512 * MIB);
            gone.unwrap_or_else(|why| panic!("{}: {why}", self.about));
        }
    }

    fn sync(&self, when: &str) {
        self.held.sync().unwrap_or_else(|why| panic!("{}: {when}: {why}", self.about));
    }
}

fn fill_up(seed: u64) {
    let folder = Folder::new(&format!("brim-{seed}"), 8, 80 * MIB);
    let mut brim = Brim::new(&folder, Seed::new(seed));
    for _ in 0..2 {
        let mut refused = 0;
        while refused < 30 {
            refused += u32::from(!brim.fill());
        }
        brim.sync("full");
        brim.empty();
        for _ in 0..3 {
            brim.sync("emptied");
        }
    }
    brim.held.export().unwrap();
    let about = brim.about.clone();
    drop(brim);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new(), "{about}");
}

#[test]
fn a_pool_that_is_filled_up_in_any_way_says_so_and_goes_on() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let first = number("POOLHOUSE_SEED").unwrap_or(1);
    for seed in first..first + number("POOLHOUSE_BRIMS").unwrap_or(6) {
        println!("POOLHOUSE_SEED={seed}");
        fill_up(seed);
    }
}
