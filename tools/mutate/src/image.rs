//! Mutants of devices: with changed bytes, truncated, swapped, removed, mixed.

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
const LABEL_SIZE: u64 = 256 << 10;
/// Where the description and the ring of uberblocks are in a label.
const NVLIST_RANGE: (u64, u64) = (16 << 10, 112 << 10);
const UBERBLOCK_RING: (u64, u64) = (128 << 10, 128 << 10);
/// The part of a device before the data.
const DATA_START: u64 = 4 << 20;
/// Bytes at a time in the search for used blocks.
const SCAN_CHUNK_SIZE: usize = 64 << 10;

/// The interesting ranges on the devices of one pool.
#[derive(Debug, Default)]
pub struct Targets {
    /// By device: sectors outside of labels that are not all zeros.
    used_sectors: Vec<Vec<u64>>,
    /// Blocks of metadata, where they are known: each copy by device and offset, and their size.
    metadata_blocks: Vec<(Vec<(usize, u64)>, usize)>,
}

/// Devices of a mutant.
#[derive(Debug)]
pub struct Mutant {
    /// The replacements of the pool's devices.
    pub devices: Vec<Arc<dyn Device>>,
    /// Its checksums were recomputed: its content may be anything.
    pub is_forged: bool,
    /// A description of the changes.
    pub changes: Vec<String>,
}

impl Targets {
    /// Searches devices, in the order of the pool's images, for used ranges.
    pub fn find(devices: &[Arc<dyn Device>], pool: Option<&Pool>) -> Self {
        let used_sectors = devices.iter().map(|device| find_used_sectors(&**device)).collect();
        let metadata_blocks =
            pool.map(|pool| find_metadata_blocks(devices, pool)).unwrap_or_default();
        Self { used_sectors, metadata_blocks }
    }
}

fn find_used_sectors(device: &dyn Device) -> Vec<u64> {
    let mut out = Vec::new();
    let mut buffer = vec![0; SCAN_CHUNK_SIZE];
    let zeros = vec![0; SCAN_CHUNK_SIZE];
    let end = device.size().saturating_sub(2 * LABEL_SIZE);
    for at in (DATA_START..end).step_by(SCAN_CHUNK_SIZE) {
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
fn find_metadata_blocks(
    devices: &[Arc<dyn Device>],
    pool: &Pool,
) -> Vec<(Vec<(usize, u64)>, usize)> {
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
                leaves.map(move |leaf| (*leaf, dva.offset.saturating_add(DATA_START)))
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
    let random = Random::from_parts(&[seed, 0x696d_6167]);
    let wrap = |(number, device): (usize, &Arc<dyn Device>)| {
        Overlay::new(format!("d{number}"), Arc::clone(device))
    };
    let devices = devices.iter().enumerate().map(wrap).collect();
    let mut work = Mutator { devices, targets, random, is_forged: false, changes: Vec::new() };
    for _ in 0..=work.random.next_below(3) {
        work.apply_random_change();
    }
    let Mutator { devices, mut random, is_forged, changes: mut story, .. } = work;
    let mut devices: Vec<Arc<dyn Device>> =
        devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect();
    rearrange_devices(&mut devices, others, &mut random, &mut story);
    Mutant { devices, is_forged, changes: story }
}

/// Changes of whole devices, in one of three mutants.
fn rearrange_devices(
    devices: &mut Vec<Arc<dyn Device>>,
    others: &[Arc<dyn Device>],
    random: &mut Random,
    story: &mut Vec<String>,
) {
    let (a, b) = (random.next_index(devices.len()), random.next_index(devices.len()));
    match random.next_below(15) {
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
            story.push(format!("device {a} removed"));
        }
        3 => {
            devices.extend(others.iter().cloned());
            story.push("another pool's devices beside".to_owned());
        }
        4 if !others.is_empty() => {
            devices[a] = Arc::clone(&others[random.next_index(others.len())]);
            story.push(format!("device {a} is another pool's"));
        }
        _ => {}
    }
}

struct Mutator<'a> {
    devices: Vec<Overlay>,
    targets: &'a Targets,
    random: Random,
    is_forged: bool,
    changes: Vec<String>,
}

impl Mutator<'_> {
    fn record_change(&mut self, what: impl Into<String>) {
        self.changes.push(what.into());
    }

    fn apply_random_change(&mut self) {
        match self.random.next_below(16) {
            0 => self.damage_labels(NVLIST_RANGE, false),
            1 | 2 => self.damage_labels(NVLIST_RANGE, true),
            3 => self.damage_labels(UBERBLOCK_RING, false),
            4 => self.forge_uberblocks(),
            5 => self.damage_labels((0, LABEL_SIZE), false),
            6..=8 => self.damage_sectors(),
            9..=11 => self.damage_metadata(),
            12 => self.move_sectors(),
            13 => self.resize_device(),
            14 => self.copy_region(),
            _ => self.overwrite_labels(),
        }
    }

    fn random_devices(&mut self) -> Vec<usize> {
        let all: Vec<usize> = (0..self.devices.len()).collect();
        if self.random.one_in(2) { all } else { vec![self.random.next_index(all.len())] }
    }

    /// The starts of some of a device's labels.
    fn random_labels(&mut self, device: usize) -> Vec<u64> {
        use device::Device as _;
        let end = self.devices[device].size() / LABEL_SIZE * LABEL_SIZE;
        let all =
            [0, LABEL_SIZE, end.saturating_sub(2 * LABEL_SIZE), end.saturating_sub(LABEL_SIZE)];
        if self.random.one_in(2) { all.to_vec() } else { vec![self.random.pick(&all)] }
    }

    /// Changes a part of labels, and their checksums if they are to be believed.
    fn damage_labels(&mut self, (start, length): (u64, u64), forged: bool) {
        self.is_forged |= forged;
        let devices = self.random_devices();
        self.record_change(format!("labels of {devices:?} changed at {start}, forged: {forged}"));
        let same = self.random.next_u64();
        for device in devices {
            for label in self.random_labels(device) {
                let mut random = Random::new(same);
                let at = label + start;
                let size = usize::try_from(length).unwrap_or(0);
                self.devices[device].edit_sectors(at, size, &mut |bytes| {
                    // the description is short, and bytes after it mean nothing
                    let near = if forged { bytes.len().min(4096) } else { bytes.len() };
                    for _ in 0..=random.next_below(6) {
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
    fn forge_uberblocks(&mut self) {
        self.is_forged = true;
        let devices = self.random_devices();
        let size = self.random.pick(&[1024, 4096, 8192]);
        self.record_change(format!("uberblocks of {size} bytes of {devices:?} forged"));
        let same = self.random.next_u64();
        for device in devices {
            for label in self.random_labels(device) {
                let mut at = label + UBERBLOCK_RING.0;
                while at < label + LABEL_SIZE {
                    let mut random = Random::new(same);
                    self.devices[device].edit_sectors(at, size, &mut |bytes| {
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
    fn damage_sectors(&mut self) {
        let count = 1_u64 << self.random.next_below(9);
        let run = self.random.pick(&[1, 1, 8, 64]);
        self.record_change(format!("{count} places of {run} sectors changed"));
        for _ in 0..count {
            let device = self.random.next_index(self.devices.len());
            let Some(used) = self.targets.used_sectors.get(device).filter(|used| !used.is_empty())
            else {
                continue;
            };
            let sector = used[self.random.next_index(used.len())];
            let random = &mut self.random;
            self.devices[device].edit_sectors(sector * SECTOR as u64, run * SECTOR, &mut |bytes| {
                damage(bytes, random);
            });
        }
    }

    /// Changes blocks of metadata: one copy, or each.
    fn damage_metadata(&mut self) {
        let targets = self.targets;
        if targets.metadata_blocks.is_empty() {
            return self.damage_sectors();
        }
        let count = 1_u64 << self.random.next_below(6);
        let every = !self.random.one_in(3);
        self.record_change(format!("{count} blocks of metadata, every copy: {every}"));
        for _ in 0..count {
            let (copies, size) =
                &targets.metadata_blocks[self.random.next_index(targets.metadata_blocks.len())];
            let one = self.random.next_index(copies.len());
            for (number, (device, at)) in copies.iter().enumerate() {
                if every || number == one {
                    let random = &mut self.random;
                    let device = &mut self.devices[*device];
                    device.edit_sectors(*at, *size, &mut |bytes| damage(bytes, random));
                }
            }
        }
    }

    /// Puts some sectors where others are.
    fn move_sectors(&mut self) {
        use device::Device as _;
        let count = 1 + self.random.next_below(32);
        self.record_change(format!("{count} sectors put elsewhere"));
        for _ in 0..count {
            let (from, to) = (self.random_used_sector(), self.random_used_sector());
            let (Some(from), Some(to)) = (from, to) else { continue };
            let mut moved = [0; SECTOR];
            if self.devices[from.0].read_at(from.1, &mut moved).is_ok() {
                self.devices[to.0]
                    .edit_sectors(to.1, SECTOR, &mut |bytes| bytes.copy_from_slice(&moved));
            }
        }
    }

    fn random_used_sector(&mut self) -> Option<(usize, u64)> {
        let device = self.random.next_index(self.devices.len());
        let used = self.targets.used_sectors.get(device).filter(|used| !used.is_empty())?;
        Some((device, used[self.random.next_index(used.len())] * SECTOR as u64))
    }

    fn resize_device(&mut self) {
        use device::Device as _;
        let device = self.random.next_index(self.devices.len());
        let size = self.devices[device].size();
        let new = match self.random.next_below(6) {
            0 => 0,
            1 => self.random.next_below(1 << 20),
            2 => size - LABEL_SIZE,
            3 => size + self.random.next_below(1 << 24),
            4 => size - 1,
            _ => self.random.next_below(size),
        };
        self.record_change(format!("device {device} of {size} bytes made {new} long"));
        self.devices[device].resize(new);
    }

    /// A part of one device on another.
    fn copy_region(&mut self) {
        use device::Device as _;
        let count = self.devices.len();
        let (from, to) = (self.random.next_index(count), self.random.next_index(count));
        let at = self.random.next_below(self.devices[to].size() / LABEL_SIZE) * LABEL_SIZE;
        let source = self.random.pick(&[at, 0, at / 2 / LABEL_SIZE * LABEL_SIZE]);
        self.record_change(format!("256 KiB of device {from} at {source} put on {to} at {at}"));
        let mut bytes = vec![0; 256 << 10];
        if self.devices[from].read_at(source, &mut bytes).is_ok() {
            let length = bytes.len();
            self.devices[to].edit_sectors(at, length, &mut |target| target.copy_from_slice(&bytes));
        }
    }

    fn overwrite_labels(&mut self) {
        let devices = self.random_devices();
        self.record_change(format!("labels of {devices:?} overwritten"));
        let fill = self.random.pick(&[0, 0xff, 0x5a]);
        for device in devices {
            for label in self.random_labels(device) {
                let size = usize::try_from(LABEL_SIZE).unwrap_or(0);
                self.devices[device].edit_sectors(label, size, &mut |bytes| bytes.fill(fill));
            }
        }
    }
}
