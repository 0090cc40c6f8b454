//! Error scrubs: the blocks of the error log are read again, and repaired where that is possible by now.
//!
//! The blocks that are still damaged are the new error log. An error scrub that was paused, or interrupted by
//! an export, begins with the first block again: logs are short.

use std::collections::HashMap;
use std::sync::Arc;

use dmu::Objset;
use dsl::write::SyncTaskContext;
use job::Queue;
use ondisk::Blkptr;
use ondisk::scan::{ErrorScrubPhys, ScanFunction, ScanPhase};
use units::{ObjsetId, Zbookmark};
use vdev::IoClass;
use zio::Source;

use super::error_log::pointer_at;
use super::round::{MAX_QUEUED_BATCHES, Round, Scan, ScanBlock};
use super::scrub::Scrub;
use super::state::ScanError;
use super::targets::ScanDatasets;
use super::{ScanProgress, ScanResult};
use crate::{ActivePool, Error, scan};

impl ActivePool {
    /// Begins an error scrub, or resumes a paused one; [`ActivePool::error_scrub`] does it. Returns false if the
    /// error log is empty.
    pub fn start_error_scrub(&self) -> Result<bool, Error> {
        let blocks = self.logged_error_count()?;
        self.run_sync_task(move |active, change| active.start_error_scrub_sync(change, blocks))?
    }

    fn start_error_scrub_sync(
        &self,
        change: &SyncTaskContext<'_>,
        blocks: u64,
    ) -> Result<bool, Error> {
        let record = self.error_scrub_record();
        if record.is_running() {
            if record.paused == 0 {
                return Err(ScanError::ErrorScrubbing.into());
            }
            self.scan_state().edit_error_scrub(|record| record.paused = 0);
            return Ok(true);
        }
        let scan = self.scan_record();
        if scan.is_running() {
            let is_scrub = scan.function == ScanFunction::Scrub;
            let why = if is_scrub { ScanError::Scrubbing } else { ScanError::Resilvering };
            return Err(if scan.is_paused() { ScanError::PausedToCancel } else { why }.into());
        }
        if !self.has_head_errlog()? {
            return Err(ScanError::NoHeadErrlog.into());
        }
        if blocks == 0 {
            return Ok(false);
        }
        self.scan_state().edit_error_scrub(|record| {
            *record = ErrorScrubPhys {
                function: ScanFunction::ErrorScrub,
                phase: ScanPhase::ErrorScrubbing,
                start_time: change.now.seconds,
                to_examine: blocks,
                ..ErrorScrubPhys::default()
            };
        });
        let detail = format!("func=3 mintxg=0 maxtxg={}", change.tx.txg());
        self.log_scan_event(change, "error scrub setup", &detail);
        Ok(true)
    }

    /// Reads the blocks of the error log and repairs them where that is possible, after
    /// [`ActivePool::start_error_scrub`]. To be called by one thread at a time.
    pub fn error_scrub(&self, watch: &ScanProgress) -> Result<ScanResult, Error> {
        let places = self.damaged_places()?;
        self.error_log().begin_scan();
        let scan = Scan::new(self, &Scrub, watch);
        let source = Arc::clone(&scan.reader) as Arc<dyn Source>;
        let (pin, txg, mos) = self.open_pinned_mos(&source)?;
        let (queue, datasets) = (Queue::new(MAX_QUEUED_BATCHES), ScanDatasets::default());
        let round = Round { scan: &scan, queue, mos, datasets, txg, pin };
        let verify = || round.verify_places(&places, &source);
        let is_complete = vdev::with_class(IoClass::Scan, verify);
        self.tree().flush(&mut Vec::new())?;
        if is_complete {
            self.end_error_scrub(true)?;
        }
        Ok(scan.result(is_complete))
    }

    /// Ends the error scrub: it read all blocks, or is given up.
    pub fn end_error_scrub(&self, is_complete: bool) -> Result<(), Error> {
        self.run_sync_task(move |active, change| {
            if !active.error_scrub_record().is_running() {
                return;
            }
            active.error_log().end_scan(is_complete);
            active.scan_state().edit_error_scrub(|record| {
                record.phase = if is_complete { ScanPhase::Finished } else { ScanPhase::Canceled };
                record.paused = 0;
                record.end_time = change.now.seconds;
            });
            let name = if is_complete { "error scrub done" } else { "error scrub canceled" };
            let detail = format!("errors={}", active.error_scrub_record().errors);
            active.log_scan_event(change, name, &detail);
        })
    }

    /// Has the error scrub pause.
    pub fn pause_error_scrub(&self) -> Result<(), Error> {
        self.run_sync_task(|active, _| {
            match active.error_scrub_record() {
                record if !record.is_running() => return Err(ScanError::NotScrubbing.into()),
                record if record.paused != 0 => return Err(ScanError::ErrorScrubPaused.into()),
                _ => active.scan_state().edit_error_scrub(|record| record.paused = 1),
            }
            Ok(())
        })?
    }
}

impl Round<'_> {
    /// Verifies the blocks at these places. Returns whether it reached the end.
    fn verify_places(&self, places: &[Zbookmark], source: &Arc<dyn Source>) -> bool {
        let mut objsets: HashMap<ObjsetId, Option<Objset>> = HashMap::new();
        for place in places {
            if self.is_stopping() {
                return false;
            }
            let open = || self.open_objset(place.objset, source);
            let objset = objsets.entry(place.objset).or_insert_with(open);
            let block = objset.as_ref().and_then(|objset| pointer_at(objset, *place));
            if let Some(Blkptr::Regular(block)) = block {
                self.verify_block(&ScanBlock { zbookmark: *place, block: *block });
            }
            let errors = self.scan.progress.errors();
            self.scan.pool.scan_state().edit_error_scrub(|record| {
                record.examined += 1;
                record.errors = errors;
            });
        }
        true
    }

    fn open_objset(&self, id: ObjsetId, source: &Arc<dyn Source>) -> Option<Objset> {
        if id == ObjsetId::MOS {
            return Some(self.mos.clone());
        }
        let root = scan::dataset_root(&self.mos, id).ok()??;
        Objset::open(Arc::clone(source), id, &root, None).ok()
    }
}
