//! Space maps.

use ondisk::spacemap::{Action, Entry};
use serde_json::json;
use spa::{VdevSpace, space_map_entries};

use super::{Facts, MAX_ROWS, unreadable_error};
use crate::{Error, RescuePool, Result};

impl RescuePool {
    /// The top-level vdevs with their allocated space; of one vdev its metaslabs; of one metaslab
    /// the entries of its space map.
    pub fn inspect_space(&self, vdev: Option<u32>, metaslab: Option<usize>) -> Result<Facts> {
        let subject = || format!("the space of pool '{}'", self.name());
        let tops = self.spa().vdev_space().map_err(|error| unreadable_error(subject(), &error))?;
        let Some(vdev) = vdev else {
            let rows: Vec<Facts> = tops.iter().map(vdev_row).collect();
            return Ok(json!({ "pool": self.name(), "vdevs": rows }));
        };
        let no_vdev = || Error::NotFound {
            what: format!("vdev {vdev} with space in pool '{}'", self.name()),
        };
        let found = tops.iter().find(|top| top.vdev.get() == vdev).ok_or_else(no_vdev)?;
        let Some(number) = metaslab else { return self.metaslab_rows(found) };
        let no_map = || Error::NotFound { what: format!("metaslab {number} on vdev {vdev}") };
        let map = found.space_maps.get(number).ok_or_else(no_map)?;
        let start = (number as u64).checked_shl(found.metaslab_shift).unwrap_or(0);
        let Some(map) = map else {
            return Ok(json!({ "metaslab": number, "offset": start, "entries": [] }));
        };
        let object = self.spa().mos().object(*map).map_err(|e| unreadable_error(subject(), &e))?;
        let shift = vdev_ashift(self, vdev);
        let mut rows = Vec::new();
        let header = space_map_entries(&object, &mut |entry| {
            if rows.len() < MAX_ROWS {
                rows.extend(entry_row(entry, shift, start));
            }
        });
        let header = header.map_err(|error| unreadable_error(subject(), &error))?;
        Ok(json!({
            "metaslab": number,
            "offset": start,
            "object": map.get(),
            "length": header.length,
            "allocated": header.allocated,
            "entries": rows,
        }))
    }

    fn metaslab_rows(&self, top: &VdevSpace) -> Result<Facts> {
        let mut rows = Vec::new();
        for (number, map) in top.space_maps.iter().enumerate() {
            let start = (number as u64).checked_shl(top.metaslab_shift).unwrap_or(0);
            let mut facts = json!({ "metaslab": number, "offset": start });
            if let Some(map) = map {
                let object = self.spa().mos().object(*map);
                let object = object.map_err(|error| unreadable_error("a space map", &error))?;
                let header = {
                    let mut bonus =
                        ondisk::Reader::new("space map", object.bonus(), object.bonus_order());
                    ondisk::spacemap::SpaceMapHeader::read(&mut bonus)
                };
                facts["object"] = json!(map.get());
                match header {
                    Ok(header) => {
                        facts["allocated"] = json!(header.allocated);
                        facts["length"] = json!(header.length);
                    }
                    Err(error) => facts["problem"] = json!(error.to_string()),
                }
            }
            rows.push(facts);
        }
        Ok(json!({
            "vdev": top.vdev.get(),
            "metaslab_size": 1_u64.checked_shl(top.metaslab_shift),
            "metaslabs": rows,
        }))
    }
}

fn vdev_row(space: &VdevSpace) -> Facts {
    json!({
        "vdev": space.vdev.get(),
        "guid": space.guid.get(),
        "size": space.asize,
        "allocated": space.allocated,
        "metaslab_size": 1_u64.checked_shl(space.metaslab_shift),
        "metaslabs": space.space_maps.len(),
        "in_use": space.space_maps.iter().flatten().count(),
    })
}

/// log2 of the unit of a vdev's maps.
fn vdev_ashift(pool: &RescuePool, vdev: u32) -> u32 {
    let root = pool.spa().config().tree.as_ref();
    let top = root.and_then(|root| root.children.iter().find(|top| top.id.get() == vdev));
    top.and_then(|top| u32::try_from(top.ashift?).ok()).unwrap_or(9)
}

fn entry_row(entry: Entry, shift: u32, start: u64) -> Option<Facts> {
    match entry {
        Entry::Range { action, .. } => {
            let (offset, length) = entry.bytes(shift, start)?;
            let action = match action {
                Action::Allocated => "allocated",
                Action::Freed => "freed",
            };
            let offset = format!("{offset:#x}");
            Some(json!({ "action": action, "offset": offset, "length": length }))
        }
        Entry::Debug { txg, pass, .. } => {
            Some(json!({ "action": "in txg", "txg": txg.get(), "pass": pass }))
        }
        Entry::Padding => None,
    }
}
