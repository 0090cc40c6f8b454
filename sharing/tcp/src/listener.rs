//! A listening socket with the thread that accepts its connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

/// The pause after a connection could not be accepted, as when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a listener does not start.
#[derive(Debug)]
pub enum ListenerError {
    /// The address cannot be listened on.
    Listen(io::Error),
    /// The thread cannot be started.
    Thread(io::Error),
}

/// A listening socket. It stops when it is dropped.
pub struct Listener {
    address: SocketAddr,
    socket: Arc<TcpListener>,
    is_stopping: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    /// Starts a thread of this name, which calls `on_connect` for each connection. The function must not wait.
    pub fn start(
        address: SocketAddr,
        thread_name: &str,
        on_connect: impl Fn(SocketAddr, TcpStream) + Send + 'static,
    ) -> Result<Self, ListenerError> {
        let socket = Arc::new(TcpListener::bind(address).map_err(ListenerError::Listen)?);
        let address = socket.local_addr().map_err(ListenerError::Listen)?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (accepting, stop) = (Arc::clone(&socket), Arc::clone(&is_stopping));
        let thread = std::thread::Builder::new()
            .name(thread_name.to_owned())
            .spawn(move || accept_connections(&accepting, &stop, on_connect))
            .map_err(ListenerError::Thread)?;
        Ok(Self { address, socket, is_stopping, thread: Mutex::new(Some(thread)) })
    }

    /// The address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops to listen, and waits for the thread.
    pub fn stop(&self) {
        self.is_stopping.store(true, SeqCst);
        // wakes the thread that waits for a connection
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
        let thread = self.thread.lock().take();
        // a thread that panicked has printed why
        let _ = thread.map(JoinHandle::join);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept_connections(
    socket: &TcpListener,
    is_stopping: &AtomicBool,
    on_connect: impl Fn(SocketAddr, TcpStream),
) {
    while !is_stopping.load(SeqCst) {
        match socket.accept() {
            Ok((stream, address)) => on_connect(address, stream),
            Err(_) if is_stopping.load(SeqCst) => return,
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
}
