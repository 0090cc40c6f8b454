//! NFSv4.0 to NFSv4.2 (RFC 7530, RFC 5661, RFC 7862, RFC 8276): COMPOUND and the arguments of its operations.
//!
//! ```text
//! COMPOUND arguments   tag, minor version, number of operations, (number, arguments) ...
//! COMPOUND result      status, tag, number of results, (number, status, result) ...
//! stateid4             seqid (4 bytes), other (12 bytes)
//! bitmap4              count, words: attribute n is bit n % 32 of word n / 32
//! fattr4               bitmap4 of the attributes, opaque with their values in the order of their numbers
//! nfstime4             seconds (8 bytes, signed), nanoseconds (4 bytes)
//! ```

mod attributes;
mod bitmap;
mod callback;
mod operation;
mod parse;
mod session;

pub use attributes::{AclEntry, SetAttributes, SetTime, Time, attr};
pub use bitmap::Bitmap;
pub use callback::{
    CALLBACK_VERSION, CB_COMPOUND, CB_NULL, CachedAttributes, Callback, CallbackAnswer,
    CallbackOperation, CallbackTarget, parse_v40_results,
};
pub use operation::{
    CreateKind, ExclusiveCreate, Locker, NewState, OpenClaim, OpenCreate, OpenOwner, Operation, op,
};
pub use session::{
    CallbackProgram, ChannelAttributes, ClientOwner, CreateSession, ExchangeId, Sequence,
    SetClientId,
};

use super::xdr::{Reader, Writer};
use super::{Result, v3::VERIFIER_LEN};

/// The version of the program NFS.
pub const VERSION: u32 = 4;
/// The lowest and the highest minor version of the server.
pub const MINOR_VERSIONS: std::ops::RangeInclusive<u32> = 0..=2;
/// Bytes of the longest tag.
const MAX_TAG: usize = 1024;
/// Bytes of an owner of opens, of locks, or of a client.
const MAX_OWNER: usize = 1024;
/// Bytes of a verifier.
pub type Verifier = [u8; VERIFIER_LEN];
/// Bytes of the identifier of a session.
pub type SessionId = [u8; 16];

/// The header of a COMPOUND.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compound<'a> {
    /// Bytes that the result repeats.
    pub tag: &'a [u8],
    /// The minor version.
    pub minor_version: u32,
    /// The number of operations.
    pub count: usize,
}

impl<'a> Compound<'a> {
    /// Parses the header, and leaves the reader at the first operation.
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self> {
        let (tag, minor_version) = (reader.opaque(MAX_TAG)?, reader.u32()?);
        Ok(Self { tag, minor_version, count: reader.count(usize::MAX)? })
    }
}

/// The identifier of an open or of the locks of an owner in a file, with the number of its last change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StateId {
    /// Counts the changes of the state; 0: the client does not say.
    pub seqid: u32,
    /// The server's name for the state.
    pub other: [u8; 12],
}

impl StateId {
    /// No state: the request is checked as if the file were opened for it.
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// No state, and reads bypass locks.
    pub const BYPASS: Self = Self { seqid: u32::MAX, other: [u8::MAX; 12] };
    /// The state that an earlier operation of the same COMPOUND returned.
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };

    /// Parses an identifier.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { seqid: reader.u32()?, other: reader.fixed()? })
    }

    /// Writes the identifier.
    pub fn write(&self, writer: &mut Writer) {
        writer.u32(self.seqid);
        writer.fixed(&self.other);
    }

    /// Whether it names no state of its own.
    pub fn is_special(&self) -> bool {
        [Self::ANONYMOUS, Self::BYPASS, Self::CURRENT].contains(self)
    }
}
