//! Calls of the server to a client: with a session (RFC 5661, section 20), or of NFSv4.0 (RFC 7530, section 15).
//!
//! ```text
//! CB_COMPOUND   tag (empty), minor version, 0 or the client's number of its program, number of operations: 2 or 1
//! CB_SEQUENCE   11, session, number, slot 0, highest slot 0, not cached, no referring calls; not in NFSv4.0
//! CB_RECALL     4, stateid, truncate, handle
//! CB_GETATTR    3, handle, bitmap of attributes: change and size
//! result        status, tag, number of results, (number, status, result) ...
//! ```
//!
//! The last operation is one of CB_RECALL and CB_GETATTR.

use super::{Bitmap, SessionId, StateId, attr};
use crate::wire::rpc::{Credentials, parse_reply, write_call};
use crate::wire::status::Status;
use crate::wire::xdr::{Reader, Writer};
use crate::wire::{Error, Result};

/// The version of a client's program.
pub const CALLBACK_VERSION: u32 = 1;
/// The procedure of a client's program that does nothing.
pub const CB_NULL: u32 = 0;
/// The procedure of a client's program that carries out operations.
pub const CB_COMPOUND: u32 = 1;
const CB_GETATTR: u32 = 3;
const CB_RECALL: u32 = 4;
const CB_SEQUENCE: u32 = 11;
const MAX_TAG: usize = 1024;
/// The attributes that the holder of a write delegation may have changed in its cache.
const CACHED_ATTRIBUTES: Bitmap = Bitmap::of(&[attr::CHANGE, attr::SIZE]);
/// Bytes of their values.
const CACHED_ATTRIBUTE_BYTES: usize = 16;

/// How the server calls a client: the program number and the credentials that the client wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallbackTarget {
    /// The number of the client's program.
    pub program: u32,
    /// The credentials of the calls.
    pub credentials: Credentials,
}

/// An operation that the server calls on a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallbackOperation<'a> {
    /// CB_RECALL: the client shall return a delegation.
    Recall {
        /// The delegation.
        state: StateId,
        /// The handle of its file.
        handle: &'a [u8],
    },
    /// CB_GETATTR: the client shall tell the change attribute and the size of a file, of which it
    /// has a write delegation.
    GetAttributes {
        /// The handle of the file.
        handle: &'a [u8],
    },
}

/// A call to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Callback<'a> {
    /// The minor version of the session.
    pub minor_version: u32,
    /// The session.
    pub session: SessionId,
    /// Counts the calls in the slot.
    pub sequence: u32,
    /// The operation after CB_SEQUENCE.
    pub operation: CallbackOperation<'a>,
}

/// The client's answer to a call.
#[derive(Clone, Debug)]
pub struct CallbackAnswer<'a> {
    /// The result of CB_SEQUENCE.
    pub sequence: Status,
    /// The status of the operation, and the rest of its result; none: CB_SEQUENCE failed.
    pub result: Option<(Status, Reader<'a>)>,
}

/// The attributes of a file in the cache of a client with a write delegation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedAttributes {
    /// The change attribute. It is not the server's once the client has changed the file.
    pub change: u64,
    /// Bytes of the file.
    pub size: u64,
}

impl Callback<'_> {
    /// Writes the call.
    pub fn write(&self, writer: &mut Writer, xid: u32, target: &CallbackTarget) {
        let procedure = (target.program, CALLBACK_VERSION, CB_COMPOUND);
        write_call(writer, xid, procedure, &target.credentials);
        writer.count(0);
        for number in [self.minor_version, 0, 2, CB_SEQUENCE] {
            writer.u32(number);
        }
        writer.fixed(&self.session);
        for number in [self.sequence, 0, 0, 0, 0] {
            writer.u32(number);
        }
        self.operation.write(writer);
    }
}

impl CallbackOperation<'_> {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Recall { state, handle } => {
                writer.u32(CB_RECALL);
                state.write(writer);
                writer.bool(false);
                writer.opaque(handle);
            }
            Self::GetAttributes { handle } => {
                writer.u32(CB_GETATTR);
                writer.opaque(handle);
                CACHED_ATTRIBUTES.write(writer);
            }
        }
    }

    /// Writes the arguments of a call to a client of NFSv4.0. `ident` is the number that the client gave its program.
    pub fn write_v40(&self, writer: &mut Writer, ident: u32) {
        writer.count(0);
        for number in [0, ident, 1] {
            writer.u32(number);
        }
        self.write(writer);
    }
}

impl<'a> CallbackAnswer<'a> {
    /// Parses the reply to a call; none: the client refused the call itself.
    pub fn parse(message: &'a [u8]) -> Result<Option<Self>> {
        let Some(mut reader) = parse_reply(message)? else { return Ok(None) };
        let status = Status::from_number(reader.u32()?);
        reader.opaque(MAX_TAG)?;
        if reader.u32()? == 0 {
            return Ok(Some(Self { sequence: status, result: None }));
        }
        let _operation = reader.u32()?;
        let sequence = Status::from_number(reader.u32()?);
        if !sequence.is_ok() {
            return Ok(Some(Self { sequence, result: None }));
        }
        reader.fixed::<16>()?;
        for _ in 0..4 {
            reader.u32()?;
        }
        let _operation = reader.u32()?;
        let status = Status::from_number(reader.u32()?);
        Ok(Some(Self { sequence, result: Some((status, reader)) }))
    }
}

/// Parses the results of a call to a client of NFSv4.0: the status of the operation, and the rest of its result.
pub fn parse_v40_results<'a>(reader: &mut Reader<'a>) -> Result<(Status, Reader<'a>)> {
    let status = Status::from_number(reader.u32()?);
    reader.opaque(MAX_TAG)?;
    if reader.u32()? == 0 {
        return Ok((status, Reader::new(&[])));
    }
    let _operation = reader.u32()?;
    let status = Status::from_number(reader.u32()?);
    Ok((status, Reader::new(reader.rest())))
}

impl CachedAttributes {
    /// Parses the result of CB_GETATTR that follows its status.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        let present = Bitmap::parse(reader)?;
        if present != CACHED_ATTRIBUTES {
            return Err(Error::UnknownValue { found: present.iter().next().unwrap_or_default() });
        }
        let mut values = Reader::new(reader.opaque(CACHED_ATTRIBUTE_BYTES)?);
        let cached = Self { change: values.u64()?, size: values.u64()? };
        values.finish()?;
        Ok(cached)
    }
}
