//! The content of an open file: read by range. Concurrent readers of a block share one fetch, and
//! sequential reads are prefetched.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use engine::files::{Content, ContentChunk};
use parking_lot::{Condvar, Mutex};
use units::MinusOrZero as _;

use crate::prefetch::{PrefetchHandle, PrefetchWorkers};
use crate::readahead::Readahead;
use crate::{Error, Result};

/// The content of an open file or volume.
pub struct FileReader {
    content: Content,
    size: u64,
    block_size: u64,
    prefetch: PrefetchHandle,
    state: Mutex<ReaderState>,
    slot_changed: Condvar,
}

#[derive(Default)]
struct ReaderState {
    readahead: Readahead,
    /// A few blocks, the oldest first.
    slots: VecDeque<Slot>,
}

struct Slot {
    block: u64,
    state: SlotState,
}

#[derive(Clone)]
enum SlotState {
    /// A worker is to fetch it.
    Queued,
    /// A thread is fetching it.
    Fetching,
    /// It is fetched, or unreadable.
    Fetched(Result<ContentChunk>),
}

/// Bytes of blocks that a reader holds; they are shared with the pool's cache.
const MAX_HELD_BYTES: u64 = 16 << 20;
/// And how many blocks at least and at most.
const MIN_SLOTS: u64 = 4;
const MAX_SLOTS: u64 = 128;

impl FileReader {
    pub(crate) fn new(content: Content, workers: &PrefetchWorkers) -> Arc<Self> {
        Arc::new(Self {
            size: content.size(),
            block_size: content.block_size().max(512),
            content,
            prefetch: workers.handle(),
            state: Mutex::default(),
            slot_changed: Condvar::new(),
        })
    }

    /// The content that it reads.
    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Bytes of it.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads up to `length` bytes from `offset` on and shows them to `give`: fewer at the end.
    /// Without a copy if they are all in one block.
    pub fn read<R>(
        self: &Arc<Self>,
        offset: u64,
        length: usize,
        give: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let left = units::to_usize(self.size.minus_or_zero(offset));
        let length = length.min(left);
        let end = offset + units::to_u64(length);
        if length == 0 {
            return Ok(give(&[]));
        }
        self.queue_prefetch(offset, length);
        let first = self.get_block(offset / self.block_size)?;
        if let Some(bytes) = slice_of(&first, offset..end) {
            return Ok(give(bytes));
        }
        COPY.with_borrow_mut(|buffer| {
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            let (into, _) = buffer.split_at_mut(length);
            self.read_blocks(offset, first, into)?;
            Ok(give(into))
        })
    }

    /// Fills a buffer from `offset` on, block by block.
    fn read_blocks(
        self: &Arc<Self>,
        offset: u64,
        first: ContentChunk,
        into: &mut [u8],
    ) -> Result<()> {
        let (mut at, mut rest, mut first) = (offset, into, Some(first));
        while !rest.is_empty() {
            let piece = match first.take() {
                Some(piece) => piece,
                None => self.get_block(at / self.block_size)?,
            };
            let behind = (at / self.block_size + 1) * self.block_size;
            let count = units::to_usize(behind - at);
            let (now, later) = rest.split_at_mut(count.min(rest.len()));
            let end = at + units::to_u64(now.len());
            match slice_of(&piece, at..end) {
                Some(bytes) => now.copy_from_slice(bytes),
                None if piece.bytes.is_none() && piece.start <= at && end <= piece.end => {
                    now.fill(0);
                }
                // where a log lies over the content, pieces are smaller than blocks
                None => {
                    let count = self.content.read(at, now)?;
                    now.iter_mut().skip(count).for_each(|byte| *byte = 0);
                }
            }
            (at, rest) = (end, later);
        }
        Ok(())
    }

    /// Has the blocks of a range fetched by the workers, but for the first, and those behind it if
    /// the file is read in sequence.
    fn queue_prefetch(self: &Arc<Self>, offset: u64, length: usize) {
        let end = offset + units::to_u64(length);
        let mut state = self.state.lock();
        let until =
            state.readahead.record_read(offset, length).unwrap_or(end).max(end).min(self.size);
        let capacity = (MAX_HELD_BYTES / self.block_size).clamp(MIN_SLOTS, MAX_SLOTS);
        let first = offset / self.block_size;
        let behind = until.div_ceil(self.block_size).min(first + capacity / 2);
        let mut wanted = Vec::new();
        for block in first + 1..behind {
            if !state.slots.iter().any(|slot| slot.block == block) {
                if !state.evict_if_full(capacity) {
                    break;
                }
                state.slots.push_back(Slot { block, state: SlotState::Queued });
                wanted.push(block);
            }
        }
        drop(state);
        self.prefetch.queue_blocks(self, &wanted);
    }

    /// A block: fetched here, unless it is in a slot or another thread is fetching it.
    fn get_block(&self, block: u64) -> Result<ContentChunk> {
        let mut state = self.state.lock();
        loop {
            let Some(slot) = state.slots.iter_mut().find(|slot| slot.block == block) else {
                state.evict_if_full((MAX_HELD_BYTES / self.block_size).clamp(MIN_SLOTS, MAX_SLOTS));
                state.slots.push_back(Slot { block, state: SlotState::Fetching });
                break;
            };
            match &slot.state {
                SlotState::Fetched(piece) => return piece.clone(),
                SlotState::Queued => {
                    slot.state = SlotState::Fetching;
                    break;
                }
                SlotState::Fetching => self.slot_changed.wait(&mut state),
            }
        }
        drop(state);
        self.fetch_block(block)
    }

    /// Fetches a block that is wanted still.
    pub(crate) fn prefetch_block(&self, block: u64) {
        let mut state = self.state.lock();
        let wanted = state.slots.iter_mut().find(|slot| slot.block == block);
        let Some(slot) = wanted.filter(|slot| matches!(slot.state, SlotState::Queued)) else {
            return;
        };
        slot.state = SlotState::Fetching;
        drop(state);
        // the reader gets the error
        let _ = self.fetch_block(block);
    }

    /// Fetches a block of a slot in the fetching state.
    fn fetch_block(&self, block: u64) -> Result<ContentChunk> {
        let mut landing = FetchGuard { reader: self, block, result: None };
        let start = block * self.block_size;
        let end = (start + self.block_size).min(self.size);
        let piece = self.content.read_chunk(start, end).map_err(Error::from);
        landing.result = Some(piece.clone());
        piece
    }

    /// The first byte from `from` on that is not in a hole; none if there is only a hole.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        Ok(self.content.next_data(from)?)
    }

    /// The first byte from `from` on that is in a hole; the end is one.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        Ok(self.content.next_hole(from)?)
    }
}

impl ReaderState {
    /// Makes space for another slot; false if all have waiting readers.
    fn evict_if_full(&mut self, capacity: u64) -> bool {
        if units::to_u64(self.slots.len()) < capacity {
            return true;
        }
        let oldest = self.slots.iter().position(|slot| matches!(slot.state, SlotState::Fetched(_)));
        oldest.and_then(|at| self.slots.remove(at)).is_some()
    }
}

/// Stores a fetched block in its slot, or frees the slot if the fetch panics, so that no reader
/// waits forever.
struct FetchGuard<'a> {
    reader: &'a FileReader,
    block: u64,
    result: Option<Result<ContentChunk>>,
}

impl Drop for FetchGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.reader.state.lock();
        let place = state.slots.iter().position(|slot| slot.block == self.block);
        if let Some(place) = place {
            match self.result.take() {
                Some(piece) => {
                    if let Some(slot) = state.slots.get_mut(place) {
                        slot.state = SlotState::Fetched(piece);
                    }
                }
                None => drop(state.slots.remove(place)),
            }
        }
        drop(state);
        self.reader.slot_changed.notify_all();
    }
}

/// The bytes of a range, if the piece has all of them.
fn slice_of(piece: &ContentChunk, range: Range<u64>) -> Option<&[u8]> {
    let bytes = piece.bytes.as_ref()?;
    let first = usize::try_from(range.start.checked_sub(piece.start)?).ok()?;
    let behind = usize::try_from(range.end.checked_sub(piece.start)?).ok()?;
    bytes.get(first..behind)
}

thread_local! {
    /// The touch of fresh pages costs more than the copying.
    static COPY: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}
