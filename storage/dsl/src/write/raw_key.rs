//! The key that a raw stream brings: it is stored as it is, closed with the user's key of the sender.
//!
//! A new dataset becomes an encryption root of its own with keylocation=prompt. A later stream may
//! bring the same key wrapped again, after `zfs change-key` on the sender.

use ondisk::dsl::Dir as DirPhys;
use ondisk::stream::CryptKeydata;
use units::{ObjectId, ObjsetId};
use zap::ZapValue;

use super::change_key::KEYLOCATION;
use super::context::SyncTaskContext;
use super::keys::{NewKey, encrypt_dataset, write_wrapped_key};
use super::rename::encryption_root;
use super::rollback::is_clone;
use crate::raw_key::wrapped_key_of;
use crate::{Error, KeyFormat, Result};

/// Gives a new dataset, before its content is made, the key of a raw stream.
pub fn set_received_key(
    change: &SyncTaskContext<'_>,
    name: &str,
    id: ObjsetId,
    keydata: &CryptKeydata,
) -> Result<()> {
    let failed = |why| Error::Key { name: name.to_owned(), why };
    let wrapped = wrapped_key_of(keydata).map_err(failed)?;
    let format = key_format(keydata).map_err(failed)?;
    let key = NewKey {
        wrapped: &wrapped,
        is_encryption_root: true,
        format,
        salt: keydata.salt,
        iterations: keydata.iterations,
    };
    encrypt_dataset(change, id, &key)?;
    let dir = change.dataset_phys(ObjectId::new(id.get()))?.dir;
    let properties = change.dir_phys(dir)?.properties;
    change.update(properties, KEYLOCATION, &ZapValue::new(1, b"prompt\0".to_vec()))
}

/// Stores the key of a dataset as a later raw stream brings it. The caller has checked that it is the same key.
pub fn update_received_key(
    change: &SyncTaskContext<'_>,
    name: &str,
    keydata: &CryptKeydata,
) -> Result<()> {
    let failed = |why| Error::Key { name: name.to_owned(), why };
    let wrapped = wrapped_key_of(keydata).map_err(failed)?;
    let format = key_format(keydata).map_err(failed)?;
    let dir = change.find_dir(name)?;
    let record = change.zap_field_object(dir, DirPhys::CRYPTO_KEY)?;
    let record = record.ok_or_else(|| Error::NotEncrypted { name: name.to_owned() })?;
    write_wrapped_key(change, record, &wrapped)?;
    for (entry, number) in [
        ("keyformat", format.code()),
        ("pbkdf2salt", keydata.salt),
        ("pbkdf2iters", keydata.iterations),
    ] {
        change.update_u64(record, entry, number)?;
    }
    Ok(())
}

fn key_format(keydata: &CryptKeydata) -> std::result::Result<KeyFormat, transform::Error> {
    let unknown =
        || transform::Error::Unsupported { feature: "key format", code: keydata.key_format };
    KeyFormat::from_code(keydata.key_format).ok_or_else(unknown)
}

/// Makes a received dataset an encryption root, as on the sender. A raw stream brought its key, wrapped with the user's key
/// that it has there, so no key is needed.
pub fn separate_received_key(change: &SyncTaskContext<'_>, name: &str) -> Result<()> {
    let dir = change.find_dir(name)?;
    match encryption_root(change, dir)? {
        Some(root) if root != dir => set_encryption_root(change, dir, (root, dir), 0),
        _ => Ok(()),
    }
}

/// Makes a received encryption root inherit its parent's key, as on the sender. Its key is wrapped
/// with that already, so no key is needed.
pub fn inherit_received_key(change: &SyncTaskContext<'_>, name: &str) -> Result<()> {
    let dir = change.find_dir(name)?;
    let record = change.dir_phys(dir)?;
    if encryption_root(change, dir)? != Some(dir) || is_clone(change, &record)? {
        return Ok(());
    }
    let above = if record.parent.exists() { encryption_root(change, record.parent)? } else { None };
    let above =
        above.ok_or_else(|| Error::NotEncrypted { name: "the dataset above".to_owned() })?;
    set_encryption_root(change, dir, (dir, above), 0)?;
    if change.lookup(record.properties, KEYLOCATION)?.is_some() {
        change.remove(record.properties, KEYLOCATION)?;
    }
    Ok(())
}

/// Changes the encryption root of a directory, and of all below it that have the same.
fn set_encryption_root(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    (from, to): (ObjectId, ObjectId),
    depth: usize,
) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::Cycle { object: dir, links: "directories" });
    }
    if encryption_root(change, dir)? != Some(from) {
        return Ok(());
    }
    let record = change.dir_phys(dir)?;
    for child in change.zap_entries(record.children)? {
        if let Some(child) = child.value.u64() {
            let child = ObjectId::new(child);
            set_encryption_root(change, child, (from, to), depth + 1)?;
        }
    }
    if let Some(key) = change.zap_field_object(dir, DirPhys::CRYPTO_KEY)? {
        change.update_u64(key, ROOT_ENTRY, to.get())?;
    }
    Ok(())
}

/// Directories nest no deeper.
const MAX_DEPTH: usize = 256;
/// The directory of the encryption root, in the record of a key.
const ROOT_ENTRY: &str = "DSL_CRYPTO_ROOT_DDOBJ";
