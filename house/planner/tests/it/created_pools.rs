//! Pools that our own engine makes hold what is planned, to the byte.
//!
//! Drives are sparse devices in memory of full size. For each pool the figures of
//! `zpool list -p` and `zfs list -p` are compared with the plan, and so are its
//! configuration and its space maps after it is opened again read-only.

use std::path::PathBuf;
use std::sync::Arc;

use device::{Device, MemoryDevice};
use engine::dataset::DatasetQuery;
use engine::pool::{
    DraidLayout, Environment, NewPool, NewVdev, VdevLayout, VdevRole, create_on_devices,
};
use planner::{
    Capacity, CapacityOptions, GroupKind, LayoutGroup, PoolLayout, RecordMix, SpaceRules,
};
use serde_json::Value;
use units::Ashift;

/// Numbers that look random (splitmix64).
struct Random(u64);

impl Random {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `least` to `most`.
    fn in_range(&mut self, least: u64, most: u64) -> u64 {
        least + self.next_u64() % (most - least + 1)
    }
}

/// A pool that is planned and made.
#[derive(Debug)]
struct Case {
    seed: u64,
    groups: Vec<LayoutGroup>,
    drives: Vec<u64>,
    ashift: u64,
}

/// The figures of a pool, by the plan or by itself.
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
    fn from_seed(seed: u64) -> Self {
        let mut random = Random(seed);
        let ashift =
            [9, 9, 12, 12, 12, 13, 14, 16][usize::try_from(random.in_range(0, 7)).unwrap()];
        let (mut groups, mut drives) = (Vec::new(), Vec::new());
        // drives of equal sizes, of 256 MiB to 24 TB
        let common = random_drive_size(&mut random);
        for _ in 0..random.in_range(1, 4) {
            let group = random_group(&mut random);
            let mixed = random.in_range(0, 3) == 0;
            for _ in 0..group.width {
                drives.push(if mixed { random_drive_size(&mut random) } else { common });
            }
            groups.push(group);
        }
        Self { seed, groups, drives, ashift }
    }

    fn planned_figures(&self) -> Figures {
        let words = PoolLayout(self.groups.clone());
        let ashift = Ashift::new(self.ashift).unwrap();
        let taking = CapacityOptions { ashift, whole_disks: false, rules: SpaceRules::Since2_1 };
        let planned = Capacity::new(&words, &self.drives, taking, &RecordMix::default());
        let planned = planned.unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let vdevs = planned.vdevs.iter();
        Figures {
            size: planned.size_bytes,
            usable: planned.account.usable_bytes,
            vdevs: vdevs.map(|v| (v.asize, v.metaslab_shift, v.metaslabs)).collect(),
        }
    }

    fn create_pool(&self) -> Figures {
        let names = (0..self.drives.len()).map(|index| format!("/no/such/drive-{index}"));
        let names: Vec<PathBuf> = names.map(PathBuf::from).collect();
        let devices = names.iter().zip(&self.drives).map(|(name, size)| {
            Arc::new(MemoryDevice::zeroed(name.display().to_string(), *size)) as Arc<dyn Device>
        });
        let devices: Vec<Arc<dyn Device>> = devices.collect();
        let new = NewPool {
            name: "tank".to_owned(),
            vdevs: self.new_vdevs(&names),
            ashift: Some(self.ashift),
            properties: Vec::new(),
            force: true,
        };
        let held = create_on_devices(&new, &devices, &environment(self.seed));
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
        held.datasets().list("tank", &wanted, &mut add, &mut |event| panic!("{event}")).unwrap();
        held.close().unwrap();
        drop(held);
        Figures { size, usable, vdevs: self.reopened_vdevs(&devices) }
    }

    /// The vdev figures of a pool that is opened read-only.
    fn reopened_vdevs(&self, devices: &[Arc<dyn Device>]) -> Vec<(u64, u32, u64)> {
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

    fn new_vdevs(&self, names: &[PathBuf]) -> Vec<NewVdev> {
        let mut rest = names;
        let mut vdevs = Vec::new();
        for group in &self.groups {
            let (own, left) = rest.split_at(group.width);
            rest = left;
            let (shape, width) = match group.kind {
                GroupKind::Mirror => (VdevLayout::Mirror, group.width),
                GroupKind::Raidz(parity) => (VdevLayout::Raidz(parity), group.width),
                GroupKind::Draid { parity, data, spares } => {
                    (VdevLayout::Draid(DraidLayout { parity, data, spares }), group.width)
                }
                GroupKind::Stripe | GroupKind::Spare => (VdevLayout::Single, 1),
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

/// A drive's bytes: a round decimal, a round binary, or any number.
fn random_drive_size(random: &mut Random) -> u64 {
    let (least, most) = (256 << 20, 24_000_000_000_000);
    let any = (least << random.in_range(0, 17)) + random.next_u64() % least;
    match random.in_range(0, 3) {
        0 => random.in_range(1, 24) * 1_000_000_000_000,
        1 => random.in_range(1, 64) << 30,
        2 => any.next_multiple_of(512).min(most),
        _ => any.min(most),
    }
}

fn random_group(random: &mut Random) -> LayoutGroup {
    let mut width = |least, most| usize::try_from(random.in_range(least, most)).unwrap();
    match width(0, 5) {
        0 => LayoutGroup::new(GroupKind::Stripe, width(1, 4)),
        1 => LayoutGroup::new(GroupKind::Mirror, width(2, 4)),
        kind => {
            let parity = kind.min(4) - 1;
            let width = width(parity as u64 + 1, 14);
            LayoutGroup::new(GroupKind::Raidz(u32::try_from(parity).unwrap()), width)
        }
    }
}

fn environment(seed: u64) -> Environment {
    let random = std::sync::Mutex::new(Random(seed));
    Environment {
        random: Arc::new(move |bytes| {
            let mut random = random.lock().unwrap();
            bytes.fill_with(|| random.next_u64().to_be_bytes()[0]);
        }),
        now: Arc::new(|| (1_700_000_000, 0)),
        workers: 1,
        max_dirty: 64 << 20,
        cache: engine::pool::MemoryBudget::default(),
        host: (0x1234, "here".to_owned()),
    }
}

fn assert_plan_matches(cases: impl Iterator<Item = Case>) {
    let mut wrong = Vec::new();
    for case in cases {
        let (planned, made) = (case.planned_figures(), case.create_pool());
        if planned != made {
            wrong.push(format!("{case:?}\nplanned {planned:?}\nmade    {made:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "{} pools differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn plan_matches_created_pools() {
    assert_plan_matches((0..200).map(Case::from_seed));
}

/// Random dRAID: a seed and its layout.
fn random_draid_case(seed: u64) -> Case {
    let mut random = Random(seed);
    let mut number = |most| u32::try_from(random.in_range(0, most)).unwrap();
    let (parity, data, spares) = (1 + number(2), 1 + number(8), number(2));
    let width = usize::try_from(parity + data + spares + number(12)).unwrap();
    let mut groups = vec![LayoutGroup::new(GroupKind::Draid { parity, data, spares }, width)];
    if number(3) == 0 {
        groups.push(LayoutGroup::new(GroupKind::Mirror, 2));
    }
    let ashift = [9, 12, 12, 13][usize::try_from(number(3)).unwrap()];
    let common = random_drive_size(&mut random);
    let drives = groups.iter().flat_map(|group| vec![common; group.width]).collect();
    Case { seed, groups, drives, ashift }
}

#[test]
fn plan_matches_created_draid_pools() {
    for case in (0..40).map(random_draid_case) {
        let (planned, made) = (case.planned_figures(), case.create_pool());
        assert_eq!(planned, made, "{case:?}");
    }
}

#[test]
#[ignore = "long"]
fn plan_matches_a_thousand_created_pools() {
    assert_plan_matches((1000..2000).map(Case::from_seed));
}
