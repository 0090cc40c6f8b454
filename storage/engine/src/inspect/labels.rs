//! The labels of one device: its four copies, and its uberblocks.

use std::path::Path;
use std::sync::Arc;

use device::Device;
use ondisk::label;
use ondisk::uberblock::Uberblock;
use serde_json::json;
use spa::{LabelCopy, LabeledDevice};

use super::{Facts, blocks, lists};
use crate::{Error, Result, summary};

/// The devices that a path names: itself, and where it is an image of a whole disk its partitions.
fn open_devices(path: &Path) -> Result<Vec<Arc<dyn Device>>> {
    if path.is_dir() {
        return Err(Error::IsDirectory { path: path.display().to_string() });
    }
    let found = device::probe(&[path.to_owned()]);
    if let Some(refused) = found.errors.first() {
        return Err(Error::from_device_error(refused));
    }
    Ok(found.devices)
}

/// Those with a label; if there are none, all, to show the reasons.
fn labelled_devices(path: &Path) -> Result<Vec<Arc<dyn Device>>> {
    let all = open_devices(path)?;
    let good: Vec<_> =
        all.iter().filter(|device| spa::read_labels(device).0.is_some()).cloned().collect();
    Ok(if good.is_empty() { all } else { good })
}

/// The four copies of each label on a device, the damage of each, and the content of the best.
pub fn labels(path: &Path) -> Result<Facts> {
    let mut all = Vec::new();
    for device in labelled_devices(path)? {
        let (best, copies) = spa::read_labels(&device);
        let offsets = label::offsets(device.size());
        let rows: Vec<Facts> = copies
            .iter()
            .zip(offsets)
            .enumerate()
            .map(|(index, (each, offset))| label_copy(index, offset, each, best.as_ref()))
            .collect();
        let mut facts = json!({
            "device": device.name(),
            "size": device.size(),
            "copies": rows,
        });
        if copies.is_empty() {
            facts["problem"] = json!("the device is too small for labels");
        }
        if let Some(best) = best {
            if let Some((size, wanted)) = summary::truncation(&best) {
                let what =
                    format!("truncated: its vdev takes {wanted} bytes, it ends after {size}");
                facts["problem"] = json!(what);
            }
            facts["uberblocks"] = json!(best.slots.len());
            facts["newest_txg"] = json!(best.newest_txg().get());
            facts["config"] = lists::nvlist_facts(&best.config.nvlist);
        }
        all.push(facts);
    }
    Ok(match all.len() {
        1 => all.remove(0),
        _ => Facts::Array(all),
    })
}

fn label_copy(index: usize, offset: u64, copy: &LabelCopy, best: Option<&LabeledDevice>) -> Facts {
    let slots = best.map_or(&[][..], |best| &best.slots);
    let standing = slots.iter().filter(|slot| usize::try_from(slot.copy).ok() == Some(index));
    let (state, txg) = match copy {
        LabelCopy::Unreadable(error) => (format!("cannot be read: {error}"), None),
        LabelCopy::Empty => ("nothing was ever written there".to_owned(), None),
        LabelCopy::BadChecksum => ("damaged: its checksum does not match".to_owned(), None),
        LabelCopy::Malformed(error) => (format!("no label: {error}"), None),
        LabelCopy::Valid(config) => {
            let newest = best.map(|best| best.config.pool.txg);
            let old = newest.is_some_and(|newest| config.pool.txg < newest);
            let state = if old { "good, and older than another" } else { "good" };
            (state.to_owned(), Some(config.pool.txg.get()))
        }
    };
    json!({
        "copy": index,
        "offset": offset,
        "txg": txg,
        "uberblocks": standing.count(),
        "state": state,
    })
}

/// The uberblocks that stand on a device, best first.
pub fn uberblocks(path: &Path) -> Result<Facts> {
    let mut all = Vec::new();
    for device in labelled_devices(path)? {
        let (best, _) = spa::read_labels(&device);
        let Some(best) = best else {
            let why = "none of its four copies is valid; `inspect labels` shows each";
            let path = device.name().to_owned();
            return Err(Error::NoLabel { path, why: why.to_owned() });
        };
        let rows: Vec<Facts> = best
            .slots
            .iter()
            .map(|slot| {
                let mut facts = uberblock_facts(&slot.uberblock);
                facts["copy"] = json!(slot.copy);
                facts["offset"] = json!(slot.offset);
                facts
            })
            .collect();
        all.push(json!({ "device": device.name(), "uberblocks": rows }));
    }
    Ok(match all.len() {
        1 => all.remove(0),
        _ => Facts::Array(all),
    })
}

pub(super) fn uberblock_facts(uberblock: &Uberblock) -> Facts {
    let mut facts = json!({
        "txg": uberblock.txg.get(),
        "time": uberblock.timestamp,
        "version": uberblock.version,
        "guid_sum": uberblock.guid_sum,
        "order": format!("{:?}", uberblock.order).to_lowercase(),
    });
    if let Some(multihost) = uberblock.multihost.filter(|multihost| multihost.delay > 0) {
        facts["multihost_delay"] = json!(multihost.delay);
        facts["multihost_sequence"] = json!(multihost.sequence);
    }
    if uberblock.is_checkpoint() {
        facts["checkpoint_txg"] = json!(uberblock.checkpoint_txg.get());
    }
    if uberblock.reflow.offset > 0 {
        facts["reflow_offset"] = json!(uberblock.reflow.offset);
    }
    facts["root"] = json!(blocks::format_pointer(&uberblock.root));
    facts
}
