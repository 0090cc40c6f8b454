//! A connection, as the server knows it.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A connection, as the server knows it.
pub(crate) struct Client {
    /// The address of the host.
    pub(crate) address: SocketAddr,
    pub(crate) stream: Arc<TcpStream>,
    is_ended: AtomicBool,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, stream: TcpStream) -> Self {
        Self { address, stream: Arc::new(stream), is_ended: AtomicBool::new(false) }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(SeqCst)
    }

    /// Ends the connection after the commands that were read are answered. Does not wait.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, SeqCst);
        // fails if the host has closed the connection already
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// Ends the connection at once. Does not wait.
    pub(crate) fn abort(&self) {
        self.is_ended.store(true, SeqCst);
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
