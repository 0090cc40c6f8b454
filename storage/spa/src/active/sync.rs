//! Writing a transaction group: datasets, tasks, the pool's own objects until they are still, and
//! then the uberblock.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc::CachingSink;
use dmu::{BlockLedger, Form, Objset, SyncContext, SyncOutput};
use dsl::write::pool::add_mos_space;
use dsl::write::{DatasetLedger, SpaceDelta, SyncTaskContext};
use ondisk::dnode::Dnode;
use ondisk::feature::Feature;
use ondisk::label::PoolConfig;
use ondisk::objset::{Kind, LogHeader};
use ondisk::uberblock::Uberblock;
use ondisk::{Blkptr, Dva, Order};
use parking_lot::Mutex;
use txg::Tx;
use units::{ObjsetId, Txg};
use zio::{Key, Sink, Source};

use super::deflate::bp_dsize;
use super::policy::mos_write_policy;
use super::{ActivePool, OpenDataset};
use crate::Error;
use crate::create::guid_sum;

/// The passes of a sync come to an end long before this.
const MAX_SYNC_PASSES: u16 = 100;

/// So many blocks of destroyed datasets are freed with one group.
const MAX_FREED_BLOCKS: u64 = 100_000;

impl ActivePool {
    /// Writes out everything that was changed before this call, and returns when it is on the
    /// drives. Several may call it: one of them writes.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn sync(&self) -> Result<(), Error> {
        if self.is_read_only {
            return Ok(());
        }
        let wanted = self.txgs.open_txg();
        let served = || self.suspension.has_sync_thread();
        if served()
            && let Some(written) = self.txgs.wait_synced_while(wanted, &served)
        {
            let why = || self.suspend_error().unwrap_or(Error::Closed);
            return if written { Ok(()) } else { Err(why()) };
        }
        let _writing = self.sync_lock.lock();
        self.fatal_error.check()?;
        if self.txgs.synced_txg() >= wanted {
            return Ok(());
        }
        let txg = self.txgs.quiesce();
        assert!(txg >= wanted, "the sync has all changes from before the call");
        match zio::while_syncing(true, || self.write_txg_or_fail(txg)) {
            Ok(()) => {
                self.txgs.finish_sync(txg);
                Ok(())
            }
            Err(error) => {
                // Rule W7: a txg that failed is not committed, and no txg follows it. The last synced txg stands: a
                // later txg would have the changes that this one made in memory, without its blocks.
                // The first error is reported, as it is what the pool was stopped for.
                let error = self.fatal_error.set(error);
                self.txgs.stop();
                Err(error)
            }
        }
    }

    /// Writes a txg. A failed assertion ends the pool, as what it would write may be wrong.
    fn write_txg_or_fail(&self, txg: Txg) -> Result<(), Error> {
        let written = panic::catch_unwind(AssertUnwindSafe(|| self.write_txg(txg)));
        written.unwrap_or_else(|panic| Err(self.stop_after_panic(&*panic)))
    }

    fn write_txg(&self, txg: Txg) -> Result<(), Error> {
        self.fatal_error.check()?;
        // Rule: a rewind is committed before the first change after it. This txg may overwrite blocks of the states
        // that were given up, and a crash would otherwise import one of those.
        self.commit_rewind()?;
        let tx = Tx::syncing(txg);
        let now = (self.environment.now)();
        let raw: Arc<dyn Source> = Arc::new(self.reader.with_raw_dnodes());
        let random = || self.environment.random_u64();
        let free = |pointer: &Blkptr| self.writer.free(pointer, txg);
        let obsolete = |dva: Dva| self.space.allocator().mark_obsolete(&dva, txg);
        let free_log = |id, header: &LogHeader| {
            // what of a log cannot be followed stays allocated, and hurts nobody
            let _ = zil::free_log(&self.writer, id, header, txg);
        };
        let deflate = |pointer: &Blkptr| bp_dsize(&self.tree, pointer);
        let change = SyncTaskContext {
            mos: &self.mos,
            tx: &tx,
            pool: &self.name,
            version: self.uberblock.read().version,
            now,
            usable_space: self.usable_space(),
            raw_source: &raw,
            random: &random,
            free_block: &free,
            mark_obsolete: &obsolete,
            free_log: &free_log,
            dsize: &deflate,
            dataset_event: &|event| self.scan_state.apply(event),
        };
        let early = self.tasks.drain_early(txg);
        let mut may_enable_features = !early.is_empty();
        for task in early {
            task(self, &change);
        }
        // Rule: count clones before anything is freed. A block whose old file is deleted in the same txg
        // would be freed while the clone refers to it.
        self.add_clone_references(txg)?;
        // Rule: write the datasets before the sync tasks. A snapshot must have all changes of its txg.
        self.write_dirty_datasets(&change, &|set| set.is_dirty(txg))?;
        let tasks = self.tasks.drain_ready(txg);
        may_enable_features |= !tasks.is_empty();
        for task in tasks {
            task(self, &change);
            // only what the task itself made: a head that it took a snapshot of is not written again
            // in this group, whatever its intent log has to say, or the snapshot would change with it
            self.write_dirty_datasets(&change, &|set| set.objset().is_dirty(txg))?;
        }
        // Rule W6: orphans are freed after the datasets are written. Until then it is not known which of the eagerly
        // written blocks of this txg a tree refers to.
        self.free_orphan_blocks(txg);
        dsl::write::free_pending(&change, MAX_FREED_BLOCKS)?;
        self.continue_discard_sync(&change)?;
        // Rule W4: the DTLs follow the datasets, and the configuration follows the DTLs, as it names their maps. A
        // crash must not leave a drive that counts as whole and lacks blocks of an earlier txg.
        self.write_dtls(&tx)?;
        if may_enable_features {
            self.update_label_features()?;
        }
        self.write_config(&tx)?;
        self.scan_state.write(&change)?;
        self.error_log.write(&change)?;
        // Rule: the MOS comes last, as all of the above is in it.
        let root = self.write_mos(&change)?;
        assert!(!self.mos.is_dirty(txg), "the MOS has all changes of its txg");
        self.commit_txg(txg, now.seconds, root)
    }

    /// The records of the datasets in the MOS have all changes of the txg: a crash would lose what is left here.
    fn assert_datasets_written(&self, txg: Txg) {
        for set in self.open_datasets.all() {
            let id = set.objset().id();
            assert!(
                !set.objset().is_dirty(txg),
                "objset {id} has changes of txg {txg} behind the MOS"
            );
        }
    }

    /// Writes the content of those datasets.
    fn write_dirty_datasets(
        &self,
        change: &SyncTaskContext<'_>,
        wanted: &dyn Fn(&OpenDataset) -> bool,
    ) -> Result<(), Error> {
        let mut sets = self.open_datasets.all();
        sets.retain(|set| wanted(set));
        for set in sets {
            self.write_dataset(change, set.objset().id(), &set)?;
        }
        Ok(())
    }

    /// Empties the intent log in a head's root block: that of a clone, or of a head that went back,
    /// is what its snapshot had a part of. Of an encrypted one the key is needed.
    pub fn clear_log_header(
        &self,
        change: &SyncTaskContext<'_>,
        id: ObjsetId,
        key: Option<Key>,
    ) -> Result<(), Error> {
        let root = change.dataset_root(id)?;
        let objset = Objset::open(self.source(), id, &root, key.clone())?;
        if objset.header().log == LogHeader::default() {
            return Ok(());
        }
        let settings = crate::StorageSettings { key, ..crate::StorageSettings::default() };
        let set = self.open_dataset(objset.to_writable(), settings);
        set.edit_header(change.tx, |header| header.log = LogHeader::default());
        let written = self.write_dataset(change, id, &set);
        self.close_dataset(id);
        written
    }

    /// Gives up what a head's intent log has promised, as the pool was taken back to an earlier txg. Of
    /// an encrypted one the key is needed.
    pub fn discard_log(
        &self,
        change: &SyncTaskContext<'_>,
        id: ObjsetId,
        key: Option<Key>,
    ) -> Result<(), Error> {
        let synced = self.rewound_to.unwrap_or_else(|| self.txgs.synced_txg());
        let objset = Objset::open(self.source(), id, &change.dataset_root(id)?, key.clone())?;
        let when = (synced, change.tx.txg());
        // what of it cannot be followed stays allocated, and hurts nobody
        let _ = zil::free_unreplayed(&self.writer, id, &objset.header().log, when);
        self.clear_log_header(change, id, key)
    }

    fn write_dataset(
        &self,
        change: &SyncTaskContext<'_>,
        id: ObjsetId,
        set: &OpenDataset,
    ) -> Result<(), Error> {
        let txg = change.tx.txg();
        let ledger = DatasetLedger::new(change, id)?;
        let settings = set.settings();
        let policy = |wanted| settings.write_policy(wanted);
        let syncing = SyncContext {
            txg,
            sink: &CachingSink::new(&*self.writer, &self.cache),
            ledger: &ledger,
            policy: &policy,
            workers: self.environment.workers,
            form: self.dnode_form(),
        };
        let mut edits = set.drain_header_edits(txg).into_iter();
        let (mut logged, mut has_log) = (Ok(()), false);
        let mut edit = |header: &mut ondisk::objset::ObjsetHeader| {
            edits.by_ref().for_each(|(_, change)| change(header));
            if let Some(log) = set.log() {
                logged = log.sync_header(txg, &mut header.log);
            }
            has_log = header.log.chain != Blkptr::EMPTY;
        };
        let mut synced = set.objset().sync(&syncing, &mut edit)?;
        logged?;
        for feature in set.drain_features(txg).into_iter().chain(large_dnode_feature(&synced)) {
            ledger.activate_feature(feature);
        }
        if let Some(accounts) = self.open_datasets.accounting() {
            accounts.update_usage(set.objset(), change.tx, &synced.changed)?;
            if set.objset().is_dirty(txg) {
                synced = set.objset().sync(&syncing, &mut |_| {})?;
            }
        }
        for feature in accounting_features(set) {
            ledger.activate_feature(feature);
        }
        if let Some(feature) = self.saxattr_log_feature(set) {
            if has_log {
                ledger.activate_feature(feature);
            } else {
                ledger.deactivate_feature(feature);
            }
        }
        // Rule: the ledger is finished after the last sync of the set. Its sums and the root that it stores are of
        // all passes; a crash would show a record that does not fit the tree.
        ledger.finish(change, &synced.root)?;
        assert!(!set.objset().is_dirty(txg), "a dataset is written with all its changes");
        Ok(set.run_sync_hook(change)?)
    }

    fn dnode_form(&self) -> Form {
        Form::of(self.uberblock.read().version, self.features.project_quota)
    }

    /// The feature that a file system uses while it has an intent log, since packed attributes may
    /// stand in it; none where they may not.
    fn saxattr_log_feature(&self, set: &OpenDataset) -> Option<&'static Feature> {
        let is_files = set.objset().synced().header().kind == Kind::Filesystem;
        (self.can_log_saxattr() && is_files).then(|| Feature::by_name("zilsaxattr")).flatten()
    }

    /// Writes the pool's own objects, again and again, until that changes nothing any more.
    fn write_mos(&self, change: &SyncTaskContext<'_>) -> Result<Blkptr, Error> {
        let txg = change.tx.txg();
        self.assert_datasets_written(txg);
        let mut root = self.mos.synced().root().clone();
        let mut growth = SpaceDelta::default();
        for pass in 1..=MAX_SYNC_PASSES {
            // Rule: the record of the MOS's space has the growth of all passes before the txg is committed.
            // An export or a crash would lose it, and later frees would be taken off bytes never counted.
            add_mos_space(change, std::mem::take(&mut growth))?;
            self.write_block_refs(change)?;
            self.sync_removal_progress(change)?;
            // a drive may fail while the pool's own objects are written
            if pass > 1 && self.write_dtls(change.tx)? {
                self.write_config(change.tx)?;
            }
            // Rule: the space maps follow all else in a pass, and a further pass follows them. They have the blocks
            // of their own writing only then; an import would otherwise allocate these blocks again.
            let moved = self.space.write_changes(&self.mos, change.tx, pass)?;
            if !moved && pass > 1 && !self.mos.is_dirty(txg) {
                assert_eq!(growth, SpaceDelta::default(), "the growth of each pass is counted");
                assert!(!self.space.allocator().has_changes(txg), "all changes are in space maps");
                return Ok(root);
            }
            let ledger = MosLedger { pool: self, txg, growth: Mutex::default() };
            let policy = |wanted| mos_write_policy(self.features, pass, wanted);
            let syncing = SyncContext {
                txg,
                sink: &CachingSink::new(&*self.writer, &self.cache),
                ledger: &ledger,
                policy: &policy,
                workers: self.environment.workers,
                form: self.dnode_form(),
            };
            root = self.mos.sync(&syncing, &mut |_| {})?.root;
            growth = ledger.growth.into_inner();
        }
        Err(Error::SyncNotConverging { txg })
    }

    fn commit_txg(&self, txg: Txg, seconds: u64, root: Blkptr) -> Result<(), Error> {
        let order = Order::Little;
        assert_eq!(root.birth(), txg, "the root block of the MOS is written in every txg");
        assert!(self.uberblock.read().txg < txg, "txgs are committed in order");
        let (synced, open) = (self.txgs.synced_txg(), self.txgs.open_txg());
        assert!(synced < txg && txg < open, "txg {txg} is closed: {synced} is synced, {open} open");
        let uberblock =
            Uberblock { order, txg, timestamp: seconds, root, ..self.uberblock.read().clone() };
        let (multihost, checkpoint_txg) = (Some(self.heartbeat.multihost()), Txg::ZERO);
        let config = self.config.lock().syncing.take();
        // signs of life, which lead to the state before, keep the sum of the vdevs that that has
        let tree = config.as_ref().and_then(|config| config.tree.as_ref());
        let guid_sum = tree.map_or(uberblock.guid_sum, guid_sum);
        let reflow = self.reflow.next.lock().take().unwrap_or(uberblock.reflow);
        let uberblock = Uberblock { multihost, checkpoint_txg, guid_sum, reflow, ..uberblock };
        // Rule: the state in memory follows the uberblock on the drives. Freed space, the logs' records and the blocks
        // of the last txg are let go below; before the commit a crash would still need them.
        self.commit_until_written(&uberblock, config.as_ref())?;
        *self.uberblock.write() = uberblock;
        self.mos.pin_synced();
        assert_eq!(self.mos.synced().root().birth(), txg, "readers get the MOS that was committed");
        self.saved_space.store(self.block_refs.saved_bytes(), Ordering::Relaxed);
        self.space.mark_synced(txg);
        for log in self.open_datasets.all().iter().filter_map(|set| set.log()) {
            log.on_txg_synced(txg);
        }
        Ok(())
    }
}

impl ActivePool {
    /// Makes the state to which the pool was taken back its newest. To be done before anything of it is
    /// changed: what comes next may be written over the states that are given up, and none of them may
    /// be believed then.
    pub fn commit_rewind(&self) -> Result<(), Error> {
        if !self.rewind_pending.load(Ordering::Acquire) {
            return Ok(());
        }
        let then = self.rewound_to.unwrap_or(Txg::ZERO);
        let timestamp = (self.environment.now)().seconds;
        // whoever takes it over from there drops the logs, too
        let uberblock =
            Uberblock { checkpoint_txg: then, timestamp, ..self.uberblock.read().clone() };
        self.try_commit(&uberblock, None)?;
        self.rewind_pending.store(false, Ordering::Release);
        Ok(())
    }

    /// Commits; where no device takes it, waits until `zpool clear` and tries again.
    pub(super) fn commit_until_written(
        &self,
        uberblock: &Uberblock,
        config: Option<&PoolConfig>,
    ) -> Result<(), Error> {
        loop {
            let tries = self.suspension.current_clear_count();
            let Err(error) = self.try_commit(uberblock, config) else { return Ok(()) };
            // labels and uberblocks can be written again; what was not kept cannot
            let again = matches!(error, Error::VdevNotWritten { .. } | Error::NoDeviceWritten);
            if !again || !self.suspension.wait_until_cleared(&error, tries) {
                return Err(error);
            }
        }
    }

    fn try_commit(&self, root: &Uberblock, config: Option<&PoolConfig>) -> Result<(), Error> {
        // Rule: the check for another host comes right before the uberblock. That host may have the pool since the txg
        // was begun, and two hosts that write would destroy it.
        self.fatal_error.check()?;
        let mut faults = Vec::new();
        let result = self.committer().commit(root, config, &mut faults);
        self.faults.lock().append(&mut faults);
        result
    }
}

/// The feature `large_dnode`, if a sync wrote a dnode of more than one slot.
fn large_dnode_feature(synced: &SyncOutput) -> Option<&'static Feature> {
    let is_large = |dnode: &Dnode| dnode.size() > Dnode::SLOT;
    let written = synced.changed.iter().filter_map(|changed| changed.after.as_ref());
    written.into_iter().any(is_large).then(|| Feature::by_name("large_dnode")).flatten()
}

/// The features that a set uses because of what is accounted in it.
fn accounting_features(set: &OpenDataset) -> impl Iterator<Item = &'static Feature> {
    let flags = set.objset().synced().header().flags;
    let objects = flags.objects_accounted().then(|| Feature::by_name("userobj_accounting"));
    let projects = flags.projects_accounted().then(|| Feature::by_name("project_quota"));
    [objects, projects].into_iter().flatten().flatten()
}

/// The account of the pool's own objects: what dies is free at once.
struct MosLedger<'a> {
    pool: &'a ActivePool,
    txg: Txg,
    growth: Mutex<SpaceDelta>,
}

impl MosLedger<'_> {
    fn space(&self, pointer: &Blkptr) -> SpaceDelta {
        SpaceDelta::of_block(pointer, &|pointer| bp_dsize(&self.pool.tree, pointer))
    }
}

impl BlockLedger for MosLedger<'_> {
    fn block_born(&self, pointer: &Blkptr) {
        assert_eq!(pointer.birth(), self.txg, "the MOS gets blocks of the txg that writes it");
        let more = self.space(pointer);
        let mut growth = self.growth.lock();
        *growth = *growth + more;
    }

    fn dsize(&self, pointer: &Blkptr) -> u64 {
        bp_dsize(&self.pool.tree, pointer)
    }

    fn block_kill(&self, pointer: &Blkptr) {
        let gone = self.space(pointer);
        let mut growth = self.growth.lock();
        *growth = *growth - gone;
        self.pool.writer.free(pointer, self.txg);
    }
}
