//! The protocol of the two ends: a line of JSON from the client, then bytes, then perhaps a line
//! back.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::link::Link;
use crate::{Machine, System};

/// The version of these words.
pub(super) const PROTOCOL_VERSION: u32 = 1;
/// A line is this long at most.
const MAX_LINE_BYTES: u64 = 64 << 10;
/// A run takes this long at most.
pub(super) const MAX_RUN_MILLISECONDS: u64 = 600_000;
/// Sockets have buffers of this size at most.
pub(super) const MAX_BUFFER_SIZE: usize = 1 << 30;
/// Bytes of a request of the latency measurement, and of its reply.
pub(super) const PING_SIZE: usize = 64;
/// How finely the receiving end counts over time.
pub(super) const BIN_MILLISECONDS: u64 = 50;

/// A request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    /// [`PROTOCOL_VERSION`].
    pub(super) poolhouse_net: u32,
    pub(super) wanted: Command,
}

/// The kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Command {
    /// Reply with the server's identity.
    About,
    /// Receive until the end, and reply with the times of arrival.
    Take {
        /// Bytes of the socket's buffer; none: as the system sees fit.
        buffer: Option<usize>,
    },
    /// Send for so long.
    Send {
        milliseconds: u64,
        /// Bytes of the socket's buffer; none: as the system sees fit.
        buffer: Option<usize>,
    },
    /// Echo all bytes, until the end.
    Echo,
}

/// The server's identity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostInfo {
    pub(super) poolhouse_net: u32,
    pub(super) machine: Machine,
    pub(super) link: Link,
    pub(super) counters: Option<TcpCounters>,
    /// The largest window that its system gives a stream, bytes.
    pub(super) most_window: Option<u64>,
}

/// The times of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReceiveCounts {
    /// Bytes in each [`BIN_MILLISECONDS`] since the first.
    pub(super) bins: Vec<u64>,
    /// The socket's buffer as the system made it, bytes.
    pub(super) buffer: usize,
}

/// Segments of TCP that a machine has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TcpCounters {
    pub(super) sent: u64,
    pub(super) again: u64,
}

impl TcpCounters {
    /// Now.
    pub(super) fn read(system: &System) -> Option<Self> {
        let text = system.read_text("proc/net/snmp")?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
        let (names, values) = (lines.next()?, lines.next()?);
        let column = |wanted: &str| {
            let mut pairs = names.split_whitespace().zip(values.split_whitespace());
            pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
        };
        Some(Self { sent: column("OutSegs")?, again: column("RetransSegs")? })
    }

    /// The share of the bytes since then that was retransmitted.
    pub(super) fn retransmitted_since(self, before: Self) -> Option<f64> {
        let sent = self.sent.checked_sub(before.sent)?;
        Some(crate::number::ratio(self.again.checked_sub(before.again)?, sent.max(1)))
    }
}

/// Sends a line.
pub(super) fn write_line(stream: &mut TcpStream, words: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(words)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads a line that is followed by bytes: not one of them is taken.
pub(super) fn read_line_unbuffered<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return Ok(serde_json::from_slice(&line)?);
        }
        line.push(byte[0]);
        if line.len() as u64 > MAX_LINE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the line does not end"));
        }
    }
}

/// Reads the last line.
pub(super) fn read_last_line<T: DeserializeOwned>(stream: &TcpStream) -> io::Result<T> {
    let mut line = Vec::new();
    // ten minutes in bins of 50 ms are longer than any other line
    BufReader::new(stream.take(16 * MAX_LINE_BYTES)).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use super::{Command, Request, TcpCounters};
    use crate::System;

    #[test]
    fn request_encoding_is_stable() {
        for (wanted, text) in [
            (Command::Echo, r#"{"poolhouse_net":1,"wanted":"echo"}"#),
            (
                Command::Send { milliseconds: 5, buffer: None },
                r#"{"poolhouse_net":1,"wanted":{"send":{"milliseconds":5,"buffer":null}}}"#,
            ),
        ] {
            let request = Request { poolhouse_net: 1, wanted };
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
        }
    }

    #[test]
    fn retransmitted_segments_are_counted() {
        let now = TcpCounters::read(&System::default()).unwrap();
        let later = TcpCounters { sent: now.sent + 1000, again: now.again + 5 };
        assert!((later.retransmitted_since(now).unwrap() - 0.005).abs() < 1e-9);
        assert_eq!(now.retransmitted_since(later), None);
    }
}
