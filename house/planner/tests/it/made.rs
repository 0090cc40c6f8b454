//! Pools that our own engine makes hold what is planned, to the byte.
//!
//! Drives are devices in memory that are as large as they say and take no room. Of each pool that is
//! made, what `zpool list -p` and `zfs list -p` print is held against the plan, and so is what its
//! configuration and its tables of free space say once it is opened again, to be read.

use std::path::PathBuf;
use std::sync::Arc;

use device::{Device, MemoryDevice};
use engine::dataset::DatasetQuery;
use engine::pool::{
    DraidLayout, Environment, NewPool, NewVdev, VdevLayout, VdevRole, create_on_devices,
};
use planner::{Capacity, Group, Kind, Mix, Rules, Taking, Words};
use serde_json::Value;
use units::Ashift;

/// Numbers that look random (splitmix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `least` to `most`.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.bits() % (most - least + 1)
    }
}

/// A pool that is planned and made.
#[derive(Debug)]
struct Case {
    seed: u64,
    groups: Vec<Group>,
    drives: Vec<u64>,
    ashift: u64,
}

/// What a pool has, by the plan or by itself.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    /// SIZE of `zpool list`.
    size: u64,
    /// USED and AVAIL of `zfs list` together.
    usable: u64,
    /// Of each top-level vdev: asize, log2 of the size of its metaslabs, how many they are.
    vdevs: Vec<(u64, u32, u64)>,
}

impl Case {
    /// The case of that seed.
    fn of(seed: u64) -> Self {
        let mut random = Random(seed);
        let ashift = [9, 9, 12, 12, 12, 13, 14, 16][usize::try_from(random.between(0, 7)).unwrap()];
        let (mut groups, mut drives) = (Vec::new(), Vec::new());
        // drives like each other, as people buy them, of 256 MiB to 24 TB
        let common = size(&mut random);
        for _ in 0..random.between(1, 4) {
            let group = group(&mut random);
            let mixed = random.between(0, 3) == 0;
            for _ in 0..group.width {
                drives.push(if mixed { size(&mut random) } else { common });
            }
            groups.push(group);
        }
        Self { seed, groups, drives, ashift }
    }

    fn planned(&self) -> Figures {
        let words = Words(self.groups.clone());
        let ashift = Ashift::new(self.ashift).unwrap();
        let taking = Taking { ashift, whole_disks: false, rules: Rules::Of2021 };
        let planned = Capacity::new(&words, &self.drives, taking, &Mix::default());
        let planned = planned.unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let vdevs = planned.vdevs.iter();
        Figures {
            size: planned.size_bytes,
            usable: planned.account.usable_bytes,
            vdevs: vdevs.map(|v| (v.asize, v.metaslab_shift, v.metaslabs)).collect(),
        }
    }

    fn made(&self) -> Figures {
        let names = (0..self.drives.len()).map(|index| format!("/no/such/drive-{index}"));
        let names: Vec<PathBuf> = names.map(PathBuf::from).collect();
        let devices = names.iter().zip(&self.drives).map(|(name, size)| {
            Arc::new(MemoryDevice::zeroed(name.display().to_string(), *size)) as Arc<dyn Device>
        });
        let devices: Vec<Arc<dyn Device>> = devices.collect();
        let new = NewPool {
            name: "tank".to_owned(),
            vdevs: self.vdevs(&names),
            ashift: Some(self.ashift),
            properties: Vec::new(),
            force: true,
        };
        let held = create_on_devices(&new, &devices, &world(self.seed));
        let held = held.unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let size = held.status().size;
        let mut usable = 0;
        let wanted = DatasetQuery {
            properties: vec!["used".to_owned(), "available".to_owned()],
            depth: Some(0),
            ..DatasetQuery::default()
        };
        let mut add = |dataset: engine::dataset::Dataset| {
            let value = |name| dataset.property_value(name).unwrap().parse::<u64>().unwrap();
            usable += value("used") + value("available");
        };
        held.list_datasets("tank", &wanted, &mut add, &mut |event| panic!("{event}")).unwrap();
        held.close().unwrap();
        drop(held);
        Figures { size, usable, vdevs: self.opened(&devices) }
    }

    /// What the pool says of its vdevs to whoever opens it to read it.
    fn opened(&self, devices: &[Arc<dyn Device>]) -> Vec<(u64, u32, u64)> {
        let options = engine::OpenOptions::default();
        let pool = engine::search_devices(devices).open("tank", &options);
        let pool = pool.unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let space = pool.inspect_space(None, None).unwrap();
        let number = |vdev: &Value, name: &str| vdev[name].as_u64().unwrap();
        let figures = |vdev: &Value| {
            let metaslab = number(vdev, "metaslab_size");
            (number(vdev, "size"), metaslab.trailing_zeros(), number(vdev, "metaslabs"))
        };
        space["vdevs"].as_array().unwrap().iter().map(figures).collect()
    }

    fn vdevs(&self, names: &[PathBuf]) -> Vec<NewVdev> {
        let mut rest = names;
        let mut vdevs = Vec::new();
        for group in &self.groups {
            let (own, left) = rest.split_at(group.width);
            rest = left;
            let (shape, width) = match group.kind {
                Kind::Mirror => (VdevLayout::Mirror, group.width),
                Kind::Raidz(parity) => (VdevLayout::Raidz(parity), group.width),
                Kind::Draid { parity, data, spares } => {
                    (VdevLayout::Draid(DraidLayout { parity, data, spares }), group.width)
                }
                Kind::Stripe | Kind::Spare => (VdevLayout::Single, 1),
            };
            for drives in own.chunks(width) {
                vdevs.push(NewVdev {
                    layout: shape,
                    drives: drives.to_vec(),
                    role: VdevRole::Data,
                });
            }
        }
        vdevs
    }
}

/// A drive's bytes: round as advertisements have it, round as programmers have it, or any.
fn size(random: &mut Random) -> u64 {
    let (least, most) = (256 << 20, 24_000_000_000_000);
    let any = (least << random.between(0, 17)) + random.bits() % least;
    match random.between(0, 3) {
        0 => random.between(1, 24) * 1_000_000_000_000,
        1 => random.between(1, 64) << 30,
        2 => any.next_multiple_of(512).min(most),
        _ => any.min(most),
    }
}

fn group(random: &mut Random) -> Group {
    let mut width = |least, most| usize::try_from(random.between(least, most)).unwrap();
    match width(0, 5) {
        0 => Group::new(Kind::Stripe, width(1, 4)),
        1 => Group::new(Kind::Mirror, width(2, 4)),
        kind => {
            let parity = kind.min(4) - 1;
            let width = width(parity as u64 + 1, 14);
            Group::new(Kind::Raidz(u32::try_from(parity).unwrap()), width)
        }
    }
}

fn world(seed: u64) -> Environment {
    let random = std::sync::Mutex::new(Random(seed));
    Environment {
        random: Arc::new(move |bytes| {
            let mut random = random.lock().unwrap();
            bytes.fill_with(|| random.bits().to_be_bytes()[0]);
        }),
        now: Arc::new(|| (1_700_000_000, 0)),
        workers: 1,
        max_dirty: 64 << 20,
        cache: engine::pool::MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

fn hold_what_is_planned(cases: impl Iterator<Item = Case>) {
    let mut wrong = Vec::new();
    for case in cases {
        let (planned, made) = (case.planned(), case.made());
        if planned != made {
            wrong.push(format!("{case:?}\nplanned {planned:?}\nmade    {made:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "{} pools differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn pools_of_our_own_hold_what_is_planned() {
    hold_what_is_planned((0..200).map(Case::of));
}

/// Random dRAID: a seed and what comes of it.
fn draid(seed: u64) -> Case {
    let mut random = Random(seed);
    let mut number = |most| u32::try_from(random.between(0, most)).unwrap();
    let (parity, data, spares) = (1 + number(2), 1 + number(8), number(2));
    let width = usize::try_from(parity + data + spares + number(12)).unwrap();
    let mut groups = vec![Group::new(Kind::Draid { parity, data, spares }, width)];
    if number(3) == 0 {
        groups.push(Group::new(Kind::Mirror, 2));
    }
    let ashift = [9, 12, 12, 13][usize::try_from(number(3)).unwrap()];
    let common = size(&mut random);
    let drives = groups.iter().flat_map(|group| vec![common; group.width]).collect();
    Case { seed, groups, drives, ashift }
}

#[test]
fn draids_of_our_own_hold_what_is_planned() {
    for case in (0..40).map(draid) {
        let (planned, made) = (case.planned(), case.made());
        assert_eq!(planned, made, "{case:?}");
    }
}

#[test]
#[ignore = "long"]
fn a_thousand_pools_of_our_own_hold_what_is_planned() {
    hold_what_is_planned((1000..2000).map(Case::of));
}
