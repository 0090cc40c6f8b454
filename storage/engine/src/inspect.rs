//! The structures on disk, as facts: trees of names and values that print well and are JSON.
//!
//! Names that end in `time` are seconds since 1970; sizes and offsets are bytes; block addresses
//! are vdev:offset:size, in hexadecimal, as zdb writes them.

mod blocks;
mod labels;
mod lists;
mod objects;
mod space;

pub use labels::{labels, uberblocks};
pub(crate) use lists::read_history;
/// A tree of names and values.
pub use serde_json::Value as Facts;

use crate::{Error, RescuePool, Result};

/// The most rows of one kind, unless all are requested.
pub const MAX_ROWS: usize = 10_000;

impl RescuePool {
    /// The object set of the pool itself (its name alone) or of a dataset in it. Of a locked
    /// dataset the unencrypted parts can be shown.
    fn objset(&self, name: &str) -> Result<dmu::Objset> {
        let name = self.full_name(name);
        if name == self.name() {
            return Ok(self.spa().mos().clone());
        }
        // "pool/" is the pool's root dataset, as the pool's name alone is the pool
        let name = name.strip_suffix('/').unwrap_or(&name);
        let dataset = self.find_dataset(name)?;
        let opened = match dataset.open_objset() {
            Err(dsl::Error::KeyNotLoaded { .. }) => dataset.objset(None),
            other => other,
        };
        opened.map_err(|error| Error::from_dsl_error(name, &error))
    }

    fn object(&self, name: &str, object: u64) -> Result<dmu::Object> {
        let objset = self.objset(name)?;
        objset
            .object(units::ObjectId::new(object))
            .map_err(|error| object_error(name, object, &error))
    }
}

fn object_error(name: &str, object: u64, error: &dmu::Error) -> Error {
    if error.is_not_found() {
        return Error::NotFound { what: format!("object {object} in '{name}'") };
    }
    unreadable_error(format!("object {object} of '{name}'"), error)
}

fn unreadable_error(subject: impl Into<String>, error: &impl ToString) -> Error {
    Error::Unreadable { subject: subject.into(), why: error.to_string() }
}
