//! Setting several properties in one txg: all of them, or none.
//!
//! Every value is checked before the first is set. A limit may still be refused when it is set,
//! because it depends on the other limit. Limits are set first, and are reset if one is refused.

use units::ObjectId;
use zap::ZapValue;

use super::context::SyncTaskContext;
use super::set_property::{SetSource, apply_limits, check_settable, set_property};
use crate::local_properties::PropertyValue;
use crate::{DatasetKind, Result};

/// The entries of one property in the table, besides its name.
const SUFFIXES: [&str; 4] = ["", "$inherit", "$iuv", "$recvd"];
/// Properties that change the accounting.
const LIMITS: [&str; 6] =
    ["quota", "refquota", "reservation", "refreservation", "filesystem_limit", "snapshot_limit"];

/// Sets properties of a file system, volume or snapshot. If one of them cannot be set, none is. A value is as
/// [`crate::property::parse_value`] gives it.
pub fn set_properties(
    change: &SyncTaskContext<'_>,
    name: &str,
    kind: DatasetKind,
    settings: &[(String, PropertyValue)],
) -> Result<()> {
    for (property, value) in settings {
        check_settable(change, kind, (property, value))?;
    }
    let (limits, others): (Vec<_>, Vec<_>) =
        settings.iter().partition(|(property, _)| LIMITS.contains(&property.as_str()));
    let mut saved = Vec::new();
    for (property, value) in limits.into_iter().chain(others) {
        if !name.contains('@') {
            saved.push(SavedProperty::of(change, name, property)?);
        }
        let set = set_property(change, name, kind, (property, value), SetSource::Local);
        if let Err(why) = set {
            while let Some(before) = saved.pop() {
                before.restore(change, name)?;
            }
            return Err(why);
        }
    }
    Ok(())
}

/// The entries of a property as they were.
struct SavedProperty<'a> {
    property: &'a str,
    table: ObjectId,
    entries: [Option<ZapValue>; SUFFIXES.len()],
}

impl<'a> SavedProperty<'a> {
    fn of(change: &SyncTaskContext<'_>, name: &str, property: &'a str) -> Result<Self> {
        let head = change.find_head(name)?;
        let table = change.dir_phys(head.dir)?.properties;
        let mut entries = SUFFIXES.map(|_| None);
        for (entry, suffix) in entries.iter_mut().zip(SUFFIXES) {
            *entry = change.lookup(table, &format!("{property}{suffix}"))?;
        }
        Ok(Self { property, table, entries })
    }

    fn restore(self, change: &SyncTaskContext<'_>, name: &str) -> Result<()> {
        let head = change.find_head(name)?;
        let local = self.entries.first().and_then(Option::as_ref);
        let number = local.and_then(ZapValue::u64).unwrap_or(0);
        if LIMITS.contains(&self.property) {
            apply_limits(change, head, self.property, number)?;
        }
        for (entry, suffix) in self.entries.iter().zip(SUFFIXES) {
            let key = format!("{}{suffix}", self.property);
            match entry {
                Some(value) => change.update(self.table, &key, value)?,
                None => drop(change.remove(self.table, &key)?),
            }
        }
        Ok(())
    }
}
