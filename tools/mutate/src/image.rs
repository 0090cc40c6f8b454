//! Mutants of devices: their bytes changed, and they themselves cut, swapped, taken away, mixed.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Device;
use dmu::{BlockVisit, WalkControl};
use ondisk::label::{VdevConfig, VdevKind};
use ondisk::{Blkptr, Checksum};
use spa::Pool;
use transform::checksum::embedded;
use units::VdevId;

use crate::overlay::{Overlay, SECTOR};
use crate::random::{Random, damage};

/// Bytes of a label; four are on a device, two at each end.
const LABEL: u64 = 256 << 10;
/// Where the description and the ring of uberblocks are in a label.
const LIST: (u64, u64) = (16 << 10, 112 << 10);
const RING: (u64, u64) = (128 << 10, 128 << 10);
/// What comes before the data on a device.
const FRONT: u64 = 4 << 20;
/// Bytes at a time in the search for what is in use.
const GRAIN: usize = 64 << 10;

/// What is worth hitting on the devices of one pool.
#[derive(Debug, Default)]
pub struct Targets {
    /// By device: sectors outside of labels that are not all zeros.
    used: Vec<Vec<u64>>,
    /// Blocks of metadata, where they are known: each copy by device and offset, and their size.
    metadata: Vec<(Vec<(usize, u64)>, usize)>,
}

/// Devices of a mutant.
#[derive(Debug)]
pub struct Mutant {
    /// What takes the place of the pool's devices.
    pub devices: Vec<Arc<dyn Device>>,
    /// It has checksums made anew: what it shows may be whatever the forger likes.
    pub is_forged: bool,
    /// What was done, for people.
    pub story: Vec<String>,
}

impl Targets {
    /// Searches devices, in the order of the pool's images, for what is in use.
    pub fn find(devices: &[Arc<dyn Device>], pool: Option<&Pool>) -> Self {
        let used = devices.iter().map(|device| used_sectors(&**device)).collect();
        let metadata = pool.map(|pool| metadata(devices, pool)).unwrap_or_default();
        Self { used, metadata }
    }
}

fn used_sectors(device: &dyn Device) -> Vec<u64> {
    let mut out = Vec::new();
    let mut buffer = vec![0; GRAIN];
    let zeros = vec![0; GRAIN];
    let end = device.size().saturating_sub(2 * LABEL);
    for at in (FRONT..end).step_by(GRAIN) {
        if device.read_at(at, &mut buffer).is_err() || buffer == zeros {
            continue;
        }
        for (sector, bytes) in (0_u64..).zip(buffer.chunks_exact(SECTOR)) {
            if bytes != &zeros[..SECTOR] {
                out.push(at / SECTOR as u64 + sector);
            }
        }
    }
    out
}

/// Blocks of the pool's own object set and of datasets' trees, on mirrors and single devices.
fn metadata(devices: &[Arc<dyn Device>], pool: &Pool) -> Vec<(Vec<(usize, u64)>, usize)> {
    let mut places: BTreeMap<VdevId, Vec<usize>> = BTreeMap::new();
    for top in pool.config().tree.iter().flat_map(|root| &root.children) {
        let leaves: Vec<&VdevConfig> = match top.kind {
            VdevKind::Mirror => top.children.iter().collect(),
            VdevKind::Disk | VdevKind::File => vec![top],
            _ => continue,
        };
        for leaf in leaves {
            let has = |device: &Arc<dyn Device>| {
                spa::read_labels(device).0.is_some_and(|label| label.guid() == leaf.guid)
            };
            places.entry(top.id).or_default().extend(devices.iter().position(has));
        }
    }
    let mut out = Vec::new();
    let mut note = |_, found: BlockVisit<'_>| {
        if let BlockVisit::Pointer(Blkptr::Regular(block)) = found
            && (block.kind.is_metadata() || block.level.get() > 0)
        {
            let copies = block.copies().flat_map(|dva| {
                let leaves = places.get(&dva.vdev).into_iter().flatten();
                leaves.map(move |leaf| (*leaf, dva.offset.saturating_add(FRONT)))
            });
            out.push((copies.collect(), block.psize as usize));
        }
        WalkControl::Descend
    };
    pool.mos().walk(&dmu::WalkOptions::default(), &mut note);
    let facts = dsl::PoolInfo { name: pool.name().to_owned(), usable_space: 0 };
    if let Ok(tree) = dsl::DatasetTree::open(pool.mos().clone(), facts) {
        for objset in tree.heads().flatten().filter_map(|head| head.open_objset().ok()) {
            objset.walk(&dmu::WalkOptions::default(), &mut note);
        }
    }
    out.retain(|(copies, _): &(Vec<_>, _)| !copies.is_empty());
    out
}

/// Makes the mutant of a number. `others` are devices of another pool.
pub fn mutate(
    devices: &[Arc<dyn Device>],
    others: &[Arc<dyn Device>],
    targets: &Targets,
    seed: u64,
) -> Mutant {
    let random = Random::of(&[seed, 0x696d_6167]);
    let wrap = |(number, device): (usize, &Arc<dyn Device>)| {
        Overlay::new(format!("d{number}"), Arc::clone(device))
    };
    let devices = devices.iter().enumerate().map(wrap).collect();
    let mut work = Work { devices, targets, random, is_forged: false, story: Vec::new() };
    for _ in 0..=work.random.below(3) {
        work.step();
    }
    let Work { devices, mut random, is_forged, mut story, .. } = work;
    let mut devices: Vec<Arc<dyn Device>> =
        devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect();
    rearrange(&mut devices, others, &mut random, &mut story);
    Mutant { devices, is_forged, story }
}

/// What is done to whole devices, in one of three mutants.
fn rearrange(
    devices: &mut Vec<Arc<dyn Device>>,
    others: &[Arc<dyn Device>],
    random: &mut Random,
    story: &mut Vec<String>,
) {
    let (a, b) = (random.index(devices.len()), random.index(devices.len()));
    match random.below(15) {
        0 => {
            devices.swap(a, b);
            story.push(format!("devices {a} and {b} swapped"));
        }
        1 => {
            devices.push(Arc::clone(&devices[a]));
            story.push(format!("device {a} twice"));
        }
        2 if devices.len() > 1 => {
            devices.remove(a);
            story.push(format!("device {a} taken away"));
        }
        3 => {
            devices.extend(others.iter().cloned());
            story.push("another pool's devices beside".to_owned());
        }
        4 if !others.is_empty() => {
            devices[a] = Arc::clone(&others[random.index(others.len())]);
            story.push(format!("device {a} is another pool's"));
        }
        _ => {}
    }
}

struct Work<'a> {
    devices: Vec<Overlay>,
    targets: &'a Targets,
    random: Random,
    is_forged: bool,
    story: Vec<String>,
}

impl Work<'_> {
    fn tell(&mut self, what: impl Into<String>) {
        self.story.push(what.into());
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0 => self.label(LIST, false),
            1 | 2 => self.label(LIST, true),
            3 => self.label(RING, false),
            4 => self.uberblock(),
            5 => self.label((0, LABEL), false),
            6..=8 => self.sectors(),
            9..=11 => self.metadata(),
            12 => self.move_sectors(),
            13 => self.cut(),
            14 => self.graft(),
            _ => self.label_gone(),
        }
    }

    fn some_devices(&mut self) -> Vec<usize> {
        let all: Vec<usize> = (0..self.devices.len()).collect();
        if self.random.one_in(2) { all } else { vec![self.random.index(all.len())] }
    }

    /// The starts of some of a device's labels.
    fn some_labels(&mut self, device: usize) -> Vec<u64> {
        use device::Device as _;
        let end = self.devices[device].size() / LABEL * LABEL;
        let all = [0, LABEL, end.saturating_sub(2 * LABEL), end.saturating_sub(LABEL)];
        if self.random.one_in(2) { all.to_vec() } else { vec![self.random.pick(&all)] }
    }

    /// Changes a part of labels, and their checksums if they are to be believed.
    fn label(&mut self, (start, length): (u64, u64), forged: bool) {
        self.is_forged |= forged;
        let devices = self.some_devices();
        self.tell(format!("labels of {devices:?} changed at {start}, forged: {forged}"));
        let same = self.random.next();
        for device in devices {
            for label in self.some_labels(device) {
                let mut random = Random::new(same);
                let at = label + start;
                let size = usize::try_from(length).unwrap_or(0);
                self.devices[device].change(at, size, &mut |bytes| {
                    // the description is short, and what follows it means nothing
                    let near = if forged { bytes.len().min(4096) } else { bytes.len() };
                    for _ in 0..=random.below(6) {
                        damage(&mut bytes[..near], &mut random);
                    }
                    if forged {
                        let _ = embedded::seal(bytes, &[at, 0, 0, 0], Checksum::Label, false);
                    }
                });
            }
        }
    }

    /// Changes the newest uberblocks and gives them good checksums.
    fn uberblock(&mut self) {
        self.is_forged = true;
        let devices = self.some_devices();
        let size = self.random.pick(&[1024, 4096, 8192]);
        self.tell(format!("uberblocks of {size} bytes of {devices:?} forged"));
        let same = self.random.next();
        for device in devices {
            for label in self.some_labels(device) {
                let mut at = label + RING.0;
                while at < label + LABEL {
                    let mut random = Random::new(same);
                    self.devices[device].change(at, size, &mut |bytes| {
                        if bytes[..8].iter().any(|byte| *byte != 0) {
                            damage(&mut bytes[..384], &mut random);
                            let _ = embedded::seal(bytes, &[at, 0, 0, 0], Checksum::Label, false);
                        }
                    });
                    at += size as u64;
                }
            }
        }
    }

    /// Changes sectors that hold something, few or many.
    fn sectors(&mut self) {
        let count = 1_u64 << self.random.below(9);
        let run = self.random.pick(&[1, 1, 8, 64]);
        self.tell(format!("{count} places of {run} sectors changed"));
        for _ in 0..count {
            let device = self.random.index(self.devices.len());
            let Some(used) = self.targets.used.get(device).filter(|used| !used.is_empty()) else {
                continue;
            };
            let sector = used[self.random.index(used.len())];
            let random = &mut self.random;
            self.devices[device].change(sector * SECTOR as u64, run * SECTOR, &mut |bytes| {
                damage(bytes, random);
            });
        }
    }

    /// Changes blocks of metadata: one copy, or each.
    fn metadata(&mut self) {
        let targets = self.targets;
        if targets.metadata.is_empty() {
            return self.sectors();
        }
        let count = 1_u64 << self.random.below(6);
        let every = !self.random.one_in(3);
        self.tell(format!("{count} blocks of metadata, every copy: {every}"));
        for _ in 0..count {
            let (copies, size) = &targets.metadata[self.random.index(targets.metadata.len())];
            let one = self.random.index(copies.len());
            for (number, (device, at)) in copies.iter().enumerate() {
                if every || number == one {
                    let random = &mut self.random;
                    let device = &mut self.devices[*device];
                    device.change(*at, *size, &mut |bytes| damage(bytes, random));
                }
            }
        }
    }

    /// Puts some sectors where others are.
    fn move_sectors(&mut self) {
        use device::Device as _;
        let count = 1 + self.random.below(32);
        self.tell(format!("{count} sectors put elsewhere"));
        for _ in 0..count {
            let (from, to) = (self.used_sector(), self.used_sector());
            let (Some(from), Some(to)) = (from, to) else { continue };
            let mut moved = [0; SECTOR];
            if self.devices[from.0].read_at(from.1, &mut moved).is_ok() {
                self.devices[to.0].change(to.1, SECTOR, &mut |bytes| bytes.copy_from_slice(&moved));
            }
        }
    }

    fn used_sector(&mut self) -> Option<(usize, u64)> {
        let device = self.random.index(self.devices.len());
        let used = self.targets.used.get(device).filter(|used| !used.is_empty())?;
        Some((device, used[self.random.index(used.len())] * SECTOR as u64))
    }

    fn cut(&mut self) {
        use device::Device as _;
        let device = self.random.index(self.devices.len());
        let size = self.devices[device].size();
        let new = match self.random.below(6) {
            0 => 0,
            1 => self.random.below(1 << 20),
            2 => size - LABEL,
            3 => size + self.random.below(1 << 24),
            4 => size - 1,
            _ => self.random.below(size),
        };
        self.tell(format!("device {device} of {size} bytes made {new} long"));
        self.devices[device].resize(new);
    }

    /// A part of one device on another.
    fn graft(&mut self) {
        use device::Device as _;
        let count = self.devices.len();
        let (from, to) = (self.random.index(count), self.random.index(count));
        let at = self.random.below(self.devices[to].size() / LABEL) * LABEL;
        let source = self.random.pick(&[at, 0, at / 2 / LABEL * LABEL]);
        self.tell(format!("256 KiB of device {from} at {source} put on {to} at {at}"));
        let mut bytes = vec![0; 256 << 10];
        if self.devices[from].read_at(source, &mut bytes).is_ok() {
            let length = bytes.len();
            self.devices[to].change(at, length, &mut |target| target.copy_from_slice(&bytes));
        }
    }

    fn label_gone(&mut self) {
        let devices = self.some_devices();
        self.tell(format!("labels of {devices:?} overwritten"));
        let fill = self.random.pick(&[0, 0xff, 0x5a]);
        for device in devices {
            for label in self.some_labels(device) {
                let size = usize::try_from(LABEL).unwrap_or(0);
                self.devices[device].change(label, size, &mut |bytes| bytes.fill(fill));
            }
        }
    }
}
