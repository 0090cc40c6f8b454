//! The pool's directory: object 1 of the MOS, by which everything else is found.

use dmu::{Object, Objset};
use ondisk::Reader;
use ondisk::nvlist::Nvlist;
use units::ObjectId;
use zap::Zap;

use crate::Error;

/// Its number, in every pool.
pub(crate) const DIRECTORY: ObjectId = ObjectId::new(1);
/// No packed list is longer.
const LONGEST_LIST: u64 = 64 << 20;

/// The pool's directory.
#[derive(Clone)]
pub struct Directory {
    mos: Objset,
    table: Zap,
}

impl Directory {
    /// Opens that of a MOS.
    pub fn open(mos: Objset) -> Result<Self, Error> {
        let table = Zap::open(mos.object(DIRECTORY)?)?;
        Ok(Self { mos, table })
    }

    /// The table itself.
    pub fn table(&self) -> &Zap {
        &self.table
    }

    /// The number that an entry holds.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        Ok(self.table.lookup_u64(name.as_bytes())?)
    }

    /// The numbers that an entry holds.
    pub fn numbers(&self, name: &str) -> Result<Option<Vec<u64>>, Error> {
        Ok(self.table.lookup(name.as_bytes())?.map(|value| value.u64s()))
    }

    /// The bytes that an entry holds.
    pub fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.table.lookup(name.as_bytes())?.map(|value| value.bytes().to_vec()))
    }

    /// The object that an entry names.
    pub fn object(&self, name: &str) -> Result<Option<Object>, Error> {
        match self.number(name)? {
            None | Some(0) => Ok(None),
            Some(number) => Ok(Some(self.mos.object(ObjectId::new(number))?)),
        }
    }

    /// The packed list in the object that an entry names.
    pub fn list(&self, name: &str) -> Result<Option<Nvlist>, Error> {
        self.object(name)?.map(|object| packed_list(&object)).transpose()
    }
}

/// The name-value list that an object holds; its bonus says how long it is.
pub(crate) fn packed_list(object: &Object) -> Result<Nvlist, Error> {
    let mut bonus = Reader::new("packed list's size", object.bonus(), object.bonus_order());
    let size = bonus.u64()?;
    if size > LONGEST_LIST {
        return Err(bonus.broken(8, "a packed list is at most 64 MiB", size).into());
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    object.read(0, &mut bytes)?;
    Ok(Nvlist::decode(&bytes)?)
}
