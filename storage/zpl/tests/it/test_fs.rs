//! A file system in memory that can be written, synced, and opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dmu::Objset;
use dmu::memory::{MemoryStore, empty_objset};
use ondisk::objset::Kind;
use ondisk::zil::{Body, Record, Write};
use ondisk::{Blkptr, Order};
use parking_lot::Mutex;
use posix::{ChangeContext, Credentials, Time};
use txg::{Tx, TxgLimits, Txgs};
use units::Txg;
use zpl::{
    CaseSensitivity, Error, Fs, FsCreateOptions, FsOptions, FsWriter, LogRecord, SpaceNeed,
    Transactions, WriteSettings,
};

/// Transactions from txgs, with log records kept as text.
pub(crate) struct TestTransactions {
    pub(crate) txgs: Txgs,
    pub(crate) random: AtomicU64,
    /// The log records, if a test reads them.
    pub(crate) records: Mutex<Option<Vec<zil::ReplayEntry>>>,
    /// With the next transaction reads begin to fail, after this many.
    pub(crate) read_fault: Mutex<Option<(Arc<MemoryStore>, usize)>>,
}

impl Transactions for TestTransactions {
    fn begin_tx(&self, need: &SpaceNeed) -> zpl::Result<Tx> {
        if !need.is_preparation
            && let Some((memory, reads)) = self.read_fault.lock().take()
        {
            memory.fail_after(Some(reads));
        }
        self.txgs.begin_tx().ok_or(Error::Stopped { objset: units::ObjsetId::new(54) })
    }

    fn log_record(&self, tx: &Tx, promise: LogRecord<'_>) {
        let mut promises = self.records.lock();
        let Some(promises) = &mut *promises else { return };
        let body = match promise {
            LogRecord::Record(body) | LogRecord::WithNextCommit(body) => body,
            LogRecord::Write { object, offset, bytes } => Body::Write(Box::new(Write {
                object,
                offset,
                length: bytes.len() as u64,
                pointer: Blkptr::EMPTY,
                data: Some(bytes.to_vec()),
            })),
        };
        let seq = promises.len() as u64 + 1;
        let order = Order::Little;
        let record = Record { txg: tx.txg(), seq, fold_case: false, order, body };
        promises.push(zil::ReplayEntry { record, block: None });
    }

    fn random_u64(&self) -> u64 {
        self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }
}

/// A file system that is open for writing.
pub(crate) struct TestFs {
    pub(crate) objset: Objset,
    pub(crate) memory: Arc<MemoryStore>,
    pub(crate) transactions: Arc<TestTransactions>,
    pub(crate) writer: FsWriter,
}

pub(crate) fn time_at(seconds: i64) -> Time {
    Time { seconds, nanoseconds: 5 }
}

pub(crate) fn credentials(seconds: i64) -> ChangeContext {
    ChangeContext { credentials: Credentials::new(1000, 100), now: time_at(seconds) }
}

pub(crate) fn fs_options() -> FsCreateOptions {
    FsCreateOptions {
        version: 5,
        case: CaseSensitivity::Sensitive,
        normalization: 0,
        utf8_only: false,
        owner: (0, 0),
        now: time_at(1),
        has_projects: true,
        dnode_slots: 1,
    }
}

impl TestFs {
    pub(crate) fn new(settings: WriteSettings) -> Self {
        Self::with_options(&fs_options(), settings)
    }

    pub(crate) fn with_options(new: &FsCreateOptions, settings: WriteSettings) -> Self {
        let (objset, memory) = empty_objset(Kind::Filesystem);
        let groups = Txgs::new(Txg::new(3), TxgLimits::default());
        let mut random = 77_u64;
        let mut draw = || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            random
        };
        let tx = groups.begin_tx().expect("a group");
        zpl::create_fs(&objset, &tx, new, &mut draw).expect("a new file system");
        drop(tx);
        let (random, promises) = (AtomicU64::new(3), Mutex::default());
        let transactions = Arc::new(TestTransactions {
            txgs: groups,
            random,
            records: promises,
            read_fault: Mutex::default(),
        });
        let fs = Fs::open(objset.clone(), FsOptions::default(), None).expect("file system").0;
        let writer =
            FsWriter::new(fs, Arc::clone(&transactions) as Arc<dyn Transactions>, settings)
                .expect("writer");
        Self { objset, memory, transactions, writer }
    }

    /// Writes all that was changed; gives where it begins.
    pub(crate) fn sync(&self) -> Blkptr {
        let txg = self.transactions.txgs.quiesce();
        let root = self.memory.sync_objset(&self.objset, txg).expect("sync").root;
        self.transactions.txgs.finish_sync(txg);
        root
    }

    /// The stored file system, opened again.
    pub(crate) fn reopen_read_only(&self) -> Fs {
        Fs::open(self.stored_objset(&self.sync()), FsOptions::default(), None)
            .expect("file system")
            .0
    }

    fn stored_objset(&self, root: &Blkptr) -> Objset {
        open_stored(&self.memory, &self.objset, root)
    }

    /// The file system as it is stored, opened for writing: as after a crash.
    pub(crate) fn reopen(&self, settings: WriteSettings) -> Self {
        self.reopen_from(&self.sync(), settings)
    }

    /// The same in an earlier stored state.
    pub(crate) fn reopen_from(&self, root: &Blkptr, settings: WriteSettings) -> Self {
        self.reopen_in(Arc::clone(&self.memory), root, settings)
    }

    /// The same in a copy of the memory.
    pub(crate) fn reopen_copy(&self, root: &Blkptr, settings: WriteSettings) -> Self {
        self.reopen_in(self.memory.duplicate(), root, settings)
    }

    fn reopen_in(&self, memory: Arc<MemoryStore>, root: &Blkptr, settings: WriteSettings) -> Self {
        let objset = open_stored(&memory, &self.objset, root).to_writable();
        let groups = Txgs::new(self.transactions.txgs.synced_txg(), TxgLimits::default());
        let (random, promises) = (AtomicU64::new(5), Mutex::default());
        let host = Arc::new(TestTransactions {
            txgs: groups,
            random,
            records: promises,
            read_fault: Mutex::default(),
        });
        let fs = Fs::open(objset.clone(), FsOptions::default(), None).expect("file system").0;
        let begin = Arc::clone(&host) as Arc<dyn Transactions>;
        let writer = FsWriter::new(fs, begin, settings).expect("writer");
        Self { objset, memory, transactions: host, writer }
    }
}

fn open_stored(memory: &Arc<MemoryStore>, objset: &Objset, root: &Blkptr) -> Objset {
    let source = Arc::clone(memory) as Arc<dyn zio::Source>;
    Objset::open(source, objset.id(), root, None).expect("object set")
}
