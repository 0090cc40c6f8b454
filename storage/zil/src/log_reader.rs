//! The walk along the chain.

use std::sync::Arc;

use ondisk::blkptr::{Checksum, Regular};
use ondisk::objset::LogHeader;
use ondisk::zil::{Body, Chain, Record, Verifier, Write};
use ondisk::{Blkptr, Reader};
use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};
use zio::{Block, Key, Source};

use crate::Error;

/// A record with its data.
#[derive(Clone, Debug)]
pub struct ReplayEntry {
    /// The change.
    pub record: Record,
    /// For a write whose data is not in the record: the whole block with the data.
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
pub enum LogEnd {
    /// There is no log, or all of it is replayed.
    Empty,
    /// After the last block or record that an import has claimed.
    Claimed,
    /// The next block (or the block of a record) is missing: the end of a log that no import has
    /// claimed. The error gives the reason; a missing device would look the same.
    NotWritten(Error),
    /// It could not be read on; the error was also given out.
    Failed(Error),
}

/// The records of one dataset's log that are not part of the dataset yet, in their order.
///
/// An error is returned once and ends the walk: later records depend on the missing one.
pub struct LogReader {
    source: Arc<dyn Source>,
    key: Option<Key>,
    objset: ObjsetId,
    range: ReplayRange,
    next_pointer: Blkptr,
    blocks_read: u64,
    /// The number of the last record that was met.
    last_seq: u64,
    current: Option<CurrentBlock>,
    end: Option<LogEnd>,
}

#[derive(Clone, Copy)]
struct ReplayRange {
    is_claimed: bool,
    last_block: u64,
    last_record: u64,
    replayed_seq: u64,
    /// Records of older txgs are in the dataset.
    first_txg: Txg,
}

struct CurrentBlock {
    block: Block,
    zbookmark: Zbookmark,
    has_leading_header: bool,
    offset: usize,
}

/// More blocks than any log has: 512 GiB of the largest.
const MAX_LOG_BLOCKS: u64 = 1 << 22;

impl LogReader {
    /// The level in the zbookmark of log blocks and of the blocks of writes.
    pub const LOG_LEVEL: Level = Level::new(254);

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
        let range = ReplayRange {
            is_claimed: claimed,
            last_block: if claimed { header.claim_block_seq } else { u64::MAX },
            last_record: if has_last_record { header.claim_record_seq } else { u64::MAX },
            replayed_seq: header.replay_seq,
            first_txg: if claimed { header.claim_txg } else { synced.next() },
        };
        let nothing = header.chain.is_hole() || (claimed && !header.replay_needed());
        let end = nothing.then_some(LogEnd::Empty);
        let next_pointer = header.chain.clone();
        Self {
            source,
            key,
            objset,
            range,
            next_pointer,
            blocks_read: 0,
            last_seq: 0,
            current: None,
            end,
        }
    }

    /// The reason why there are no more records; `None` while there may be.
    pub fn end(&self) -> Option<&LogEnd> {
        self.end.as_ref()
    }

    /// How many blocks of the log were read.
    pub fn blocks_read(&self) -> u64 {
        self.blocks_read
    }

    fn next_entry(&mut self) -> Result<Option<ReplayEntry>, LogEnd> {
        loop {
            let Some(current) = &mut self.current else {
                self.current = Some(self.read_block()?);
                continue;
            };
            let limits = self.range;
            let record = current.next_record(limits, &mut self.last_seq);
            let Some(record) = record.map_err(|error| limits.classify_error(error))? else {
                self.next_pointer =
                    current.next_pointer().map_err(|error| limits.classify_error(error))?;
                self.current = None;
                continue;
            };
            if record.seq > limits.last_record {
                return Err(LogEnd::Claimed);
            }
            // Rule Z6: a record that an earlier replay applied, or whose txg is synced, is not applied again. A
            // second crash during a replay would otherwise repeat changes such as a rename.
            if record.seq <= limits.replayed_seq || record.txg < limits.first_txg {
                continue;
            }
            let block = self.written_block(&record)?;
            return Ok(Some(ReplayEntry { record, block }));
        }
    }

    fn read_block(&mut self) -> Result<CurrentBlock, LogEnd> {
        let Blkptr::Regular(pointer) = &self.next_pointer else { return Err(LogEnd::Claimed) };
        let verifier = Verifier::from_pointer(pointer);
        let place = Zbookmark::new(
            self.objset,
            ObjectId::META,
            Self::LOG_LEVEL,
            BlockId::new(verifier.seq),
        );
        // the last claimed block may be the allocated, unwritten one
        let all = verifier.seq == self.range.last_block && self.last_seq == self.range.last_record;
        if verifier.seq > self.range.last_block || all {
            return Err(LogEnd::Claimed);
        }
        if self.blocks_read >= MAX_LOG_BLOCKS {
            return Err(LogEnd::Failed(Error::Chain { zbookmark: place }));
        }
        let block = self.source.read(&self.next_pointer, place, self.key.as_ref());
        let block = block.map_err(|error| self.range.classify_error(error.into()))?;
        self.blocks_read += 1;
        CurrentBlock::new(block, pointer, verifier, place)
            .map_err(|error| self.range.classify_error(error))
    }

    /// The block that a write's record points to.
    fn written_block(&self, record: &Record) -> Result<Option<WrittenBlock>, LogEnd> {
        let Body::Write(write) = &record.body else { return Ok(None) };
        let Write { data: None, pointer, object, offset, .. } = &**write else { return Ok(None) };
        let size = u64::from(pointer.lsize());
        let number = offset.checked_div(size).unwrap_or(0);
        if pointer.is_hole() || size == 0 {
            return Ok(None);
        }
        let zbookmark = Zbookmark::new(self.objset, *object, Self::LOG_LEVEL, BlockId::new(number));
        match self.source.read(pointer, zbookmark, self.key.as_ref()) {
            Ok(content) => {
                // a write of less than a block has a copy of the whole block
                let whole = write.length < size;
                let offset = if whole { number * size } else { *offset };
                Ok(Some(WrittenBlock { offset, content }))
            }
            // no commit can have acknowledged such a record
            Err(error) if pointer.birth() >= self.range.first_txg => {
                Err(self.range.classify_error(error.into()))
            }
            Err(error) => Err(LogEnd::Failed(error.into())),
        }
    }
}

impl ReplayRange {
    /// The meaning of an error of the walk.
    fn classify_error(&self, error: Error) -> LogEnd {
        let locked = matches!(error, Error::Block(zio::Error::KeyNotLoaded { .. }));
        let unknown = matches!(error, Error::Structure { why: ondisk::Error::Unknown { .. }, .. });
        if self.is_claimed || locked || unknown {
            LogEnd::Failed(error)
        } else {
            LogEnd::NotWritten(error)
        }
    }
}

impl CurrentBlock {
    fn new(
        block: Block,
        pointer: &Regular,
        verifier: Verifier,
        place: Zbookmark,
    ) -> Result<Self, Error> {
        let front = pointer.checksum == Checksum::Zilog2;
        let current = Self { block, zbookmark: place, has_leading_header: front, offset: 0 };
        let (chain, _) = current.split_chain()?;
        // the pointer to the next block is created with this block and belongs to its chain
        match &chain.next {
            Blkptr::Regular(next) if Verifier::from_pointer(next) == verifier.next() => Ok(current),
            _ => Err(Error::Chain { zbookmark: place }),
        }
    }

    fn split_chain(&self) -> Result<(Chain, &[u8]), Error> {
        Chain::split(&self.block, self.block.order(), self.has_leading_header)
            .map_err(|error| self.structure_error(error))
    }

    fn next_pointer(&self) -> Result<Blkptr, Error> {
        Ok(self.split_chain()?.0.next)
    }

    /// The next record; the bodies of unwanted record kinds need not be valid.
    fn next_record(
        &mut self,
        limits: ReplayRange,
        last: &mut u64,
    ) -> Result<Option<Record>, Error> {
        loop {
            let (_, records) = self.split_chain()?;
            let mut reader = Reader::new("log block", records, self.block.order());
            reader.seek(self.offset);
            if reader.remaining() == 0 {
                return Ok(None);
            }
            let (seq, txg) = Record::peek(&reader).map_err(|error| self.structure_error(error))?;
            *last = seq;
            let old = seq <= limits.replayed_seq || txg < limits.first_txg;
            let record = if old && seq <= limits.last_record {
                Record::skip(&mut reader).map(|()| None)
            } else {
                Record::read(&mut reader).map(Some)
            };
            let record = record.map_err(|error| self.structure_error(error))?;
            self.offset = reader.position();
            if record.is_some() {
                return Ok(record);
            }
        }
    }

    fn structure_error(&self, error: ondisk::Error) -> Error {
        Error::Structure { zbookmark: self.zbookmark, why: error }
    }
}

impl Iterator for LogReader {
    type Item = Result<ReplayEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.end.is_some() {
            return None;
        }
        match self.next_entry() {
            Ok(entry) => entry.map(Ok),
            Err(stop) => {
                let failed = match &stop {
                    LogEnd::Failed(error) => Some(Err(error.clone())),
                    _ => None,
                };
                self.current = None;
                self.end = Some(stop);
                failed
            }
        }
    }
}
