//! Walking an object set: each block that it refers to, and that matters, goes to be mended.

use std::sync::Arc;

use dmu::{BlockVisit, Objset, WalkControl, WalkOptions};
use ondisk::Blkptr;
use units::{Txg, Zbookmark};
use zio::Source;

use super::datasets::Task;
use super::round::{Item, Round};

/// Blocks in a batch.
const BATCH: usize = 128;
/// A batch is full, too, when its blocks have so many bytes.
const BATCH_BYTES: u64 = 8 << 20;

/// Blocks on their way to a batch.
#[derive(Default)]
pub(super) struct Gathered {
    batch: Vec<Item>,
    bytes: u64,
}

impl Round<'_> {
    /// Walks what is left of an object set, as far as it comes.
    pub(super) fn walk(&self, task: &Task) {
        let born = task.root.birth() > task.since.max(self.scan.aim.since());
        if task.root.is_hole() || !(born || task.log) {
            return self.scan.done.lock().note(task, None, self.txg);
        }
        let source = Arc::clone(&self.scan.reader) as Arc<dyn Source>;
        let objset = match Objset::open(source, task.id, &task.root, None) {
            Ok(objset) => objset,
            Err(error) => {
                self.trouble(Zbookmark::root(task.id), &error);
                return self.scan.done.lock().note(task, None, self.txg);
            }
        };
        let mut gathered = Gathered::default();
        if task.log && !task.whole {
            self.log(task.id, &objset.header().log, &mut gathered);
        }
        // what was walked before may have got pointers to old blocks since: clones
        if let Some(seen) = task.seen {
            let plan = self.plan(task.since.max(seen), None);
            if self.leg(&objset, &plan, &mut gathered).is_err() {
                return self.flush(&mut gathered);
            }
        }
        let mut upto = None;
        if !task.whole {
            let plan = self.plan(task.since, task.from);
            if let Err(place) = self.leg(&objset, &plan, &mut gathered) {
                upto = Some(place);
            }
        }
        // before anybody reads what was done: it is done when the round's batches are
        self.flush(&mut gathered);
        self.scan.done.lock().note(task, upto, self.txg);
    }

    fn plan(&self, since: Txg, from: Option<Zbookmark>) -> WalkOptions {
        WalkOptions {
            born_after: since.max(self.scan.aim.since()),
            include_holes: false,
            start: from,
        }
    }

    /// Walks; an error says where it was stopped.
    fn leg(
        &self,
        objset: &Objset,
        plan: &WalkOptions,
        gathered: &mut Gathered,
    ) -> Result<(), Zbookmark> {
        let mut stopped = Ok(());
        let _ = objset.walk(plan, &mut |place, found| {
            if self.is_over() {
                stopped = Err(place);
                return WalkControl::Stop;
            }
            self.found(place, &found, gathered)
        });
        stopped
    }

    fn found(
        &self,
        place: Zbookmark,
        found: &BlockVisit<'_>,
        gathered: &mut Gathered,
    ) -> WalkControl {
        match found {
            BlockVisit::Error(error) => {
                self.trouble(place, error);
                WalkControl::Descend
            }
            BlockVisit::Pointer(Blkptr::Regular(block)) => {
                self.gather(Item { place, block: **block }, gathered);
                WalkControl::Descend
            }
            BlockVisit::Pointer(Blkptr::Embedded(_)) => WalkControl::Descend,
            BlockVisit::Pointer(Blkptr::Hole(_) | Blkptr::Redacted(_)) => WalkControl::SkipChildren,
        }
    }

    /// Takes a block in, and hands over what was gathered when that is enough.
    pub(super) fn gather(&self, item: Item, gathered: &mut Gathered) {
        let taken = item.block.copies().map(|dva| dva.asize).fold(0, u64::saturating_add);
        self.scan.watch.job.progress.add(taken, 1);
        if !self.scan.aim.concerns(&item.block) {
            return;
        }
        gathered.bytes += u64::from(item.block.psize);
        gathered.batch.push(item);
        if gathered.batch.len() >= BATCH || gathered.bytes >= BATCH_BYTES {
            self.flush(gathered);
        }
    }

    /// Hands over what was gathered, or mends it here where enough is waiting.
    fn flush(&self, gathered: &mut Gathered) {
        let Gathered { batch, .. } = std::mem::take(gathered);
        if !batch.is_empty()
            && let Some(batch) = self.queue.offer(batch)
        {
            self.batch(batch);
        }
    }

    /// What is below a place cannot be walked: anything may be lost there.
    fn trouble(&self, place: Zbookmark, error: &dmu::Error) {
        self.scan.lose(place, error, (Txg::ZERO, self.txg));
    }
}
