//! The pool's configuration, as it is kept in the pool itself.

use dmu::{NewObject, Objset};
use ondisk::ObjectType;
use ondisk::label::PoolConfig;
use ondisk::nvlist::{Encoding, Nvlist};
use txg::Tx;
use zap::Zap;

use super::ActivePool;
use crate::create::label_features;
use crate::directory::POOL_DIRECTORY;
use crate::{Error, PoolDirectory};

/// Bytes of a block of a packed list.
const BLOCK_SIZE: u32 = 16 << 10;

/// The pool's configuration, and whether the pool and its labels have it.
pub(crate) struct ConfigState {
    pub(crate) current: PoolConfig,
    pub(crate) is_dirty: bool,
    /// As the group that is being written has it, if that is news: its labels are to say the same.
    pub(crate) syncing: Option<PoolConfig>,
}

impl ConfigState {
    /// A configuration that the pool and its labels have.
    pub(super) const fn new(current: PoolConfig) -> Self {
        Self { current, is_dirty: false, syncing: None }
    }
}

impl ActivePool {
    /// Has the labels name the active features without which not even the MOS can be read. A feature
    /// that becomes active when it is enabled is one more.
    pub(super) fn update_label_features(&self) -> Result<(), Error> {
        let active = label_features(&self.mos)?;
        let mut config = self.config.lock();
        let named = &config.current.features_for_read;
        let same = named.len() == active.len() && active.iter().all(|guid| named.contains(guid));
        if !same {
            config.current.features_for_read = active;
            config.is_dirty = true;
        }
        Ok(())
    }

    /// Writes the configuration if it changed.
    pub(super) fn write_config(&self, tx: &Tx) -> Result<(), Error> {
        let config = {
            let mut config = self.config.lock();
            if !config.is_dirty {
                return Ok(());
            }
            config.current.txg = tx.txg();
            // who changes it from now on has it written with the next group
            config.is_dirty = false;
            config.syncing = Some(config.current.clone());
            config.current.clone()
        };
        write_pool_config(&self.mos, tx, &config)
    }
}

/// Writes the configuration into the pool's object for it.
fn write_pool_config(mos: &Objset, tx: &Tx, config: &PoolConfig) -> Result<(), Error> {
    write_packed_nvlist(mos, tx, "config", &config.to_list())
}

/// Writes a list, packed, into the object of that name in the pool's directory; makes that if there
/// is none yet.
pub(crate) fn write_packed_nvlist(
    mos: &Objset,
    tx: &Tx,
    name: &'static str,
    list: &Nvlist,
) -> Result<(), Error> {
    let directory = PoolDirectory::open(mos.clone())?;
    let object = if let Some(object) = directory.object(name)? {
        object
    } else {
        let size = ObjectType::PACKED_NVLIST_SIZE;
        let new =
            NewObject::new(ObjectType::PACKED_NVLIST, BLOCK_SIZE).with_bonus(size, vec![0; 8]);
        let object = mos.create(tx, &new)?;
        let table = Zap::open(mos.object(POOL_DIRECTORY)?)?;
        table.insert_u64(tx, name.as_bytes(), object.id().get())?;
        object
    };
    let bytes = list.encode(Encoding::Xdr);
    let length = units::to_u64(bytes.len());
    object.write(tx, 0, &bytes)?;
    object.free_range(tx, length..u64::MAX)?;
    object.set_bonus(tx, ObjectType::PACKED_NVLIST_SIZE, &length.to_le_bytes())?;
    Ok(())
}
