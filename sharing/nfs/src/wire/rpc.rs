//! ONC RPC version 2 (RFC 5531): the header of a call, its credentials, and the header of a reply.
//!
//! On TCP each message is a record of fragments. A fragment begins with a number of 32 bits: bit 31 is set in the last
//! fragment, the others are the length.
//!
//! ```text
//! call    xid, 0, 2, program, version, procedure, credentials, verifier, arguments
//! reply   xid, 1, 0, verifier, accept_stat, results       the call was accepted
//!         xid, 1, 1, reject_stat, ...                      it was not
//! auth    flavor, opaque<400>
//! AUTH_SYS   stamp, machine name<255>, uid, gid, gids<16>
//! ```

use super::xdr::{Reader, Writer};
use super::{Error, Result};

/// The number of NFS.
pub const PROGRAM_NFS: u32 = 100_003;
/// The number of the MOUNT protocol.
pub const PROGRAM_MOUNT: u32 = 100_005;
/// The bit of a record mark that the last fragment of a record has.
pub const LAST_FRAGMENT: u32 = 1 << 31;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
const MAX_AUTH: usize = 400;
const MAX_MACHINE_NAME: usize = 255;
const MAX_GROUPS: usize = 16;

/// The credentials of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credentials {
    /// AUTH_NONE: nobody in particular.
    None,
    /// AUTH_SYS: the IDs that the client claims.
    System {
        /// The user.
        uid: u32,
        /// The primary group.
        gid: u32,
        /// The supplementary groups.
        groups: Vec<u32>,
    },
    /// A flavor that the server does not take.
    Unknown {
        /// The number of the flavor.
        flavor: u32,
    },
}

/// The header of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call<'a> {
    /// The number that the reply repeats.
    pub xid: u32,
    /// The version of RPC: 2.
    pub rpc_version: u32,
    /// The program.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The caller.
    pub credentials: Credentials,
    /// The arguments.
    pub arguments: &'a [u8],
}

/// How a call failed before its procedure ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The version of RPC is not 2.
    RpcMismatch,
    /// The server does not take the flavor of the credentials (`AUTH_TOOWEAK`).
    Flavor,
    /// The credentials are malformed (`AUTH_BADCRED`).
    BadCredentials,
    /// The server does not have the program.
    NoProgram,
    /// The server has the versions `low` to `high` of the program.
    VersionMismatch {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The program has no such procedure.
    NoProcedure,
    /// The arguments cannot be parsed.
    GarbageArguments,
}

impl<'a> Call<'a> {
    /// Parses a message. Credentials that are malformed are an error of the call, not of the message.
    pub fn parse(message: &'a [u8]) -> Result<(Self, Option<CallError>)> {
        let mut reader = Reader::new(message);
        let xid = reader.u32()?;
        if reader.u32()? != CALL {
            return Err(Error::NotACall);
        }
        let rpc_version = reader.u32()?;
        let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let flavor = reader.u32()?;
        let body = reader.opaque(MAX_AUTH)?;
        let (_verifier_flavor, _verifier) = (reader.u32()?, reader.opaque(MAX_AUTH)?);
        let parsed = Credentials::parse(flavor, body);
        let error = match &parsed {
            _ if rpc_version != RPC_VERSION => Some(CallError::RpcMismatch),
            Err(_) => Some(CallError::BadCredentials),
            Ok(Credentials::Unknown { .. }) => Some(CallError::Flavor),
            Ok(_) => None,
        };
        let credentials = parsed.unwrap_or(Credentials::None);
        let arguments = reader.rest();
        Ok((Self { xid, rpc_version, program, version, procedure, credentials, arguments }, error))
    }
}

impl Credentials {
    fn parse(flavor: u32, body: &[u8]) -> Result<Self> {
        match flavor {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => {
                let mut reader = Reader::new(body);
                reader.u32()?;
                reader.opaque(MAX_MACHINE_NAME)?;
                let (uid, gid) = (reader.u32()?, reader.u32()?);
                let groups = reader.list(MAX_GROUPS, Reader::u32)?;
                reader.finish()?;
                Ok(Self::System { uid, gid, groups })
            }
            flavor => Ok(Self::Unknown { flavor }),
        }
    }
}

impl Credentials {
    /// Writes the flavor and the body. A flavor that the server does not take is written as AUTH_NONE.
    fn write(&self, writer: &mut Writer) {
        let Self::System { uid, gid, groups } = self else {
            writer.u32(AUTH_NONE);
            return writer.count(0);
        };
        let mut body = Writer::default();
        // stamp and machine name
        body.u32(0);
        body.count(0);
        body.u32(*uid);
        body.u32(*gid);
        body.count(groups.len());
        for group in groups {
            body.u32(*group);
        }
        writer.u32(AUTH_SYS);
        writer.opaque(body.as_bytes());
    }
}

/// Writes the header of a call of the server to a client.
pub fn write_call(
    writer: &mut Writer,
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    credentials: &Credentials,
) {
    for number in [xid, CALL, RPC_VERSION, program, version, procedure] {
        writer.u32(number);
    }
    credentials.write(writer);
    // the verifier
    writer.u32(AUTH_NONE);
    writer.count(0);
}

/// The number of the call that a message replies to; none: the message is no reply.
pub fn reply_xid(message: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(message);
    let xid = reader.u32().ok()?;
    (reader.u32().ok()? == REPLY).then_some(xid)
}

/// The results in a reply to a call that succeeded; none: the call was refused.
pub fn parse_reply(message: &[u8]) -> Result<Option<Reader<'_>>> {
    let mut reader = Reader::new(message);
    let (_xid, _kind, refused) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if refused != 0 {
        return Ok(None);
    }
    let (_flavor, _verifier) = (reader.u32()?, reader.opaque(MAX_AUTH)?);
    let is_success = reader.u32()? == 0;
    Ok(is_success.then_some(reader))
}

/// Writes the header of a reply whose results follow.
pub fn write_accepted(writer: &mut Writer, xid: u32) {
    write_status(writer, xid, 0);
}

fn write_status(writer: &mut Writer, xid: u32, status: u32) {
    for number in [xid, REPLY, 0, AUTH_NONE, 0, status] {
        writer.u32(number);
    }
}

impl CallError {
    /// Writes the whole reply.
    pub fn write(self, writer: &mut Writer, xid: u32) {
        let denied = |writer: &mut Writer, numbers: &[u32]| {
            [xid, REPLY, 1].iter().chain(numbers).for_each(|number| writer.u32(*number));
        };
        match self {
            Self::RpcMismatch => denied(writer, &[0, RPC_VERSION, RPC_VERSION]),
            Self::BadCredentials => denied(writer, &[1, 1]),
            Self::Flavor => denied(writer, &[1, 5]),
            Self::NoProgram => write_status(writer, xid, 1),
            Self::VersionMismatch { low, high } => {
                write_status(writer, xid, 2);
                writer.u32(low);
                writer.u32(high);
            }
            Self::NoProcedure => write_status(writer, xid, 3),
            Self::GarbageArguments => write_status(writer, xid, 4),
        }
    }
}
