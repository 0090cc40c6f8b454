//! The walk along the chain.

use std::sync::Arc;

use ondisk::blkptr::{Checksum, Regular};
use ondisk::objset::LogHeader;
use ondisk::zil::{Body, Chain, Record, Verifier, Write};
use ondisk::{Blkptr, Reader};
use units::{BlockId, Level, ObjectId, ObjsetId, Place, Txg};
use zio::{Block, Key, Source};

use crate::Error;

/// A record with its data.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What was done.
    pub record: Record,
    /// For a write whose data is not in the record: the whole block that has it.
    pub block: Option<WrittenBlock>,
}

/// The block of a write.
#[derive(Clone, Debug)]
pub struct WrittenBlock {
    /// Where its first byte goes, in the file or volume: blocks are written whole.
    pub offset: u64,
    /// Its content.
    pub content: Block,
}

/// Where the walk came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// There is no log, or nothing in it is to be replayed.
    Empty,
    /// After the last block or record that an import has claimed.
    Claimed,
    /// The next block (or what a record points to) is not there: the end of a log that no import
    /// has claimed. The error says why; a missing device would look the same.
    NotWritten(Error),
    /// It could not be read on; the error was also given out.
    Failed(Error),
}

/// The records of one dataset's log that are not part of the dataset yet, in their order.
///
/// An error is given out once and ends the walk: what follows depends on what is missing.
pub struct Records {
    source: Arc<dyn Source>,
    key: Option<Key>,
    objset: ObjsetId,
    limits: Limits,
    next: Blkptr,
    blocks: u64,
    /// The number of the last record that was met.
    last: u64,
    current: Option<Current>,
    stop: Option<Stop>,
}

#[derive(Clone, Copy)]
struct Limits {
    claimed: bool,
    last_block: u64,
    last_record: u64,
    replayed: u64,
    /// Records of older txgs are in the dataset.
    first_txg: Txg,
}

struct Current {
    block: Block,
    place: Place,
    front: bool,
    at: usize,
}

/// More blocks than any log has: 512 GiB of the largest.
const MOST_BLOCKS: u64 = 1 << 22;

impl Records {
    /// The level under which log blocks and the blocks of writes are asked for.
    pub const LEVEL: Level = Level::new(254);

    /// Walks the log with this header. `synced` is the txg of the uberblock in use.
    pub fn new(
        source: Arc<dyn Source>,
        objset: ObjsetId,
        header: &LogHeader,
        key: Option<Key>,
        synced: Txg,
    ) -> Self {
        let claimed = !header.claim_txg.is_zero();
        let has_last_record = claimed && header.flags & 2 != 0;
        let limits = Limits {
            claimed,
            last_block: if claimed { header.claim_block_seq } else { u64::MAX },
            last_record: if has_last_record { header.claim_record_seq } else { u64::MAX },
            replayed: header.replay_seq,
            first_txg: if claimed {
                header.claim_txg
            } else {
                Txg::new(synced.get().saturating_add(1))
            },
        };
        let nothing = header.chain.is_hole() || (claimed && !header.replay_needed());
        let stop = nothing.then_some(Stop::Empty);
        let next = header.chain.clone();
        Self { source, key, objset, limits, next, blocks: 0, last: 0, current: None, stop }
    }

    /// Why there are no more records; `None` while there may be.
    pub fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// How many blocks of the log were read.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    fn step(&mut self) -> Result<Option<Entry>, Stop> {
        loop {
            let Some(current) = &mut self.current else {
                self.current = Some(self.read_block()?);
                continue;
            };
            let limits = self.limits;
            let record = current.next_record(limits, &mut self.last);
            let Some(record) = record.map_err(|why| limits.ends(why))? else {
                self.next = current.next_block().map_err(|why| limits.ends(why))?;
                self.current = None;
                continue;
            };
            if record.seq > limits.last_record {
                return Err(Stop::Claimed);
            }
            if record.seq <= limits.replayed || record.txg < limits.first_txg {
                continue;
            }
            let block = self.written_block(&record)?;
            return Ok(Some(Entry { record, block }));
        }
    }

    fn read_block(&mut self) -> Result<Current, Stop> {
        let Blkptr::Regular(pointer) = &self.next else { return Err(Stop::Claimed) };
        let verifier = Verifier::of(pointer);
        let place =
            Place::new(self.objset, ObjectId::META, Self::LEVEL, BlockId::new(verifier.seq));
        // the last that was claimed may be one that had room and was not written yet
        let all = verifier.seq == self.limits.last_block && self.last == self.limits.last_record;
        if verifier.seq > self.limits.last_block || all {
            return Err(Stop::Claimed);
        }
        if self.blocks >= MOST_BLOCKS {
            return Err(Stop::Failed(Error::Chain { place }));
        }
        let block = self.source.read(&self.next, place, self.key.as_ref());
        let block = block.map_err(|why| self.limits.ends(why.into()))?;
        self.blocks = self.blocks.saturating_add(1);
        Current::new(block, pointer, verifier, place).map_err(|why| self.limits.ends(why))
    }

    /// The block that a write's record points to.
    fn written_block(&self, record: &Record) -> Result<Option<WrittenBlock>, Stop> {
        let Body::Write(write) = &record.body else { return Ok(None) };
        let Write { data: None, pointer, object, offset, .. } = &**write else { return Ok(None) };
        let size = u64::from(pointer.lsize());
        let number = offset.checked_div(size).unwrap_or(0);
        if pointer.is_hole() || size == 0 {
            return Ok(None);
        }
        let place = Place::new(self.objset, *object, Self::LEVEL, BlockId::new(number));
        match self.source.read(pointer, place, self.key.as_ref()) {
            Ok(content) => {
                // a write of less than a block has the block with what was around it
                let whole = write.length < size;
                let offset = if whole { number.saturating_mul(size) } else { *offset };
                Ok(Some(WrittenBlock { offset, content }))
            }
            // such a record cannot have been acknowledged
            Err(why) if pointer.birth() >= self.limits.first_txg => {
                Err(self.limits.ends(why.into()))
            }
            Err(why) => Err(Stop::Failed(why.into())),
        }
    }
}

impl Limits {
    /// What it means that the walk cannot go on.
    fn ends(&self, why: Error) -> Stop {
        let locked = matches!(why, Error::Block(zio::Error::KeyNotLoaded { .. }));
        let unknown = matches!(why, Error::Structure { why: ondisk::Error::Unknown { .. }, .. });
        if self.claimed || locked || unknown { Stop::Failed(why) } else { Stop::NotWritten(why) }
    }
}

impl Current {
    fn new(
        block: Block,
        pointer: &Regular,
        verifier: Verifier,
        place: Place,
    ) -> Result<Self, Error> {
        let front = pointer.checksum == Checksum::Zilog2;
        let current = Self { block, place, front, at: 0 };
        let (chain, _) = current.split()?;
        // the pointer to the next block is made with this block and belongs to its chain
        match &chain.next {
            Blkptr::Regular(next) if Verifier::of(next) == verifier.next() => Ok(current),
            _ => Err(Error::Chain { place }),
        }
    }

    fn split(&self) -> Result<(Chain, &[u8]), Error> {
        Chain::split(&self.block, self.block.order(), self.front).map_err(|why| self.broken(why))
    }

    fn next_block(&self) -> Result<Blkptr, Error> {
        Ok(self.split()?.0.next)
    }

    /// The next record; the bodies of those that are not wanted need not be sound.
    fn next_record(&mut self, limits: Limits, last: &mut u64) -> Result<Option<Record>, Error> {
        loop {
            let (_, records) = self.split()?;
            let mut reader = Reader::new("log block", records, self.block.order());
            reader.seek(self.at);
            if reader.left() == 0 {
                return Ok(None);
            }
            let (seq, txg) = Record::peek(&reader).map_err(|why| self.broken(why))?;
            *last = seq;
            let old = seq <= limits.replayed || txg < limits.first_txg;
            let record = if old && seq <= limits.last_record {
                Record::skip(&mut reader).map(|()| None)
            } else {
                Record::read(&mut reader).map(Some)
            };
            let record = record.map_err(|why| self.broken(why))?;
            self.at = reader.at();
            if record.is_some() {
                return Ok(record);
            }
        }
    }

    fn broken(&self, why: ondisk::Error) -> Error {
        Error::Structure { place: self.place, why }
    }
}

impl Iterator for Records {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stop.is_some() {
            return None;
        }
        match self.step() {
            Ok(entry) => entry.map(Ok),
            Err(stop) => {
                let failed = match &stop {
                    Stop::Failed(why) => Some(Err(why.clone())),
                    _ => None,
                };
                self.current = None;
                self.stop = Some(stop);
                failed
            }
        }
    }
}
