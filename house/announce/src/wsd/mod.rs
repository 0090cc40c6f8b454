//! WS-Discovery: how Windows finds computers for its folder "Network".
//!
//! ```text
//! UDP 3702   group 239.255.255.250    requests of clients, Hello and Bye; answers go to the client alone
//! TCP 5357   one listener an address  the name of the computer, for clients that saw an answer
//! ```
//!
//! Replies have a TTL of 1: they never leave the network, so that they cannot flood other networks.

mod message;
mod metadata_server;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};

use crate::{Device, Error, Result};
use message::{MAX_REQUEST, MessageWriter, parse};
use metadata_server::MetadataServer;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
/// The time between two looks whether the thread has to end.
const POLL: Duration = Duration::from_millis(300);

/// The ports. 0: the system chooses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WsdPorts {
    /// The port of datagrams.
    pub discovery: u16,
    /// The port of HTTP.
    pub metadata: u16,
}

impl Default for WsdPorts {
    fn default() -> Self {
        Self { discovery: 3702, metadata: 5357 }
    }
}

/// A computer that Windows finds. It sends a Bye when it is dropped.
pub struct WsDiscovery {
    shared: Arc<Shared>,
    metadata: MetadataServer,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    socket: UdpSocket,
    device: Device,
    addresses: Vec<Ipv4Addr>,
    port: u16,
    writer: Arc<Mutex<MessageWriter>>,
    is_stopping: AtomicBool,
}

impl WsDiscovery {
    /// Answers clients that reach these addresses, and no others.
    pub fn start(device: &Device, addresses: &[Ipv4Addr], ports: WsdPorts) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // only has to differ from start to start
        let [.., a, b, c, d] = now.as_secs().to_be_bytes();
        let instance = u32::from_be_bytes([a, b, c, d]);
        let writer = MessageWriter::new(device.clone(), instance, ports.metadata);
        let writer = Arc::new(Mutex::new(writer));
        let metadata = MetadataServer::start(device, addresses, ports.metadata, &writer)?;
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, ports.discovery);
        let socket = open_socket(any, addresses)
            .map_err(|why| Error::WsDiscovery { address: any.into(), why })?;
        let shared = Arc::new(Shared {
            socket,
            device: device.clone(),
            addresses: addresses.to_vec(),
            port: ports.discovery,
            writer,
            is_stopping: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("ws-discovery".to_owned());
        let thread = thread.spawn(move || own.answer()).map_err(|why| Error::Thread { why })?;
        shared.multicast(MessageWriter::hello);
        Ok(Self { shared, metadata, thread: Some(thread) })
    }

    /// The address of datagrams.
    pub fn discovery_address(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }

    /// The addresses of HTTP.
    pub fn metadata_addresses(&self) -> Vec<SocketAddr> {
        self.metadata.addresses()
    }
}

impl Drop for WsDiscovery {
    fn drop(&mut self) {
        self.shared.multicast(|writer, _| writer.bye());
        self.shared.is_stopping.store(true, Ordering::Release);
        // a thread that panicked has printed why
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    /// Answers datagrams until the end.
    fn answer(&self) {
        let mut bytes = vec![0; MAX_REQUEST];
        while !self.is_stopping.load(Ordering::Acquire) {
            // a time without a datagram, or an error message about a client that is gone
            let Ok((length, client)) = self.socket.recv_from(&mut bytes) else { continue };
            let Some(address) = self.local_address(client) else { continue };
            let request = bytes.get(..length).and_then(|bytes| parse(bytes, &self.device));
            let Some(request) = request else { continue };
            if let Some(answer) = self.writer.lock().discovery_answer(&request, address) {
                // a client that gets no answer asks again
                let _ = self.socket.send_to(answer.as_bytes(), client);
            }
        }
    }

    /// The own address by which a client is reached; none: nothing is announced there.
    fn local_address(&self, client: SocketAddr) -> Option<Ipv4Addr> {
        let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        probe.connect(client).ok()?;
        let SocketAddr::V4(local) = probe.local_addr().ok()? else { return None };
        self.addresses.iter().find(|address| *address == local.ip()).copied()
    }

    /// Sends a multicast message from each address.
    fn multicast(&self, message: impl Fn(&mut MessageWriter, Ipv4Addr) -> String) {
        for address in &self.addresses {
            let text = message(&mut self.writer.lock(), *address);
            // clients that miss this send a probe
            let sent = || {
                let socket = socket2::SockRef::from(&self.socket);
                socket.set_multicast_if_v4(address)?;
                self.socket.send_to(text.as_bytes(), (GROUP, self.port))
            };
            let _ = sent();
        }
    }
}

/// Opens the socket of datagrams. Another program, such as wsdd, may have the port, too.
fn open_socket(address: SocketAddrV4, interfaces: &[Ipv4Addr]) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::V4(address).into())?;
    let socket = UdpSocket::from(socket);
    for interface in interfaces.iter().filter(|interface| !interface.is_loopback()) {
        socket.join_multicast_v4(&GROUP, interface)?;
    }
    socket.set_multicast_ttl_v4(1)?;
    socket.set_ttl(1)?;
    socket.set_read_timeout(Some(POLL))?;
    Ok(socket)
}
