//! Setting several properties in one txg: all of them, or none.
//!
//! Every value is checked before the first is set. A limit may still be refused when it is set,
//! because it depends on the other limits. Limits are set first, and are reset if one is refused.
//!
//! The order of the command does not count. A quota may be lowered only to what is reserved, and a reservation raised
//! only to the quota. So what gives room comes first: if the limits are valid together, each step is valid.

use units::ObjectId;
use zap::ZapValue;

use super::context::SyncTaskContext;
use super::set_property::{SetSource, apply_limits, check_settable, set_property};
use crate::local_properties::{LocalProperties, PropertyValue};
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
    let (mut limits, others): (Vec<_>, Vec<_>) =
        settings.iter().partition(|(property, _)| LIMITS.contains(&property.as_str()));
    if limits.len() > 1 && !name.contains('@') {
        let table = change.dir_phys(change.find_head(name)?.dir)?.properties;
        let before = LocalProperties::read(change.mos, table)?;
        limits.sort_by_key(|(property, value)| LimitStep::of(property, value, &before));
    }
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

/// The step in which a limit is set, the first one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LimitStep {
    LowerReservation,
    RaiseQuota,
    LowerQuota,
    RaiseReservation,
}

impl LimitStep {
    /// The step of a limit, by its value in the table before the change.
    fn of(property: &str, value: &PropertyValue, before: &LocalProperties) -> Self {
        let number = |value: &PropertyValue| match value {
            PropertyValue::Number(number) => *number,
            PropertyValue::Text(_) => 0,
        };
        let (old, new) = (before.get(property).map_or(0, |set| number(&set.value)), number(value));
        match property {
            "reservation" | "refreservation" if new <= old => Self::LowerReservation,
            "reservation" | "refreservation" => Self::RaiseReservation,
            // 0: no quota
            "quota" | "refquota" if new != 0 && (old == 0 || new < old) => Self::LowerQuota,
            _ => Self::RaiseQuota,
        }
    }
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
