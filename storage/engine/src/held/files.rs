//! File systems that can be written.

use std::sync::Arc;

use dsl::KeyStatus;
use ondisk::version;
use ondisk::znode::Time;
use spa::{Owned, Set};
use txg::Tx;
use units::{ObjectId, ObjsetId};
use zil::{Log, Records};
use zpl::{NewFs, Writer};

use super::accounts::{Accountant, has};
use super::begin::{Beginner, Replaying};
use super::broken::BrokenLog;
use super::keep::{Keeps, Manners, SnapshotFolder};
use super::naming::Naming;
use super::room::Rooms;
use super::{Held, World, settings};
use crate::files::{Error as FileError, Files, Reason};
use crate::{Error, Result};

/// A file system of a held pool. Cheap to clone.
#[derive(Clone)]
pub struct LiveFiles {
    /// Reads it, with all that waits to be written.
    files: Files,
    writer: Arc<Writer>,
    set: Arc<Set>,
    pub(super) log: Arc<Log>,
    begin: Arc<Beginner>,
}

impl LiveFiles {
    /// Whether nothing in it may be changed (readonly).
    pub(super) fn is_read_only(&self) -> bool {
        self.begin.manners.now().read_only
    }

    /// Returns when all that was done to a file, and to names before that, will outlast a power
    /// cut. None: all that was done to any file.
    pub fn fsync(&self, file: Option<u64>) -> crate::files::Result<()> {
        if self.begin.manners.now().keeps == Keeps::Never {
            return Ok(());
        }
        self.commit(file.map(ObjectId::new))
    }

    /// What was done to a file, or to names (none), is said to be done: where the dataset wants it
    /// (sync=always), it will outlast a power cut by then.
    pub(super) fn done<T>(&self, file: Option<ObjectId>, what: T) -> crate::files::Result<T> {
        if self.begin.manners.now().keeps == Keeps::Always {
            self.commit(file).map_err(|why| match why.reason() {
                Reason::Stopped => FileError::Unkept,
                _ => why,
            })?;
        }
        Ok(what)
    }

    /// Where the dataset wants what is done to outlast power cuts (sync=always), all that was done will
    /// by then: for whoever was told [`Reason::Unkept`].
    pub fn settle(&self) -> crate::files::Result<()> {
        self.done(None, ())
    }

    fn commit(&self, file: Option<ObjectId>) -> crate::files::Result<()> {
        self.log.commit(file).map_err(zpl::Error::from)?;
        if self.set.is_retired() {
            return Err(zpl::Error::Stopped { objset: self.set.objset.id() }.into());
        }
        Ok(())
    }

    /// Frees what lost its last name and is held by nobody, unless nothing may be changed: then when
    /// that is over. What cannot be freed, as it is damaged, keeps nobody from the rest.
    fn drain(&self) {
        if !self.is_read_only() {
            drop(self.writer.drain());
        }
    }

    /// Reads it, with all that waits to be written.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Whether `.zfs` is in its topmost directory now.
    pub fn snapshot_folder(&self) -> SnapshotFolder {
        self.begin.manners.now().folder
    }

    /// Changes it.
    pub(super) fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// The number of its object set.
    pub fn id(&self) -> u64 {
        self.set.objset.id().get()
    }

    /// Whether it is no more: it was destroyed or taken back to a snapshot, and gives errors.
    pub fn is_ended(&self) -> bool {
        self.set.is_retired()
    }

    /// New files get numbers that none had in `ended`, which was opened before this was.
    pub fn number_after(&self, ended: &Self) {
        self.set.objset.number_after(&ended.set.objset);
    }

    /// Whether the pool lets files share blocks.
    pub(super) fn shares(&self) -> bool {
        self.begin.owned.may_clone()
    }

    pub(super) fn store(&self) -> &Arc<Set> {
        &self.set
    }
}

/// What a new file system is, where nothing else is said.
fn new_fs(now: Time, naming: Naming, projects: bool, version: u64) -> NewFs {
    let Naming { case, normalization, utf8_only } = naming;
    NewFs { case, normalization, utf8_only, owner: (0, 0), now, projects, slots: 1, version }
}

/// Makes the content of a new file system.
pub(super) fn fill(
    owned: &Owned,
    set: &Set,
    tx: &Tx,
    (world, naming): (&World, Naming),
) -> zpl::Result<()> {
    let flags = Accountant::of(owned, world).flags();
    set.edit(tx, move |header| header.flags = flags);
    let version = version::filesystem(owned.config().version);
    let new = new_fs(world.time(), naming, has(owned.mos(), "project_quota"), version);
    zpl::create(&set.objset, tx, &new, &mut || world.number())
}

impl Held {
    /// A file system by its full name, to be read and written.
    pub fn files(&self, name: &str) -> Result<LiveFiles> {
        let mut open = self.0.files.lock();
        if let Some(files) = open.get(name) {
            return Ok(files.clone());
        }
        let dataset = self.find(name)?;
        let failed = |error: dsl::Error| Error::of_dataset(name, &error);
        let Some(id) = dataset.id().filter(|_| !dataset.is_snapshot()) else {
            return Err(Error::Usage {
                what: format!("'{name}' is no file system that can be changed"),
            });
        };
        if dataset.key_status().map_err(failed)? == Some(KeyStatus::Unavailable) {
            return Err(crate::keys::locked(&dataset));
        }
        let set = self.live_set(&dataset, id)?;
        let files = self.open_files(&dataset, set).map_err(|error| match error {
            Trouble::Dataset(error) => failed(error),
            Trouble::Pool(error) => self.explain(&error),
            Trouble::Files(error) => {
                Error::Unreadable { subject: format!("'{name}'"), why: error.to_string() }
            }
        })?;
        open.insert(name.to_owned(), files.clone());
        Ok(files)
    }

    /// The object set of a file system or volume, to be changed.
    pub(super) fn live_set(&self, dataset: &dsl::Dataset, id: ObjsetId) -> Result<Arc<Set>> {
        super::partial::judge_whole(dataset)?;
        let owned = &self.0.owned;
        let set = if let Some(set) = owned.set(id) {
            set
        } else {
            let name = dataset.name();
            let objset = dataset.open().map_err(|error| Error::of_dataset(&name, &error))?;
            owned.adopt(objset.to_live(), settings::of_blocks(dataset))
        };
        owned.l2arc().set_kept(id, settings::of_caching(dataset));
        Ok(set)
    }

    fn open_files(
        &self,
        dataset: &dsl::Dataset,
        set: Arc<Set>,
    ) -> std::result::Result<LiveFiles, Trouble> {
        let owned = &self.0.owned;
        let log = owned.begin_log(&set)?;
        let fs = zpl::Fs::open(set.objset.clone(), settings::of_reading(dataset), None)?.0;
        let begin = Arc::new(Beginner {
            owned: Arc::clone(owned),
            set: Arc::clone(&set),
            log: Arc::clone(&log),
            world: self.0.world.clone(),
            rooms: Rooms::default(),
            manners: Manners::new(self.manner_of(dataset), &log),
            replaying: Replaying::default(),
        });
        let source = Arc::clone(&begin) as Arc<dyn zpl::Begin>;
        let allowed = zpl::Settings {
            projects: has(&owned.look(), "project_quota"),
            logs_packed: owned.may_log_packed(),
            ..zpl::Settings::default()
        };
        let writer = Writer::new(fs.clone(), source, settings::of_writing(dataset, &allowed))?;
        let files = LiveFiles {
            files: Files::live(fs),
            writer: Arc::new(writer),
            set,
            log,
            begin: Arc::clone(&begin),
        };
        if !owned.is_still() {
            self.replay(&dataset.name(), &files, &begin)?;
            files.drain();
        }
        Ok(files)
    }

    /// Does again what the intent log promised, and gives the log up. A record that cannot be done is
    /// its end.
    fn replay(
        &self,
        name: &str,
        files: &LiveFiles,
        begin: &Beginner,
    ) -> std::result::Result<(), Trouble> {
        let Some(found) = files.log.found() else { return Ok(()) };
        let objset = &files.set.objset;
        let (source, key) = (Arc::clone(objset.source()), objset.key().cloned());
        let mut records =
            Records::new(source, objset.id(), &found, key, self.0.owned.groups().synced());
        let now = self.0.world.time();
        for entry in &mut records {
            let entry = entry?;
            begin.replaying.set(Some(&entry));
            match files.writer.replay(now, &entry) {
                Ok(()) => {}
                // nothing is done now, and the log stays for the next who tries
                Err(why @ zpl::Error::Stopped { .. }) => return Err(why.into()),
                Err(why) => {
                    let (dataset, why) = (name.to_owned(), why.to_string());
                    self.note_broken(BrokenLog { dataset, record: entry.record.seq, why });
                    break;
                }
            }
        }
        begin.replaying.set(None);
        let tx = self.0.owned.begin()?;
        files.log.give_up(&tx);
        Ok(())
    }

    /// Claims what intent logs hold, and then does again what they promise; or gives that up, if the
    /// pool was taken back: it was done to later states.
    pub(super) fn take_logs_over(&self) -> Result<()> {
        let logged = self.logged()?;
        if self.0.owned.taken_back().is_some() {
            self.0.owned.settle_back().map_err(|why| self.explain(&why))?;
            return self.drop_logs(&logged);
        }
        for dataset in &logged {
            let name = dataset.name();
            // the key is needed to say in the root block that the log was claimed
            let live = dataset.open().map_err(|error| Error::of_dataset(&name, &error))?.to_live();
            let set = self.0.owned.adopt(live, settings::of_blocks(dataset));
            self.0.owned.begin_log(&set).map_err(|why| match why {
                spa::Error::IntentLog(zil::Error::OutOfReach { why }) => Error::LostLog {
                    pool: self.name().to_owned(),
                    dataset: name,
                    why: why.to_string(),
                },
                why => self.explain(&why),
            })?;
        }
        // what is there in part only is not changed here: its log waits for who does
        let whole = |dataset: &&dsl::Dataset| super::partial::judge_whole(dataset).is_ok();
        for dataset in logged.iter().filter(whole) {
            match dataset.kind() {
                Ok(dsl::Kind::Filesystem) => drop(self.files(&dataset.name())?),
                _ => drop(self.volume(&dataset.name())?),
            }
        }
        Ok(())
    }

    /// The datasets with intent logs that cannot wait.
    fn logged(&self) -> Result<Vec<dsl::Dataset>> {
        let tree = self.tree()?;
        let mut found = Vec::new();
        for dataset in tree.heads() {
            let Ok(dataset) = dataset else { continue };
            let name = dataset.name();
            let failed = |error: dsl::Error| Error::of_dataset(&name, &error);
            let Ok(objset) = dataset.objset(None) else { continue };
            if objset.header().log.chain.is_hole() {
                continue;
            }
            let locked = dataset.key_status().map_err(failed)?;
            if locked == Some(KeyStatus::Unavailable) {
                if self.0.owned.log_can_wait(&objset) {
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

    /// Drops logs with one group: with the first that is written the pool is one like any other, and
    /// what a log that was left promises would be believed.
    fn drop_logs(&self, logged: &[dsl::Dataset]) -> Result<()> {
        let mut drops = Vec::new();
        for dataset in logged {
            let name = dataset.name();
            let key = dataset.key().map_err(|error| Error::of_dataset(&name, &error))?;
            drops.extend(dataset.id().map(|id| (name, id, key)));
        }
        if drops.is_empty() {
            return Ok(());
        }
        self.change(move |owned, change| {
            drops.iter().try_for_each(|(name, id, key)| {
                let failed = |why: spa::Error| Error::Refused { what: format!("'{name}': {why}") };
                owned.drop_log(change, *id, key.clone()).map_err(failed)
            })
        })
    }

    /// Tells open file systems what their properties are now.
    pub(super) fn refresh(&self) {
        let open: Vec<(String, LiveFiles)> =
            self.0.files.lock().iter().map(|(name, files)| (name.clone(), files.clone())).collect();
        for (name, files) in open {
            let Ok(dataset) = self.find(&name) else { continue };
            files.store().configure(settings::of_blocks(&dataset));
            let caching = settings::of_caching(&dataset);
            self.0.owned.l2arc().set_kept(files.store().objset.id(), caching);
            let writer = files.writer();
            writer.set_settings(settings::of_writing(&dataset, &writer.settings()));
            let was_read_only = files.is_read_only();
            files.begin.manners.set(self.manner_of(&dataset), &files.log);
            if was_read_only {
                files.drain();
            }
        }
        self.refresh_volumes();
    }
}

enum Trouble {
    Dataset(dsl::Error),
    Files(zpl::Error),
    Pool(spa::Error),
}

impl From<spa::Error> for Trouble {
    fn from(error: spa::Error) -> Self {
        Self::Pool(error)
    }
}

impl From<zil::Error> for Trouble {
    fn from(error: zil::Error) -> Self {
        Self::Files(error.into())
    }
}

impl From<dsl::Error> for Trouble {
    fn from(error: dsl::Error) -> Self {
        Self::Dataset(error)
    }
}

impl From<zpl::Error> for Trouble {
    fn from(error: zpl::Error) -> Self {
        Self::Files(error)
    }
}
