//! Finding again what a cache drive held when the pool was left.
//!
//! The header leads to the log from its newest block back; what the log tells of goes into the
//! index as what it is: a guess where a block may be, to be judged when it is read. A header that
//! is not this drive's, damaged, or of a past that the pool left, is put out by an empty one before anything is written.

use ondisk::Compression;
use ondisk::l2arc::{Entry, Header, LogBlock, LogPointer};
use parking_lot::Mutex;
use transform::compress;
use units::{Guid, Txg};

use super::drive::Drive;
use super::index::{Index, Name};
use super::pen::{Pen, sum_of};

/// Looks at what is on a drive, if that is not known yet. Blocks younger than `settled` are not of
/// this pool's past. The index takes `most` bytes of memory at most.
pub(super) fn restore(drive: &Drive, pool: Guid, settled: Txg, index: &Mutex<Index>, most: usize) {
    let mut pen = drive.pen.lock();
    if pen.restored || !drive.is_usable() {
        return;
    }
    let header = drive.read_header().filter(|header| is_own(header, &pen, pool, drive.guid));
    let blank = pen.clone();
    let found = header.is_some_and(|header| {
        let past = begin(&mut pen, &header, drive).then(|| {
            follow(&mut pen, &header, drive, settled, &|blocks| {
                let mut index = index.lock();
                for (name, at, size) in blocks.iter().copied() {
                    if index.has_room(most) {
                        index.put_older(drive.number, name, at, size);
                    }
                }
                index.has_room(most)
            })
        });
        past == Some(Past::Own)
    });
    if !found {
        *pen = blank;
        index.lock().forget_drive(drive.number);
        pen.tell(drive, pool);
    } else if !pen.ring.first && pen.ring.evict < pen.ring.hand {
        // it went on at the start when nothing was logged of that yet
        pen.ring.hand = pen.ring.start;
    }
    pen.restored = true;
}

/// Whose past a log tells of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Past {
    /// This pool's, as far as the log was there.
    Own,
    /// One that did not happen: the pool was taken back to before it. What is born from now on may
    /// have the names that the log has.
    Another,
}

/// Whether a header is this drive's, in this pool, as it is now.
fn is_own(header: &Header, pen: &Pen, pool: Guid, drive: Guid) -> bool {
    let (ring, log) = (&pen.ring, header.logs[0]);
    let hand = log.at.saturating_add(log.psize.into());
    (header.pool, header.drive) == (pool, drive)
        && header.log_entries == pen.per_log
        && (header.start, header.end) == (ring.start, ring.end)
        && (ring.start..=ring.end).contains(&header.evict)
        && hand <= ring.end
}

/// Takes up the ring where it was left. False: it cannot have been so.
fn begin(pen: &mut Pen, header: &Header, drive: &Drive) -> bool {
    let log = header.logs[0];
    let hand = (log.at + u64::from(log.psize)).max(pen.ring.start);
    if hand != drive.ashift.round_up(hand) || header.evict != drive.ashift.round_up(header.evict) {
        return false;
    }
    pen.ring.hand = hand;
    pen.ring.evict = header.evict;
    pen.ring.first = header.first_sweep;
    pen.logs = header.logs;
    true
}

/// A block that the log tells of: what names it, where it is, and its bytes there.
type Told = (Name, u64, u32);

/// Follows the log back as long as it is there and whole, and `take` wants more; it gets the
/// youngest first.
fn follow(
    pen: &mut Pen,
    header: &Header,
    drive: &Drive,
    settled: Txg,
    take: &dyn Fn(&[Told]) -> bool,
) -> Past {
    let [mut this, mut next] = header.logs;
    // each lies behind all that the one before tells of: so this ends
    let mut last = 0;
    loop {
        let end = this.at.saturating_add(this.psize.into());
        if !pen.ring.holds(this.payload_start, end) || pen.ring.back(end) < last {
            return Past::Own;
        }
        last = pen.ring.back(this.payload_start);
        let Some(block) = read_log(drive, &this, pen.per_log) else {
            return Past::Own;
        };
        if block.entries.iter().any(|entry| entry.birth > settled) {
            return Past::Another;
        }
        pen.known.push_front(this);
        let ring = &pen.ring;
        let told = |entry: &Entry| {
            let end = entry.at.checked_add(entry.psize.into())?;
            let named = (Name::new(entry.dva, entry.birth), entry.at, entry.psize);
            ring.holds(entry.at, end).then_some(named)
        };
        let blocks: Vec<Told> = block.entries.iter().rev().filter_map(told).collect();
        if !take(&blocks) {
            return Past::Own;
        }
        (this, next) = (next, block.before);
    }
}

fn read_log(drive: &Drive, pointer: &LogPointer, entries: u64) -> Option<LogBlock> {
    let size = pointer.psize as usize;
    if size > LogBlock::SIZE || entries == 0 {
        return None;
    }
    let mut stored = vec![0; size];
    if drive.device.read_at(pointer.at, &mut stored).is_err() {
        drive.note_read_error();
        return None;
    }
    if sum_of(&stored) != pointer.sum {
        return None;
    }
    let mut plain = vec![0; LogBlock::SIZE];
    match pointer.compression? {
        Compression::Off => plain.get_mut(..size)?.copy_from_slice(&stored),
        method => compress::decompress(method, &stored, &mut plain).ok()?,
    }
    LogBlock::parse(&plain, entries).ok()
}
