//! Sets and inherits properties.
//!
//! Some properties are more than an entry in a table: quotas and reservations are in the
//! directory's record and change the accounting.

use ondisk::feature::Feature;
use ondisk::{ObjectType, version};
use units::ObjectId;
use zap::ZapValue;

use super::context::{SyncTaskContext, u64_value};
use super::names::HeadIds;
use super::{create, features, limits};
use crate::local_properties::{LocalProperties, PropertyValue};
use crate::property::{default_value, is_inheritable, is_settable};
use crate::{DatasetKind, Error, Result};

/// Where a value comes from that is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetSource {
    /// A user set it here.
    Local,
    /// It came with a send stream.
    Received,
}

const ZSTD_FEATURE: &str = "org.freebsd:zstd_compress";

/// There is a received value here, perhaps of another property.
const HAS_RECVD: &str = "$hasrecvd";

/// Sets a property of a file system, volume or snapshot; its value is as [`crate::property::parse_value`]
/// gives it.
pub fn set_property(
    change: &SyncTaskContext<'_>,
    name: &str,
    kind: DatasetKind,
    (property, value): (&str, &PropertyValue),
    by: SetSource,
) -> Result<()> {
    check_settable(change, kind, (property, value))?;
    let entry = match by {
        SetSource::Local => PropertyChange::Local(value),
        SetSource::Received => PropertyChange::Received(value),
    };
    apply_change(change, name, property, &entry)
}

/// Whether a dataset of that kind may have the value, as far as that does not depend on other properties.
pub(super) fn check_settable(
    change: &SyncTaskContext<'_>,
    kind: DatasetKind,
    (property, value): (&str, &PropertyValue),
) -> Result<()> {
    is_settable(property, kind)?;
    check_features(change, property, value)
}

/// Makes a property inherit its value, or use its default. With `received` it reverts to the
/// received value, if there is one.
pub fn inherit_property(
    change: &SyncTaskContext<'_>,
    name: &str,
    kind: DatasetKind,
    property: &str,
    received: bool,
) -> Result<()> {
    is_settable(property, kind)?;
    if !received && !is_inheritable(property) {
        return Err(Error::NotInheritable { property: property.to_owned() });
    }
    let entry = if received { PropertyChange::ReceivedOnly } else { PropertyChange::Inherited };
    apply_change(change, name, property, &entry)
}

/// The properties of a file system or volume that have a received value, whether it counts or not.
pub fn received_property_names(change: &SyncTaskContext<'_>, name: &str) -> Result<Vec<String>> {
    let table = change.dir_phys(change.find_dir(name)?)?.properties;
    let received = LocalProperties::read_received(change.mos, table)?;
    Ok(received.into_iter().map(|(property, _)| property).collect())
}

/// Removes the received value of a property. A value that was set here stays.
pub fn remove_received_property(
    change: &SyncTaskContext<'_>,
    name: &str,
    property: &str,
) -> Result<()> {
    apply_change(change, name, property, &PropertyChange::NotReceived)
}

/// Makes a property inherit its value in place of the received one. A value that was set here stays.
pub fn exclude_received_property(
    change: &SyncTaskContext<'_>,
    name: &str,
    kind: DatasetKind,
    property: &str,
) -> Result<()> {
    let table = change.dir_phys(change.find_dir(name)?)?.properties;
    let settings = LocalProperties::read(change.mos, table)?;
    if settings.get(property).is_some_and(|set| !set.is_received) {
        return Ok(());
    }
    inherit_property(change, name, kind, property, false)
}

/// The effective value of a property of a directory's head: set there, or inherited, or else the
/// default.
pub fn effective_value(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    property: &str,
) -> Result<Option<PropertyValue>> {
    for (at, dir) in limits::ancestors(change, dir)?.into_iter().enumerate() {
        if at > 0 && !is_inheritable(property) {
            break;
        }
        let settings = LocalProperties::read(change.mos, change.dir_phys(dir)?.properties)?;
        if let Some(set) = settings.get(property) {
            return Ok(Some(set.value.clone()));
        }
    }
    Ok(default_value(property))
}

/// The new entries of a property.
enum PropertyChange<'a> {
    Local(&'a PropertyValue),
    Received(&'a PropertyValue),
    /// The received value is overridden.
    Inherited,
    /// Only the received value is left.
    ReceivedOnly,
    /// There is no received value.
    NotReceived,
}

fn apply_change(
    change: &SyncTaskContext<'_>,
    name: &str,
    property: &str,
    entry: &PropertyChange<'_>,
) -> Result<()> {
    if name.contains('@') {
        change.require_version(version::SNAPSHOT_PROPERTIES)?;
        let (_, snapshot) = change.find_snapshot(name)?;
        return apply_to_snapshot(change, snapshot, property, entry);
    }
    let head = change.find_head(name)?;
    let table = change.dir_phys(head.dir)?.properties;
    let after = value_after(change, table, property, entry)?;
    apply_limits(change, head, property, after)?;
    activate_zstd_feature(change, head, property, entry)?;
    write_entries(change, table, property, entry)
}

/// A pool must not be imported by systems without zstd from the moment on in which a property names
/// it: a boot loader may read the property before it reads a block.
fn activate_zstd_feature(
    change: &SyncTaskContext<'_>,
    head: HeadIds,
    property: &str,
    entry: &PropertyChange<'_>,
) -> Result<()> {
    let value = match entry {
        PropertyChange::Local(PropertyValue::Number(number))
        | PropertyChange::Received(PropertyValue::Number(number)) => *number,
        _ => return Ok(()),
    };
    let zstd =
        Feature::by_guid(ZSTD_FEATURE).filter(|_| property == "compression" && value & 0x7f == 16);
    zstd.map_or(Ok(()), |zstd| create::ensure_feature_active(change, head.dataset, zstd))
}

fn apply_to_snapshot(
    change: &SyncTaskContext<'_>,
    snapshot: ObjectId,
    property: &str,
    entry: &PropertyChange<'_>,
) -> Result<()> {
    let known = change.dataset_phys(snapshot)?.properties;
    let removes = !matches!(entry, PropertyChange::Local(_) | PropertyChange::Received(_));
    if !known.exists() && removes {
        return Ok(());
    }
    let table = change.zap_or_create(known, ObjectType::DSL_PROPS)?;
    write_entries(change, table, property, entry)?;
    let left = if change.zap_count(table)? == 0 {
        change.free_object(table)?;
        ObjectId::META
    } else {
        table
    };
    change.update_dataset(snapshot, |it| it.properties = left)
}

/// The number that a property which is not inherited will have.
fn value_after(
    change: &SyncTaskContext<'_>,
    table: ObjectId,
    property: &str,
    entry: &PropertyChange<'_>,
) -> Result<u64> {
    let local = change.lookup(table, property)?.is_some();
    let hidden = change.lookup(table, &format!("{property}$inherit"))?.is_some();
    let received = change.lookup(table, &format!("{property}$recvd"))?.and_then(|it| it.u64());
    let now = match LocalProperties::read(change.mos, table)?.get(property).map(|set| &set.value) {
        Some(PropertyValue::Number(number)) => *number,
        _ => 0,
    };
    let number = |value: &PropertyValue| match value {
        PropertyValue::Number(number) => *number,
        PropertyValue::Text(_) => 0,
    };
    Ok(match entry {
        PropertyChange::Received(_) | PropertyChange::NotReceived if local || hidden => now,
        PropertyChange::Local(value) | PropertyChange::Received(value) => number(value),
        PropertyChange::Inherited | PropertyChange::NotReceived => 0,
        PropertyChange::ReceivedOnly => received.unwrap_or(0),
    })
}

/// The further changes of a quota or reservation.
pub(super) fn apply_limits(
    change: &SyncTaskContext<'_>,
    head: HeadIds,
    property: &str,
    after: u64,
) -> Result<()> {
    let before = limits::head_limits(change, head.dir)?.refreservation;
    match property {
        "quota" => limits::set_quota(change, head.dir, after),
        "reservation" => limits::set_reservation(change, head.dir, after),
        "refquota" => limits::check_refquota(change, head.dir, after),
        "refreservation" => limits::set_refreservation(change, head.dir, before, after),
        // nothing is counted for the sake of no limit
        "filesystem_limit" | "snapshot_limit" if after != u64::MAX => {
            limits::enable_counts(change, head.dir)
        }
        _ => Ok(()),
    }
}

fn write_entries(
    change: &SyncTaskContext<'_>,
    table: ObjectId,
    property: &str,
    entry: &PropertyChange<'_>,
) -> Result<()> {
    let named = |suffix: &str| format!("{property}{suffix}");
    let remove = |suffix: &str| change.remove(table, &named(suffix)).map(drop);
    match entry {
        PropertyChange::Local(value) => {
            remove("$inherit")?;
            if is_new_value(property, value) {
                // versions that do not know the value see the default
                change.update(table, &named("$iuv"), &to_zap_value(value))?;
                let known = default_value(property).unwrap_or(PropertyValue::Number(0));
                return change.update(table, property, &to_zap_value(&known));
            }
            remove("$iuv")?;
            change.update(table, property, &to_zap_value(value))
        }
        PropertyChange::Received(value) => {
            change.update_u64(table, HAS_RECVD, 0)?;
            change.update(table, &named("$recvd"), &to_zap_value(value))
        }
        PropertyChange::Inherited => {
            remove("")?;
            remove("$iuv")?;
            if change.lookup(table, HAS_RECVD)?.is_some() {
                change.update_u64(table, &named("$inherit"), 0)?;
            }
            Ok(())
        }
        PropertyChange::ReceivedOnly => {
            remove("")?;
            // it would override the received value
            remove("$iuv")?;
            remove("$inherit")
        }
        PropertyChange::NotReceived => remove("$recvd"),
    }
}

/// Values that a property did not have in older versions, which would refuse them.
fn is_new_value(property: &str, value: &PropertyValue) -> bool {
    match (property, value) {
        ("redundant_metadata", PropertyValue::Number(number)) => *number >= 2,
        ("snapdir", PropertyValue::Number(number)) => *number == 2,
        _ => false,
    }
}

fn to_zap_value(value: &PropertyValue) -> ZapValue {
    match value {
        PropertyValue::Number(number) => u64_value(&[*number]),
        PropertyValue::Text(text) => ZapValue::new(1, [text.as_bytes(), &[0]].concat()),
    }
}

/// The first pool version that supports the property with such a value.
fn required_version(property: &str, number: u64) -> u64 {
    match (property, number & 0x7f) {
        ("compression", 5..=13) => version::GZIP,
        ("compression", 14) => version::ZLE,
        ("copies", 2..) => version::DITTO_BLOCKS,
        ("refquota" | "refreservation", _) => version::UNIQUE_ACCURATE,
        ("aclinherit", 5) => version::ACL_PASSTHROUGH_X,
        ("dedup", 1..) => version::DEDUP,
        _ => 1,
    }
}

/// Refuses a value that needs a feature or version that the pool has not enabled.
fn check_features(
    change: &SyncTaskContext<'_>,
    property: &str,
    value: &PropertyValue,
) -> Result<()> {
    let PropertyValue::Number(number) = *value else { return Ok(()) };
    change.require_version(required_version(property, number))?;
    let checksum = |number: u64| match number & 0xff {
        11 => Some("org.illumos:sha512"),
        12 => Some("org.illumos:skein"),
        13 => Some("org.illumos:edonr"),
        14 => Some("org.openzfs:blake3"),
        _ => None,
    };
    let needed = match property {
        "compression" if number & 0x7f == 16 => Some(ZSTD_FEATURE),
        "compression" if number & 0x7f == 15 => Some("org.illumos:lz4_compress"),
        "checksum" | "dedup" => checksum(number),
        "recordsize" if number > 128 << 10 => Some("org.open-zfs:large_blocks"),
        "dnodesize" if number != 0 => Some("org.zfsonlinux:large_dnode"),
        "longname" if number != 0 => Some("org.zfsonlinux:longname"),
        _ => None,
    };
    match needed {
        Some(guid) if !features::is_enabled(change, guid)? => Err(Error::FeatureDisabled { guid }),
        _ => Ok(()),
    }
}
