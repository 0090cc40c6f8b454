//! Calls over UDP: those of MOUNT, the lock manager, the status monitor and the portmapper. NFS itself needs TCP.
//!
//! A few threads read from one socket. Clients that no export admits get no reply, so that the server is of no use to
//! those who send requests with the address of a victim.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vfs::Waiter;

use crate::core::Core;
use crate::dispatch::{self, Channel, Origin, Response};
use crate::request::ExportUsage;
use crate::server::Shared;
use crate::status::Counters;
use crate::wire::xdr::Writer;

/// Threads of a socket.
const THREADS: usize = 2;
/// Bytes of the longest call: a lock with all its names.
const MAX_CALL: usize = 8 << 10;
/// Bytes of the longest reply.
const MAX_REPLY: usize = 8 << 10;
/// How often a thread looks whether the server stops.
const STOP_POLL: Duration = Duration::from_secs(1);
/// The time that a request waits for a suspended pool. Its client sends it again.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// A socket with its threads. They stop when it is dropped.
pub(crate) struct Datagrams {
    /// None: it was stopped.
    socket: Mutex<Option<Arc<UdpSocket>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A request without a connection: its client sends it again after some seconds.
struct DatagramWaiter<'a> {
    core: &'a Core,
    deadline: Instant,
}

impl Waiter for DatagramWaiter<'_> {
    fn is_cancelled(&self) -> bool {
        self.core.is_stopping() || Instant::now() >= self.deadline
    }

    fn run_blocking(&self, work: &mut dyn FnMut()) {
        work();
    }
}

impl Datagrams {
    /// Starts to serve an address.
    pub(crate) fn start(shared: &Arc<Shared>, address: SocketAddr) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::bind(address)?);
        socket.set_read_timeout(Some(STOP_POLL))?;
        let threads = Mutex::default();
        let datagrams = Self { socket: Mutex::new(Some(Arc::clone(&socket))), threads };
        for _ in 0..THREADS {
            let (shared, socket) = (Arc::clone(shared), Arc::clone(&socket));
            let thread = std::thread::Builder::new().name("nfs-udp".to_owned());
            let thread = thread.spawn(move || serve(&shared, &socket))?;
            datagrams.threads.lock().push(thread);
        }
        Ok(datagrams)
    }

    /// Waits for the threads, and closes the socket. The server is stopping already.
    pub(crate) fn stop(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        let Some(socket) = self.socket.lock().take() else { return };
        // wakes the threads; without that they end within a second
        if let Ok(address) = socket.local_addr() {
            let host = match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            for _ in &threads {
                let _ = socket.send_to(&[], (host, address.port()));
            }
        }
        for thread in threads {
            // a thread that panicked has printed why
            let _ = thread.join();
        }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(shared: &Shared, socket: &UdpSocket) {
    let mut call = vec![0; MAX_CALL];
    let usage = ExportUsage::default();
    let local = socket.local_addr().ok().map(|address| address.ip());
    while !shared.core.is_stopping() {
        let Ok((length, address)) = socket.recv_from(&mut call) else { continue };
        let Some(record) = call.get(..length) else { continue };
        if !shared.core.table.read().admits(address) {
            continue;
        }
        let waiter = DatagramWaiter { core: &shared.core, deadline: Instant::now() + MAX_WAIT };
        let channel = Channel::Datagram(&waiter);
        let origin = Origin { address, local, channel, usage: &usage, end_turn: &|| () };
        let (mut reply, mut counters) = (Writer::default(), Counters::default());
        let answer = dispatch::execute(shared, &origin, record, &mut reply, &mut counters);
        shared.core.totals.add(&counters);
        if matches!(answer, Response::Send { .. }) && reply.len() <= MAX_REPLY {
            // a reply that is lost is requested again
            let _ = socket.send_to(reply.as_bytes(), address);
        }
    }
}
