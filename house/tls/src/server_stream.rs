//! The server's side of an encrypted connection, which one thread reads from while another one writes to it.
//!
//! ```text
//! socket ── records ──► received ── decrypted ──► read()
//! socket ◄── records ── outgoing ◄── encrypted ── write()
//! ```
//!
//! No thread waits for the socket while it has the lock of the encryption, so that a client that reads slowly does not
//! keep its own requests from being read.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection};

/// Bytes of records that are read at once.
const RECEIVE_SIZE: usize = 64 << 10;
/// Bytes that are encrypted at once.
const MAX_ENCRYPTED: usize = 256 << 10;

/// The server's side of an encrypted connection.
pub struct ServerStream {
    socket: Arc<TcpStream>,
    connection: Mutex<ServerConnection>,
    /// Records that were received. Locked by the thread that reads.
    received: Mutex<Received>,
    /// Records that wait to be sent, in their order. Locked before `connection`, by the thread that sends.
    outgoing: Mutex<Outgoing>,
}

struct Received {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl ServerStream {
    /// Does the handshake with a client, unless it `is_late` between two messages. The time limits of the socket end each
    /// wait.
    ///
    /// # Errors
    /// If the client breaks the protocol, does not trust the certificate, or is too slow.
    pub fn accept(
        socket: Arc<TcpStream>,
        config: Arc<ServerConfig>,
        is_late: impl Fn() -> bool,
    ) -> io::Result<Self> {
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        connection.set_buffer_limit(None);
        let mut stream = &*socket;
        while connection.is_handshaking() || connection.wants_write() {
            if is_late() {
                return Err(ErrorKind::TimedOut.into());
            }
            if connection.wants_write() {
                connection.write_tls(&mut stream)?;
                continue;
            }
            if connection.read_tls(&mut stream)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if let Err(why) = connection.process_new_packets() {
                // the client learns the reason by an alert, if it still listens
                let _ = connection.write_tls(&mut stream);
                return Err(io::Error::other(why));
            }
        }
        let received = Received { bytes: vec![0; RECEIVE_SIZE].into(), start: 0, end: 0 };
        Ok(Self {
            socket,
            connection: Mutex::new(connection),
            received: Mutex::new(received),
            outgoing: Mutex::default(),
        })
    }

    /// Reads some bytes; 0: the client has closed the connection.
    ///
    /// # Errors
    /// If the records were changed on their way, or the socket fails or reaches its time limit.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut received = self.received.lock();
        loop {
            let wants_write = {
                let mut connection = self.connection.lock();
                match connection.reader().read(into) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // a client that closes the socket without a word has closed it as well
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                    done => return done,
                }
                received.decrypt(&mut connection)?;
                connection.wants_write()
            };
            if wants_write {
                // the answer to a new key of the client
                self.flush()?;
            }
            if received.start == received.end && !self.has_plaintext()? {
                let count = Read::read(&mut &*self.socket, &mut received.bytes)?;
                if count == 0 {
                    return Ok(0);
                }
                (received.start, received.end) = (0, count);
            }
        }
    }

    fn has_plaintext(&self) -> io::Result<bool> {
        let mut connection = self.connection.lock();
        let state = connection.process_new_packets().map_err(io::Error::other)?;
        Ok(state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
    }

    /// Encrypts some bytes of the buffers, and sends them as far as the socket takes them. Returns the number of bytes;
    /// [`ServerStream::flush`] sends the rest.
    ///
    /// # Errors
    /// If the socket fails, or reaches its time limit before anything was taken.
    pub fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut outgoing = self.outgoing.lock();
        outgoing.send(&self.socket)?;
        let mut count = 0;
        {
            let mut connection = self.connection.lock();
            for buffer in buffers {
                let part = &buffer[..buffer.len().min(MAX_ENCRYPTED - count)];
                count += connection.writer().write(part)?;
                if count == MAX_ENCRYPTED {
                    break;
                }
            }
            outgoing.encrypt(&mut connection)?;
        }
        match outgoing.send(&self.socket) {
            // the bytes are taken, and the rest of their records goes first next time
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(count),
            done => done.map(|()| count),
        }
    }

    /// Sends the records that wait.
    ///
    /// # Errors
    /// If the socket fails, or reaches its time limit.
    pub fn flush(&self) -> io::Result<()> {
        let mut outgoing = self.outgoing.lock();
        outgoing.encrypt(&mut self.connection.lock())?;
        outgoing.send(&self.socket)
    }
}

impl Received {
    /// Decrypts as many records as the connection takes now.
    fn decrypt(&mut self, connection: &mut ServerConnection) -> io::Result<()> {
        let mut rest = &self.bytes[self.start..self.end];
        if rest.is_empty() {
            return Ok(());
        }
        let count = connection.read_tls(&mut rest)?;
        self.start += count;
        connection.process_new_packets().map_err(io::Error::other)?;
        Ok(())
    }
}

impl Outgoing {
    /// Takes the records that the connection has made.
    fn encrypt(&mut self, connection: &mut ServerConnection) -> io::Result<()> {
        while connection.wants_write() {
            connection.write_tls(&mut self.bytes)?;
        }
        Ok(())
    }

    fn send(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            match socket.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }
}
