//! The order and the end of a queue of records, with threads of different speeds.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ondisk::stream::{FreeRange, Record, Write};

use super::{Outlet, Payload, SendQueue};
use crate::writer::StreamWriter;
use crate::{Error, Result};

/// Blocks of a test.
const BLOCKS: u64 = 3000;

fn record(object: u64) -> Record {
    Record::Write(Box::new(Write { object, logical_size: 512, ..Write::default() }))
}

fn content(object: u64) -> Vec<u8> {
    object.to_le_bytes().repeat(64)
}

fn hole(object: u64) -> FreeRange {
    FreeRange { object, offset: 1 << 20, length: 512, to_guid: 0 }
}

/// The stream of the blocks before `end`, written without a queue.
fn expected(end: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = StreamWriter::new(&mut bytes);
    for object in 0..end {
        out.record(&record(object), &content(object)).unwrap();
        out.free_range(hole(object)).unwrap();
        out.record(&record(object), &content(object + 1)).unwrap();
    }
    bytes
}

/// Puts blocks into the queue. The reads take differing times; the one of block `damaged` fails.
fn walk(out: &mut Outlet<'_, '_, '_>, damaged: u64) -> Result<()> {
    for object in 0..BLOCKS {
        let read = move || {
            if object % 7 == 0 {
                thread::sleep(Duration::from_micros(object % 50));
            }
            let failed = Err(Error::Pool { why: "unreadable".to_owned() });
            if object == damaged { failed } else { Ok(Payload::Stored(content(object))) }
        };
        out.block(vec![(record(object), None)], 512, Box::new(read))?;
        out.free_range(hole(object))?;
        out.record(record(object), content(object + 1))?;
    }
    Ok(())
}

fn send(damaged: u64, out: &mut dyn io::Write) -> Result<()> {
    let queue = SendQueue::new();
    thread::scope(|scope| {
        let mut outlet = Outlet::new(&queue, scope);
        let queue = &queue;
        scope.spawn(move || {
            queue.run_walk(move || walk(&mut outlet, damaged).and_then(|()| outlet.flush()));
        });
        queue.write_all(&mut StreamWriter::new(out))
    })
}

#[test]
fn records_keep_their_order() {
    let mut sent = Vec::new();
    send(BLOCKS, &mut sent).unwrap();
    assert!(sent == expected(BLOCKS));
}

#[test]
fn failed_read_ends_the_stream_at_its_place() {
    let mut sent = Vec::new();
    let why = send(1234, &mut sent).unwrap_err().to_string();
    assert!(why.contains("unreadable"), "{why}");
    assert!(sent == expected(1234));
}

/// Takes some bytes, and is closed then.
struct Pipe(AtomicU64);

impl io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed) > 100_000 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn closed_pipe_ends_the_walk() {
    let why = send(BLOCKS, &mut Pipe(AtomicU64::new(0))).unwrap_err();
    assert!(matches!(why, Error::Transfer { .. }), "{why}");
}
