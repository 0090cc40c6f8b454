//! The operations of a COMPOUND, with their arguments.

use super::{
    Bitmap, CallbackTarget, CreateSession, ExchangeId, Sequence, SessionId, SetAttributes,
    SetClientId, StateId, Verifier,
};
use crate::wire::v3::StableHow;

/// The numbers of operations (RFC 7530, section 16; RFC 5661, section 16.2; RFC 7862; RFC 8276).
#[expect(missing_docs, reason = "the RFCs explain each")]
pub mod op {
    pub const ACCESS: u32 = 3;
    pub const CLOSE: u32 = 4;
    pub const COMMIT: u32 = 5;
    pub const CREATE: u32 = 6;
    pub const DELEGPURGE: u32 = 7;
    pub const DELEGRETURN: u32 = 8;
    pub const GETATTR: u32 = 9;
    pub const GETFH: u32 = 10;
    pub const LINK: u32 = 11;
    pub const LOCK: u32 = 12;
    pub const LOCKT: u32 = 13;
    pub const LOCKU: u32 = 14;
    pub const LOOKUP: u32 = 15;
    pub const LOOKUPP: u32 = 16;
    pub const NVERIFY: u32 = 17;
    pub const OPEN: u32 = 18;
    pub const OPENATTR: u32 = 19;
    pub const OPEN_CONFIRM: u32 = 20;
    pub const OPEN_DOWNGRADE: u32 = 21;
    pub const PUTFH: u32 = 22;
    pub const PUTPUBFH: u32 = 23;
    pub const PUTROOTFH: u32 = 24;
    pub const READ: u32 = 25;
    pub const READDIR: u32 = 26;
    pub const READLINK: u32 = 27;
    pub const REMOVE: u32 = 28;
    pub const RENAME: u32 = 29;
    pub const RENEW: u32 = 30;
    pub const RESTOREFH: u32 = 31;
    pub const SAVEFH: u32 = 32;
    pub const SECINFO: u32 = 33;
    pub const SETATTR: u32 = 34;
    pub const SETCLIENTID: u32 = 35;
    pub const SETCLIENTID_CONFIRM: u32 = 36;
    pub const VERIFY: u32 = 37;
    pub const WRITE: u32 = 38;
    pub const RELEASE_LOCKOWNER: u32 = 39;
    pub const BACKCHANNEL_CTL: u32 = 40;
    pub const BIND_CONN_TO_SESSION: u32 = 41;
    pub const EXCHANGE_ID: u32 = 42;
    pub const CREATE_SESSION: u32 = 43;
    pub const DESTROY_SESSION: u32 = 44;
    pub const FREE_STATEID: u32 = 45;
    pub const SECINFO_NO_NAME: u32 = 52;
    pub const SEQUENCE: u32 = 53;
    pub const TEST_STATEID: u32 = 55;
    pub const DESTROY_CLIENTID: u32 = 57;
    pub const RECLAIM_COMPLETE: u32 = 58;
    pub const ALLOCATE: u32 = 59;
    pub const COPY: u32 = 60;
    pub const DEALLOCATE: u32 = 62;
    pub const IO_ADVISE: u32 = 63;
    pub const READ_PLUS: u32 = 68;
    pub const SEEK: u32 = 69;
    pub const CLONE: u32 = 71;
    pub const GETXATTR: u32 = 72;
    pub const SETXATTR: u32 = 73;
    pub const LISTXATTRS: u32 = 74;
    pub const REMOVEXATTR: u32 = 75;
    /// The result of an operation that the protocol does not have.
    pub const ILLEGAL: u32 = 10_044;
    /// The lowest number of an operation.
    pub const FIRST: u32 = 3;
    /// The highest number of an operation of each minor version; that of 2 includes extended attributes.
    pub const LAST: [u32; 3] = [39, 58, 75];
}

/// The owner of opens or locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOwner<'a> {
    /// The client, in minor version 0. Later versions know it by the session.
    pub client_id: u64,
    /// The client's name for the owner.
    pub id: &'a [u8],
}

/// Whether OPEN makes a file, and with which attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenCreate {
    /// The file must exist.
    No,
    /// A file that exists is opened.
    Unchecked(SetAttributes),
    /// A file that exists is an error.
    Guarded(SetAttributes),
    /// The same, unless an OPEN with this verifier made it.
    Exclusive(ExclusiveCreate),
}

/// A create that can be repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExclusiveCreate {
    /// Tells this create from those of others.
    pub verifier: Verifier,
    /// The attributes of the new file.
    pub set: SetAttributes,
}

/// The file that OPEN opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenClaim<'a> {
    /// A name in the current directory.
    Name(&'a [u8]),
    /// The current file, which was open before the server restarted, and which delegation the client had: 0 none, 1 read,
    /// 2 write.
    Reclaim(u32),
    /// The current file.
    Current,
    /// A name in the current directory, whose file the client has a delegation of.
    Delegated(StateId, &'a [u8]),
    /// The current file, of which the client has a delegation.
    DelegatedCurrent(StateId),
    /// By a delegation from before the client restarted, which this server does not keep.
    PreviousDelegation,
}

/// The type of a file that CREATE makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateKind<'a> {
    /// A symbolic link with its target.
    Symlink(&'a [u8]),
    /// A device node: 3 block, 4 character; major and minor number.
    Device(u32, (u32, u32)),
    /// Another type: 2 directory, 6 socket, 7 pipe; others are refused.
    Other(u32),
}

/// The owner of a lock: new, or one that has locked the file before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locker<'a> {
    /// A new owner, with the open by which it locks.
    New(NewState<'a>),
    /// The state of an earlier lock, and the sequence number of its owner.
    Existing(StateId, u32),
}

/// A new owner of locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewState<'a> {
    /// The sequence number of the owner of the open (minor version 0).
    pub open_seqid: u32,
    /// The open.
    pub open: StateId,
    /// The sequence number of the owner of the lock (minor version 0).
    pub lock_seqid: u32,
    /// The owner.
    pub owner: OpenOwner<'a>,
}

/// An operation with its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "RFC 5661, section 18, RFC 7862 and RFC 8276 explain each")]
pub enum Operation<'a> {
    Access {
        wanted: u32,
    },
    Close {
        seqid: u32,
        state: StateId,
    },
    Commit,
    Create {
        kind: CreateKind<'a>,
        name: &'a [u8],
        set: SetAttributes,
    },
    GetAttributes {
        wanted: Bitmap,
    },
    GetHandle,
    Link {
        name: &'a [u8],
    },
    Lock {
        kind: u32,
        is_reclaim: bool,
        range: (u64, u64),
        locker: Locker<'a>,
    },
    TestLock {
        kind: u32,
        range: (u64, u64),
        owner: OpenOwner<'a>,
    },
    Unlock {
        seqid: u32,
        state: StateId,
        range: (u64, u64),
    },
    Lookup {
        name: &'a [u8],
    },
    LookupParent,
    Verify {
        is_equal: bool,
        wanted: Bitmap,
        values: &'a [u8],
    },
    Open {
        seqid: u32,
        access: u32,
        deny: u32,
        owner: OpenOwner<'a>,
        create: OpenCreate,
        claim: OpenClaim<'a>,
    },
    OpenConfirm {
        state: StateId,
        seqid: u32,
    },
    OpenDowngrade {
        state: StateId,
        seqid: u32,
        access: u32,
        deny: u32,
    },
    PutHandle {
        handle: &'a [u8],
    },
    PutRootHandle,
    Read {
        state: StateId,
        offset: u64,
        count: u32,
    },
    ReadDir {
        cookie: u64,
        max_bytes: u32,
        wanted: Bitmap,
    },
    ReadLink,
    Remove {
        name: &'a [u8],
    },
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    ReleaseLockOwner {
        owner: OpenOwner<'a>,
    },
    Renew {
        client_id: u64,
    },
    RestoreHandle,
    SaveHandle,
    SecurityInfo {
        name: &'a [u8],
    },
    SecurityInfoNoName {
        is_of_parent: bool,
    },
    SetAttributes {
        state: StateId,
        set: SetAttributes,
    },
    SetClientId(SetClientId<'a>),
    ConfirmClientId {
        client_id: u64,
        confirm: Verifier,
    },
    Write {
        state: StateId,
        offset: u64,
        stable: StableHow,
        data: &'a [u8],
    },
    ReturnDelegation {
        state: StateId,
    },
    ControlBackChannel(CallbackTarget),
    BindConnection {
        session: SessionId,
        direction: u32,
    },
    ExchangeId(ExchangeId<'a>),
    CreateSession(CreateSession),
    DestroySession {
        session: SessionId,
    },
    FreeState {
        state: StateId,
    },
    Sequence(Sequence),
    TestStates {
        states: Vec<StateId>,
    },
    DestroyClient {
        client_id: u64,
    },
    ReclaimComplete {
        is_one_filesystem: bool,
    },
    Allocate {
        state: StateId,
        range: (u64, u64),
    },
    Deallocate {
        state: StateId,
        range: (u64, u64),
    },
    Copy {
        states: [StateId; 2],
        offsets: [u64; 2],
        count: u64,
        is_between_servers: bool,
    },
    Clone {
        states: [StateId; 2],
        offsets: [u64; 2],
        count: u64,
    },
    IoAdvise {
        state: StateId,
    },
    ReadPlus {
        state: StateId,
        offset: u64,
        count: u32,
    },
    Seek {
        state: StateId,
        offset: u64,
        what: u32,
    },
    GetXattr {
        name: &'a [u8],
    },
    SetXattr {
        how: u32,
        name: &'a [u8],
        value: &'a [u8],
    },
    ListXattrs {
        cookie: u64,
        max_bytes: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    /// An operation of the protocol that this server does not have. Its arguments are not parsed.
    Unsupported,
    /// No operation of the protocol.
    Illegal,
}
