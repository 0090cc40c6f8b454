//! A connection to a UPS server, by TCP or TLS: every step has a time limit, and every reply a maximum size.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use tls::{ClientStream, TrustedServers};

use crate::UpsError;

/// The time for each step: connecting, a read, a write.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The longest line of an answer in bytes.
const MAX_LINE: u64 = 4096;

/// A connection to a UPS server.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The host and port, for messages.
    pub(crate) server: String,
    stream: BufReader<Stream>,
}

/// The bytes below the protocol.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Encrypted(Box<ClientStream>),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Encrypted(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Encrypted(stream) => stream.flush(),
        }
    }
}

impl Connection {
    /// Connects to a host and port.
    pub(crate) fn open(host: &str, port: u16) -> Result<Self, UpsError> {
        let server = format!("{host}:{port}");
        let unreachable = |why: &dyn ToString| UpsError::Unreachable {
            server: server.clone(),
            why: why.to_string(),
        };
        let mut last = unreachable(&"the name has no address");
        for address in (host, port).to_socket_addrs().map_err(|why| unreachable(&why))? {
            let connected = TcpStream::connect_timeout(&address, TIME_LIMIT).and_then(|stream| {
                stream.set_read_timeout(Some(TIME_LIMIT))?;
                stream.set_write_timeout(Some(TIME_LIMIT))?;
                Ok(stream)
            });
            match connected {
                Ok(stream) => {
                    let stream = BufReader::new(Stream::Plain(stream));
                    return Ok(Self { server, stream });
                }
                Err(why) => last = unreachable(&why),
            }
        }
        Err(last)
    }

    /// Encrypts the connection from here on. The server has agreed to it.
    pub(crate) fn encrypt(self, servers: &TrustedServers, host: &str) -> Result<Self, UpsError> {
        // bytes that came with the answer were not encrypted: another program on the way may have added them
        if !self.stream.buffer().is_empty() {
            return Err(self.malformed("it sent more before the connection was encrypted"));
        }
        let server = self.server;
        let Stream::Plain(socket) = self.stream.into_inner() else {
            return Err(UpsError::Malformed { server, what: "it is encrypted".to_owned() });
        };
        match ClientStream::connect(servers, host, socket) {
            Ok(stream) => {
                let stream = BufReader::new(Stream::Encrypted(Box::new(stream)));
                Ok(Self { server, stream })
            }
            Err(why) => Err(UpsError::NotEncrypted { server, why: why.to_string() }),
        }
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), UpsError> {
        let stream = self.stream.get_mut();
        let sent = stream.write_all(bytes).and_then(|()| stream.flush());
        sent.map_err(|why| self.unreachable(&why))
    }

    /// Reads a line without its end.
    pub(crate) fn read_line(&mut self) -> Result<String, UpsError> {
        let mut bytes = Vec::new();
        let read = self.stream.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes);
        read.map_err(|why| self.unreachable(&why))?;
        if bytes.pop() != Some(b'\n') {
            let what = if bytes.is_empty() { "it hung up" } else { "the line does not end" };
            return Err(self.malformed(what));
        }
        String::from_utf8(bytes).map_err(|_| self.malformed("the line is not UTF-8"))
    }

    /// Reads exactly as many bytes as the buffer has.
    pub(crate) fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), UpsError> {
        let read = self.stream.read_exact(buffer);
        read.map_err(|why| self.unreachable(&why))
    }

    pub(crate) fn malformed(&self, what: &str) -> UpsError {
        UpsError::Malformed { server: self.server.clone(), what: what.to_owned() }
    }

    fn unreachable(&self, why: &io::Error) -> UpsError {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        let why = match why.kind() {
            TimedOut | WouldBlock => "no answer within 5 seconds".to_owned(),
            _ => why.to_string(),
        };
        UpsError::Unreachable { server: self.server.clone(), why }
    }
}
