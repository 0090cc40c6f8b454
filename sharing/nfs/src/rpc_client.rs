//! Short calls of the server to programs of its clients: their portmapper, lock manager and status monitor.
//!
//! Each call has a connection of its own, and a limit of time: a client that is gone costs its caller a few seconds.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::wire::portmap::{self, Transport};
use crate::wire::rpc::{Credentials, LAST_FRAGMENT, parse_reply, reply_xid, write_call};
use crate::wire::xdr::{Reader, Writer};

/// The time in which a client accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time in which a client replies: over TCP, and to each of the datagrams.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Datagrams that are sent until a reply comes, if the call does the same when it is repeated.
const DATAGRAMS: usize = 3;
/// Bytes of the longest reply that is read.
const MAX_REPLY: usize = 4096;

static NEXT_XID: AtomicU32 = AtomicU32::new(1);

/// The outcome of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The client does not have the call: nothing was sent.
    NotSent,
    /// The client may or may not have carried out the call.
    NoReply,
    /// The results.
    Reply(Vec<u8>),
}

/// A host with the port of its portmapper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    pub(crate) address: IpAddr,
    pub(crate) portmapper: u16,
}

impl Host {
    /// Calls a procedure of a program, whose port the host's portmapper knows. A call that is not repeatable is sent once.
    pub(crate) fn call(
        self,
        transport: Transport,
        procedure: (u32, u32, u32),
        (arguments, is_repeatable): (&[u8], bool),
    ) -> Outcome {
        let mut query = Writer::default();
        portmap::write_getport(&mut query, (procedure.0, procedure.1), transport);
        let portmapper = SocketAddr::new(self.address, self.portmapper);
        let find = (portmap::PROGRAM, portmap::VERSIONS.0, portmap::GETPORT);
        let Outcome::Reply(found) = call(portmapper, transport, find, (query.as_bytes(), true))
        else {
            return Outcome::NotSent;
        };
        match portmap::parse_port(&mut Reader::new(&found)) {
            Ok(Some(port)) => {
                let address = SocketAddr::new(self.address, port);
                call(address, transport, procedure, (arguments, is_repeatable))
            }
            Ok(None) | Err(_) => Outcome::NotSent,
        }
    }
}

/// Calls a procedure at an address.
pub(crate) fn call(
    address: SocketAddr,
    transport: Transport,
    procedure: (u32, u32, u32),
    (arguments, is_repeatable): (&[u8], bool),
) -> Outcome {
    let (message, xid) = write_message(procedure, arguments);
    let message = message.as_bytes();
    let reply = match transport {
        Transport::Tcp => match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => exchange_record(&stream, message, REPLY_TIMEOUT),
            Err(_) => return Outcome::NotSent,
        },
        Transport::Udp => {
            let Ok(socket) = open_socket(address) else { return Outcome::NotSent };
            let datagrams = if is_repeatable { DATAGRAMS } else { 1 };
            exchange_datagrams(&socket, message, xid, datagrams)
        }
    };
    to_outcome(reply, xid)
}

/// Calls a procedure at an address once, over TCP. The client has `reply_time` to reply.
pub(crate) fn call_for(
    reply_time: Duration,
    address: SocketAddr,
    procedure: (u32, u32, u32),
    arguments: &[u8],
) -> Outcome {
    let (message, xid) = write_message(procedure, arguments);
    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
        Ok(stream) => to_outcome(exchange_record(&stream, message.as_bytes(), reply_time), xid),
        Err(_) => Outcome::NotSent,
    }
}

/// A call with its number.
fn write_message(procedure: (u32, u32, u32), arguments: &[u8]) -> (Writer, u32) {
    let xid = NEXT_XID.fetch_add(1, Ordering::Relaxed);
    let mut message = Writer::default();
    let credentials = Credentials::System { uid: 0, gid: 0, groups: Vec::new() };
    write_call(&mut message, xid, procedure, &credentials);
    message.append(arguments);
    (message, xid)
}

fn to_outcome(reply: io::Result<Vec<u8>>, xid: u32) -> Outcome {
    let Ok(reply) = reply else { return Outcome::NoReply };
    match parse_reply(&reply) {
        Ok(Some(results)) if reply_xid(&reply) == Some(xid) => {
            Outcome::Reply(results.rest().to_vec())
        }
        // the program or procedure does not exist there: it has done nothing
        Ok(None) => Outcome::NotSent,
        Ok(Some(_)) | Err(_) => Outcome::NoReply,
    }
}

fn exchange_record(
    mut stream: &TcpStream,
    message: &[u8],
    reply_time: Duration,
) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + reply_time;
    stream.set_write_timeout(Some(reply_time))?;
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&(LAST_FRAGMENT | length).to_be_bytes(), message].concat())?;
    let mut mark = [0; 4];
    read_until(stream, &mut mark, deadline)?;
    let mark = u32::from_be_bytes(mark);
    let length = usize::try_from(mark & !LAST_FRAGMENT).map_err(io::Error::other)?;
    if mark & LAST_FRAGMENT == 0 || length > MAX_REPLY {
        return Err(io::Error::other("the reply is longer than any reply of this program"));
    }
    let mut reply = vec![0; length];
    read_until(stream, &mut reply, deadline)?;
    Ok(reply)
}

/// Fills a buffer before a deadline, however slowly the bytes come.
fn read_until(mut stream: &TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut rest = buffer;
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(rest)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => rest = rest.get_mut(count..).unwrap_or_default(),
        }
    }
    Ok(())
}

fn open_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let any = match address.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
    Ok(socket)
}

fn exchange_datagrams(
    socket: &UdpSocket,
    message: &[u8],
    xid: u32,
    datagrams: usize,
) -> io::Result<Vec<u8>> {
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for _ in 0..datagrams {
        socket.send(message)?;
        let mut reply = vec![0; MAX_REPLY];
        match socket.recv(&mut reply) {
            Ok(length) => {
                reply.truncate(length);
                if reply_xid(&reply) == Some(xid) {
                    return Ok(reply);
                }
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}
