//! A TCP connection to a UPS server: every step has a time limit, and every reply a maximum size.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

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
    stream: BufReader<TcpStream>,
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
                Ok(stream) => return Ok(Self { server, stream: BufReader::new(stream) }),
                Err(why) => last = unreachable(&why),
            }
        }
        Err(last)
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), UpsError> {
        let sent = self.stream.get_mut().write_all(bytes);
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

    fn unreachable(&self, why: &std::io::Error) -> UpsError {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        let why = match why.kind() {
            TimedOut | WouldBlock => "no answer within 5 seconds".to_owned(),
            _ => why.to_string(),
        };
        UpsError::Unreachable { server: self.server.clone(), why }
    }
}
