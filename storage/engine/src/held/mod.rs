//! A pool that is held: made here or taken over, to be changed.
//!
//! [`create`] makes a pool, [`hold`] takes one over that is on drives; both give a [`Held`], which
//! changes datasets and gives file systems that can be written ([`LiveFiles`]). What is changed
//! is on the drives after [`Held::sync`]; someone must call [`Held::run`] on a thread of its own,
//! so that changes do not pile up.

mod accounts;
mod alike;
mod auxiliary;
mod begin;
mod broken;
mod cache;
mod change;
mod create;
mod datasets;
mod destroy;
mod drive;
mod drives;
mod elsewhere;
mod encrypt;
mod ending;
mod files;
mod history;
mod keep;
mod look;
mod naming;
mod own;
mod owners;
mod partial;
mod pool_name;
mod rekey;
#[cfg(test)]
mod replayed;
mod rewind;
mod room;
mod roots;
mod scan;
#[cfg(test)]
mod sequence;
mod sets;
mod settings;
mod slow;
mod status;
mod thick;
mod used;
mod volumes;
mod world;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dsl::Tree;
use ondisk::label::PoolState;
use parking_lot::Mutex;
use spa::Owned;

use crate::event::Event;
use crate::{Error, Result};
pub use arc::Memory;
pub use broken::BrokenLog;
pub use cache::CacheCounts;
pub use change::{Caller, Move, New, Set};
pub use create::{
    NewPool, NewVdev, TakeOver, check_name, create, create_keyed, create_on, create_on_with,
    create_with, hold, hold_as, hold_on, hold_on_as, would_rewind,
};
pub use datasets::{NewDataset, judge_new};
pub use destroy::DestroyPlan;
pub use drive::{Drive, open_drive};
pub use files::LiveFiles;
pub use keep::SnapshotFolder;
pub use look::Snapshot;
pub use own::{PoolProperty, Wishes};
pub use rewind::{Judged, Judging, Rewind, Rewound};
pub use roots::{Tried, encryption_roots, try_keys};
pub use scan::{Mended, Scan, ScanStatus, Watch};
pub use spa::auxiliary::Role;
pub use spa::design::{Groups, Purpose, Shape};
pub use status::{DedupSums, PoolStatus, Sweep, VdevStatus};
pub use used::InUse;
pub use volumes::LiveVolume;
pub use world::{Fill, World};
pub use zpl::{MoveKind, Position, Stretch, XattrMode, without_set_id};

/// The keys that were given to a held pool, for whoever holds the same pool after it.
#[derive(Clone, Debug)]
pub struct KnownKeys(Arc<dsl::Keys>);

/// Frees the memory that pools keep for blocks to come. A pool in use takes it again as it needs it.
pub fn free_buffers() {
    device::buffer::free_all();
}

/// A pool that is held. Cheap to clone.
#[derive(Clone)]
pub struct Held(Arc<Inner>);

struct Inner {
    owned: Arc<Owned>,
    world: World,
    files: Mutex<HashMap<String, LiveFiles>>,
    volumes: Mutex<HashMap<String, LiveVolume>>,
    /// The volumes that somebody has open.
    used: used::Used,
    /// The keys that were given.
    keys: Arc<dsl::Keys>,
    /// Whoever wants to change something of a pool that stands still is told so at once, instead
    /// of being made to wait (failmode=continue).
    goes_on: AtomicBool,
    /// The walk over it that goes on, or was the last.
    scans: scan::Scans,
    /// Where it was taken back to.
    rewound: Option<Rewound>,
    /// Of which the user is to be told.
    broken_logs: Mutex<Vec<BrokenLog>>,
    /// What the import found that the user is to be told.
    events: Mutex<Vec<Event>>,
    /// The datasets as of the last txg for which somebody asked.
    tree: Mutex<Option<Tree>>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({:?})", self.0.owned)
    }
}

impl Held {
    fn new(owned: Owned, world: World, keys: Option<KnownKeys>) -> Self {
        Self::rewound_to(None, owned, world, keys)
    }

    fn rewound_to(
        rewound: Option<Rewound>,
        owned: Owned,
        world: World,
        keys: Option<KnownKeys>,
    ) -> Self {
        let (files, volumes) = (Mutex::default(), Mutex::default());
        device::buffer::keep(usize::try_from(world.dirty).unwrap_or(usize::MAX));
        owned.set_accounts(Arc::new(accounts::Accountant::of(&owned, &world)));
        let owned = Arc::new(owned);
        let weak = Arc::downgrade(&owned);
        // whoever waits for a group and finds nobody who writes it does so
        owned.groups().set_driver(move || {
            if let Some(owned) = weak.upgrade() {
                drop(owned.sync());
            }
        });
        let goes_on = AtomicBool::new(false);
        let keys = keys.map(|known| known.0).unwrap_or_default();
        let scans = scan::Scans::default();
        let held = Self(Arc::new(Inner {
            owned,
            world,
            files,
            volumes,
            used: used::Used::default(),
            keys,
            goes_on,
            scans,
            rewound,
            broken_logs: Mutex::default(),
            events: Mutex::default(),
            tree: Mutex::default(),
        }));
        held.learn_failmode();
        held
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.owned.name()
    }

    /// Whether that is its name only until it is exported.
    pub fn is_name_temporary(&self) -> bool {
        self.0.owned.is_called_otherwise()
    }

    /// Its identity.
    pub fn guid(&self) -> u64 {
        self.0.owned.guid().get()
    }

    /// To where it was taken back when it was taken over, if it was.
    pub fn rewound(&self) -> Option<Rewound> {
        self.0.rewound
    }

    fn note_events(&self, events: Vec<Event>) {
        self.0.events.lock().extend(events);
    }

    /// What the import found that the user is to be told, as far as nobody was told of it yet.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.events.lock())
    }

    /// The last transaction group that is on the drives.
    pub fn txg(&self) -> u64 {
        self.0.owned.groups().synced().get()
    }

    /// Has everything that was changed so far written, and waits for that.
    pub fn sync(&self) -> Result<()> {
        self.0.owned.sync().map_err(|why| self.explain(&why))
    }

    /// Writes out what was changed, every `interval` and when enough of it waits, until told to
    /// stop. For a thread of its own.
    pub fn run(&self, interval: Duration, stop: &AtomicBool) -> Result<()> {
        self.0.owned.serve(|| self.write_groups(interval, stop))
    }

    /// Whether a thread does so: drives that fail past redundancy are waited for from then on.
    pub fn is_served(&self) -> bool {
        self.0.owned.is_served()
    }

    fn write_groups(&self, interval: Duration, stop: &AtomicBool) -> Result<()> {
        let groups = self.0.owned.groups();
        let _duty = groups.writer();
        while !stop.load(Ordering::Acquire) && !groups.is_stopped() {
            let due = groups.wait_due(interval);
            if due || self.0.owned.is_dirty() {
                self.sync()?;
            }
            // what cannot be mended now is found again by who reads it next, or a scrub
            let _ = self.0.owned.heal();
        }
        Ok(())
    }

    /// Writes out what was changed and ends: this host has the pool still, and takes it over again
    /// when it comes back. All handles are of no use afterwards.
    pub fn release(&self) -> Result<()> {
        self.end_scans();
        self.0.files.lock().clear();
        self.0.volumes.lock().clear();
        let done = self.sync();
        self.0.owned.abandon();
        done
    }

    /// Counts the errors of a drive anew (that of a path or guid), or of all, and has the pool go on
    /// that stands still because drives failed: what was being written is tried again, and nothing is
    /// lost. Returns when all that waited is on the drives. Drives that failed or were not there are looked
    /// for where they were, and beside that.
    pub fn clear(&self, drive: Option<&str>) -> Result<()> {
        let only = drive.map(|name| self.find_any_drive(name)).transpose()?;
        self.find_auxiliary();
        if !self.is_standing_still() {
            self.take_back();
        }
        self.0.owned.clear(only).map_err(|why| self.explain(&why))?;
        self.sync()?;
        self.note_places();
        Ok(())
    }

    /// The keys that were given to it.
    pub fn known_keys(&self) -> KnownKeys {
        KnownKeys(Arc::clone(&self.0.keys))
    }

    /// The paths of the drives that are there.
    pub fn drives(&self) -> Vec<PathBuf> {
        let config = self.0.owned.config();
        let leaves = config.tree.iter().flat_map(ondisk::label::VdevConfig::leaves);
        let found =
            leaves.filter_map(|leaf| self.0.owned.tree().leaf(leaf.guid)?.device().cloned());
        let found = found.map(|device| PathBuf::from(device.name()));
        found.chain(self.auxiliary_drives()).collect()
    }

    /// The same, and where those are to be that are not.
    pub fn known_drives(&self) -> Vec<PathBuf> {
        let missing = self.missing_drives().into_iter().map(|(_, path)| path);
        self.drives().into_iter().chain(missing).collect()
    }

    /// Gives the pool up, so that others can import it. All handles are of no use afterwards.
    pub fn export(&self) -> Result<()> {
        self.leave(PoolState::Exported)
    }

    /// Destroys the pool: its labels say so. Its data stay until the drives are used again.
    pub fn destroy_pool(&self) -> Result<()> {
        self.leave(PoolState::Destroyed)
    }

    fn leave(&self, state: PoolState) -> Result<()> {
        self.end_scans();
        self.0.files.lock().clear();
        self.0.volumes.lock().clear();
        self.0.owned.leave(state).map_err(|why| self.explain(&why))
    }

    /// As long as this is there, all that the last group on the drives leads to can be read, however
    /// many more are written. It should be there briefly.
    fn pin(&self) -> spa::Pin {
        self.0.owned.pin()
    }

    /// The datasets, as they are on the drives. Read once for each txg: with a thousand datasets that
    /// takes longer than most requests, each of which asks several times.
    fn tree(&self) -> Result<Tree> {
        let look = self.0.owned.look();
        let facts = dsl::PoolFacts { name: self.name().to_owned(), usable: self.0.owned.usable() };
        let mut known = self.0.tree.lock();
        let is_same = |tree: &&Tree| tree.mos().root() == look.root() && *tree.facts() == facts;
        if let Some(tree) = known.as_ref().filter(is_same) {
            return Ok(tree.clone());
        }
        let keys = Arc::clone(&self.0.keys);
        let tree = Tree::open_with(look.clone(), facts, keys).map_err(|error| Error::Damaged {
            pool: self.name().to_owned(),
            why: error.to_string(),
        })?;
        // what cannot be read now may be readable the next time
        *known = Some(&tree).filter(|tree| tree.faults().is_empty()).cloned();
        Ok(tree)
    }

    fn find(&self, name: &str) -> Result<dsl::Dataset> {
        let _pin = self.pin();
        self.tree()?.find(name).map_err(|error| Error::of_dataset(name, &error))
    }

    /// Whether it was taken over to be looked at only: nothing of it is written, whatever happens.
    pub fn is_read_only(&self) -> bool {
        self.0.owned.is_still()
    }

    /// Refuses if it was.
    pub fn judge_change(&self) -> Result<()> {
        if self.is_read_only() { Err(self.explain(&spa::Error::Still)) } else { Ok(()) }
    }

    fn explain(&self, why: &spa::Error) -> Error {
        if matches!(why, spa::Error::Still) {
            let what = format!(
                "pool '{}' is imported read-only: export it, and import it without \
                 -o readonly=on, to change it",
                self.name()
            );
            return Error::Refused { what };
        }
        Error::Suspended { pool: self.name().to_owned(), why: why.to_string() }
    }
}
