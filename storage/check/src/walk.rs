//! Walking object sets: each block that they refer to goes to be examined.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use dmu::{BlockVisit, Objset, WalkControl, WalkOptions};
use ondisk::objset::LogHeader;
use ondisk::{Blkptr, ObjectType};
use units::{ObjectId, ObjsetId, Place, Txg};
use zio::Source;

use crate::Inner;
use crate::examine::{Batch, Examiner};
use crate::features::FeatureSet;
use crate::tally::{Damage, Tally};

/// Blocks in a batch.
const BATCH: usize = 64;
/// A batch is full, too, when its blocks have so many bytes.
const BATCH_BYTES: u64 = 4 << 20;

/// An object set to be walked.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// Its dataset's number.
    pub(crate) id: ObjsetId,
    pub(crate) root: Blkptr,
    /// Only what was born after this belongs to it; the rest is found elsewhere.
    pub(crate) since: Txg,
    /// Where to begin, if some of it has been freed.
    pub(crate) from: Option<Place>,
    /// Whether it has an intent log of its own: snapshots have only what is left of one.
    pub(crate) log: bool,
}

/// Blocks on their way to a batch.
#[derive(Default)]
struct Gathered {
    batch: Batch,
    bytes: u64,
    /// The per-dataset features that blocks met so far use.
    features: FeatureSet,
}

impl Inner {
    /// Walks an object set to its end.
    pub(crate) fn task(self: &Arc<Self>, task: &Task) {
        let examiner = Examiner::new(self);
        let complete = self.walk(task, &examiner);
        self.settle(&mut examiner.tally.lock());
        if complete {
            self.objsets_done.fetch_add(1, Relaxed);
        }
    }

    fn walk(&self, task: &Task, examiner: &Arc<Examiner>) -> bool {
        let born = task.since.is_zero() || task.root.birth() > task.since;
        if task.root.is_hole() || self.is_known(&task.root) {
            return true;
        }
        if !born {
            self.log_only(task);
            return true;
        }
        let source = Arc::clone(examiner) as Arc<dyn Source>;
        let objset = match Objset::open(source, task.id, &task.root, None) {
            Ok(objset) => objset,
            Err(error) => {
                trouble(&error, ObjectType::OBJSET, &mut examiner.tally.lock());
                return true;
            }
        };
        let plan = WalkOptions { born_after: task.since, include_holes: false, start: task.from };
        let mut gathered = Gathered::default();
        let mut own = Tally::default();
        let complete = objset.walk(&plan, &mut |place, found| {
            if self.job.cancel.is_cancelled() {
                return WalkControl::Stop;
            }
            self.found(place, &found, examiner, &mut gathered, &mut own)
        });
        self.flush(&mut gathered, &mut own);
        if !self.checkpoint.load(Relaxed) {
            own.features.use_in(task.id, gathered.features);
        }
        if task.log {
            let header: &LogHeader = &objset.header().log;
            self.log(task.id, header, &mut own);
        }
        self.settle(&mut own);
        complete
    }

    /// The log of a head that shares its root block with the snapshot before it.
    fn log_only(&self, task: &Task) {
        if !task.log {
            return;
        }
        // the root block itself is examined with that snapshot
        let source = Arc::clone(self.pool.mos.source());
        if let Ok(objset) = Objset::open(source, task.id, &task.root, None) {
            let mut own = Tally::default();
            self.log(task.id, &objset.header().log, &mut own);
            self.settle(&mut own);
        }
    }

    fn found(
        &self,
        place: Place,
        found: &BlockVisit<'_>,
        examiner: &Arc<Examiner>,
        gathered: &mut Gathered,
        own: &mut Tally,
    ) -> WalkControl {
        let pointer = match found {
            BlockVisit::Pointer(pointer) => pointer,
            BlockVisit::Error(error) => {
                trouble(error, ObjectType::NONE, own);
                return WalkControl::Descend;
            }
        };
        gathered.features.merge(FeatureSet::of_block(pointer));
        let block = match pointer {
            Blkptr::Regular(block) => block,
            Blkptr::Embedded(_) => {
                own.embedded += 1;
                return WalkControl::Descend;
            }
            Blkptr::Redacted(_) => {
                own.redacted += 1;
                return WalkControl::SkipChildren;
            }
            Blkptr::Hole(_) => return WalkControl::SkipChildren,
        };
        let is_root = block.kind == ObjectType::OBJSET;
        if !is_root && self.is_known(pointer) {
            return WalkControl::SkipChildren;
        }
        // what the walk itself reads is examined as it is read
        if is_root || place.level.get() > 0 || place.object == ObjectId::META {
            return WalkControl::Descend;
        }
        if let Some(item) = examiner.first_reference(block, place) {
            // the pieces of a gang block are known by its header only
            if self.metadata_only && !block.kind.is_metadata() && !block.is_gang() {
                self.pass_over(&item, own);
                return WalkControl::Descend;
            }
            gathered.batch.push(item);
            gathered.bytes += u64::from(block.psize);
            if gathered.batch.len() >= BATCH || gathered.bytes >= BATCH_BYTES {
                self.flush(gathered, own);
            }
        }
        WalkControl::Descend
    }

    /// Whether a block of the checkpoint is one of the present state, too.
    fn is_known(&self, pointer: &Blkptr) -> bool {
        let Blkptr::Regular(block) = pointer else { return false };
        let first = block.dvas[0].filter(|_| self.checkpoint.load(Relaxed));
        first.is_some_and(|dva| self.space.is_referenced(&self.pool.tree, dva))
    }

    /// Hands over what was gathered, or examines it here where enough is waiting.
    fn flush(&self, gathered: &mut Gathered, own: &mut Tally) {
        let batch = std::mem::take(&mut gathered.batch);
        gathered.bytes = 0;
        if !batch.is_empty()
            && let Some(batch) = self.queue.offer(batch)
        {
            self.batch(batch, own);
        }
    }
}

/// Notes that the walk could not go on below a place.
fn trouble(error: &dmu::Error, kind: ObjectType, tally: &mut Tally) {
    match error {
        // the examination of the block has said all there is to say
        dmu::Error::Read { source: zio::Error::Unreadable { .. } } => {}
        dmu::Error::Read { source: zio::Error::KeyNotLoaded { .. } } => {
            tally.note(false, format!("{error}: what is below was not examined"));
        }
        _ => {
            tally.lost += 1;
            let why = Some(error.to_string());
            let place = error.zbookmark();
            tally.damage(Damage { place, kind, lost: true, leaves: Vec::new(), why });
        }
    }
}
