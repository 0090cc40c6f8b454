//! Calls of the server to a client with a session (RFC 5661, section 20).
//!
//! ```text
//! CB_COMPOUND   tag (empty), minor version, 0, number of operations: 2
//! CB_SEQUENCE   11, session, number, slot 0, highest slot 0, not cached, no referring calls
//! CB_RECALL     4, stateid, truncate, handle
//! result        status, tag, number of results, (number, status, result) ...
//! ```

use super::{SessionId, StateId};
use crate::wire::Result;
use crate::wire::rpc::{Credentials, parse_reply, write_call};
use crate::wire::status::Status;
use crate::wire::xdr::Writer;

const CALLBACK_VERSION: u32 = 1;
const CB_COMPOUND: u32 = 1;
const CB_RECALL: u32 = 4;
const CB_SEQUENCE: u32 = 11;
const MAX_TAG: usize = 1024;

/// How the server calls a client: the program number and the credentials that the client wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallbackTarget {
    /// The number of the client's program.
    pub program: u32,
    /// The credentials of the calls.
    pub credentials: Credentials,
}

/// CB_RECALL: the client shall return a delegation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recall<'a> {
    /// The minor version of the session.
    pub minor_version: u32,
    /// The session.
    pub session: SessionId,
    /// Counts the calls in the slot.
    pub sequence: u32,
    /// The delegation.
    pub state: StateId,
    /// The handle of its file.
    pub handle: &'a [u8],
}

/// The client's answer to a recall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecallAnswer {
    /// The result of CB_SEQUENCE.
    pub sequence: Status,
    /// The result of the recall; none: CB_SEQUENCE failed.
    pub recall: Option<Status>,
}

impl Recall<'_> {
    /// Writes the call.
    pub fn write(&self, writer: &mut Writer, xid: u32, target: &CallbackTarget) {
        let procedure = (target.program, CALLBACK_VERSION, CB_COMPOUND);
        write_call(writer, xid, procedure, &target.credentials);
        writer.count(0);
        for number in [self.minor_version, 0, 2, CB_SEQUENCE] {
            writer.u32(number);
        }
        writer.fixed(&self.session);
        for number in [self.sequence, 0, 0, 0, 0, CB_RECALL] {
            writer.u32(number);
        }
        self.state.write(writer);
        writer.bool(false);
        writer.opaque(self.handle);
    }
}

impl RecallAnswer {
    /// Parses the reply to a call; none: the client refused the call itself.
    pub fn parse(message: &[u8]) -> Result<Option<Self>> {
        let Some(mut reader) = parse_reply(message)? else { return Ok(None) };
        let status = Status::from_number(reader.u32()?);
        reader.opaque(MAX_TAG)?;
        if reader.u32()? == 0 {
            return Ok(Some(Self { sequence: status, recall: None }));
        }
        let _operation = reader.u32()?;
        let sequence = Status::from_number(reader.u32()?);
        if !sequence.is_ok() {
            return Ok(Some(Self { sequence, recall: None }));
        }
        reader.fixed::<16>()?;
        for _ in 0..4 {
            reader.u32()?;
        }
        let _operation = reader.u32()?;
        Ok(Some(Self { sequence, recall: Some(Status::from_number(reader.u32()?)) }))
    }
}
