//! Another user's key for what is encrypted already: the keys of datasets are closed anew, and
//! their content stays as it is.
//!
//! A head has its key from its encryption root; all below it that have theirs from the same root
//! *through it* go along. Clones share the record of what they are clones of, so that only what
//! is below them is looked at.
//!
//! Learnt from: pools whose keys OpenZFS changed, and its rules of what may inherit from whom.
//! Proved by: `engine`'s tests of encrypted datasets, and OpenZFS unlocking such pools.

use std::collections::BTreeSet;

use ondisk::dsl::Dir as DirPhys;
use transform::crypt::{WrappedKey, WrappingKey, unwrap_key, wrap_key};
use units::ObjectId;
use zap::{Zap, ZapValue};

use super::change::Change;
use super::keys::{form, put_wrapped};
use super::rename::encryption_root;
use super::rollback::is_clone;
use crate::{Error, KeyFormat, Result, Stretching};

/// From one user's key to another.
pub struct Rewrap<'a> {
    /// What closes the keys now.
    pub old: &'a WrappingKey,
    /// What is to close them.
    pub new: &'a WrappingKey,
    /// The form of the new one.
    pub format: KeyFormat,
    /// How it is stretched.
    pub stretching: Stretching,
    /// A number for each time that something is closed, never the same.
    pub nonce: &'a (dyn Fn() -> [u8; 12] + Sync),
}

impl std::fmt::Debug for Rewrap<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rewrap({:?})", self.format)
    }
}

/// Gives a head a user's key of its own, or another one. `location` says where it is from now on;
/// none: where it was.
pub fn change_key(
    change: &Change<'_>,
    name: &str,
    rewrap: &Rewrap<'_>,
    location: Option<&str>,
) -> Result<()> {
    let (dir, root) = judge(change, name)?;
    let closed = Way::new(change, rewrap, (name, root)).all_closed(dir)?;
    if let Some(location) = location {
        let record = change.dir(dir)?;
        let value = ZapValue::new(1, location.bytes().chain([0]).collect());
        change.put(record.properties, LOCATION, &value)?;
    }
    put_all(change, rewrap, &closed, dir)
}

/// Has a head that has a user's key of its own use that of what is above it.
pub fn inherit_key(change: &Change<'_>, name: &str, rewrap: &Rewrap<'_>) -> Result<()> {
    let (dir, root) = judge(change, name)?;
    if dir != root {
        return Err(busy(name, "it has its key from what is above it already"));
    }
    let record = change.dir(dir)?;
    let above = if record.parent.exists() { encryption_root(change, record.parent)? } else { None };
    let Some(above) = above else {
        return Err(busy(name, "what is above it is not encrypted"));
    };
    let closed = Way::new(change, rewrap, (name, dir)).all_closed(dir)?;
    change.remove(record.properties, LOCATION)?;
    put_all(change, rewrap, &closed, above)
}

const LOCATION: &str = "keylocation";

fn busy(name: &str, why: &'static str) -> Error {
    Error::Busy { name: name.to_owned(), why }
}

/// The directory of a head whose key may be changed, and its encryption root's.
fn judge(change: &Change<'_>, name: &str) -> Result<(ObjectId, ObjectId)> {
    let dir = change.find_dir(name)?;
    let root = encryption_root(change, dir)?;
    let root = root.ok_or_else(|| Error::NotEncrypted { name: name.to_owned() })?;
    if is_clone(change, &change.dir(dir)?)? {
        return Err(busy(name, "a clone has the key of what it is a clone of"));
    }
    Ok((dir, root))
}

/// All whose keys are closed anew.
struct Way<'a> {
    change: &'a Change<'a>,
    rewrap: &'a Rewrap<'a>,
    name: &'a str,
    /// The encryption root that they have.
    from: ObjectId,
    done: BTreeSet<ObjectId>,
    /// Their records, and how they are closed from now on.
    closed: Vec<(ObjectId, WrappedKey)>,
}

impl<'a> Way<'a> {
    fn new(
        change: &'a Change<'a>,
        rewrap: &'a Rewrap<'a>,
        (name, from): (&'a str, ObjectId),
    ) -> Self {
        Self { change, rewrap, name, from, done: BTreeSet::new(), closed: Vec::new() }
    }

    /// Closes the keys of a directory and of what is below it. Nothing is written before all of them
    /// could be opened, as a change that ends halfway would leave some with either key.
    fn all_closed(mut self, dir: ObjectId) -> Result<Vec<(ObjectId, WrappedKey)>> {
        self.visit(dir, false, 0)?;
        Ok(self.closed)
    }

    /// A directory and what is below it; `passed`: it is a clone, whose record is its origin's.
    fn visit(&mut self, dir: ObjectId, passed: bool, depth: usize) -> Result<()> {
        if depth > 256 {
            return Err(Error::Circle { object: dir, what: "directories" });
        }
        let change = self.change;
        let Some(root) = encryption_root(change, dir)? else { return Ok(()) };
        let record = change.dir(dir)?;
        if !passed && (root != self.from || is_clone(change, &record)?) {
            return Ok(());
        }
        if !self.done.insert(dir) {
            return Ok(());
        }
        if !passed && let Some(key) = change.field_object(dir, DirPhys::CRYPTO_KEY)? {
            self.close_anew(key)?;
        }
        for child in change.entries(record.children)? {
            let hidden = child.name.starts_with(b"$") || child.name.starts_with(b"%");
            if let (false, Some(child)) = (hidden, child.value.u64()) {
                self.visit(ObjectId::new(child), false, depth.saturating_add(1))?;
            }
        }
        for clone in change.numbers(record.clones)? {
            let clone = change.dataset(ObjectId::new(clone))?.dir;
            self.visit(clone, true, depth.saturating_add(1))?;
        }
        Ok(())
    }

    fn close_anew(&mut self, key: ObjectId) -> Result<()> {
        let Self { change, rewrap, name, .. } = *self;
        let failed = |why| Error::Key { name: name.to_owned(), why };
        let table = Zap::open(change.object(key)?)?;
        let wrapped = crate::keys::wrapped_key(&table, key, name)?;
        let open = unwrap_key(rewrap.old, &wrapped).map_err(failed)?;
        let wrapped = wrap_key(rewrap.new, &open, (rewrap.nonce)()).map_err(failed)?;
        self.closed.push((key, wrapped));
        Ok(())
    }
}

/// Writes down how keys are closed from now on, and from which encryption root they have theirs.
fn put_all(
    change: &Change<'_>,
    rewrap: &Rewrap<'_>,
    closed: &[(ObjectId, WrappedKey)],
    root: ObjectId,
) -> Result<()> {
    for (key, wrapped) in closed {
        put_wrapped(change, *key, wrapped)?;
        for (name, number) in [
            ("DSL_CRYPTO_ROOT_DDOBJ", root.get()),
            ("keyformat", form(rewrap.format)),
            ("pbkdf2salt", rewrap.stretching.salt),
            ("pbkdf2iters", rewrap.stretching.iterations),
        ] {
            change.put_number(*key, name, number)?;
        }
    }
    Ok(())
}
