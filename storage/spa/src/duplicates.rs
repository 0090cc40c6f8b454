//! Several devices whose labels claim to be one leaf: an image and its copies, a disk and its clone, the
//! two paths to one disk. The pool uses one of them; writing to another would fork its history.

use std::collections::BTreeMap;
use std::path::Path;

use ondisk::label::VdevConfig;
use units::{Guid, Txg};

use crate::labels::{LabelCopy, LabeledDevice};

/// A device that is not used, as another one with the same label is.
#[derive(Clone, Debug)]
pub struct Duplicate {
    /// The device that is left alone.
    pub device: LabeledDevice,
    /// The name of the device that is used.
    pub used_device: String,
}

/// The sort key of a device, the most important first: the newest txg, the match of the path in its
/// label, and the number of its valid labels.
type Preference = (Txg, usize, usize);

fn preference(device: &LabeledDevice) -> Preference {
    let tree = device.config.pool.tree.as_ref();
    let mut leaves = tree.into_iter().flat_map(VdevConfig::leaves);
    let leaf = leaves.find(|leaf| leaf.guid == device.guid());
    let in_label = || device.config.nvlist.text("path");
    let remembered = leaf.and_then(|leaf| leaf.path.clone()).or_else(in_label);
    let found = device.device.path().unwrap_or(Path::new(device.device.name()));
    let fit = remembered.map_or(0, |path| device::path_match_score(Path::new(&path), found));
    let valid = device.copies.iter().filter(|copy| matches!(copy, LabelCopy::Valid(_))).count();
    (device.newest_txg(), fit, valid)
}

/// Splits devices into the used ones, one for each leaf, and their duplicates. Of equals the
/// first one is used. The order stays.
pub(crate) fn split_duplicates(
    devices: Vec<LabeledDevice>,
) -> (Vec<LabeledDevice>, Vec<Duplicate>) {
    let mut best: BTreeMap<Guid, (usize, Preference)> = BTreeMap::new();
    for (index, device) in devices.iter().enumerate() {
        let new = preference(device);
        best.entry(device.guid())
            .and_modify(|known| {
                if known.1 < new {
                    *known = (index, new);
                }
            })
            .or_insert((index, new));
    }
    let is_used = |(index, device): &(usize, LabeledDevice)| {
        best.get(&device.guid()).is_some_and(|(chosen, _)| chosen == index)
    };
    let (used, others): (Vec<_>, Vec<_>) = devices.into_iter().enumerate().partition(is_used);
    let used: Vec<LabeledDevice> = used.into_iter().map(|(_, device)| device).collect();
    let duplicate = |(_, device): (usize, LabeledDevice)| {
        let same = used.iter().find(|other| other.guid() == device.guid())?;
        Some(Duplicate { used_device: same.device.name().to_owned(), device })
    };
    let duplicates = others.into_iter().filter_map(duplicate).collect();
    (used, duplicates)
}
