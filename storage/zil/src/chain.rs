//! A chain and the blocks that its records point to, as an import must see them: without a key.

use std::collections::HashSet;

use ondisk::blkptr::Regular;
use ondisk::objset::LogHeader;
use ondisk::zil::{Chain, Record, RecordBlocks, Verifier};
use ondisk::{Blkptr, Checksum, Dva, Reader as Cursor};
use units::{BlockId, ObjectId, ObjsetId, Txg, Zbookmark};
use zio::{Reader, Sink, Writer};

use crate::{Error, LogReader};

/// More blocks than any log has: 512 GiB of the largest.
const MAX_LOG_BLOCKS: u64 = 1 << 22;

/// An item that a walk along a chain meets.
enum ChainItem<'a> {
    /// A block of the chain, before it is read: the last one was never written.
    Block(&'a Regular, Verifier),
    /// A record, by its number, and the blocks that it points to.
    Record(u64, &'a RecordBlocks),
}

/// Whether to continue.
#[derive(PartialEq, Eq)]
enum ChainStep {
    Continue,
    /// The log ends here: no commit acknowledged anything after it.
    Stop,
}

/// Claims a log in the first txg after an import: all its blocks become allocated, so that no new
/// allocation overwrites them before the replay. Blocks shared with it are counted as the log's, so
/// that they are not freed before the log. `first` is that txg. A log that leads to missing devices
/// is an error; with `forgives` it ends there.
pub fn claim_log(
    writer: &Writer,
    objset: ObjsetId,
    header: &LogHeader,
    (first, forgives): (Txg, bool),
) -> Result<LogHeader, Error> {
    let mut claimed = header.clone();
    if !header.claim_txg.is_zero() || header.chain.is_hole() {
        return Ok(claimed);
    }
    let (mut blocks, mut records) = (0_u64, 0_u64);
    let mut known: HashSet<Dva> = HashSet::new();
    let walked = walk_chain(writer.reader(), objset, header, &mut |met, zbookmark| {
        let own = match met {
            ChainItem::Block(block, _) => Some(block),
            ChainItem::Record(_, RecordBlocks::Written(block)) => Some(&**block),
            ChainItem::Record(_, RecordBlocks::Cloned(blocks)) => {
                if !claim_shared(writer, blocks, first) {
                    return Ok(ChainStep::Stop);
                }
                None
            }
            ChainItem::Record(_, RecordBlocks::None) => None,
        };
        // Rule Z5: the block is claimed before the walk goes on to the next. The space maps of the last synced
        // txg have it as free; an allocation would overwrite records that a second crash must still find.
        if let Some(block) = own.filter(|block| block.birth >= first) {
            // a write whose block was incomplete was never acknowledged
            let is_write = matches!(met, ChainItem::Record(..));
            if is_write && writer.reader().read_stored(block, zbookmark).is_err() {
                return Ok(ChainStep::Stop);
            }
            if block.dvas[0].is_some_and(|dva| known.insert(dva)) {
                writer.claim(block, first, zbookmark)?;
            }
        }
        match met {
            ChainItem::Block(_, verifier) => {
                blocks += 1;
                claimed.claim_block_seq = verifier.seq;
            }
            ChainItem::Record(seq, _) => {
                records += 1;
                claimed.claim_record_seq = seq;
            }
        }
        Ok(ChainStep::Continue)
    });
    match walked {
        Err(Error::OutOfReach { .. }) if forgives => (),
        walked => walked?,
    }
    claimed.claim_txg = first;
    claimed.flags |= LogHeader::HAS_LAST_RECORD;
    if records > 0 || blocks > 1 {
        claimed.flags |= LogHeader::REPLAY_NEEDED;
    }
    Ok(claimed)
}

/// Counts the blocks of a record as the log's, all or none; gives whether they may be.
fn claim_shared(writer: &Writer, blocks: &[Regular], first: Txg) -> bool {
    let shared = blocks.iter().take_while(|block| writer.add_reference(block, first)).count();
    if shared < blocks.len() {
        free_blocks(writer, blocks.iter().take(shared), first);
    }
    shared == blocks.len()
}

fn free_blocks<'a>(writer: &Writer, blocks: impl Iterator<Item = &'a Regular>, txg: Txg) {
    for block in blocks {
        writer.free(&Blkptr::Regular(Box::new(*block)), txg);
    }
}

/// Whether a log can wait, as that of a dataset without its key must, although the pool is changed:
/// it was claimed before, or there is nothing in it and its blocks are known to be in use. `first` is
/// the first txg after the import.
pub fn can_defer_replay(reader: &Reader, objset: ObjsetId, header: &LogHeader, first: Txg) -> bool {
    if !header.claim_txg.is_zero() || header.chain.is_hole() {
        return true;
    }
    let mut waits = true;
    let walked = walk_chain(reader, objset, header, &mut |met, _| {
        waits &= matches!(met, ChainItem::Block(block, _) if block.birth < first);
        Ok(if waits { ChainStep::Continue } else { ChainStep::Stop })
    });
    walked.is_ok() && waits
}

/// Frees the blocks of a claimed log that is replayed now, or is empty.
pub fn free_log(
    writer: &Writer,
    objset: ObjsetId,
    header: &LogHeader,
    txg: Txg,
) -> Result<(), Error> {
    free_log_blocks(writer, objset, header, (None, txg))
}

/// Frees the blocks of a log that will not be replayed, because the pool was rewound to `synced`.
/// Of an unclaimed log it frees only the blocks that were in use at that txg.
pub fn free_unreplayed(
    writer: &Writer,
    objset: ObjsetId,
    header: &LogHeader,
    (synced, txg): (Txg, Txg),
) -> Result<(), Error> {
    let until = header.claim_txg.is_zero().then_some(synced);
    free_log_blocks(writer, objset, header, (until, txg))
}

/// Frees the blocks of a log: all, or only those of the chain that were in use at `until`.
fn free_log_blocks(
    writer: &Writer,
    objset: ObjsetId,
    header: &LogHeader,
    (until, txg): (Option<Txg>, Txg),
) -> Result<(), Error> {
    let mut known: HashSet<Dva> = HashSet::new();
    let mut unwanted = Vec::new();
    walk_chain(writer.reader(), objset, header, &mut |met, _| {
        let own = match met {
            ChainItem::Block(block, _) if until.is_some_and(|until| block.birth > until) => {
                return Ok(ChainStep::Stop);
            }
            ChainItem::Block(block, _) => Some(block),
            // an older block belongs to the dataset
            ChainItem::Record(_, RecordBlocks::Written(block)) => {
                Some(&**block).filter(|block| until.is_none() && block.birth >= header.claim_txg)
            }
            ChainItem::Record(_, RecordBlocks::Cloned(blocks)) => {
                if !header.claim_txg.is_zero() {
                    unwanted.extend_from_slice(blocks);
                }
                None
            }
            ChainItem::Record(_, RecordBlocks::None) => None,
        };
        if let Some(block) = own
            && block.dvas[0].is_some_and(|dva| known.insert(dva))
        {
            unwanted.push(*block);
        }
        Ok(ChainStep::Continue)
    })?;
    free_blocks(writer, unwanted.iter(), txg);
    Ok(())
}

/// Goes along the chain as far as it was written, or claimed.
fn walk_chain(
    reader: &Reader,
    objset: ObjsetId,
    header: &LogHeader,
    visit: &mut dyn FnMut(ChainItem<'_>, Zbookmark) -> Result<ChainStep, Error>,
) -> Result<(), Error> {
    let claimed = !header.claim_txg.is_zero();
    let last_block = if claimed { header.claim_block_seq } else { u64::MAX };
    let has_last = claimed && header.flags & LogHeader::HAS_LAST_RECORD != 0;
    let last_record = if has_last { header.claim_record_seq } else { u64::MAX };
    let mut next = header.chain.clone();
    for _ in 0..MAX_LOG_BLOCKS {
        let Blkptr::Regular(block) = &next else { return Ok(()) };
        let verifier = Verifier::from_pointer(block);
        let zbookmark = Zbookmark::new(
            objset,
            ObjectId::META,
            LogReader::LOG_LEVEL,
            BlockId::new(verifier.seq),
        );
        if verifier.seq > last_block
            || visit(ChainItem::Block(block, verifier), zbookmark)? == ChainStep::Stop
        {
            return Ok(());
        }
        let bytes = match reader.read_stored(block, zbookmark) {
            Ok(bytes) => bytes,
            Err(error) if !claimed && error.is_unavailable() => {
                return Err(Error::OutOfReach { why: error });
            }
            // it was never written
            Err(_) => return Ok(()),
        };
        let front = block.checksum == Checksum::Zilog2;
        let Ok((chain, records)) = Chain::split(&bytes, block.order, front) else { return Ok(()) };
        let mut cursor = Cursor::new("log block", records, block.order);
        while cursor.remaining() > 0 {
            let Ok((seq, _)) = Record::peek(&cursor) else { return Ok(()) };
            let Ok(found) = Record::read_blocks(&mut cursor) else { return Ok(()) };
            if seq > last_record
                || visit(ChainItem::Record(seq, &found), zbookmark)? == ChainStep::Stop
            {
                return Ok(());
            }
        }
        match &chain.next {
            Blkptr::Regular(after) if Verifier::from_pointer(after) == verifier.next() => {}
            _ => return Ok(()),
        }
        next = chain.next;
    }
    Ok(())
}
