//! The status of an imported pool.

use ondisk::label::{VdevConfig, VdevKind};
use serde::{Deserialize, Serialize};
use units::{Guid, ObjectId};
use vdev::{Leaf, OutOfService};
use zap::Zap;

use super::{
    ActivityStatus, CacheCounts, CheckpointStatus, ExpansionStatus, Pool, RemovalStatus, ScanKind,
    ScanStatus, SlowDrive,
};

/// How a pool is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// ONLINE, DEGRADED or SUSPENDED; UNAVAIL of one that is known and cannot be had.
    pub state: String,
    /// The last transaction group that is on the drives.
    pub txg: u64,
    /// Bytes in all vdevs for data, parity included.
    pub size: u64,
    /// Of these, in use.
    pub allocated: u64,
    /// How broken up the free space of its data vdevs is, 0 to 100; none: it is not known.
    pub fragmentation: Option<u64>,
    /// The dedup ratio times 100: 100 if it saves nothing.
    pub dedup_ratio: u64,
    /// Deduplication statistics by reference count.
    #[serde(default)]
    pub dedup: Vec<DedupBucket>,
    /// Why it is suspended or cannot be had, if so.
    pub error: Option<String>,
    /// The scan that goes on, or the last one.
    pub scan: Option<ScanStatus>,
    /// The last sequential rebuild, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<ScanStatus>,
    /// The files with damage that is known, and which bytes of them: the error log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data_errors: Vec<String>,
    /// The raidz expansion that runs, or the last one that finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expansion: Option<ExpansionStatus>,
    /// The removal of a vdev with data that goes on, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalStatus>,
    /// Its checkpoint, if it has one or discards one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointStatus>,
    /// All long work that goes on or is paused: bytes, rate and time left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activities: Vec<ActivityStatus>,
    /// Drives whose recent requests take far longer than those of their siblings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_drives: Vec<SlowDrive>,
    /// Whether a drive lacks data that was written while it failed or was missing.
    #[serde(default)]
    pub needs_resilver: bool,
    /// Its version: 1 to 28, or 5000 with feature flags; 0 of a pool that is not imported.
    #[serde(default)]
    pub version: u64,
    /// Whether features are not enabled that its `compatibility` allows.
    #[serde(default)]
    pub has_disabled_features: bool,
    /// Its top-level vdevs.
    pub vdevs: Vec<VdevStatus>,
    /// Drives of the read cache.
    pub caches: Vec<VdevStatus>,
    /// Drives that can take the place of others.
    pub spares: Vec<VdevStatus>,
    /// How its read cache does.
    pub cache_counts: CacheCounts,
}

/// How a vdev is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VdevStatus {
    /// Its path, or "raidz2-0".
    pub name: String,
    /// The number that it has in the pool and in labels.
    pub guid: u64,
    /// ONLINE, DEGRADED or UNAVAIL; of a drive that cannot be written FAULTED, or REMOVED if it
    /// went away, or OFFLINE if a command took it out of service; of a spare AVAIL or INUSE.
    pub state: String,
    /// How many times it could not be read.
    pub read_errors: u64,
    /// How many times it could not be written.
    pub write_errors: u64,
    /// The number of checksum errors.
    pub checksum_errors: u64,
    /// How many requests took longer than half a minute.
    #[serde(default)]
    pub slow_requests: u64,
    /// Of a drive: how far writing to all of its free space has come, if that was ever begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialize: Option<VdevActivity>,
    /// The same of telling it which space is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trim: Option<VdevActivity>,
    /// Its allocation class: "log", "special", "dedup"; empty for data.
    pub class: Option<String>,
    /// Of a top-level vdev: bytes in it, parity included; of a drive: its bytes.
    pub size: u64,
    /// Of a drive: its bytes, also where it is a top-level vdev.
    #[serde(default)]
    pub physical_size: u64,
    /// Of a top-level vdev: of these, in use.
    pub allocated: u64,
    /// Of a top-level vdev: bytes by which it can grow, as its drives have grown (`zpool online -e`).
    #[serde(default)]
    pub expandable: u64,
    /// Of a top-level vdev: how broken up its free space is, 0 to 100.
    pub fragmentation: Option<u64>,
    /// The words behind its row, such as "too many errors".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The vdevs below.
    pub children: Vec<Self>,
}

/// Deduplicated blocks with about equal reference counts. Sizes are logical (`lsize`), compressed
/// (`psize`), and allocated (`dsize`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DedupBucket {
    /// The least reference count; the class ends at twice as many.
    pub references: u64,
    /// Blocks that are stored, and their lsize, psize and dsize.
    pub allocated: [u64; 4],
    /// The same as often as they are referred to.
    pub referenced: [u64; 4],
}

impl DedupBucket {
    fn from_histogram(all: &[ondisk::dedup::Sums]) -> Vec<Self> {
        let of = |(power, sums): (u32, &ondisk::dedup::Sums)| Self {
            references: 1_u64.checked_shl(power).unwrap_or(0),
            allocated: [sums.blocks, sums.lsize, sums.psize, sums.dsize],
            referenced: [
                sums.referenced_blocks,
                sums.referenced_lsize,
                sums.referenced_psize,
                sums.referenced_dsize,
            ],
        };
        (0..).zip(all).filter(|(_, sums)| sums.blocks > 0).map(of).collect()
    }
}

/// How far something has come that goes over all of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevActivity {
    /// active, canceled, suspended or complete.
    pub state: String,
    /// How much of the drive it is past, in hundredths.
    pub percent: u64,
    /// When it came to be so, in seconds since 1970.
    pub time: u64,
}

impl PoolStatus {
    /// The last sequential rebuild, if that was the last resilver, and none goes on.
    pub fn last_rebuild(&self) -> Option<&ScanStatus> {
        let resilver = self.scan.as_ref().filter(|scan| scan.scan == ScanKind::Resilver);
        let is_last = |rebuild: &&ScanStatus| {
            resilver.is_none_or(|scan| !scan.is_scanning() && scan.ended < rebuild.ended)
        };
        self.rebuild.as_ref().filter(is_last)
    }

    /// A pool that is known by its name only, as it cannot be had.
    pub fn unavailable(name: &str, guid: u64, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            guid,
            state: "UNAVAIL".to_owned(),
            txg: 0,
            size: 0,
            allocated: 0,
            fragmentation: None,
            dedup_ratio: 100,
            dedup: Vec::new(),
            error: Some(why.to_owned()),
            scan: None,
            rebuild: None,
            data_errors: Vec::new(),
            expansion: None,
            removal: None,
            checkpoint: None,
            activities: Vec::new(),
            slow_drives: Vec::new(),
            needs_resilver: false,
            version: 0,
            has_disabled_features: false,
            vdevs: Vec::new(),
            caches: Vec::new(),
            spares: Vec::new(),
            cache_counts: CacheCounts::default(),
        }
    }

    /// Whether it cannot be had.
    pub fn is_unavailable(&self) -> bool {
        self.state == "UNAVAIL"
    }
}

impl VdevStatus {
    /// A drive of which nothing else is known.
    pub(super) fn new(name: &str, guid: Guid, state: &str) -> Self {
        Self {
            name: name.to_owned(),
            guid: guid.get(),
            state: state.to_owned(),
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            slow_requests: 0,
            initialize: None,
            trim: None,
            class: None,
            size: 0,
            physical_size: 0,
            allocated: 0,
            expandable: 0,
            fragmentation: None,
            note: None,
            children: Vec::new(),
        }
    }
}

/// An entry of a drive's ZAP about an activity: the state, the offset at which it continues, the
/// time.
const INITIALIZE_KEYS: [&str; 3] = [
    "com.delphix:vdev_initialize_state",
    "com.delphix:next_offset_to_initialize",
    "com.delphix:vdev_initialize_action_time",
];
const TRIM_KEYS: [&str; 3] = [
    "org.zfsonlinux:vdev_trim_state",
    "org.zfsonlinux:next_offset_to_trim",
    "org.zfsonlinux:vdev_trim_action_time",
];

impl VdevActivity {
    fn from_zap(table: &Zap, [state, next, time]: [&str; 3], size: u64) -> Option<Self> {
        let number = |name: &str| table.lookup_u64(name.as_bytes()).ok().flatten();
        let state = match number(state)? {
            1 => "active",
            2 => "canceled",
            3 => "suspended",
            4 => "complete",
            _ => return None,
        };
        let past = number(next).unwrap_or(0).min(size);
        let percent = match state {
            "complete" => 100,
            _ => past.saturating_mul(100).checked_div(size).unwrap_or(0),
        };
        Some(Self { state: state.to_owned(), percent, time: number(time).unwrap_or(0) })
    }
}

impl Pool {
    /// How it is.
    pub fn status(&self) -> PoolStatus {
        let active = &self.0.spa;
        let _pin = active.pin();
        let config = active.config();
        let tops = config.tree.as_ref().map_or(&[][..], |root| &root.children);
        let top = |top: &VdevConfig| {
            let (class, size, allocated) = active.vdev_space_usage(top.id);
            let purpose = match class {
                _ if top.is_log => Some("log"),
                zio::Class::Special => Some("special"),
                zio::Class::Dedup => Some("dedup"),
                _ => None,
            };
            let fragmentation = active.fragmentation(Some(top.id)).ok().flatten();
            let status = self.vdev_status(top);
            let note = status.note.clone().or(top.removing.then(|| "(removing)".to_owned()));
            let expandable = active.expandable_space(top);
            VdevStatus {
                class: purpose.map(str::to_owned),
                size,
                allocated,
                expandable,
                fragmentation,
                note,
                ..status
            }
        };
        let shown = tops.iter().filter(|top| top.kind != VdevKind::Hole);
        let vdevs: Vec<_> = shown.map(top).collect();
        let trouble = active.suspend_error().map(|why| why.to_string());
        let healthy = vdevs.iter().all(|vdev| vdev.state == "ONLINE");
        let state = match (&trouble, healthy) {
            (Some(_), _) => "SUSPENDED",
            (None, true) => "ONLINE",
            (None, false) => "DEGRADED",
        };
        let (size, allocated) = active.space_usage();
        let stored = active.dedup_histogram();
        let (mut scan, data_errors) = (self.scans().status(), self.scans().data_errors());
        if let Some(scan) = scan.as_mut().filter(|scan| scan.state == "finished") {
            scan.damage.clone_from(&data_errors);
        }
        PoolStatus {
            name: self.name().to_owned(),
            guid: self.guid(),
            state: state.to_owned(),
            txg: self.txg(),
            size,
            allocated,
            fragmentation: active.fragmentation(None).ok().flatten(),
            dedup_ratio: spa::capacity::dedup_ratio(&stored),
            dedup: DedupBucket::from_histogram(&stored),
            error: trouble,
            scan,
            rebuild: self.last_rebuild().filter(|rebuild| !rebuild.is_scanning()),
            data_errors,
            expansion: self.activities().expansion_status().ok().flatten(),
            removal: self.activities().removal_status(),
            checkpoint: self.activities().checkpoint_status(),
            activities: self.activities().list(),
            slow_drives: self.drives().slow(),
            needs_resilver: self.scans().needs_resilver(),
            version: active.version(),
            has_disabled_features: self.disabled_features().is_ok_and(|found| !found.is_empty()),
            vdevs,
            caches: self.caches(),
            spares: self.spares(),
            cache_counts: self.drives().cache_counts(),
        }
    }

    /// A drive's own table.
    fn leaf_zap(&self, id: ObjectId) -> Option<Zap> {
        Zap::open(self.0.spa.synced_mos().object(id).ok()?).ok()
    }

    fn vdev_status(&self, config: &VdevConfig) -> VdevStatus {
        let children: Vec<_> =
            config.children.iter().map(|child| self.vdev_status(child)).collect();
        let leaf = self.0.spa.tree().leaf(config.guid);
        let healthy = children.iter().all(|child| child.state == "ONLINE");
        let (state, note) = match &leaf {
            // it has no device of its own
            Some(_) if config.kind == VdevKind::DraidSpare => ("ONLINE", None),
            Some(leaf) => match leaf_state(leaf, self.is_read_only().then_some(config)) {
                ("ONLINE", _) => match self.0.diagnosis.lock().degraded_note(config) {
                    Some(note) => ("DEGRADED", Some(note)),
                    None => ("ONLINE", None),
                },
                other => other,
            },
            None if healthy => ("ONLINE", None),
            None => ("DEGRADED", None),
        };
        let (checksum_errors, read_errors) =
            leaf.as_ref().map_or((0, 0), |leaf| leaf.error_counts());
        let here =
            leaf.as_ref().and_then(|leaf| leaf.device().map(|device| device.name().to_owned()));
        let known = here.or_else(|| config.path.clone());
        let name = known.unwrap_or_else(|| crate::summary::vdev_name(config));
        let size = leaf.as_ref().and_then(|leaf| leaf.device()).map_or(0, |device| device.size());
        let table = config.leaf_zap.and_then(|id| self.leaf_zap(id));
        let total = config.asize.or_else(|| self.0.spa.leaf_space(config.guid)).unwrap_or(0);
        let sweep = |words: [&str; 3]| VdevActivity::from_zap(table.as_ref()?, words, total);
        VdevStatus {
            read_errors,
            slow_requests: leaf.as_ref().map_or(0, |leaf| leaf.slow_requests()),
            initialize: sweep(INITIALIZE_KEYS),
            trim: sweep(TRIM_KEYS),
            write_errors: leaf.as_ref().map_or(0, |leaf| leaf.write_errors()),
            checksum_errors,
            size,
            physical_size: size,
            children,
            note: note.map(str::to_owned),
            ..VdevStatus::new(&name, config.guid, state)
        }
    }
}

/// The state of a leaf in the words of zpool(8), and the note behind its row. A pool that is imported
/// read-only reads from leaves that its configuration keeps out of service.
fn leaf_state(leaf: &Leaf, read_only: Option<&VdevConfig>) -> (&'static str, Option<&'static str>) {
    match leaf.out_of_service() {
        Some(OutOfService::Offline { .. }) => ("OFFLINE", None),
        Some(OutOfService::Faulted { .. }) => ("FAULTED", Some("external device fault")),
        Some(OutOfService::TooManyErrors) => ("FAULTED", Some("too many errors")),
        None if read_only.is_some_and(|config| config.state.offline) => ("OFFLINE", None),
        None if leaf.device().is_none() => ("UNAVAIL", Some("cannot open")),
        None if leaf.is_device_gone() => ("REMOVED", None),
        None if leaf.is_failing() => ("FAULTED", None),
        None => ("ONLINE", None),
    }
}
