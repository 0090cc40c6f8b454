//! From bytes to operations.

use super::operation::{
    CreateKind, ExclusiveCreate, Locker, NewState, OpenClaim, OpenCreate, OpenOwner, Operation, op,
};
use super::{
    Bitmap, CallbackTarget, CreateSession, ExchangeId, MAX_OWNER, Sequence, SetAttributes,
    SetClientId, StateId,
};
use crate::wire::v3::StableHow;
use crate::wire::xdr::Reader;
use crate::wire::{Error, MAX_HANDLE, MAX_NAME, Result};

/// Bytes of the longest target of a symbolic link that is parsed.
const MAX_TARGET: usize = 4096;
const MAX_TEST_STATES: usize = 1024;
const MAX_ADVICE: usize = 16;
/// Bytes of the largest extended attribute, as Linux has it.
const MAX_XATTR: usize = 64 << 10;

impl<'a> Operation<'a> {
    /// Parses an operation with its number. Also returns the number that its result has. A WRITE has at most
    /// `max_data` bytes.
    pub fn parse(
        reader: &mut Reader<'a>,
        minor_version: u32,
        max_data: usize,
    ) -> Result<(u32, Result<Self>)> {
        let number = reader.u32()?;
        let [last, last_of_1, last_of_2] = op::LAST;
        let last = match minor_version {
            0 => last,
            1 => last_of_1,
            _ => last_of_2,
        };
        if !(op::FIRST..=last).contains(&number) {
            return Ok((op::ILLEGAL, Ok(Self::Illegal)));
        }
        let parsed = match number {
            op::BACKCHANNEL_CTL..=op::RECLAIM_COMPLETE => Self::parse_session(number, reader),
            op::ALLOCATE.. => Self::parse_v42(number, reader),
            op::LOCK | op::LOCKT | op::LOCKU | op::OPEN | op::OPEN_DOWNGRADE | op::CLOSE => {
                Self::parse_state(number, reader, minor_version)
            }
            _ if minor_version == 0 => Self::parse_v40(number, reader, max_data),
            _ => Self::parse_base(number, reader, max_data),
        };
        Ok((number, parsed))
    }

    fn parse_base(number: u32, r: &mut Reader<'a>, max_data: usize) -> Result<Self> {
        Ok(match number {
            op::ACCESS => Self::Access { wanted: r.u32()? },
            op::COMMIT => {
                // the range: the whole file is committed
                r.u64()?;
                r.u32()?;
                Self::Commit
            }
            op::CREATE => Self::Create {
                kind: CreateKind::parse(r)?,
                name: name(r)?,
                set: SetAttributes::parse(r)?,
            },
            op::DELEGRETURN => Self::ReturnDelegation { state: StateId::parse(r)? },
            op::GETATTR => Self::GetAttributes { wanted: Bitmap::parse(r)? },
            op::GETFH => Self::GetHandle,
            op::LINK => Self::Link { name: name(r)? },
            op::LOOKUP => Self::Lookup { name: name(r)? },
            op::LOOKUPP => Self::LookupParent,
            op::VERIFY | op::NVERIFY => Self::Verify {
                is_equal: number == op::VERIFY,
                wanted: Bitmap::parse(r)?,
                values: r.opaque(usize::MAX)?,
            },
            op::PUTFH => Self::PutHandle { handle: r.opaque(MAX_HANDLE)? },
            op::PUTPUBFH | op::PUTROOTFH => Self::PutRootHandle,
            op::READ => Self::Read { state: StateId::parse(r)?, offset: r.u64()?, count: r.u32()? },
            op::READDIR => {
                // the verifier is always 0, and the limit of names alone says less than that of the result
                let (cookie, _, _) = (r.u64()?, r.u64()?, r.u32()?);
                Self::ReadDir { cookie, max_bytes: r.u32()?, wanted: Bitmap::parse(r)? }
            }
            op::READLINK => Self::ReadLink,
            op::REMOVE => Self::Remove { name: name(r)? },
            op::RENAME => Self::Rename { from: name(r)?, to: name(r)? },
            op::RESTOREFH => Self::RestoreHandle,
            op::SAVEFH => Self::SaveHandle,
            op::SECINFO => Self::SecurityInfo { name: name(r)? },
            op::SETATTR => {
                Self::SetAttributes { state: StateId::parse(r)?, set: SetAttributes::parse(r)? }
            }
            op::WRITE => {
                let (state, offset) = (StateId::parse(r)?, r.u64()?);
                let stable = StableHow::from_number(r.u32()?)?;
                Self::Write { state, offset, stable, data: r.opaque(max_data)? }
            }
            _ => Self::Unsupported,
        })
    }

    /// Parses an operation that only minor version 0 has, or one of all versions.
    fn parse_v40(number: u32, r: &mut Reader<'a>, max_data: usize) -> Result<Self> {
        Ok(match number {
            op::OPEN_CONFIRM => Self::OpenConfirm { state: StateId::parse(r)?, seqid: r.u32()? },
            op::RENEW => Self::Renew { client_id: r.u64()? },
            op::SETCLIENTID => Self::SetClientId(SetClientId::parse(r)?),
            op::SETCLIENTID_CONFIRM => {
                Self::ConfirmClientId { client_id: r.u64()?, confirm: r.fixed()? }
            }
            op::RELEASE_LOCKOWNER => Self::ReleaseLockOwner { owner: OpenOwner::parse(r)? },
            _ => return Self::parse_base(number, r, max_data),
        })
    }

    fn parse_state(number: u32, r: &mut Reader<'a>, minor_version: u32) -> Result<Self> {
        Ok(match number {
            op::CLOSE => Self::Close { seqid: r.u32()?, state: StateId::parse(r)? },
            op::LOCK => {
                let (kind, is_reclaim, range) = (r.u32()?, r.bool()?, range(r)?);
                Self::Lock { kind, is_reclaim, range, locker: Locker::parse(r)? }
            }
            op::LOCKT => {
                let (kind, range) = (r.u32()?, range(r)?);
                Self::TestLock { kind, range, owner: OpenOwner::parse(r)? }
            }
            op::LOCKU => {
                // the kind of the lock: bytes are unlocked whatever it was
                r.u32()?;
                Self::Unlock { seqid: r.u32()?, state: StateId::parse(r)?, range: range(r)? }
            }
            op::OPEN => {
                let (seqid, access, deny) = (r.u32()?, r.u32()?, r.u32()?);
                let owner = OpenOwner::parse(r)?;
                let create = OpenCreate::parse(r, minor_version)?;
                let claim = OpenClaim::parse(r, minor_version)?;
                Self::Open { seqid, access, deny, owner, create, claim }
            }
            op::OPEN_DOWNGRADE => {
                let state = StateId::parse(r)?;
                let seqid = r.u32()?;
                Self::OpenDowngrade { state, seqid, access: r.u32()?, deny: r.u32()? }
            }
            _ => Self::Unsupported,
        })
    }

    fn parse_session(number: u32, r: &mut Reader<'a>) -> Result<Self> {
        Ok(match number {
            op::BACKCHANNEL_CTL => Self::ControlBackChannel(CallbackTarget::parse(r)?),
            op::BIND_CONN_TO_SESSION => {
                let (session, direction) = (r.fixed()?, r.u32()?);
                r.bool()?;
                Self::BindConnection { session, direction }
            }
            op::EXCHANGE_ID => Self::ExchangeId(ExchangeId::parse(r)?),
            op::CREATE_SESSION => Self::CreateSession(CreateSession::parse(r)?),
            op::DESTROY_SESSION => Self::DestroySession { session: r.fixed()? },
            op::FREE_STATEID => Self::FreeState { state: StateId::parse(r)? },
            op::SECINFO_NO_NAME => Self::SecurityInfoNoName { is_of_parent: r.bool()? },
            op::SEQUENCE => Self::Sequence(Sequence::parse(r)?),
            op::TEST_STATEID => {
                Self::TestStates { states: r.list(MAX_TEST_STATES, StateId::parse)? }
            }
            op::DESTROY_CLIENTID => Self::DestroyClient { client_id: r.u64()? },
            op::RECLAIM_COMPLETE => Self::ReclaimComplete { is_one_filesystem: r.bool()? },
            _ => Self::Unsupported,
        })
    }

    fn parse_v42(number: u32, r: &mut Reader<'a>) -> Result<Self> {
        Ok(match number {
            op::ALLOCATE => Self::Allocate { state: StateId::parse(r)?, range: range(r)? },
            op::DEALLOCATE => Self::Deallocate { state: StateId::parse(r)?, range: range(r)? },
            op::COPY => {
                let states = [StateId::parse(r)?, StateId::parse(r)?];
                let (offsets, count) = ([r.u64()?, r.u64()?], r.u64()?);
                // consecutive and synchronous: a copy here is both
                r.bool()?;
                r.bool()?;
                let is_between_servers = r.count(usize::MAX)? > 0;
                Self::Copy { states, offsets, count, is_between_servers }
            }
            op::CLONE => {
                let states = [StateId::parse(r)?, StateId::parse(r)?];
                Self::Clone { states, offsets: [r.u64()?, r.u64()?], count: r.u64()? }
            }
            op::IO_ADVISE => {
                let state = StateId::parse(r)?;
                range(r)?;
                r.list(MAX_ADVICE, Reader::u32)?;
                Self::IoAdvise { state }
            }
            op::READ_PLUS => {
                Self::ReadPlus { state: StateId::parse(r)?, offset: r.u64()?, count: r.u32()? }
            }
            op::SEEK => Self::Seek { state: StateId::parse(r)?, offset: r.u64()?, what: r.u32()? },
            op::GETXATTR => Self::GetXattr { name: name(r)? },
            op::SETXATTR => {
                Self::SetXattr { how: r.u32()?, name: name(r)?, value: r.opaque(MAX_XATTR)? }
            }
            op::LISTXATTRS => Self::ListXattrs { cookie: r.u64()?, max_bytes: r.u32()? },
            op::REMOVEXATTR => Self::RemoveXattr { name: name(r)? },
            _ => Self::Unsupported,
        })
    }
}

fn name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    reader.opaque(MAX_NAME)
}

/// An offset and a length.
fn range(reader: &mut Reader<'_>) -> Result<(u64, u64)> {
    Ok((reader.u64()?, reader.u64()?))
}

impl<'a> OpenOwner<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { client_id: reader.u64()?, id: reader.opaque(MAX_OWNER)? })
    }
}

impl<'a> Locker<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self> {
        if reader.bool()? {
            let (open_seqid, open) = (reader.u32()?, StateId::parse(reader)?);
            let (lock_seqid, owner) = (reader.u32()?, OpenOwner::parse(reader)?);
            return Ok(Self::New(NewState { open_seqid, open, lock_seqid, owner }));
        }
        Ok(Self::Existing(StateId::parse(reader)?, reader.u32()?))
    }
}

impl OpenCreate {
    fn parse(reader: &mut Reader<'_>, minor_version: u32) -> Result<Self> {
        if !reader.bool()? {
            return Ok(Self::No);
        }
        match reader.u32()? {
            0 => SetAttributes::parse(reader).map(Self::Unchecked),
            1 => SetAttributes::parse(reader).map(Self::Guarded),
            2 => {
                let (verifier, set) = (reader.fixed()?, SetAttributes::default());
                Ok(Self::Exclusive(ExclusiveCreate { verifier, set }))
            }
            3 if minor_version > 0 => {
                let verifier = reader.fixed()?;
                let set = SetAttributes::parse(reader)?;
                Ok(Self::Exclusive(ExclusiveCreate { verifier, set }))
            }
            found => Err(Error::UnknownValue { found }),
        }
    }
}

impl<'a> OpenClaim<'a> {
    fn parse(reader: &mut Reader<'a>, minor_version: u32) -> Result<Self> {
        match reader.u32()? {
            found @ 4.. if minor_version == 0 => Err(Error::UnknownValue { found }),
            0 => name(reader).map(Self::Name),
            1 => Ok(Self::Reclaim(reader.u32()?)),
            2 => Ok(Self::Delegated(StateId::parse(reader)?, name(reader)?)),
            3 => {
                name(reader)?;
                Ok(Self::PreviousDelegation)
            }
            4 => Ok(Self::Current),
            5 => Ok(Self::DelegatedCurrent(StateId::parse(reader)?)),
            6 => Ok(Self::PreviousDelegation),
            found => Err(Error::UnknownValue { found }),
        }
    }
}

impl<'a> CreateKind<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(match reader.u32()? {
            5 => Self::Symlink(reader.opaque(MAX_TARGET)?),
            kind @ 3..=4 => Self::Device(kind, (reader.u32()?, reader.u32()?)),
            kind => Self::Other(kind),
        })
    }
}
