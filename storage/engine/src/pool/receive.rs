//! Receiving streams into an imported pool.
//!
//! The stream goes into a dataset that nobody else opens: a new head, or a hidden clone of the head's
//! newest snapshot. When the stream has ended and its checksum is right, one txg makes that dataset
//! the head and takes the snapshot. Whatever goes wrong before, the hidden dataset is destroyed and the
//! target is what it was.

use std::io::Read;
use std::sync::Arc;

use dmu::Objset;
use dsl::Dataset;
use dsl::write::{self, ReceivedSnapshot};
use ondisk::feature::Feature;
use ondisk::objset::{Flags, Kind};
use ondisk::stream::{Begin, BeginFlags, StreamFeatures};
use send::{Receiver, StreamReader, check_receivable};
use spa::{ActivePool, OpenDataset};
use txg::Tx;
use units::{Guid, ObjsetId, Txg};
use zio::Key;

use super::accounting::{ZplAccounting, has_feature};
use super::datasets::{record_encryption, reset_intent_log};
use super::history::record_dataset_event;
use super::{NewDataset, Pool, settings};
use crate::{Error, Result};

/// What metadata may take of a record that is written.
const METADATA_ALLOWANCE: u64 = 128 << 10;
/// Features that a pool must have enabled for streams that have these.
const NEEDED_FEATURES: [(u64, &str); 4] = [
    (StreamFeatures::LARGE_BLOCKS, "large_blocks"),
    (StreamFeatures::LARGE_DNODE, "large_dnode"),
    (StreamFeatures::LONG_NAME, "longname"),
    (StreamFeatures::LARGE_MICROZAP, "large_microzap"),
];

/// Into what a stream is received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The file system or volume.
    pub target: String,
    /// The name of the snapshot behind the `@`; none: as it was on the sender.
    pub snapshot: Option<String>,
    /// Changes to the target since its newest snapshot are given up (-F).
    pub force: bool,
    /// Nothing is received: only the stream's header is checked (-n).
    pub dry_run: bool,
}

/// What was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The snapshot, by its full name.
    pub snapshot: String,
    /// The target was there before.
    pub is_incremental: bool,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// A receive that was checked and can begin.
struct Plan {
    target: String,
    snapshot: ReceivedSnapshot,
    mode: Mode,
    begin: Begin,
}

enum Mode {
    /// Into a new head.
    Full,
    /// Into a new clone of this snapshot.
    Clone(Box<Dataset>),
    /// Into the head, on top of this snapshot.
    Incremental(Box<Dataset>),
}

impl Plan {
    /// The dataset into which the stream goes.
    fn path(&self) -> String {
        match self.mode {
            Mode::Full | Mode::Clone(_) => self.target.clone(),
            Mode::Incremental(_) => format!("{}/%recv", self.target),
        }
    }

    fn error(&self, why: impl std::fmt::Display) -> Error {
        receive_error(&self.target, why)
    }
}

fn receive_error(target: &str, why: impl std::fmt::Display) -> Error {
    Error::Refused { what: format!("cannot receive into '{target}': {why}") }
}

impl Pool {
    /// Receives the stream of one snapshot. A stream that is damaged or cut leaves the target as it was.
    pub fn receive(&self, request: &ReceiveRequest, input: &mut dyn Read) -> Result<Received> {
        self.check_writable()?;
        let mut reader = StreamReader::new(input);
        let failed = |why: send::Error| receive_error(&request.target, why);
        let (begin, _) = reader.begin().map_err(failed)?;
        check_receivable(&begin, reader.order()).map_err(failed)?;
        let plan = self.plan_receive(request, begin)?;
        let received = |bytes| Received {
            snapshot: format!("{}@{}", plan.target, plan.snapshot.name),
            is_incremental: matches!(plan.mode, Mode::Incremental(_)),
            bytes,
        };
        if request.dry_run {
            return Ok(received(0));
        }
        let id = self.begin_receive(&plan)?;
        let _hold = self.0.dataset_holds.hold(id);
        let head = match &plan.mode {
            Mode::Incremental(_) => self.find_dataset(&plan.target)?.id(),
            Mode::Full | Mode::Clone(_) => None,
        };
        let _head_hold = head.map(|head| self.0.dataset_holds.hold(head));
        let done = self
            .receive_records(&plan, id, &mut reader)
            .and_then(|()| self.end_receive(&plan, id, request.force));
        if let Err(why) = done {
            self.abandon_receive(&plan, id);
            return Err(why);
        }
        Ok(received(reader.bytes()))
    }

    fn plan_receive(&self, request: &ReceiveRequest, begin: Begin) -> Result<Plan> {
        let target = request.target.clone();
        let sent_name = String::from_utf8_lossy(&begin.to_name).into_owned();
        let sent_part = sent_name.split_once('@').map(|(_, part)| part.to_owned());
        let part = request.snapshot.clone().or(sent_part);
        let refused = |why: String| receive_error(&target, why);
        let part = part.ok_or_else(|| refused("the stream does not name a snapshot".to_owned()))?;
        let mos = self.0.spa.synced_mos();
        let needed = NEEDED_FEATURES.into_iter().filter(|(bit, _)| begin.features.has(*bit));
        for (_, feature) in needed {
            if !has_feature(&mos, feature) {
                let why = format!(
                    "the stream requires feature@{feature}, which is not enabled on this pool"
                );
                return Err(refused(why));
            }
        }
        let existing = match self.find_dataset(&target) {
            Ok(found) => Some(found),
            Err(Error::NoSuchDataset { .. }) => None,
            Err(why) => return Err(why),
        };
        let mode = match (existing, begin.from_guid) {
            (None, 0) => Mode::Full,
            (Some(_), 0) => {
                return Err(refused(
                    "it exists, and a full stream makes a new one; destroy it first".to_owned(),
                ));
            }
            (Some(head), guid) => self.plan_incremental(&head, Guid::new(guid), request, &begin)?,
            (None, guid) if begin.flags.has(BeginFlags::CLONE) => self.plan_clone(&target, guid)?,
            (None, _) => {
                return Err(refused("it does not exist, and the stream is incremental".to_owned()));
            }
        };
        if !matches!(mode, Mode::Incremental(_)) {
            self.find_parent(&target)?;
        }
        let snapshot = ReceivedSnapshot {
            name: part,
            guid: Guid::new(begin.to_guid),
            creation_time: begin.creation_time,
        };
        Ok(Plan { target, snapshot, mode, begin })
    }

    fn plan_clone(&self, target: &str, guid: u64) -> Result<Mode> {
        let _pin = self.pin();
        for dataset in self.tree()?.datasets() {
            let Ok(dataset) = dataset else { continue };
            if dataset.is_snapshot() && dataset.guid().get() == guid {
                return Ok(Mode::Clone(Box::new(dataset)));
            }
        }
        Err(receive_error(target, "the stream is of a clone, and its origin is not in this pool"))
    }

    fn plan_incremental(
        &self,
        head: &Dataset,
        guid: Guid,
        request: &ReceiveRequest,
        begin: &Begin,
    ) -> Result<Mode> {
        let name = head.name();
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        super::incomplete::check_complete(head)?;
        if head.is_snapshot() || head.id().is_none() {
            return Err(receive_error(&name, "it is neither a file system nor a volume"));
        }
        let snapshots = head.snapshots().map_err(failed)?;
        let Some(newest) = snapshots.last().filter(|newest| newest.guid() == guid) else {
            let known = snapshots.iter().find(|snapshot| snapshot.guid() == guid);
            let why = match known {
                Some(base) => format!(
                    "the stream is based on '{}', and there are newer snapshots; destroy them first: \
                     `zfs rollback -r {}`",
                    base.name(),
                    base.name()
                ),
                None => "its newest snapshot is not the one that the stream is based on".to_owned(),
            };
            return Err(receive_error(&name, why));
        };
        let large_blocks = Feature::by_name("large_blocks");
        let has_large_blocks = match large_blocks {
            Some(feature) => newest.zap_field(feature.guid).map_err(failed)?.is_some(),
            None => false,
        };
        if has_large_blocks && !begin.features.has(StreamFeatures::LARGE_BLOCKS) {
            let why = "it has large blocks, and the stream has none; send with -L";
            return Err(receive_error(&name, why));
        }
        if !request.force && self.is_modified_since(head, newest)? {
            let why = "it was modified since its newest snapshot; -F gives those changes up";
            return Err(receive_error(&name, why));
        }
        Ok(Mode::Incremental(Box::new(newest.clone())))
    }

    /// Whether files of a head changed since its newest snapshot. Its intent log does not count.
    fn is_modified_since(&self, head: &Dataset, newest: &Dataset) -> Result<bool> {
        self.sync()?;
        let name = head.name();
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        let head = self.find_dataset(&name)?;
        let [now, then] = [&head, newest].map(|it| it.objset(None));
        let (now, then) = (now.map_err(failed)?, then.map_err(failed)?);
        Ok(now.header().meta != then.header().meta)
    }

    /// Creates the dataset into which the stream goes.
    fn begin_receive(&self, plan: &Plan) -> Result<ObjsetId> {
        let (name, path) = (plan.target.clone(), plan.path());
        let failed = move |error: dsl::Error| receive_error(&name, error);
        match &plan.mode {
            Mode::Full => {
                let mut new = NewDataset { name: plan.target.clone(), properties: Vec::new() };
                let keying = self.child_encryption(&mut new, None)?;
                self.with_opens_blocked(|| {
                    self.run_sync_task(move |_, change| {
                        let id = write::begin_full_receive(change, &path).map_err(&failed)?;
                        record_encryption(change, id, keying.as_ref()).map_err(&failed)?;
                        Ok(id)
                    })
                })
            }
            Mode::Clone(origin) => {
                let (origin_name, key) = (origin.name(), self.base_key(origin)?);
                self.run_sync_task(move |active, change| {
                    let id = write::begin_clone_receive(change, &path, &origin_name);
                    let id = id.map_err(&failed)?;
                    reset_intent_log(active, change, &path, key)?;
                    Ok(id)
                })
            }
            Mode::Incremental(base) => {
                let (guid, key) = (base.guid(), self.base_key(base)?);
                let (target, part) = (plan.target.clone(), plan.snapshot.name.clone());
                self.run_sync_task(move |active, change| {
                    let id = write::begin_incremental_receive(change, &target, guid, &part);
                    let id = id.map_err(&failed)?;
                    reset_intent_log(active, change, &path, key)?;
                    Ok(id)
                })
            }
        }
    }

    /// The key of a snapshot that is received on top of.
    fn base_key(&self, base: &Dataset) -> Result<Option<Key>> {
        let name = base.name();
        let failed = |error: dsl::Error| Error::from_dsl_error(&name, &error);
        let key = base.key().map_err(failed)?;
        if key.is_none() && base.key_object().map_err(failed)?.is_some() {
            return Err(crate::keys::locked_error(base));
        }
        debug_assert!(!self.is_read_only(), "a receive is refused on a read-only pool");
        Ok(key)
    }

    /// Applies all records of the stream.
    fn receive_records<R: Read>(
        &self,
        plan: &Plan,
        id: ObjsetId,
        reader: &mut StreamReader<R>,
    ) -> Result<()> {
        let (set, base) = self.open_received(plan, id)?;
        let spa = &self.0.spa;
        let mut space = SpaceLeft::default();
        let mut begin_tx = |bytes: u64| begin_receive_tx(spa, &set, &mut space, bytes);
        let begin = plan.begin.clone();
        let mut receiver = Receiver::new(set.objset.clone(), base, begin, &mut begin_tx);
        let failed = |why: send::Error| plan.error(why);
        loop {
            let record = reader.next_record().map_err(failed)?;
            let record = record.ok_or(send::Error::Truncated { bytes: reader.bytes() });
            if receiver.apply(&record.map_err(failed)?).map_err(failed)? {
                return Ok(());
            }
        }
    }

    /// The content of the dataset into which the stream goes, and what it begins with.
    fn open_received(
        &self,
        plan: &Plan,
        id: ObjsetId,
    ) -> Result<(Arc<OpenDataset>, Option<Objset>)> {
        let spa = &self.0.spa;
        let path = plan.path();
        let failed = |error: dsl::Error| Error::from_dsl_error(&path, &error);
        let dataset = self.find_dataset(&path)?;
        let stored = settings::block_settings(&dataset);
        let base = match &plan.mode {
            Mode::Full => None,
            Mode::Clone(base) | Mode::Incremental(base) => Some(base),
        };
        let Some(base) = base else {
            let is_volume = plan.begin.objset_type == 3;
            let kind = if is_volume { Kind::Volume } else { Kind::Filesystem };
            let blank = Objset::new_empty(spa.source(), id, kind, stored.key.clone());
            let set = spa.open_dataset(blank, stored);
            let tx = spa.begin_tx().map_err(|why| self.explain_error(&why))?;
            let accounting = ZplAccounting::new(spa, &self.0.environment);
            let flags = if is_volume { Flags::default() } else { accounting.objset_flags() };
            set.edit_header(&tx, move |header| header.flags = flags);
            activate_features(&set, &tx, plan.begin.features);
            return Ok((set, None));
        };
        let objset = dataset.open_objset().map_err(failed)?;
        let base = base.open_objset().map_err(failed)?;
        if base.header().kind != objset.header().kind {
            return Err(plan.error("the stream is of another kind of dataset"));
        }
        let set = spa.open_dataset(objset.to_writable(), stored);
        let tx = spa.begin_tx().map_err(|why| self.explain_error(&why))?;
        activate_features(&set, &tx, plan.begin.features);
        Ok((set, Some(base)))
    }

    /// Makes what was received the head, with its snapshot, in one txg.
    fn end_receive(&self, plan: &Plan, id: ObjsetId, force: bool) -> Result<()> {
        let (name, received) = (plan.target.clone(), plan.snapshot.clone());
        let fails = |name: &str, error: &dsl::Error| receive_error(name, error);
        if let Mode::Incremental(base) = &plan.mode {
            let (heads, base) = ([name.clone()], base.id());
            return self.run_retiring_task(&heads, move |active, change| {
                let head = write::head_id(change, &name).map_err(|why| fails(&name, &why))?;
                if !force && base.map_or(Ok(true), |base| differs(active, change, head, base))? {
                    let why = "it was modified while the stream was being received";
                    return Err(receive_error(&name, why));
                }
                write::end_incremental_receive(change, &name, &received)
                    .map_err(|why| fails(&name, &why))?;
                active.close_dataset(id);
                active.close_dataset(head);
                record_received(active, change, &name, &received);
                Ok(())
            });
        }
        self.run_sync_task(move |active, change| {
            write::end_full_receive(change, &name, &received).map_err(|why| fails(&name, &why))?;
            active.close_dataset(id);
            record_received(active, change, &name, &received);
            Ok(())
        })
    }

    /// Destroys what was received in part. If that fails too, the next import does it.
    fn abandon_receive(&self, plan: &Plan, id: ObjsetId) {
        self.0.spa.close_dataset(id);
        let path = plan.path();
        // the error that ended the receive is told
        let _ = self.run_sync_task(move |_, change| {
            write::destroy_partial_receive(change, &path)
                .map_err(|why| Error::from_dsl_error(&path, &why))
        });
    }
}

/// Whether the objects of a head differ from those of a snapshot, as of the txg that is being written. Intent
/// logs do not count.
fn differs(
    active: &ActivePool,
    change: &write::SyncTaskContext<'_>,
    head: ObjsetId,
    snapshot: ObjsetId,
) -> Result<bool> {
    let meta = |id: ObjsetId| {
        let refused = |why: String| Error::Refused { what: why };
        let root = change.dataset_root(id).map_err(|why| refused(why.to_string()))?;
        let objset = Objset::open(active.source(), id, &root, None);
        Ok::<_, Error>(objset.map_err(|why| refused(why.to_string()))?.header().meta.clone())
    };
    Ok(meta(head)? != meta(snapshot)?)
}

/// Begins a transaction that writes so many bytes of a received dataset.
fn begin_receive_tx(
    spa: &ActivePool,
    set: &OpenDataset,
    space: &mut SpaceLeft,
    bytes: u64,
) -> send::Result<Tx> {
    let ended = |why: String| send::Error::Pool { why };
    if set.is_retired() {
        return Err(ended("the dataset was destroyed, or the pool is being exported".to_owned()));
    }
    if bytes > 0 {
        space.check(spa, set, bytes)?;
    } else {
        spa.txgs().throttle_frees();
    }
    spa.begin_tx().map_err(|why| ended(why.to_string()))
}

/// What the pool and the quotas above have room for, as of a txg.
#[derive(Default)]
struct SpaceLeft(Option<(Txg, u64)>);

impl SpaceLeft {
    /// Refuses to write more than there is room for.
    fn check(&mut self, spa: &ActivePool, set: &OpenDataset, bytes: u64) -> send::Result<()> {
        /// What was freed can be used again after two txgs.
        const MAX_SYNCED_TXGS: usize = 3;
        let needed = bytes.saturating_add(METADATA_ALLOWANCE);
        let ended = |why: spa::Error| send::Error::Pool { why: why.to_string() };
        for _ in 0..MAX_SYNCED_TXGS {
            let left = self.bytes(spa, set).map_err(ended)?;
            let unsynced = spa.txgs().unsynced_bytes();
            if spa.has_space(needed) && left >= needed.saturating_add(unsynced) {
                return Ok(());
            }
            spa.reclaim_freed_space();
            spa.sync().map_err(ended)?;
        }
        Err(send::Error::Pool { why: "out of space: the pool or a quota is full".to_owned() })
    }

    fn bytes(
        &mut self,
        spa: &ActivePool,
        set: &OpenDataset,
    ) -> std::result::Result<u64, spa::Error> {
        let synced = spa.txgs().synced_txg();
        if let Some((txg, bytes)) = self.0
            && txg == synced
        {
            return Ok(bytes);
        }
        let bytes = spa.dataset_space(set.objset.id())?.bytes;
        self.0 = Some((synced, bytes));
        Ok(bytes)
    }
}

/// Features that no block pointer and no dnode tells of.
fn activate_features(set: &OpenDataset, tx: &Tx, features: StreamFeatures) {
    let told = [StreamFeatures::LONG_NAME, StreamFeatures::LARGE_MICROZAP];
    let needed = NEEDED_FEATURES.into_iter().filter(|(bit, _)| told.contains(bit));
    for (_, name) in needed.filter(|(bit, _)| features.has(*bit)) {
        if let Some(feature) = Feature::by_name(name) {
            set.activate_feature(tx, feature);
        }
    }
}

fn record_received(
    active: &ActivePool,
    change: &write::SyncTaskContext<'_>,
    name: &str,
    received: &ReceivedSnapshot,
) {
    record_dataset_event(active, change, "receive", name, &format!("snap={}", received.name));
}
