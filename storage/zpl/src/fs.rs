//! A file system: its root, its files by number, its domains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dmu::Objset;
use ondisk::nvlist::Nvlist;
use ondisk::objset::Kind as ObjsetKind;
use parking_lot::RwLockReadGuard;
use units::ObjectId;
use zap::Zap;

use crate::attributes::AttributeError;
use crate::locks::FileLocks;
use crate::log_overlay::LogOverlay;
use crate::replay::{self, ReplaySummary};
use crate::sa_schema::SaSchema;
use crate::zap_cache::ZapCache;
use crate::{Error, Inode, MasterNode, Result, ZnodeAttributes};

/// Options of a reader. The default shows everything that is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsOptions {
    /// Show POSIX ACLs among the extended attributes (the dataset's property `acltype=posix`).
    pub posix_acls: bool,
    /// Show extended attributes of users (the dataset's property `xattr` is not `off`).
    pub user_xattrs: bool,
    /// The dataset was received redacted (its property `redact_snaps` is set): holes in files are
    /// errors, because redacted ranges look the same.
    pub is_redacted: bool,
    /// The largest block that files get (the dataset's property `recordsize`), bytes.
    pub record_size: u32,
}

impl Default for FsOptions {
    fn default() -> Self {
        Self { posix_acls: true, user_xattrs: true, is_redacted: false, record_size: 128 << 10 }
    }
}

/// A file system. Cheap to clone.
#[derive(Clone)]
pub struct Fs {
    pub(crate) inner: Arc<FsInner>,
}

/// The state that all clones of a file system share.
pub(crate) struct FsInner {
    pub(crate) objset: Objset,
    pub(crate) master: MasterNode,
    pub(crate) schema: Arc<SaSchema>,
    /// The options at the opening; [`FsInner::options`] has the present ones.
    pub(crate) options: FsOptions,
    shows_posix_acls: AtomicBool,
    shows_user_xattrs: AtomicBool,
    pub(crate) log_overlay: LogOverlay,
    pub(crate) zap_cache: ZapCache,
    pub(crate) locks: FileLocks,
}

impl Fs {
    /// Opens the file system that an object set holds. If `log` gives records, they are laid over
    /// it in memory, as an import would replay them; without it the last txg shows as it is.
    pub fn open(
        objset: Objset,
        options: FsOptions,
        log: Option<&mut zil::LogReader>,
    ) -> Result<(Self, ReplaySummary)> {
        if objset.header().kind != ObjsetKind::Filesystem {
            return Err(Error::NotFilesystem { objset: objset.id() });
        }
        let master = MasterNode::read(&objset)?;
        let schema = Arc::new(SaSchema::read(&objset, master.version, master.sa_master)?);
        let overlay = LogOverlay::default();
        let tables = ZapCache::default();
        let locks = FileLocks::default();
        let mut inner = FsInner {
            objset,
            master,
            schema,
            options,
            shows_posix_acls: AtomicBool::new(options.posix_acls),
            shows_user_xattrs: AtomicBool::new(options.user_xattrs),
            log_overlay: overlay,
            zap_cache: tables,
            locks,
        };
        let replayed = match log {
            Some(log) => replay::apply_log(&mut inner, log),
            None => ReplaySummary::default(),
        };
        Ok((Self { inner: Arc::new(inner) }, replayed))
    }

    /// The object set.
    pub fn objset(&self) -> &Objset {
        &self.inner.objset
    }

    /// The content of the master node.
    pub fn master(&self) -> &MasterNode {
        &self.inner.master
    }

    /// The options of the reader.
    pub fn options(&self) -> FsOptions {
        self.inner.options()
    }

    /// Changes which extended attributes are shown and can be set, for all clones of the file system.
    pub fn set_shown_xattrs(&self, posix_acls: bool, user_xattrs: bool) {
        self.inner.shows_posix_acls.store(posix_acls, Ordering::Relaxed);
        self.inner.shows_user_xattrs.store(user_xattrs, Ordering::Relaxed);
    }

    /// The topmost directory.
    pub fn root(&self) -> Result<Inode> {
        self.inode(self.inner.master.root)
    }

    /// The file of that number.
    pub fn inode(&self, id: ObjectId) -> Result<Inode> {
        Inode::open(self.clone(), id)
    }

    /// The attributes of a file by its number: cheaper than opening it.
    pub fn attributes(&self, id: ObjectId) -> Result<ZnodeAttributes> {
        let _guard = self.inner.read_lock(id);
        self.inner.attributes(id)
    }

    /// Unlinked files that were open and still use space: calls `visit` until it returns false.
    pub fn for_each_unlinked(&self, visit: &mut dyn FnMut(ObjectId) -> bool) -> Result<()> {
        let table = self.inner.master.unlinked_set;
        if !table.exists() {
            return Ok(());
        }
        for entry in Zap::open(self.inner.objset.object(table)?)?.entries() {
            let Some(id) = entry?.value.u64() else { continue };
            if !visit(ObjectId::new(id)) {
                break;
            }
        }
        Ok(())
    }

    /// The domains that the upper halves of owners and groups refer to, with their indexes: SIDs
    /// of Windows, without their last number.
    pub fn fuid_domains(&self) -> Result<Vec<(u64, String)>> {
        let id = self.inner.master.fuid_table;
        if !id.exists() {
            return Ok(Vec::new());
        }
        let object = self.inner.objset.object(id)?;
        let corrupt = |why| Error::Corrupt { objset: self.inner.objset.id(), object: id, why };
        let size = ondisk::Reader::new("FUID table size", object.bonus(), object.bonus_order())
            .u64()
            .map_err(corrupt)?;
        let size = size.min(MAX_FUID_TABLE);
        let mut bytes = vec![0; units::to_usize(size)];
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        object.read(0, &mut bytes)?;
        let list = Nvlist::decode(&bytes).map_err(corrupt)?;
        let domain = |each: &Nvlist| Some((each.u64("fuid_idx")?, each.text("fuid_domain")?));
        Ok(list.nvlists("fuid_nvlist").iter().filter_map(domain).collect())
    }
}

/// The table of domains is small; a damaged size must not claim all memory.
const MAX_FUID_TABLE: u64 = 16 << 20;

impl FsInner {
    /// The options with the present values of the properties.
    pub(crate) fn options(&self) -> FsOptions {
        FsOptions {
            posix_acls: self.shows_posix_acls.load(Ordering::Relaxed),
            user_xattrs: self.shows_user_xattrs.load(Ordering::Relaxed),
            ..self.options
        }
    }

    /// Adds the file to an error.
    pub(crate) fn attribute_error(&self, object: ObjectId, fault: AttributeError) -> Error {
        let objset = self.objset.id();
        match fault {
            AttributeError::Format(why) => Error::Corrupt { objset, object, why },
            AttributeError::Rule(rule) => Error::Malformed { objset, object, rule },
            AttributeError::Dmu(why) => why.into(),
        }
    }

    /// The attributes of a file, as the log leaves them if there is one.
    pub(crate) fn attributes(&self, id: ObjectId) -> Result<ZnodeAttributes> {
        match self.log_overlay.get(id) {
            Some(change) if change.is_removed => Err(self.not_found(id)),
            Some(change) => Ok(change.attributes),
            None => {
                let object = self.objset.object(id)?;
                ZnodeAttributes::from_dnode(object.dnode(), &|| object.spill(), &self.schema)
                    .map_err(|fault| self.attribute_error(id, fault))
            }
        }
    }

    /// The table of a directory.
    pub(crate) fn open_zap(&self, dir: ObjectId) -> Result<Zap> {
        self.zap_cache.get_or_open(dir, || Ok(Zap::open(self.objset.object(dir)?)?))
    }

    /// Locks a file of a live object set against changes. A thread never locks two.
    pub(crate) fn read_lock(&self, id: ObjectId) -> Option<RwLockReadGuard<'_, ()>> {
        if self.objset.is_writable() { self.locks.read(id) } else { None }
    }

    pub(crate) fn not_found(&self, object: ObjectId) -> Error {
        Error::NotFound { objset: self.objset.id(), object }
    }
}
