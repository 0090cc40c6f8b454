//! Reading records from a client's socket and writing records to it.
//!
//! ```text
//! record     one or more fragments
//! fragment   mark (4 bytes): bit 31 set in the last fragment, then the length; the bytes
//! ```
//!
//! A record that has begun must be complete within its allowance; between records a client may be silent.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tcp::{Awaited, allowance};

use crate::wire::rpc::LAST_FRAGMENT;

/// Fragments of a record. Most clients send one; some send fragments of a few KiB.
const MAX_FRAGMENTS: usize = 1024;
/// Bytes of a record mark.
pub(crate) const MARK_LEN: usize = 4;

/// The receiving side of a connection.
pub(crate) struct Incoming {
    reader: tcp::Incoming,
    max_record: usize,
    stall_timeout: Duration,
}

/// The result of a wait for a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AwaitedRecord {
    /// The record begins with this mark.
    Begun(FragmentMark),
    /// The client is silent.
    Idle,
    /// The client has closed the connection.
    Closed,
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
        Self { reader: tcp::Incoming::new(stream), max_record, stall_timeout }
    }

    /// Waits for a record, at most for the time limit of the socket until it begins. Returns the mark of its first
    /// fragment.
    pub(crate) fn wait_for_record(&mut self) -> io::Result<AwaitedRecord> {
        Ok(match self.reader.await_message(self.stall_timeout)? {
            Awaited::Message(bytes) => AwaitedRecord::Begun(FragmentMark::parse(bytes)),
            Awaited::Idle => AwaitedRecord::Idle,
            Awaited::Closed => AwaitedRecord::Closed,
        })
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
            self.reader.read_exact_until(&mut into[start..], deadline)?;
            if mark.is_last {
                return Ok(());
            }
            let mut next = [0; MARK_LEN];
            self.reader.read_exact_until(&mut next, deadline)?;
            mark = FragmentMark::parse(next);
        }
        Err(io::Error::other("the record has too many fragments"))
    }
}

/// Sends a record, whose mark is in front of its bytes already. `on_wait` is called when the client takes nothing.
pub(crate) fn send(
    stream: &TcpStream,
    record: &[&[u8]],
    stall_timeout: Duration,
    on_wait: &dyn Fn(),
) -> io::Result<()> {
    let mut slices: Vec<_> = record.iter().map(|slice| IoSlice::new(slice)).collect();
    let length = record.iter().map(|slice| slice.len()).sum();
    tcp::send_or_wait(stream, &mut slices, allowance(stall_timeout, length), &mut || on_wait())
}
