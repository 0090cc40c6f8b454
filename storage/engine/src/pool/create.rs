//! Making pools, and taking pools over.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, File};
use ondisk::label::{PoolState, VdevConfig};
use spa::auxiliary::{AuxiliaryDevice, AuxiliaryEntry};
use spa::vdev_layout::{DeviceSpec, DraidLayout, VdevLayout, VdevRole};
use spa::{ActivePool, Candidate};
use units::{Ashift, Guid, MinusOrZero};

use super::accounting::ZplAccounting;
use super::auxiliary::FoundDrive;
use super::datasets::{check_new_dataset, check_properties};
use super::encryption::{DatasetEncryption, new_encryption};
use super::name_rules::NameRules;
use super::pool_name::check_pool_name;
use super::rewind::{OpenedState, Rewind, RewindProbe, RewindTarget, open_with_rewind};
use super::{
    CreateOptions, Environment, LoadedKeys, NewDataset, Pool, auxiliary, latency, pool_name,
};
use crate::event::Event;
use crate::{Error, Result, summary};

/// A top-level vdev that is to be.
#[derive(Clone, Debug)]
pub struct NewVdev {
    /// How its drives stand together.
    pub layout: VdevLayout,
    /// Their paths.
    pub drives: Vec<PathBuf>,
    /// Their class.
    pub role: VdevRole,
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

/// log2 of the default sector size: most present drives have sectors of 4 KiB, and a smaller write
/// costs them a read each time.
const DEFAULT_ASHIFT: u64 = 12;

/// Makes a pool on drives that are free, with all features and no properties of its own.
pub fn create(new: &NewPool, world: &Environment) -> Result<Pool> {
    create_with_options(new, CreateOptions::parse(&[], false)?, world)
}

/// Makes a pool on drives that are free.
pub fn create_with_options(
    new: &NewPool,
    wishes: CreateOptions,
    world: &Environment,
) -> Result<Pool> {
    create_encrypted(new, wishes, None, world)
}

/// The same; `secret` is the user's key of its root file system, if that is to be encrypted.
pub fn create_encrypted(
    new: &NewPool,
    wishes: CreateOptions,
    secret: Option<&[u8]>,
    world: &Environment,
) -> Result<Pool> {
    let devices = open_new_drives(new)?;
    create_pool(new, &devices, (wishes, secret), world)
}

/// Checks everything that [`create_encrypted`] checks before it writes. Nothing is written, and no
/// key is needed.
pub fn check_create(new: &NewPool, wishes: &CreateOptions) -> Result<()> {
    wishes.check_vdevs(new)?;
    let devices = open_new_drives(new)?;
    check_new_dataset(
        &NewDataset { name: new.name.clone(), properties: new.properties.clone() },
        None,
    )?;
    lay_out(new, &devices).map(drop)
}

/// Opens the drives of a new pool, which must be free and fit together.
fn open_new_drives(new: &NewPool) -> Result<Vec<Arc<dyn Device>>> {
    check_pool_name(&new.name)?;
    check_redundancy(new)?;
    let drives = new.vdevs.iter().flat_map(|vdev| &vdev.drives);
    let devices =
        drives.map(|path| open_unused_drive(path, new.force)).collect::<Result<Vec<_>>>()?;
    if !new.force {
        super::vdev_mismatch::check_new_pool(new, &devices)?;
    }
    Ok(devices)
}

impl Pool {
    /// Gives the pool another name from when it is exported on; until then it is called as it is now.
    pub fn rename_on_export(&self, name: &str) -> Result<()> {
        check_pool_name(name)?;
        self.0.spa.set_label_name(name);
        self.sync()
    }
}

/// Creates a pool on devices that are open already: those of the drives of `new`, in that
/// order. Their content is lost.
pub fn create_on_devices(
    new: &NewPool,
    devices: &[Arc<dyn Device>],
    world: &Environment,
) -> Result<Pool> {
    create_on_devices_with(new, CreateOptions::parse(&[], false)?, devices, world)
}

/// The same, with properties of its own and maybe without some features.
pub fn create_on_devices_with(
    new: &NewPool,
    wishes: CreateOptions,
    devices: &[Arc<dyn Device>],
    world: &Environment,
) -> Result<Pool> {
    check_pool_name(&new.name)?;
    check_redundancy(new)?;
    create_pool(new, devices, (wishes, None), world)
}

fn create_pool(
    new: &NewPool,
    devices: &[Arc<dyn Device>],
    (mut wishes, secret): (CreateOptions, Option<&[u8]>),
    world: &Environment,
) -> Result<Pool> {
    wishes.check_vdevs(new)?;
    let mut root = NewDataset { name: new.name.clone(), properties: new.properties.clone() };
    let keying = new_encryption(world, &mut root, None, secret)?;
    let naming = NameRules::extract(&mut root, None)?;
    let quotas = super::owner_quotas::extract_quotas(&mut root)?;
    check_properties(&root, dsl::DatasetKind::Filesystem)?;
    if let Some(shift) = new.ashift {
        wishes.set_ashift(shift);
    }
    let NewTree { tops, devices, auxiliary } = lay_out(new, devices)?;
    let below = spa::NewPool {
        name: new.name.clone(),
        tops,
        devices,
        auxiliary,
        version: wishes.version,
        features: wishes.features.clone(),
        host: world.host.clone(),
        root_key: keying.as_ref().map(DatasetEncryption::to_root_key),
    };
    let mut fill = |active: &ActivePool, set: &spa::OpenDataset, tx: &txg::Tx| {
        active.set_owner_accounting(Arc::new(ZplAccounting::new(active, world)));
        super::filesystems::init_filesystem(active, set, tx, (world, naming))
            .map_err(|error| spa::Error::Content { why: error.to_string() })
    };
    let made = spa::create_pool(below, world.to_spa(), &mut fill);
    let made = made
        .map_err(|error| Error::CreateFailed { pool: new.name.clone(), why: error.to_string() })?;
    let held = Pool::new(made.pool, world.clone(), None);
    held.0.spa.close_dataset(made.root_objset);
    let user = keying.and_then(|keying| keying.user_key());
    if let Err(error) = held
        .store_user_key(&new.name, user)
        .and_then(|()| apply_initial_properties(&held, &root, wishes))
        .and_then(|()| held.set_owner_quotas(&new.name, &quotas))
    {
        // the pool is not imported, and its drives are free again
        held.destroy_pool()?;
        return Err(error);
    }
    Ok(held)
}

/// The top-level vdevs of a new pool, with the devices of their leaves, and its spares and cache devices.
struct NewTree {
    tops: Vec<VdevConfig>,
    devices: Vec<Arc<dyn Device>>,
    auxiliary: Vec<AuxiliaryDevice>,
}

/// Plans the vdevs of a new pool on devices: those of the drives of `new`, in that order.
fn lay_out(new: &NewPool, devices: &[Arc<dyn Device>]) -> Result<NewTree> {
    let wanted = new.ashift.unwrap_or(DEFAULT_ASHIFT);
    let ashift = Ashift::new(wanted)
        .ok_or_else(|| Error::Usage { what: format!("ashift={wanted}: it must be 9 to 16") })?;
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
        let drives: Vec<DeviceSpec> = own.iter().copied().map(describe_drive).collect();
        let devices = own.into_iter().map(|(_, device)| Arc::clone(device));
        if let Some(role) = vdev.role.auxiliary_role() {
            let with = |(drive, device)| AuxiliaryDevice { role, spec: drive, device };
            auxiliary.extend(drives.into_iter().zip(devices).map(with));
            continue;
        }
        of_vdevs.extend(devices);
        let top = spa::vdev_layout::top_vdev_config(vdev.layout, &drives, ashift, vdev.role);
        tops.push(top.map_err(|error| Error::Usage { what: error.to_string() })?);
    }
    Ok(NewTree { tops, devices: of_vdevs, auxiliary })
}

/// Sets the properties of a new pool, and those of its root file system.
fn apply_initial_properties(held: &Pool, root: &NewDataset, wishes: CreateOptions) -> Result<()> {
    for (name, value) in &root.properties {
        held.properties().set(&root.name, name, value)?;
    }
    wishes.apply_to(held)
}

pub(super) fn describe_drive((path, device): (&PathBuf, &Arc<dyn Device>)) -> DeviceSpec {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let is_disk = !path.is_file();
    DeviceSpec { path: path.display().to_string(), size: device.size(), is_disk }
}

/// Opens a drive exclusively. Without `force` one with the labels of a pool or the signature of other data is refused.
pub fn open_unused_drive(path: &Path, force: bool) -> Result<Arc<dyn Device>> {
    let opened = latency::open_exclusive_once_released(path);
    let device = opened.map_err(|error| Error::from_device_error(&error))?;
    if force {
        return Ok(device);
    }
    if let (Some(labelled), _) = spa::read_labels(&device) {
        let pool = &labelled.config.pool;
        // a spare or a cache drive that no imported pool uses has no data to lose
        if !matches!(pool.state, PoolState::Destroyed | PoolState::Spare | PoolState::Cache) {
            let pool = pool.name.clone().unwrap_or_else(|| "?".to_owned());
            return Err(Error::DeviceInPool { path: path.display().to_string(), pool });
        }
    } else if let Some(whose) = device::detect_signature(&*device) {
        return Err(Error::DeviceHasData { path: path.display().to_string(), content: whose });
    }
    Ok(device)
}

/// All data vdevs bear the loss of as many drives.
fn check_redundancy(new: &NewPool) -> Result<()> {
    let usage = |what: String| Err(Error::Usage { what });
    let data: Vec<&NewVdev> = new.vdevs.iter().filter(|vdev| vdev.role == VdevRole::Data).collect();
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
    let bears = |vdev: &NewVdev| match vdev.layout {
        VdevLayout::Single => 0,
        VdevLayout::Mirror => vdev.drives.len().minus_or_zero(1),
        VdevLayout::Raidz(parity) | VdevLayout::Draid(DraidLayout { parity, .. }) => {
            units::to_usize(parity)
        }
    };
    let first = data.first().map_or(0, |vdev| bears(vdev));
    let unlike = new
        .vdevs
        .iter()
        .filter(|vdev| vdev.role != VdevRole::Log && vdev.role.auxiliary_role().is_none())
        .any(|vdev| bears(vdev) != first);
    if unlike && !new.force {
        return usage(
            "the vdevs have different redundancy, so that the weakest decides for \
             the whole pool; use -f if that is intended"
                .to_owned(),
        );
    }
    Ok(())
}

/// The options of an import.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of one command")]
pub struct ImportOptions {
    /// One that another host had and did not export, too.
    pub force: bool,
    /// One that was destroyed; otherwise none that was.
    pub destroyed: bool,
    /// Its new name.
    pub new_name: Option<String>,
    /// It is called so until it is exported, and has its old name then.
    pub temporary: bool,
    /// User keys of encryption roots: needed to replay the intent logs of encrypted datasets.
    pub keys: Vec<(String, Vec<u8>)>,
    /// Keys that are known from before.
    pub loaded_keys: Option<LoadedKeys>,
    /// Discards intent logs on missing log devices.
    pub allow_missing_logs: bool,
    /// Read-only: nothing is written or replayed, and the state may be one that no writer can continue.
    pub read_only: bool,
    /// How far back it may be taken.
    pub rewind: Rewind,
    /// Shows how far the reading has come that comes before that.
    pub rewind_probe: Arc<RewindProbe>,
    /// The imported pools, which keep their names: names and guids.
    pub imported_pools: Vec<(String, u64)>,
    /// Drives of other pools that are imported here: a label of an earlier pool may remember their paths.
    pub foreign_drives: Vec<PathBuf>,
}

/// The state to which the pool of that name or guid would be rewound; nothing is written. None: no
/// rewind.
pub fn preview_rewind(
    paths: &[PathBuf],
    wanted: &str,
    options: &ImportOptions,
    world: &Environment,
) -> Result<Option<RewindTarget>> {
    options.new_name.as_deref().map_or(Ok(()), check_pool_name)?;
    let PoolDrives { guid: pool, members, .. } = find_pool_drives(paths, wanted, options, world)?;
    // as the import would open them: it refuses a write-protected drive
    let devices = open_devices(&members, options.read_only)?;
    let search = crate::search_devices(&devices);
    let candidate = search.find_candidate(&pool.to_string())?;
    let chosen = open_with_rewind(
        candidate,
        (options.rewind, &options.rewind_probe),
        (&world.cache, world.workers),
    )?;
    let name = check_importable(candidate, &chosen.pool, options)?;
    if !options.read_only {
        open_active(chosen.pool, name, world)?;
    }
    Ok(chosen.target)
}

/// Imports the pool of that name or guid, from drives among `paths`. `force` imports one
/// that another host imported and did not export.
pub fn import(paths: &[PathBuf], wanted: &str, force: bool, world: &Environment) -> Result<Pool> {
    import_with(paths, wanted, &ImportOptions { force, ..ImportOptions::default() }, world)
}

/// Imports the pool of that name or guid, from drives among `paths`.
pub fn import_with(
    paths: &[PathBuf],
    wanted: &str,
    options: &ImportOptions,
    world: &Environment,
) -> Result<Pool> {
    if let Some(name) = &options.new_name {
        check_pool_name(name)?;
    }
    let PoolDrives { guid: pool, members, duplicates, auxiliary: others } =
        find_pool_drives(paths, wanted, options, world)?;
    let devices = open_devices(&members, options.read_only)?;
    let opens = |named: &AuxiliaryEntry| auxiliary::open_best_match(&others, named);
    let held = import_opened(&devices, &pool.to_string(), options, &opens, world)?;
    // a spare may still have the label of a leaf
    drop(devices);
    held.reopen_auxiliary();
    held.add_events(duplicates);
    held.add_events(auxiliary::duplicate_events(&held.0.spa, &others));
    Ok(held)
}

fn open_devices(paths: &[PathBuf], read_only: bool) -> Result<Vec<Arc<dyn Device>>> {
    let open = |path: &PathBuf| {
        let opened = if read_only {
            File::open(path).map(|file| Arc::new(file) as Arc<dyn Device>)
        } else {
            latency::open_exclusive(path)
        };
        opened.map_err(|error| Error::from_device_error(&error))
    };
    paths.iter().map(open).collect()
}

/// Imports the pool of that name or guid, from devices that are open for writing, whichever host
/// had it last.
pub fn import_devices(
    devices: &[Arc<dyn Device>],
    wanted: &str,
    world: &Environment,
) -> Result<Pool> {
    import_devices_with(devices, wanted, &ImportOptions::default(), world)
}

/// The same, with options.
pub fn import_devices_with(
    devices: &[Arc<dyn Device>],
    wanted: &str,
    options: &ImportOptions,
    world: &Environment,
) -> Result<Pool> {
    let search = crate::search_devices(devices);
    let opens = |named: &AuxiliaryEntry| {
        let mut others = search.labelled_auxiliary().iter();
        others.find(|other| other.guid() == named.guid).map(|other| Arc::clone(&other.device))
    };
    import_opened(devices, wanted, options, &opens, world)
}

fn import_opened(
    devices: &[Arc<dyn Device>],
    wanted: &str,
    options: &ImportOptions,
    opens: auxiliary::DeviceOpener<'_>,
    world: &Environment,
) -> Result<Pool> {
    let search = crate::search_devices(devices);
    let candidate = search.find_candidate(wanted)?;
    let chosen = open_with_rewind(
        candidate,
        (options.rewind, &options.rewind_probe),
        (&world.cache, world.workers),
    )?;
    let OpenedState { mut pool, target: rewound } = chosen;
    let name = check_importable(candidate, &pool, options)?;
    match &options.new_name {
        Some(name) if options.temporary => pool.set_temporary_name(name),
        Some(name) => pool.rename(name),
        None => (),
    }
    if options.read_only {
        let failed = |error: spa::Error| Error::NotWritable { pool: name, why: error.to_string() };
        let active = ActivePool::new_read_only(pool, world.to_spa()).map_err(failed)?;
        let held = Pool::with_rewind(rewound, active, world.clone(), options.loaded_keys.clone());
        return load_keys(held, options);
    }
    let active = open_active(pool, name, world)?;
    // who exports a pool has all written that was promised
    let exported = candidate.config().is_some_and(|label| label.pool.state == PoolState::Exported);
    if options.allow_missing_logs || exported {
        active.allow_missing_logs();
    }
    active.set_host(world.host.clone());
    auxiliary::open_auxiliary_drives(&active, opens);
    let held = Pool::with_rewind(rewound, active, world.clone(), options.loaded_keys.clone());
    let held = load_keys(held, options)?;
    held.claim_logs()?;
    held.remove_interrupted_receives()?;
    held.update_device_paths();
    Ok(held)
}

/// Checks what an import needs of an opened pool before anything is written to it. Returns the pool's name from then on.
fn check_importable(
    candidate: &Candidate,
    pool: &spa::Pool,
    options: &ImportOptions,
) -> Result<String> {
    check_vdevs_present(candidate, pool)?;
    if !options.read_only {
        check_vdevs_in_service(candidate, pool)?;
    }
    if let Some(name) = &options.new_name {
        pool_name::check_names_fit(pool, name)?;
    }
    let name = options.new_name.as_deref().unwrap_or(pool.name());
    let is_other = |(known, guid): &(String, u64)| known == name && *guid != candidate.guid.get();
    if options.imported_pools.iter().any(is_other) {
        return Err(Error::NameTaken { pool: name.to_owned() });
    }
    Ok(name.to_owned())
}

/// A pool that can be written. Nothing is written to it yet.
fn open_active(pool: spa::Pool, name: String, world: &Environment) -> Result<ActivePool> {
    let failed = |error: spa::Error| Error::NotWritable { pool: name, why: error.to_string() };
    ActivePool::new(pool, world.to_spa()).map_err(failed)
}

/// Loads the keys that were given.
fn load_keys(pool: Pool, options: &ImportOptions) -> Result<Pool> {
    for (dataset, secret) in &options.keys {
        // it may be called otherwise from now on
        let below = dataset.find('/').and_then(|at| dataset.get(at..)).unwrap_or_default();
        pool.keys().load(&format!("{}{below}", pool.name()), secret)?;
    }
    Ok(pool)
}

/// Refuses a pool with a lost vdev, because changing it would lose the rest: its data can be read
/// with `rescue`. A log device may be missing if it has no records to replay.
fn check_vdevs_present(candidate: &Candidate, pool: &spa::Pool) -> Result<()> {
    let trees = summary::top_vdevs(candidate, Some(pool));
    let data = trees.iter().filter(|top| !top.is_log);
    let lacking: Vec<_> =
        data.filter_map(|top| summary::unavailable_vdev(top, candidate)).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Error::MissingVdevs { pool: candidate.name().to_owned(), vdevs: lacking })
}

/// Refuses a pool that lacks a vdev without the leaves that are offline or faulted by command.
fn check_vdevs_in_service(candidate: &Candidate, pool: &spa::Pool) -> Result<()> {
    let root = pool.config().tree.as_ref();
    let away: Vec<Guid> =
        root.into_iter().flat_map(spa::out_of_service_leaves).map(|(guid, _)| guid).collect();
    if away.is_empty() {
        return Ok(());
    }
    let devices = candidate.devices.iter().filter(|device| !away.contains(&device.guid()));
    let in_service = Candidate { devices: devices.cloned().collect(), ..candidate.clone() };
    check_vdevs_present(&in_service, pool).map_err(|error| {
        let Error::MissingVdevs { pool: name, mut vdevs } = error else { return error };
        let leaves = root.into_iter().flat_map(VdevConfig::leaves);
        let offline: Vec<&String> = leaves
            .filter(|leaf| away.contains(&leaf.guid))
            .filter_map(|leaf| leaf.path.as_ref())
            .collect();
        for path in vdevs.iter_mut().flat_map(|vdev| &mut vdev.missing) {
            if offline.iter().any(|known| *known == path) {
                path.push_str(": offline");
            }
        }
        Error::MissingVdevs { pool: name, vdevs }
    })
}

/// The drives of a pool, and which it is.
struct PoolDrives {
    guid: Guid,
    members: Vec<PathBuf>,
    /// Copies of the drives, which are left alone.
    duplicates: Vec<Event>,
    /// Spares and cache drives, of any pool.
    auxiliary: Vec<FoundDrive>,
}

/// The drives of a pool, and which it is; nothing of it stays open.
fn find_pool_drives(
    paths: &[PathBuf],
    wanted: &str,
    options: &ImportOptions,
    world: &Environment,
) -> Result<PoolDrives> {
    let search = crate::search(paths).filter_destroyed(options.destroyed);
    let candidate = search.find_candidate(wanted)?;
    search.check_originals_unused(candidate, &options.foreign_drives)?;
    let newest = candidate.devices.iter().max_by_key(|device| device.newest_txg());
    if let Some(pool) = newest.map(|device| &device.config.pool) {
        let foreign = pool.host_id.is_some_and(|host| host != world.host.0);
        let host = pool.host_name.clone().unwrap_or_else(|| "another host".to_owned());
        if pool.state == PoolState::Active && foreign && !options.force {
            return Err(Error::HostidMismatch { pool: candidate.name().to_owned(), host });
        }
        if pool.state == PoolState::Active && foreign {
            super::multihost::check_activity(candidate, &host)?;
        }
    }
    let paths = candidate.devices.iter().map(|device| PathBuf::from(device.device.name()));
    let others = auxiliary::found_drives(&search);
    let duplicates = candidate.duplicates.iter().map(Event::from_duplicate).collect();
    Ok(PoolDrives { guid: candidate.guid, members: paths.collect(), duplicates, auxiliary: others })
}
