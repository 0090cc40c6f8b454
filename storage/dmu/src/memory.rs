//! Blocks in memory instead of on drives: for tests of this floor and of those above.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ondisk::blkptr::{Hole, Protection, Regular};
use ondisk::objset::Kind;
use ondisk::{Blkptr, Checksum, Compression, Dva, Order};
use parking_lot::Mutex;
use units::{MinusOrZero, ObjsetId, Txg, VdevId, Zbookmark};
use zio::{Block, BlockRead, Error, Key, Sink, Source, WritePolicy, WriteRequest};

use crate::{BlockLedger, Objset, PolicyQuery, Result, SyncContext, SyncOutput, WriteThrough};

/// Blocks by where they are.
type BlockMap = HashMap<u64, Vec<u8>>;

/// Stores blocks without compression and checksums, and never reuses space. As on drives, a freed
/// block stays readable for a while: until the next txg is synced.
#[derive(Debug, Default)]
pub struct MemoryStore {
    blocks: Mutex<BlockMap>,
    /// The blocks freed lately, and before that.
    recently_freed: Mutex<(BlockMap, BlockMap)>,
    next_offset: Mutex<u64>,
    freed: Mutex<Vec<Blkptr>>,
    /// The unreadable blocks.
    unreadable: Mutex<HashSet<u64>>,
    /// How many reads go well before all fail; `None`: all go well.
    reads_before_failure: Mutex<Option<usize>>,
}

impl MemoryStore {
    /// Another one that holds the same.
    #[must_use]
    pub fn duplicate(&self) -> Arc<Self> {
        let (blocks, next) = (self.blocks.lock().clone(), *self.next_offset.lock());
        Arc::new(Self {
            blocks: Mutex::new(blocks),
            next_offset: Mutex::new(next),
            ..Self::default()
        })
    }

    /// The number of allocated blocks.
    pub fn block_count(&self) -> usize {
        self.blocks.lock().len()
    }

    /// A block cannot be read any more.
    pub fn make_unreadable(&self, pointer: &Blkptr) {
        if let Blkptr::Regular(block) = pointer
            && let Some(dva) = block.dvas[0]
        {
            self.unreadable.lock().insert(dva.offset);
        }
    }

    /// Changes the content of a block, as a drive that returns other bytes would.
    pub fn change_block(&self, pointer: &Blkptr, change: impl FnOnce(&mut [u8])) {
        if let Blkptr::Regular(block) = pointer
            && let Some(dva) = block.dvas[0]
            && let Some(content) = self.blocks.lock().get_mut(&dva.offset)
        {
            change(content);
        }
    }

    /// After this many reads all others fail, until the next call; `None`: none fails.
    pub fn fail_after(&self, reads: Option<usize>) {
        *self.reads_before_failure.lock() = reads;
    }

    fn should_fail_read(&self) -> bool {
        let mut left = self.reads_before_failure.lock();
        let Some(left) = &mut *left else { return false };
        let is_out = *left == 0;
        *left = left.minus_or_zero(1);
        is_out
    }

    /// The freed blocks since the last call.
    pub fn take_freed(&self) -> Vec<Blkptr> {
        std::mem::take(&mut self.freed.lock())
    }

    /// Writes a group of an object set into this memory; blocks that die are freed.
    pub fn sync_objset(&self, objset: &Objset, txg: Txg) -> Result<SyncOutput> {
        let policy = |_| WritePolicy::default();
        let ledger = FreeingLedger { store: self, txg };
        let syncing = SyncContext {
            txg,
            sink: self,
            ledger: &ledger,
            policy: &policy,
            workers: 2,
            form: crate::Form::default(),
        };
        let synced = objset.sync(&syncing, &mut |_| {});
        let mut late = self.recently_freed.lock();
        late.1 = std::mem::take(&mut late.0);
        drop(late);
        synced
    }
}

/// A live object set in memory in which nothing is yet, and the memory.
pub fn empty_objset(kind: Kind) -> (Objset, Arc<MemoryStore>) {
    let memory = Arc::new(MemoryStore::default());
    let id = if kind == Kind::Meta { ObjsetId::MOS } else { ObjsetId::new(54) };
    (Objset::new_empty(Arc::clone(&memory) as Arc<dyn Source>, id, kind, None), memory)
}

/// Stores content in memory before its group is written.
pub struct MemoryWriteThrough {
    store: Arc<MemoryStore>,
    orphans: Mutex<Vec<Blkptr>>,
    active_writers: AtomicUsize,
}

impl MemoryWriteThrough {
    /// In that memory.
    pub fn new(memory: &Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(memory),
            orphans: Mutex::default(),
            active_writers: AtomicUsize::new(0),
        })
    }

    /// Frees blocks that were discarded in txgs up to that one.
    pub fn free_orphans(&self, txg: Txg) {
        self.orphans.lock().retain(|pointer| {
            let is_later = pointer.birth() > txg;
            if !is_later {
                self.store.free(pointer, txg);
            }
            is_later
        });
    }
}

impl WriteThrough for MemoryWriteThrough {
    fn write_policy(&self, _: PolicyQuery) -> Option<WritePolicy> {
        Some(WritePolicy::default())
    }

    fn log_write_policy(&self, wanted: PolicyQuery) -> Option<WritePolicy> {
        self.write_policy(wanted)
    }

    fn sink(&self) -> &dyn Sink {
        &*self.store
    }

    fn active_writers(&self) -> &AtomicUsize {
        &self.active_writers
    }

    fn min_writers(&self) -> usize {
        0
    }

    fn add_orphan(&self, pointer: &Blkptr) {
        self.orphans.lock().push(pointer.clone());
    }
}

struct FreeingLedger<'a> {
    store: &'a MemoryStore,
    txg: Txg,
}

impl BlockLedger for FreeingLedger<'_> {
    fn block_born(&self, _: &Blkptr) {}

    fn block_kill(&self, pointer: &Blkptr) {
        self.store.free(pointer, self.txg);
    }
}

impl Sink for MemoryStore {
    fn write(&self, request: &WriteRequest<'_>) -> std::result::Result<Blkptr, Error> {
        let WriteRequest { data, kind, level, fill, txg, previous, .. } = *request;
        let lsize = units::narrow::<u32>(data.len());
        if request.policy.zeros_to_hole && data.iter().all(|byte| *byte == 0) {
            return Ok(Blkptr::Hole(Hole { birth: txg, level, lsize, kind }));
        }
        let offset = match previous {
            Blkptr::Regular(old) if old.birth == txg && old.lsize == lsize => {
                old.dvas[0].map_or(0, |dva| dva.offset)
            }
            _ => {
                let mut next = self.next_offset.lock();
                let offset = *next;
                *next += u64::from(lsize);
                offset
            }
        };
        self.blocks.lock().insert(offset, data.to_vec());
        let dva = Dva { vdev: VdevId::new(0), offset, asize: lsize.into(), gang: false };
        let mut sum = [0_u64; 4];
        for (index, byte) in data.iter().enumerate() {
            let word = sum.get_mut(index % 4);
            if let Some(word) = word {
                *word = word.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(*byte));
            }
        }
        Ok(Blkptr::Regular(Box::new(Regular {
            dvas: [Some(dva), None, None],
            lsize,
            psize: lsize,
            compression: Compression::Off,
            checksum: Checksum::Fletcher4,
            kind,
            level,
            dedup: false,
            order: Order::Little,
            birth: txg,
            birth_physical: txg,
            fill,
            sum,
            protection: Protection::None,
        })))
    }

    fn free(&self, pointer: &Blkptr, _: Txg) {
        if let Blkptr::Regular(block) = pointer {
            let offset = block.dvas[0].map_or(0, |dva| dva.offset);
            let content = self.blocks.lock().remove(&offset);
            let content = content.unwrap_or_else(|| panic!("freed twice: {block:?}"));
            self.recently_freed.lock().0.insert(offset, content);
            self.freed.lock().push(pointer.clone());
        }
    }
}

impl Source for MemoryStore {
    fn read(
        &self,
        pointer: &Blkptr,
        place: Zbookmark,
        _: Option<&Key>,
    ) -> std::result::Result<Block, Error> {
        let found = match pointer {
            Blkptr::Regular(block) => {
                let offset = block.dvas[0].map_or(0, |dva| dva.offset);
                let is_lost = self.unreadable.lock().contains(&offset) || self.should_fail_read();
                let found = self.blocks.lock().get(&offset).cloned();
                let late = || {
                    let late = self.recently_freed.lock();
                    late.0.get(&offset).or_else(|| late.1.get(&offset)).cloned()
                };
                found.or_else(late).filter(|_| !is_lost)
            }
            Blkptr::Hole(hole) => Some(vec![0; units::to_usize(hole.lsize)]),
            _ => None,
        };
        let found = found.ok_or(Error::Unreadable { zbookmark: place, faults: Vec::new() })?;
        Ok(Block::new(found, Order::Little))
    }

    /// Each other one: the contract only requires that the written blocks exist.
    fn read_blocks(&self, blocks: &mut [BlockRead<'_>]) {
        for wanted in blocks.iter_mut().step_by(2) {
            wanted.is_done =
                self.read_into(wanted.pointer, wanted.zbookmark, None, wanted.into).is_ok();
        }
        for left in blocks.iter_mut().skip(1).step_by(2) {
            left.into.fill(0xee);
        }
    }
}
