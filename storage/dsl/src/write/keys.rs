//! Keys of encrypted datasets: their records, made and shared.
//!
//! A new encrypted dataset has keys of its own, wrapped with a user's key: its own, or that of the
//! encryption root above. Clones use the record of their origin and count in its references.

use ondisk::dsl::Dir as DirPhys;
use ondisk::feature::Feature;
use transform::crypt::WrappedKey;
use units::{ObjectId, ObjsetId};
use zap::ZapValue;

use super::context::{SyncTaskContext, ZAP_METADATA};
use super::create;
use super::rename::encryption_root;
use super::space::with_delta;
use crate::{Error, KeyFormat, Result};

const ENCRYPTION_FEATURE: &str = "com.datto:encryption";
/// How many directories use a record.
const REFCOUNT_ENTRY: &str = "DSL_CRYPTO_REFCOUNT";

/// The keys of a new dataset.
#[derive(Clone, Debug)]
pub struct NewKey<'a> {
    /// The dataset's keys, closed with the user's key.
    pub wrapped: &'a WrappedKey,
    /// Whether the user's key is the dataset's own; else it is that of the dataset above.
    pub is_encryption_root: bool,
    /// The form of the user's key.
    pub format: KeyFormat,
    /// The PBKDF2 parameters of a passphrase.
    pub salt: u64,
    /// How often.
    pub iterations: u64,
}

/// Marks a new head as encrypted, before its content is created.
pub fn encrypt_dataset(
    change: &SyncTaskContext<'_>,
    dataset: ObjsetId,
    key: &NewKey<'_>,
) -> Result<()> {
    let id = ObjectId::new(dataset.get());
    let dir = change.dataset_phys(id)?.dir;
    let feature = Feature::by_guid(ENCRYPTION_FEATURE)
        .ok_or(Error::FeatureDisabled { guid: ENCRYPTION_FEATURE })?;
    if super::features::refcount(change.mos, feature)?.is_none() {
        return Err(Error::FeatureDisabled { guid: ENCRYPTION_FEATURE });
    }
    let root = if key.is_encryption_root {
        dir
    } else {
        let above = encryption_root(change, change.dir_phys(dir)?.parent)?;
        above.ok_or_else(|| Error::NotEncrypted { name: "the dataset above".to_owned() })?
    };
    let record = change.create_zap(ZAP_METADATA)?;
    write_wrapped_key(change, record, key.wrapped)?;
    for (name, number) in [
        ("DSL_CRYPTO_ROOT_DDOBJ", root.get()),
        (REFCOUNT_ENTRY, 1),
        ("keyformat", key.format.code()),
        ("pbkdf2salt", key.salt),
        ("pbkdf2iters", key.iterations),
    ] {
        change.update_u64(record, name, number)?;
    }
    change.set_zap_field(dir, DirPhys::CRYPTO_KEY, &[record.get()])?;
    create::activate_feature(change, id, feature, &[0])
}

/// Writes closed keys into their record.
pub(super) fn write_wrapped_key(
    change: &SyncTaskContext<'_>,
    record: ObjectId,
    wrapped: &WrappedKey,
) -> Result<()> {
    for (name, number) in [
        ("DSL_CRYPTO_SUITE", wrapped.suite.code()),
        ("DSL_CRYPTO_GUID", wrapped.guid),
        ("DSL_CRYPTO_VERSION", wrapped.version),
    ] {
        change.update_u64(record, name, number)?;
    }
    for (name, bytes) in [
        ("DSL_CRYPTO_IV", &wrapped.iv[..]),
        ("DSL_CRYPTO_MAC", &wrapped.mac),
        ("DSL_CRYPTO_MASTER_KEY_1", &wrapped.master),
        ("DSL_CRYPTO_HMAC_KEY_1", &wrapped.hmac),
    ] {
        change.update(record, name, &ZapValue::new(1, bytes.to_vec()))?;
    }
    Ok(())
}

/// A clone's directory uses the keys of its origin.
pub(crate) fn add_key_reference(
    change: &SyncTaskContext<'_>,
    from: ObjectId,
    to: ObjectId,
) -> Result<()> {
    let Some(record) = change.zap_field_object(from, DirPhys::CRYPTO_KEY)? else { return Ok(()) };
    let users = change.lookup_u64(record, REFCOUNT_ENTRY)?.unwrap_or(1);
    change.update_u64(record, REFCOUNT_ENTRY, with_delta(users, 1))?;
    change.set_zap_field(to, DirPhys::CRYPTO_KEY, &[record.get()])
}

/// A destroyed directory drops its reference to its keys; the last one frees them.
pub(crate) fn release_key_reference(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<()> {
    let Some(record) = change.zap_field_object(dir, DirPhys::CRYPTO_KEY)? else { return Ok(()) };
    match change.lookup_u64(record, REFCOUNT_ENTRY)?.unwrap_or(1) {
        0 | 1 => change.free_object(record),
        users => change.update_u64(record, REFCOUNT_ENTRY, users - 1),
    }
}
