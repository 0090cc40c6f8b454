//! The master node: the table with which every file system begins.

use dmu::Objset;
use units::ObjectId;
use zap::Zap;

use crate::{Error, Result};

/// How names are compared (casesensitivity).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CaseSensitivity {
    /// Every difference counts.
    #[default]
    Sensitive,
    /// Case does not count.
    Insensitive,
    /// Case counts, unless a client asks otherwise.
    Mixed,
}

impl CaseSensitivity {
    /// The number that stands for it in the master node.
    pub const fn number(self) -> u64 {
        match self {
            Self::Sensitive => 0,
            Self::Insensitive => 1,
            Self::Mixed => 2,
        }
    }
}

/// The content of the master node. Objects that do not exist are 0.
#[derive(Clone, Debug, Default)]
pub struct MasterNode {
    /// The version of the file system, 1 to 5.
    pub version: u64,
    /// The topmost directory.
    pub root: ObjectId,
    /// The tables that name the system attributes; 0 before version 5.
    pub sa_master: ObjectId,
    /// The table of the domains that owners come from.
    pub fuid_table: ObjectId,
    /// Files that were removed while they were open.
    pub unlinked_set: ObjectId,
    /// A directory of shares, kept for SMB.
    pub shares: ObjectId,
    /// Limits by owner, owning group and project, of space and of objects: six tables.
    pub quotas: [ObjectId; 6],
    /// How names are compared.
    pub case: CaseSensitivity,
    /// How names are normalized before they are compared: bits 4 and 5 decomposed (canonically,
    /// for compatibility), 6 composed again; 0 not at all.
    pub normalization: u64,
    /// Names are UTF-8 and nothing else.
    pub utf8_only: bool,
}

/// The object that holds it.
pub(crate) const MASTER_NODE: ObjectId = ObjectId::new(1);
const MAX_VERSION: u64 = 5;
const QUOTA_KEYS: [&[u8]; 6] = [
    b"userquota@",
    b"groupquota@",
    b"projectquota@",
    b"userobjquota@",
    b"groupobjquota@",
    b"projectobjquota@",
];

impl MasterNode {
    pub(crate) fn read(objset: &Objset) -> Result<Self> {
        let zap = Zap::open(objset.object(MASTER_NODE)?)?;
        let word = |name: &[u8]| zap.lookup_u64(name);
        let object = |name: &[u8]| word(name).map(|id| ObjectId::new(id.unwrap_or(0)));
        let mut quotas = [ObjectId::default(); 6];
        for (slot, name) in quotas.iter_mut().zip(QUOTA_KEYS) {
            *slot = object(name)?;
        }
        let version = word(b"VERSION")?.unwrap_or(1);
        let root = object(b"ROOT")?;
        if version == 0 || version > MAX_VERSION {
            return Err(Error::Version { objset: objset.id(), version });
        }
        if !root.exists() {
            let rule = "the master node must name the root directory";
            return Err(Error::Malformed { objset: objset.id(), object: MASTER_NODE, rule });
        }
        Ok(Self {
            version,
            root,
            sa_master: object(b"SA_ATTRS")?,
            fuid_table: object(b"FUID")?,
            unlinked_set: object(b"DELETE_QUEUE")?,
            shares: object(b"SHARES")?,
            quotas,
            case: match word(b"casesensitivity")? {
                Some(1) => CaseSensitivity::Insensitive,
                Some(2) => CaseSensitivity::Mixed,
                _ => CaseSensitivity::Sensitive,
            },
            normalization: word(b"normalization")?.unwrap_or(0),
            utf8_only: word(b"utf8only")?.is_some_and(|flag| flag != 0),
        })
    }
}
