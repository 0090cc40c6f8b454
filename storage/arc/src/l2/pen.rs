//! What writes to a cache drive: blocks, the log of them, the header.
//!
//! Before blocks go over older ones the header says that those are not there any more, and lasts:
//! so nobody who finds the drive after a power cut takes the one for the other, not even where no
//! checksum tells them apart.

use std::collections::VecDeque;
use std::ops::Range;

use ondisk::l2arc::{Entry, Header, LogBlock, LogPointer, entries_per_log};
use ondisk::{Checksum, Compression, Order};
use transform::{checksum, compress};
use units::{Ashift, Guid};

use super::drive::Drive;
use super::offers::Offer;
use super::ring::Ring;

/// So much is evicted at once, or this part of a smaller ring: each time costs a flush.
const AHEAD: u64 = 64 << 20;
const AHEAD_PART: u64 = 8;

/// What writes to a cache drive.
#[derive(Clone, Debug)]
pub(super) struct Pen {
    pub(super) ring: Ring,
    /// Blocks that no log block tells of yet.
    entries: Vec<Entry>,
    /// How many a log block tells of; 0: there is no log.
    pub(super) per_log: u64,
    /// The newest log block, and the one before.
    pub(super) logs: [LogPointer; 2],
    /// All that are there, oldest first.
    pub(super) known: VecDeque<LogPointer>,
    /// Whether what was on the drive is known.
    pub(super) restored: bool,
    /// Whether the header on the drive still speaks of what is to be overwritten.
    untold: bool,
}

impl Pen {
    pub(super) fn new(ring: Ring) -> Self {
        let per_log = entries_per_log(ring.start, ring.end);
        Self {
            ring,
            entries: Vec::new(),
            per_log,
            logs: [LogPointer::NONE; 2],
            known: VecDeque::new(),
            restored: false,
            untold: false,
        }
    }

    pub(super) fn is_cold(&self) -> bool {
        self.ring.first
    }

    pub(super) fn header(&self, pool: Guid, drive: Guid) -> Header {
        Header {
            pool,
            drive,
            log_entries: self.per_log,
            evict: self.ring.evict,
            first_sweep: self.ring.first,
            start: self.ring.start,
            end: self.ring.end,
            logs: self.logs,
            log_bytes: self.known.iter().map(|log| u64::from(log.psize)).sum(),
            log_count: self.known.len() as u64,
        }
    }

    /// Writes blocks one behind the other and gives where they are, or none where that could not
    /// be done. `evict` is told what is overwritten, before it is.
    pub(super) fn write(
        &mut self,
        drive: &Drive,
        pool: Guid,
        offers: &[Offer],
        evict: impl Fn(Range<u64>),
    ) -> Option<Vec<u64>> {
        if !self.restored || !drive.is_usable() {
            return None;
        }
        let ashift = drive.ashift;
        let blocks: u64 = offers.iter().map(|offer| size_on(ashift, &offer.stored)).sum();
        let logs = (offers.len() as u64).checked_div(self.per_log).map_or(0, |logs| logs + 1);
        let most = blocks + logs * LogBlock::SIZE as u64;
        if most > self.ring.size() / 2 {
            return None;
        }
        self.make_room(drive, pool, most, evict)?;
        let (mut next, from) = (self.clone(), self.ring.hand);
        let mut out = Vec::with_capacity(usize::try_from(most).unwrap_or(0));
        let mut places = Vec::with_capacity(offers.len());
        for offer in offers {
            places.push(next.ring.hand);
            next.add(offer, ashift, &mut out);
        }
        if !drive.write(from, &out) {
            return None;
        }
        let logged = next.logs != self.logs;
        *self = next;
        if logged {
            // a log that is not found is no harm
            drive.write_header(&self.header(pool, drive.guid));
        }
        Some(places)
    }

    fn make_room(
        &mut self,
        drive: &Drive,
        pool: Guid,
        most: u64,
        evict: impl Fn(Range<u64>),
    ) -> Option<()> {
        let ahead = AHEAD.min(self.ring.size() / AHEAD_PART);
        let mut next = self.ring.clone();
        let gone = next.make_room(most, ahead);
        if next != self.ring {
            gone.into_iter().for_each(evict);
            self.known.retain(|log| next.holds(log.payload_start, log.at + u64::from(log.psize)));
            self.ring = next;
            self.untold = true;
        }
        if self.untold {
            self.tell(drive, pool);
        }
        (!self.untold).then_some(())
    }

    /// Has the header on the drive say what is there now. Until that is done nothing is written.
    pub(super) fn tell(&mut self, drive: &Drive, pool: Guid) {
        self.untold = !(drive.write_header(&self.header(pool, drive.guid)) && drive.flush());
    }

    /// Puts a block behind the hand, and a log block behind that when there is one to write.
    fn add(&mut self, offer: &Offer, ashift: Ashift, out: &mut Vec<u8>) {
        let at = self.ring.hand;
        self.put(&offer.stored, ashift, out);
        if self.per_log > 0 {
            self.entries.push(Entry { at, ..offer.entry });
            if self.entries.len() as u64 >= self.per_log {
                self.close_log(ashift, out);
            }
        }
    }

    /// Puts bytes behind the hand, filled up to whole sectors.
    fn put(&mut self, bytes: &[u8], ashift: Ashift, out: &mut Vec<u8>) {
        let size = size_on(ashift, bytes);
        let end = out.len() + usize::try_from(size).unwrap_or(0);
        out.extend_from_slice(bytes);
        out.resize(end, 0);
        self.ring.hand += size;
    }

    fn close_log(&mut self, ashift: Ashift, out: &mut Vec<u8>) {
        let entries = std::mem::take(&mut self.entries);
        let start = entries.first().map_or(self.ring.hand, |entry| entry.at);
        let payload = entries.iter().map(|entry| ashift.round_up(entry.psize.into())).sum();
        let plain = LogBlock { before: self.logs[1], entries }.encode();
        let room = LogBlock::SIZE - usize::try_from(ashift.bytes()).unwrap_or(0);
        let short = compress::compress(Compression::Lz4, 0, &plain, room);
        let method = if short.is_some() { Compression::Lz4 } else { Compression::Off };
        let mut stored = short.unwrap_or(plain);
        let size = size_on(ashift, &stored);
        stored.resize(usize::try_from(size).unwrap_or(0), 0);
        let pointer = LogPointer {
            at: self.ring.hand,
            payload_size: payload,
            payload_start: start,
            lsize: u32::try_from(LogBlock::SIZE).unwrap_or(0),
            psize: u32::try_from(size).unwrap_or(0),
            compression: Some(method),
            sum: sum_of(&stored),
        };
        self.put(&stored, ashift, out);
        self.logs = [pointer, self.logs[0]];
        self.known.push_back(pointer);
    }
}

/// Bytes on the drive.
fn size_on(ashift: Ashift, bytes: &[u8]) -> u64 {
    ashift.round_up(bytes.len() as u64)
}

/// The checksum of a log block as stored.
pub(super) fn sum_of(stored: &[u8]) -> [u64; 4] {
    checksum::compute(Checksum::Fletcher4, stored, Order::Little, None).unwrap_or_default()
}
