//! The upgrade of a file system to a newer version (`zfs upgrade`).
//!
//! Files and directory entries keep the form in which they were written: a file system of version 5 may hold znodes of
//! older versions. The upgrade changes the master node only: `VERSION`, and from version 5 on `SA_ATTRS`, the tables of
//! system attributes.

use dmu::Objset;
use ondisk::ObjectType;
use txg::Tx;
use zap::{NewZap, Zap};

use crate::Result;
use crate::master_node::{MASTER_NODE, MasterNode};
use crate::new_znode::SA_VERSION;

/// Raises the version of a file system, and returns the version that it had. A version that is not newer changes
/// nothing. An open [`crate::Fs`] keeps the old version: the caller closes it. `random` stirs the hash of a new table.
///
/// # Errors
///
/// The master node cannot be read or changed.
pub fn upgrade_fs(
    objset: &Objset,
    tx: &Tx,
    version: u64,
    random: &mut dyn FnMut() -> u64,
) -> Result<u64> {
    let master = MasterNode::read(objset)?;
    if version <= master.version {
        return Ok(master.version);
    }
    let put = |name: &[u8], word: u64| {
        Ok::<_, crate::Error>(Zap::open(objset.object(MASTER_NODE)?)?.update_u64(tx, name, word)?)
    };
    if version >= SA_VERSION && !master.sa_master.exists() {
        let table = NewZap { salt: random(), ..NewZap::default() };
        let tables = Zap::create(objset, tx, ObjectType::SA_MASTER_NODE, &table)?;
        put(b"SA_ATTRS", tables.object().id().get())?;
    }
    put(b"VERSION", version)?;
    Ok(master.version)
}
