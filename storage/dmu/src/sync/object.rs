//! Writing one object: from its versions of a group to its new dnode.

use std::sync::Arc;

use ondisk::Blkptr;
use ondisk::dnode::Dnode;
use units::{BlockId, Level};
use zio::{Block, WriteRequest};

use super::forest::{Forest, Job, moved};
use super::{Syncing, Wanted, Written};
use crate::live::Entry;
use crate::live::entry::{Content, Facts, Kept};
use crate::object::SPILL;
use crate::tree::Tree;
use crate::{Error, Objset, Result};

/// What a group has to write of an object.
struct Version {
    base: Option<Arc<Tree>>,
    facts: Option<Facts>,
    blocks: Vec<(u64, Content)>,
    freed: Vec<std::ops::Range<u64>>,
    /// The last: what the spill becomes.
    spill: Vec<Option<Block>>,
}

fn version(entry: &Entry, syncing: &Syncing<'_>) -> Version {
    let state = entry.state.read();
    let txg = syncing.txg;
    let blocks = state.blocks.iter().filter_map(|(block, versions)| {
        let found = versions.iter().find(|(known, _)| *known == txg);
        found.map(|(_, content)| (*block, content.clone()))
    });
    let freed = state.freed.iter().filter(|(known, _)| *known == txg);
    let facts = state.facts().iter().find(|(known, _)| *known == txg);
    let spill = state.spill.iter().find(|(known, _)| *known == txg);
    Version {
        base: state.base.clone(),
        facts: facts.map(|(_, facts)| facts.clone()),
        blocks: blocks.collect(),
        freed: freed.map(|(_, range)| range.clone()).collect(),
        spill: spill.map(|(_, content)| content.clone()).into_iter().collect(),
    }
}

/// Writes what a group has changed in an object, and marks it with the flags `accounted`.
pub(super) fn write(
    objset: &Objset,
    syncing: &Syncing<'_>,
    entry: &Arc<Entry>,
    accounted: u8,
) -> Result<Written> {
    let version = version(entry, syncing);
    let before = version.base.clone();
    let kept = version.facts.as_ref().map_or(Kept::All, |facts| facts.kept);
    if let Some(base) = before.as_ref().filter(|_| kept != Kept::All) {
        let mut forest = Forest::new(syncing, base, &base.dnode);
        forest.kill_all()?;
        if let Some(spill) = base.dnode.spill.as_ref().filter(|_| kept == Kept::Nothing) {
            moved(syncing.ledger, spill, &Blkptr::EMPTY);
        }
    }
    let dnode = match (&version.facts, &before) {
        (Some(Facts { dnode: None, .. }), _) | (None, None) => None,
        (Some(Facts { dnode: Some(dnode), .. }), base) => {
            Some(on_base(syncing, dnode, (kept, base.as_deref())))
        }
        (None, Some(base)) => Some(base.dnode.clone()),
    };
    let entry = Arc::clone(entry);
    let Some(dnode) = dnode else { return Ok(Written { entry, before, after: None }) };
    let mut after = write_content(objset, syncing, &entry, dnode, &version)?;
    after.flags.0 |= accounted;
    Ok(Written { entry, before, after: Some(after) })
}

/// The facts of a group with what they keep of the tree that is on the drives.
fn on_base(syncing: &Syncing<'_>, facts: &Dnode, (kept, base): (Kept, Option<&Tree>)) -> Dnode {
    let mut dnode = facts.clone();
    let base = base.map(|tree| &tree.dnode);
    dnode.spill = base.filter(|_| kept != Kept::Nothing).and_then(|base| base.spill.clone());
    if let Some(base) = base.filter(|_| kept == Kept::All) {
        dnode.pointers.clone_from(&base.pointers);
        dnode.levels = base.levels;
        dnode.used_bytes = base.used_bytes;
    } else {
        dnode.pointers.fill(Blkptr::EMPTY);
        dnode.used_bytes = dnode.spill.as_ref().map_or(0, |spill| syncing.ledger.size(spill));
    }
    dnode
}

fn write_content(
    objset: &Objset,
    syncing: &Syncing<'_>,
    entry: &Entry,
    mut dnode: Dnode,
    version: &Version,
) -> Result<Dnode> {
    let (source, key) = (Arc::clone(objset.source()), objset.key().cloned());
    let below = Tree::new(source, key, objset.id(), entry.id, dnode.clone());
    let mut forest = Forest::new(syncing, &below, &dnode);
    for range in &version.freed {
        forest.clear(range)?;
    }
    let last = version.blocks.last().map_or(0, |(block, _)| *block);
    dnode.max_block = dnode.max_block.max(BlockId::new(last));
    forest.reach(dnode.max_block.get());
    let mut jobs = Vec::with_capacity(version.blocks.len());
    for (block, content) in &version.blocks {
        match content {
            Content::Bytes(content) => {
                jobs.push(Job { block: *block, content: content.clone(), fill: 1 });
            }
            Content::Cloned(clone) => forest.share(*block, &clone.pointer)?,
            Content::Stored(stored) => {
                forest.share(*block, &stored.shared().pointer)?;
                stored.keep();
            }
            // who stores it holds the group until it is there
            Content::Coming(_) => {
                let place = below.place(0, *block);
                return Err(Error::NoContent { place });
            }
        }
    }
    forest.store(&jobs)?;
    forest.finish()?;
    let mut grown = forest.grown;
    dnode.pointers = std::mem::take(&mut forest.roots);
    dnode.levels = forest.levels;
    if let Some(content) = version.spill.last() {
        let previous = dnode.spill.take().unwrap_or(Blkptr::EMPTY);
        let now = match content {
            Some(content) => write_spill(syncing, &below, &dnode, content, &previous)?,
            None => Blkptr::EMPTY,
        };
        if now != previous {
            moved(syncing.ledger, &previous, &now);
        }
        grown = grown
            .saturating_add_unsigned(syncing.ledger.size(&now))
            .saturating_sub_unsigned(syncing.ledger.size(&previous));
        dnode.spill = content.as_ref().map(|_| now);
    }
    dnode.used_bytes = dnode.used_bytes.saturating_add_signed(grown);
    dnode.flags.0 = dnode.flags.0 & !4 | if dnode.spill.is_some() { 4 } else { 0 };
    syncing.form.mark(&mut dnode);
    Ok(dnode)
}

fn write_spill(
    syncing: &Syncing<'_>,
    below: &Tree,
    dnode: &Dnode,
    content: &Block,
    previous: &Blkptr,
) -> Result<Blkptr> {
    let (kind, level) = (dnode.bonus_kind, Level::new(0));
    let (checksum, compression) = (dnode.checksum, dnode.compression);
    let mut policy = (syncing.policy)(Wanted { kind, level, checksum, compression });
    policy.hole_of_zeros = false;
    let request = WriteRequest {
        data: content,
        kind,
        level,
        fill: 1,
        txg: syncing.txg,
        policy: &policy,
        previous,
        place: below.place(0, SPILL.get()),
    };
    Ok(syncing.sink.write(&request)?)
}
