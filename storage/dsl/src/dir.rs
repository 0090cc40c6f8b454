//! A directory of the pool's tree.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use dmu::{Object, Objset};
use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use ondisk::object_type::Content;
use units::{ObjectId, ObjsetId};
use zap::{Zap, ZapValue};

use crate::local_properties::LocalProperties;
use crate::{Error, Result};

/// A directory: the state that a file system or volume shares with its snapshots.
#[derive(Debug)]
pub struct Dir {
    id: ObjectId,
    path: String,
    parent: Option<Arc<Dir>>,
    object: Object,
    phys: DirPhys,
    local_properties: OnceLock<Arc<LocalProperties>>,
    snapshots: OnceLock<Arc<SnapshotIndex>>,
    /// The kind of its datasets' content.
    pub(crate) objset_kind: OnceLock<ondisk::objset::Kind>,
}

/// The snapshots of a directory by name and by object.
#[derive(Debug, Default)]
pub(crate) struct SnapshotIndex {
    pub(crate) by_name: HashMap<String, ObjsetId>,
    pub(crate) by_id: HashMap<ObjsetId, String>,
}

impl Dir {
    pub(crate) fn read(
        mos: &Objset,
        id: ObjectId,
        path: String,
        parent: Option<Arc<Self>>,
    ) -> Result<Self> {
        let object = mos.object(id)?;
        let phys = DirPhys::parse(object.bonus(), object.bonus_order())
            .map_err(|error| Error::Corrupt { object: id, why: error })?;
        let (settings, snapshots) = (OnceLock::new(), OnceLock::new());
        let content = OnceLock::new();
        Ok(Self {
            id,
            path,
            parent,
            object,
            phys,
            local_properties: settings,
            snapshots,
            objset_kind: content,
        })
    }

    /// Its object in the MOS.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Its full name: `pool/a/b`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The directory above.
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// Its record.
    pub fn phys(&self) -> &DirPhys {
        &self.phys
    }

    /// Itself and all above, upwards.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |dir| dir.parent.as_deref())
    }

    /// Whether it is one of the pool's own (`$MOS`, ...) or half received (`%recv`), or below one.
    pub fn is_hidden(&self) -> bool {
        self.path.contains(['$', '%'])
    }

    /// One of the newer fields, which stand in a ZAP.
    pub fn zap_field(&self, name: &str) -> Result<Option<ZapValue>> {
        read_zap_field(&self.object, name)
    }

    /// The object that one of the newer fields names.
    pub(crate) fn zap_field_object(&self, name: &str) -> Result<Option<ObjectId>> {
        let id = self.zap_field(name)?.and_then(|value| value.u64());
        Ok(id.map(ObjectId::new).filter(|id| id.exists()))
    }

    /// The properties set here.
    pub(crate) fn local_properties(&self) -> Result<Arc<LocalProperties>> {
        if let Some(known) = self.local_properties.get() {
            return Ok(Arc::clone(known));
        }
        let read = Arc::new(LocalProperties::read(self.object.objset(), self.phys.properties)?);
        Ok(Arc::clone(self.local_properties.get_or_init(|| read)))
    }

    /// The record of its head.
    pub(crate) fn head(&self) -> Result<(Object, DatasetPhys)> {
        if !self.phys.head.exists() {
            return Err(Error::NoContent { name: self.path.clone() });
        }
        dataset_record(self.object.objset(), ObjsetId::new(self.phys.head.get()))
    }

    /// Its snapshots.
    pub(crate) fn snapshots(&self) -> Result<Arc<SnapshotIndex>> {
        if let Some(known) = self.snapshots.get() {
            return Ok(Arc::clone(known));
        }
        let mut found = SnapshotIndex::default();
        if self.phys.head.exists() {
            let names = self.head()?.1.snapshot_names;
            for entry in open_zap(self.object.objset(), names)?.iter().flat_map(Zap::entries) {
                let entry = entry?;
                let Some(id) = entry.value.u64() else { continue };
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                found.by_id.insert(ObjsetId::new(id), name.clone());
                found.by_name.insert(name, ObjsetId::new(id));
            }
        }
        Ok(Arc::clone(self.snapshots.get_or_init(|| Arc::new(found))))
    }
}

/// A dataset's object and record.
pub(crate) fn dataset_record(mos: &Objset, id: ObjsetId) -> Result<(Object, DatasetPhys)> {
    let id = ObjectId::new(id.get());
    let object = mos.object(id)?;
    let phys = DatasetPhys::parse(object.bonus(), object.bonus_order())
        .map_err(|error| Error::Corrupt { object: id, why: error })?;
    Ok((object, phys))
}

/// The table in an object of the MOS; `None` where the field that names it is 0.
pub(crate) fn open_zap(mos: &Objset, id: ObjectId) -> Result<Option<Zap>> {
    if !id.exists() {
        return Ok(None);
    }
    Ok(Some(Zap::open(mos.object(id)?)?))
}

/// An optional field of a directory or dataset, from the ZAP in its object's data.
pub(crate) fn read_zap_field(object: &Object, name: &str) -> Result<Option<ZapValue>> {
    if object.dnode().kind.content() != Content::Zap {
        return Ok(None);
    }
    Ok(Zap::open(object.clone())?.lookup(name.as_bytes())?)
}
