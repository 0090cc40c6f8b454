//! The log of a dataset that is being changed.
//!
//! A thread that changes something adds an [`Itx`] within the same hold on a txg.
//! [`IntentLog::commit`] makes the changes durable: it writes all added records along the chain and
//! flushes the drives. The end of the chain is always an allocated, unwritten block, so the next
//! commit only writes to it. A commit of several blocks writes that one last.
//!
//! A commit of long writes flushes the blocks that its records point to before it writes that block.
//!
//! A failed commit loses nothing: its caller waits for the txgs themselves, and a new chain is
//! started.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dmu::Objset;
use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use ondisk::objset::LogHeader;
use ondisk::zil::{Body, Chain, Verifier};
use parking_lot::{Condvar, Mutex};
use txg::{Tx, Txgs};
use units::{BlockId, ObjectId, Txg, Zbookmark};
use zio::{LogAllocation, LogBlock, Sink, Writer};

use crate::block_packer::{
    BlockPacker, MAX_BLOCK_SIZE, MIN_BLOCK_SIZE, PackedBlock, block_size_for,
};
use crate::commit::CommitQueue;
use crate::itxs::{Itx, PendingItxs};
use crate::{Error, LogReader, chain};

/// The log of a dataset that is being changed.
pub struct IntentLog {
    pub(crate) writer: Arc<Writer>,
    pub(crate) txgs: Txgs,
    pub(crate) objset: Objset,
    pub(crate) pending: Mutex<PendingItxs>,
    pub(crate) commits: CommitQueue,
    /// Locked by the thread that writes along the chain.
    pub(crate) chain_writer: Mutex<ChainWriter>,
    pub(crate) state: Mutex<LogState>,
    /// Fewer blocks are on their way.
    in_flight_changed: Condvar,
    /// Log devices are left to others (logbias=throughput).
    pub(crate) is_throughput: AtomicBool,
}

pub(crate) struct ChainWriter {
    /// The number of the last record.
    last_seq: u64,
    /// How large the blocks of the last commits were: the next will be alike.
    recent_sizes: VecDeque<u32>,
}

/// A block of the chain.
struct ChainBlock {
    block: Regular,
    /// It is durable on the drives, or is not needed.
    is_done: bool,
    /// The highest txg among its records.
    newest_txg: Txg,
}

#[derive(Default)]
pub(crate) struct LogState {
    /// From the first that may be needed to the one that is not written yet.
    chain: VecDeque<ChainBlock>,
    /// No block is in use.
    is_paused: bool,
    /// The pool's version has another form of log blocks, which is not written.
    disabled: bool,
    /// The chain cannot continue: its blocks are freed as soon as possible.
    is_broken: bool,
    /// The txg whose root block first leads to the chain.
    anchor_txg: Txg,
    /// After a failed commit: its records are on the drives with this txg.
    pub(crate) fallback_txg: Txg,
    /// Txgs whose root block must update the log header.
    dirty_txgs: BTreeSet<Txg>,
    /// By txg: the number of blocks in flight whose successors were allocated in it.
    in_flight: BTreeMap<Txg, usize>,
    /// The log found at import, until it is replayed.
    unreplayed: Option<LogHeader>,
    /// For each txg the last record that is replayed with it.
    replayed_seqs: BTreeMap<Txg, u64>,
    /// The txg in which the log found at import is freed.
    free_txg: Option<Txg>,
}

impl IntentLog {
    /// The log of a live object set. The records that its claimed head still holds are replayed and
    /// then [freed](Self::finish_replay); until then commits wait for their txgs.
    pub fn new(writer: Arc<Writer>, txgs: Txgs, objset: Objset, claimed: LogHeader) -> Self {
        let found = (claimed != LogHeader::default()).then_some(claimed);
        // the claim itself must be on the drives
        let dirty = found.iter().map(|_| txgs.open_txg()).collect();
        Self {
            writer,
            txgs,
            objset,
            pending: Mutex::default(),
            commits: CommitQueue::default(),
            chain_writer: Mutex::new(ChainWriter { last_seq: 0, recent_sizes: VecDeque::new() }),
            state: Mutex::new(LogState {
                dirty_txgs: dirty,
                unreplayed: found,
                ..LogState::default()
            }),
            in_flight_changed: Condvar::new(),
            is_throughput: AtomicBool::new(false),
        }
    }

    /// Whether log devices are left to others (logbias=throughput).
    pub fn set_throughput(&self, throughput: bool) {
        self.is_throughput.store(throughput, Ordering::Relaxed);
    }

    /// Has commits wait for their groups, and write nothing, or write again. Returns when none is
    /// writing. The caller must hold no txg.
    pub fn set_paused(&self, paused: bool) {
        let _turn = self.chain_writer.lock();
        self.state.lock().is_paused = paused;
    }

    /// Makes all commits wait for their txgs from now on: nothing is written to the log.
    pub fn disable(&self) {
        let _turn = self.chain_writer.lock();
        self.state.lock().disabled = true;
    }

    /// Adds a record to a txg. A truncation must be added before the file is truncated: a
    /// concurrent commit that reads the file must find it. Otherwise the log would hold zeros in
    /// place of the data.
    pub fn add_itx(&self, tx: &Tx, item: Itx) {
        self.pending.lock().add(tx.txg(), item);
    }

    /// Records that a txg has a change without a log record. Later records wait for that txg,
    /// because they may build on the change. So the call must come before the other records of the
    /// same change.
    pub fn add_unlogged(&self, tx: &Tx) {
        self.pending.lock().add_unlogged(tx.txg());
    }

    /// Marks an object as renamed: its earlier records are committed with the next commit.
    pub fn on_rename(&self, object: ObjectId) {
        self.pending.lock().on_rename(object);
    }

    /// Drops the records of a removed object: a replay would apply them to another object that
    /// reuses the number.
    pub fn forget_object(&self, object: ObjectId) {
        self.pending.lock().forget_object(object);
    }

    /// Whether there is a block to write to that a root block on the drives leads to. If not,
    /// allocates one.
    pub(crate) fn ensure_chain(&self) -> Result<bool, Error> {
        let state = self.state.lock();
        if state.is_paused || state.disabled || state.is_broken || state.unreplayed.is_some() {
            return Ok(false);
        }
        if !state.chain.is_empty() {
            return Ok(state.anchor_txg <= self.txgs.synced_txg());
        }
        drop(state);
        // Rule Z2: a chain is used from the txg on that has its first block in the log header. A record before
        // that would be acknowledged, and no import would find it after a crash.
        let tx = self.txgs.begin_tx().ok_or(Error::Stopped)?;
        let block = self.reserve_block(MIN_BLOCK_SIZE, tx.txg(), self.new_chain_verifier())?;
        assert_eq!(Verifier::from_pointer(&block).seq, 1, "a chain begins with its first block");
        let mut state = self.state.lock();
        assert!(state.chain.is_empty(), "one thread at a time begins a chain");
        state.dirty_txgs.insert(tx.txg());
        state.anchor_txg = tx.txg();
        state.chain.push_back(ChainBlock { block, is_done: false, newest_txg: Txg::ZERO });
        Ok(false)
    }

    /// The random words that identify the first block of a new chain.
    fn new_chain_verifier(&self) -> Verifier {
        let mut guid = [[0; 8]; 2];
        self.writer.random().fill(guid.as_flattened_mut());
        Verifier { guid: guid.map(u64::from_le_bytes), objset: self.objset.id(), seq: 1 }
    }

    fn reserve_block(&self, size: u32, txg: Txg, verifier: Verifier) -> Result<Regular, Error> {
        let place = self.zbookmark(verifier);
        let spares_devices = self.is_throughput.load(Ordering::Relaxed);
        let room = LogAllocation {
            size,
            txg,
            verifier,
            key: self.objset.key(),
            zbookmark: place,
            avoid_log_devices: spares_devices,
        };
        let block = self.writer.allocate_log_block(&room)?;
        assert!(block.psize >= size, "a log block of {} bytes has space for {size}", block.psize);
        Ok(block)
    }

    fn zbookmark(&self, verifier: Verifier) -> Zbookmark {
        let block = BlockId::new(verifier.seq);
        Zbookmark::new(self.objset.id(), ObjectId::META, LogReader::LOG_LEVEL, block)
    }

    /// Writes the records to commit along the chain.
    pub(crate) fn write_itxs(
        &self,
        turn: &mut ChainWriter,
        items: Vec<(Txg, Itx)>,
    ) -> Result<(), Error> {
        let result = self.append_itxs(turn, items);
        if result.is_err() {
            self.state.lock().is_broken = true;
        }
        result
    }

    fn append_itxs(&self, turn: &mut ChainWriter, items: Vec<(Txg, Itx)>) -> Result<(), Error> {
        let synced = self.txgs.synced_txg();
        let Some(first) = self.state.lock().chain.back().map(|link| link.block) else {
            return Err(Error::Stopped);
        };
        let mut plan = BlockPacker::new(first.psize, turn.last_seq);
        self.pack_itxs(&mut plan, items, synced)?;
        if plan.last_seq() == turn.last_seq {
            return Ok(());
        }
        turn.last_seq = plan.last_seq();
        let has_records = plan.blocks.iter().skip(1).all(|block| !block.records.is_empty());
        assert!(has_records, "each block after the first of a commit has records");
        let next = turn.predict_block_size(&plan);
        // Rule: a txg has the successors of a block before the block is written. Without the hold a sync between
        // the two would not claim them as allocated, and a crash would leave the chain's end in free space.
        let tx = self.txgs.begin_tx().ok_or(Error::Stopped)?;
        let chain = self.reserve_chain(first, &plan, next, &tx)?;
        let txg = tx.txg();
        let synced_by_now = self.txgs.synced_txg();
        assert!(txg > synced_by_now, "txg {txg} is held, and {synced_by_now} is synced");
        // the sync of this txg waits for these blocks: otherwise a crash could lose their
        // successors
        let under_way = InFlightGuard { log: self, txg };
        *self.state.lock().in_flight.entry(txg).or_default() += 1;
        drop(tx);
        // the first block was had with the one before it, maybe of a txg that was written since
        let oldest = first.birth.min(synced.next());
        // Rule Z2: the block that leads to the others is written last, after they are flushed. The records of a
        // commit are then there as a whole or not at all; in another order a crash could leave the first
        // records without those that they depend on.
        let mut blocks = chain.iter().zip(&chain[1..]).zip(&plan.blocks);
        let leader = blocks.next();
        self.write_blocks(blocks.collect())?;
        if plan.blocks.len() > 1 || plan.has_pointers() {
            self.writer.flush(oldest)?;
        }
        // Rule Z3: the commit returns after the second flush. That flush also covers what other threads wrote
        // of these txgs, as a flush that failed for them may have lost blocks of this commit.
        self.write_blocks(leader.into_iter().collect())?;
        self.writer.flush(oldest)?;
        let mut state = self.state.lock();
        // these are the last of possibly thousands of records of a txg
        let mut done = 0;
        for link in state.chain.iter_mut().rev().take(chain.len()) {
            let is_written = chain[..plan.blocks.len()].iter().any(|b| b.dvas == link.block.dvas);
            link.is_done |= is_written;
            done += usize::from(is_written);
        }
        assert_eq!(done, plan.blocks.len(), "each block of a commit is in the chain");
        drop(state);
        drop(under_way);
        Ok(())
    }

    /// Plans items with their data. Data that was truncated during the read was read as zeros; the
    /// record of the truncation is committed together with it.
    fn pack_itxs(
        &self,
        plan: &mut BlockPacker,
        mut items: Vec<(Txg, Itx)>,
        synced: Txg,
    ) -> Result<(), Error> {
        let mut read = BTreeSet::new();
        for _ in 0..MAX_READ_ROUNDS {
            for (txg, item) in items {
                // a replay skips records of synced txgs: their changes are in the dataset
                if txg <= synced {
                    continue;
                }
                if let Body::Write(write) = &item.body {
                    read.insert(write.object);
                }
                if let Some(item) = self.load_write_data(item)? {
                    plan.add_itx(txg, item);
                }
            }
            items = self.pending.lock().drain_truncations(&read);
            if items.is_empty() {
                return Ok(());
            }
        }
        Err(Error::Stopped)
    }

    /// Allocates all blocks except the first, which exists, and the one after the commit.
    fn reserve_chain(
        &self,
        first: Regular,
        plan: &BlockPacker,
        last: u32,
        tx: &Tx,
    ) -> Result<Vec<Regular>, Error> {
        let mut chain = vec![first];
        let mut verifier = Verifier::from_pointer(&first);
        let sizes = plan.blocks.iter().skip(1).map(|block| block_size_for(block.records.len()));
        for size in sizes.chain([last]) {
            verifier = verifier.next();
            match self.reserve_block(size, tx.txg(), verifier) {
                Ok(block) => chain.push(block),
                Err(error) => {
                    for block in &chain[1..] {
                        self.writer.free(&Blkptr::Regular(Box::new(*block)), tx.txg());
                    }
                    return Err(error);
                }
            }
        }
        assert_eq!(chain.len(), plan.blocks.len() + 1, "each block of a commit has a successor");
        assert!(
            chain.array_windows().all(|[block, next]| {
                Verifier::from_pointer(next) == Verifier::from_pointer(block).next()
            }),
            "each block is the next of its chain"
        );
        let mut state = self.state.lock();
        state.dirty_txgs.insert(tx.txg());
        if let Some(link) = state.chain.back_mut() {
            link.newest_txg = plan.blocks[0].newest_txg;
        }
        let others = plan.blocks.iter().skip(1).map(|filled| filled.newest_txg).chain([Txg::ZERO]);
        for (block, newest) in chain[1..].iter().zip(others) {
            let last = state.chain.back().map(|link| link.block.birth);
            assert!(last.is_none_or(|last| last <= block.birth), "a chain grows with the txgs");
            state.chain.push_back(ChainBlock { block: *block, is_done: false, newest_txg: newest });
        }
        Ok(chain)
    }

    fn write_blocks(&self, blocks: Vec<((&Regular, &Regular), &PackedBlock)>) -> Result<(), Error> {
        let encode = |((block, next), filled): ((&Regular, &Regular), &PackedBlock)| {
            let used = Chain::SIZE + filled.records.len();
            let chain = Chain { next: Blkptr::Regular(Box::new(*next)), used: used as u64 };
            let mut bytes = Vec::with_capacity(block.psize as usize);
            bytes.extend_from_slice(&chain.encode());
            bytes.extend_from_slice(&filled.records);
            assert!(bytes.len() <= block.psize as usize, "the records of a block fit in it");
            bytes.resize(block.psize as usize, 0);
            let zbookmark = self.zbookmark(Verifier::from_pointer(block));
            LogBlock { block: *block, bytes, zbookmark }
        };
        let blocks = blocks.into_iter().map(encode).collect();
        Ok(self.writer.write_log_blocks(blocks, self.objset.key())?)
    }

    /// Reads the data of a write that came without; none if its object is gone.
    fn load_write_data(&self, mut item: Itx) -> Result<Option<Itx>, Error> {
        let Body::Write(write) = &mut item.body else { return Ok(Some(item)) };
        if write.data.is_some() || !write.pointer.is_hole() {
            return Ok(Some(item));
        }
        let object = match self.objset.object(write.object) {
            Ok(object) => object,
            Err(dmu::Error::NoSuchObject { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut bytes = vec![0; units::to_usize(write.length)];
        object.read(write.offset, &mut bytes)?;
        write.data = Some(bytes);
        Ok(Some(item))
    }

    /// Whether a txg must write the object set's root block for the sake of its log.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        let state = self.state.lock();
        let unneeded = state.is_broken || state.chain.front().is_some_and(|link| link.is_done);
        unneeded || state.dirty_txgs.contains(&txg)
    }

    /// The log header for the root block of the syncing txg. Frees blocks that are no longer
    /// needed.
    pub fn sync_header(&self, txg: Txg, header: &mut LogHeader) -> Result<(), Error> {
        // Rule: the header of a txg is written after all blocks whose successors belong to it. The successors
        // are allocated with this txg; if a block before them was lost in a crash, they would never be freed.
        let mut state = self.state.lock();
        while state.in_flight.range(..=txg).next().is_some() {
            self.in_flight_changed.wait(&mut state);
        }
        state.dirty_txgs.remove(&txg);
        // Rule Z6: the log that an import found is freed with the txg of its last replayed record, or later.
        // Freed earlier, a crash between the two txgs would lose the records that are not synced.
        if state.free_txg.is_some_and(|given_up| given_up <= txg) {
            state.free_txg = None;
            if let Some(found) = state.unreplayed.take() {
                chain::free_log(&self.writer, self.objset.id(), &found, txg)?;
            }
        }
        let replayed = state.replayed_seqs.remove(&txg);
        if let Some(found) = &mut state.unreplayed {
            found.replay_seq = replayed.unwrap_or(found.replay_seq);
            header.clone_from(found);
            return Ok(());
        }
        // Rule W1: a block is freed in the first txg that has all its records. A crash before that txg is synced
        // finds the block, as its space is not reused before.
        let broken = state.is_broken;
        while let Some(link) = state.chain.front() {
            if !(link.is_done || broken) || link.block.birth > txg || link.newest_txg > txg {
                break;
            }
            self.writer.free(&Blkptr::Regular(Box::new(link.block)), txg);
            state.chain.pop_front();
        }
        if broken && state.chain.is_empty() {
            state.is_broken = false;
        }
        // a chain that cannot continue leads to acknowledged records until their txg is on the
        // drives
        let first = state.chain.front();
        let chain = first.map_or(Blkptr::EMPTY, |link| Blkptr::Regular(Box::new(link.block)));
        *header = LogHeader { chain, ..LogHeader::default() };
        Ok(())
    }

    /// Frees the chain with the next txg, and starts a new one when one is needed: for the end of
    /// the dataset's use. The caller must hold no txg.
    pub fn close(&self) {
        // Rule Z2: a chain ends between two commits. A sync within a commit would free the block that the commit is
        // about to write, and a crash would lose the acknowledged records in it.
        let _turn = self.chain_writer.lock();
        let mut state = self.state.lock();
        state.is_broken = !state.chain.is_empty();
    }

    /// A txg is on the drives: its records need no log.
    pub fn on_txg_synced(&self, txg: Txg) {
        self.pending.lock().drop_synced(txg);
    }

    /// The log found at import, until it is freed.
    pub fn unreplayed_header(&self) -> Option<LogHeader> {
        self.state.lock().unreplayed.clone()
    }

    /// Records that a log record is replayed within the held txg.
    pub fn record_replayed(&self, tx: &Tx, seq: u64) {
        // Rule Z6: the number belongs to the txg of the replayed change. In a later txg, a crash would have the
        // change replayed twice; in an earlier one, not at all.
        let mut state = self.state.lock();
        state.replayed_seqs.insert(tx.txg(), seq);
        state.dirty_txgs.insert(tx.txg());
    }

    /// The found log is replayed or empty: frees its blocks with the held txg.
    pub fn finish_replay(&self, tx: &Tx) {
        let mut state = self.state.lock();
        state.free_txg = Some(tx.txg());
        state.dirty_txgs.insert(tx.txg());
    }
}

/// A file that is cut each time while it is read waits for its txg instead.
const MAX_READ_ROUNDS: usize = 64;

impl std::fmt::Debug for IntentLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log(objset {})", self.objset.id())
    }
}

impl ChainWriter {
    /// How large the block after these is made.
    fn predict_block_size(&mut self, plan: &BlockPacker) -> u32 {
        const RECENT_SIZES: usize = 8;
        let total = plan.blocks.iter().map(|block| block.records.len()).sum();
        self.recent_sizes.push_back(block_size_for(total));
        if self.recent_sizes.len() > RECENT_SIZES {
            self.recent_sizes.pop_front();
        }
        self.recent_sizes.iter().copied().max().unwrap_or(MIN_BLOCK_SIZE).min(MAX_BLOCK_SIZE)
    }
}

/// Blocks on their way, until they have arrived or failed.
struct InFlightGuard<'a> {
    log: &'a IntentLog,
    txg: Txg,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.log.state.lock();
        let is_counted = state.in_flight.contains_key(&self.txg);
        assert!(is_counted || std::thread::panicking(), "blocks under way are counted");
        if let Some(count) = state.in_flight.get_mut(&self.txg) {
            *count -= 1;
            if *count == 0 {
                state.in_flight.remove(&self.txg);
            }
        }
        self.log.in_flight_changed.notify_all();
    }
}
