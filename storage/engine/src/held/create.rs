//! Making pools, and taking pools over.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, File};
use ondisk::label::PoolState;
use spa::auxiliary::{Auxiliary, Named};
use spa::design::{Drive, Groups, Purpose, Shape};
use spa::{Candidate, Owned};
use units::{Ashift, Guid};

use super::accounts::Accountant;
use super::auxiliary::FoundDrive;
use super::datasets::judge;
use super::encrypt::{Keying, keying};
use super::naming::Naming;
use super::rewind::{Chosen, Judging, Rewind, Rewound, choose};
use super::{Held, KnownKeys, NewDataset, Wishes, World, auxiliary, pool_name, slow};
use crate::event::Event;
use crate::{Error, Result, summary};

/// A top-level vdev that is to be.
#[derive(Clone, Debug)]
pub struct NewVdev {
    /// How its drives stand together.
    pub shape: Shape,
    /// Their paths.
    pub drives: Vec<PathBuf>,
    /// What it is for.
    pub purpose: Purpose,
}

/// A pool that is to be.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its top-level vdevs.
    pub vdevs: Vec<NewVdev>,
    /// log2 of the smallest write; none: what suits the drives.
    pub ashift: Option<u64>,
    /// Properties of its root file system.
    pub properties: Vec<(String, String)>,
    /// Use drives that are, or were, part of another pool, and vdevs of unlike redundancy.
    pub force: bool,
}

/// log2 of the sector that is taken where nothing else is said: drives of today write 4 KiB at
/// least, and a smaller one costs them a read each time.
const USUAL_ASHIFT: u64 = 12;

/// Makes a pool on drives that are free, with all features and no properties of its own.
pub fn create(new: &NewPool, world: &World) -> Result<Held> {
    create_with(new, Wishes::of(&[], false)?, world)
}

/// Makes a pool on drives that are free.
pub fn create_with(new: &NewPool, wishes: Wishes, world: &World) -> Result<Held> {
    create_keyed(new, wishes, None, world)
}

/// The same; `secret` is the user's key of its root file system, if that is to be encrypted.
pub fn create_keyed(
    new: &NewPool,
    wishes: Wishes,
    secret: Option<&[u8]>,
    world: &World,
) -> Result<Held> {
    check_name(&new.name)?;
    check_redundancy(new)?;
    let drives = new.vdevs.iter().flat_map(|vdev| &vdev.drives);
    let devices = drives.map(|path| free_drive(path, new.force)).collect::<Result<Vec<_>>>()?;
    if !new.force {
        super::alike::check(new, &devices)?;
    }
    make(new, &devices, (wishes, secret), world)
}

impl Held {
    /// Gives the pool another name from when it is exported on; until then it is called as it is now.
    pub fn name_once_exported(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.0.owned.name_in_labels(name);
        self.sync()
    }
}

/// Makes a pool on devices that are open already: those of the drives that `new` names, in that
/// order. Whatever they hold is lost.
pub fn create_on(new: &NewPool, devices: &[Arc<dyn Device>], world: &World) -> Result<Held> {
    create_on_with(new, Wishes::of(&[], false)?, devices, world)
}

/// The same, with properties of its own and maybe without some features.
pub fn create_on_with(
    new: &NewPool,
    wishes: Wishes,
    devices: &[Arc<dyn Device>],
    world: &World,
) -> Result<Held> {
    check_name(&new.name)?;
    check_redundancy(new)?;
    make(new, devices, (wishes, None), world)
}

fn make(
    new: &NewPool,
    devices: &[Arc<dyn Device>],
    (mut wishes, secret): (Wishes, Option<&[u8]>),
    world: &World,
) -> Result<Held> {
    let mut root = NewDataset { name: new.name.clone(), properties: new.properties.clone() };
    let keying = keying(world, &mut root, None, secret)?;
    let naming = Naming::take(&mut root, None)?;
    judge(&root, dsl::Kind::Filesystem)?;
    let wanted = new.ashift.unwrap_or(USUAL_ASHIFT);
    let ashift = Ashift::new(wanted)
        .ok_or_else(|| Error::Usage { what: format!("ashift={wanted}: it must be 9 to 16") })?;
    if let Some(shift) = new.ashift {
        wishes.keep_ashift(shift);
    }
    let named: usize = new.vdevs.iter().map(|vdev| vdev.drives.len()).sum();
    if named != devices.len() {
        let what = format!("{named} drives are named, and {} are there", devices.len());
        return Err(Error::Usage { what });
    }
    let mut opened = devices.iter();
    let mut tops = Vec::new();
    let (mut auxiliary, mut of_vdevs) = (Vec::new(), Vec::new());
    for vdev in &new.vdevs {
        let own: Vec<_> = vdev.drives.iter().zip(opened.by_ref()).collect();
        let drives: Vec<Drive> = own.iter().copied().map(drive).collect();
        let devices = own.into_iter().map(|(_, device)| Arc::clone(device));
        if let Some(role) = vdev.purpose.role() {
            let with = |(drive, device)| Auxiliary { role, drive, device };
            auxiliary.extend(drives.into_iter().zip(devices).map(with));
            continue;
        }
        of_vdevs.extend(devices);
        let top = spa::design::top(vdev.shape, &drives, ashift, vdev.purpose);
        tops.push(top.map_err(|why| Error::Usage { what: why.to_string() })?);
    }
    let below = spa::NewPool {
        name: new.name.clone(),
        tops,
        devices: of_vdevs,
        auxiliary,
        features: wishes.features.clone(),
        host: world.host.clone(),
        key: keying.as_ref().map(Keying::of_root),
    };
    let mut fill = |owned: &Owned, set: &spa::Set, tx: &txg::Tx| {
        owned.set_accounts(Arc::new(Accountant::of(owned, world)));
        super::files::fill(owned, set, tx, (world, naming))
            .map_err(|why| spa::Error::Content { why: why.to_string() })
    };
    let made = spa::create(below, world.below(), &mut fill);
    let made =
        made.map_err(|why| Error::NotMade { pool: new.name.clone(), why: why.to_string() })?;
    let held = Held::new(made.owned, world.clone(), None);
    held.0.owned.forget(made.root);
    let user = keying.and_then(|keying| keying.of_user());
    if let Err(why) = held.remember(&new.name, user).and_then(|()| furnish(&held, &root, wishes)) {
        // nobody has it, and its drives are as free as they were
        held.destroy_pool()?;
        return Err(why);
    }
    Ok(held)
}

/// Gives a pool that was just made its properties, and those of its root file system.
fn furnish(held: &Held, root: &NewDataset, wishes: Wishes) -> Result<()> {
    for (name, value) in &root.properties {
        held.set(&root.name, name, value)?;
    }
    wishes.fulfil(held)
}

pub(super) fn drive((path, device): (&PathBuf, &Arc<dyn Device>)) -> Drive {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let is_disk = !path.is_file();
    Drive { path: path.display().to_string(), size: device.size(), is_disk }
}

/// Opens a drive that is in nobody's use.
pub(super) fn free_drive(path: &Path, force: bool) -> Result<Arc<dyn Device>> {
    let device = slow::open_exclusive(path).map_err(|error| Error::of_device(&error))?;
    if force {
        return Ok(device);
    }
    if let (Some(labelled), _) = spa::read_labels(&device) {
        let pool = &labelled.config.pool;
        // a spare or a cache drive that no pool has open holds nothing that anybody would miss
        if !matches!(pool.state, PoolState::Destroyed | PoolState::Spare | PoolState::Cache) {
            let pool = pool.name.clone().unwrap_or_else(|| "?".to_owned());
            return Err(Error::Taken { path: path.display().to_string(), pool });
        }
    } else if let Some(whose) = device::signature(&*device) {
        return Err(Error::Filled { path: path.display().to_string(), whose });
    }
    Ok(device)
}

/// Bytes of a pool's name: OpenZFS keeps room for `/$ORIGIN@$ORIGIN` behind it, in 256 with a zero.
const LONGEST_NAME: usize = 239;

/// Whether a pool may be called so: names are as OpenZFS has them.
pub fn check_name(name: &str) -> Result<()> {
    let refuse =
        |why: &str| Err(Error::Usage { what: format!("'{name}' is no name for a pool: {why}") });
    let reserved = ["mirror", "raidz", "draid", "spare"];
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return refuse("it must begin with a letter");
    }
    if let Some(word) = reserved.iter().find(|word| name.starts_with(**word)) {
        return refuse(&format!("names that begin with '{word}' are reserved"));
    }
    if name == "log" {
        return refuse("that word is reserved");
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.: ".contains(c);
    if !name.chars().all(fits) {
        return refuse("it may have letters, digits and _ - . : only");
    }
    if name.len() > LONGEST_NAME {
        return refuse(&format!("it has {} bytes, and {LONGEST_NAME} fit", name.len()));
    }
    Ok(())
}

/// All data vdevs bear the loss of as many drives.
fn check_redundancy(new: &NewPool) -> Result<()> {
    let usage = |what: String| Err(Error::Usage { what });
    let data: Vec<&NewVdev> =
        new.vdevs.iter().filter(|vdev| vdev.purpose == Purpose::Data).collect();
    if data.is_empty() {
        return usage("a pool needs one vdev for data at least".to_owned());
    }
    let mut seen = std::collections::BTreeSet::new();
    for path in new.vdevs.iter().flat_map(|vdev| &vdev.drives) {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if !seen.insert(real) {
            return usage(format!("'{}' is named twice", path.display()));
        }
    }
    let bears = |vdev: &NewVdev| match vdev.shape {
        Shape::Single => 0,
        Shape::Mirror => vdev.drives.len().saturating_sub(1),
        Shape::Raidz(parity) | Shape::Draid(Groups { parity, .. }) => {
            usize::try_from(parity).unwrap_or(0)
        }
    };
    let first = data.first().map_or(0, |vdev| bears(vdev));
    let unlike = new
        .vdevs
        .iter()
        .filter(|vdev| vdev.purpose != Purpose::Log && vdev.purpose.role().is_none())
        .any(|vdev| bears(vdev) != first);
    if unlike && !new.force {
        return usage(
            "the vdevs bear the loss of unlike numbers of drives, so that the weakest decides for \
             the whole pool; use -f if that is meant"
                .to_owned(),
        );
    }
    Ok(())
}

/// How a pool is taken over.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of one command")]
pub struct TakeOver {
    /// One that another host had and did not export, too.
    pub force: bool,
    /// One that was destroyed; otherwise none that was.
    pub destroyed: bool,
    /// What it is called from now on.
    pub new_name: Option<String>,
    /// It is called so until it is exported, and has its old name then.
    pub temporary: bool,
    /// Keys of encryption roots, as users have them: they are needed for what the intent logs of
    /// encrypted datasets promise.
    pub keys: Vec<(String, Vec<u8>)>,
    /// Keys that are known from before.
    pub known: Option<KnownKeys>,
    /// What intent logs may promise on log devices that are missing is given up.
    pub without_logs: bool,
    /// To be looked at only: nothing is written, what intent logs promise is left alone, and it may be
    /// in the midst of what writing could not go on with.
    pub read_only: bool,
    /// How far back it may be taken.
    pub rewind: Rewind,
    /// Shows how far the reading has come that comes before that.
    pub judging: Arc<Judging>,
    /// Pools that are here already: names with guids. A name is had by one pool only.
    pub others: Vec<(String, u64)>,
}

/// To where the pool of that name or guid would be taken back; nothing is written. None: it is not.
pub fn would_rewind(
    paths: &[PathBuf],
    wanted: &str,
    how: &TakeOver,
    world: &World,
) -> Result<Option<Rewound>> {
    let Seen { pool, members, .. } = drives_of(paths, wanted, how, world)?;
    let devices = open_all(&members, true)?;
    let search = crate::search_on(&devices);
    let candidate = search.choose(&pool.to_string())?;
    let chosen = choose(candidate, (how.rewind, &how.judging), (&world.cache, world.workers))?;
    judge_lacking(candidate, &chosen.pool)?;
    Ok(chosen.rewound)
}

/// Takes over the pool of that name or guid, which is on drives among `paths`. `force` takes one
/// that another host had and did not export.
pub fn hold(paths: &[PathBuf], wanted: &str, force: bool, world: &World) -> Result<Held> {
    hold_as(paths, wanted, &TakeOver { force, ..TakeOver::default() }, world)
}

/// Takes over the pool of that name or guid, which is on drives among `paths`.
pub fn hold_as(paths: &[PathBuf], wanted: &str, how: &TakeOver, world: &World) -> Result<Held> {
    if let Some(name) = &how.new_name {
        check_name(name)?;
    }
    let Seen { pool, members, duplicates, others } = drives_of(paths, wanted, how, world)?;
    let devices = open_all(&members, how.read_only)?;
    let opens = |named: &Named| auxiliary::open(&others, named);
    let held = take(&devices, &pool.to_string(), how, &opens, world)?;
    held.note_events(duplicates);
    held.note_events(auxiliary::duplicates(&held.0.owned, &others));
    Ok(held)
}

fn open_all(paths: &[PathBuf], read_only: bool) -> Result<Vec<Arc<dyn Device>>> {
    let open = |path: &PathBuf| {
        let opened = if read_only {
            File::open(path).map(|file| Arc::new(file) as Arc<dyn Device>)
        } else {
            slow::open_exclusive(path)
        };
        opened.map_err(|error| Error::of_device(&error))
    };
    paths.iter().map(open).collect()
}

/// Takes over the pool of that name or guid, which is on devices that are open for writing; from
/// whom, is not asked.
pub fn hold_on(devices: &[Arc<dyn Device>], wanted: &str, world: &World) -> Result<Held> {
    hold_on_as(devices, wanted, &TakeOver::default(), world)
}

/// The same, in some way.
pub fn hold_on_as(
    devices: &[Arc<dyn Device>],
    wanted: &str,
    how: &TakeOver,
    world: &World,
) -> Result<Held> {
    let search = crate::search_on(devices);
    let opens = |named: &Named| {
        let mut others = search.others_found().iter();
        others.find(|other| other.guid() == named.guid).map(|other| Arc::clone(&other.device))
    };
    take(devices, wanted, how, &opens, world)
}

fn take(
    devices: &[Arc<dyn Device>],
    wanted: &str,
    how: &TakeOver,
    opens: auxiliary::Opens<'_>,
    world: &World,
) -> Result<Held> {
    let search = crate::search_on(devices);
    let candidate = search.choose(wanted)?;
    let chosen = choose(candidate, (how.rewind, &how.judging), (&world.cache, world.workers))?;
    let Chosen { mut pool, rewound } = chosen;
    judge_lacking(candidate, &pool)?;
    if let Some(name) = &how.new_name {
        pool_name::check_fits(&pool, name)?;
    }
    match &how.new_name {
        Some(name) if how.temporary => pool.call(name),
        Some(name) => pool.rename(name),
        None => (),
    }
    let name = pool.name().to_owned();
    // nothing was written to it as yet
    if how.others.iter().any(|(other, guid)| *other == name && *guid != candidate.guid.get()) {
        return Err(Error::NameTaken { pool: name });
    }
    let failed = |why: spa::Error| Error::NotHeld { pool: name, why: why.to_string() };
    if how.read_only {
        let owned = Owned::still(pool, world.below()).map_err(failed)?;
        let held = Held::rewound_to(rewound, owned, world.clone(), how.known.clone());
        return with_keys(held, how);
    }
    let owned = Owned::new(pool, world.below()).map_err(failed)?;
    // who exports a pool has all written that was promised
    let exported = candidate.config().is_some_and(|label| label.pool.state == PoolState::Exported);
    if how.without_logs || exported {
        owned.forgive();
    }
    owned.take_over(world.host.clone());
    auxiliary::take(&owned, opens);
    let held = Held::rewound_to(rewound, owned, world.clone(), how.known.clone());
    let held = with_keys(held, how)?;
    held.take_logs_over()?;
    held.drop_leftovers()?;
    held.note_places();
    Ok(held)
}

/// Loads the keys that were given.
fn with_keys(held: Held, how: &TakeOver) -> Result<Held> {
    for (dataset, secret) in &how.keys {
        // it may be called otherwise from now on
        let below = dataset.find('/').and_then(|at| dataset.get(at..)).unwrap_or_default();
        held.load_key(&format!("{}{below}", held.name()), secret)?;
    }
    Ok(held)
}

/// Refuses a pool of which a part is lost, as changing it would lose the rest: what is there can be
/// read. It can do without log devices, if they hold no promises.
fn judge_lacking(candidate: &Candidate, pool: &spa::Pool) -> Result<()> {
    let trees = summary::trees(candidate, Some(pool));
    let data = trees.iter().filter(|top| !top.is_log);
    let lacking: Vec<_> = data.filter_map(|top| summary::lacking(top, candidate)).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Error::PartlyLost { pool: candidate.name().to_owned(), lacking })
}

/// The drives of a pool, and which it is.
struct Seen {
    pool: Guid,
    members: Vec<PathBuf>,
    /// Copies of the drives, which are left alone.
    duplicates: Vec<Event>,
    /// Spares and cache drives, of whatever pool.
    others: Vec<FoundDrive>,
}

/// The drives of a pool, and which it is; nothing of it stays open.
fn drives_of(paths: &[PathBuf], wanted: &str, how: &TakeOver, world: &World) -> Result<Seen> {
    let search = crate::search(paths).only(how.destroyed);
    let candidate = search.choose(wanted)?;
    search.check_originals_free(candidate)?;
    let newest = candidate.devices.iter().max_by_key(|device| device.synced());
    if let Some(pool) = newest.map(|device| &device.config.pool) {
        let foreign = pool.host_id.is_some_and(|host| host != world.host.0);
        if pool.state == PoolState::Active && foreign && !how.force {
            let host = pool.host_name.clone().unwrap_or_else(|| "another host".to_owned());
            return Err(Error::Foreign { pool: candidate.name().to_owned(), host });
        }
        if pool.state == PoolState::Active && foreign {
            let host = pool.host_name.as_deref().unwrap_or("another host");
            super::elsewhere::check(candidate, host)?;
        }
    }
    let paths = candidate.devices.iter().map(|device| PathBuf::from(device.device.name()));
    let others = auxiliary::found(&search);
    let duplicates = candidate.duplicates.iter().map(Event::duplicate).collect();
    Ok(Seen { pool: candidate.guid, members: paths.collect(), duplicates, others })
}
