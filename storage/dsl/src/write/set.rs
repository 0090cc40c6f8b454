//! Setting properties, and leaving them to what is above.
//!
//! Some properties are more than an entry in a table: quotas and reservations stand in the
//! directory's record and change what is accounted.

use ondisk::feature::Feature;
use ondisk::{ObjectType, version};
use units::ObjectId;
use zap::ZapValue;

use super::change::{Change, words};
use super::names::Head;
use super::{create, features, limits};
use crate::property::{fallback, is_inherited, is_settable};
use crate::settings::{Setting, Settings};
use crate::{Error, Kind, Result};

/// Where a value comes from that is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// A user set it here.
    User,
    /// It came with a send stream.
    Stream,
}

const ZSTD: &str = "org.freebsd:zstd_compress";

/// There is a received value here, perhaps of another property.
const HAS_RECEIVED: &str = "$hasrecvd";

/// Sets a property of a file system, volume or snapshot; its value is as [`crate::property::parse`]
/// gives it.
pub fn set(
    change: &Change<'_>,
    name: &str,
    kind: Kind,
    (property, value): (&str, &Setting),
    by: By,
) -> Result<()> {
    is_settable(property, kind)?;
    judge_features(change, property, value)?;
    let entry = match by {
        By::User => Entry::Local(value),
        By::Stream => Entry::Received(value),
    };
    apply(change, name, property, &entry)
}

/// Leaves a property to what is above, or to its default. With `received` the value that came with
/// a send stream counts again, if there is one.
pub fn inherit(
    change: &Change<'_>,
    name: &str,
    kind: Kind,
    property: &str,
    received: bool,
) -> Result<()> {
    is_settable(property, kind)?;
    if !received && !is_inherited(property) {
        let why = "it is never inherited; set it to what it is to be, which is none for a limit";
        return Err(Error::BadProperty { property: property.to_owned(), why });
    }
    let entry = if received { Entry::None } else { Entry::Inherited };
    apply(change, name, property, &entry)
}

/// What is set for a property of a directory's head: there, or if it is inherited above, or else
/// its default.
pub fn effective(change: &Change<'_>, dir: ObjectId, property: &str) -> Result<Option<Setting>> {
    for (at, dir) in limits::chain(change, dir)?.into_iter().enumerate() {
        if at > 0 && !is_inherited(property) {
            break;
        }
        let settings = Settings::read(change.mos, change.dir(dir)?.properties)?;
        if let Some(set) = settings.get(property) {
            return Ok(Some(set.value.clone()));
        }
    }
    Ok(fallback(property))
}

/// What becomes of the entries of a property.
enum Entry<'a> {
    Local(&'a Setting),
    Received(&'a Setting),
    /// Whatever was received does not count.
    Inherited,
    /// Nothing but what was received.
    None,
}

fn apply(change: &Change<'_>, name: &str, property: &str, entry: &Entry<'_>) -> Result<()> {
    if name.contains('@') {
        change.require_version(version::SNAPSHOT_PROPERTIES)?;
        let (_, snapshot) = change.find_snapshot(name)?;
        return apply_to_snapshot(change, snapshot, property, entry);
    }
    let head = change.find_head(name)?;
    let table = change.dir(head.dir)?.properties;
    let after = after(change, table, property, entry)?;
    let before = limits::of_head(change, head.dir)?.reservation;
    account(change, head, property, before, after)?;
    note_use(change, head, property, entry)?;
    write(change, table, property, entry)
}

/// Who does not know zstd is not to have the pool from the moment on in which a property names it: a
/// boot loader may come to the property before it comes to a block.
fn note_use(change: &Change<'_>, head: Head, property: &str, entry: &Entry<'_>) -> Result<()> {
    let value = match entry {
        Entry::Local(Setting::Number(number)) | Entry::Received(Setting::Number(number)) => *number,
        _ => return Ok(()),
    };
    let zstd = Feature::by_guid(ZSTD).filter(|_| property == "compression" && value & 0x7f == 16);
    zstd.map_or(Ok(()), |zstd| create::note_feature(change, head.dataset, zstd))
}

fn apply_to_snapshot(
    change: &Change<'_>,
    snapshot: ObjectId,
    property: &str,
    entry: &Entry<'_>,
) -> Result<()> {
    let known = change.dataset(snapshot)?.properties;
    if !known.exists() && matches!(entry, Entry::None | Entry::Inherited) {
        return Ok(());
    }
    let table = change.table_or_new(known, ObjectType::DSL_PROPS)?;
    write(change, table, property, entry)?;
    let left = if change.count(table)? == 0 {
        change.free_object(table)?;
        ObjectId::META
    } else {
        table
    };
    change.change_dataset(snapshot, |it| it.properties = left)
}

/// The number that a property which is not inherited will have.
fn after(change: &Change<'_>, table: ObjectId, property: &str, entry: &Entry<'_>) -> Result<u64> {
    let local = change.value(table, property)?.is_some();
    let hidden = change.value(table, &format!("{property}$inherit"))?.is_some();
    let received = change.value(table, &format!("{property}$recvd"))?.and_then(|it| it.u64());
    let now = match Settings::read(change.mos, table)?.get(property).map(|set| &set.value) {
        Some(Setting::Number(number)) => *number,
        _ => 0,
    };
    let number = |value: &Setting| match value {
        Setting::Number(number) => *number,
        Setting::Text(_) => 0,
    };
    Ok(match entry {
        Entry::Received(_) if local || hidden => now,
        Entry::Local(value) | Entry::Received(value) => number(value),
        Entry::Inherited => 0,
        Entry::None => received.unwrap_or(0),
    })
}

/// What setting a quota or reservation changes besides the entry.
fn account(change: &Change<'_>, head: Head, property: &str, before: u64, after: u64) -> Result<()> {
    match property {
        "quota" => limits::set_quota(change, head.dir, after),
        "reservation" => limits::set_reservation(change, head.dir, after),
        "refquota" => limits::judge_head_quota(change, head.dir, after),
        "refreservation" => limits::set_head_reservation(change, head.dir, before, after),
        // nothing is counted for the sake of no limit
        "filesystem_limit" | "snapshot_limit" if after != u64::MAX => {
            limits::begin_to_count(change, head.dir)
        }
        _ => Ok(()),
    }
}

fn write(change: &Change<'_>, table: ObjectId, property: &str, entry: &Entry<'_>) -> Result<()> {
    let named = |suffix: &str| format!("{property}{suffix}");
    let remove = |suffix: &str| change.remove(table, &named(suffix)).map(drop);
    match entry {
        Entry::Local(value) => {
            remove("$inherit")?;
            if is_new_value(property, value) {
                // versions that do not know the value see the default
                change.put(table, &named("$iuv"), &stored(value))?;
                let known = fallback(property).unwrap_or(Setting::Number(0));
                return change.put(table, property, &stored(&known));
            }
            remove("$iuv")?;
            change.put(table, property, &stored(value))
        }
        Entry::Received(value) => change.put(table, &named("$recvd"), &stored(value)),
        Entry::Inherited => {
            remove("")?;
            remove("$iuv")?;
            if change.value(table, HAS_RECEIVED)?.is_some() {
                change.put_number(table, &named("$inherit"), 0)?;
            }
            Ok(())
        }
        Entry::None => {
            remove("")?;
            // it would go before what was received
            remove("$iuv")?;
            remove("$inherit")
        }
    }
}

/// Values that a property did not have in older versions, which would refuse them.
fn is_new_value(property: &str, value: &Setting) -> bool {
    match (property, value) {
        ("redundant_metadata", Setting::Number(number)) => *number >= 2,
        ("snapdir", Setting::Number(number)) => *number == 2,
        _ => false,
    }
}

fn stored(value: &Setting) -> ZapValue {
    match value {
        Setting::Number(number) => words(&[*number]),
        Setting::Text(text) => ZapValue::new(1, [text.as_bytes(), &[0]].concat()),
    }
}

/// The first pool version that knows a property with such a value.
fn version_of(property: &str, number: u64) -> u64 {
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

/// Refuses a value that writes what the pool has not enabled.
fn judge_features(change: &Change<'_>, property: &str, value: &Setting) -> Result<()> {
    let Setting::Number(number) = *value else { return Ok(()) };
    change.require_version(version_of(property, number))?;
    let checksum = |number: u64| match number & 0xff {
        11 => Some("org.illumos:sha512"),
        12 => Some("org.illumos:skein"),
        13 => Some("org.illumos:edonr"),
        14 => Some("org.openzfs:blake3"),
        _ => None,
    };
    let needed = match property {
        "compression" if number & 0x7f == 16 => Some(ZSTD),
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
