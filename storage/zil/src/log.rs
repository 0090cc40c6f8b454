//! The log of a dataset that is being changed.
//!
//! Whoever changes something adds an [`Item`] under the same hold on a txg. Who must know that it
//! will outlast a power cut calls [`Log::commit`]: then all that was added is written along the
//! chain, and the drives are told to keep it. The end of the chain is always a block that has room
//! and is not written; so the next commit needs only to write there. One that takes several blocks
//! writes that one last.
//!
//! A commit that fails is no loss: its caller waits for the txgs themselves, and the chain is made
//! anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dmu::Objset;
use ondisk::Blkptr;
use ondisk::blkptr::Regular;
use ondisk::objset::LogHeader;
use ondisk::zil::{Body, Chain, Verifier};
use parking_lot::{Condvar, Mutex};
use txg::{Groups, Tx};
use units::{BlockId, ObjectId, Place, Txg};
use zio::{LogAllocation, Sink, Writer};

use crate::pending::{Item, Pending};
use crate::plan::{Filled, LARGEST, Plan, SMALLEST, size_for};
use crate::{Error, Records, chain};

/// The log of a dataset that is being changed.
pub struct Log {
    writer: Arc<Writer>,
    groups: Groups,
    objset: Objset,
    pending: Mutex<Pending>,
    /// Held by the one who writes along the chain.
    turn: Mutex<Turn>,
    state: Mutex<State>,
    /// Fewer blocks are on their way.
    arrived: Condvar,
    /// Log devices are left to others (logbias=throughput).
    throughput: AtomicBool,
}

struct Turn {
    /// The number of the last record.
    seq: u64,
    /// How large the blocks of the last commits were: the next will be alike.
    recent: VecDeque<u32>,
}

/// A block of the chain.
struct Link {
    block: Regular,
    /// It is on the drives for good, or is not needed.
    done: bool,
    /// The last txg that something in it belongs to.
    newest: Txg,
}

#[derive(Default)]
struct State {
    /// From the first that may be needed to the one that is not written yet.
    links: VecDeque<Link>,
    /// Nothing is written on.
    paused: bool,
    /// The pool is of a version whose form of log blocks is not written.
    disabled: bool,
    /// The chain cannot go on: its blocks are given up as soon as may be.
    broken: bool,
    /// The txg whose root block first leads to the chain.
    anchored: Txg,
    /// After a failed commit: what was to be promised is on the drives with this txg.
    instead: Txg,
    /// Txgs that have something to say of the log.
    dirty: BTreeSet<Txg>,
    /// For each txg how many blocks are on their way whose successors were told to it.
    under_way: BTreeMap<Txg, usize>,
    /// What an import has found, until it is replayed.
    found: Option<LogHeader>,
    /// For each txg the last record that is replayed with it.
    replayed: BTreeMap<Txg, u64>,
    /// The txg in which what was found is given up.
    given_up: Option<Txg>,
}

impl Log {
    /// The log of a live object set. What its head, as the import has claimed it, still holds is to
    /// be replayed and then [given up](Self::give_up); until then commits wait for their txgs.
    pub fn new(writer: Arc<Writer>, groups: Groups, objset: Objset, claimed: LogHeader) -> Self {
        let found = (claimed != LogHeader::default()).then_some(claimed);
        // the claim itself must be on the drives
        let dirty = found.iter().map(|_| groups.open()).collect();
        Self {
            writer,
            groups,
            objset,
            pending: Mutex::default(),
            turn: Mutex::new(Turn { seq: 0, recent: VecDeque::new() }),
            state: Mutex::new(State { dirty, found, ..State::default() }),
            arrived: Condvar::new(),
            throughput: AtomicBool::new(false),
        }
    }

    /// Whether log devices are left to others (logbias=throughput).
    pub fn set_throughput(&self, throughput: bool) {
        self.throughput.store(throughput, Ordering::Relaxed);
    }

    /// Has commits wait for their groups, and write nothing, or write again. Returns when none is
    /// writing. The caller must hold no txg.
    pub fn pause(&self, paused: bool) {
        let _turn = self.turn.lock();
        self.state.lock().paused = paused;
    }

    /// Has all commits wait for their txgs, for good: nothing is written to the log.
    pub fn disable(&self) {
        let _turn = self.turn.lock();
        self.state.lock().disabled = true;
    }

    /// Notes what is done in a txg. What takes content away from a file is noted before that is done:
    /// who reads the file for a promise just then must find the note.
    pub fn add(&self, tx: &Tx, item: Item) {
        self.pending.lock().add(tx.txg(), item);
    }

    /// Notes that something is done in a txg of which no record tells. What is added after it waits
    /// for the txg too, as it may build on that; so this comes before what else is added of the same
    /// change.
    pub fn add_untold(&self, tx: &Tx) {
        self.pending.lock().add_untold(tx.txg());
    }

    /// An object gets another name: what was done to it before is promised with whatever is promised
    /// next.
    pub fn renamed(&self, object: ObjectId) {
        self.pending.lock().renamed(object);
    }

    /// An object is removed: what was done to its content is not to be promised any more, lest it
    /// be done again to another object that gets the number.
    pub fn forget(&self, object: ObjectId) {
        self.pending.lock().forget(object);
    }

    /// Returns when all that was added before, whose order matters or which was done to `object`
    /// (`None`: to any), will outlast a power cut. The caller must hold no txg.
    pub fn commit(&self, object: Option<ObjectId>) -> Result<(), Error> {
        let mut turn = self.turn.lock();
        let mut pending = self.pending.lock();
        let (items, untold) = (pending.take(object), pending.untold());
        drop(pending);
        // an earlier promise failed, maybe of what this caller has added, or cannot be made
        let must_wait = self.state.lock().instead.max(untold) > self.groups.synced();
        if items.is_empty() && !must_wait {
            return Ok(());
        }
        let promised = match self.has_chain() {
            Ok(true) if !must_wait && !self.is_better_written(&items) => {
                self.promise(&mut turn, items).is_ok()
            }
            _ => false,
        };
        if promised {
            return Ok(());
        }
        let open = self.groups.open();
        self.state.lock().instead = open;
        drop(turn);
        if self.groups.wait_for(open) { Ok(()) } else { Err(Error::Stopped) }
    }

    /// Whether what is to be promised is so much of what waits to be written that writing all of
    /// that costs less than promising it, which is to write it twice.
    fn is_better_written(&self, items: &[(Txg, Item)]) -> bool {
        let length = |(_, item): &(Txg, Item)| match &item.body {
            Body::Write(write) if write.pointer.is_hole() => write.length,
            _ => 0,
        };
        let bytes = items.iter().map(length).fold(0, u64::saturating_add);
        bytes >= MUCH && bytes.saturating_mul(2) >= self.groups.dirty()
    }

    /// Whether there is a block to write to, and a root block on the drives leads there. If there
    /// is none, room for one is had.
    fn has_chain(&self) -> Result<bool, Error> {
        let state = self.state.lock();
        if state.paused || state.disabled || state.broken || state.found.is_some() {
            return Ok(false);
        }
        if !state.links.is_empty() {
            return Ok(state.anchored <= self.groups.synced());
        }
        drop(state);
        let tx = self.groups.begin().ok_or(Error::Stopped)?;
        let block = self.reserve(SMALLEST, tx.txg(), self.beginning())?;
        let mut state = self.state.lock();
        state.dirty.insert(tx.txg());
        state.anchored = tx.txg();
        state.links.push_back(Link { block, done: false, newest: Txg::ZERO });
        Ok(false)
    }

    /// What tells the first block of a new chain from all others.
    fn beginning(&self) -> Verifier {
        let mut guid = [[0; 8]; 2];
        self.writer.random().fill(guid.as_flattened_mut());
        Verifier { guid: guid.map(u64::from_le_bytes), objset: self.objset.id(), seq: 1 }
    }

    fn reserve(&self, size: u32, txg: Txg, verifier: Verifier) -> Result<Regular, Error> {
        let place = self.place(verifier);
        let spares_devices = self.throughput.load(Ordering::Relaxed);
        let room = LogAllocation {
            size,
            txg,
            verifier,
            key: self.objset.key(),
            zbookmark: place,
            avoid_log_devices: spares_devices,
        };
        Ok(self.writer.allocate_log_block(&room)?)
    }

    fn place(&self, verifier: Verifier) -> Place {
        let block = BlockId::new(verifier.seq);
        Place::new(self.objset.id(), ObjectId::META, Records::LEVEL, block)
    }

    /// Writes what is to be promised along the chain.
    fn promise(&self, turn: &mut Turn, items: Vec<(Txg, Item)>) -> Result<(), Error> {
        let result = self.write_on(turn, items);
        if result.is_err() {
            self.state.lock().broken = true;
        }
        result
    }

    fn write_on(&self, turn: &mut Turn, items: Vec<(Txg, Item)>) -> Result<(), Error> {
        let synced = self.groups.synced();
        let Some(first) = self.state.lock().links.back().map(|link| link.block) else {
            return Err(Error::Stopped);
        };
        let mut plan = Plan::new(first.psize, turn.seq);
        self.fill(&mut plan, items, synced)?;
        if plan.seq() == turn.seq {
            return Ok(());
        }
        turn.seq = plan.seq();
        let next = turn.expect(&plan);
        let tx = self.groups.begin().ok_or(Error::Stopped)?;
        let chain = self.extend(first, &plan, next, &tx)?;
        let txg = tx.txg();
        // the sync of this txg waits for these blocks, lest their successors be lost without them
        let under_way = Held { log: self, txg };
        *self.state.lock().under_way.entry(txg).or_default() += 1;
        drop(tx);
        // the first block was had with the one before it, maybe of a txg that was written since
        let oldest = first.birth.min(Txg::new(synced.get().saturating_add(1)));
        // what is promised together is there as a whole or not at all: the block that leads to the
        // others comes when they will last
        let mut blocks = chain.iter().zip(&chain[1..]).zip(&plan.blocks);
        let leader = blocks.next();
        for ((block, next), filled) in blocks {
            self.write(block, next, filled)?;
        }
        if plan.blocks.len() > 1 {
            self.writer.flush(oldest)?;
        }
        if let Some(((block, next), filled)) = leader {
            self.write(block, next, filled)?;
        }
        self.writer.flush(oldest)?;
        let mut state = self.state.lock();
        // they are the last of those that a txg may have brought thousands of
        for link in state.links.iter_mut().rev().take(chain.len()) {
            link.done |= chain[..plan.blocks.len()].iter().any(|b| b.dvas == link.block.dvas);
        }
        drop(state);
        drop(under_way);
        Ok(())
    }

    /// Plans items with their data. What was cut off while it was read was read as zeros: that it was
    /// cut off is promised together with it.
    fn fill(&self, plan: &mut Plan, mut items: Vec<(Txg, Item)>, synced: Txg) -> Result<(), Error> {
        let mut read = BTreeSet::new();
        for _ in 0..PATIENCE {
            for (txg, item) in items {
                if txg <= synced {
                    continue;
                }
                if let Body::Write(write) = &item.body {
                    read.insert(write.object);
                }
                if let Some(item) = self.with_data(item)? {
                    plan.add(txg, item);
                }
            }
            items = self.pending.lock().take_cuts(&read);
            if items.is_empty() {
                return Ok(());
            }
        }
        Err(Error::Stopped)
    }

    /// Room for all blocks but the first, which is there, and for the one to come.
    fn extend(
        &self,
        first: Regular,
        plan: &Plan,
        last: u32,
        tx: &Tx,
    ) -> Result<Vec<Regular>, Error> {
        let mut chain = vec![first];
        let mut verifier = Verifier::of(&first);
        let sizes = plan.blocks.iter().skip(1).map(|block| size_for(block.records.len()));
        for size in sizes.chain([last]) {
            verifier = verifier.next();
            match self.reserve(size, tx.txg(), verifier) {
                Ok(block) => chain.push(block),
                Err(error) => {
                    for block in &chain[1..] {
                        self.writer.free(&Blkptr::Regular(Box::new(*block)), tx.txg());
                    }
                    return Err(error);
                }
            }
        }
        let mut state = self.state.lock();
        state.dirty.insert(tx.txg());
        if let Some(link) = state.links.back_mut() {
            link.newest = plan.blocks[0].newest;
        }
        let others = plan.blocks.iter().skip(1).map(|filled| filled.newest).chain([Txg::ZERO]);
        for (block, newest) in chain[1..].iter().zip(others) {
            state.links.push_back(Link { block: *block, done: false, newest });
        }
        Ok(chain)
    }

    fn write(&self, block: &Regular, next: &Regular, filled: &Filled) -> Result<(), Error> {
        let used = Chain::SIZE + filled.records.len();
        let chain = Chain { next: Blkptr::Regular(Box::new(*next)), used: used as u64 };
        let mut bytes = Vec::with_capacity(block.psize as usize);
        bytes.extend_from_slice(&chain.encode());
        bytes.extend_from_slice(&filled.records);
        bytes.resize(block.psize as usize, 0);
        let place = self.place(Verifier::of(block));
        Ok(self.writer.write_log_block(block, bytes, self.objset.key(), place)?)
    }

    /// Reads the data of a write that came without; none if its object is gone.
    fn with_data(&self, mut item: Item) -> Result<Option<Item>, Error> {
        let Body::Write(write) = &mut item.body else { return Ok(Some(item)) };
        if write.data.is_some() || !write.pointer.is_hole() {
            return Ok(Some(item));
        }
        let object = match self.objset.object(write.object) {
            Ok(object) => object,
            Err(dmu::Error::NoSuchObject { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut bytes = vec![0; usize::try_from(write.length).unwrap_or(0)];
        object.read(write.offset, &mut bytes)?;
        write.data = Some(bytes);
        Ok(Some(item))
    }

    /// Whether a txg must write the object set's root block for the sake of its log.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        let state = self.state.lock();
        let unneeded = state.broken || state.links.front().is_some_and(|link| link.done);
        unneeded || state.dirty.contains(&txg)
    }

    /// What the root block has to say of the log in the txg that is written. Blocks that are
    /// needed no more are freed.
    pub fn sync(&self, txg: Txg, header: &mut LogHeader) -> Result<(), Error> {
        let mut state = self.state.lock();
        while state.under_way.range(..=txg).next().is_some() {
            self.arrived.wait(&mut state);
        }
        state.dirty.remove(&txg);
        if state.given_up.is_some_and(|given_up| given_up <= txg) {
            state.given_up = None;
            if let Some(found) = state.found.take() {
                chain::free(&self.writer, self.objset.id(), &found, txg)?;
            }
        }
        let replayed = state.replayed.remove(&txg);
        if let Some(found) = &mut state.found {
            found.replay_seq = replayed.unwrap_or(found.replay_seq);
            header.clone_from(found);
            return Ok(());
        }
        let broken = state.broken;
        while let Some(link) = state.links.front() {
            if !(link.done || broken) || link.block.birth > txg || link.newest > txg {
                break;
            }
            self.writer.free(&Blkptr::Regular(Box::new(link.block)), txg);
            state.links.pop_front();
        }
        if broken && state.links.is_empty() {
            state.broken = false;
        }
        // one that cannot go on leads to what was promised before, until that is on the drives
        let first = state.links.front();
        let chain = first.map_or(Blkptr::EMPTY, |link| Blkptr::Regular(Box::new(link.block)));
        *header = LogHeader { chain, ..LogHeader::default() };
        Ok(())
    }

    /// The chain is given up with the next txg, and made anew when one is needed: at the end of the
    /// dataset's use.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.broken = !state.links.is_empty();
    }

    /// A txg is on the drives: what it brought needs no promise.
    pub fn synced(&self, txg: Txg) {
        self.pending.lock().synced(txg);
    }

    /// What the import has found, until it is given up.
    pub fn found(&self) -> Option<LogHeader> {
        self.state.lock().found.clone()
    }

    /// Notes that a record is replayed with the txg that is held.
    pub fn replayed(&self, tx: &Tx, seq: u64) {
        let mut state = self.state.lock();
        state.replayed.insert(tx.txg(), seq);
        state.dirty.insert(tx.txg());
    }

    /// What was found is replayed, or held nothing: its blocks are freed with the txg that is held.
    pub fn give_up(&self, tx: &Tx) {
        let mut state = self.state.lock();
        state.given_up = Some(tx.txg());
        state.dirty.insert(tx.txg());
    }
}

/// A file that is cut each time while it is read waits for its txg instead.
const PATIENCE: usize = 64;

/// Bytes of data that may be worth a txg of their own.
const MUCH: u64 = 8 << 20;

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log(objset {})", self.objset.id())
    }
}

impl Turn {
    /// How large the block after these is made.
    fn expect(&mut self, plan: &Plan) -> u32 {
        const REMEMBERED: usize = 8;
        let total = plan.blocks.iter().map(|block| block.records.len()).sum();
        self.recent.push_back(size_for(total));
        if self.recent.len() > REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.iter().copied().max().unwrap_or(SMALLEST).min(LARGEST)
    }
}

/// Blocks on their way, until they have arrived or failed.
struct Held<'a> {
    log: &'a Log,
    txg: Txg,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.log.state.lock();
        if let Some(count) = state.under_way.get_mut(&self.txg) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&self.txg);
            }
        }
        self.log.arrived.notify_all();
    }
}
