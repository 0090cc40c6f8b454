//! Rebuilds the index of a cache device after an import.
//!
//! The header leads to the newest log block, and each log block to older ones. Their entries go
//! into the index as guesses that each read verifies. A header of another device, a damaged one, or
//! one of a history that the pool rewound, is replaced by an empty one before anything else is
//! written.

use ondisk::Compression;
use ondisk::l2arc::{Entry, Header, LogBlock, LogPointer};
use parking_lot::Mutex;
use transform::compress;
use units::{Guid, Txg};

use super::cache_device::CacheDevice;
use super::index::{BlockKey, Index};
use super::writer::{RingWriter, log_checksum};

/// Examines the content of a device once. Blocks younger than `settled` are not part of this pool's
/// history. The index uses at most `most` bytes of memory.
pub(super) fn rebuild_index(
    drive: &CacheDevice,
    pool: Guid,
    settled: Txg,
    index: &Mutex<Index>,
    most: usize,
) {
    let mut pen = drive.writer.lock();
    if pen.is_restored || !drive.is_usable() {
        return;
    }
    let header =
        drive.read_header().filter(|header| is_header_current(header, &pen, pool, drive.guid));
    let blank = pen.clone();
    let found = header.is_some_and(|header| {
        let past = resume_ring(&mut pen, &header, drive).then(|| {
            follow_log(&mut pen, &header, drive, settled, &|blocks| {
                let mut index = index.lock();
                for (name, at, size) in blocks.iter().copied() {
                    if index.can_grow(most) {
                        index.insert_older(drive.id, name, at, size);
                    }
                }
                index.can_grow(most)
            })
        });
        past == Some(LogLineage::Current)
    });
    if !found {
        *pen = blank;
        index.lock().remove_device(drive.id);
        pen.sync_header(drive, pool);
    } else if !pen.ring.is_first_sweep && pen.ring.evict_end < pen.ring.hand {
        // the hand wrapped to the start, and no log block records that yet
        pen.ring.hand = pen.ring.start;
    }
    pen.is_restored = true;
}

/// The history that a log belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogLineage {
    /// This pool's, as far as the log could be read.
    Current,
    /// One that the pool rewound: blocks that are born from now on may have the keys of the log's
    /// blocks.
    Discarded,
}

/// Whether a header is this drive's, in this pool, as it is now.
fn is_header_current(header: &Header, pen: &RingWriter, pool: Guid, drive: Guid) -> bool {
    let (ring, log) = (&pen.ring, header.logs[0]);
    let hand = log.offset.saturating_add(log.psize.into());
    (header.pool, header.device) == (pool, drive)
        && header.log_entries == pen.entries_per_log
        && (header.start, header.end) == (ring.start, ring.end)
        && (ring.start..=ring.end).contains(&header.evict)
        && hand <= ring.end
}

/// Takes up the ring where it was left. False: it cannot have been so.
fn resume_ring(pen: &mut RingWriter, header: &Header, drive: &CacheDevice) -> bool {
    let log = header.logs[0];
    let hand = (log.offset + u64::from(log.psize)).max(pen.ring.start);
    if hand != drive.ashift.round_up(hand) || header.evict != drive.ashift.round_up(header.evict) {
        return false;
    }
    pen.ring.hand = hand;
    pen.ring.evict_end = header.evict;
    pen.ring.is_first_sweep = header.first_sweep;
    pen.newest_logs = header.logs;
    true
}

/// A block in the log: its key, its address, and its stored bytes.
type LoggedBlock = (BlockKey, u64, u32);

/// Walks the log back while it is valid and `take` wants more; `take` gets the youngest entries
/// first.
fn follow_log(
    pen: &mut RingWriter,
    header: &Header,
    drive: &CacheDevice,
    settled: Txg,
    take: &dyn Fn(&[LoggedBlock]) -> bool,
) -> LogLineage {
    let [mut this, mut next] = header.logs;
    // each is behind all entries of the one before: so the walk ends
    let mut last = 0;
    loop {
        let end = this.offset.saturating_add(this.psize.into());
        if !pen.ring.contains(this.payload_start, end) || pen.ring.distance_behind_hand(end) < last
        {
            return LogLineage::Current;
        }
        last = pen.ring.distance_behind_hand(this.payload_start);
        let Some(block) = read_log_block(drive, &this, pen.entries_per_log) else {
            return LogLineage::Current;
        };
        if block.entries.iter().any(|entry| entry.birth > settled) {
            return LogLineage::Discarded;
        }
        pen.log_blocks.push_front(this);
        let ring = &pen.ring;
        let told = |entry: &Entry| {
            let end = entry.offset.checked_add(entry.psize.into())?;
            let named = (BlockKey::new(entry.dva, entry.birth), entry.offset, entry.psize);
            ring.contains(entry.offset, end).then_some(named)
        };
        let blocks: Vec<LoggedBlock> = block.entries.iter().rev().filter_map(told).collect();
        if !take(&blocks) {
            return LogLineage::Current;
        }
        (this, next) = (next, block.previous);
    }
}

fn read_log_block(drive: &CacheDevice, pointer: &LogPointer, entries: u64) -> Option<LogBlock> {
    let size = pointer.psize as usize;
    if size > LogBlock::SIZE || entries == 0 {
        return None;
    }
    let mut stored = vec![0; size];
    if drive.device.read_at(pointer.offset, &mut stored).is_err() {
        drive.record_read_error();
        return None;
    }
    if log_checksum(&stored) != pointer.sum {
        return None;
    }
    let mut plain = vec![0; LogBlock::SIZE];
    match pointer.compression? {
        Compression::Off => plain.get_mut(..size)?.copy_from_slice(&stored),
        method => compress::decompress(method, &stored, &mut plain).ok()?,
    }
    LogBlock::parse(&plain, entries).ok()
}
