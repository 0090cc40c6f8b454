//! Applying the records of a stream to the dataset that is received into.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use dmu::Objset;
use dsl::{Dataset, ResumeToken, write};
use ondisk::Blkptr;
use ondisk::feature::Feature;
use ondisk::objset::{Flags, Kind};
use ondisk::stream::StreamFeatures;
use parking_lot::Mutex;
use send::{Receiver, ResumePoint, StreamReader, resume_point};
use spa::{ActivePool, OpenDataset};
use txg::Tx;
use units::{MinusOrZero as _, ObjsetId, Txg};

use super::accounting::ZplAccounting;
use super::receive::{NEEDED_FEATURES, Plan};
use super::{Pool, settings};
use crate::{Error, Result};

/// The metadata share of a record's space.
const METADATA_ALLOWANCE: u64 = 128 << 10;

/// The record that each txg applied last.
#[derive(Default)]
struct Positions {
    current: Option<ResumeToken>,
    by_txg: BTreeMap<Txg, ResumeToken>,
}

impl Positions {
    /// The position as of a txg, if it changed since the last call.
    fn take(&mut self, txg: Txg) -> Option<ResumeToken> {
        let later = self.by_txg.split_off(&txg.next());
        let due = std::mem::replace(&mut self.by_txg, later);
        due.into_values().next_back()
    }
}

impl Pool {
    /// Applies all records of a snapshot's stream.
    pub(super) fn receive_records<R: Read>(
        &self,
        plan: &Plan,
        id: ObjsetId,
        reader: &mut StreamReader<R>,
    ) -> Result<()> {
        let (set, base) = self.open_received(plan, id)?;
        let spa = &self.0.spa;
        let positions = Arc::new(Mutex::new(Positions::default()));
        let first = plan.resume.as_ref().map(|(_, state)| state.clone());
        if first.is_some() {
            record_positions(&set, id, Arc::clone(&positions));
        }
        let (mut space, at) = (SpaceLeft::default(), reader.bytes());
        let mut begin_tx = |bytes: u64| {
            let tx = begin_receive_tx(spa, &set, &mut space, bytes)?;
            let mut positions = positions.lock();
            if let Some(current) = positions.current.clone() {
                positions.by_txg.insert(tx.txg(), current);
            }
            Ok(tx)
        };
        let point = first
            .as_ref()
            .filter(|state| state.bytes > 0)
            .map(|state| ResumePoint { object: state.object, offset: state.offset });
        let failed = |why: send::Error| plan.stream_error(&why);
        let stream = (plan.begin.clone(), reader.order(), point);
        let mut receiver =
            Receiver::new(set.objset().clone(), base, stream, &mut begin_tx).map_err(failed)?;
        loop {
            let record = reader.next_record().map_err(failed)?;
            let record = record.ok_or(send::Error::Truncated { bytes: reader.bytes() });
            let record = record.map_err(failed)?;
            if let (Some(first), Some(point)) = (&first, resume_point(&record.record)) {
                // the records before the first one that counts add nothing
                let bytes = first.bytes + record.at.minus_or_zero(at);
                let ResumePoint { object, offset } = point;
                let now = ResumeToken { object, offset, bytes, ..first.clone() };
                positions.lock().current = Some(now);
            }
            if receiver.apply(&record).map_err(failed)? {
                return Ok(());
            }
        }
    }

    /// The content of the stream's dataset, and its initial state.
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
        if let Some(keydata) = &plan.keydata {
            let opened = self.open_raw_received(plan, id, (keydata, stored))?;
            let tx = spa.begin_tx().map_err(|why| self.explain_error(&why))?;
            activate_features(&opened.0, &tx, plan.begin.features);
            return Ok(opened);
        }
        let is_empty = dataset.phys().is_some_and(|phys| phys.root == Blkptr::EMPTY);
        let set = if is_empty && plan.base().is_none() {
            let is_volume = plan.dataset_kind() == dsl::DatasetKind::Volume;
            let kind = if is_volume { Kind::Volume } else { Kind::Filesystem };
            let blank = Objset::new_empty(spa.source(), id, kind, stored.key.clone());
            let set = spa.open_dataset(blank, stored);
            let tx = spa.begin_tx().map_err(|why| self.explain_error(&why))?;
            let accounting = ZplAccounting::new(spa, &self.0.environment);
            let flags = if is_volume { Flags::default() } else { accounting.objset_flags() };
            set.edit_header(&tx, move |header| header.flags = flags);
            set
        } else {
            let objset = dataset.open_objset().map_err(failed)?;
            spa.open_dataset(objset.to_writable(), stored)
        };
        let base = plan.base().map(Dataset::open_objset).transpose().map_err(failed)?;
        let kind = |objset: &Objset| objset.header().kind;
        if base.as_ref().is_some_and(|base| kind(base) != kind(set.objset())) {
            return Err(plan.error("the stream is of another kind of dataset"));
        }
        let tx = spa.begin_tx().map_err(|why| self.explain_error(&why))?;
        activate_features(&set, &tx, plan.begin.features);
        Ok((set, base))
    }
}

/// Has each sync of a dataset write where the receive would continue.
fn record_positions(set: &OpenDataset, id: ObjsetId, positions: Arc<Mutex<Positions>>) {
    set.set_sync_hook(move |change| {
        let due = positions.lock().take(change.tx.txg());
        due.map_or(Ok(()), |state| write::set_resume_position(change, id, &state))
    });
}

/// Begins a transaction that writes this many bytes of a received dataset.
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

/// The available space by the pool and the quotas above, as of a txg.
#[derive(Default)]
struct SpaceLeft(Option<(Txg, u64)>);

impl SpaceLeft {
    /// Refuses to write more than the available space.
    fn check(&mut self, spa: &ActivePool, set: &OpenDataset, bytes: u64) -> send::Result<()> {
        /// freed space can be allocated again after two txgs
        const MAX_SYNCED_TXGS: usize = 3;
        let needed = bytes + METADATA_ALLOWANCE;
        let ended = |why: spa::Error| send::Error::Pool { why: why.to_string() };
        for _ in 0..MAX_SYNCED_TXGS {
            let left = self.bytes(spa, set).map_err(ended)?;
            let unsynced = spa.txgs().unsynced_bytes();
            if spa.has_space(needed) && left >= needed + unsynced {
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
        let bytes = spa.dataset_space(set.objset().id())?.bytes;
        self.0 = Some((synced, bytes));
        Ok(bytes)
    }
}

/// Features that no block pointer and no dnode shows.
fn activate_features(set: &OpenDataset, tx: &Tx, features: StreamFeatures) {
    let told = [StreamFeatures::LONG_NAME, StreamFeatures::LARGE_MICROZAP];
    let needed = NEEDED_FEATURES.into_iter().filter(|(bit, _)| told.contains(bit));
    for (_, name) in needed.filter(|(bit, _)| features.has(*bit)) {
        if let Some(feature) = Feature::by_name(name) {
            set.activate_feature(tx, feature);
        }
    }
}
