//! The plainest way to write a pool whose vdevs are single files or mirrors of them: nothing is
//! compressed, each block goes to all leaves, and the newest uberblock is put into its ring.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use check::{Check, Report};
use dmu::{Ledger, Objset, Syncing};
use metaslab::{Allocator, Want};
use ondisk::blkptr::{Hole, Protection, Regular};
use ondisk::label::VdevKind;
use ondisk::{Blkptr, Checksum, Compression, Order};
use spa::{Options, Pool, Space};
use transform::checksum::{compute, embedded};
use txg::Tx;
use units::{Txg, VdevId};
use zio::{Policy, Sink, WriteRequest};

/// Bytes before the first that belongs to a vdev's space.
const FRONT: u64 = 4 << 20;
/// Bytes of a label; its uberblocks begin in the middle.
const LABEL: u64 = 256 << 10;
/// A pass that changes nothing comes before this one.
const MOST_PASSES: u16 = 12;

/// A copy of a fixture's pool, open for writing.
pub(crate) struct Written {
    pub(crate) dir: PathBuf,
    pub(crate) pool: Pool,
    pub(crate) mos: Objset,
    pub(crate) space: Space,
    sink: Files,
    txg: Txg,
}

/// Opens the pool whose images lie in a folder.
pub(crate) fn open(dir: &Path) -> Pool {
    let found = device::probe(&[dir.to_owned()]);
    let (mut pools, _) = spa::scan(&found.devices);
    assert_eq!(pools.len(), 1, "{}", dir.display());
    pools.remove(0).open(&Options::default()).unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
}

/// What an examination of the pool in a folder finds.
pub(crate) fn examine(dir: &Path) -> Report {
    let pool = open(dir);
    let check = Check::new(&pool, Arc::default()).unwrap();
    loop {
        check.work();
        if !check.next_round() {
            break;
        }
    }
    let facts = dsl::PoolFacts { name: pool.name().to_owned(), usable: 0 };
    let names = dsl::Tree::open(pool.mos().clone(), facts).unwrap();
    check.report(Some(&names), Duration::ZERO, 1)
}

impl Written {
    pub(crate) fn of(fixture: &str, copy: &str) -> Self {
        let below = Path::new(env!("CARGO_TARGET_TMPDIR")).join(copy);
        drop(std::fs::remove_dir_all(below.join(fixture)));
        let dir = fixtures::unpack(fixture, &below).unwrap().dir;
        Self::open(dir)
    }

    pub(crate) fn open(dir: PathBuf) -> Self {
        let pool = open(&dir);
        let mos = pool.mos().to_live();
        let space = Space::load(&pool, &mos).unwrap();
        let sink = Files { allocator: Arc::clone(space.allocator()), leaves: leaves(&pool, &dir) };
        let txg = pool.txg();
        Self { dir, pool, mos, space, sink, txg }
    }

    /// The txg that is open.
    pub(crate) fn tx(&self) -> Tx {
        Tx::syncing(Txg::new(self.txg.get() + 1))
    }

    /// Puts a txg on disk; gives how many passes that took.
    pub(crate) fn sync(&mut self) -> u16 {
        let tx = self.tx();
        let txg = tx.txg();
        let policy = |_| Policy { copies: 2, ..Policy::default() };
        let ledger = Frees { sink: &self.sink, txg };
        let syncing =
            Syncing { txg, sink: &self.sink, ledger: &ledger, policy: &policy, workers: 1 };
        let mut passes = 1;
        loop {
            self.space.write_changes(&self.mos, &tx, passes).unwrap();
            let root = self.mos.sync(&syncing, &mut |_| {}).unwrap().root;
            if !self.space.write_changes(&self.mos, &tx, passes).unwrap() {
                self.commit(txg, &root);
                break;
            }
            passes += 1;
            assert!(passes < MOST_PASSES, "the maps do not come to rest");
        }
        self.space.synced(txg);
        self.txg = txg;
        passes
    }

    fn commit(&self, txg: Txg, root: &Blkptr) {
        let root = root.encode();
        for leaf in self.sink.leaves.values().flatten() {
            let size = leaf.metadata().unwrap().len();
            let slot = 1_u64 << self.slot_shift();
            for label in [0, LABEL, size - 2 * LABEL, size - LABEL] {
                let ring = label + LABEL / 2;
                let at = |of: Txg| ring + of.get() % (LABEL / 2 / slot) * slot;
                let mut bytes = vec![0; usize::try_from(slot).unwrap()];
                let newest = self.newest(leaf, ring, slot);
                leaf.read_exact_at(&mut bytes, at(newest)).unwrap();
                bytes[16..24].copy_from_slice(&txg.get().to_le_bytes());
                bytes[40..168].copy_from_slice(&root);
                let there = [at(txg), 0, 0, 0];
                embedded::seal(&mut bytes, &there, Checksum::Label, false).unwrap();
                leaf.write_all_at(&bytes, at(txg)).unwrap();
            }
        }
    }

    fn slot_shift(&self) -> u64 {
        let tops = &self.pool.config().tree.as_ref().unwrap().children;
        tops.iter().filter_map(|top| top.ashift).max().unwrap().max(10)
    }

    fn newest(&self, leaf: &File, ring: u64, slot: u64) -> Txg {
        let mut newest = 0;
        for at in (ring..ring + LABEL / 2).step_by(usize::try_from(slot).unwrap()) {
            let mut head = [0; 24];
            leaf.read_exact_at(&mut head, at).unwrap();
            let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
            if word(0) == 0x00ba_b10c && word(16) <= self.txg.get() {
                newest = newest.max(word(16));
            }
        }
        Txg::new(newest)
    }
}

/// The files of each top-level vdev.
fn leaves(pool: &Pool, dir: &Path) -> HashMap<VdevId, Vec<File>> {
    let found = device::probe(&[dir.to_owned()]);
    let mut files = HashMap::new();
    for device in &found.devices {
        let (Some(labelled), _) = spa::read_labels(device) else { continue };
        files.insert(labelled.guid(), device.name().to_string());
    }
    let tops = pool.config().tree.as_ref().unwrap().children.iter();
    let plain =
        tops.filter(|top| matches!(top.kind, VdevKind::File | VdevKind::Disk | VdevKind::Mirror));
    let open = |path: &String| OpenOptions::new().read(true).write(true).open(path).unwrap();
    plain
        .map(|top| {
            let leaves = top.leaves().filter_map(|leaf| files.get(&leaf.guid).map(open));
            (top.id, leaves.collect())
        })
        .collect()
}

struct Files {
    allocator: Arc<Allocator>,
    leaves: HashMap<VdevId, Vec<File>>,
}

struct Frees<'a> {
    sink: &'a Files,
    txg: Txg,
}

impl Ledger for Frees<'_> {
    fn born(&self, _: &Blkptr) {}

    fn kill(&self, pointer: &Blkptr) {
        self.sink.free(pointer, self.txg);
    }
}

impl Sink for Files {
    fn write(&self, request: &WriteRequest<'_>) -> Result<Blkptr, zio::Error> {
        let WriteRequest { data, kind, level, fill, txg, previous, policy, .. } = *request;
        let lsize = u32::try_from(data.len()).unwrap();
        if data.iter().all(|byte| *byte == 0) {
            return Ok(Blkptr::Hole(Hole { birth: txg, level, lsize, kind }));
        }
        let dvas = match previous {
            Blkptr::Regular(old) if old.birth_physical == txg && old.psize == lsize => old.dvas,
            _ => {
                let want = Want { copies: policy.copies, ..Want::new(lsize.into(), txg) };
                self.allocator.allocate(&want).unwrap()
            }
        };
        if let Blkptr::Regular(old) = previous
            && old.birth_physical == txg
            && old.psize != lsize
        {
            panic!("a block that changes its size is freed by its ledger");
        }
        for dva in dvas.iter().flatten() {
            for leaf in &self.leaves[&dva.vdev] {
                leaf.write_all_at(data, FRONT + dva.offset).unwrap();
            }
        }
        let sum = compute(Checksum::Fletcher4, data, Order::Little, None).unwrap();
        Ok(Blkptr::Regular(Box::new(Regular {
            dvas,
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

    fn free(&self, pointer: &Blkptr, txg: Txg) {
        let Blkptr::Regular(block) = pointer else { return };
        for dva in block.dvas.iter().flatten() {
            self.allocator.free(dva, txg).unwrap();
        }
    }
}
