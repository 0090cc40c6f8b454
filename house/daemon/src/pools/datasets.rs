//! Datasets: listed, created, changed.

use api::{
    CloneSnapshot, CreateBookmark, CreateFilesystem, CreateSnapshots, CreateVolume, CreatedVolume,
    Event, InheritProperty, ListDatasets, ListOwnerUsage, Mounting, RedactSnapshot, RenameDataset,
    Reply, SetProperties, pool_of,
};
use engine::dataset::{Dataset, DatasetQuery, OwnerUsage, is_settable};
use engine::files::IncompleteKind;
use engine::pool::{NewDataset, NewVolumeShape, Pool};

use super::{ManagedPool, Pools};
use crate::events::ChangeOptions;
use crate::shares::check_properties;
use crate::{Error, Result};

/// The default block size of volumes, in bytes.
const DEFAULT_VOLUME_BLOCK: u64 = 16 << 10;

impl Pools {
    /// Changes a dataset of the pool in which `name` is. The pool's other changes wait.
    pub(super) fn change_dataset<T>(
        &self,
        name: &str,
        work: impl FnOnce(&ManagedPool) -> Result<T>,
    ) -> Result<T> {
        let pool = self.pool_of_dataset(name)?;
        let _changing = pool.dataset_lock.lock();
        work(&pool)
    }

    pub(crate) fn list_datasets(&self, call: &ListDatasets) -> Result<Reply<Vec<Dataset>>> {
        let names = if call.names.is_empty() {
            self.imported.lock().keys().cloned().collect()
        } else {
            call.names.clone()
        };
        let (query, mut found, mut warnings) = (call.query(), Vec::new(), Vec::new());
        for name in &names {
            let pool = self.pool_of_dataset(name)?;
            let mut more = Vec::new();
            pool.handle.datasets().list(
                name,
                &query,
                &mut |dataset| more.push(dataset),
                &mut |event| warnings.push(event.to_string()),
            )?;
            pool.fill_mount_properties(&mut more);
            found.append(&mut more);
        }
        Ok(Reply { value: found, warnings })
    }

    pub(crate) fn list_owner_usage(&self, call: &ListOwnerUsage) -> Result<Vec<OwnerUsage>> {
        let pool = self.pool_of_dataset(&call.dataset)?;
        Ok(pool.handle.datasets().owner_usage(&call.dataset, call.kind.into())?)
    }

    pub(crate) fn create_filesystem(&self, call: &CreateFilesystem) -> Result<Mounting> {
        let (name, secret) = (call.name.as_str(), call.secret.as_ref());
        let options = ChangeOptions { keep_mounts: call.no_mount, ..ChangeOptions::default() };
        check_properties(name, &call.properties)?;
        self.change_dataset(name, |pool| {
            if call.parents && has_kind(&pool.handle, name, "filesystem")? {
                return Ok(Mounting::default());
            }
            if call.dry_run {
                let new = NewDataset { name: name.to_owned(), properties: call.properties.clone() };
                pool.handle.datasets().check_create(&new, None, call.parents)?;
                return Ok(Mounting::default());
            }
            let mut failed = self.create_parents(pool, name, call.parents, &options)?;
            let coming = [Event::DatasetCreated { dataset: name.to_owned() }];
            let ((), more) = self.change(&coming, &options, || {
                let new = NewDataset { name: name.to_owned(), properties: call.properties.clone() };
                let secret = secret.map(|secret| secret.0.as_slice());
                pool.handle.datasets().create_filesystem_with(&new, secret)?;
                pool.chown_root(name)
            })?;
            failed.extend(more);
            Ok(Mounting { failed })
        })
    }

    pub(crate) fn create_volume(&self, call: &CreateVolume) -> Result<Reply<CreatedVolume>> {
        let (name, options) = (call.name.as_str(), ChangeOptions::default());
        self.change_dataset(name, |pool| {
            if call.parents && has_kind(&pool.handle, name, "volume")? {
                return Ok(CreatedVolume::default().into());
            }
            let is_own = call.properties.iter().any(|(property, _)| property == "refreservation");
            let reserved = pool.handle.volumes().refreservation_for(call.size, call.block_size);
            let value =
                CreatedVolume { refreservation: (!call.sparse && !is_own).then_some(reserved) };
            let least = pool.handle.volumes().min_efficient_block();
            let mut warnings = wasteful_block_warning(call.block_size.into(), least);
            if call.dry_run {
                let new = NewDataset { name: name.to_owned(), properties: call.properties.clone() };
                let shape = NewVolumeShape { size: call.size, block_size: call.block_size };
                pool.handle.datasets().check_create(&new, Some(shape), call.parents)?;
                return Ok(Reply { value, warnings });
            }
            warnings.extend(self.create_parents(pool, name, call.parents, &options)?);
            let coming = [Event::DatasetCreated { dataset: name.to_owned() }];
            let ((), more) = self.change(&coming, &options, || {
                let new = NewDataset { name: name.to_owned(), properties: call.properties.clone() };
                let shape = (call.size, call.block_size);
                let secret = call.secret.as_ref().map(|secret| secret.0.as_slice());
                Ok(pool.handle.volumes().create_with(&new, shape, call.sparse, secret)?)
            })?;
            warnings.extend(more);
            Ok(Reply { value, warnings })
        })
    }

    pub(crate) fn clone_snapshot(&self, call: &CloneSnapshot) -> Result<Mounting> {
        let (name, options) = (call.name.as_str(), ChangeOptions::default());
        check_properties(name, &call.properties)?;
        self.change_dataset(name, |pool| {
            if call.parents && dataset_exists(&pool.handle, name)? {
                return Ok(Mounting::default());
            }
            let mut failed = self.create_parents(pool, name, call.parents, &options)?;
            let coming = [Event::DatasetCreated { dataset: name.to_owned() }];
            let ((), more) = self.change(&coming, &options, || {
                let new = NewDataset { name: name.to_owned(), properties: call.properties.clone() };
                Ok(pool.handle.snapshots().clone_snapshot(&call.snapshot, &new)?)
            })?;
            failed.extend(more);
            Ok(Mounting { failed })
        })
    }

    /// Creates the missing parents of a dataset. Returns a sentence for each that could not be mounted.
    pub(super) fn create_parents(
        &self,
        pool: &ManagedPool,
        name: &str,
        wanted: bool,
        options: &ChangeOptions,
    ) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        for (at, _) in name.match_indices('/').filter(|_| wanted) {
            let parent = name.get(..at).unwrap_or(name).to_owned();
            if dataset_exists(&pool.handle, &parent)? {
                continue;
            }
            let coming = [Event::DatasetCreated { dataset: parent.clone() }];
            let ((), more) = self.change(&coming, options, || {
                let new = NewDataset { name: parent.clone(), properties: Vec::new() };
                pool.handle.datasets().create_filesystem(&new)?;
                pool.chown_root(&parent)
            })?;
            warnings.extend(more);
        }
        Ok(warnings)
    }

    pub(crate) fn set_properties(&self, call: &SetProperties) -> Result<Mounting> {
        let options = ChangeOptions { keep_mounts: call.keep_mounts, ..ChangeOptions::default() };
        for_each_dataset(&call.names, |name| {
            self.change_dataset(name, |pool| {
                let set = |(property, value): &(String, String)| Event::PropertySet {
                    dataset: name.to_owned(),
                    property: property.clone(),
                    value: Some(value.clone()),
                };
                let is_version = |(property, _): &&(String, String)| property == "version";
                let (versions, others): (Vec<_>, Vec<_>) =
                    call.properties.iter().cloned().partition(|it| is_version(&it));
                let coming: Vec<_> = others.iter().map(set).collect();
                let work = || Ok(pool.handle.properties().set_all(name, &others)?);
                let mut warnings = self.change(&coming, &options, work)?.1;
                for (_, version) in &versions {
                    warnings.extend(pool.set_filesystem_version(name, version)?);
                }
                Ok(warnings)
            })
        })
    }

    pub(crate) fn inherit_property(&self, call: &InheritProperty) -> Result<Mounting> {
        for_each_dataset(&call.names, |name| {
            self.change_dataset(name, |pool| {
                let names = inheriting_datasets(&pool.handle, name, call)?;
                let cleared = |dataset: &String| Event::PropertySet {
                    dataset: dataset.clone(),
                    property: call.property.clone(),
                    value: None,
                };
                let coming: Vec<_> = names.iter().map(cleared).collect();
                let clear = |name: &String| {
                    let done = if call.received {
                        pool.handle.properties().revert(name, &call.property)
                    } else {
                        pool.handle.properties().inherit(name, &call.property)
                    };
                    Ok(done?)
                };
                let work = || names.iter().try_for_each(clear);
                Ok(self.change(&coming, &ChangeOptions::default(), work)?.1)
            })
        })
    }

    pub(crate) fn rename_dataset(&self, call: &RenameDataset) -> Result<Mounting> {
        let RenameDataset { name, to, recursive, .. } = call;
        let head = name.split_once('@').map(|(head, _)| head);
        let full = head.map_or_else(|| to.clone(), |head| format!("{head}@{to}"));
        let options = ChangeOptions {
            force: call.force,
            keep_mounts: call.keep_mounts,
            ..ChangeOptions::default()
        };
        self.change_dataset(name, |pool| {
            let coming = [Event::DatasetRenamed { from: name.clone(), to: full }];
            let (mut warnings, more) = self.change(&coming, &options, || {
                let parents = call.parents && head.is_none();
                let warnings = self.create_parents(pool, to, parents, &ChangeOptions::default())?;
                pool.handle.datasets().rename(name, to, *recursive)?;
                Ok(warnings)
            })?;
            warnings.extend(more);
            Ok(Mounting { failed: warnings })
        })
    }

    pub(crate) fn promote_clone(&self, name: &str) -> Result<()> {
        self.change_dataset(name, |pool| Ok(pool.handle.datasets().promote(name)?))
    }

    pub(crate) fn create_bookmark(&self, call: &CreateBookmark) -> Result<Reply<()>> {
        self.change_dataset(&call.bookmark, |pool| {
            let coming = [Event::BookmarkCreated { bookmark: call.bookmark.clone() }];
            let work =
                || Ok(pool.handle.snapshots().create_bookmark(&call.snapshot, &call.bookmark)?);
            let ((), warnings) = self.change(&coming, &ChangeOptions::default(), work)?;
            Ok(Reply::with_warnings(warnings))
        })
    }

    /// Creates a redaction bookmark. The walk over the snapshots takes long, so the lock is not held meanwhile.
    pub(crate) fn redact_snapshot(&self, call: &RedactSnapshot) -> Result<Reply<()>> {
        let RedactSnapshot { snapshot, bookmark, redaction_snapshots } = call;
        let pool = self.pool_of_dataset(snapshot)?;
        pool.handle.streams().redact(snapshot, bookmark, redaction_snapshots)?;
        let head = snapshot.split('@').next().unwrap_or_default();
        let coming = [Event::BookmarkCreated { bookmark: format!("{head}#{bookmark}") }];
        let publish = |_: &_| self.change(&coming, &ChangeOptions::default(), || Ok(()));
        Ok(Reply::with_warnings(self.change_dataset(head, publish)?.1))
    }

    pub(crate) fn create_snapshots(&self, call: &CreateSnapshots) -> Result<Reply<()>> {
        let Some(first) = call.names.first() else {
            return Err(Error::usage_error("no snapshot is named"));
        };
        self.change_dataset(first, |pool| {
            let names = snapshot_names(pool, call)?;
            let created = |name: &String| Event::SnapshotCreated { snapshot: name.clone() };
            let coming: Vec<_> = names.iter().map(created).collect();
            let work = || Ok(pool.handle.snapshots().create_with(&names, &call.properties)?);
            let ((), warnings) = self.change(&coming, &ChangeOptions::default(), work)?;
            Ok(Reply::with_warnings(warnings))
        })
    }
}

/// A warning for blocks of a volume that waste space on the vdevs of its pool.
fn wasteful_block_warning(block_size: u64, least: u64) -> Vec<String> {
    let least = least.max(DEFAULT_VOLUME_BLOCK);
    if block_size >= least {
        return Vec::new();
    }
    // the largest power of two that is not above it, and the default at least
    let better = (1_u64 << least.ilog2()).max(DEFAULT_VOLUME_BLOCK);
    vec![format!(
        "volblocksize ({block_size}) is less than the default minimum block size ({least}).\nTo reduce wasted \
         space a volblocksize of {better} is recommended."
    )]
}

/// The full names of the snapshots that a call creates.
fn snapshot_names(pool: &ManagedPool, call: &CreateSnapshots) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for name in &call.names {
        let Some((head, part)) = name.split_once('@') else {
            return Err(Error::usage_error(format!("'{name}' is not a snapshot name: FS@NAME")));
        };
        if pool_of(head) != pool.handle.name() {
            return Err(Error::refused_error(
                "all snapshots of one command must be in the same pool",
            ));
        }
        if !call.recursive {
            all.push(name.clone());
            continue;
        }
        // a dataset that was received in part cannot have a snapshot
        let is_partial = |it: &Dataset| {
            matches!(
                pool.handle.datasets().incomplete_kind(&it.name),
                Ok(Some(IncompleteKind::Received))
            )
        };
        let below = list_heads(&pool.handle, head)?;
        let heads = below.iter().filter(|it| is_head(it) && !is_partial(it));
        all.extend(heads.map(|dataset| format!("{}@{part}", dataset.name)));
    }
    Ok(all)
}

/// Does the same to each of several datasets. A failure for one does not keep the others from it.
fn for_each_dataset(
    names: &[String],
    mut work: impl FnMut(&str) -> Result<Vec<String>>,
) -> Result<Mounting> {
    let (mut warnings, mut failed) = (Vec::new(), Vec::new());
    for name in names {
        match work(name) {
            Ok(more) => warnings.extend(more),
            Err(why) => failed.push(why),
        }
    }
    match &failed[..] {
        [] => Ok(Mounting { failed: warnings }),
        [one] if names.len() == 1 => Err(one.clone()),
        [first, ..] => {
            let said = warnings.into_iter().chain(failed.iter().map(ToString::to_string));
            let message = said.collect::<Vec<_>>().join("\n");
            Err(Error::Reported { message, status: first.status() })
        }
    }
}

/// The datasets in which a call clears a property, the outermost first.
fn inheriting_datasets(held: &Pool, name: &str, call: &InheritProperty) -> Result<Vec<String>> {
    if !call.recursive {
        return Ok(vec![name.to_owned()]);
    }
    let heads = list_heads(held, name)?;
    // volumes below lack some properties of file systems
    let has_it = |it: &&Dataset| it.name == name || is_settable(&call.property, &it.kind);
    let heads = heads.iter().filter(|dataset| is_head(dataset)).filter(has_it);
    Ok(heads.map(|dataset| dataset.name.clone()).collect())
}

fn is_head(dataset: &Dataset) -> bool {
    matches!(dataset.kind.as_str(), "filesystem" | "volume")
}

/// A file system or volume and all those below it, but no snapshots: there may be thousands.
fn list_heads(held: &Pool, target: &str) -> Result<Vec<Dataset>> {
    let kinds = ["filesystem", "volume"].map(str::to_owned).to_vec();
    list_wanted(
        held,
        target,
        &DatasetQuery { kinds, properties: vec!["type".to_owned()], depth: None },
    )
}

/// The names of a file system or volume and of those below it, parents first.
pub(crate) fn list_head_names(held: &Pool, target: &str) -> Result<Vec<String>> {
    Ok(list_heads(held, target)?.into_iter().filter(is_head).map(|it| it.name).collect())
}

/// A dataset, its snapshots and its descendants, with the properties that show dependencies.
pub(super) fn list_subtree(held: &Pool, target: &str) -> Result<Vec<Dataset>> {
    let properties = ["createtxg", "clones", "origin"].map(str::to_owned).to_vec();
    list_wanted(held, target, &DatasetQuery { properties, ..DatasetQuery::default() })
}

fn list_wanted(held: &Pool, target: &str, wanted: &DatasetQuery) -> Result<Vec<Dataset>> {
    let (mut found, mut trouble) = (Vec::new(), None);
    held.datasets().list(target, wanted, &mut |dataset| found.push(dataset), &mut |event| {
        trouble = Some(event.to_string());
    })?;
    // a plan from a list with gaps would be wrong
    trouble.map_or(Ok(found), |why| Err(Error::refused_error(why)))
}

fn dataset_exists(held: &Pool, name: &str) -> Result<bool> {
    Ok(dataset_kind(held, name)?.is_some())
}

/// Whether a dataset of that name and kind exists.
fn has_kind(held: &Pool, name: &str, kind: &str) -> Result<bool> {
    Ok(dataset_kind(held, name)?.is_some_and(|found| found == kind))
}

/// The kind of the dataset of that name, if it exists.
fn dataset_kind(held: &Pool, name: &str) -> Result<Option<String>> {
    let wanted = DatasetQuery {
        depth: Some(0),
        properties: vec!["type".to_owned()],
        ..DatasetQuery::default()
    };
    let mut kind = None;
    match held.datasets().list(name, &wanted, &mut |it| kind = Some(it.kind), &mut |_| ()) {
        Ok(()) => Ok(kind),
        Err(engine::Error::NoSuchDataset { .. }) => Ok(None),
        Err(why) => Err(why.into()),
    }
}
