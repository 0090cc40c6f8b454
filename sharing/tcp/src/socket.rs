//! Reading from and writing to a client's socket, with limits on the time that a message takes.
//!
//! The socket's own timeouts end each call, so that a loop here sees the time. A message that has begun must be
//! complete within its allowance; between messages a client may be silent. Keepalive probes find a client that is
//! gone without a word.

use std::io::{self, BufReader, ErrorKind, IoSlice, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;

use crate::Transport;

/// Bytes that are read ahead: several requests without data.
const READ_AHEAD: usize = 64 << 10;
/// The number of buffers that one system call sends.
const MAX_SLICES: usize = 64;
/// A silent client is probed after this time, at this interval and this many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_mins(1), Duration::from_secs(10), 6);
/// Milliseconds after which a connection ends whose client does not acknowledge data.
const USER_TIMEOUT: u32 = 120_000;
/// The time after which a call that sends returns if the client takes nothing.
pub const SEND_WAIT: Duration = Duration::from_millis(20);

/// Sets a client's socket up.
pub fn configure(stream: &TcpStream, stall_timeout: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(stall_timeout))?;
    stream.set_write_timeout(Some(stall_timeout.min(SEND_WAIT)))?;
    let (idle, interval, count) = KEEPALIVE;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, idle)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    sockopt::set_tcp_keepcnt(stream, count)?;
    sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT)?;
    Ok(())
}

/// The time that a message of some bytes may take: the stall timeout for each MiB that it has or begins.
///
/// # Panics
/// If a message has 2^32 MiB.
pub fn allowance(stall_timeout: Duration, bytes: usize) -> Duration {
    let parts = u32::try_from((bytes >> 20) + 1).expect("messages have less than 2^32 MiB");
    stall_timeout * parts
}

/// The receiving side of a connection.
pub struct Incoming(BufReader<SharedTransport>);

/// The result of a wait for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited<const N: usize> {
    /// The first bytes of a message.
    Message([u8; N]),
    /// Nothing was received within the time limit of the socket, and nothing is buffered.
    Idle,
    /// The client has closed the connection.
    Closed,
}

/// A connection that the sending side uses too.
struct SharedTransport(Box<dyn Transport>);

impl Read for SharedTransport {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Incoming {
    /// The receiving side of a connection.
    pub fn new(transport: impl Transport + 'static) -> Self {
        let shared = SharedTransport(Box::new(transport));
        Self(BufReader::with_capacity(READ_AHEAD, shared))
    }

    /// Whether bytes were received that are not read yet.
    pub fn has_unread_bytes(&self) -> bool {
        self.unread_bytes() > 0
    }

    /// The bytes that were received and are not read yet.
    pub fn unread_bytes(&self) -> usize {
        self.0.buffer().len()
    }

    /// Reads some bytes. Without a deadline, the wait for the first of them has no end.
    fn read_some(&mut self, into: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            match self.0.read(into) {
                Err(error) if is_timeout(&error) => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Fills a buffer within a time.
    pub fn read_exact(&mut self, into: &mut [u8], time: Duration) -> io::Result<()> {
        self.read_exact_until(into, Instant::now() + time)
    }

    /// Fills a buffer until a deadline. Parts of one message share theirs.
    pub fn read_exact_until(&mut self, into: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut filled = 0;
        while filled < into.len() {
            let count = self.read_some(&mut into[filled..], Some(deadline))?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            filled += count;
            if filled < into.len() && Instant::now() >= deadline {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Waits for a message of a fixed size, which must be complete within a time once it has begun. None: the client
    /// has closed the connection.
    pub fn read_message<const N: usize>(&mut self, time: Duration) -> io::Result<Option<[u8; N]>> {
        let mut message = [0; N];
        let count = self.read_some(&mut message, None)?;
        if count == 0 {
            return Ok(None);
        }
        self.read_exact(&mut message[count..], time)?;
        Ok(Some(message))
    }

    /// Waits for a message of a fixed size as [`Self::read_message`] does, but at most for the time limit of the socket
    /// until it begins.
    pub fn await_message<const N: usize>(&mut self, time: Duration) -> io::Result<Awaited<N>> {
        let mut message = [0; N];
        let count = match self.read_some(&mut message, Some(Instant::now())) {
            Ok(0) => return Ok(Awaited::Closed),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(Awaited::Idle),
            Err(error) => return Err(error),
        };
        self.read_exact(&mut message[count..], time)?;
        Ok(Awaited::Message(message))
    }

    /// Reads bytes and forgets them.
    pub fn skip(&mut self, count: usize, time: Duration) -> io::Result<()> {
        let deadline = Instant::now() + time;
        let (mut left, mut piece) = (count, [0; 16 << 10]);
        while left > 0 {
            let next = left.min(piece.len());
            self.read_exact_until(&mut piece[..next], deadline)?;
            left -= next;
        }
        Ok(())
    }
}

/// Sends all of some buffers within a time.
pub fn send<T: Transport + ?Sized>(
    transport: &T,
    buffers: &mut [IoSlice<'_>],
    time: Duration,
) -> io::Result<()> {
    send_or_wait(transport, buffers, time, &mut || ())
}

/// Sends as [`send`] does, and calls `on_wait` each time that the client has taken nothing for [`SEND_WAIT`].
pub fn send_or_wait<T: Transport + ?Sized>(
    transport: &T,
    buffers: &mut [IoSlice<'_>],
    time: Duration,
    on_wait: &mut dyn FnMut(),
) -> io::Result<()> {
    let deadline = Instant::now() + time;
    let mut rest = buffers;
    IoSlice::advance_slices(&mut rest, 0);
    loop {
        let now = rest.len().min(MAX_SLICES);
        let sent = if rest.is_empty() {
            transport.flush().map(|()| 0)
        } else {
            transport.write_vectored(&rest[..now])
        };
        match sent {
            Ok(_) if rest.is_empty() => return Ok(()),
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if is_timeout(&error) || error.kind() == ErrorKind::Interrupted => {
                if Instant::now() >= deadline {
                    return Err(ErrorKind::TimedOut.into());
                }
                on_wait();
            }
            Err(error) => return Err(error),
        }
        if !rest.is_empty() && Instant::now() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

/// Waits for a time, or until a side has closed the connection. Returns whether one has.
///
/// # Panics
/// If the time has more seconds than an i64.
pub fn wait_for_hangup(stream: &TcpStream, time: Duration) -> bool {
    // errors and the end of both sides are always reported
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    let seconds = i64::try_from(time.as_secs()).expect("pauses are short");
    let limit = Timespec { tv_sec: seconds, tv_nsec: i64::from(time.subsec_nanos()) };
    match rustix::event::poll(&mut polled, Some(&limit)) {
        Ok(count) => count > 0,
        Err(error) => error != rustix::io::Errno::INTR,
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
