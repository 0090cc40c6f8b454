//! Changing the datasets of a held pool.

use std::sync::Arc;

use dmu::Objset;
use dsl::write;
use ondisk::objset::Kind;
use transform::crypt::WrappingKey;
use units::ObjsetId;
use zio::Key;

use super::encrypt::{Keying, Wish, is_about_key, keying, usage};
use super::history::{assignment, id_of, note, note_of};
use super::naming::Naming;
use super::owners::Limits;
use super::volumes::check_size;
use super::{Held, files, owners};
use crate::dataset::{Dataset, Wanted};
use crate::{Error, Event, Result};

/// A dataset that is to be made.
#[derive(Clone, Debug, Default)]
pub struct NewDataset {
    /// Its full name.
    pub name: String,
    /// Its properties.
    pub properties: Vec<(String, String)>,
}

impl Held {
    /// Has a change made to the datasets; returns when it is on the drives.
    pub(super) fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&spa::Owned, &write::Change<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.0.owned.perform(work).map_err(|why| self.explain(&why))?
    }

    /// Makes a file system.
    pub fn create_filesystem(&self, new: &NewDataset) -> Result<()> {
        self.create_filesystem_with(new, None)
    }

    /// Makes a file system, with a user's key of its own if there is a secret.
    pub fn create_filesystem_with(&self, new: &NewDataset, secret: Option<&[u8]>) -> Result<()> {
        let limits = self.make_unseen(|| self.make_filesystem(new.clone(), secret))?;
        self.limit(&new.name, &limits)
    }

    /// The same, but for what its owners may use, which is told. The key above stays what it is until
    /// this returns.
    fn make_filesystem(&self, mut new: NewDataset, secret: Option<&[u8]>) -> Result<Limits> {
        let (name, world) = (new.name.clone(), self.0.world.clone());
        let source = self.0.owned.source();
        let keying = self.keying_below(&mut new, secret)?;
        let above = self.above(&new.name)?;
        let naming = Naming::take(&mut new, above.as_ref())?;
        let limits = owners::take(&mut new)?;
        self.may_limit(&new.name, &limits)?;
        judge(&new, dsl::Kind::Filesystem)?;
        let user = keying.as_ref().and_then(Keying::of_user);
        let make = move |owned: &spa::Owned, change: &write::Change<'_>| {
            let failed = |error: dsl::Error| Error::of_dataset(&new.name, &error);
            let id = write::create(change, &new.name).map_err(failed)?;
            whole_or_none(owned, change, &new.name, || {
                let key = encrypt(change, id, keying.as_ref()).map_err(failed)?;
                if naming.case == zpl::Case::Insensitive {
                    write::make_caseless(change, id).map_err(failed)?;
                }
                note(owned, change, "create", &new.name, "");
                put_all(owned, change, &new, dsl::Kind::Filesystem).map_err(failed)?;
                let blank = Objset::blank(Arc::clone(&source), id, Kind::Filesystem, key.clone());
                let set = owned.adopt(blank, spa::Settings { key, ..spa::Settings::default() });
                files::fill(owned, &set, change.tx, (&world, naming))
                    .map_err(|why| Error::Refused { what: why.to_string() })?;
                Ok(id)
            })
        };
        self.change(make).map(|id: ObjsetId| self.0.owned.forget(id))?;
        self.remember(&name, user)?;
        Ok(limits)
    }

    /// How a dataset that is to be is encrypted, by what is above it.
    pub(super) fn keying_below(
        &self,
        new: &mut NewDataset,
        secret: Option<&[u8]>,
    ) -> Result<Option<Keying>> {
        let above = self.above(&new.name)?;
        keying(&self.0.world, new, above.as_ref(), secret)
    }

    /// What is above a dataset that is to be: a file system, as nothing lies below a volume.
    pub(super) fn above(&self, name: &str) -> Result<Option<dsl::Dataset>> {
        let Some((above, _)) = name.rsplit_once('/') else { return Ok(None) };
        let found = self.find(above)?;
        match found.kind() {
            Ok(dsl::Kind::Filesystem) => Ok(Some(found)),
            Ok(kind) => Err(Error::Refused {
                what: format!(
                    "'{name}' cannot be: '{above}' is a {}, and nothing lies below it",
                    kind.name()
                ),
            }),
            Err(why) => Err(Error::of_dataset(above, &why)),
        }
    }

    /// Keeps the user's key of a dataset that was just made.
    pub(super) fn remember(&self, name: &str, user: Option<Arc<WrappingKey>>) -> Result<()> {
        let Some(user) = user else { return Ok(()) };
        let made = self.find(name)?;
        made.tree().remember(&made, user).map_err(|error| Error::of_dataset(name, &error))
    }

    /// Makes a bookmark `FS#MARK` of a snapshot of that file system or volume, or of one that it is a
    /// clone of.
    pub fn bookmark(&self, snapshot: &str, mark: &str) -> Result<()> {
        let (snapshot, mark) = (snapshot.to_owned(), mark.to_owned());
        self.change(move |owned, change| {
            write::bookmark(change, &mark, &snapshot)
                .map_err(|error| Error::of_dataset(&mark, &error))?;
            let head = mark.split('#').next().unwrap_or_default();
            note(owned, change, "bookmark", head, &format!("{mark} of {snapshot}"));
            Ok(())
        })
    }

    /// Makes snapshots, all of the same moment, or none at all.
    pub fn snapshot(&self, names: &[String]) -> Result<()> {
        self.snapshot_with(names, &[])
    }

    /// The same with properties, which all of them get.
    pub fn snapshot_with(&self, names: &[String], properties: &[(String, String)]) -> Result<()> {
        if let Some(name) = names.first().cloned() {
            let properties = properties.to_vec();
            judge(&NewDataset { name, properties }, dsl::Kind::Snapshot)?;
        }
        let (names, properties) = (names.to_vec(), properties.to_vec());
        self.change(move |owned, change| {
            let first = names.first().cloned().unwrap_or_default();
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            write::snapshot(change, &all).map_err(|error| Error::of_dataset(&first, &error))?;
            for name in all {
                note(owned, change, "snapshot", name, "");
                for (property, value) in &properties {
                    put(owned, change, (name, dsl::Kind::Snapshot), (property, value))
                        .map_err(|error| Error::of_dataset(name, &error))?;
                }
            }
            Ok(())
        })
    }

    /// Takes a file system back to its newest snapshot.
    pub fn rollback(&self, name: &str) -> Result<()> {
        let key = self.find(name)?.key().map_err(|error| Error::of_dataset(name, &error))?;
        let heads = [name.to_owned()];
        let name = name.to_owned();
        self.change_ending(&heads, move |owned, change| {
            let failed = |error: dsl::Error| Error::of_dataset(&name, &error);
            if key.is_none() {
                write::log_bars(change, &name, None).map_err(failed)?;
            }
            write::rollback(change, &name, None).map_err(failed)?;
            owned.forget(write::head_of(change, &name).map_err(failed)?);
            note(owned, change, "rollback", &name, "");
            empty_log(owned, change, &name, key)
        })
    }

    /// Makes a file system that begins as a snapshot.
    pub fn clone_snapshot(&self, snapshot: &str, new: &NewDataset) -> Result<()> {
        if !snapshot.contains('@') {
            let what = format!("'{snapshot}' is no snapshot: clones are made of FS@NAME");
            return Err(Error::Usage { what });
        }
        if let Some((property, _)) = new.properties.iter().find(|(name, _)| is_about_key(name)) {
            let why =
                format!("a clone is as what it is a clone of, and has no {property} of its own");
            return Err(usage(&new.name, &why));
        }
        let origin = self.find(snapshot)?;
        let failed = |why: dsl::Error| Error::of_dataset(snapshot, &why);
        let key = origin.key().map_err(failed)?;
        let kind = match origin.content_kind().map_err(failed)? {
            Kind::Volume => dsl::Kind::Volume,
            _ => dsl::Kind::Filesystem,
        };
        self.above(&new.name)?;
        let (snapshot, mut new) = (snapshot.to_owned(), new.clone());
        let asks_for_all = |(name, value): &mut (String, String)| {
            kind == dsl::Kind::Volume && name == "refreservation" && value == "auto"
        };
        let reserved: Vec<_> = new.properties.extract_if(.., asks_for_all).collect();
        judge(&new, kind)?;
        // a size is no entry in a table: it is set when the volume is there, and what follows from it
        let is_size = |(name, _): &mut (String, String)| name == "volsize";
        let mut sizes: Vec<_> = new.properties.extract_if(.., is_size).collect();
        sizes.extend(reserved);
        let name = new.name.clone();
        self.change(move |owned, change| {
            let failed = |error: dsl::Error| Error::of_dataset(&new.name, &error);
            if key.is_none() {
                write::log_bars(change, &new.name, Some(&snapshot)).map_err(failed)?;
            }
            write::clone(change, &new.name, &snapshot).map_err(failed)?;
            empty_log(owned, change, &new.name, key)?;
            let origin = format!("origin={snapshot} ({})", id_of(change, &snapshot));
            note(owned, change, "clone", &new.name, &origin);
            whole_or_none(owned, change, &new.name, || {
                put_all(owned, change, &new, kind).map_err(failed)
            })
        })?;
        for (property, size) in sizes {
            if let Err(why) = self.set(&name, &property, &size) {
                self.close(&name)?;
                self.destroy(&name)?;
                return Err(why);
            }
        }
        Ok(())
    }

    /// Makes a clone the one that its origin depends on.
    pub fn promote(&self, name: &str) -> Result<()> {
        // it may become the encryption root in place of its origin
        self.make_unseen(|| {
            let clone = self.find(name)?;
            let failed = |error: dsl::Error| Error::of_dataset(name, &error);
            let user = clone.tree().wrapping(&clone).map_err(failed)?;
            let promoted = name.to_owned();
            self.change(move |owned, change| {
                write::promote(change, &promoted)
                    .map_err(|error| Error::of_dataset(&promoted, &error))?;
                note(owned, change, "promote", &promoted, "");
                Ok(())
            })?;
            self.remember(name, user)
        })
    }

    /// Gives a file system, volume or snapshot another name; a snapshot with `below` also in all
    /// datasets below its own.
    pub fn rename(&self, from: &str, to: &str, below: bool) -> Result<()> {
        if !from.contains('@') {
            return self.rename_head(from, to);
        }
        let (from, to) = (from.to_owned(), to.to_owned());
        self.change(move |owned, change| {
            let id = id_of(change, &from);
            write::rename_snapshot(change, &from, &to, below)
                .map_err(|error| Error::of_dataset(&from, &error))?;
            note_of(owned, change, "rename", (&from, id), &format!("-> {to}"));
            Ok(())
        })
    }

    /// Sets a property.
    pub fn set(&self, name: &str, property: &str, value: &str) -> Result<()> {
        if let Some(done) = self.set_owner(name, property, value) {
            return done;
        }
        if let Some(done) = self.set_of_volume(name, property, value) {
            return done;
        }
        if property == "keylocation" {
            self.judge_key_location(name, value)?;
        }
        let kind = self.kind(name)?;
        let (name, property, value) = (name.to_owned(), property.to_owned(), value.to_owned());
        self.change(move |owned, change| {
            put(owned, change, (&name, kind), (&property, &value))
                .map_err(|error| Error::of_dataset(&name, &error))
        })?;
        self.refresh();
        Ok(())
    }

    /// Lets a property be inherited.
    pub fn inherit(&self, name: &str, property: &str) -> Result<()> {
        self.unset(name, property, false)
    }

    /// Lets a property have the value that came with a send stream, or else be inherited.
    pub fn revert(&self, name: &str, property: &str) -> Result<()> {
        self.unset(name, property, true)
    }

    fn unset(&self, name: &str, property: &str, received: bool) -> Result<()> {
        let kind = self.kind(name)?;
        let (name, property) = (name.to_owned(), property.to_owned());
        self.change(move |owned, change| {
            write::inherit(change, &name, kind, &property, received)
                .map_err(|error| Error::of_dataset(&name, &error))?;
            note(owned, change, "inherit", &name, &format!("{property}="));
            Ok(())
        })?;
        self.refresh();
        Ok(())
    }

    fn kind(&self, name: &str) -> Result<dsl::Kind> {
        self.find(name)?.kind().map_err(|error| Error::of_dataset(name, &error))
    }

    /// Shows the dataset `target` and all below it, as [`crate::Pool::list`] does.
    pub fn list(
        &self,
        target: &str,
        wanted: &Wanted,
        show: &mut dyn FnMut(Dataset),
        trouble: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let _pin = self.pin();
        crate::dataset::list(&self.tree()?, target, wanted, show, trouble)
    }
}

/// What a head has of the intent log of the snapshot that it follows is not its own.
fn empty_log(
    owned: &spa::Owned,
    change: &write::Change<'_>,
    name: &str,
    key: Option<Key>,
) -> Result<()> {
    let id = write::head_of(change, name).map_err(|error| Error::of_dataset(name, &error))?;
    owned.empty_log(change, id, key).map_err(|why| Error::Refused { what: why.to_string() })
}

/// Says that a head is encrypted whose content is not made yet; gives the key of its blocks.
pub(super) fn encrypt(
    change: &write::Change<'_>,
    id: ObjsetId,
    keying: Option<&Keying>,
) -> dsl::Result<Option<Key>> {
    let Some(keying) = keying else { return Ok(None) };
    write::encrypt(change, id, &keying.below())?;
    Ok(Some(keying.key()))
}

/// Whether a file system, or a volume of so many bytes in blocks of so many, could be made so, as far as
/// that can be told without its pool.
pub fn judge_new(new: &NewDataset, volume: Option<(u64, u32)>) -> Result<()> {
    let mut new = new.clone();
    Wish::take(&mut new);
    if let Some((size, block_size)) = volume {
        check_size(&new.name, size, block_size)?;
        return judge(&new, dsl::Kind::Volume);
    }
    Naming::take(&mut new, None)?;
    owners::take(&mut new)?;
    judge(&new, dsl::Kind::Filesystem)
}

/// Whether all properties of a dataset that is to be are some that it can have. Nothing is made
/// before that is clear.
pub(super) fn judge(new: &NewDataset, kind: dsl::Kind) -> Result<()> {
    for (name, value) in &new.properties {
        dsl::property::parse(name, kind, value)
            .map_err(|error| Error::of_dataset(&new.name, &error))?;
    }
    Ok(())
}

/// Makes a head that was just begun whole. If that cannot be, it is not made.
pub(super) fn whole_or_none<T>(
    owned: &spa::Owned,
    change: &write::Change<'_>,
    name: &str,
    rest: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let done = rest();
    if done.is_err() {
        let failed = |error: dsl::Error| Error::of_dataset(name, &error);
        let id = write::head_of(change, name).map_err(failed)?;
        write::destroy(change, name).map_err(failed)?;
        owned.forget(id);
    }
    done
}

/// Sets the properties of a dataset that was just made.
pub(super) fn put_all(
    owned: &spa::Owned,
    change: &write::Change<'_>,
    new: &NewDataset,
    kind: dsl::Kind,
) -> dsl::Result<()> {
    let mut all = new.properties.iter();
    all.try_for_each(|(name, value)| put(owned, change, (&new.name, kind), (name, value)))
}

/// Sets a property as its text says.
fn put(
    owned: &spa::Owned,
    change: &write::Change<'_>,
    (dataset, kind): (&str, dsl::Kind),
    (property, value): (&str, &str),
) -> dsl::Result<()> {
    let setting = dsl::property::parse(property, kind, value)?;
    write::set(change, dataset, kind, (property, &setting), write::By::User)?;
    note(owned, change, "set", dataset, &assignment(property, &setting));
    Ok(())
}
