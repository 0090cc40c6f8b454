//! Snapshots of an imported pool go into a backup repository.

use std::sync::Arc;

use dmu::Objset;
use dsl::{Dataset, DatasetKind};
use job::Job;
use ondisk::blkptr::Regular;
use repository::{Backup, BackupSource, Manifest, ManifestKey, ManifestProperty, SnapshotSummary};
use spa::PoolDirectory;
use units::{ObjsetId, Txg, Zbookmark};
use zio::Source;

use super::open_volumes::DatasetHold;
use super::{Pool, Random};
use crate::backup::{BackupCounts, BackupRepository, ProtectReport, feature_names};
use crate::keys::format_name;
use crate::pool::handles::Streams;
use crate::{Error, Result};

/// The snapshots that are to be backed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupRequest {
    /// `FS@SNAPSHOT` is that snapshot; `FS` means all its snapshots that are newer than those in
    /// the repository, so that a pruned snapshot does not come back.
    pub targets: Vec<String>,
    /// Also the same of the descendants.
    pub recursive: bool,
    /// All that the snapshots in the repository need is protected from deletion until then, in seconds since 1970 (object
    /// lock); none: it is not.
    pub protect_until: Option<u64>,
}

/// The result of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackedUp {
    /// The names of the added snapshots.
    pub added: Vec<String>,
    /// The blocks and bytes that were stored of them.
    pub counts: BackupCounts,
    /// The objects that were protected, if the request protects them.
    pub protected: Option<ProtectReport>,
}

/// Reads blocks as they are stored on the pool's drives.
struct PoolBlocks<'a>(&'a Pool);

impl BackupSource for PoolBlocks<'_> {
    fn read_stored(&self, block: &Regular, zbookmark: Zbookmark) -> repository::ReadResult {
        self.0.0.spa.reader().read_stored(block, zbookmark)
    }
}

impl Streams<'_> {
    /// Adds snapshots to a repository. All of them become visible at once, or none. Keys are not needed.
    pub fn back_up(
        self,
        repository: &BackupRepository,
        request: &BackupRequest,
        job: &Job,
    ) -> Result<BackedUp> {
        let random: Arc<dyn zio::Random> =
            Arc::new(Random(Arc::clone(&self.pool.0.environment.random)));
        let mut backup = Backup::begin(repository.inner(), self.pool.guid(), random, job)
            .map_err(Error::from_repository_error)?;
        let planned = self.pool.plan_backup(&backup, request)?;
        job.progress.set_bytes_total(planned.iter().map(|(snapshot, _)| written(snapshot)).sum());
        let mut added = Vec::new();
        for (snapshot, _hold) in &planned {
            job.progress.set_message(snapshot.name());
            let base = find_base(snapshot, &backup)?;
            let manifest = self.pool.manifest_of(snapshot, repository.id())?;
            let objset = self.pool.raw_objset(snapshot)?;
            let stored =
                backup.add_snapshot(&objset, &PoolBlocks(self.pool), &manifest, base.as_ref());
            stored.map_err(Error::from_repository_error)?;
            added.push(snapshot.name());
        }
        let (now, _) = (self.pool.0.environment.now)();
        let counts = backup.finish(now).map_err(Error::from_repository_error)?;
        // old packs as well, which the new snapshots need
        let protected =
            request.protect_until.map(|until| repository.protect(until, job)).transpose()?;
        Ok(BackedUp { added, counts, protected })
    }
}

impl Pool {
    /// The snapshots to add, each with a hold, so that none is destroyed meanwhile. Older ones come
    /// first.
    fn plan_backup(
        &self,
        backup: &Backup<'_>,
        request: &BackupRequest,
    ) -> Result<Vec<(Dataset, DatasetHold)>> {
        let _pin = self.pin();
        let tree = self.tree()?;
        let mut found: Vec<Dataset> = Vec::new();
        for target in &request.targets {
            let (head, snapshot) = match target.split_once('@') {
                Some((head, snapshot)) => (head, Some(snapshot)),
                None => (target.as_str(), None),
            };
            let failed = |error: dsl::Error| Error::from_dsl_error(target, &error);
            // the target itself must exist; of those below, some have no such snapshot
            tree.find(target).map_err(failed)?;
            for dataset in tree.heads() {
                let dataset = dataset.map_err(failed)?;
                let name = dataset.name();
                let rest = name.strip_prefix(head);
                let is_below = rest.is_some_and(|it| request.recursive && it.starts_with('/'));
                if rest != Some("") && !is_below {
                    continue;
                }
                if let Some(snapshot) = snapshot {
                    found.extend(dataset.snapshot(snapshot).map_err(failed)?);
                    continue;
                }
                let newest = newest_stored(&dataset, backup, self.guid());
                let snapshots = dataset.snapshots().map_err(failed)?.into_iter();
                found.extend(snapshots.filter(|it| birth(it) > newest));
            }
        }
        let is_stored = |dataset: &Dataset| {
            let guid = dataset.guid().get();
            backup.snapshots().any(|it| it.guid == guid && it.pool == self.guid())
        };
        found.retain(|dataset| !is_stored(dataset));
        found.sort_by_key(|dataset| dataset.phys().map(|phys| (phys.creation_txg, dataset.guid())));
        found.dedup_by_key(|dataset| dataset.guid());
        let mut planned = Vec::new();
        for dataset in found {
            super::incomplete::check_complete(&dataset)?;
            let Some(id) = dataset.id() else { continue };
            planned.push((dataset, self.0.dataset_holds.hold(id)));
        }
        Ok(planned)
    }

    /// The object set of a snapshot, read without a key and past the cache.
    pub(super) fn raw_objset(&self, snapshot: &Dataset) -> Result<Objset> {
        let failed = |why: String| Error::Unreadable { subject: snapshot.name(), why };
        let (Some(id), Some(phys)) = (snapshot.id(), snapshot.phys()) else {
            return Err(failed("it is not a snapshot".to_owned()));
        };
        let source: Arc<dyn Source> = Arc::new(self.0.spa.reader().with_raw_dnodes());
        Objset::open(source, id, &phys.root, None).map_err(|why| failed(why.to_string()))
    }

    fn manifest_of(&self, snapshot: &Dataset, repository: &str) -> Result<Manifest> {
        let _pin = self.pin();
        let name = snapshot.name();
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        let phys = snapshot.phys().ok_or_else(|| Error::NoSuchDataset { name: name.clone() })?;
        let plain = |it: dsl::Property| ManifestProperty {
            name: it.name,
            value: it.value,
            source: it.source.to_string(),
        };
        let head = snapshot.tree().find(snapshot.dir().path()).map_err(failed)?;
        let origin = head.clone_origin().map_err(failed)?.map(|origin| origin.guid().get());
        Ok(Manifest {
            repository: repository.to_owned(),
            dataset: snapshot.dir().path().to_owned(),
            snapshot: snapshot.short_name().unwrap_or_default().to_owned(),
            guid: snapshot.guid().get(),
            pool_name: self.name().to_owned(),
            pool: self.guid(),
            checksum_salt: crate::hex(&self.checksum_salt()?),
            objset: snapshot.id().map_or(0, ObjsetId::get),
            txg: phys.creation_txg.get(),
            creation: phys.creation_time,
            time: (self.0.environment.now)().0,
            origin,
            volume: matches!(head.kind().map_err(failed)?, DatasetKind::Volume),
            referenced: phys.referenced,
            root: Manifest::encode_root(&phys.root),
            key: manifest_key(snapshot).map_err(failed)?,
            features: Some(feature_names(self.feature_facts(snapshot)?)),
            properties: snapshot.properties().map_err(failed)?.into_iter().map(plain).collect(),
        })
    }

    /// The salt of the pool's checksums; zeros for old pools, whose checksums need none.
    fn checksum_salt(&self) -> Result<[u8; 32]> {
        let failed = |error: spa::Error| self.explain_error(&error);
        let directory = PoolDirectory::open(self.0.spa.synced_mos().clone()).map_err(failed)?;
        let salt = directory.lookup_bytes("org.illumos:checksum_salt").map_err(failed)?;
        Ok(salt.and_then(|salt| salt.try_into().ok()).unwrap_or_default())
    }
}

/// The txg of the newest snapshot of a dataset in the repository.
fn newest_stored(head: &Dataset, backup: &Backup<'_>, pool: u64) -> Option<Txg> {
    let name = head.name();
    let stored = backup.snapshots().filter(|it| it.dataset == name && it.pool == pool);
    stored.map(|it| Txg::new(it.txg)).max()
}

/// The wrapped keys of an encrypted dataset.
fn manifest_key(snapshot: &Dataset) -> dsl::Result<Option<ManifestKey>> {
    let (Some(info), Some(wrapped)) = (snapshot.key_info()?, snapshot.wrapped_key()?) else {
        return Ok(None);
    };
    let root = snapshot.tree().encryption_root(snapshot)?;
    // the record of the root has the parameters of the user's key
    let root_info = root.as_ref().map(Dataset::key_info).transpose()?.flatten();
    let stretching = root_info.as_ref().unwrap_or(&info);
    let mut key = ManifestKey {
        encryption_root: root.map_or_else(|| snapshot.dir().path().to_owned(), |root| root.name()),
        format: format_name(stretching.format).to_owned(),
        pbkdf2_salt: stretching.salt,
        pbkdf2_iterations: stretching.iterations,
        ivset_guid: Some(snapshot.ivset_guid()?),
        ..ManifestKey::default()
    };
    key.set_wrapped(&wrapped);
    Ok(Some(key))
}

/// Bytes that a snapshot has and the one before it does not, as far as that is known.
fn written(snapshot: &Dataset) -> u64 {
    let referenced = snapshot.phys().map_or(0, |phys| phys.referenced);
    snapshot.written().ok().flatten().unwrap_or(referenced)
}

/// The newest snapshot in the repository from which a snapshot descends. The pool must still have
/// it: a bookmark does not prove that, because a forced receive keeps bookmarks.
fn find_base(snapshot: &Dataset, backup: &Backup<'_>) -> Result<Option<SnapshotSummary>> {
    let name = snapshot.name();
    let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
    let tree = snapshot.tree();
    let mut path = snapshot.dir().path().to_owned();
    let mut newest = birth(snapshot).unwrap_or(Txg::ZERO);
    loop {
        let head = tree.find(&path).map_err(failed)?;
        for ancestor in head.snapshots().map_err(failed)?.iter().rev() {
            let Some(txg) = birth(ancestor).filter(|txg| *txg <= newest) else { continue };
            let guid = ancestor.guid();
            let is_base = |it: &&SnapshotSummary| {
                it.guid == guid.get() && it.txg == txg.get() && guid != snapshot.guid()
            };
            if let Some(base) = backup.snapshots().find(is_base) {
                return Ok(Some(base.clone()));
            }
        }
        // an origin is older than its clone, so that this ends
        let Some(origin) = head.clone_origin().map_err(failed)? else { return Ok(None) };
        origin.dir().path().clone_into(&mut path);
        newest = birth(&origin).unwrap_or(Txg::ZERO);
    }
}

/// The txg of a snapshot.
fn birth(snapshot: &Dataset) -> Option<Txg> {
    snapshot.phys().map(|phys| phys.creation_txg)
}
