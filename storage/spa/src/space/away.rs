//! Which txgs a drive missed: a space map whose bytes are txgs.

use dmu::Objset;
use ondisk::label::{VdevConfig, VdevKind};
use ondisk::spacemap::{Action, Entry};
use units::{ObjectId, Txg};
use vdev::TxgRanges;

use crate::space::space_map_entries;
use crate::{Error, Pool};

/// Tells every leaf which txgs it missed. What cannot be read is left out: checksums find the rest.
pub(crate) fn load_away(pool: &Pool) {
    let Some(root) = &pool.config().tree else { return };
    let leaves = pool.tree().leaves();
    for config in root.leaves() {
        let (Some(object), true) = (config.dtl, is_device(config)) else { continue };
        let Ok(ranges) = away(pool.mos(), object) else { continue };
        if let Some(leaf) = leaves.iter().find(|leaf| leaf.guid() == config.guid) {
            if !ranges.is_empty() {
                // what it gave before that was known is no fault of its
                leaf.clear_errors();
            }
            if leaf.device().is_none() && ranges.contains(pool.txg()) {
                leaf.set_gone_since(pool.txg());
            }
            leaf.set_away(ranges);
        }
    }
}

fn is_device(config: &VdevConfig) -> bool {
    matches!(config.kind, VdevKind::Disk | VdevKind::File)
}

fn away(mos: &Objset, object: ObjectId) -> Result<TxgRanges, Error> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    space_map_entries(&mos.object(object)?, &mut |entry| {
        let Entry::Range { action, .. } = entry else { return };
        let Some((start, length)) = entry.bytes(0, 0) else { return };
        match action {
            Action::Allocated => ranges.push((start, start + length)),
            Action::Freed => {
                let end = start + length;
                let cut =
                    |(from, to): &(u64, u64)| [(*from, (*to).min(start)), ((*from).max(end), *to)];
                ranges = ranges.iter().flat_map(cut).filter(|(from, to)| from < to).collect();
            }
        }
    })?;
    Ok(TxgRanges::new(ranges.into_iter().map(|(from, to)| (Txg::new(from), Txg::new(to - 1)))))
}
