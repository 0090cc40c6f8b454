//! How much a pool can hold.
//!
//! The space for datasets is less than that of the devices. A fixed ratio per vdev accounts for
//! parity and padding. Slop is reserved, so that a full pool can still delete. One metaslab of each
//! larger vdev is for the intent log. The savings of dedup and cloning are added. The rest is the
//! root dataset's `used` and `available` together.
//!
//! Learnt from: the root datasets' figures of all fixtures. Proved by: `usable_space`.

use dmu::Objset;
use ondisk::dedup::{self, CloneTable, Sums, TableName};
use ondisk::dsl::Bpobj;
use ondisk::label::{Bias, VdevConfig, VdevKind};
use ondisk::spacemap::SpaceMapHeader;
use ondisk::{Dva, Order, Reader};
use units::{Ashift, MinusOrZero, ObjectId};
use vdev::VdevTree;

use crate::active::dva_dsize;
use crate::{DedupLogs, Pool, PoolDirectory};

/// A vdev with more metaslabs than this keeps one for the intent log.
const EMBEDDED_LOG_MIN_METASLABS: u64 = 64;
/// No vdev is believed to have more metaslabs.
const MAX_METASLABS: u64 = 1 << 20;
/// 1/32 of the space is kept back.
const SLOP_SHIFT: u32 = 5;
/// But not less than this, and not more than that.
const SLOP_MIN: u64 = 128 << 20;
const SLOP_MAX: u64 = 128 << 30;
/// The ratio of a vdev is that of a block of this size.
const DEFLATE_BLOCK_SIZE: u64 = 1 << 17;

/// Bytes that the root dataset has used and available together.
pub fn usable_space(pool: &Pool) -> u64 {
    let all = base_space(pool).saturating_add(saved_space(pool));
    all.minus_or_zero(checkpointed_space(pool))
}

/// Bytes that dedup and cloning save.
pub(crate) fn saved_space(pool: &Pool) -> u64 {
    saved_by_dedup(pool).saturating_add(saved_by_cloning(pool))
}

/// The same without what dedup and cloning save and what only the checkpoint uses: these change with every
/// txg.
pub(crate) fn base_space(pool: &Pool) -> u64 {
    let (mut space, mut logs) = (0_u64, 0_u64);
    let tops = pool.config().tree.as_ref().map_or(&[][..], |root| &root.children);
    for top in tops.iter().filter(|top| is_normal_class(pool, top)) {
        let (Some(asize), Some(shift)) = (top.asize, top.metaslab_shift) else { continue };
        if !(1..64).contains(&shift) || top.non_allocating || top.removing {
            continue;
        }
        let count = asize >> shift;
        let log = u64::from(count > EMBEDDED_LOG_MIN_METASLABS);
        let metaslabs =
            |from, to| -> u64 { (from..to).map(|n| metaslab_capacity(pool, top, n)).sum() };
        // that of the intent log is the emptiest, of those the first; in draids not all are alike
        let log_space = deflate_space(pool.tree(), top, metaslabs(0, log));
        let all = deflate_space(pool.tree(), top, metaslabs(0, count.min(MAX_METASLABS)));
        space = space.saturating_add(all.saturating_sub(log_space));
        logs = logs.saturating_add(log_space);
    }
    let mut kept = (space >> SLOP_SHIFT).min(SLOP_MAX);
    kept = (kept - logs.min(kept >> 1)).max(SLOP_MIN.min(space >> 1));
    space.minus_or_zero(deferred_space(pool)).minus_or_zero(kept)
}

/// Whether blocks of common kinds lie on a vdev.
fn is_normal_class(pool: &Pool, top: &VdevConfig) -> bool {
    !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing)
        && !top.is_log
        && allocation_bias(pool, top).is_none()
}

/// Completes the pool's own description of its vdevs with what each is kept for.
pub(crate) fn fill_biases(pool: &mut Pool) {
    let Some(root) = &pool.config.tree else { return };
    let found: Vec<_> = root.children.iter().map(|top| allocation_bias(pool, top)).collect();
    let tops = pool.config.tree.iter_mut().flat_map(|root| &mut root.children);
    for (top, bias) in tops.zip(found) {
        top.bias = bias;
    }
}

/// The class of a top-level vdev. The pool's configuration does not have it, only the vdev's ZAP.
pub fn allocation_bias(pool: &Pool, top: &VdevConfig) -> Option<Bias> {
    if top.bias.is_some() {
        return top.bias.clone();
    }
    let table = zap::Zap::open(pool.mos().object(top.top_zap?).ok()?).ok()?;
    let value = table.lookup(b"org.zfsonlinux:allocation_bias").ok()??;
    match value.as_str() {
        Some(name) => Some(Bias::from_name(name)),
        None => Bias::from_number(value.u64()?),
    }
}

/// Bytes of a vdev's metaslab that can be allocated: in a draid whole rows of its groups.
fn metaslab_capacity(pool: &Pool, top: &VdevConfig, number: u64) -> u64 {
    let Some(shift) = top.metaslab_shift.and_then(|shift| u32::try_from(shift).ok()) else {
        return 0;
    };
    let size = 1_u64.checked_shl(shift).unwrap_or(0);
    let node = pool.tree().top(top.id);
    let Some(vdev::NodeKind::Draid(draid, _)) = node.as_deref().map(|node| &node.kind) else {
        return size;
    };
    let row = draid.row_size();
    let start = number.saturating_mul(size);
    let cut = start.next_multiple_of(row.max(1)).saturating_sub(start);
    size.saturating_sub(cut).checked_div(row).unwrap_or(0).saturating_mul(row)
}

/// Bytes of blocks that `space` bytes of a vdev hold.
fn deflate_space(tree: &VdevTree, top: &VdevConfig, space: u64) -> u64 {
    if tree.counts_parity() {
        return space;
    }
    let sectors = tree.asize(top.id, DEFLATE_BLOCK_SIZE, units::Txg::ZERO).or_else(|| {
        let ashift = Ashift::new(top.ashift.unwrap_or(9))?;
        Some(ashift.round_up(DEFLATE_BLOCK_SIZE))
    });
    let sectors = sectors.unwrap_or(DEFLATE_BLOCK_SIZE) >> 9;
    let ratio = DEFLATE_BLOCK_SIZE.checked_div(sectors).unwrap_or(1 << 9);
    (space >> 9).saturating_mul(ratio)
}

/// Bytes that the dedup tables save, by their statistics.
fn saved_by_dedup(pool: &Pool) -> u64 {
    let (referenced, stored) = dedup_totals(&dedup_histogram(pool.mos(), pool.tree()));
    referenced.wrapping_sub(stored)
}

/// Bytes of the deduplicated blocks if each reference had its own copy, and their actual
/// allocated bytes.
fn dedup_totals(sums: &[Sums]) -> (u64, u64) {
    let add = |of: fn(&Sums) -> u64| sums.iter().map(of).fold(0, u64::wrapping_add);
    (add(|sums| sums.referenced_dsize), add(|sums| sums.dsize))
}

/// The dedup ratio times 100: 100 if dedup saves nothing.
pub fn dedup_ratio(sums: &[Sums]) -> u64 {
    let (referenced, stored) = dedup_totals(sums);
    let ratio = (u128::from(referenced) * 100).checked_div(stored.into());
    ratio.and_then(|ratio| ratio.try_into().ok()).unwrap_or(100)
}

/// The statistics of the dedup tables: sums over the blocks with 1, 2 to 3, 4 to 7 references, and
/// so on; entries in their logs are only counted. Empty without tables.
pub fn dedup_histogram(mos: &Objset, tree: &VdevTree) -> Vec<Sums> {
    let Ok(directory) = PoolDirectory::open(mos.clone()) else { return Vec::new() };
    let Ok(Some(object)) = directory.object("DDT-statistics") else { return Vec::new() };
    let Ok(table) = zap::Zap::open(object) else { return Vec::new() };
    let mut all = vec![Sums::default(); 64];
    let size_of = |dva: &Dva| dva_dsize(tree, *dva);
    for (_, logs) in DedupLogs::read_all(mos, &directory).unwrap_or_default() {
        // a key that cannot be is not a figure to lose the others for
        let _ = logs.add_to_histogram(&mut all, &size_of);
    }
    for entry in table.entries().flatten() {
        // a zap's numbers have their most significant byte first
        let sums = dedup::histogram(entry.value.bytes(), Order::Big).unwrap_or_default();
        for (all, sums) in all.iter_mut().zip(&sums) {
            *all = all.combined(sums, u64::wrapping_add);
        }
    }
    all
}

/// Bytes on the drives of the deduplication tables and their logs. A table that cannot be read counts as empty.
pub fn dedup_table_bytes(mos: &Objset) -> u64 {
    let Ok(directory) = PoolDirectory::open(mos.clone()) else { return 0 };
    let bytes_of = |id| mos.object(ObjectId::new(id)).map_or(0, |object| object.dnode().used_bytes);
    let mut bytes = 0;
    for entry in directory.zap().entries().flatten() {
        let name = String::from_utf8_lossy(&entry.name);
        match (TableName::parse(&name), entry.value.u64()) {
            (Some(TableName::Table(..)), Some(id)) => bytes += bytes_of(id),
            (Some(TableName::Directory(_)), Some(id)) => {
                let object = mos.object(ObjectId::new(id)).ok();
                let Some(Ok(tables)) = object.map(zap::Zap::open) else { continue };
                let ids = tables.entries().flatten().filter_map(|entry| {
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    let is_table = matches!(
                        TableName::parse(&name),
                        Some(TableName::Table(..) | TableName::Log(..))
                    );
                    entry.value.u64().filter(|_| is_table)
                });
                bytes += ids.map(bytes_of).sum::<u64>();
            }
            _ => (),
        }
    }
    bytes
}

/// Bytes that cloned blocks save, by the heads of their tables.
fn saved_by_cloning(pool: &Pool) -> u64 {
    let tops = pool.config().tree.as_ref().map_or(&[][..], |root| &root.children);
    let tables = tops.iter().filter_map(|top| {
        let object = pool.directory().object(&dedup::clone_table_name(top.id)).ok()??;
        let mut bonus = Reader::new("clone table", object.bonus(), object.bonus_order());
        CloneTable::read(&mut bonus).ok()
    });
    tables.fold(0, |saved, table| saved.saturating_add(table.saved))
}

/// Bytes of deferred frees.
fn deferred_space(pool: &Pool) -> u64 {
    let deferred = pool.directory().object("sync_bplist").ok().flatten().and_then(|object| {
        let list = Bpobj::parse(object.bonus(), object.bonus_order());
        list.ok().map(|list| list.bytes)
    });
    deferred.unwrap_or(0)
}

/// Bytes that only the checkpoint uses. Parity is not taken out: OpenZFS takes them off as the vdevs count
/// them.
fn checkpointed_space(pool: &Pool) -> u64 {
    let tops = pool.config().tree.as_ref().map_or(&[][..], |root| &root.children);
    let kept = tops.iter().filter_map(|top| {
        let table = zap::Zap::open(pool.mos().object(top.top_zap?).ok()?).ok()?;
        let map = table.lookup_u64(b"com.delphix:pool_checkpoint_sm").ok()??;
        let object = pool.mos().object(ObjectId::new(map)).ok()?;
        let mut bonus = Reader::new("space map", object.bonus(), object.bonus_order());
        let header = SpaceMapHeader::read(&mut bonus).ok()?;
        // it records frees, so that its sum is below 0
        Some(header.allocated.unsigned_abs())
    });
    kept.fold(0, u64::saturating_add)
}
