//! Reading the labels of one device.

use std::sync::Arc;

use device::Device;
use ondisk::label::{self, Label, LabelConfig};
use ondisk::uberblock::Uberblock;
use ondisk::{Checksum, Error as Broken};
use transform::checksum::embedded;
use units::{Guid, Txg};

/// An uberblock that stands on a device, its checksum right.
#[derive(Clone, Debug)]
pub struct UberblockSlot {
    /// Which copy of the label: 0 to 3.
    pub copy: u32,
    /// Bytes from the device's start.
    pub offset: u64,
    /// The uberblock.
    pub uberblock: Uberblock,
}

/// One of the four copies of a label.
#[derive(Clone, Debug)]
pub enum LabelCopy {
    /// It could not be read.
    Unreadable(device::Error),
    /// It was never written.
    Empty,
    /// Its checksum does not fit: it is damaged.
    BadChecksum,
    /// Its checksum fits, and it is not a label.
    Malformed(Broken),
    /// A label.
    Valid(Box<LabelConfig>),
}

/// A device with its labels' content.
#[derive(Clone, Debug)]
pub struct LabeledDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The copies.
    pub copies: Vec<LabelCopy>,
    /// The label to believe: of the good ones the newest.
    pub config: LabelConfig,
    /// All uberblocks that stand, best first.
    pub slots: Vec<UberblockSlot>,
}

impl LabeledDevice {
    /// The device's identity in its pool.
    pub fn guid(&self) -> Guid {
        self.config.guid
    }

    /// The newest txg that it knows of.
    pub fn newest_txg(&self) -> Txg {
        self.slots.first().map_or(Txg::ZERO, |slot| slot.uberblock.txg)
    }
}

/// Reads the four copies of a device's label, and the uberblocks. The first is none where no copy
/// is good.
pub fn read(device: &Arc<dyn Device>) -> (Option<LabeledDevice>, Vec<LabelCopy>) {
    let mut copies = Vec::new();
    let mut raw = Vec::new();
    for (copy, offset) in (0..).zip(label::offsets(device.size())) {
        let mut bytes = vec![0; units::to_usize(label::SIZE)];
        match device.read_at(offset, &mut bytes) {
            Ok(()) => {
                copies.push(parse_label(&bytes, offset));
                raw.push((copy, offset, bytes));
            }
            Err(error) => copies.push(LabelCopy::Unreadable(error)),
        }
    }
    let good = || {
        copies.iter().filter_map(|copy| match copy {
            LabelCopy::Valid(config) => Some(config.as_ref()),
            _ => None,
        })
    };
    let Some(newest) = good().max_by_key(|config| config.pool.txg) else {
        return (None, copies);
    };
    let mut slots = Vec::new();
    for (copy, offset, bytes) in &raw {
        slots.extend(find_uberblocks(bytes, *copy, *offset, newest.ashift()));
    }
    slots.sort_by_key(|slot| std::cmp::Reverse(slot.uberblock.rank()));
    // a label newer than every uberblock is of an uncommitted txg
    let finished = slots.first().map_or(Txg::ZERO, |slot| slot.uberblock.txg);
    let known = good().filter(|config| config.pool.txg <= finished);
    let config = known.max_by_key(|config| config.pool.txg).unwrap_or(newest).clone();
    let labelled =
        LabeledDevice { device: Arc::clone(device), copies: copies.clone(), config, slots };
    (Some(labelled), copies)
}

fn parse_label(bytes: &[u8], offset: u64) -> LabelCopy {
    let Ok(label) = Label::new(bytes) else { return LabelCopy::Empty };
    let field = label.config();
    if field.iter().all(|byte| *byte == 0) {
        return LabelCopy::Empty;
    }
    if !has_valid_checksum(field, offset + label::CONFIG_OFFSET) {
        return LabelCopy::BadChecksum;
    }
    match label.nvlist().and_then(LabelConfig::parse) {
        Ok(config) => LabelCopy::Valid(Box::new(config)),
        Err(error) => LabelCopy::Malformed(error),
    }
}

/// Whether a part of a label that lies at `offset` of its device has the right checksum.
fn has_valid_checksum(bytes: &[u8], offset: u64) -> bool {
    embedded::verify(bytes, &[offset, 0, 0, 0], Checksum::Label, false)
}

/// The valid uberblocks of a copy. The size of their slots follows from the sector size
/// in the label; without it, every possible size is tried.
fn find_uberblocks(
    bytes: &[u8],
    copy: u32,
    offset: u64,
    ashift: Option<u64>,
) -> Vec<UberblockSlot> {
    let Ok(label) = Label::new(bytes) else { return Vec::new() };
    let sizes: &[u64] = match &ashift {
        Some(ashift) => std::slice::from_ref(ashift),
        None => &[10, 11, 12, 13],
    };
    let mut found = Vec::new();
    for ashift in sizes {
        for (at, slot) in label.slots(*ashift) {
            let offset = offset + at;
            let Ok(Some(uberblock)) = Uberblock::parse(slot) else { continue };
            if has_valid_checksum(slot, offset) {
                found.push(UberblockSlot { copy, offset, uberblock });
            }
        }
    }
    found
}
