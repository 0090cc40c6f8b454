//! The operations of clients and sessions (RFC 5661, sections 18.34 to 18.51; RFC 7530, section 16.33).

use std::net::SocketAddr;

use super::{CallbackTarget, MAX_OWNER, SessionId, Verifier};
use crate::wire::portmap;
use crate::wire::rpc::Credentials;
use crate::wire::xdr::{Reader, Writer};
use crate::wire::{Error, Result};

/// The name that a client gives itself, and a number that changes when it restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientOwner<'a> {
    /// The number.
    pub verifier: Verifier,
    /// The name.
    pub id: &'a [u8],
}

/// SETCLIENTID: a client of minor version 0 makes itself known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetClientId<'a> {
    /// The client.
    pub owner: ClientOwner<'a>,
    /// The program by which the client wants to be called; none: it has no address that the server understands.
    pub callback: Option<CallbackProgram>,
}

/// The program of a client of minor version 0 that the server calls (`cb_client4`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallbackProgram {
    /// The number of the program.
    pub program: u32,
    /// The address, over TCP.
    pub address: SocketAddr,
    /// The client's own number of the program, which each call has.
    pub ident: u32,
}

/// EXCHANGE_ID: a client makes itself known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeId<'a> {
    /// The client.
    pub owner: ClientOwner<'a>,
    /// `EXCHGID4_FLAG_`...
    pub flags: u32,
    /// How the client wants its state protected: 0 not at all, 1 by machine credentials, 2 by SSV.
    pub state_protection: u32,
}

/// The limits of one direction of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChannelAttributes {
    /// Bytes of padding in front of data, for RDMA.
    pub header_pad_size: u32,
    /// Bytes of the largest request.
    pub max_request_size: u32,
    /// Bytes of the largest response.
    pub max_response_size: u32,
    /// Bytes of the largest response that is kept for a repetition.
    pub max_response_size_cached: u32,
    /// Operations of a COMPOUND.
    pub max_operations: u32,
    /// Slots: requests at the same time.
    pub max_requests: u32,
}

/// CREATE_SESSION.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateSession {
    /// The client's number from EXCHANGE_ID.
    pub client_id: u64,
    /// Counts the sessions that the client asks for.
    pub sequence: u32,
    /// `CREATE_SESSION4_FLAG_`...
    pub flags: u32,
    /// The limits of requests of the client.
    pub fore_channel: ChannelAttributes,
    /// The limits of callbacks.
    pub back_channel: ChannelAttributes,
    /// How the client wants to be called.
    pub callback: CallbackTarget,
}

/// SEQUENCE: the slot of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequence {
    /// The session.
    pub session: SessionId,
    /// Counts the requests of the slot.
    pub number: u32,
    /// The slot.
    pub slot: u32,
    /// The highest slot that the client uses.
    pub highest_slot: u32,
    /// Whether the client may ask for the response again.
    pub is_cached: bool,
}

const MAX_IMPLEMENTATION: usize = 1024;
const MAX_ALGORITHMS: usize = 32;
const MAX_MACHINE_NAME: usize = 255;
const MAX_CALLBACK_SECURITY: usize = 16;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
const RPCSEC_GSS: u32 = 6;

impl<'a> SetClientId<'a> {
    pub(super) fn parse(reader: &mut Reader<'a>) -> Result<Self> {
        let verifier = reader.fixed()?;
        let owner = ClientOwner { verifier, id: reader.opaque(MAX_OWNER)? };
        let (program, network) = (reader.u32()?, reader.opaque(MAX_OWNER)?);
        let (address, ident) = (reader.opaque(MAX_OWNER)?, reader.u32()?);
        let address =
            if is_tcp(network) { portmap::parse_universal_address(address) } else { None };
        let callback = address.map(|address| CallbackProgram { program, address, ident });
        Ok(Self { owner, callback })
    }
}

fn is_tcp(network: &[u8]) -> bool {
    [&b"tcp"[..], b"tcp6"].contains(&network)
}

impl<'a> ExchangeId<'a> {
    pub(super) fn parse(reader: &mut Reader<'a>) -> Result<Self> {
        let verifier = reader.fixed()?;
        let owner = ClientOwner { verifier, id: reader.opaque(MAX_OWNER)? };
        let (flags, state_protection) = (reader.u32()?, reader.u32()?);
        skip_state_protection(reader, state_protection)?;
        reader.list(1, |reader| {
            reader.opaque(MAX_IMPLEMENTATION)?;
            reader.opaque(MAX_IMPLEMENTATION)?;
            Ok((reader.i64()?, reader.u32()?))
        })?;
        Ok(Self { owner, flags, state_protection })
    }
}

fn skip_state_protection(reader: &mut Reader<'_>, how: u32) -> Result<()> {
    if how > 2 {
        return Err(Error::UnknownValue { found: how });
    }
    if how > 0 {
        super::Bitmap::parse(reader)?;
        super::Bitmap::parse(reader)?;
    }
    if how == 2 {
        for _ in 0..2 {
            reader.list(MAX_ALGORITHMS, |reader| reader.opaque(MAX_OWNER).map(drop))?;
        }
        reader.u32()?;
        reader.u32()?;
    }
    Ok(())
}

impl ChannelAttributes {
    fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        let attributes = Self {
            header_pad_size: reader.u32()?,
            max_request_size: reader.u32()?,
            max_response_size: reader.u32()?,
            max_response_size_cached: reader.u32()?,
            max_operations: reader.u32()?,
            max_requests: reader.u32()?,
        };
        // RDMA
        reader.list(1, Reader::u32)?;
        Ok(attributes)
    }

    /// Writes the limits.
    pub fn write(&self, writer: &mut Writer) {
        for number in [
            self.header_pad_size,
            self.max_request_size,
            self.max_response_size,
            self.max_response_size_cached,
            self.max_operations,
            self.max_requests,
            0,
        ] {
            writer.u32(number);
        }
    }
}

impl CreateSession {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        let (client_id, sequence, flags) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let fore_channel = ChannelAttributes::parse(reader)?;
        let back_channel = ChannelAttributes::parse(reader)?;
        let callback = CallbackTarget::parse(reader)?;
        Ok(Self { client_id, sequence, flags, fore_channel, back_channel, callback })
    }
}

impl CallbackTarget {
    /// Parses a program number and credentials, of which the server takes the first that it can use.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        let program = reader.u32()?;
        let offered = reader.list(MAX_CALLBACK_SECURITY, parse_callback_credentials)?;
        let credentials = offered.into_iter().flatten().next().unwrap_or(Credentials::None);
        Ok(Self { program, credentials })
    }
}

/// Credentials for calls to a client (`callback_sec_parms4`); none: the server cannot use them.
fn parse_callback_credentials(reader: &mut Reader<'_>) -> Result<Option<Credentials>> {
    match reader.u32()? {
        AUTH_NONE => Ok(Some(Credentials::None)),
        AUTH_SYS => {
            reader.u32()?;
            reader.opaque(MAX_MACHINE_NAME)?;
            let (uid, gid) = (reader.u32()?, reader.u32()?);
            let groups = reader.list(16, Reader::u32)?;
            Ok(Some(Credentials::System { uid, gid, groups }))
        }
        RPCSEC_GSS => {
            reader.u32()?;
            reader.opaque(MAX_OWNER)?;
            reader.opaque(MAX_OWNER)?;
            Ok(None)
        }
        found => Err(Error::UnknownValue { found }),
    }
}

impl Sequence {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            session: reader.fixed()?,
            number: reader.u32()?,
            slot: reader.u32()?,
            highest_slot: reader.u32()?,
            is_cached: reader.bool()?,
        })
    }
}
