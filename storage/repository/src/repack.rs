//! Repack: drops unneeded blocks from the index and the packs of a pool.
//!
//! Packs with few needed bytes are dropped, and their needed blocks go into new packs. An index object stays as
//! it is if it names no dropped pack and most of its records are needed. The records of the others go into new
//! index objects. So an index object never names a pack that is gone, and a prune that drops little
//! writes little. Records are handled in batches, so that memory does not grow with the repository.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use job::Job;
use zio::Random;

use crate::backup::{PackWriter, new_id, store_index};
use crate::index::MAX_ENTRIES;
use crate::mark::Marks;
use crate::prune::Objects;
use crate::{
    BlockLocation, Error, Head, IndexSummary, ObjectId, PruneOptions, PruneReport, Repository,
    Result,
};

/// Records in memory at most: 80 bytes each.
const BATCH: usize = 1 << 18;
/// So many index objects that are not half full are merged. Each run of a backup adds one.
const MERGED_OBJECTS: usize = 8;

/// The pool, and the head that the prune replaces.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) repository: &'a Repository,
    pub(crate) pool: u64,
    pub(crate) head: &'a Arc<Head>,
    pub(crate) random: &'a Arc<dyn Random>,
}

/// The new state of a pool.
#[derive(Default)]
pub(crate) struct RewrittenPool {
    /// Its index objects. A dry run has only those that stay.
    pub(crate) index: Vec<IndexSummary>,
    /// The packs that the index names.
    pub(crate) packs: HashSet<ObjectId>,
}

/// Stores new packs and index objects of a pool, and returns its next state.
pub(crate) fn rewrite_pool(
    target: Target<'_>,
    marks: &Marks,
    objects: &Objects,
    options: PruneOptions,
    report: &mut PruneReport,
    job: &Job,
) -> Result<RewrittenPool> {
    let survey = Survey::read(marks, job)?;
    let dropped = survey.dropped_packs(objects, options.repack_below_percent);
    report.repacked_packs += units::to_u64(dropped.values().filter(|live| **live > 0).count());
    let small = survey.objects.iter().filter(|object| object.is_small()).count();
    let is_merged = small >= MERGED_OBJECTS;
    let mut writer = Writer::new(target, marks, options.dry_run, report);
    for (number, object) in survey.objects.into_iter().enumerate() {
        writer.report.dead_blocks += units::to_u64(object.records - object.needed);
        let names_dropped = object.packs.iter().any(|pack| dropped.contains_key(pack));
        let is_sparse = object.needed * 2 < object.records;
        let is_merged_now = is_merged && object.is_small();
        if !(names_dropped || is_sparse || is_merged_now) {
            writer.state.packs.extend(object.packs);
            writer.state.index.extend(marks.index.summary(number).cloned());
            continue;
        }
        check_cancelled(job)?;
        for (at, location) in marks.index.object(number)?.iter().enumerate() {
            if marks.is_marked(number, at) {
                writer.add(location, dropped.contains_key(&location.pack), job)?;
            }
        }
    }
    writer.finish(job)
}

fn check_cancelled(job: &Job) -> Result<()> {
    if job.cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
}

/// Which records and packs of a pool are needed.
struct Survey {
    /// The index objects, by their numbers.
    objects: Vec<ObjectSurvey>,
    /// The needed bytes of each pack.
    live: HashMap<ObjectId, u64>,
}

struct ObjectSurvey {
    records: usize,
    needed: usize,
    packs: Vec<ObjectId>,
}

impl ObjectSurvey {
    const fn is_small(&self) -> bool {
        self.records < MAX_ENTRIES / 2
    }
}

impl Survey {
    fn read(marks: &Marks, job: &Job) -> Result<Self> {
        let (mut objects, mut live) = (Vec::new(), HashMap::<ObjectId, u64>::new());
        for number in 0..marks.index.len() {
            check_cancelled(job)?;
            let object = marks.index.object(number)?;
            let mut needed = 0;
            for (at, location) in object.iter().enumerate() {
                let bytes = live.entry(location.pack).or_default();
                if marks.is_marked(number, at) {
                    needed += 1;
                    // a record is part of what a pack has to hold
                    *bytes += u64::from(location.block.length) + crate::StoredBlock::SIZE as u64;
                }
            }
            let packs = object.packs().collect();
            objects.push(ObjectSurvey { records: object.len(), needed, packs });
        }
        Ok(Self { objects, live })
    }

    /// The packs of which less than a percentage is needed, with their needed bytes.
    fn dropped_packs(&self, objects: &Objects, percent: u8) -> HashMap<ObjectId, u64> {
        let is_dropped = |(pack, live): &(&ObjectId, &u64)| {
            // a list may lack a pack that is there
            let size = objects.packs.get(pack).map_or(0, |info| info.size);
            **live == 0 || u128::from(**live) * 100 < u128::from(size) * u128::from(percent)
        };
        self.live.iter().filter(is_dropped).map(|(pack, live)| (*pack, *live)).collect()
    }
}

/// Collects records, and writes them in batches.
struct Writer<'a> {
    target: Target<'a>,
    marks: &'a Marks,
    dry_run: bool,
    report: &'a mut PruneReport,
    packs: PackWriter,
    /// Records whose blocks go into new packs.
    moved: Vec<BlockLocation>,
    /// Records for new index objects.
    records: Vec<BlockLocation>,
    state: RewrittenPool,
}

impl<'a> Writer<'a> {
    fn new(
        target: Target<'a>,
        marks: &'a Marks,
        dry_run: bool,
        report: &'a mut PruneReport,
    ) -> Self {
        let (repository, random) = (target.repository.clone(), Arc::clone(target.random));
        let packs = PackWriter::new(repository, target.pool, random, target.head);
        let (moved, records, state) = Default::default();
        Self { target, marks, dry_run, report, packs, moved, records, state }
    }

    fn add(&mut self, location: BlockLocation, is_dropped: bool, job: &Job) -> Result<()> {
        if self.dry_run {
            if is_dropped {
                self.report.repacked_bytes += u64::from(location.block.length);
            } else {
                self.state.packs.insert(location.pack);
            }
            return Ok(());
        }
        if is_dropped {
            self.moved.push(location);
            if self.moved.len() >= BATCH { self.move_blocks(job) } else { Ok(()) }
        } else {
            self.add_record(location)
        }
    }

    fn add_record(&mut self, location: BlockLocation) -> Result<()> {
        self.records.push(location);
        if self.records.len() >= BATCH { self.store_records() } else { Ok(()) }
    }

    /// Copies blocks into new packs, in the order in which they lie, so that each pack is read once.
    fn move_blocks(&mut self, job: &Job) -> Result<()> {
        let mut moved = std::mem::take(&mut self.moved);
        moved.sort_unstable_by_key(|location| (location.pack, location.block.position));
        for location in moved {
            check_cancelled(job)?;
            let stored = self.marks.index.read(&location)?;
            let location = self.packs.add(location.kind, location.block.key, &stored)?;
            self.report.repacked_bytes += u64::from(location.block.length);
            self.add_record(location)?;
        }
        Ok(())
    }

    fn store_records(&mut self) -> Result<()> {
        let mut records = std::mem::take(&mut self.records);
        records.sort_unstable_by_key(|location| location.block.key);
        records.dedup_by_key(|location| location.block.key);
        self.state.packs.extend(records.iter().map(|location| location.pack));
        let Target { repository, pool, head, random } = self.target;
        let stored = store_index(repository, pool, &records, &mut || new_id(&**random, head))?;
        self.state.index.extend(stored);
        Ok(())
    }

    fn finish(mut self, job: &Job) -> Result<RewrittenPool> {
        self.move_blocks(job)?;
        self.packs.flush()?;
        self.store_records()?;
        Ok(self.state)
    }
}
