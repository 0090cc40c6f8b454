//! The result of a procedure or operation. NFSv3 and NFSv4 give the same numbers to what both have.

/// The result of a procedure (`nfsstat3`, `nfsstat4`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u32);

macro_rules! statuses {
    ($($name:ident = $number:literal),+ $(,)?) => {
        #[expect(missing_docs, reason = "RFC 1813, section 2.6, and RFC 5661, section 15, explain each")]
        impl Status {
            $(pub const $name: Self = Self($number);)+

            /// The name in the protocol.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    OK = 0, PERM = 1, NOENT = 2, IO = 5, NXIO = 6, ACCESS = 13, EXIST = 17, XDEV = 18, NOTDIR = 20, ISDIR = 21,
    INVAL = 22, FBIG = 27, NOSPC = 28, ROFS = 30, MLINK = 31, NAMETOOLONG = 63, NOTEMPTY = 66, DQUOT = 69, STALE = 70,
    BADHANDLE = 10_001, NOT_SYNC = 10_002, BAD_COOKIE = 10_003, NOTSUPP = 10_004, TOOSMALL = 10_005,
    SERVERFAULT = 10_006, BADTYPE = 10_007, DELAY = 10_008, SAME = 10_009, DENIED = 10_010, EXPIRED = 10_011,
    LOCKED = 10_012, GRACE = 10_013, SHARE_DENIED = 10_015, WRONGSEC = 10_016, CLID_INUSE = 10_017,
    RESOURCE = 10_018, NOFILEHANDLE = 10_020, MINOR_VERS_MISMATCH = 10_021, STALE_CLIENTID = 10_022,
    STALE_STATEID = 10_023, OLD_STATEID = 10_024, BAD_STATEID = 10_025, BAD_SEQID = 10_026, NOT_SAME = 10_027,
    LOCK_RANGE = 10_028, SYMLINK = 10_029, RESTOREFH = 10_030, ATTRNOTSUPP = 10_032, NO_GRACE = 10_033,
    RECLAIM_BAD = 10_034, RECLAIM_CONFLICT = 10_035, BADXDR = 10_036, LOCKS_HELD = 10_037, OPENMODE = 10_038,
    BADOWNER = 10_039, BADCHAR = 10_040, BADNAME = 10_041, BAD_RANGE = 10_042, LOCK_NOTSUPP = 10_043,
    OP_ILLEGAL = 10_044, DEADLOCK = 10_045, FILE_OPEN = 10_046, ADMIN_REVOKED = 10_047, CB_PATH_DOWN = 10_048,
    BADSESSION = 10_052, BADSLOT = 10_053, COMPLETE_ALREADY = 10_054, CONN_NOT_BOUND_TO_SESSION = 10_055, BACK_CHAN_BUSY = 10_057,
    SEQ_MISORDERED = 10_063, SEQUENCE_POS = 10_064, REQ_TOO_BIG = 10_065, REP_TOO_BIG = 10_066,
    REP_TOO_BIG_TO_CACHE = 10_067, RETRY_UNCACHED_REP = 10_068, UNSAFE_COMPOUND = 10_069, TOO_MANY_OPS = 10_070,
    OP_NOT_IN_SESSION = 10_071, CLIENTID_BUSY = 10_074, SEQ_FALSE_RETRY = 10_076, BAD_HIGH_SLOT = 10_077,
    NOT_ONLY_OP = 10_081, WRONG_CRED = 10_082, WRONG_TYPE = 10_083, ENCR_ALG_UNSUPP = 10_079, HASH_ALG_UNSUPP = 10_072,
    DELEG_REVOKED = 10_087, PARTNER_NO_AUTH = 10_089, UNION_NOTSUPP = 10_090, OFFLOAD_DENIED = 10_091, WRONG_LFS = 10_092,
    OFFLOAD_NO_REQS = 10_094, NOXATTR = 10_095, XATTR2BIG = 10_096,
}

impl Status {
    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The status of a number on the wire.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Whether the procedure succeeded.
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "status {}", self.0),
        }
    }
}

impl From<super::Error> for Status {
    fn from(_: super::Error) -> Self {
        Self::BADXDR
    }
}
