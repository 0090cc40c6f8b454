//! The portmapper: version 2 (RFC 1833, section 3), and versions 3 and 4 with the name rpcbind (section 2).
//!
//! ```text
//! mapping        program (4), version (4), protocol (4; 6 TCP, 17 UDP), port (4)
//! 2  GETPORT     mapping                                   port (4); 0: there is none
//! 2  SET, UNSET  mapping                                   whether it was done
//! 2  DUMP                                                  list of mappings, each after a 1, then 0
//! binding        program (4), version (4), network<16>, address<128>, owner<1024>
//! 3  GETADDR     binding                                   address<128>; empty: there is none
//! 3  SET, UNSET  binding                                   whether it was done
//! 3  DUMP                                                  list of bindings, each after a 1, then 0
//! ```
//!
//! An address is text: `10.0.0.1.8.1` is port 8 * 256 + 1 of 10.0.0.1. A network is `tcp`, `udp`, `tcp6` or `udp6`.

use std::net::{IpAddr, SocketAddr};

use super::xdr::{Reader, Writer};
use super::{Error, Result};

/// The number of the program.
pub const PROGRAM: u32 = 100_000;
/// The lowest and the highest version that the server has.
pub const VERSIONS: (u32, u32) = (2, 4);
/// The port of the portmapper.
pub const PORT: u16 = 111;
/// SET of version 4: registers a service.
pub const SET: u32 = 1;
/// UNSET of version 4: ends a registration.
pub const UNSET: u32 = 2;
/// GETPORT of version 2.
pub const GETPORT: u32 = 3;

const MAX_NETWORK: usize = 16;
const MAX_ADDRESS: usize = 128;
const MAX_OWNER: usize = 1024;

/// A transport protocol. The number is that of IP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// TCP.
    Tcp = 6,
    /// UDP.
    Udp = 17,
}

/// A version of a program, as a query names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The transport; none: one that the server does not have.
    pub transport: Option<Transport>,
}

/// A call to the portmapper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Procedure {
    /// NULL: does nothing.
    Null,
    /// SET and UNSET: a program registers itself, or ends that.
    Change,
    /// GETPORT and GETADDR.
    Find(Query),
    /// DUMP.
    Dump,
}

/// A service of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The transport.
    pub transport: Transport,
    /// The address. Clients use its port.
    pub address: SocketAddr,
}

impl Transport {
    fn from_number(number: u32) -> Option<Self> {
        [Self::Tcp, Self::Udp].into_iter().find(|transport| *transport as u32 == number)
    }

    fn from_network(name: &[u8]) -> Option<Self> {
        match name {
            b"tcp" | b"tcp6" => Some(Self::Tcp),
            b"udp" | b"udp6" => Some(Self::Udp),
            _ => None,
        }
    }

    /// The network of an address.
    pub fn network(self, address: IpAddr) -> &'static str {
        match (self, address) {
            (Self::Tcp, IpAddr::V4(_)) => "tcp",
            (Self::Tcp, IpAddr::V6(_)) => "tcp6",
            (Self::Udp, IpAddr::V4(_)) => "udp",
            (Self::Udp, IpAddr::V6(_)) => "udp6",
        }
    }
}

impl Procedure {
    /// The procedure of a number in a version; none if the server does not have it.
    pub fn parse(version: u32, number: u32, arguments: &[u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(arguments);
        Ok(Some(match (version, number) {
            (_, 0) => Self::Null,
            (_, SET | UNSET) => Self::Change,
            (2, GETPORT) => {
                let (program, version) = (reader.u32()?, reader.u32()?);
                let transport = Transport::from_number(reader.u32()?);
                Self::Find(Query { program, version, transport })
            }
            (_, 4) => Self::Dump,
            // GETADDR, and GETVERSADDR of version 4
            (3 | 4, 3) | (4, 9) => {
                let (program, version) = (reader.u32()?, reader.u32()?);
                let transport = Transport::from_network(reader.opaque(MAX_NETWORK)?);
                reader.opaque(MAX_ADDRESS)?;
                reader.opaque(MAX_OWNER)?;
                Self::Find(Query { program, version, transport })
            }
            _ => return Ok(None),
        }))
    }
}

impl Mapping {
    /// Writes the result of GETPORT or GETADDR.
    pub fn write_found(found: Option<&Self>, version: u32, host: IpAddr, writer: &mut Writer) {
        let port = found.map(|mapping| mapping.address.port());
        if version == 2 {
            writer.u32(port.unwrap_or(0).into());
        } else {
            let address = port.map(|port| universal_address(SocketAddr::new(host, port)));
            writer.opaque(address.unwrap_or_default().as_bytes());
        }
    }

    /// Writes the arguments of SET and UNSET in version 4, and an item of DUMP in versions 3 and 4.
    pub fn write_binding(&self, writer: &mut Writer) {
        writer.u32(self.program);
        writer.u32(self.version);
        writer.opaque(self.transport.network(self.address.ip()).as_bytes());
        writer.opaque(universal_address(self.address).as_bytes());
        writer.opaque(b"poolhouse");
    }

    /// Writes an item of DUMP.
    pub fn write_item(&self, version: u32, writer: &mut Writer) {
        writer.bool(true);
        if version != 2 {
            return self.write_binding(writer);
        }
        let port = self.address.port().into();
        for number in [self.program, self.version, self.transport as u32, port] {
            writer.u32(number);
        }
    }
}

/// An address as text: that of IP, and two numbers for the port.
pub fn universal_address(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// The address of a text that [`universal_address`] writes; none: it is something else.
pub fn parse_universal_address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip.parse().ok()?, port))
}

/// Writes the arguments of GETPORT.
pub fn write_getport(writer: &mut Writer, (program, version): (u32, u32), transport: Transport) {
    for number in [program, version, transport as u32, 0] {
        writer.u32(number);
    }
}

/// The port in the result of GETPORT; none: the program is not registered.
pub fn parse_port(reader: &mut Reader<'_>) -> Result<Option<u16>> {
    let found = reader.u32()?;
    let port = u16::try_from(found).map_err(|_| Error::UnknownValue { found })?;
    Ok(Some(port).filter(|port| *port != 0))
}
