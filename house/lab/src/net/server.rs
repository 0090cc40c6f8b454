//! The server: it handles each connection's request, for a bounded time.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use super::link::{self, Link};
use super::protocol::{
    self, Command, HostInfo, MAX_BUFFER_SIZE, MAX_RUN_MILLISECONDS, PROTOCOL_VERSION, Request,
    TcpCounters,
};
use super::transfer;
use crate::{Error, Machine, System};

/// Connections at a time.
const MAX_CONNECTIONS: usize = 256;
/// The time after which a silent client is disconnected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often is looked whether to stop.
const ACCEPT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A server for measurements.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    system: System,
}

impl Listener {
    /// Listens at an address; at any of this machine's if none is given.
    pub fn bind(address: Option<SocketAddr>, system: System) -> Result<Self, Error> {
        let any = [
            SocketAddr::from(([0_u16; 8], super::DEFAULT_PORT)),
            SocketAddr::from(([0_u8; 4], super::DEFAULT_PORT)),
        ];
        let wanted = address.as_slice();
        let wanted = if wanted.is_empty() { &any[..] } else { wanted };
        let peer = |error: io::Error| Error::Peer {
            peer: wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
            why: format!("cannot listen there: {error}"),
        };
        let socket = TcpListener::bind(wanted).map_err(peer)?;
        socket.set_nonblocking(true).map_err(peer)?;
        Ok(Self { socket, system })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Serves until `stop` is set. `came` is called with every client.
    pub fn serve(
        &self,
        stop: impl Fn() -> bool,
        came: impl Fn(SocketAddr) + Send + Sync + 'static,
    ) {
        let came: Arc<dyn Fn(SocketAddr) + Send + Sync> = Arc::new(came);
        let busy = Arc::new(AtomicUsize::new(0));
        while !stop() {
            // a connection that broke before it was accepted does not matter
            let Ok((stream, from)) = self.socket.accept() else {
                std::thread::sleep(ACCEPT_POLL_INTERVAL);
                continue;
            };
            if busy.fetch_add(1, SeqCst) >= MAX_CONNECTIONS {
                busy.fetch_sub(1, SeqCst);
                continue;
            }
            let (busy, system) = (Arc::clone(&busy), self.system.clone());
            let came = Arc::clone(&came);
            std::thread::spawn(move || {
                // a client that disconnects in the middle gets no error
                let _ = serve_connection(stream, from, &system, &*came);
                busy.fetch_sub(1, SeqCst);
            });
        }
    }
}

fn serve_connection(
    mut stream: TcpStream,
    from: SocketAddr,
    system: &System,
    came: &dyn Fn(SocketAddr),
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    stream.set_write_timeout(Some(IDLE_TIMEOUT))?;
    let request: Request = protocol::read_line_unbuffered(&mut stream)?;
    let bounded = |buffer: Option<usize>| buffer.map(|bytes| bytes.min(MAX_BUFFER_SIZE));
    match request.wanted {
        // a client with another version learns so from the reply
        Command::About => {
            came(from);
            protocol::write_line(&mut stream, &host_info(system, from))
        }
        _ if request.poolhouse_net != PROTOCOL_VERSION => Ok(()),
        Command::Echo => transfer::echo(&mut stream),
        Command::Take { buffer } => {
            transfer::set_socket_buffers(&stream, bounded(buffer))?;
            let taken = transfer::receive(&mut stream, || false)?;
            protocol::write_line(&mut stream, &taken)
        }
        Command::Send { milliseconds, buffer } => {
            transfer::set_socket_buffers(&stream, bounded(buffer))?;
            let time = Duration::from_millis(milliseconds.min(MAX_RUN_MILLISECONDS));
            transfer::send(&mut stream, time, || false)
        }
    }
}

fn host_info(system: &System, from: SocketAddr) -> HostInfo {
    HostInfo {
        poolhouse_net: PROTOCOL_VERSION,
        machine: Machine::read(system),
        link: Link::route_to(system, from),
        counters: TcpCounters::read(system),
        most_window: link::max_receive_window(system),
    }
}
