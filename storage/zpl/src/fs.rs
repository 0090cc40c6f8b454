//! A file system: its root, its files by number, its domains.

use std::sync::Arc;

use dmu::Objset;
use ondisk::nvlist::Nvlist;
use ondisk::objset::Kind as ObjsetKind;
use parking_lot::RwLockReadGuard;
use units::ObjectId;
use zap::Zap;

use crate::attributes::Fault;
use crate::locks::Locks;
use crate::overlay::Overlay;
use crate::recent::Recent;
use crate::replay::{self, Replayed};
use crate::schema::Schema;
use crate::{Attributes, Error, Master, Node, Result};

/// What a caller wants to see. The default shows everything that is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Show POSIX ACLs among the extended attributes (the dataset's property `acltype=posix`).
    pub posix_acls: bool,
    /// Show extended attributes of users (the dataset's property `xattr` is not `off`).
    pub user_xattrs: bool,
    /// The dataset was received redacted (its property `redact_snaps` is set): holes in files are
    /// errors, as what was left out looks the same.
    pub redacted: bool,
    /// The largest block that files get (the dataset's property `recordsize`), bytes.
    pub record_size: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { posix_acls: true, user_xattrs: true, redacted: false, record_size: 128 << 10 }
    }
}

/// A file system. Cheap to clone.
#[derive(Clone)]
pub struct Fs {
    pub(crate) inner: Arc<Inner>,
}

/// What all clones of a file system share.
pub(crate) struct Inner {
    pub(crate) objset: Objset,
    pub(crate) master: Master,
    pub(crate) schema: Arc<Schema>,
    pub(crate) options: Options,
    pub(crate) overlay: Overlay,
    pub(crate) tables: Recent,
    pub(crate) locks: Locks,
}

impl Fs {
    /// Opens the file system that an object set holds. If `log` gives records, they are laid over
    /// it in memory, as an import would replay them; without it the last txg shows as it is.
    pub fn open(
        objset: Objset,
        options: Options,
        log: Option<&mut zil::Records>,
    ) -> Result<(Self, Replayed)> {
        if objset.header().kind != ObjsetKind::Filesystem {
            return Err(Error::NotFiles { objset: objset.id() });
        }
        let master = Master::read(&objset)?;
        let schema = Arc::new(Schema::read(&objset, master.version, master.attributes)?);
        let overlay = Overlay::default();
        let tables = Recent::default();
        let locks = Locks::default();
        let mut inner = Inner { objset, master, schema, options, overlay, tables, locks };
        let replayed = match log {
            Some(log) => replay::apply(&mut inner, log),
            None => Replayed::default(),
        };
        Ok((Self { inner: Arc::new(inner) }, replayed))
    }

    /// The object set.
    pub fn objset(&self) -> &Objset {
        &self.inner.objset
    }

    /// What the master node says.
    pub fn master(&self) -> &Master {
        &self.inner.master
    }

    /// What the caller wants to see.
    pub fn options(&self) -> Options {
        self.inner.options
    }

    /// The topmost directory.
    pub fn root(&self) -> Result<Node> {
        self.node(self.inner.master.root)
    }

    /// The file of that number.
    pub fn node(&self, id: ObjectId) -> Result<Node> {
        Node::open(self.clone(), id)
    }

    /// What there is to know of a file by its number: cheaper than opening it.
    pub fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        let _guard = self.inner.guard(id);
        self.inner.attributes(id)
    }

    /// Files that were removed while they were open and still take space, streamed to `visit`
    /// until it says false.
    pub fn unlinked(&self, visit: &mut dyn FnMut(ObjectId) -> bool) -> Result<()> {
        let table = self.inner.master.unlinked;
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
    pub fn domains(&self) -> Result<Vec<(u64, String)>> {
        let id = self.inner.master.domains;
        if !id.exists() {
            return Ok(Vec::new());
        }
        let object = self.inner.objset.object(id)?;
        let corrupt = |why| Error::Corrupt { objset: self.inner.objset.id(), object: id, why };
        let size = ondisk::Reader::new("FUID table size", object.bonus(), object.bonus_order())
            .u64()
            .map_err(corrupt)?;
        let size = size.min(LARGEST_DOMAINS);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        object.read(0, &mut bytes)?;
        let list = Nvlist::decode(&bytes).map_err(corrupt)?;
        let domain = |each: &Nvlist| Some((each.u64("fuid_idx")?, each.text("fuid_domain")?));
        Ok(list.nvlists("fuid_nvlist").iter().filter_map(domain).collect())
    }
}

/// The table of domains is small; a damaged size must not ask for all memory.
const LARGEST_DOMAINS: u64 = 16 << 20;

impl Inner {
    /// Says of which file a fault is.
    pub(crate) fn fault(&self, object: ObjectId, fault: Fault) -> Error {
        let objset = self.objset.id();
        match fault {
            Fault::Format(why) => Error::Corrupt { objset, object, why },
            Fault::Rule(rule) => Error::Rule { objset, object, rule },
            Fault::Dmu(why) => why.into(),
        }
    }

    /// The attributes of a file, as the log leaves them if there is one.
    pub(crate) fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        match self.overlay.get(id) {
            Some(change) if change.is_gone => Err(self.gone(id)),
            Some(change) => Ok(change.attributes),
            None => {
                let object = self.objset.object(id)?;
                Attributes::of(object.dnode(), &|| object.spill(), &self.schema)
                    .map_err(|fault| self.fault(id, fault))
            }
        }
    }

    /// The table of a directory.
    pub(crate) fn table(&self, dir: ObjectId) -> Result<Zap> {
        self.tables.find(dir, || Ok(Zap::open(self.objset.object(dir)?)?))
    }

    /// Keeps a file of a live object set as it is. Nobody takes two.
    pub(crate) fn guard(&self, id: ObjectId) -> Option<RwLockReadGuard<'_, ()>> {
        if self.objset.is_writable() { self.locks.read(id) } else { None }
    }

    pub(crate) fn gone(&self, object: ObjectId) -> Error {
        Error::Gone { objset: self.objset.id(), object }
    }
}
