//! The pool's own properties, which are those that somebody set.
//!
//! They stand in a table that the pool's directory names ("pool_props"): numbers, which for
//! properties with words are their places in the list of words, and texts that end with a zero.
//!
//! Learnt from: the tables of OpenZFS's pools. Proved by: `pools_have_properties_of_their_own` in
//! the engine, which asks zdb.

use ondisk::ObjectType;
use units::ObjectId;
use zap::ZapValue;

use super::change::{Change, DIRECTORY};
use crate::Result;

/// The entry of the pool's directory.
const TABLE: &str = "pool_props";

/// Sets a property to a number.
pub fn set_pool_number(change: &Change<'_>, name: &str, number: u64) -> Result<()> {
    let table = pool_properties(change)?;
    change.put_number(table, name, number)
}

/// Takes a property back to what it is where nobody set it.
pub fn unset_pool_property(change: &Change<'_>, name: &str) -> Result<()> {
    let table = pool_properties(change)?;
    change.remove(table, name).map(drop)
}

/// A property that is a number; none: nobody set it.
pub fn pool_number(change: &Change<'_>, name: &str) -> Result<Option<u64>> {
    let Some(table) = change.number(DIRECTORY, TABLE)? else { return Ok(None) };
    let value = change.value(ObjectId::new(table), name)?;
    Ok(value.as_ref().and_then(ZapValue::u64))
}

fn pool_properties(change: &Change<'_>) -> Result<ObjectId> {
    match change.number(DIRECTORY, TABLE)? {
        Some(table) => Ok(ObjectId::new(table)),
        None => change.new_named_table(ObjectType::POOL_PROPS, DIRECTORY, TABLE),
    }
}
