//! The plainest way to write a pool: nothing is compressed, and only its own object set changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use check::{CheckReport, PoolCheck};
use device::Device;
use dmu::{BlockLedger, Objset, SyncContext};
use metaslab::{AllocRequest, Allocator};
use ondisk::blkptr::{Hole, Protection, Regular};
use ondisk::uberblock::Uberblock;
use ondisk::{Blkptr, Checksum, Compression, Order};
use spa::{Pool, PoolOpenOptions, PoolSpace, TxgCommitter};
use transform::checksum::compute;
use txg::Tx;
use units::Txg;
use vdev::VdevTree;
use zio::{Sink, WritePolicy, WriteRequest};

/// A pass that changes nothing comes before this one.
const MAX_PASSES: u16 = 12;

/// A copy of a fixture's pool, open for writing.
pub(crate) struct TestPool {
    dir: PathBuf,
    pub(crate) pool: Pool,
    pub(crate) mos: Objset,
    pub(crate) space: PoolSpace,
    sink: PlainSink,
    txg: Txg,
}

/// Opens the pool whose images are in a folder, for reading.
pub(crate) fn open_pool(dir: &Path) -> Pool {
    let found = device::probe(&[dir.to_owned()]);
    open_devices(dir, &found.devices)
}

fn open_devices(dir: &Path, devices: &[Arc<dyn Device>]) -> Pool {
    let (mut pools, _) = spa::scan_devices(devices);
    assert_eq!(pools.len(), 1, "{}", dir.display());
    pools
        .remove(0)
        .open(&PoolOpenOptions::default())
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
}

/// The findings of a check of the pool in a folder.
pub(crate) fn check_pool(dir: &Path) -> CheckReport {
    let pool = open_pool(dir);
    let check = PoolCheck::new(&pool, Arc::default()).unwrap();
    loop {
        check.run_worker();
        if !check.start_next_round() {
            break;
        }
    }
    let facts = dsl::PoolInfo { name: pool.name().to_owned(), usable_space: 0 };
    let names = dsl::DatasetTree::open(pool.mos().clone(), facts).unwrap();
    check.report(Some(&names), Duration::ZERO, 1)
}

/// A way to read the space of a pool.
type LoadSpace = fn(&Pool, &Objset) -> Result<PoolSpace, spa::Error>;

impl TestPool {
    pub(crate) fn from_fixture(fixture: &str, copy: &str) -> Self {
        let below = Path::new(env!("CARGO_TARGET_TMPDIR")).join(copy);
        drop(std::fs::remove_dir_all(below.join(fixture)));
        Self::open(fixtures::unpack(fixture, &below).unwrap().dir)
    }

    pub(crate) fn open(dir: PathBuf) -> Self {
        Self::open_with(dir, PoolSpace::load)
    }

    /// The same, with a way to read its space.
    pub(crate) fn open_with(dir: PathBuf, load: LoadSpace) -> Self {
        let images = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let images = images.filter(|path| path.extension().is_some_and(|name| name == "img"));
        let open = |path: PathBuf| device::File::open_exclusive(&path).unwrap();
        let devices: Vec<_> = images.map(|path| Arc::new(open(path)) as Arc<dyn Device>).collect();
        let pool = open_devices(&dir, &devices);
        let mos = pool.mos().to_writable();
        let space = load(&pool, &mos).unwrap();
        let tree = Arc::clone(pool.tree());
        let sink = PlainSink { allocator: Arc::clone(space.allocator()), tree };
        let txg = pool.txg();
        Self { dir, pool, mos, space, sink, txg }
    }

    /// Closes the images, so that others may open them.
    pub(crate) fn close(self) -> PathBuf {
        self.dir
    }

    /// The txg that is open.
    pub(crate) fn open_tx(&self) -> Tx {
        Tx::syncing(Txg::new(self.txg.get() + 1))
    }

    /// Puts a txg on disk; gives how many passes that took.
    pub(crate) fn sync(&mut self) -> u16 {
        self.try_sync().unwrap()
    }

    /// The same where a space map may be wrong.
    pub(crate) fn try_sync(&mut self) -> Result<u16, spa::Error> {
        let tx = self.open_tx();
        let txg = tx.txg();
        let policy = |_| WritePolicy { copies: 2, ..WritePolicy::default() };
        let ledger = FreeingLedger { sink: &self.sink, txg };
        let syncing = SyncContext {
            txg,
            sink: &self.sink,
            ledger: &ledger,
            policy: &policy,
            workers: 1,
            form: dmu::Form::default(),
        };
        let mut passes = 1;
        loop {
            self.space.write_changes(&self.mos, &tx, passes)?;
            let root = self.mos.sync(&syncing, &mut |_| {})?.root;
            if !self.space.write_changes(&self.mos, &tx, passes)? {
                let uberblock = Uberblock { txg, root, ..self.pool.uberblock().clone() };
                let commit =
                    TxgCommitter { tree: &self.sink.tree, logs: Vec::new(), multihost: false };
                commit.commit(&uberblock, None, &mut Vec::new()).unwrap();
                break;
            }
            passes += 1;
            assert!(passes < MAX_PASSES, "the maps do not converge");
        }
        self.space.mark_synced(txg);
        self.txg = txg;
        Ok(passes)
    }
}

struct PlainSink {
    allocator: Arc<Allocator>,
    tree: Arc<VdevTree>,
}

struct FreeingLedger<'a> {
    sink: &'a PlainSink,
    txg: Txg,
}

impl BlockLedger for FreeingLedger<'_> {
    fn block_born(&self, _: &Blkptr) {}

    fn block_kill(&self, pointer: &Blkptr) {
        self.sink.free(pointer, self.txg);
    }
}

impl Sink for PlainSink {
    fn write(&self, request: &WriteRequest<'_>) -> Result<Blkptr, zio::Error> {
        let WriteRequest { data, kind, level, fill, txg, previous, policy, .. } = *request;
        let lsize = u32::try_from(data.len()).unwrap();
        if data.iter().all(|byte| *byte == 0) {
            return Ok(Blkptr::Hole(Hole { birth: txg, level, lsize, kind }));
        }
        let dvas = match previous {
            Blkptr::Regular(old) if old.birth_physical == txg && old.psize == lsize => old.dvas,
            _ => {
                let want =
                    AllocRequest { copies: policy.copies, ..AllocRequest::new(lsize.into(), txg) };
                self.allocator.allocate(&want).unwrap()
            }
        };
        for dva in dvas.iter().flatten() {
            self.tree.write(dva.vdev, dva.offset, data, txg, &mut Vec::new()).unwrap();
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
