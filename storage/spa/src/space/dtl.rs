//! The txgs that a drive missed (DTL): a space map whose offsets are txgs.

use dmu::Objset;
use ondisk::label::{VdevConfig, VdevKind};
use ondisk::spacemap::{Action, Entry};
use units::{MinusOrZero, ObjectId, Txg};
use vdev::TxgRanges;

use crate::space::space_map_entries;
use crate::{Error, Pool};

/// Sets every leaf's DTL. A leaf with an unreadable DTL may have missed anything.
pub(crate) fn load_dtls(pool: &Pool) {
    let Some(root) = &pool.config().tree else { return };
    let leaves = pool.tree().leaves();
    for config in root.leaves().filter(|config| is_physical_leaf(config)) {
        let Some(leaf) = leaves.iter().find(|leaf| leaf.guid() == config.guid) else { continue };
        let anything = |_| TxgRanges::new([(Txg::new(1), pool.txg())]);
        let ranges = config.dtl.map(|object| read_dtl(pool.mos(), object).unwrap_or_else(anything));
        let ranges = ranges.unwrap_or_default();
        if !ranges.is_empty() {
            // earlier errors, before that was known, do not count
            leaf.clear_errors();
        }
        if leaf.device().is_none() {
            // it may have taken part until now, whatever else it lacks
            let gone = ranges.iter().find(|(first, last)| (*first..=*last).contains(&pool.txg()));
            let first = gone.map(|(first, _)| first.get());
            leaf.record_label_txg(
                first.map_or(pool.txg(), |first| Txg::new(first.minus_or_zero(1))),
            );
            if gone.is_some() {
                leaf.set_absent_since(pool.txg());
            }
        }
        leaf.set_dtl(ranges);
    }
}

/// A distributed spare that lacks something which it was to get.
pub(crate) fn incomplete_spare(pool: &Pool) -> Option<&VdevConfig> {
    let root = pool.config().tree.as_ref()?;
    let mut spares = root.leaves().filter(|config| matches!(config.kind, VdevKind::DraidSpare));
    spares.find(|config| {
        let missed = config.dtl.map(|object| read_dtl(pool.mos(), object));
        missed.is_some_and(|missed| missed.is_ok_and(|missed| !missed.is_empty()))
    })
}

fn is_physical_leaf(config: &VdevConfig) -> bool {
    matches!(config.kind, VdevKind::Disk | VdevKind::File)
}

fn read_dtl(mos: &Objset, object: ObjectId) -> Result<TxgRanges, Error> {
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
