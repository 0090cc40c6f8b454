//! A file system in memory that can be written to, synced, and opened anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dmu::Objset;
use dmu::memory::{MemoryStore, empty_objset};
use ondisk::objset::Kind;
use ondisk::zil::{Body, Record, Write};
use ondisk::znode::Time;
use ondisk::{Blkptr, Order};
use parking_lot::Mutex;
use txg::{Groups, Limits, Tx};
use units::Txg;
use zpl::{Begin, Caller, Case, Error, Fs, Need, NewFs, Options, Promise, Settings, Writer};

/// Transactions from groups, promises kept as text.
pub(crate) struct Host {
    pub(crate) groups: Groups,
    pub(crate) random: AtomicU64,
    /// What was promised, if anyone wants to know.
    pub(crate) promises: Mutex<Option<Vec<zil::Entry>>>,
    /// With the next transaction reads begin to fail, after so many.
    pub(crate) failing: Mutex<Option<(Arc<MemoryStore>, usize)>>,
}

impl Begin for Host {
    fn begin(&self, need: &Need) -> zpl::Result<Tx> {
        if !need.ahead
            && let Some((memory, reads)) = self.failing.lock().take()
        {
            memory.fail_after(Some(reads));
        }
        self.groups.begin().ok_or(Error::Stopped { objset: units::ObjsetId::new(54) })
    }

    fn promise(&self, tx: &Tx, promise: Promise<'_>) {
        let mut promises = self.promises.lock();
        let Some(promises) = &mut *promises else { return };
        let body = match promise {
            Promise::Record(body) | Promise::Hidden(body) => body,
            Promise::Write { object, offset, bytes } => Body::Write(Box::new(Write {
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
        promises.push(zil::Entry { record, block: None });
    }

    fn random(&self) -> u64 {
        self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }
}

/// A file system that is open for writing.
pub(crate) struct Pool {
    pub(crate) objset: Objset,
    pub(crate) memory: Arc<MemoryStore>,
    pub(crate) host: Arc<Host>,
    pub(crate) writer: Writer,
}

pub(crate) fn at(seconds: i64) -> Time {
    Time { seconds, nanoseconds: 5 }
}

pub(crate) fn caller(seconds: i64) -> Caller {
    Caller { uid: 1000, gid: 100, now: at(seconds), keeps_setid: false }
}

pub(crate) fn new_fs() -> NewFs {
    NewFs {
        version: 5,
        case: Case::Sensitive,
        normalization: 0,
        utf8_only: false,
        owner: (0, 0),
        now: at(1),
        projects: true,
        slots: 1,
    }
}

impl Pool {
    pub(crate) fn new(settings: Settings) -> Self {
        Self::of(&new_fs(), settings)
    }

    pub(crate) fn of(new: &NewFs, settings: Settings) -> Self {
        let (objset, memory) = empty_objset(Kind::Filesystem);
        let groups = Groups::new(Txg::new(3), Limits::default());
        let mut random = 77_u64;
        let mut draw = || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            random
        };
        let tx = groups.begin().expect("a group");
        zpl::create(&objset, &tx, new, &mut draw).expect("a new file system");
        drop(tx);
        let (random, promises) = (AtomicU64::new(3), Mutex::default());
        let host = Arc::new(Host { groups, random, promises, failing: Mutex::default() });
        let fs = Fs::open(objset.clone(), Options::default(), None).expect("file system").0;
        let writer =
            Writer::new(fs, Arc::clone(&host) as Arc<dyn Begin>, settings).expect("writer");
        Self { objset, memory, host, writer }
    }

    /// Writes all that was changed; gives where it begins.
    pub(crate) fn sync(&self) -> Blkptr {
        let txg = self.host.groups.quiesce();
        let root = self.memory.sync_objset(&self.objset, txg).expect("sync").root;
        self.host.groups.finish(txg);
        root
    }

    /// The file system as it is stored, opened anew.
    pub(crate) fn cold(&self) -> Fs {
        Fs::open(self.stored(&self.sync()), Options::default(), None).expect("file system").0
    }

    fn stored(&self, root: &Blkptr) -> Objset {
        stored(&self.memory, &self.objset, root)
    }

    /// The file system as it is stored, opened for writing: as after a crash.
    pub(crate) fn again(&self, settings: Settings) -> Self {
        self.again_from(&self.sync(), settings)
    }

    /// The same as it was stored before.
    pub(crate) fn again_from(&self, root: &Blkptr, settings: Settings) -> Self {
        self.again_in(Arc::clone(&self.memory), root, settings)
    }

    /// The same in a copy of the memory.
    pub(crate) fn copy_from(&self, root: &Blkptr, settings: Settings) -> Self {
        self.again_in(self.memory.duplicate(), root, settings)
    }

    fn again_in(&self, memory: Arc<MemoryStore>, root: &Blkptr, settings: Settings) -> Self {
        let objset = stored(&memory, &self.objset, root).to_writable();
        let groups = Groups::new(self.host.groups.synced(), Limits::default());
        let (random, promises) = (AtomicU64::new(5), Mutex::default());
        let host = Arc::new(Host { groups, random, promises, failing: Mutex::default() });
        let fs = Fs::open(objset.clone(), Options::default(), None).expect("file system").0;
        let begin = Arc::clone(&host) as Arc<dyn Begin>;
        let writer = Writer::new(fs, begin, settings).expect("writer");
        Self { objset, memory, host, writer }
    }
}

fn stored(memory: &Arc<MemoryStore>, objset: &Objset, root: &Blkptr) -> Objset {
    let source = Arc::clone(memory) as Arc<dyn zio::Source>;
    Objset::open(source, objset.id(), root, None).expect("object set")
}
