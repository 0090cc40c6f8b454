//! The snapshots of a repository as datasets that can be read.
//!
//! `FS@SNAPSHOT` is the snapshot. `FS` alone is its newest snapshot, so that a mount of a dataset shows
//! that, and all snapshots in `.zfs/snapshot`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc::Cache;
use dmu::Objset;
use repository::{Manifest, SnapshotSummary};
use units::ObjsetId;
use zio::Source;

use super::BackupRepository;
use crate::files::{
    Content, DatasetCatalog, DatasetSpace, FileSystemReader, HeadDataset, IntentLogSummary,
};
use crate::{Error, Result};

impl BackupRepository {
    /// The snapshot of that name, or the newest of the dataset of that name.
    pub fn find_snapshot(&self, name: &str) -> Result<SnapshotSummary> {
        if name.contains('@') {
            return self.inner().find(name).map_err(Error::from_repository_error);
        }
        let snapshots = self.snapshots();
        let newest = snapshots.iter().filter(|it| it.dataset == name).max_by_key(|it| it.creation);
        let location = self.location();
        newest
            .cloned()
            .ok_or_else(|| Error::NotFound { what: format!("snapshot of '{name}' in {location}") })
    }

    /// The properties of a snapshot, as they were when its backup ran.
    pub fn snapshot_properties(
        &self,
        snapshot: &SnapshotSummary,
    ) -> Result<Vec<crate::dataset::Property>> {
        let manifest = self.manifest(snapshot)?;
        let plain = |it: repository::ManifestProperty| crate::dataset::Property {
            name: it.name,
            value: it.value,
            source: it.source,
            received: None,
        };
        Ok(manifest.properties.into_iter().map(plain).collect())
    }

    fn open_objset(&self, name: &str) -> Result<(Manifest, Objset)> {
        let manifest = self.manifest(&self.find_snapshot(name)?)?;
        let objset = self.unlocked_objset(&manifest)?;
        Ok((manifest, objset))
    }

    /// The object set of a snapshot, over the cache. An encrypted one needs its key.
    pub(super) fn unlocked_objset(&self, manifest: &Manifest) -> Result<Objset> {
        let name = manifest.name();
        let key = self.key_of(manifest)?;
        let source: Arc<dyn Source> = self.cache(manifest)?;
        let subject = || format!("the manifest of '{}'", manifest.name());
        let root =
            manifest.root_pointer().map_err(|why| Error::Unreadable { subject: subject(), why })?;
        let objset = Objset::open(source, ObjsetId::new(manifest.objset), &root, key);
        objset.map_err(|why| open_error(&name, &why.into()))
    }

    /// The cache before the blocks of a snapshot's pool.
    fn cache(&self, manifest: &Manifest) -> Result<Arc<Cache>> {
        let mut caches = self.0.caches.lock();
        if let Some((_, cache)) = caches.iter().find(|(pool, _)| *pool == manifest.pool) {
            return Ok(Arc::clone(cache));
        }
        let reader = self.inner().stored_reader(manifest);
        let source: Arc<dyn Source> = Arc::new(reader.map_err(Error::from_repository_error)?);
        let cache = Arc::new(Cache::new(source, &self.0.budget));
        caches.push((manifest.pool, Arc::clone(&cache)));
        Ok(cache)
    }
}

impl DatasetCatalog for BackupRepository {
    fn title(&self) -> String {
        self.location()
    }

    fn open_filesystem(&self, name: &str) -> Result<(FileSystemReader, IntentLogSummary)> {
        let (manifest, objset) = self.open_objset(name)?;
        let options = zpl::FsOptions {
            posix_acls: matches!(manifest.property("acltype"), Some("posix" | "posixacl")),
            user_xattrs: manifest.property("xattr") != Some("off"),
            ..zpl::FsOptions::default()
        };
        let (fs, _) =
            zpl::Fs::open(objset, options, None).map_err(|why| open_error(name, &why.into()))?;
        Ok((FileSystemReader::from_snapshot(fs), IntentLogSummary::default()))
    }

    fn open_volume(&self, name: &str) -> Result<(Content, IntentLogSummary)> {
        let (_, objset) = self.open_objset(name)?;
        let opened = zvol::Volume::open(&objset, None);
        let (volume, _) = opened.map_err(|why| open_error(name, &why.into()))?;
        Ok((Content::from_volume(volume), IntentLogSummary::default()))
    }

    fn heads_below(&self, target: &str) -> Vec<HeadDataset> {
        let below = |name: &str| {
            let rest = name.strip_prefix(target);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let snapshots = self.snapshots();
        let found: BTreeMap<&str, bool> = snapshots
            .iter()
            .filter(|snapshot| below(&snapshot.dataset))
            .map(|snapshot| (snapshot.dataset.as_str(), snapshot.volume))
            .collect();
        let head =
            |(name, is_volume): (&str, bool)| HeadDataset { name: name.to_owned(), is_volume };
        found.into_iter().map(head).collect()
    }

    fn snapshot_names(&self, dataset: &str) -> Result<Vec<String>> {
        let snapshots = self.snapshots();
        let of_dataset = snapshots.into_iter().filter(|snapshot| snapshot.dataset == dataset);
        Ok(of_dataset.map(|snapshot| snapshot.snapshot).collect())
    }

    fn child_filesystems(&self, name: &str) -> Vec<String> {
        let is_child = |head: &HeadDataset| {
            let rest = head.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('/'));
            !head.is_volume && rest.is_some_and(|rest| !rest.contains('/'))
        };
        self.heads_below(name).into_iter().filter(is_child).map(|head| head.name).collect()
    }

    fn space(&self, dataset: &str) -> DatasetSpace {
        let found = self.find_snapshot(dataset);
        DatasetSpace { referenced: found.map_or(0, |found| found.referenced), available: 0 }
    }

    fn logical_size(&self, name: &str) -> u64 {
        let found = self.find_snapshot(name).and_then(|found| self.manifest(&found));
        let value = found.ok().and_then(|manifest| {
            manifest.property("logicalreferenced").and_then(|value| value.parse().ok())
        });
        value.unwrap_or(0)
    }
}

/// Why a snapshot could not be opened.
fn open_error(name: &str, why: &crate::files::Error) -> Error {
    match why {
        crate::files::Error::FileSystem(zpl::Error::NotFilesystem { .. }) => {
            Error::Usage { what: format!("'{name}' is a snapshot of a volume and holds no files") }
        }
        crate::files::Error::Volume(zvol::Error::NotVolume { .. }) => Error::Usage {
            what: format!("'{name}' is a snapshot of a file system, not of a volume"),
        },
        why => Error::Unreadable { subject: format!("'{name}'"), why: why.to_string() },
    }
}
