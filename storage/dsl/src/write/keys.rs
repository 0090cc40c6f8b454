//! Keys of encrypted datasets: their records, made and shared.
//!
//! A new encrypted dataset has keys of its own, closed with a user's key: its own, or that of the
//! encryption root above. Clones use the record of what they are clones of, and count themselves.

use ondisk::dsl::Dir as DirPhys;
use ondisk::feature::Feature;
use transform::crypt::WrappedKey;
use units::{ObjectId, ObjsetId};
use zap::ZapValue;

use super::change::{Change, TABLE};
use super::create;
use super::rename::encryption_root;
use crate::{Error, KeyFormat, Result};

const FEATURE: &str = "com.datto:encryption";
/// How many directories use a record.
const USERS: &str = "DSL_CRYPTO_REFCOUNT";

/// The keys of a new dataset.
#[derive(Clone, Debug)]
pub struct NewKey<'a> {
    /// The dataset's keys, closed with the user's key.
    pub wrapped: &'a WrappedKey,
    /// Whether the user's key is the dataset's own; else it is that of the dataset above.
    pub own: bool,
    /// The form of the user's key.
    pub format: KeyFormat,
    /// What a passphrase is stretched with.
    pub salt: u64,
    /// How often.
    pub iterations: u64,
}

/// Says that a new head is encrypted, before its content is made.
pub fn encrypt(change: &Change<'_>, dataset: ObjsetId, key: &NewKey<'_>) -> Result<()> {
    let id = ObjectId::new(dataset.get());
    let dir = change.dataset(id)?.dir;
    let feature = Feature::by_guid(FEATURE).ok_or(Error::FeatureDisabled { guid: FEATURE })?;
    if super::features::uses(change.mos, feature)?.is_none() {
        return Err(Error::FeatureDisabled { guid: FEATURE });
    }
    let root = if key.own {
        dir
    } else {
        let above = encryption_root(change, change.dir(dir)?.parent)?;
        above.ok_or_else(|| Error::NotEncrypted { name: "the dataset above".to_owned() })?
    };
    let record = change.new_table(TABLE)?;
    put_wrapped(change, record, key.wrapped)?;
    for (name, number) in [
        ("DSL_CRYPTO_ROOT_DDOBJ", root.get()),
        (USERS, 1),
        ("keyformat", form(key.format)),
        ("pbkdf2salt", key.salt),
        ("pbkdf2iters", key.iterations),
    ] {
        change.put_number(record, name, number)?;
    }
    change.set_field(dir, DirPhys::CRYPTO_KEY, &[record.get()])?;
    create::set_feature(change, id, feature, &[0])
}

/// Writes closed keys into their record.
pub(super) fn put_wrapped(
    change: &Change<'_>,
    record: ObjectId,
    wrapped: &WrappedKey,
) -> Result<()> {
    for (name, number) in [
        ("DSL_CRYPTO_SUITE", wrapped.suite.code()),
        ("DSL_CRYPTO_GUID", wrapped.guid),
        ("DSL_CRYPTO_VERSION", wrapped.version),
    ] {
        change.put_number(record, name, number)?;
    }
    for (name, bytes) in [
        ("DSL_CRYPTO_IV", &wrapped.iv[..]),
        ("DSL_CRYPTO_MAC", &wrapped.mac),
        ("DSL_CRYPTO_MASTER_KEY_1", &wrapped.master),
        ("DSL_CRYPTO_HMAC_KEY_1", &wrapped.hmac),
    ] {
        change.put(record, name, &ZapValue::new(1, bytes.to_vec()))?;
    }
    Ok(())
}

/// How a form is told in a record.
pub(super) const fn form(format: KeyFormat) -> u64 {
    match format {
        KeyFormat::Raw => 1,
        KeyFormat::Hex => 2,
        KeyFormat::Passphrase => 3,
    }
}

/// A clone's directory uses the keys of what it is a clone of.
pub(crate) fn share(change: &Change<'_>, from: ObjectId, to: ObjectId) -> Result<()> {
    let Some(record) = change.field_object(from, DirPhys::CRYPTO_KEY)? else { return Ok(()) };
    let users = change.number(record, USERS)?.unwrap_or(1);
    change.put_number(record, USERS, users.saturating_add(1))?;
    change.set_field(to, DirPhys::CRYPTO_KEY, &[record.get()])
}

/// A directory that goes uses its keys no more; the last takes them along.
pub(crate) fn leave(change: &Change<'_>, dir: ObjectId) -> Result<()> {
    let Some(record) = change.field_object(dir, DirPhys::CRYPTO_KEY)? else { return Ok(()) };
    match change.number(record, USERS)?.unwrap_or(1) {
        0 | 1 => change.free_object(record),
        users => change.put_number(record, USERS, users.saturating_sub(1)),
    }
}
