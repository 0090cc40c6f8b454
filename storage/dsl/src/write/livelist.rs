//! Changing livelists: what was born and what died in a clone since it was made.
//!
//! A clone that still shares most of its blocks is destroyed by its livelist, without reading its
//! whole tree. Where it shares less than a quarter it has none any more.

use ondisk::dsl::Dir as DirPhys;
use units::{ObjectId, Txg};

use super::change::{Change, DIRECTORY, TABLE};
use super::deadlist;
use super::features::{self, guid};
use super::list::Item;
use crate::Result;
use crate::lists::bpobj_header;

/// The name of the set of the livelists of destroyed clones.
pub(crate) const DELETED: &str = "com.delphix:deleted_clones";
/// Births in a stretch after which the next txg begins a new one.
const MOST: u64 = 500_000;
/// A clone that shares fewer percent of its blocks with its origin has no livelist.
const LEAST_SHARED: u64 = 75;

/// A directory's livelist.
pub(crate) fn of(change: &Change<'_>, dir: ObjectId) -> Result<Option<ObjectId>> {
    change.field_object(dir, DirPhys::LIVELIST)
}

/// Adds what was born and what died in this txg.
pub(crate) fn add(change: &Change<'_>, livelist: ObjectId, items: Vec<Item>) -> Result<()> {
    let full = match deadlist::parts(change, livelist)?.last() {
        Some((start, list)) => {
            let header = bpobj_header(change.mos, *list)?;
            header.count.saturating_sub(header.freed) > MOST && *start < before(change)
        }
        None => true,
    };
    if full {
        deadlist::add_stretches(change, livelist, &[before(change)])?;
    }
    deadlist::insert(change, livelist, items)
}

fn before(change: &Change<'_>) -> Txg {
    Txg::new(change.txg().get().saturating_sub(1))
}

/// Removes the livelist of a clone that shares too little for one to be of use.
pub(crate) fn remove_if_useless(change: &Change<'_>, dir: ObjectId) -> Result<()> {
    let record = change.dir(dir)?;
    let referenced = change.dataset(record.head)?.referenced;
    let shared = referenced.saturating_sub(record.breakdown.head).saturating_mul(100);
    if shared.checked_div(referenced).is_some_and(|percent| percent <= LEAST_SHARED) {
        remove(change, dir)?;
    }
    Ok(())
}

/// Removes a directory's livelist, if it has one. The blocks in it are not touched.
pub(crate) fn remove(change: &Change<'_>, dir: ObjectId) -> Result<()> {
    let Some(livelist) = of(change, dir)? else { return Ok(()) };
    change.remove_field(dir, DirPhys::LIVELIST)?;
    deadlist::release(change, livelist)?;
    features::take(change, guid::LIVELIST)
}

/// Hands a destroyed clone's livelist to the pool, which frees what is in it.
pub(crate) fn hand_over(change: &Change<'_>, dir: ObjectId, livelist: ObjectId) -> Result<()> {
    let set = match change.number(DIRECTORY, DELETED)? {
        Some(set) => ObjectId::new(set),
        None => change.new_named_table(TABLE, DIRECTORY, DELETED)?,
    };
    change.insert_member(set, livelist.get())?;
    change.remove_field(dir, DirPhys::LIVELIST).map(drop)
}
