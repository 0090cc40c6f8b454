//! The pool's own properties; the table has those that were set.
//!
//! They stand in a table that the pool's directory names ("pool_props"): numbers, which for
//! properties with words are their places in the list of words, and texts that end with a zero.
//!
//! Learnt from: the tables of OpenZFS's pools. Proved by: `pools_have_properties_of_their_own` in
//! the engine, which asks zdb.

use ondisk::ObjectType;
use units::ObjectId;
use zap::ZapValue;

use super::context::{POOL_DIRECTORY, SyncTaskContext};
use crate::Result;

/// The entry of the pool's directory.
const POOL_PROPS: &str = "pool_props";

/// Sets a property to a number.
pub fn set_pool_property(change: &SyncTaskContext<'_>, name: &str, number: u64) -> Result<()> {
    let table = open_pool_props(change)?;
    change.update_u64(table, name, number)
}

/// Sets a property to a text.
pub fn set_pool_property_text(change: &SyncTaskContext<'_>, name: &str, text: &str) -> Result<()> {
    let table = open_pool_props(change)?;
    change.update(table, name, &ZapValue::new(1, [text.as_bytes(), &[0]].concat()))
}

/// Resets a property to its default.
pub fn unset_pool_property(change: &SyncTaskContext<'_>, name: &str) -> Result<()> {
    let table = open_pool_props(change)?;
    change.remove(table, name).map(drop)
}

/// A numeric property; none if it is not set.
pub fn pool_property_u64(change: &SyncTaskContext<'_>, name: &str) -> Result<Option<u64>> {
    let Some(table) = change.lookup_u64(POOL_DIRECTORY, POOL_PROPS)? else { return Ok(None) };
    let value = change.lookup(ObjectId::new(table), name)?;
    Ok(value.as_ref().and_then(ZapValue::u64))
}

fn open_pool_props(change: &SyncTaskContext<'_>) -> Result<ObjectId> {
    match change.lookup_u64(POOL_DIRECTORY, POOL_PROPS)? {
        Some(table) => Ok(ObjectId::new(table)),
        None => change.create_named_zap(ObjectType::POOL_PROPS, POOL_DIRECTORY, POOL_PROPS),
    }
}
