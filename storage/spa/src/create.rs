//! Making a pool on empty devices.
//!
//! A pool is created in its first txg: its MOS is built in memory, the vdevs get their tables
//! and the root file system its content. Then the txg is synced like any other. Only then do
//! labels name the pool.

use std::sync::Arc;

use arc::Cache;
use device::Device;
use dmu::{NewObject, Objset};
use dsl::KeyFormat;
use dsl::write::{NewKey, SyncTaskContext};
use geometry::Reflow;
use ondisk::feature::Feature;
use ondisk::history::Entry;
use ondisk::label::{Bias, PoolConfig, PoolState, VdevConfig, VdevKind};
use ondisk::objset::Kind as SetKind;
use ondisk::uberblock::Uberblock;
use ondisk::{Blkptr, ObjectType, Order, version};
use transform::crypt::WrappedKey;
use txg::Tx;
use units::{Guid, ObjectId, ObjsetId, Txg, VdevId};
use vdev::{BuildContext, LeafDevice, VdevNode, VdevTree};
use zap::{NewZap, Zap, ZapValue};
use zio::{Key, Reader, Source};

use crate::active::{ActivePool, Environment, OpenDataset, StorageSettings, append_entry};
use crate::auxiliary::{self, AuxiliaryDevice, AuxiliaryLabel};
use crate::directory::POOL_DIRECTORY;
use crate::{Error, Pool, PoolDirectory, features};

/// The first group of a pool.
pub const INITIAL_TXG: Txg = Txg::new(4);
/// The version of pools with features.
pub(crate) const POOL_VERSION: u64 = 5000;
/// The type of an object that is a table of metadata.
pub(crate) const ZAP_METADATA: ObjectType = ObjectType(0x80 | 0x40 | 4);
/// Bytes of the block of a list of metaslabs.
const METASLAB_ARRAY_BLOCK_SIZE: u32 = 512;
/// Bytes of the block of the list of frees that are put off.
const BPLIST_BLOCK_SIZE: u32 = 16 << 10;

/// The options of a new pool.
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its top-level vdevs, without identities; their leaves in the order of `devices`. Each has
    /// its `asize`, `ashift` and `metaslab_shift`.
    pub tops: Vec<VdevConfig>,
    /// The devices of all leaves, in order.
    pub devices: Vec<Arc<dyn Device>>,
    /// Spares and drives of the read cache.
    pub auxiliary: Vec<AuxiliaryDevice>,
    /// Its version: 1 to 28, or 5000 with feature flags.
    pub version: u64,
    /// The features that are enabled; none before version 5000.
    pub features: Vec<&'static Feature>,
    /// The host that imports it: its number and name.
    pub host: (u64, String),
    /// The keys of its root file system, if that is encrypted.
    pub root_key: Option<RootKey>,
}

/// The keys of a root file system.
#[derive(Clone, Debug)]
pub struct RootKey {
    /// Closed with the user's key.
    pub wrapped: WrappedKey,
    /// The form of the user's key.
    pub format: KeyFormat,
    /// The PBKDF2 parameters of a passphrase.
    pub salt: u64,
    /// How often.
    pub iterations: u64,
    /// With what blocks are ciphered.
    pub key: Key,
}

/// A pool under construction.
pub struct CreatedPool {
    /// The pool.
    pub pool: ActivePool,
    /// The root file system, without content yet.
    pub root_objset: ObjsetId,
}

impl std::fmt::Debug for NewPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewPool('{}', {} devices)", self.name, self.devices.len())
    }
}

/// Makes a pool. `fill` makes the content of its root file system, in the pool's first group.
pub fn create_pool(
    new: NewPool,
    world: Environment,
    fill: &mut dyn FnMut(&ActivePool, &OpenDataset, &Tx) -> Result<(), Error>,
) -> Result<CreatedPool, Error> {
    let guid = Guid::new(world.random_u64().max(1));
    let mut root = build_root_vdev(guid, new.tops.clone(), &world);
    let tree = build_tree(&root, &new.devices, new.version)?;
    let reader = Arc::new(Reader::new(Arc::clone(&tree)));
    let below = Arc::clone(&reader) as Arc<dyn Source>;
    let cache = Arc::new(Cache::new(below, &world.cache));
    let source = Arc::clone(&cache) as Arc<dyn Source>;
    let mos = Objset::new_empty(Arc::clone(&source), ObjsetId::MOS, SetKind::Meta, None);
    let tx = Tx::syncing(INITIAL_TXG);
    let table = NewZap { salt: world.random_u64(), ..NewZap::default() };
    Zap::create_at(&mos, &tx, POOL_DIRECTORY, ObjectType::OBJECT_DIRECTORY, &table)?;
    let random = || world.random_u64();
    let change = SyncTaskContext {
        mos: &mos,
        tx: &tx,
        pool: &new.name,
        version: new.version,
        now: (world.now)(),
        usable_space: u64::MAX,
        raw_source: &source,
        random: &random,
        free_block: &|_| {},
        mark_obsolete: &|_| {},
        free_log: &|_, _| {},
        dsize: &|_| 0,
        dataset_event: &|_| {},
    };
    let skeleton = dsl::write::pool::create_pool_objects(&change, &new.features)?;
    let key = encrypt_root(&change, skeleton.root_objset, new.root_key.as_ref())?;
    let mut salt = [0; 32];
    world.random.fill(&mut salt);
    reader.set_salt(salt);
    create_pool_objects(&change, &mut root, &salt)?;
    let labels = auxiliary::register_auxiliary(&change, &root.children, &new.auxiliary, &world)?;
    log_creation(&change, &new)?;
    let config = initial_config(&new, root, label_features(&mos)?);
    let directory = PoolDirectory::open(mos.clone())?;
    let pool = Pool {
        name: new.name,
        guid,
        uberblock: initial_uberblock(&config),
        config_nvlist: config.to_list(),
        config,
        features: features::read(&directory)?,
        tree,
        reader,
        cache,
        mos: mos.clone(),
        directory,
        rewound_to: None,
        newest_txg: Txg::ZERO,
    };
    let active = ActivePool::with_mos(pool, mos, world)?;
    active.touch_config();
    let content = Objset::new_empty(source, skeleton.root_objset, SetKind::Filesystem, key.clone());
    let set = active.open_dataset(content, StorageSettings { key, ..StorageSettings::default() });
    fill(&active, &set, &tx)?;
    active.clear_labels()?;
    active.sync()?;
    labels.iter().try_for_each(AuxiliaryLabel::write)?;
    for each in labels {
        active.open_auxiliary(each.entry.guid, each.device);
    }
    Ok(CreatedPool { pool: active, root_objset: skeleton.root_objset })
}

/// Marks the root file system as encrypted; returns the key of its blocks.
fn encrypt_root(
    change: &SyncTaskContext<'_>,
    root: ObjsetId,
    key: Option<&RootKey>,
) -> Result<Option<Key>, Error> {
    let Some(RootKey { wrapped, format, salt, iterations, key }) = key else { return Ok(None) };
    let (format, salt, iterations) = (*format, *salt, *iterations);
    let new = NewKey { wrapped, is_encryption_root: true, format, salt, iterations };
    dsl::write::encrypt_dataset(change, root, &new)?;
    Ok(Some(Arc::clone(key)))
}

/// Writes down how the pool was made.
fn log_creation(change: &SyncTaskContext<'_>, new: &NewPool) -> Result<(), Error> {
    let space = new.tops.iter().filter_map(|top| top.asize).sum::<u64>();
    let note = |name, detail: &str| {
        let entry = Entry::Event { name, detail, dataset: None };
        append_entry(change, space, &new.host.1, &entry)
    };
    let (pool, own) = (new.version, env!("CARGO_PKG_VERSION"));
    note("create", &format!("pool version {pool}; software version poolhouse {own}"))?;
    for feature in &new.features {
        note("set", &format!("feature@{}=enabled", feature.name))?;
    }
    Ok(())
}

fn initial_config(new: &NewPool, root: VdevConfig, features: Vec<String>) -> PoolConfig {
    PoolConfig {
        version: new.version,
        name: Some(new.name.clone()),
        state: PoolState::Active,
        txg: INITIAL_TXG,
        pool_guid: Some(root.guid),
        errata: 0,
        host_id: Some(new.host.0),
        host_name: Some(new.host.1.clone()),
        comment: None,
        compatibility: None,
        vdev_children: u64::try_from(root.children.len()).ok(),
        holes: Vec::new(),
        features_for_read: features,
        tree: Some(root),
        split: None,
        has_vdev_zaps: true,
    }
}

/// The root of the vdevs, with identities for all.
fn build_root_vdev(guid: Guid, tops: Vec<VdevConfig>, world: &Environment) -> VdevConfig {
    let mut root = VdevConfig::new(VdevKind::Root);
    root.guid = guid;
    root.create_txg = Some(INITIAL_TXG);
    root.children = tops;
    assign_guids(&mut root, world);
    for top in &mut root.children {
        top.create_txg = Some(INITIAL_TXG);
    }
    root
}

fn assign_guids(vdev: &mut VdevConfig, world: &Environment) {
    for (index, child) in vdev.children.iter_mut().enumerate() {
        child.id = VdevId::new(units::narrow::<u32>(index));
        child.guid = Guid::new(world.random_u64().max(1));
        child.create_txg = Some(INITIAL_TXG);
        assign_guids(child, world);
    }
}

fn build_tree(
    root: &VdevConfig,
    devices: &[Arc<dyn Device>],
    pool_version: u64,
) -> Result<Arc<VdevTree>, Error> {
    let guids: Vec<Guid> = root
        .leaves()
        .filter(|leaf| matches!(leaf.kind, VdevKind::Disk | VdevKind::File))
        .map(|leaf| leaf.guid)
        .collect();
    let find = |guid: Guid| {
        let at = guids.iter().position(|known| *known == guid)?;
        Some(LeafDevice { device: Arc::clone(devices.get(at)?), label_txg: Txg::new(u64::MAX) })
    };
    let around = BuildContext { find_device: &find, reflow: Reflow { offset: 0, scratch: false } };
    let nodes = root.children.iter().map(|top| VdevNode::build(top, &around));
    let tree = Arc::new(VdevTree::new(nodes.collect::<Result<_, _>>()?));
    if pool_version < version::DEFLATE {
        tree.set_counts_parity();
    }
    Ok(tree)
}

/// Adds the other objects of every pool: the tables of its vdevs, the lists of their
/// metaslabs, and the facts of its creation.
fn create_pool_objects(
    change: &SyncTaskContext<'_>,
    root: &mut VdevConfig,
    salt: &[u8],
) -> Result<(), Error> {
    let (mos, tx) = (change.mos, change.tx);
    let directory = || Ok::<_, Error>(Zap::open(mos.object(POOL_DIRECTORY)?)?);
    let zap = || {
        let new = NewZap { salt: (change.random)(), ..NewZap::default() };
        Ok::<_, Error>(Zap::create(mos, tx, ZAP_METADATA, &new)?.object().id())
    };
    let all = zap()?;
    directory()?.insert_u64(tx, b"com.delphix:vdev_zap_map", all.get())?;
    let link = |zap: ObjectId| {
        let name = format!("{:x}", zap.get());
        Zap::open(mos.object(all)?)?.insert_u64(tx, name.as_bytes(), zap.get())?;
        Ok::<_, Error>(zap)
    };
    if let Some(feature) = Feature::by_name("vdev_zaps_v2")
        && dsl::write::features::refcount(mos, feature)?.is_some()
    {
        root.root_zap = Some(link(zap()?)?);
        dsl::write::features::increment_feature(change, feature)?;
    }
    for top in &mut root.children {
        create_top_objects(change, top, &|| link(zap()?))?;
        let array = mos
            .create(tx, &NewObject::new(ObjectType::OBJECT_ARRAY, METASLAB_ARRAY_BLOCK_SIZE))?
            .id();
        write_metaslab_array(mos, tx, array, top)?;
        top.metaslab_array = Some(array);
    }
    let header = ondisk::dsl::Bpobj::default().encode(ondisk::dsl::Bpobj::SIZE_PLAIN);
    let list = NewObject::new(ObjectType::BPOBJ, BPLIST_BLOCK_SIZE)
        .with_bonus(ObjectType::BPOBJ_HEADER, header);
    let list = mos.create(tx, &list)?.id();
    let table = directory()?;
    table.insert_u64(tx, b"sync_bplist", list.get())?;
    directory()?.insert_u64(tx, b"creation_version", change.version)?;
    if change.version >= version::DEFLATE {
        directory()?.insert_u64(tx, b"deflate", 1)?;
    }
    let salt = ZapValue::new(1, salt.to_vec());
    directory()?.insert(tx, b"org.illumos:checksum_salt", &salt)?;
    Ok(())
}

/// Makes the tables of a new top-level vdev and of its leaves, and counts the features that it uses.
pub(crate) fn create_top_objects(
    change: &SyncTaskContext<'_>,
    top: &mut VdevConfig,
    make_zap: &dyn Fn() -> Result<ObjectId, Error>,
) -> Result<(), Error> {
    create_leaf_zaps(top, make_zap)?;
    let table = make_zap()?;
    top.top_zap = Some(table);
    write_bias(change, table, top)?;
    if let (VdevKind::Draid, Some(feature)) = (&top.kind, Feature::by_name("draid")) {
        dsl::write::features::increment_feature(change, feature)?;
    }
    Ok(())
}

/// Writes the list of a new vdev's space maps, of which there are none yet.
pub(crate) fn write_metaslab_array(
    mos: &Objset,
    tx: &Tx,
    array: ObjectId,
    top: &VdevConfig,
) -> Result<(), Error> {
    let count = top.asize.unwrap_or(0) >> top.metaslab_shift.unwrap_or(0).min(63);
    let bytes = units::to_usize(count * 8);
    mos.object(array)?.write(tx, 0, &vec![0; bytes])?;
    Ok(())
}

/// Sets the class in a vdev's table, if it has one: labels do not have it.
fn write_bias(
    change: &SyncTaskContext<'_>,
    table: ObjectId,
    top: &VdevConfig,
) -> Result<(), Error> {
    let bias = if top.is_log { Some(&Bias::Log) } else { top.bias.as_ref() };
    let Some(bias) = bias else { return Ok(()) };
    let text = [bias.name().as_bytes(), &[0]].concat();
    let (name, value) = (b"org.zfsonlinux:allocation_bias", ZapValue::new(1, text));
    Zap::open(change.mos.object(table)?)?.insert(change.tx, name, &value)?;
    if let (Bias::Special | Bias::Dedup, Some(feature)) =
        (bias, Feature::by_name("allocation_classes"))
    {
        dsl::write::features::increment_feature(change, feature)?;
    }
    Ok(())
}

fn create_leaf_zaps(
    vdev: &mut VdevConfig,
    make: &dyn Fn() -> Result<ObjectId, Error>,
) -> Result<(), Error> {
    if vdev.children.is_empty() {
        vdev.leaf_zap = Some(make()?);
    }
    for child in &mut vdev.children {
        create_leaf_zaps(child, make)?;
    }
    Ok(())
}

/// The features in use that labels must name.
pub(crate) fn label_features(mos: &Objset) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for feature in ondisk::feature::FEATURES.iter().filter(|feature| feature.in_label) {
        if dsl::write::features::refcount(mos, feature)?.is_some_and(|uses| uses > 0) {
            found.push(feature.guid.to_owned());
        }
    }
    Ok(found)
}

/// The uberblock from which the first is made.
fn initial_uberblock(config: &PoolConfig) -> Uberblock {
    let guids = config.tree.as_ref().map_or(0, guid_sum);
    Uberblock {
        order: Order::Little,
        version: config.version,
        txg: Txg::new(INITIAL_TXG.get() - 1),
        guid_sum: guids,
        timestamp: 0,
        root: Blkptr::EMPTY,
        software_version: POOL_VERSION,
        multihost: None,
        checkpoint_txg: Txg::ZERO,
        reflow: ondisk::uberblock::Reflow::default(),
    }
}

/// The identities of a vdev and of all below it, added up.
pub(crate) fn guid_sum(vdev: &VdevConfig) -> u64 {
    vdev.children.iter().fold(vdev.guid.get(), |sum, child| sum.wrapping_add(guid_sum(child)))
}
