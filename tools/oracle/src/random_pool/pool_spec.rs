//! Random vdevs on new images.

use std::path::{Path, PathBuf};

use engine::pool::{DraidLayout, NewPool, NewVdev, VdevLayout, VdevRole};
use sim::Random;

use super::features::Features;
use super::pool_workload::{random_encryption, random_properties};
use super::{POOL, RoundError, random_element};

/// Cache drives of a gigabyte and more keep a log of their blocks.
const LOGGED_CACHE_SIZE: u64 = 1200 << 20;

/// A pool that is to be made.
pub(super) struct PoolSpec {
    pub(super) new_pool: NewPool,
    /// A description in one line.
    pub(super) description: String,
    /// Whether it has a cache drive that keeps a log of its blocks.
    pub(super) has_l2arc_log: bool,
    /// The key of its topmost file system, if that is encrypted.
    pub(super) key: Option<Vec<u8>>,
}

/// Makes images, one after the other.
struct ImageFiles<'a> {
    folder: &'a Path,
    count: usize,
}

impl ImageFiles<'_> {
    fn create(&mut self, count: u64, size: u64) -> Result<Vec<PathBuf>, RoundError> {
        let mut made = Vec::new();
        for _ in 0..count {
            let path = self.folder.join(format!("d{}.img", self.count));
            std::fs::File::create(&path)
                .and_then(|file| file.set_len(size))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            self.count += 1;
            made.push(path);
        }
        Ok(made)
    }
}

/// A layout of data vdevs that the features allow, and its number of drives.
fn random_layout(chance: &mut Random, features: &Features) -> (VdevLayout, u64) {
    let (shape, width) = match chance.next_below(10) {
        0 => (VdevLayout::Single, 1),
        1 | 2 => (VdevLayout::Mirror, random_element(chance, &[2, 2, 3])),
        3 | 4 => {
            let (parity, spares) =
                (random_element(chance, &[1, 1, 2, 3]), random_element(chance, &[0, 1, 1, 2]));
            let data = random_element(chance, &[1, 2, 3, 4]);
            let width = u64::from(parity + data + spares) + chance.next_below(4);
            (VdevLayout::Draid(DraidLayout { parity, data, spares }), width.max(2))
        }
        kind => {
            let parity = random_element(chance, &[1, 2, 3]);
            (VdevLayout::Raidz(parity), u64::from(parity) + 1 + chance.next_below(4) + kind % 2)
        }
    };
    let shape = match shape {
        VdevLayout::Draid(groups) if !features.is_enabled("draid") => {
            VdevLayout::Raidz(groups.parity)
        }
        shape => shape,
    };
    (shape, width)
}

pub(super) fn random_spec(
    chance: &mut Random,
    features: &Features,
    folder: &Path,
) -> Result<PoolSpec, RoundError> {
    let mut images = ImageFiles { folder, count: 0 };
    let size = random_element(chance, &[96_u64, 128, 200, 300]) << 20;
    let (shape, width) = random_layout(chance, features);
    let tops = if shape == VdevLayout::Single {
        random_element(chance, &[1, 2, 3])
    } else {
        1 + chance.next_below(2)
    };
    let ashift = random_element(chance, &[9, 9, 12, 12, 13]);
    let mut about = format!("{shape:?} of {width} x{tops}, ashift {ashift}");
    let mut vdevs = Vec::new();
    for _ in 0..tops {
        let drives = images.create(width, size)?;
        vdevs.push(NewVdev { layout: shape, drives, role: VdevRole::Data });
    }
    for (percent, purpose) in [(25, VdevRole::Log), (25, VdevRole::Special), (10, VdevRole::Dedup)]
    {
        let may_be = purpose == VdevRole::Log || features.is_enabled("allocation_classes");
        if chance.chance_percent(percent) && may_be {
            let mirror = purpose != VdevRole::Log || chance.chance_percent(30);
            let (shape, width) =
                if mirror { (VdevLayout::Mirror, 2) } else { (VdevLayout::Single, 1) };
            let drives = images.create(width, 96 << 20)?;
            about += &format!(", {purpose:?}");
            vdevs.push(NewVdev { layout: shape, drives, role: purpose });
        }
    }
    let mut logged = false;
    for (percent, purpose) in [(20, VdevRole::Spare), (15, VdevRole::Cache)] {
        if chance.chance_percent(percent) {
            let grown = purpose == VdevRole::Cache && size > 96 << 20;
            let drives = images.create(1, if grown { LOGGED_CACHE_SIZE } else { size })?;
            about += &format!(", {purpose:?}{}", if grown { " with a log" } else { "" });
            logged |= grown;
            vdevs.push(NewVdev { layout: VdevLayout::Single, drives, role: purpose });
        }
    }
    let special = vdevs.iter().any(|vdev| vdev.role == VdevRole::Special);
    let (mut properties, mut secret) = (random_properties(chance, special), None);
    if chance.chance_percent(10) && features.is_enabled("encryption") {
        let (more, key) = random_encryption(chance);
        properties.extend(more);
        secret = Some(key);
        about += ", encrypted";
    }
    features.retain_allowed(&mut properties);
    let name = POOL.to_owned();
    let new = NewPool { name, vdevs, ashift: Some(ashift), properties, force: true };
    Ok(PoolSpec { new_pool: new, description: about, has_l2arc_log: logged, key: secret })
}
