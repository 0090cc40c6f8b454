//! Check: every block that a snapshot needs is stored and has its checksum.

use std::collections::HashSet;

use job::Job;

use crate::blocks::PoolIndex;
use crate::head::PACKS;
use crate::live::SnapshotWalk;
use crate::mark::walk_start;
use crate::{BlockKey, Error, Head, Manifest, ObjectId, Repository, Result, SnapshotSummary};

/// The options of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// The content of files and volumes is not read; it is only seen that it is stored.
    pub metadata_only: bool,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The snapshot.
    pub snapshot: String,
    /// A damage.
    pub why: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Snapshots that were walked.
    pub snapshots: u64,
    /// Blocks that they need.
    pub blocks: u64,
    /// Bytes of blocks whose checksums were verified.
    pub verified_bytes: u64,
    /// Packs that the head refers to.
    pub packs: u64,
    /// The damages, the first [`CheckReport::MAX_DAMAGES`] of them.
    pub damages: Vec<Damage>,
    /// How much is wrong in all.
    pub damage_count: u64,
}

impl CheckReport {
    /// The most damages in the list.
    pub const MAX_DAMAGES: usize = 1000;

    fn add(&mut self, snapshot: &str, why: String) {
        self.damage_count += 1;
        if self.damages.len() < Self::MAX_DAMAGES {
            self.damages.push(Damage { snapshot: snapshot.to_owned(), why });
        }
    }
}

impl Repository {
    /// Reads every block that a snapshot needs and verifies it. Damage goes into the report; an error is
    /// only that the store is out of reach.
    pub fn check(&self, options: CheckOptions, job: &Job) -> Result<CheckReport> {
        let head = self.refresh()?;
        let mut report = CheckReport::default();
        self.check_packs(&head, &mut report)?;
        for snapshot in &head.snapshots {
            job.progress.set_message(snapshot.name());
            report.snapshots += 1;
            match self.check_snapshot(&head, snapshot, options, job, &mut report) {
                Ok(()) => {}
                Err(why) if why.is_unavailable() => return Err(why),
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(why) => report.add(&snapshot.name(), why.to_string()),
            }
        }
        Ok(report)
    }

    /// All packs of the index are in the store.
    fn check_packs(&self, head: &Head, report: &mut CheckReport) -> Result<()> {
        let mut packs = HashSet::new();
        for object in &head.index {
            match self.read_index(object) {
                Ok(index) => packs.extend(index.iter().map(|location| location.pack)),
                Err(why) if why.is_unavailable() => return Err(why),
                Err(why) => report.add("index", why.to_string()),
            }
        }
        let listed = self.list(PACKS)?;
        let stored: HashSet<ObjectId> =
            listed.iter().filter_map(|info| info.name.strip_prefix(PACKS)?.parse().ok()).collect();
        report.packs = packs.len() as u64;
        for pack in packs.difference(&stored) {
            report.add("index", format!("the pack {pack} is gone"));
        }
        Ok(())
    }

    fn check_snapshot(
        &self,
        head: &Head,
        snapshot: &SnapshotSummary,
        options: CheckOptions,
        job: &Job,
        report: &mut CheckReport,
    ) -> Result<()> {
        let manifest = self.manifest(snapshot)?;
        let walk = SnapshotWalk::open(self, &manifest)?;
        let index = PoolIndex::new(self.clone(), head, snapshot.pool);
        let mut unreadable = Vec::new();
        let report_cell = std::cell::RefCell::new(report);
        walk.walk_with(
            walk_start(head, snapshot),
            &mut |block, zbookmark| {
                if job.cancel.is_cancelled() {
                    return Err(Error::Cancelled);
                }
                let mut report = report_cell.borrow_mut();
                report.blocks += 1;
                let is_walked = block.level.get() > 0 || block.kind.is_metadata();
                if options.metadata_only && !is_walked {
                    let key = BlockKey::new(block);
                    if key.map(|key| index.find(&key)).transpose()?.flatten().is_none() {
                        report.add(&snapshot.name(), format!("{zbookmark}: it is not stored"));
                    }
                    return Ok(());
                }
                match walk.reader().read_stored(block, zbookmark) {
                    Ok(stored) => {
                        let size = stored.len() as u64;
                        job.progress.add(size, 1);
                        report.verified_bytes += size;
                    }
                    Err(why) => report.add(&snapshot.name(), why.to_string()),
                }
                Ok(())
            },
            // a block that cannot be read was counted when its pointer was shown
            &mut |why| {
                unreadable.push(why.to_string());
                Ok(())
            },
        )?;
        let report = report_cell.into_inner();
        if report.damage_count == 0 {
            for why in unreadable {
                report.add(&snapshot.name(), why);
            }
        }
        check_manifest(&manifest, snapshot, report);
        Ok(())
    }
}

fn check_manifest(manifest: &Manifest, snapshot: &SnapshotSummary, report: &mut CheckReport) {
    if manifest.name() != snapshot.name() || manifest.txg != snapshot.txg {
        report.add(&snapshot.name(), "its manifest is of another snapshot".to_owned());
    }
}
