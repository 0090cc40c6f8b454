//! The scan as the pool keeps it, so that it goes on after an export, here or with OpenZFS.
//!
//! ```text
//! walker ── publish ──▶ pending positions ── complete ──▶ durable position ── txg sync ──▶ MOS
//!                       one for each batch                 all before it is scanned
//! ```
//!
//! The walker publishes its position with each batch of blocks. Workers take batches in any order; a
//! position is durable when its batch and all batches before it are complete. The txg sync thread writes
//! the durable position and the queue of datasets. Changes of datasets move all positions.
//!
//! Learnt from: `dsl_scan.c` of OpenZFS 2.3.2. Proved by: the engine's `tests/it/scan_state.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dsl::write::{DatasetEvent, SyncTaskContext};
use lock::{Mutex, rank};
use ondisk::ObjectType;
use ondisk::history::Entry;
use ondisk::scan::{
    ERROR_SCRUB_ENTRY, ErrorScrubPhys, LAST_SCRUBBED_TXG_ENTRY, SCAN_ENTRY, ScanFunction,
    ScanPhase, ScanPhys,
};
use units::{ObjsetId, Txg};
use zap::{NewZap, Zap, ZapValue};

use super::position::{Aliases, ScanPosition};
use crate::directory::POOL_DIRECTORY;
use crate::{ActivePool, Error, PoolDirectory};

/// Pools of older versions have no object type for the queue.
const QUEUE_TYPE_VERSION: u64 = 11;

/// A scan cannot be started, paused or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// A scrub goes on.
    #[error("currently scrubbing; use 'zpool scrub -s' to cancel scrub")]
    Scrubbing,
    /// A resilver goes on.
    #[error("currently resilvering")]
    Resilvering,
    /// An error scrub goes on.
    #[error("currently error scrubbing; use 'zpool scrub -s' to cancel error scrub")]
    ErrorScrubbing,
    /// The scrub is paused already.
    #[error("scrub is paused; use 'zpool scrub' to resume scrub")]
    Paused,
    /// An error scrub cannot begin while a scrub is paused.
    #[error("scrub is paused; use 'zpool scrub' to resume or 'zpool scrub -s' to cancel scrub")]
    PausedToCancel,
    /// The error scrub is paused already.
    #[error("error scrub is paused; use 'zpool scrub -e' to resume error scrub")]
    ErrorScrubPaused,
    /// Nothing goes on that could be paused or stopped.
    #[error("there is no active scrub")]
    NotScrubbing,
    /// The error log of an older format does not say where the blocks are by now.
    #[error("an error scrub needs the feature head_errlog: 'zpool upgrade' enables it")]
    NoHeadErrlog,
}

/// The scan of a pool.
#[derive(Default)]
pub(crate) struct ScanState(Mutex<State, { rank::SCAN_STATE }>);

#[derive(Default)]
struct State {
    /// The record, but for what the position says.
    phys: ScanPhys,
    durable: ScanPosition,
    /// Positions of batches that are not complete, in the order of the walk.
    pending: VecDeque<PendingPosition>,
    last_ticket: u64,
    /// Where the datasets of the running walk are by now.
    aliases: Aliases,
    /// The queue that the pool has.
    synced_queue: Arc<BTreeMap<ObjsetId, Txg>>,
    error_scrub: ErrorScrubPhys,
    /// The record of the error scrub that the pool has.
    synced_error_scrub: ErrorScrubPhys,
    is_dirty: bool,
}

struct PendingPosition {
    ticket: u64,
    position: ScanPosition,
    is_complete: bool,
}

impl ScanState {
    /// Reads the record of a pool. A record that cannot be read counts as none, and the next scan
    /// replaces it.
    pub(crate) fn load(directory: &PoolDirectory) -> Self {
        let words = directory.lookup_u64s(ERROR_SCRUB_ENTRY).ok().flatten();
        let error_scrub = words.and_then(|words| ErrorScrubPhys::from_words(&words).ok());
        let error_scrub = error_scrub.unwrap_or_default();
        let synced_error_scrub = error_scrub.clone();
        let words = directory.lookup_u64s(SCAN_ENTRY).ok().flatten();
        let Some(phys) = words.and_then(|words| ScanPhys::from_words(&words).ok()) else {
            return Self(Mutex::new(State { error_scrub, synced_error_scrub, ..State::default() }));
        };
        let queue = Arc::new(read_queue(directory, &phys).unwrap_or_default());
        let durable = ScanPosition {
            bookmark: phys.bookmark,
            min_txg: phys.cur_min_txg,
            max_txg: phys.cur_max_txg,
            visit_again: phys.flags & ScanPhys::VISIT_AGAIN != 0,
            queue: Arc::clone(&queue),
            examined: phys.examined,
        };
        // a phase over dedup tables that has not ended is replaced by walking from the start
        let is_in_ddt = phys.ddt_bookmark[0] <= phys.ddt_class_max;
        let durable = if is_in_ddt { ScanPosition::default() } else { durable };
        let base = State { error_scrub, synced_error_scrub, ..State::default() };
        let state = State { phys, durable, synced_queue: queue, ..base };
        Self(Mutex::new(state))
    }

    /// The record as it is now.
    pub(crate) fn record(&self) -> ScanPhys {
        self.0.lock().record()
    }

    /// Follows a change of datasets, while a txg is written.
    pub(crate) fn apply(&self, event: DatasetEvent) {
        let mut state = self.0.lock();
        if !state.phys.is_running() {
            return;
        }
        state.aliases.apply(event);
        state.durable.apply(event);
        for pending in &mut state.pending {
            pending.position.apply(event);
        }
        state.is_dirty = true;
    }

    /// Begins a walk from the durable position. No txg may be in the middle of being written, so that the
    /// datasets of the walk are those of the position.
    pub(super) fn begin_round(&self) -> ScanPosition {
        let mut state = self.0.lock();
        state.pending.clear();
        state.aliases = Aliases::default();
        state.durable.clone()
    }

    /// All before it is scanned.
    pub(super) fn durable_position(&self) -> ScanPosition {
        self.0.lock().durable.clone()
    }

    /// Notes a position of the walk that becomes durable when a batch is complete. Returns the batch's
    /// ticket.
    pub(super) fn publish(&self, position: &ScanPosition) -> u64 {
        let mut state = self.0.lock();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        let position = state.aliases.translate(position);
        let last = state.pending.back().map(|last| last.ticket);
        assert!(
            last < Some(ticket),
            "positions are published in the order of the walk: {ticket} after {last:?}"
        );
        state.pending.push_back(PendingPosition { ticket, position, is_complete: false });
        ticket
    }

    /// The batch of a ticket is complete.
    pub(super) fn complete(&self, ticket: u64) {
        let mut state = self.0.lock();
        if let Some(pending) = state.pending.iter_mut().find(|pending| pending.ticket == ticket) {
            pending.is_complete = true;
        }
        while state.pending.front().is_some_and(|pending| pending.is_complete) {
            if let Some(first) = state.pending.pop_front() {
                state.durable = first.position;
                state.is_dirty = true;
            }
        }
    }

    /// Counts bytes that were written to leaves, and blocks that could not be repaired.
    pub(super) fn count(&self, processed: u64, errors: u64) {
        let mut state = self.0.lock();
        state.phys.processed += processed;
        state.phys.errors += errors;
        state.is_dirty = true;
    }

    /// Moves the durable position to the start: a leaf that the scan does not cover needs all of it.
    pub(super) fn restart(&self) {
        let mut state = self.0.lock();
        state.pending.clear();
        state.durable = ScanPosition::default();
        state.is_dirty = true;
    }

    /// Writes the record and its queue with the txg, if they changed.
    pub(crate) fn write(&self, change: &SyncTaskContext<'_>) -> Result<(), Error> {
        let mut state = self.0.lock();
        if !std::mem::take(&mut state.is_dirty) {
            return Ok(());
        }
        let record = state.record();
        if record.queue.exists() && !Arc::ptr_eq(&state.synced_queue, &state.durable.queue) {
            let table = Zap::open(change.mos.object(record.queue)?)?;
            write_queue(change, &table, (&state.synced_queue, &state.durable.queue))?;
            state.synced_queue = Arc::clone(&state.durable.queue);
        }
        if state.error_scrub != state.synced_error_scrub {
            write_entry(change, ERROR_SCRUB_ENTRY, &state.error_scrub.to_words())?;
            state.synced_error_scrub = state.error_scrub.clone();
        }
        if record.function == ScanFunction::None {
            return Ok(());
        }
        write_entry(change, SCAN_ENTRY, &record.to_words())
    }

    /// Changes the record of the error scrub.
    pub(super) fn edit_error_scrub(&self, edit: impl FnOnce(&mut ErrorScrubPhys)) {
        let mut state = self.0.lock();
        edit(&mut state.error_scrub);
        state.is_dirty = true;
    }

    /// The record of the error scrub.
    pub(crate) fn error_scrub(&self) -> ErrorScrubPhys {
        self.0.lock().error_scrub.clone()
    }
}

impl State {
    fn record(&self) -> ScanPhys {
        let mut record = self.phys.clone();
        record.bookmark = self.durable.bookmark;
        record.cur_min_txg = self.durable.min_txg;
        record.cur_max_txg = self.durable.max_txg;
        record.examined = self.durable.examined;
        record.flags &= !ScanPhys::VISIT_AGAIN;
        if self.durable.visit_again {
            record.flags |= ScanPhys::VISIT_AGAIN;
        }
        record
    }
}

/// Writes integers to an entry of the pool's directory.
pub(super) fn write_entry(
    change: &SyncTaskContext<'_>,
    name: &str,
    words: &[u64],
) -> Result<(), Error> {
    let table = Zap::open(change.mos.object(POOL_DIRECTORY)?)?;
    let value = ZapValue::new(8, words.iter().flat_map(|word| word.to_be_bytes()).collect());
    Ok(table.update(change.tx, name.as_bytes(), &value)?)
}

fn read_queue(
    directory: &PoolDirectory,
    phys: &ScanPhys,
) -> Result<BTreeMap<ObjsetId, Txg>, Error> {
    let mut queue = BTreeMap::new();
    if !phys.queue.exists() {
        return Ok(queue);
    }
    let table = Zap::open(directory.mos().object(phys.queue)?)?;
    for entry in table.entries() {
        let entry = entry?;
        let name = std::str::from_utf8(&entry.name).ok();
        let dataset = name.and_then(|name| u64::from_str_radix(name, 16).ok());
        if let (Some(dataset), Some(txg)) = (dataset, entry.value.u64()) {
            queue.insert(ObjsetId::new(dataset), Txg::new(txg));
        }
    }
    Ok(queue)
}

fn write_queue(
    change: &SyncTaskContext<'_>,
    table: &Zap,
    (old, new): (&BTreeMap<ObjsetId, Txg>, &BTreeMap<ObjsetId, Txg>),
) -> Result<(), Error> {
    let name = |id: &ObjsetId| format!("{:x}", id.get());
    for id in old.keys().filter(|id| !new.contains_key(id)) {
        table.remove(change.tx, name(id).as_bytes())?;
    }
    for (id, txg) in new.iter().filter(|(id, txg)| old.get(id) != Some(txg)) {
        table.update_u64(change.tx, name(id).as_bytes(), txg.get())?;
    }
    Ok(())
}

impl ActivePool {
    /// The record of the last scrub or resilver.
    pub fn scan_record(&self) -> ScanPhys {
        self.scan_state().record()
    }

    /// The record of the last error scrub.
    pub fn error_scrub_record(&self) -> ErrorScrubPhys {
        self.scan_state().error_scrub()
    }

    /// Begins a scan of blocks born after a txg. A scan that goes on ends.
    pub(super) fn set_up_scan(&self, function: ScanFunction, min_txg: Txg) -> Result<(), Error> {
        self.run_sync_task(move |active, change| {
            active.error_log().begin_scan();
            active.set_up_scan_sync(change, function, min_txg)
        })?
    }

    /// Begins a scrub of all blocks. No scan goes on.
    pub(crate) fn start_scrub_sync(&self, change: &SyncTaskContext<'_>) -> Result<(), Error> {
        self.error_log().begin_scan();
        self.set_up_scan_sync(change, ScanFunction::Scrub, Txg::ZERO)
    }

    fn set_up_scan_sync(
        &self,
        change: &SyncTaskContext<'_>,
        function: ScanFunction,
        min_txg: Txg,
    ) -> Result<(), Error> {
        let old = self.scan_state().record();
        if old.queue.exists() {
            change.mos.free(change.tx, old.queue)?;
        }
        let kind = if change.version < QUEUE_TYPE_VERSION {
            ObjectType::ZAP_OTHER
        } else {
            ObjectType::SCAN_QUEUE
        };
        let queue = Zap::create(change.mos, change.tx, kind, &NewZap::default())?;
        let phys = ScanPhys {
            function,
            phase: ScanPhase::Scanning,
            queue: queue.object().id(),
            min_txg,
            max_txg: change.tx.txg(),
            start_time: change.now.seconds,
            to_examine: self.space_usage().1,
            // blocks of dedup are found by walking, not in their tables
            ddt_bookmark: [1, 0, 0, 0],
            ..ScanPhys::default()
        };
        let number = if function == ScanFunction::Resilver { 2 } else { 1 };
        let detail = format!("func={number} mintxg={min_txg} maxtxg={}", phys.max_txg);
        self.log_scan_event(change, "scan setup", &detail);
        let mut state = self.scan_state().0.lock();
        // a scrub or resilver erases the record of the error scrub
        let synced_error_scrub = std::mem::take(&mut state.synced_error_scrub);
        *state = State { phys, synced_error_scrub, is_dirty: true, ..State::default() };
        Ok(())
    }

    /// Ends the scan: it reached its end, or is given up.
    pub(super) fn end_scan(&self, is_complete: bool) -> Result<(), Error> {
        self.run_sync_task(move |active, change| active.end_scan_sync(change, is_complete))?
    }

    fn end_scan_sync(&self, change: &SyncTaskContext<'_>, is_complete: bool) -> Result<(), Error> {
        let record = self.scan_state().record();
        if !record.is_running() {
            return Ok(());
        }
        if record.queue.exists() {
            change.mos.free(change.tx, record.queue)?;
        }
        if is_complete && record.function == ScanFunction::Scrub {
            write_entry(change, LAST_SCRUBBED_TXG_ENTRY, &[record.max_txg.get()])?;
        }
        let name = if is_complete { "scan done" } else { "scan cancelled" };
        let detail = format!("errors={}", record.errors);
        self.log_scan_event(change, name, &detail);
        let is_scrub = record.function == ScanFunction::Scrub;
        self.error_log().end_scan(is_complete && is_scrub && record.min_txg.is_zero());
        let mut state = self.scan_state().0.lock();
        let State { phys, durable, .. } = &mut *state;
        phys.phase = if is_complete { ScanPhase::Finished } else { ScanPhase::Canceled };
        phys.queue = units::ObjectId::META;
        phys.flags = 0;
        phys.end_time = change.now.seconds;
        durable.queue = Arc::default();
        state.pending.clear();
        state.synced_queue = Arc::default();
        state.is_dirty = true;
        Ok(())
    }

    /// Gives the scrub up; what it repaired stays so.
    pub fn cancel_scan(&self) -> Result<(), Error> {
        self.end_scan(false)
    }

    /// Has the scrub pause, or go on. A paused scrub stays paused until it is resumed, also after an
    /// import.
    pub fn set_scan_paused(&self, is_paused: bool) -> Result<(), Error> {
        self.run_sync_task(move |active, _| {
            let mut state = active.scan_state().0.lock();
            match (state.phys.function, state.phys.is_running(), state.phys.is_paused()) {
                (ScanFunction::Scrub, true, was_paused) if was_paused != is_paused => {}
                (ScanFunction::Scrub, true, true) => return Err(ScanError::Paused.into()),
                (ScanFunction::Scrub, true, false) => return Err(ScanError::Scrubbing.into()),
                _ => return Err(ScanError::NotScrubbing.into()),
            }
            state.phys.flags ^= ScanPhys::PAUSED;
            state.is_dirty = true;
            Ok(())
        })?
    }

    /// The txg up to which the last finished scrub went; zero if none did.
    pub fn last_scrubbed_txg(&self) -> Result<Txg, Error> {
        let directory = PoolDirectory::open(self.synced_mos().clone())?;
        Ok(Txg::new(directory.lookup_u64(LAST_SCRUBBED_TXG_ENTRY)?.unwrap_or(0)))
    }

    pub(super) fn log_scan_event(&self, change: &SyncTaskContext<'_>, name: &str, detail: &str) {
        self.log_history(change, &Entry::Event { name, detail, dataset: None });
    }
}
