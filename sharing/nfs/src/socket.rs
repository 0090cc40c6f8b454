//! Reading records from a client's socket and writing records to it, with limits on size and time.
//!
//! ```text
//! record     one or more fragments
//! fragment   mark (4 bytes): bit 31 set in the last fragment, then the length; the bytes
//! ```
//!
//! A record that has begun must be complete within its allowance; between records a client may be silent. Keepalive
//! probes find a client that is gone without a word.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;

use crate::wire::rpc::LAST_FRAGMENT;

/// Bytes that are read ahead: several requests without data.
const READ_AHEAD: usize = 64 << 10;
/// Fragments of a record: clients send one.
const MAX_FRAGMENTS: usize = 64;
/// Bytes of a record mark.
pub(crate) const MARK_LEN: usize = 4;
/// A silent client is probed after this time, and then so often and so many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_mins(1), Duration::from_secs(10), 6);
/// Milliseconds after which a connection ends whose client does not acknowledge data.
const USER_TIMEOUT: u32 = 120_000;

/// Sets a client's socket up.
pub(crate) fn configure(stream: &TcpStream, stall_timeout: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(stall_timeout))?;
    stream.set_write_timeout(Some(stall_timeout))?;
    let (idle, interval, count) = KEEPALIVE;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, idle)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    sockopt::set_tcp_keepcnt(stream, count)?;
    sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT)?;
    Ok(())
}

/// The time that a record may take: the stall timeout for each MiB that it has or begins.
fn allowance(stall_timeout: Duration, bytes: usize) -> Duration {
    let parts = u32::try_from((bytes >> 20) + 1).expect("records have less than 2^32 MiB");
    stall_timeout * parts
}

/// The receiving side of a connection.
pub(crate) struct Incoming {
    reader: BufReader<SharedStream>,
    max_record: usize,
    stall_timeout: Duration,
}

/// A socket that the sending side uses too.
struct SharedStream(Arc<TcpStream>);

impl Read for SharedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(into)
    }
}

/// The mark of a fragment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FragmentMark {
    pub(crate) length: usize,
    pub(crate) is_last: bool,
}

impl FragmentMark {
    fn parse(bytes: [u8; MARK_LEN]) -> Self {
        let mark = u32::from_be_bytes(bytes);
        let length = usize::try_from(mark & !LAST_FRAGMENT).expect("a 64-bit system");
        Self { length, is_last: mark & LAST_FRAGMENT != 0 }
    }
}

impl Incoming {
    pub(crate) fn new(stream: Arc<TcpStream>, max_record: usize, stall_timeout: Duration) -> Self {
        let reader = BufReader::with_capacity(READ_AHEAD, SharedStream(stream));
        Self { reader, max_record, stall_timeout }
    }

    /// Waits for a record. Returns the mark of its first fragment; none: the client has closed the connection.
    pub(crate) fn wait_for_record(&mut self) -> io::Result<Option<FragmentMark>> {
        let mut mark = [0; MARK_LEN];
        let count = self.read_some(&mut mark, None)?;
        if count == 0 {
            return Ok(None);
        }
        let deadline = Instant::now() + self.stall_timeout;
        self.read_exact(&mut mark[count..], deadline)?;
        Ok(Some(FragmentMark::parse(mark)))
    }

    /// Reads the rest of a record whose first mark was read.
    pub(crate) fn read_record(
        &mut self,
        first: FragmentMark,
        into: &mut Vec<u8>,
    ) -> io::Result<()> {
        into.clear();
        let deadline = Instant::now() + allowance(self.stall_timeout, self.max_record);
        let mut mark = first;
        for _ in 0..MAX_FRAGMENTS {
            let start = into.len();
            if mark.length > self.max_record - start {
                return Err(io::Error::other("the record is longer than the limit"));
            }
            into.resize(start + mark.length, 0);
            self.read_exact(&mut into[start..], deadline)?;
            if mark.is_last {
                return Ok(());
            }
            let mut next = [0; MARK_LEN];
            self.read_exact(&mut next, deadline)?;
            mark = FragmentMark::parse(next);
        }
        Err(io::Error::other("the record has too many fragments"))
    }

    /// Reads some bytes. Without a deadline, the wait for the first of them has no end.
    fn read_some(&mut self, into: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            match self.reader.read(into) {
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

    fn read_exact(&mut self, into: &mut [u8], deadline: Instant) -> io::Result<()> {
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
}

/// Sends a record, whose mark is in front of its bytes already.
pub(crate) fn send(stream: &TcpStream, record: &[u8], stall_timeout: Duration) -> io::Result<()> {
    let deadline = Instant::now() + allowance(stall_timeout, record.len());
    let (mut rest, mut stream) = (record, stream);
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if is_timeout(&error) || error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if !rest.is_empty() && Instant::now() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Whether a side has closed the connection.
pub(crate) fn is_hung_up(stream: &TcpStream) -> bool {
    // errors and the end of both sides are always reported
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&none)).is_ok_and(|count| count > 0)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
