//! Sending and receiving as fast as it goes.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::protocol::{BIN_MILLISECONDS, MAX_RUN_MILLISECONDS, PING_SIZE, ReceiveCounts};
use crate::histogram::Histogram;
use crate::test_data::Random;

/// Bytes handed to the system at a time.
const CHUNK_SIZE: usize = 128 << 10;
/// Random bytes that are sent again and again: more than anything on the way looks back.
const DATA_SIZE: usize = 4 << 20;
/// Between two questions of which the latency is measured.
const PING_INTERVAL: Duration = Duration::from_millis(2);

/// Sends for so long, unless it is to stop.
pub(super) fn send(
    stream: &mut TcpStream,
    time: Duration,
    stop: impl Fn() -> bool,
) -> io::Result<()> {
    let mut random = Random::new(1);
    let content: Vec<u8> =
        (0..DATA_SIZE / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    let began = Instant::now();
    for piece in content.chunks_exact(CHUNK_SIZE).cycle() {
        if began.elapsed() >= time || stop() {
            break;
        }
        stream.write_all(piece)?;
    }
    Ok(())
}

/// Receives until the end, and counts the bytes by time.
pub(super) fn receive(
    stream: &mut TcpStream,
    stop: impl Fn() -> bool,
) -> io::Result<ReceiveCounts> {
    let mut into = vec![0; CHUNK_SIZE];
    let mut taken = ReceiveCounts {
        buffer: rustix::net::sockopt::socket_recv_buffer_size(&*stream)?,
        ..ReceiveCounts::default()
    };
    let mut first = None;
    loop {
        let count = stream.read(&mut into)?;
        if count == 0 || stop() {
            return Ok(taken);
        }
        let began = *first.get_or_insert_with(Instant::now);
        let passed = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if passed > 2 * MAX_RUN_MILLISECONDS {
            return Ok(taken);
        }
        let bin = usize::try_from(passed / BIN_MILLISECONDS).unwrap_or(usize::MAX);
        if taken.bins.len() <= bin {
            taken.bins.resize(bin + 1, 0);
        }
        taken.bins[bin] += count as u64;
    }
}

/// Echoes all bytes, until the end.
pub(super) fn echo(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut message = [0; PING_SIZE];
    loop {
        match stream.read_exact(&mut message) {
            Ok(()) => stream.write_all(&message)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Sends requests for this long, and measures the latencies.
pub(super) fn ping(
    stream: &mut TcpStream,
    time: Duration,
    stop: impl Fn() -> bool,
) -> io::Result<Histogram> {
    stream.set_nodelay(true)?;
    let mut histogram = Histogram::default();
    let began = Instant::now();
    let mut message = [7; PING_SIZE];
    while began.elapsed() < time && !stop() {
        let before = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        histogram.add(before.elapsed());
        std::thread::sleep(PING_INTERVAL);
    }
    Ok(histogram)
}

/// Gives a socket buffers of that size, as far as the system allows.
pub(super) fn set_socket_buffers(stream: &TcpStream, buffer: Option<usize>) -> io::Result<()> {
    if let Some(bytes) = buffer {
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, bytes)?;
        rustix::net::sockopt::set_socket_send_buffer_size(stream, bytes)?;
    }
    Ok(())
}
