//! Blocks in memory instead of on drives: for tests of this floor and of those above.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ondisk::blkptr::{Hole, Protection, Regular};
use ondisk::objset::Kind;
use ondisk::{Blkptr, Checksum, Compression, Dva, Order};
use parking_lot::Mutex;
use units::{ObjsetId, Place, Txg, VdevId};
use zio::{Block, Error, Key, Policy, Sink, Sought, Source, WriteRequest};

use crate::{Early, Ledger, Objset, Result, Synced, Syncing, Wanted};

/// Blocks by where they are.
type Blocks = HashMap<u64, Vec<u8>>;

/// Holds blocks. Nothing is compressed or checked, and no space is used again. As on drives, what is
/// freed can be read for a while: until the group after that one is written.
#[derive(Debug, Default)]
pub struct Memory {
    blocks: Mutex<Blocks>,
    /// What was freed of late, and before that.
    late: Mutex<(Blocks, Blocks)>,
    next: Mutex<u64>,
    freed: Mutex<Vec<Blkptr>>,
    /// Those that cannot be read.
    lost: Mutex<HashSet<u64>>,
    /// How many reads go well before all fail; `None`: all go well.
    good_reads: Mutex<Option<usize>>,
}

impl Memory {
    /// Another one that holds the same.
    #[must_use]
    pub fn copy(&self) -> Arc<Self> {
        let (blocks, next) = (self.blocks.lock().clone(), *self.next.lock());
        Arc::new(Self { blocks: Mutex::new(blocks), next: Mutex::new(next), ..Self::default() })
    }

    /// How many blocks are held.
    pub fn count(&self) -> usize {
        self.blocks.lock().len()
    }

    /// A block cannot be read any more.
    pub fn lose(&self, pointer: &Blkptr) {
        if let Blkptr::Regular(block) = pointer
            && let Some(dva) = block.dvas[0]
        {
            self.lost.lock().insert(dva.offset);
        }
    }

    /// After so many reads all others fail, until this is called again; `None`: none fails.
    pub fn fail_after(&self, reads: Option<usize>) {
        *self.good_reads.lock() = reads;
    }

    fn is_failing(&self) -> bool {
        let mut left = self.good_reads.lock();
        let Some(left) = &mut *left else { return false };
        let is_out = *left == 0;
        *left = left.saturating_sub(1);
        is_out
    }

    /// The blocks that were freed and not asked for yet.
    pub fn take_freed(&self) -> Vec<Blkptr> {
        std::mem::take(&mut self.freed.lock())
    }

    /// Writes a group of an object set into this memory; blocks that die are freed.
    pub fn sync(&self, objset: &Objset, txg: Txg) -> Result<Synced> {
        let policy = |_| Policy::default();
        let ledger = Frees { memory: self, txg };
        let syncing = Syncing {
            txg,
            sink: self,
            ledger: &ledger,
            policy: &policy,
            workers: 2,
            form: crate::Form::default(),
        };
        let synced = objset.sync(&syncing, &mut |_| {});
        let mut late = self.late.lock();
        late.1 = std::mem::take(&mut late.0);
        drop(late);
        synced
    }
}

/// A live object set in memory in which nothing is yet, and the memory.
pub fn blank(kind: Kind) -> (Objset, Arc<Memory>) {
    let memory = Arc::new(Memory::default());
    let id = if kind == Kind::Meta { ObjsetId::MOS } else { ObjsetId::new(54) };
    (Objset::blank(Arc::clone(&memory) as Arc<dyn Source>, id, kind, None), memory)
}

/// Stores content in memory before its group is written.
pub struct Ahead {
    memory: Arc<Memory>,
    unwanted: Mutex<Vec<Blkptr>>,
    writers: AtomicUsize,
}

impl Ahead {
    /// In that memory.
    pub fn of(memory: &Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::clone(memory),
            unwanted: Mutex::default(),
            writers: AtomicUsize::new(0),
        })
    }

    /// Frees what is not wanted of groups up to that one.
    pub fn give_up(&self, txg: Txg) {
        self.unwanted.lock().retain(|pointer| {
            let is_later = pointer.birth() > txg;
            if !is_later {
                self.memory.free(pointer, txg);
            }
            is_later
        });
    }
}

impl Early for Ahead {
    fn policy(&self, _: Wanted) -> Option<Policy> {
        Some(Policy::default())
    }

    fn sink(&self) -> &dyn Sink {
        &*self.memory
    }

    fn writers(&self) -> &AtomicUsize {
        &self.writers
    }

    fn crowd(&self) -> usize {
        0
    }

    fn unwanted(&self, pointer: &Blkptr) {
        self.unwanted.lock().push(pointer.clone());
    }
}

struct Frees<'a> {
    memory: &'a Memory,
    txg: Txg,
}

impl Ledger for Frees<'_> {
    fn born(&self, _: &Blkptr) {}

    fn kill(&self, pointer: &Blkptr) {
        self.memory.free(pointer, self.txg);
    }
}

impl Sink for Memory {
    fn write(&self, request: &WriteRequest<'_>) -> std::result::Result<Blkptr, Error> {
        let WriteRequest { data, kind, level, fill, txg, previous, .. } = *request;
        let lsize = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if request.policy.hole_of_zeros && data.iter().all(|byte| *byte == 0) {
            return Ok(Blkptr::Hole(Hole { birth: txg, level, lsize, kind }));
        }
        let offset = match previous {
            Blkptr::Regular(old) if old.birth == txg && old.lsize == lsize => {
                old.dvas[0].map_or(0, |dva| dva.offset)
            }
            _ => {
                let mut next = self.next.lock();
                let offset = *next;
                *next = next.saturating_add(lsize.into());
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
            self.late.lock().0.insert(offset, content);
            self.freed.lock().push(pointer.clone());
        }
    }
}

impl Source for Memory {
    fn read(
        &self,
        pointer: &Blkptr,
        place: Place,
        _: Option<&Key>,
    ) -> std::result::Result<Block, Error> {
        let found = match pointer {
            Blkptr::Regular(block) => {
                let offset = block.dvas[0].map_or(0, |dva| dva.offset);
                let is_lost = self.lost.lock().contains(&offset) || self.is_failing();
                let found = self.blocks.lock().get(&offset).cloned();
                let late = || {
                    let late = self.late.lock();
                    late.0.get(&offset).or_else(|| late.1.get(&offset)).cloned()
                };
                found.or_else(late).filter(|_| !is_lost)
            }
            Blkptr::Hole(hole) => Some(vec![0; usize::try_from(hole.lsize).unwrap_or(0)]),
            _ => None,
        };
        let found = found.ok_or(Error::Unreadable { place, faults: Vec::new() })?;
        Ok(Block::new(found, Order::Little))
    }

    /// Each other one: no more is promised than that what is done is there.
    fn read_run(&self, blocks: &mut [Sought<'_>]) {
        for wanted in blocks.iter_mut().step_by(2) {
            wanted.done = self.read_into(wanted.pointer, wanted.place, None, wanted.into).is_ok();
        }
        for left in blocks.iter_mut().skip(1).step_by(2) {
            left.into.fill(0xee);
        }
    }
}
