//! Changes the user's key of encrypted datasets: the datasets' keys are wrapped again, and
//! their content stays unchanged.
//!
//! A head gets its key from its encryption root. All descendants with the same root *through it*
//! change with it. Clones share the record of their origin, so only their descendants are examined.
//!
//! Learnt from: pools whose keys OpenZFS changed, and its rules of inheritance. Proved by:
//! `engine`'s tests of encrypted datasets, and OpenZFS loading the keys of such pools.

use std::collections::BTreeSet;

use ondisk::dsl::Dir as DirPhys;
use transform::crypt::{WrappedKey, WrappingKey, unwrap_key, wrap_key};
use units::ObjectId;
use zap::{Zap, ZapValue};

use super::context::SyncTaskContext;
use super::keys::write_wrapped_key;
use super::rename::encryption_root;
use super::rollback::is_clone;
use crate::{Error, KeyFormat, Pbkdf2Params, Result};

/// From one user's key to another.
pub struct KeyChange<'a> {
    /// The present wrapping key.
    pub old_key: &'a WrappingKey,
    /// The new wrapping key.
    pub new_key: &'a WrappingKey,
    /// The form of the new one.
    pub format: KeyFormat,
    /// How it is stretched.
    pub pbkdf2: Pbkdf2Params,
    /// A number for each time that something is closed, never the same.
    pub nonce: &'a (dyn Fn() -> [u8; 12] + Sync),
}

impl std::fmt::Debug for KeyChange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rewrap({:?})", self.format)
    }
}

/// Gives a head a user's key of its own, or another one. `location` is its new keylocation; none:
/// it keeps the old one.
pub fn change_key(
    change: &SyncTaskContext<'_>,
    name: &str,
    rewrap: &KeyChange<'_>,
    location: Option<&str>,
) -> Result<()> {
    let (dir, root) = check_key_change(change, name)?;
    let closed = RewrapWalk::new(change, rewrap, (name, root)).rewrap_all(dir)?;
    if let Some(location) = location {
        let record = change.dir_phys(dir)?;
        let value = ZapValue::new(1, location.bytes().chain([0]).collect());
        change.update(record.properties, KEYLOCATION, &value)?;
    }
    write_rewrapped_keys(change, rewrap, &closed, dir)
}

/// Makes a head with a user's key of its own use that of its parent.
pub fn inherit_key(change: &SyncTaskContext<'_>, name: &str, rewrap: &KeyChange<'_>) -> Result<()> {
    let (dir, root) = check_key_change(change, name)?;
    if dir != root {
        return Err(busy_error(name, "it inherits its key from its parent already"));
    }
    let record = change.dir_phys(dir)?;
    let above = if record.parent.exists() { encryption_root(change, record.parent)? } else { None };
    let Some(above) = above else {
        return Err(busy_error(name, "its parent is not encrypted"));
    };
    let closed = RewrapWalk::new(change, rewrap, (name, dir)).rewrap_all(dir)?;
    change.remove(record.properties, KEYLOCATION)?;
    write_rewrapped_keys(change, rewrap, &closed, above)
}

pub(super) const KEYLOCATION: &str = "keylocation";

fn busy_error(name: &str, why: &'static str) -> Error {
    Error::Busy { name: name.to_owned(), why }
}

/// The directory of a head whose key may be changed, and its encryption root's.
fn check_key_change(change: &SyncTaskContext<'_>, name: &str) -> Result<(ObjectId, ObjectId)> {
    let dir = change.find_dir(name)?;
    let root = encryption_root(change, dir)?;
    let root = root.ok_or_else(|| Error::NotEncrypted { name: name.to_owned() })?;
    if is_clone(change, &change.dir_phys(dir)?)? {
        return Err(busy_error(name, "a clone has the key of its origin"));
    }
    Ok((dir, root))
}

/// All directories whose keys are wrapped again.
struct RewrapWalk<'a> {
    change: &'a SyncTaskContext<'a>,
    key_change: &'a KeyChange<'a>,
    name: &'a str,
    /// The encryption root that they have.
    encryption_root: ObjectId,
    visited: BTreeSet<ObjectId>,
    /// Their records, and how they are closed from now on.
    rewrapped: Vec<(ObjectId, WrappedKey)>,
}

impl<'a> RewrapWalk<'a> {
    fn new(
        change: &'a SyncTaskContext<'a>,
        key_change: &'a KeyChange<'a>,
        (name, encryption_root): (&'a str, ObjectId),
    ) -> Self {
        Self {
            change,
            key_change,
            name,
            encryption_root,
            visited: BTreeSet::new(),
            rewrapped: Vec::new(),
        }
    }

    /// Wraps the keys of a directory and its descendants again. All of them are unwrapped before
    /// the first write: a change that fails halfway would leave some with either key.
    fn rewrap_all(mut self, dir: ObjectId) -> Result<Vec<(ObjectId, WrappedKey)>> {
        self.visit(dir, false, 0)?;
        Ok(self.rewrapped)
    }

    /// A directory and its descendants; `passed`: it is a clone, whose record is its origin's.
    fn visit(&mut self, dir: ObjectId, passed: bool, depth: usize) -> Result<()> {
        if depth > 256 {
            return Err(Error::Cycle { object: dir, links: "directories" });
        }
        let change = self.change;
        let Some(root) = encryption_root(change, dir)? else { return Ok(()) };
        let record = change.dir_phys(dir)?;
        if !passed && (root != self.encryption_root || is_clone(change, &record)?) {
            return Ok(());
        }
        if !self.visited.insert(dir) {
            return Ok(());
        }
        if !passed && let Some(key) = change.zap_field_object(dir, DirPhys::CRYPTO_KEY)? {
            self.rewrap_key(key)?;
        }
        for child in change.zap_entries(record.children)? {
            let hidden = child.name.starts_with(b"$") || child.name.starts_with(b"%");
            if let (false, Some(child)) = (hidden, child.value.u64()) {
                self.visit(ObjectId::new(child), false, depth + 1)?;
            }
        }
        for clone in change.zap_u64s(record.clones)? {
            let clone = change.dataset_phys(ObjectId::new(clone))?.dir;
            self.visit(clone, true, depth + 1)?;
        }
        Ok(())
    }

    fn rewrap_key(&mut self, key: ObjectId) -> Result<()> {
        let Self { change, key_change: rewrap, name, .. } = *self;
        let failed = |error| Error::Key { name: name.to_owned(), why: error };
        let table = Zap::open(change.object(key)?)?;
        let wrapped = crate::keys::wrapped_key(&table, key, name)?;
        let open = unwrap_key(rewrap.old_key, &wrapped).map_err(failed)?;
        let wrapped = wrap_key(rewrap.new_key, &open, (rewrap.nonce)()).map_err(failed)?;
        self.rewrapped.push((key, wrapped));
        Ok(())
    }
}

/// Writes down how keys are closed from now on, and from which encryption root they have theirs.
fn write_rewrapped_keys(
    change: &SyncTaskContext<'_>,
    rewrap: &KeyChange<'_>,
    closed: &[(ObjectId, WrappedKey)],
    root: ObjectId,
) -> Result<()> {
    for (key, wrapped) in closed {
        write_wrapped_key(change, *key, wrapped)?;
        for (name, number) in [
            ("DSL_CRYPTO_ROOT_DDOBJ", root.get()),
            ("keyformat", rewrap.format.code()),
            ("pbkdf2salt", rewrap.pbkdf2.salt),
            ("pbkdf2iters", rewrap.pbkdf2.iterations),
        ] {
            change.update_u64(*key, name, number)?;
        }
    }
    Ok(())
}
