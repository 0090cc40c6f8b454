//! The roots of the walk: found in the pool's own object set, not by the tree of names. So a
//! dataset without a directory is found too.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use dmu::Objset;
use dsl::block_lists;
use ondisk::dsl::Dataset;
use ondisk::{Blkptr, ObjectType};
use spa::{DedupLogs, PoolDirectory};
use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};
use zap::Zap;

use crate::tally::{Tally, allocated_bytes};
use crate::walk::ObjsetTask;
use crate::{CheckInner, Error};

impl CheckInner {
    /// Finds the roots of the present state.
    pub(crate) fn queue_current_state(&self) {
        let root = &self.pool.root;
        self.queue_tasks(&self.pool.mos, root);
    }

    /// Finds the roots of the checkpoint; false if there is none.
    pub(crate) fn queue_checkpoint(&self) -> bool {
        let root = match &self.pool.checkpoint {
            Ok(None) => return false,
            Ok(Some(kept)) => kept.root.clone(),
            Err(error) => {
                self.record_fault(format!("the checkpoint cannot be read: {error}"));
                return false;
            }
        };
        self.in_checkpoint.store(true, Relaxed);
        match Objset::open(Arc::clone(self.pool.mos.source()), ObjsetId::new(0), &root, None) {
            Ok(mos) => self.queue_tasks(&mos, &root),
            Err(error) => self.record_fault(format!("the checkpoint cannot be read: {error}")),
        }
        true
    }

    fn record_fault(&self, what: String) {
        self.tally.lock().add_note(true, what);
    }

    fn queue_tasks(&self, mos: &Objset, root: &Blkptr) {
        let mut tasks = vec![ObjsetTask {
            id: ObjsetId::new(0),
            root: root.clone(),
            since_txg: Txg::ZERO,
            start: None,
            has_log: false,
        }];
        self.add_dataset_tasks(mos, &mut tasks);
        if let Err(error) = self.add_pending_frees(mos, &mut tasks) {
            self.record_fault(format!("the lists of blocks to be freed cannot be read: {error}"));
        }
        self.objsets.fetch_add(tasks.len() as u64, Relaxed);
        self.queue.push_tasks(tasks);
    }

    /// All datasets and snapshots; each owns the blocks born after the snapshot before it.
    fn add_dataset_tasks(&self, mos: &Objset, tasks: &mut Vec<ObjsetTask>) {
        for object in mos.objects() {
            let (id, dnode) = match object {
                Ok(found) => found,
                Err(error) => {
                    self.record_fault(format!("datasets may be left out: {error}"));
                    continue;
                }
            };
            if dnode.bonus_kind != ObjectType::DSL_DATASET {
                continue;
            }
            let mut bonus = ondisk::Reader::new("dataset", &dnode.bonus, dnode.order);
            self.add_declared_features(mos, id);
            match Dataset::read(&mut bonus) {
                Ok(dataset) => tasks.push(ObjsetTask {
                    id: ObjsetId::new(id.get()),
                    has_log: !dataset.next.exists(),
                    root: dataset.root,
                    since_txg: dataset.previous_txg,
                    start: None,
                }),
                Err(error) => self.record_fault(format!("dataset {id} is left out: {error}")),
            }
        }
    }

    /// Notes which features a dataset of the present state declares.
    fn add_declared_features(&self, mos: &Objset, id: ObjectId) {
        if self.in_checkpoint.load(Relaxed) {
            return;
        }
        let mut tally = Tally::default();
        if let Err(error) = tally.feature_usage.add_declared(mos, id) {
            tally.add_note(true, format!("the features of dataset {id} cannot be read: {error}"));
        }
        self.tally.lock().merge(tally);
    }

    /// Blocks that wait to be freed: allocated, and part of no dataset.
    fn add_pending_frees(&self, mos: &Objset, tasks: &mut Vec<ObjsetTask>) -> Result<(), Error> {
        let directory = PoolDirectory::open(mos.clone())?;
        let mut tally = Tally::default();
        for name in ["sync_bplist", "free_bpobj"] {
            let Some(list) = directory.lookup_u64(name)?.filter(|list| *list != 0) else {
                continue;
            };
            let _ = block_lists::walk_bpobj(mos, ObjectId::new(list), &mut |listed| {
                self.count_pending_free(listed.pointer, &mut tally);
                ControlFlow::Continue(())
            })?;
        }
        if let Some(list) = directory.lookup_u64("bptree_obj")?.filter(|list| *list != 0) {
            for entry in block_lists::read_bptree(mos, ObjectId::new(list))?.1 {
                let [objset, object, level, block] = entry.resume;
                let level = Level::new(u8::try_from(level).unwrap_or(0));
                let id = ObjsetId::new(objset);
                let zbookmark =
                    Zbookmark::new(id, ObjectId::new(object), level, BlockId::new(block));
                let begun = entry.resume != [0; 4];
                let from = begun.then_some(zbookmark);
                tasks.push(ObjsetTask {
                    id,
                    root: entry.root,
                    since_txg: entry.birth,
                    start: from,
                    has_log: false,
                });
            }
        }
        if let Some(table) = directory.object("com.delphix:deleted_clones")? {
            for entry in Zap::open(table)?.entries() {
                let Some(list) = entry?.value.u64() else { continue };
                self.add_livelist(mos, ObjectId::new(list), &mut tally)?;
            }
        }
        for (checksum, mut logs) in DedupLogs::read_all(mos, &directory)? {
            // they are freed only when the log is emptied
            for pointer in logs.drain_unreferenced(checksum)? {
                self.count_pending_free(&pointer, &mut tally);
            }
        }
        self.merge_tally(&mut tally);
        Ok(())
    }

    /// The blocks of a destroyed clone: those with an allocation in its livelist, and no free.
    fn add_livelist(&self, mos: &Objset, id: ObjectId, tally: &mut Tally) -> Result<(), Error> {
        for (_, part) in block_lists::deadlist_entries(mos, id)? {
            block_lists::visit_live_blocks(mos, part, &mut |pointer| {
                self.count_pending_free(pointer, tally);
            })?;
        }
        Ok(())
    }

    /// A block that waits to be freed. It is not examined, because it will never be read.
    fn count_pending_free(&self, pointer: &Blkptr, tally: &mut Tally) {
        let Blkptr::Regular(block) = pointer else { return };
        let tree = &self.pool.tree;
        let checkpoint = self.in_checkpoint.load(Relaxed);
        let Some(first) = block.dvas[0] else { return };
        if checkpoint && self.space.is_referenced(tree, first) {
            return;
        }
        let again =
            !checkpoint && self.shared.add_reference(first).is_some_and(|before| before > 0);
        tally.count_pending_free(block);
        if again {
            return;
        }
        let zbookmark = Zbookmark::default();
        for dva in block.copies() {
            let mut extent = self.space.extent(tree, dva, block.birth_physical, zbookmark);
            extent.may_be_shared = checkpoint;
            tally.extents.push(extent);
        }
        if block.is_gang() {
            // its pieces are known only from its header
            if let Ok(examined) = self.reader.verify_block(block, zbookmark) {
                let piece = |dva| self.space.extent(tree, dva, block.birth_physical, zbookmark);
                tally.extents.extend(examined.pieces.iter().copied().map(piece));
            }
        }
        self.job.progress.add(allocated_bytes(block), 0);
    }
}
