//! File systems that can be written.

use std::sync::Arc;

use dsl::KeyStatus;
use ondisk::version;
use posix::Time;
use spa::{ActivePool, OpenDataset};
use txg::Tx;
use units::{ObjectId, ObjsetId};
use zil::{IntentLog, LogReader};
use zpl::{FsCreateOptions, FsWriter};

use super::accounting::{ZplAccounting, has_feature};
use super::name_rules::NameRules;
use super::replay_failures::ReplayFailure;
use super::space::SpaceCheck;
use super::sync_policy::{SharedSyncPolicy, Snapdir, SyncMode};
use super::transactions::{FileSystemTransactions, ReplayState};
use super::{Environment, Pool, settings};
use crate::files::{Error as FileError, FileSystemReader, Reason};
use crate::pool::handles::Datasets;
use crate::{Error, Result};

/// A file system of an imported pool. Cheap to clone.
#[derive(Clone)]
pub struct OpenFileSystem {
    /// Reads it, with all that waits to be written.
    reader: FileSystemReader,
    writer: Arc<FsWriter>,
    dataset: Arc<OpenDataset>,
    pub(super) log: Arc<IntentLog>,
    transactions: Arc<FileSystemTransactions>,
    guid: u64,
}

impl OpenFileSystem {
    /// Whether nothing in it may be changed (readonly).
    pub fn is_read_only(&self) -> bool {
        self.transactions.sync_policy.current().read_only
    }

    /// Returns when all that was done to a file, and to names before that, will outlast a power
    /// cut. None: all that was done to any file.
    pub fn fsync(&self, file: Option<u64>) -> crate::files::Result<()> {
        if self.transactions.sync_policy.current().sync == SyncMode::Disabled {
            return Ok(());
        }
        self.commit(file.map(ObjectId::new))
    }

    /// Completes a change of a file, or of names (none): with sync=always it returns when the
    /// change is durable.
    pub(super) fn finish_operation<T>(
        &self,
        file: Option<ObjectId>,
        what: T,
    ) -> crate::files::Result<T> {
        if self.transactions.sync_policy.current().sync == SyncMode::Always {
            self.commit(file).map_err(|why| match why.reason() {
                Reason::Suspended => FileError::NotCommitted,
                _ => why,
            })?;
        }
        Ok(what)
    }

    /// With sync=always commits all changes: for a caller that got [`Reason::NotCommitted`].
    pub fn commit_if_sync_always(&self) -> crate::files::Result<()> {
        self.finish_operation(None, ())
    }

    fn commit(&self, file: Option<ObjectId>) -> crate::files::Result<()> {
        self.log.commit(file).map_err(zpl::Error::from)?;
        if self.dataset.is_retired() {
            return Err(zpl::Error::Stopped { objset: self.dataset.objset().id() }.into());
        }
        Ok(())
    }

    /// Frees the files without names and holds, unless the file system is read-only: then they wait
    /// for the end of that. A damaged one that cannot be freed does not stop the others.
    fn drain_unlinked(&self) {
        if !self.is_read_only() {
            drop(self.writer.drain_unlinked());
        }
    }

    /// Reads it, with all that waits to be written.
    pub fn reader(&self) -> &FileSystemReader {
        &self.reader
    }

    /// Whether `.zfs` is in its topmost directory now.
    pub fn snapdir(&self) -> Snapdir {
        self.transactions.sync_policy.current().snapdir
    }

    /// Changes it.
    pub(super) fn writer(&self) -> &Arc<FsWriter> {
        &self.writer
    }

    /// The number of its object set.
    pub fn objset_id(&self) -> u64 {
        self.dataset.objset().id().get()
    }

    /// Whether every change is committed to the intent log before it returns (sync=always).
    pub fn is_sync_always(&self) -> bool {
        self.transactions.sync_policy.current().sync == SyncMode::Always
    }

    /// Guid of the dataset, which stays the same when it is renamed or the pool is imported elsewhere.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Whether it no longer exists: it was destroyed or rolled back, and gives errors.
    pub fn is_retired(&self) -> bool {
        self.dataset.is_retired()
    }

    /// New files get numbers that none had in `ended`, which was opened before this was.
    pub fn allocate_ids_after(&self, ended: &Self) {
        self.dataset.objset().skip_object_ids_of(ended.dataset.objset());
    }

    /// Whether the pool lets files share blocks.
    pub(super) fn has_block_cloning(&self) -> bool {
        self.transactions.spa.can_clone()
    }

    pub(super) fn spa(&self) -> &ActivePool {
        &self.transactions.spa
    }

    pub(super) fn dataset(&self) -> &Arc<OpenDataset> {
        &self.dataset
    }
}

/// The default options of a new file system.
fn new_fs_options(now: Time, naming: NameRules, projects: bool, version: u64) -> FsCreateOptions {
    let NameRules { case, normalization, utf8_only, version: _ } = naming;
    FsCreateOptions {
        case,
        normalization,
        utf8_only,
        owner: (0, 0),
        now,
        has_projects: projects,
        dnode_slots: 1,
        version,
    }
}

/// Makes the content of a new file system.
pub(super) fn init_filesystem(
    owned: &ActivePool,
    set: &OpenDataset,
    tx: &Tx,
    (world, naming): (&Environment, NameRules),
) -> zpl::Result<()> {
    let flags = ZplAccounting::new(owned, world).objset_flags();
    set.edit_header(tx, move |header| header.flags = flags);
    // a version above the pool's was refused before
    let version = naming.version.unwrap_or(version::filesystem_version(owned.config().version));
    let new = new_fs_options(
        world.znode_time(),
        naming,
        has_feature(owned.mos(), "project_quota"),
        version,
    );
    zpl::create_fs(set.objset(), tx, &new, &mut || world.random_u64())
}

impl Datasets<'_> {
    /// A file system by its full name, to be read and written.
    pub fn filesystem(self, name: &str) -> Result<OpenFileSystem> {
        let mut open = self.pool.0.filesystems.lock();
        if let Some(files) = open.get(name) {
            return Ok(files.clone());
        }
        let dataset = self.pool.find_dataset(name)?;
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        let Some(id) = dataset.id().filter(|_| !dataset.is_snapshot()) else {
            return Err(Error::Usage {
                what: format!("'{name}' is not a file system that can be changed"),
            });
        };
        if dataset.key_status().map_err(failed)? == Some(KeyStatus::Unavailable) {
            return Err(crate::keys::locked_error(&dataset));
        }
        let set = self.pool.open_dataset(&dataset, id)?;
        let files = self.pool.open_filesystem(&dataset, set).map_err(|error| match error {
            OpenError::Dataset(error) => failed(error),
            OpenError::Pool(error) => self.pool.explain_error(&error),
            OpenError::FileSystem(error) => {
                Error::Unreadable { subject: format!("'{name}'"), why: error.to_string() }
            }
        })?;
        open.insert(name.to_owned(), files.clone());
        Ok(files)
    }

    /// Whether a file system has removed files that programs have open, or whose space is being freed.
    ///
    /// # Errors
    ///
    /// The dataset is no file system, or cannot be read.
    pub fn has_unlinked_files(self, name: &str) -> Result<bool> {
        let fs = self.pool.datasets().filesystem(name)?;
        zpl::has_unlinked_files(fs.dataset.objset())
            .map_err(|why| Error::Unreadable { subject: format!("'{name}'"), why: why.to_string() })
    }
}

impl Pool {
    /// The object set of a file system or volume, to be changed.
    pub(super) fn open_dataset(
        &self,
        dataset: &dsl::Dataset,
        id: ObjsetId,
    ) -> Result<Arc<OpenDataset>> {
        super::incomplete::check_complete(dataset)?;
        let owned = &self.0.spa;
        let set = if let Some(set) = owned.dataset(id) {
            set
        } else {
            let name = dataset.name();
            let objset =
                dataset.open_objset().map_err(|error| Error::from_dsl_error(&name, &error))?;
            owned.open_dataset(objset.to_writable(), settings::block_settings(dataset))
        };
        owned.l2arc().set_policy(id, settings::l2arc_policy(dataset));
        Ok(set)
    }

    fn open_filesystem(
        &self,
        dataset: &dsl::Dataset,
        set: Arc<OpenDataset>,
    ) -> std::result::Result<OpenFileSystem, OpenError> {
        let owned = &self.0.spa;
        let log = owned.open_log(&set)?;
        let fs = zpl::Fs::open(set.objset().clone(), settings::read_options(dataset), None)?.0;
        let begin = Arc::new(FileSystemTransactions {
            spa: Arc::clone(owned),
            dataset: Arc::clone(&set),
            log: Arc::clone(&log),
            environment: self.0.environment.clone(),
            space: SpaceCheck::default(),
            sync_policy: SharedSyncPolicy::new(self.sync_policy(dataset), &log),
            replay: ReplayState::default(),
        });
        let source = Arc::clone(&begin) as Arc<dyn zpl::Transactions>;
        let allowed = zpl::WriteSettings {
            has_projects: has_feature(&owned.synced_mos(), "project_quota"),
            logs_sa_xattrs: owned.can_log_saxattr(),
            ..zpl::WriteSettings::default()
        };
        let writer =
            FsWriter::new(fs.clone(), source, settings::write_settings(dataset, &allowed))?;
        let files = OpenFileSystem {
            reader: FileSystemReader::from_fs(fs),
            writer: Arc::new(writer),
            dataset: set,
            log,
            transactions: Arc::clone(&begin),
            guid: dataset.guid().get(),
        };
        if !owned.is_read_only() {
            self.replay_log(&dataset.name(), &files, &begin)?;
            files.drain_unlinked();
        }
        Ok(files)
    }

    /// Replays the intent log, and frees it. A record that cannot be replayed ends the replay.
    fn replay_log(
        &self,
        name: &str,
        files: &OpenFileSystem,
        begin: &FileSystemTransactions,
    ) -> std::result::Result<(), OpenError> {
        let Some(found) = files.log.unreplayed_header() else { return Ok(()) };
        let objset = files.dataset.objset();
        let (source, key) = (Arc::clone(objset.source()), objset.key().cloned());
        let mut records =
            LogReader::new(source, objset.id(), &found, key, self.0.spa.txgs().synced_txg());
        let now = self.0.environment.znode_time();
        for entry in &mut records {
            let entry = entry?;
            begin.replay.set_record(Some(&entry));
            match files.writer.replay_record(now, &entry) {
                Ok(()) => {}
                // nothing is replayed now, and the log stays for the next attempt
                Err(why @ zpl::Error::Stopped { .. }) => return Err(why.into()),
                Err(why) => {
                    let (dataset, why) = (name.to_owned(), why.to_string());
                    self.add_replay_failure(ReplayFailure { dataset, seq: entry.record.seq, why });
                    break;
                }
            }
        }
        begin.replay.set_record(None);
        let tx = self.0.spa.begin_tx()?;
        files.log.finish_replay(&tx);
        Ok(())
    }

    /// Claims intent logs, and then replays them; or discards them after a rewind, because their
    /// records apply to later states.
    pub(super) fn claim_logs(&self) -> Result<()> {
        let logged = self.datasets_with_logs()?;
        if self.0.spa.rewound_to().is_some() {
            self.0.spa.commit_rewind().map_err(|why| self.explain_error(&why))?;
            return self.drop_logs(&logged);
        }
        for dataset in &logged {
            let name = dataset.name();
            // the root block with the claimed log header needs the key
            let live = dataset
                .open_objset()
                .map_err(|error| Error::from_dsl_error(&name, &error))?
                .to_writable();
            let set = self.0.spa.open_dataset(live, settings::block_settings(dataset));
            self.0.spa.open_log(&set).map_err(|why| match why {
                spa::Error::IntentLog(zil::Error::OutOfReach { why }) => Error::MissingLog {
                    pool: self.name().to_owned(),
                    dataset: name,
                    why: why.to_string(),
                },
                why => self.explain_error(&why),
            })?;
        }
        // an incomplete dataset is not changed here: its log waits for the resumed receive
        let whole = |dataset: &&dsl::Dataset| super::incomplete::check_complete(dataset).is_ok();
        for dataset in logged.iter().filter(whole) {
            match dataset.kind() {
                Ok(dsl::DatasetKind::Filesystem) => {
                    drop(self.datasets().filesystem(&dataset.name())?);
                }
                _ => drop(self.volumes().get(&dataset.name())?),
            }
        }
        Ok(())
    }

    /// The datasets with intent logs that cannot wait.
    fn datasets_with_logs(&self) -> Result<Vec<dsl::Dataset>> {
        let tree = self.tree()?;
        let mut found = Vec::new();
        for dataset in tree.heads() {
            let Ok(dataset) = dataset else { continue };
            let name = dataset.name();
            let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
            let Ok(objset) = dataset.objset(None) else { continue };
            if objset.header().log.chain.is_hole() {
                continue;
            }
            let locked = dataset.key_status().map_err(failed)?;
            if locked == Some(KeyStatus::Unavailable) {
                if self.0.spa.can_defer_log(&objset) {
                    continue;
                }
                let root = tree.encryption_root(&dataset).map_err(failed)?;
                let root = root.map_or_else(|| name.clone(), |root| root.name());
                return Err(Error::LockedLog { pool: self.name().to_owned(), dataset: name, root });
            }
            found.push(dataset);
        }
        Ok(found)
    }

    /// Drops logs with one txg: the first synced txg would make the pool like any other, and a log
    /// that is left would be replayed by a later import.
    fn drop_logs(&self, logged: &[dsl::Dataset]) -> Result<()> {
        let mut drops = Vec::new();
        for dataset in logged {
            let name = dataset.name();
            let key = dataset.key().map_err(|error| Error::from_dsl_error(&name, &error))?;
            drops.extend(dataset.id().map(|id| (name, id, key)));
        }
        if drops.is_empty() {
            return Ok(());
        }
        self.run_sync_task(move |owned, change| {
            drops.iter().try_for_each(|(name, id, key)| {
                let failed = |why: spa::Error| Error::Refused { what: format!("'{name}': {why}") };
                owned.discard_log(change, *id, key.clone()).map_err(failed)
            })
        })
    }

    /// Passes the present properties to open file systems.
    pub(super) fn refresh_properties(&self) {
        let open: Vec<(String, OpenFileSystem)> = self
            .0
            .filesystems
            .lock()
            .iter()
            .map(|(name, files)| (name.clone(), files.clone()))
            .collect();
        for (name, files) in open {
            let Ok(dataset) = self.find_dataset(&name) else { continue };
            files.dataset().update_settings(settings::block_settings(&dataset));
            let caching = settings::l2arc_policy(&dataset);
            self.0.spa.l2arc().set_policy(files.dataset().objset().id(), caching);
            let writer = files.writer();
            let shown = settings::read_options(&dataset);
            writer.fs().set_shown_xattrs(shown.posix_acls, shown.user_xattrs);
            writer.set_settings(settings::write_settings(&dataset, &writer.settings()));
            let was_read_only = files.is_read_only();
            files.transactions.sync_policy.update(self.sync_policy(&dataset), &files.log);
            if was_read_only {
                files.drain_unlinked();
            }
        }
        self.refresh_volumes();
    }
}

enum OpenError {
    Dataset(dsl::Error),
    FileSystem(zpl::Error),
    Pool(spa::Error),
}

impl From<spa::Error> for OpenError {
    fn from(error: spa::Error) -> Self {
        Self::Pool(error)
    }
}

impl From<zil::Error> for OpenError {
    fn from(error: zil::Error) -> Self {
        Self::FileSystem(error.into())
    }
}

impl From<dsl::Error> for OpenError {
    fn from(error: dsl::Error) -> Self {
        Self::Dataset(error)
    }
}

impl From<zpl::Error> for OpenError {
    fn from(error: zpl::Error) -> Self {
        Self::FileSystem(error)
    }
}
