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
    for config in root.leaves().filter(|config| has_dtl(config)) {
        let Some(leaf) = pool.tree().leaf(config.guid) else { continue };
        let anything = |_| TxgRanges::new([(Txg::new(1), pool.txg())]);
        let ranges = config.dtl.map(|object| read_dtl(pool.mos(), object).unwrap_or_else(anything));
        let ranges = ranges.unwrap_or_default();
        if !ranges.is_empty() {
            // earlier errors, before that was known, do not count
            leaf.clear_errors();
        }
        if leaf.device().is_none() && config.kind != VdevKind::DraidSpare {
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

fn has_dtl(config: &VdevConfig) -> bool {
    matches!(config.kind, VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare)
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
