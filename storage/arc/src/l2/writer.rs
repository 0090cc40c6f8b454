//! Writes to a cache device: blocks, their log, the header.
//!
//! Before blocks overwrite older ones, a durable header marks the old ones as gone. Otherwise a
//! reader after a power cut could take one for the other where no checksum distinguishes them.

use std::collections::VecDeque;
use std::ops::Range;

use ondisk::l2arc::{Entry, Header, LogBlock, LogPointer, entries_per_log};
use ondisk::{Checksum, Compression, Order};
use transform::{checksum, compress};
use units::{Ashift, Guid};

use super::cache_device::CacheDevice;
use super::feed_queue::QueuedBlock;
use super::ring::Ring;

/// The bytes evicted at once, or this part of a smaller ring: each eviction costs a flush.
const EVICT_AHEAD: u64 = 64 << 20;
const EVICT_AHEAD_FRACTION: u64 = 8;

/// The writer of a cache device.
#[derive(Clone, Debug)]
pub(super) struct RingWriter {
    pub(super) ring: Ring,
    /// Blocks that are in no log block yet.
    entries: Vec<Entry>,
    /// Entries of a log block; 0: there is no log.
    pub(super) entries_per_log: u64,
    /// The newest log block, and the one before.
    pub(super) newest_logs: [LogPointer; 2],
    /// All that are there, oldest first.
    pub(super) log_blocks: VecDeque<LogPointer>,
    /// Whether the content of the device was examined.
    pub(super) is_restored: bool,
    /// Whether the header on the device still covers the range to be overwritten.
    is_header_stale: bool,
}

impl RingWriter {
    pub(super) fn new(ring: Ring) -> Self {
        let entries_per_log = entries_per_log(ring.start, ring.end);
        Self {
            ring,
            entries: Vec::new(),
            entries_per_log,
            newest_logs: [LogPointer::NONE; 2],
            log_blocks: VecDeque::new(),
            is_restored: false,
            is_header_stale: false,
        }
    }

    pub(super) fn is_warming_up(&self) -> bool {
        self.ring.is_first_sweep
    }

    pub(super) fn header(&self, pool: Guid, drive: Guid) -> Header {
        Header {
            pool,
            device: drive,
            log_entries: self.entries_per_log,
            evict: self.ring.evict_end,
            first_sweep: self.ring.is_first_sweep,
            start: self.ring.start,
            end: self.ring.end,
            logs: self.newest_logs,
            log_bytes: self.log_blocks.iter().map(|log| u64::from(log.psize)).sum(),
            log_count: self.log_blocks.len() as u64,
        }
    }

    /// Writes blocks one behind the other and returns their addresses, or none if a write failed.
    /// Calls `evict` with the ranges before they are overwritten.
    pub(super) fn write_blocks(
        &mut self,
        drive: &CacheDevice,
        pool: Guid,
        offers: &[QueuedBlock],
        evict: impl Fn(Range<u64>),
    ) -> Option<Vec<u64>> {
        if !self.is_restored || !drive.is_usable() {
            return None;
        }
        let ashift = drive.ashift;
        let blocks: u64 = offers.iter().map(|offer| allocated_size(ashift, &offer.stored)).sum();
        let logs =
            (offers.len() as u64).checked_div(self.entries_per_log).map_or(0, |logs| logs + 1);
        let most = blocks + logs * LogBlock::SIZE as u64;
        if most > self.ring.size() / 2 {
            return None;
        }
        self.evict_for(drive, pool, most, evict)?;
        let (mut next, from) = (self.clone(), self.ring.hand);
        let mut out = Vec::with_capacity(units::to_usize(most));
        let mut places = Vec::with_capacity(offers.len());
        for offer in offers {
            places.push(next.ring.hand);
            next.append_block(offer, ashift, &mut out);
        }
        assert_eq!(
            next.ring.hand,
            from + units::to_u64(out.len()),
            "the hand moves with the bytes"
        );
        assert!(units::to_u64(out.len()) <= most, "no more is written than was evicted");
        if !drive.write(from, &out) {
            return None;
        }
        let logged = next.newest_logs != self.newest_logs;
        *self = next;
        if logged {
            // a missing log block does no harm
            drive.write_header(&self.header(pool, drive.guid));
        }
        Some(places)
    }

    fn evict_for(
        &mut self,
        drive: &CacheDevice,
        pool: Guid,
        most: u64,
        evict: impl Fn(Range<u64>),
    ) -> Option<()> {
        let ahead = EVICT_AHEAD.min(self.ring.size() / EVICT_AHEAD_FRACTION);
        let mut next = self.ring.clone();
        let gone = next.evict_for(most, ahead);
        if next != self.ring {
            gone.into_iter().for_each(evict);
            self.log_blocks
                .retain(|log| next.contains(log.payload_start, log.offset + u64::from(log.psize)));
            self.ring = next;
            self.is_header_stale = true;
        }
        if self.is_header_stale {
            self.sync_header(drive, pool);
        }
        (!self.is_header_stale).then_some(())
    }

    /// Writes a header that describes the present content. Nothing else is written before that
    /// succeeds.
    pub(super) fn sync_header(&mut self, drive: &CacheDevice, pool: Guid) {
        self.is_header_stale =
            !(drive.write_header(&self.header(pool, drive.guid)) && drive.flush());
    }

    /// Puts a block behind the hand, and a log block behind that when there is one to write.
    fn append_block(&mut self, offer: &QueuedBlock, ashift: Ashift, out: &mut Vec<u8>) {
        let at = self.ring.hand;
        self.append_bytes(&offer.stored, ashift, out);
        if self.entries_per_log > 0 {
            self.entries.push(Entry { offset: at, ..offer.entry });
            if self.entries.len() as u64 >= self.entries_per_log {
                self.write_log_block(ashift, out);
            }
        }
    }

    /// Puts bytes behind the hand, filled up to whole sectors.
    fn append_bytes(&mut self, bytes: &[u8], ashift: Ashift, out: &mut Vec<u8>) {
        let size = allocated_size(ashift, bytes);
        assert!(self.ring.hand + size <= self.ring.end, "a block lies in the ring");
        let end = out.len() + units::to_usize(size);
        out.extend_from_slice(bytes);
        out.resize(end, 0);
        self.ring.hand += size;
    }

    fn write_log_block(&mut self, ashift: Ashift, out: &mut Vec<u8>) {
        let entries = std::mem::take(&mut self.entries);
        let start = entries.first().map_or(self.ring.hand, |entry| entry.offset);
        let payload = entries.iter().map(|entry| ashift.round_up(entry.psize.into())).sum();
        let plain = LogBlock { previous: self.newest_logs[1], entries }.encode();
        let room = LogBlock::SIZE - units::to_usize(ashift.bytes());
        let short = compress::compress(Compression::Lz4, 0, &plain, room);
        let method = if short.is_some() { Compression::Lz4 } else { Compression::Off };
        let mut stored = short.unwrap_or(plain);
        let size = allocated_size(ashift, &stored);
        assert!(
            size <= LogBlock::SIZE as u64,
            "a log block of {size} bytes has the space that was counted"
        );
        stored.resize(units::to_usize(size), 0);
        let pointer = LogPointer {
            offset: self.ring.hand,
            payload_size: payload,
            payload_start: start,
            lsize: units::narrow::<u32>(LogBlock::SIZE),
            psize: units::narrow::<u32>(size),
            compression: Some(method),
            sum: log_checksum(&stored),
        };
        self.append_bytes(&stored, ashift, out);
        self.newest_logs = [pointer, self.newest_logs[0]];
        self.log_blocks.push_back(pointer);
    }
}

/// Bytes on the drive.
fn allocated_size(ashift: Ashift, bytes: &[u8]) -> u64 {
    ashift.round_up(bytes.len() as u64)
}

/// The checksum of a log block as stored.
pub(super) fn log_checksum(stored: &[u8]) -> [u64; 4] {
    checksum::compute(Checksum::Fletcher4, stored, Order::Little, None).unwrap_or_default()
}
