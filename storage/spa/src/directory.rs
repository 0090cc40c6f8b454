//! The pool's directory: object 1 of the MOS, by which everything else is found.

use dmu::{Object, Objset};
use ondisk::Reader;
use ondisk::nvlist::Nvlist;
use units::ObjectId;
use zap::Zap;

use crate::Error;

/// Its number, in every pool.
pub(crate) const POOL_DIRECTORY: ObjectId = ObjectId::new(1);
/// No packed list is longer.
const MAX_LIST_SIZE: u64 = 64 << 20;

/// The pool's directory.
#[derive(Clone)]
pub struct PoolDirectory {
    mos: Objset,
    zap: Zap,
}

impl PoolDirectory {
    /// Opens that of a MOS.
    pub fn open(mos: Objset) -> Result<Self, Error> {
        let table = Zap::open(mos.object(POOL_DIRECTORY)?)?;
        Ok(Self { mos, zap: table })
    }

    /// The MOS.
    pub(crate) const fn mos(&self) -> &Objset {
        &self.mos
    }

    /// The table itself.
    pub fn zap(&self) -> &Zap {
        &self.zap
    }

    /// The number that an entry holds.
    pub fn lookup_u64(&self, name: &str) -> Result<Option<u64>, Error> {
        Ok(self.zap.lookup_u64(name.as_bytes())?)
    }

    /// The numbers that an entry holds.
    pub fn lookup_u64s(&self, name: &str) -> Result<Option<Vec<u64>>, Error> {
        Ok(self.zap.lookup(name.as_bytes())?.map(|value| value.u64s()))
    }

    /// The bytes that an entry holds.
    pub fn lookup_bytes(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.zap.lookup(name.as_bytes())?.map(|value| value.bytes().to_vec()))
    }

    /// The object that an entry names.
    pub fn object(&self, name: &str) -> Result<Option<Object>, Error> {
        match self.lookup_u64(name)? {
            None | Some(0) => Ok(None),
            Some(number) => Ok(Some(self.mos.object(ObjectId::new(number))?)),
        }
    }

    /// The packed list in the object that an entry names.
    pub fn nvlist(&self, name: &str) -> Result<Option<Nvlist>, Error> {
        self.object(name)?.map(|object| read_packed_nvlist(&object)).transpose()
    }
}

/// The name-value list of an object; its bonus has the length.
pub(crate) fn read_packed_nvlist(object: &Object) -> Result<Nvlist, Error> {
    let mut bonus = Reader::new("packed list's size", object.bonus(), object.bonus_order());
    let size = bonus.u64()?;
    if size > MAX_LIST_SIZE {
        return Err(bonus.corrupt_field(8, "a packed list is at most 64 MiB", size).into());
    }
    let mut bytes = vec![0; units::to_usize(size)];
    object.read(0, &mut bytes)?;
    Ok(Nvlist::decode(&bytes)?)
}
