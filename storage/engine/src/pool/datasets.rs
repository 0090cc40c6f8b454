//! Changes the datasets of an imported pool.

use std::sync::Arc;

use dmu::Objset;
use dsl::{PropertyValue, write};
use ondisk::objset::Kind;
use transform::crypt::WrappingKey;
use units::ObjsetId;
use zio::Key;

use super::encryption::{
    DatasetEncryption, EncryptionOptions, encryption_error, is_encryption_property, new_encryption,
};
use super::history::{dataset_id, format_assignment, record_dataset_event, record_event_with_id};
use super::name_rules::NameRules;
use super::owner_quotas::OwnerQuotas;
use super::refreservation::is_volume_property;
use super::volumes::check_volume_size;
use super::{Pool, filesystems, owner_quotas};
use crate::dataset::{Dataset, DatasetQuery, OwnerKind, OwnerUsage};
use crate::pool::handles::{Datasets, Properties, Snapshots};
use crate::{Error, Event, Result};

/// A dataset that is to be made.
#[derive(Clone, Debug, Default)]
pub struct NewDataset {
    /// Its full name.
    pub name: String,
    /// Its properties.
    pub properties: Vec<(String, String)>,
}

impl Pool {
    /// Has a change made to the datasets; returns when it is on the drives.
    pub(super) fn run_sync_task<T: Send + 'static>(
        &self,
        work: impl FnOnce(&spa::ActivePool, &write::SyncTaskContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.0.spa.run_sync_task(work).map_err(|error| self.explain_error(&error))?
    }
}

impl Datasets<'_> {
    /// Makes a file system.
    pub fn create_filesystem(self, new: &NewDataset) -> Result<()> {
        self.pool.datasets().create_filesystem_with(new, None)
    }

    /// Makes a file system, with a user's key of its own if there is a secret.
    pub fn create_filesystem_with(self, new: &NewDataset, secret: Option<&[u8]>) -> Result<()> {
        let limits = self
            .pool
            .with_opens_blocked(|| self.pool.create_filesystem_locked(new.clone(), secret))?;
        self.pool.set_owner_quotas(&new.name, &limits)
    }
}

impl Pool {
    /// The same without owner quotas, which are returned. The lock keeps the parent's key until
    /// this returns.
    fn create_filesystem_locked(
        &self,
        mut new: NewDataset,
        secret: Option<&[u8]>,
    ) -> Result<OwnerQuotas> {
        let (name, world) = (new.name.clone(), self.0.environment.clone());
        let source = self.0.spa.source();
        let keying = self.child_encryption(&mut new, secret)?;
        let above = self.find_parent(&new.name)?;
        let naming = NameRules::extract(&mut new, above.as_ref())?;
        self.check_version(&new.name, naming.version)?;
        let limits = owner_quotas::extract_quotas(&mut new)?;
        self.check_quota_features(&new.name, &limits)?;
        check_properties(&new, dsl::DatasetKind::Filesystem)?;
        let user = keying.as_ref().and_then(DatasetEncryption::user_key);
        let make = move |active: &spa::ActivePool, change: &write::SyncTaskContext<'_>| {
            let failed = |error: dsl::Error| Error::from_dsl_error(&new.name, &error);
            let id = write::create_dataset(change, &new.name).map_err(failed)?;
            destroy_on_error(active, change, &new.name, || {
                let key = record_encryption(change, id, keying.as_ref()).map_err(failed)?;
                if naming.case == zpl::CaseSensitivity::Insensitive {
                    write::set_case_insensitive(change, id).map_err(failed)?;
                }
                record_dataset_event(active, change, "create", &new.name, "");
                set_properties(active, change, &new, dsl::DatasetKind::Filesystem)
                    .map_err(failed)?;
                let blank =
                    Objset::new_empty(Arc::clone(&source), id, Kind::Filesystem, key.clone());
                let set = active.open_dataset(
                    blank,
                    spa::StorageSettings { key, ..spa::StorageSettings::default() },
                );
                filesystems::init_filesystem(active, &set, change.tx, (&world, naming))
                    .map_err(|why| Error::Refused { what: why.to_string() })?;
                Ok(id)
            })
        };
        self.run_sync_task(make).map(|id: ObjsetId| self.0.spa.close_dataset(id))?;
        self.store_user_key(&name, user)?;
        Ok(limits)
    }

    /// Refuses a version of a file system that the pool's own version does not have.
    fn check_version(&self, name: &str, version: Option<u64>) -> Result<()> {
        let pool = self.0.spa.config().version;
        let newest = ondisk::version::filesystem_version(pool);
        match version {
            Some(version) if version > newest => Err(Error::Refused {
                what: format!(
                    "cannot create '{name}': version={version}: pool must be upgraded to set this property or \
                     value (its version {pool} has file systems up to version {newest})"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The encryption of a new dataset, from its parent.
    pub(super) fn child_encryption(
        &self,
        new: &mut NewDataset,
        secret: Option<&[u8]>,
    ) -> Result<Option<DatasetEncryption>> {
        let above = self.find_parent(&new.name)?;
        new_encryption(&self.0.environment, new, above.as_ref(), secret)
    }

    /// The parent of a new dataset: a file system, because a volume has no children.
    pub(super) fn find_parent(&self, name: &str) -> Result<Option<dsl::Dataset>> {
        let Some((above, _)) = name.rsplit_once('/') else { return Ok(None) };
        let found = self.find_dataset(above).map_err(|why| match why {
            Error::NoSuchDataset { .. } => Error::NoParent { name: name.to_owned() },
            other => other,
        })?;
        match found.kind() {
            Ok(dsl::DatasetKind::Filesystem) => Ok(Some(found)),
            Ok(kind) => Err(Error::Refused {
                what: format!(
                    "cannot create '{name}': parent is not a filesystem\n'{above}' is a {}.",
                    kind.name()
                ),
            }),
            Err(error) => Err(Error::from_dsl_error(above, &error)),
        }
    }

    /// Keeps the user's key of a dataset that was just made.
    pub(super) fn store_user_key(&self, name: &str, user: Option<Arc<WrappingKey>>) -> Result<()> {
        let Some(user) = user else { return Ok(()) };
        let made = self.find_dataset(name)?;
        made.tree()
            .store_wrapping_key(&made, user)
            .map_err(|error| Error::from_dsl_error(name, &error))
    }
}

impl Snapshots<'_> {
    /// Creates a bookmark `FS#MARK` of a snapshot or bookmark of that file system or volume, or of one that it is a
    /// clone of.
    pub fn create_bookmark(self, source: &str, mark: &str) -> Result<()> {
        let (source, mark) = (source.to_owned(), mark.to_owned());
        self.pool.run_sync_task(move |active, change| {
            write::create_bookmark(change, &mark, &source)
                .map_err(|error| Error::from_dsl_error(&mark, &error))?;
            let head = mark.split('#').next().unwrap_or_default();
            record_dataset_event(active, change, "bookmark", head, &format!("{mark} of {source}"));
            Ok(())
        })
    }

    /// Makes snapshots, all of the same moment, or none at all.
    pub fn create(self, names: &[String]) -> Result<()> {
        self.pool.snapshots().create_with(names, &[])
    }

    /// The same with properties, which all of them get.
    pub fn create_with(self, names: &[String], properties: &[(String, String)]) -> Result<()> {
        if let Some(name) = names.first().cloned() {
            let properties = properties.to_vec();
            check_properties(&NewDataset { name, properties }, dsl::DatasetKind::Snapshot)?;
        }
        let (names, properties) = (names.to_vec(), properties.to_vec());
        self.pool.run_sync_task(move |active, change| {
            let first = names.first().cloned().unwrap_or_default();
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            write::create_snapshots(change, &all)
                .map_err(|error| Error::from_dsl_error(&first, &error))?;
            for name in all {
                record_dataset_event(active, change, "snapshot", name, "");
                for (property, value) in &properties {
                    set_property(
                        active,
                        change,
                        (name, dsl::DatasetKind::Snapshot),
                        (property, value),
                    )
                    .map_err(|error| Error::from_dsl_error(name, &error))?;
                }
            }
            Ok(())
        })
    }

    /// Rolls a file system or volume back to its newest snapshot.
    pub fn rollback(self, name: &str) -> Result<()> {
        self.pool.rollback_head(name, None)
    }

    /// The same if its newest snapshot is the one of that full name, also when the txg is written.
    pub fn rollback_to(self, snapshot: &str) -> Result<()> {
        let name = snapshot.split('@').next().unwrap_or_default();
        self.pool.rollback_head(name, Some(snapshot.to_owned()))
    }
}

impl Pool {
    fn rollback_head(&self, name: &str, to: Option<String>) -> Result<()> {
        let key =
            self.find_dataset(name)?.key().map_err(|error| Error::from_dsl_error(name, &error))?;
        let heads = [name.to_owned()];
        let name = name.to_owned();
        self.run_retiring_task(&heads, move |active, change| {
            let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
            if key.is_none() {
                write::check_no_partial_log(change, &name, None).map_err(failed)?;
            }
            write::rollback(change, &name, to.as_deref()).map_err(failed)?;
            active.close_dataset(write::head_id(change, &name).map_err(failed)?);
            record_dataset_event(active, change, "rollback", &name, "");
            reset_intent_log(active, change, &name, key)
        })
    }
}

impl Snapshots<'_> {
    /// Makes a file system that begins as a snapshot.
    pub fn clone_snapshot(self, snapshot: &str, new: &NewDataset) -> Result<()> {
        if !snapshot.contains('@') {
            let what = format!("'{snapshot}' is not a snapshot: clones are made of FS@NAME");
            return Err(Error::Usage { what });
        }
        if let Some((property, _)) =
            new.properties.iter().find(|(name, _)| is_encryption_property(name))
        {
            let why = format!(
                "{property} cannot be set on a clone; it is inherited from the clone's origin"
            );
            return Err(encryption_error(&why));
        }
        let origin = self.pool.find_dataset(snapshot)?;
        let failed = |why: dsl::Error| Error::from_dsl_error(snapshot, &why);
        let key = origin.key().map_err(failed)?;
        let kind = match origin.objset_kind().map_err(failed)? {
            Kind::Volume => dsl::DatasetKind::Volume,
            _ => dsl::DatasetKind::Filesystem,
        };
        self.pool.find_parent(&new.name)?;
        let (snapshot, mut new) = (snapshot.to_owned(), new.clone());
        let asks_for_all = |(name, value): &mut (String, String)| {
            kind == dsl::DatasetKind::Volume && name == "refreservation" && value == "auto"
        };
        let reserved: Vec<_> = new.properties.extract_if(.., asks_for_all).collect();
        let is_version = |(name, _): &mut (String, String)| name == "version";
        let version = new.properties.extract_if(.., is_version).last();
        let quotas = match kind {
            dsl::DatasetKind::Filesystem => owner_quotas::extract_quotas(&mut new)?,
            _ => OwnerQuotas::new(),
        };
        check_properties(&new, kind)?;
        // a size is not an entry in a table: it is set on the existing volume, and its reservation
        // after it
        let is_size = |(name, _): &mut (String, String)| name == "volsize";
        let mut sizes: Vec<_> = new.properties.extract_if(.., is_size).collect();
        sizes.extend(reserved);
        let name = new.name.clone();
        self.pool.run_sync_task(move |active, change| {
            let failed = |error: dsl::Error| Error::from_dsl_error(&new.name, &error);
            if key.is_none() {
                write::check_no_partial_log(change, &new.name, Some(&snapshot)).map_err(failed)?;
            }
            write::create_clone(change, &new.name, &snapshot).map_err(failed)?;
            reset_intent_log(active, change, &new.name, key)?;
            let origin = format!("origin={snapshot} ({})", dataset_id(change, &snapshot));
            record_dataset_event(active, change, "clone", &new.name, &origin);
            destroy_on_error(active, change, &new.name, || {
                set_properties(active, change, &new, kind).map_err(failed)
            })
        })?;
        let mut rest = sizes
            .iter()
            .try_for_each(|(property, size)| self.pool.properties().set(&name, property, size));
        if let Some((_, version)) = version {
            rest = rest.and_then(|()| self.pool.datasets().set_filesystem_version(&name, &version));
        }
        rest.and_then(|()| self.pool.set_owner_quotas(&name, &quotas)).or_else(|why| {
            self.pool.close_dataset(&name)?;
            self.pool.datasets().destroy(&name)?;
            Err(why)
        })
    }
}

impl Datasets<'_> {
    /// Makes a clone the one that its origin depends on.
    pub fn promote(self, name: &str) -> Result<()> {
        // it may become the encryption root in place of its origin
        self.pool.with_opens_blocked(|| {
            let clone = self.pool.find_dataset(name)?;
            let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
            let user = clone.tree().wrapping_key(&clone).map_err(failed)?;
            let promoted = name.to_owned();
            self.pool.run_sync_task(move |active, change| {
                let heads = write::promote(change, &promoted)
                    .map_err(|error| Error::from_dsl_error(&promoted, &error))?;
                // a log that cannot be read keeps the names that it has
                let _ = spa::move_logged_errors(change, heads);
                record_dataset_event(active, change, "promote", &promoted, "");
                Ok(())
            })?;
            self.pool.store_user_key(name, user)
        })
    }

    /// Gives a file system, volume or snapshot another name; a snapshot with `below` also in all
    /// datasets below its own.
    pub fn rename(self, from: &str, to: &str, below: bool) -> Result<()> {
        if !from.contains('@') {
            return self.pool.rename_head_dataset(from, to);
        }
        let (from, to) = (from.to_owned(), to.to_owned());
        self.pool.run_sync_task(move |active, change| {
            let id = dataset_id(change, &from);
            write::rename_snapshot(change, &from, &to, below)
                .map_err(|error| Error::from_dsl_error(&from, &error))?;
            record_event_with_id(active, change, "rename", (&from, id), &format!("-> {to}"));
            Ok(())
        })
    }
}

impl Properties<'_> {
    /// Sets a property.
    pub fn set(self, name: &str, property: &str, value: &str) -> Result<()> {
        self.pool.properties().set_all(name, &[(property.to_owned(), value.to_owned())])
    }

    /// Sets properties in one txg: all of them, or none. The size of a volume, a reservation that follows it, and
    /// the quotas of owners are not entries of the dataset's table: these are set after the others, one by one.
    pub fn set_all(self, name: &str, properties: &[(String, String)]) -> Result<()> {
        let kind = self.pool.dataset_kind(name)?;
        let is_separate = |(property, value): &&(String, String)| {
            owner_quotas::is_owner_quota(property) || is_volume_property(property, value)
        };
        let (separate, entries): (Vec<_>, Vec<_>) = properties.iter().partition(is_separate);
        let mut settings = Vec::new();
        for (property, value) in entries {
            if property == "keylocation" {
                self.pool.check_key_location(name, value)?;
            }
            let setting = dsl::property::parse_value(property, kind, value);
            let setting = setting.map_err(|error| Error::from_dsl_error(name, &error))?;
            settings.push((property.clone(), setting));
        }
        if !settings.is_empty() {
            self.pool.set_entries(name, kind, settings)?;
        }
        for (property, value) in separate {
            let quota = self.pool.set_owner_quota(name, property, value);
            quota.or_else(|| self.pool.set_volume_property(name, property, value)).transpose()?;
        }
        Ok(())
    }
}

impl Pool {
    fn set_entries(
        &self,
        name: &str,
        kind: dsl::DatasetKind,
        settings: Vec<(String, PropertyValue)>,
    ) -> Result<()> {
        let name = name.to_owned();
        self.run_sync_task(move |active, change| {
            write::set_properties(change, &name, kind, &settings)
                .map_err(|error| Error::from_dsl_error(&name, &error))?;
            for (property, setting) in &settings {
                let what = format_assignment(property, setting);
                record_dataset_event(active, change, "set", &name, &what);
            }
            Ok(())
        })?;
        self.refresh_properties();
        Ok(())
    }
}

impl Properties<'_> {
    /// Lets a property be inherited.
    pub fn inherit(self, name: &str, property: &str) -> Result<()> {
        self.pool.clear_property(name, property, false)
    }

    /// Lets a property have the value that came with a send stream, or else be inherited.
    pub fn revert(self, name: &str, property: &str) -> Result<()> {
        self.pool.clear_property(name, property, true)
    }
}

impl Pool {
    fn clear_property(&self, name: &str, property: &str, received: bool) -> Result<()> {
        let kind = self.dataset_kind(name)?;
        let (name, property) = (name.to_owned(), property.to_owned());
        self.run_sync_task(move |active, change| {
            write::inherit_property(change, &name, kind, &property, received)
                .map_err(|error| Error::from_dsl_error(&name, &error))?;
            record_dataset_event(active, change, "inherit", &name, &format!("{property}="));
            Ok(())
        })?;
        self.refresh_properties();
        Ok(())
    }

    fn dataset_kind(&self, name: &str) -> Result<dsl::DatasetKind> {
        self.find_dataset(name)?.kind().map_err(|error| Error::from_dsl_error(name, &error))
    }
}

impl Datasets<'_> {
    /// Shows the dataset `target` and all below it, as [`crate::RescuePool::list_datasets`] does.
    pub fn list(
        self,
        target: &str,
        wanted: &DatasetQuery,
        show: &mut dyn FnMut(Dataset),
        trouble: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let _pin = self.pool.pin();
        crate::dataset::list_datasets(&self.pool.tree()?, target, wanted, show, trouble)
    }

    /// Lists the space of all users, groups or projects in a file system or snapshot, as of the last txg
    /// that was synced.
    pub fn owner_usage(self, name: &str, kind: OwnerKind) -> Result<Vec<OwnerUsage>> {
        let _pin = self.pool.pin();
        crate::owner_properties::list_owner_usage(&self.pool.find_dataset(name)?, kind)
    }
}

/// Drops the part of the intent log that a head got from its origin snapshot.
pub(super) fn reset_intent_log(
    active: &spa::ActivePool,
    change: &write::SyncTaskContext<'_>,
    name: &str,
    key: Option<Key>,
) -> Result<()> {
    let id = write::head_id(change, name).map_err(|error| Error::from_dsl_error(name, &error))?;
    active.clear_log_header(change, id, key).map_err(|why| Error::Refused { what: why.to_string() })
}

/// Marks a new head without content as encrypted; returns the key of its blocks.
pub(super) fn record_encryption(
    change: &write::SyncTaskContext<'_>,
    id: ObjsetId,
    keying: Option<&DatasetEncryption>,
) -> dsl::Result<Option<Key>> {
    let Some(keying) = keying else { return Ok(None) };
    write::encrypt_dataset(change, id, &keying.as_new_key())?;
    Ok(Some(keying.key()))
}

/// Whether a file system, or a volume of this size and block size, can be created, as far as
/// that can be decided without its pool.
pub fn check_new_dataset(new: &NewDataset, volume: Option<(u64, u32)>) -> Result<()> {
    let mut new = new.clone();
    EncryptionOptions::extract(&mut new);
    if let Some((size, block_size)) = volume {
        check_volume_size(&new.name, size, block_size)?;
        return check_properties(&new, dsl::DatasetKind::Volume);
    }
    NameRules::extract(&mut new, None)?;
    owner_quotas::extract_quotas(&mut new)?;
    check_properties(&new, dsl::DatasetKind::Filesystem)
}

/// Checks all properties of a new dataset, before anything is created.
pub(super) fn check_properties(new: &NewDataset, kind: dsl::DatasetKind) -> Result<()> {
    for (name, value) in &new.properties {
        dsl::property::parse_value(name, kind, value)
            .map_err(|error| Error::from_dsl_error(&new.name, &error))?;
    }
    Ok(())
}

/// Makes a head that was just begun whole. If that cannot be, it is not made.
pub(super) fn destroy_on_error<T>(
    active: &spa::ActivePool,
    change: &write::SyncTaskContext<'_>,
    name: &str,
    rest: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let done = rest();
    if done.is_err() {
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        let id = write::head_id(change, name).map_err(failed)?;
        write::destroy(change, name).map_err(failed)?;
        active.close_dataset(id);
    }
    done
}

/// Sets the properties of a dataset that was just made.
pub(super) fn set_properties(
    active: &spa::ActivePool,
    change: &write::SyncTaskContext<'_>,
    new: &NewDataset,
    kind: dsl::DatasetKind,
) -> dsl::Result<()> {
    let mut all = new.properties.iter();
    all.try_for_each(|(name, value)| set_property(active, change, (&new.name, kind), (name, value)))
}

/// Sets a property from its text.
fn set_property(
    active: &spa::ActivePool,
    change: &write::SyncTaskContext<'_>,
    (dataset, kind): (&str, dsl::DatasetKind),
    (property, value): (&str, &str),
) -> dsl::Result<()> {
    let setting = dsl::property::parse_value(property, kind, value)?;
    write::set_property(change, dataset, kind, (property, &setting), write::SetSource::Local)?;
    record_dataset_event(active, change, "set", dataset, &format_assignment(property, &setting));
    Ok(())
}
