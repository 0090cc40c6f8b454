//! The master node: the table with which every file system begins.

use dmu::Objset;
use units::ObjectId;
use zap::Zap;

use crate::{Error, Result};

/// How names are compared (casesensitivity).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Case {
    /// Every difference counts.
    #[default]
    Sensitive,
    /// Case does not count.
    Insensitive,
    /// Case counts, unless a client asks otherwise.
    Mixed,
}

impl Case {
    /// The number that stands for it in the master node.
    pub const fn number(self) -> u64 {
        match self {
            Self::Sensitive => 0,
            Self::Insensitive => 1,
            Self::Mixed => 2,
        }
    }
}

/// What the master node says of the whole file system. Objects that do not exist are 0.
#[derive(Clone, Debug, Default)]
pub struct Master {
    /// The version of the file system, 1 to 5.
    pub version: u64,
    /// The topmost directory.
    pub root: ObjectId,
    /// The tables that name the system attributes; 0 before version 5.
    pub attributes: ObjectId,
    /// The table of the domains that owners come from.
    pub domains: ObjectId,
    /// Files that were removed while they were open.
    pub unlinked: ObjectId,
    /// A directory of shares, kept for SMB.
    pub shares: ObjectId,
    /// Limits by owner, owning group and project, of space and of objects: six tables.
    pub quotas: [ObjectId; 6],
    /// How names are compared.
    pub case: Case,
    /// How names are normalized before they are compared: bits 4 and 5 decomposed (canonically,
    /// for compatibility), 6 composed again; 0 not at all.
    pub normalization: u64,
    /// Names are UTF-8 and nothing else.
    pub utf8_only: bool,
}

/// The object that holds it.
pub(crate) const OBJECT: ObjectId = ObjectId::new(1);
const NEWEST: u64 = 5;
const QUOTAS: [&[u8]; 6] = [
    b"userquota@",
    b"groupquota@",
    b"projectquota@",
    b"userobjquota@",
    b"groupobjquota@",
    b"projectobjquota@",
];

impl Master {
    pub(crate) fn read(objset: &Objset) -> Result<Self> {
        let zap = Zap::open(objset.object(OBJECT)?)?;
        let word = |name: &[u8]| zap.lookup_u64(name);
        let object = |name: &[u8]| word(name).map(|id| ObjectId::new(id.unwrap_or(0)));
        let mut quotas = [ObjectId::default(); 6];
        for (slot, name) in quotas.iter_mut().zip(QUOTAS) {
            *slot = object(name)?;
        }
        let version = word(b"VERSION")?.unwrap_or(1);
        let root = object(b"ROOT")?;
        if version == 0 || version > NEWEST {
            return Err(Error::Version { objset: objset.id(), version });
        }
        if !root.exists() {
            let rule = "the master node must name the root directory";
            return Err(Error::Rule { objset: objset.id(), object: OBJECT, rule });
        }
        Ok(Self {
            version,
            root,
            attributes: object(b"SA_ATTRS")?,
            domains: object(b"FUID")?,
            unlinked: object(b"DELETE_QUEUE")?,
            shares: object(b"SHARES")?,
            quotas,
            case: match word(b"casesensitivity")? {
                Some(1) => Case::Insensitive,
                Some(2) => Case::Mixed,
                _ => Case::Sensitive,
            },
            normalization: word(b"normalization")?.unwrap_or(0),
            utf8_only: word(b"utf8only")?.is_some_and(|flag| flag != 0),
        })
    }
}
