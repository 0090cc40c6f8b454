//! The walk over chains laid out in memory; the block reader verifies checksums, not this crate.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dmu::Objset;
use ondisk::objset::{Kind, LogHeader};
use ondisk::{Blkptr, Order};
use txg::{TxgLimits, Txgs};
use units::{Ashift, ObjsetId, Txg, Zbookmark};
use zio::memory::MemoryVdevs;
use zio::{Block, Key, Source};

use crate::{Error, IntentLog, LogEnd, LogReader};

const OBJSET: u64 = 54;
const SIZE: usize = 4096;

/// Blocks by the sector their pointer names.
struct BlockMap(HashMap<u64, Vec<u8>>);

impl Source for BlockMap {
    fn read(&self, bp: &Blkptr, place: Zbookmark, _: Option<&Key>) -> Result<Block, zio::Error> {
        let Blkptr::Regular(regular) = bp else { panic!("only blocks are read") };
        let sector = regular.dvas[0].unwrap().offset >> 9;
        let found = self.0.get(&sector);
        let found = found.ok_or(zio::Error::Unreadable { zbookmark: place, faults: Vec::new() })?;
        Ok(Block::new(found.clone(), Order::Little))
    }
}

fn encode_words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A pointer to a block of [`SIZE`] at `sector`; `checksum` 9 is zilog2, 5 zilog.
fn pointer(sector: u64, kind: u64, checksum: u64, seq: u64, birth: u64) -> Vec<u64> {
    let prop = (1 << 63) | (kind << 48) | (checksum << 40) | (2 << 32) | (7 << 16) | 7;
    vec![8, sector, 0, 0, 0, 0, prop, 0, 0, 0, birth, 0, 1, 2, OBJSET, seq]
}

fn remove_record(seq: u64, txg: u64) -> Vec<u8> {
    [encode_words(&[5, 48, txg, seq, 34]), b"name\0\0\0\0".to_vec()].concat()
}

fn write_record(seq: u64, txg: u64, sector: u64) -> Vec<u8> {
    let fields = [9, 192, txg, seq, 7, 4196, 100, 0];
    [encode_words(&fields), encode_words(&pointer(sector, 19, 7, 0, txg))].concat()
}

fn log_block(front: bool, next: &[u64], records: &[u8]) -> Vec<u8> {
    let used = records.len() + if front { 184 } else { 0 };
    let mut chain = encode_words(&[0]);
    chain.extend(encode_words(next));
    chain.extend(encode_words(&[u64::try_from(used).unwrap(), 0, 0, 0, 0, 0]));
    let padding = vec![0; SIZE - 184 - records.len()];
    if front {
        [chain, records.to_vec(), padding].concat()
    } else {
        [records.to_vec(), padding, chain].concat()
    }
}

fn log_blocks(kind: u64, blocks: &[&[Vec<u8>]]) -> HashMap<u64, Vec<u8>> {
    let number = |index: usize| u64::try_from(index).unwrap();
    let lay = |(index, records): (usize, &&[Vec<u8>])| {
        let next = pointer(number(index + 101), 9, kind, number(index + 2), 50);
        (number(index + 100), log_block(kind == 9, &next, &records.concat()))
    };
    blocks.iter().enumerate().map(lay).collect()
}

fn header(kind: u64, claim: Option<(u64, u64, u64)>, replayed: u64) -> LogHeader {
    let (txg, last_block, last_record) = claim.unwrap_or((0, 0, 0));
    LogHeader {
        claim_txg: Txg::new(txg),
        replay_seq: replayed,
        chain: Blkptr::parse(&encode_words(&pointer(100, 9, kind, 1, 50)), Order::Little).unwrap(),
        claim_block_seq: last_block,
        flags: if claim.is_some() { 3 } else { 0 },
        claim_record_seq: last_record,
    }
}

fn read_log(blocks: HashMap<u64, Vec<u8>>, header: &LogHeader) -> (Vec<u64>, Vec<Error>, LogEnd) {
    let source = Arc::new(BlockMap(blocks));
    let mut records = LogReader::new(source, ObjsetId::new(OBJSET), header, None, Txg::new(50));
    let (mut seqs, mut errors) = (Vec::new(), Vec::new());
    for entry in records.by_ref() {
        match entry {
            Ok(entry) => seqs.push(entry.record.seq),
            Err(error) => errors.push(error),
        }
    }
    (seqs, errors, records.end().unwrap().clone())
}

#[test]
fn walk_ends_at_missing_block_in_both_chains() {
    let records: &[&[Vec<u8>]] =
        &[&[remove_record(1, 50), remove_record(2, 51)], &[], &[remove_record(3, 52)]];
    for kind in [9, 5] {
        let (seqs, errors, stop) = read_log(log_blocks(kind, records), &header(kind, None, 0));
        // the first record's txg is on disk
        assert_eq!(seqs, [2, 3]);
        assert!(
            errors.is_empty() && matches!(stop, LogEnd::NotWritten(Error::Block(_))),
            "{stop:?}"
        );
    }
}

#[test]
fn claimed_log_resumes_after_the_last_replayed_record() {
    let records: &[&[Vec<u8>]] = &[
        &[remove_record(1, 51), remove_record(2, 51)],
        &[remove_record(3, 51), remove_record(4, 51)],
        &[remove_record(5, 51)],
    ];
    let claimed = |block, record, replayed| {
        read_log(log_blocks(9, records), &header(9, Some((51, block, record)), replayed))
    };
    assert_eq!(claimed(3, 5, 0).0, [1, 2, 3, 4, 5]);
    assert_eq!(claimed(2, 3, 0), (vec![1, 2, 3], vec![], LogEnd::Claimed));
    assert_eq!(claimed(2, 4, 2), (vec![3, 4], vec![], LogEnd::Claimed));
    // a block that existed at the claim is gone
    let (seqs, errors, stop) = claimed(9, 9, 0);
    assert_eq!((seqs.len(), errors.len()), (5, 1));
    assert!(matches!(stop, LogEnd::Failed(_)));
    // nothing was left to replay
    let mut done = header(9, Some((51, 3, 5)), 5);
    done.flags = 2;
    assert_eq!(read_log(log_blocks(9, records), &done), (vec![], vec![], LogEnd::Empty));
}

#[test]
fn foreign_blocks_and_broken_records_end_the_walk() {
    let mut blocks = log_blocks(9, &[&[remove_record(1, 51)], &[remove_record(2, 51)]]);
    blocks.insert(101, log_block(true, &pointer(102, 9, 9, 9, 50), &remove_record(2, 51)));
    let (seqs, _, stop) = read_log(blocks, &header(9, None, 0));
    assert_eq!(seqs, [1]);
    assert!(matches!(stop, LogEnd::NotWritten(Error::Chain { .. })));

    let cut = remove_record(2, 51)[..40].to_vec();
    let (seqs, _, stop) =
        read_log(log_blocks(9, &[&[remove_record(1, 51), cut]]), &header(9, None, 0));
    assert_eq!(seqs, [1]);
    assert!(matches!(stop, LogEnd::NotWritten(Error::Structure { .. })));
    // a record of a kind that is not known must not be taken for the end
    let unknown = encode_words(&[25, 32, 51, 2]);
    let (_, errors, _) =
        read_log(log_blocks(9, &[&[remove_record(1, 51), unknown]]), &header(9, None, 0));
    assert_eq!(errors.len(), 1);
}

#[test]
fn write_record_returns_its_block() {
    let mut blocks = log_blocks(
        9,
        &[&[write_record(1, 51, 900), write_record(2, 51, 901), remove_record(3, 51)]],
    );
    blocks.insert(900, vec![7; SIZE]);
    let source = Arc::new(BlockMap(blocks));
    let header = header(9, None, 0);
    let mut records = LogReader::new(source, ObjsetId::new(OBJSET), &header, None, Txg::new(50));
    let block = records.next().unwrap().unwrap().block.unwrap();
    // 100 bytes at 4196 came with the whole block at 4096
    assert_eq!((block.offset, &block.content[..]), (4096, &[7; SIZE][..]));
    // the second was never written, so no commit acknowledged it
    assert!(records.next().is_none());
    assert!(matches!(records.end(), Some(LogEnd::NotWritten(_))));
}

#[test]
fn close_waits_for_the_commit_under_way() {
    const ID: ObjsetId = ObjsetId::new(54);
    let writer = Arc::new(MemoryVdevs::new(1, 24 << 20, Ashift::MIN).writer());
    let source = Arc::clone(writer.reader()) as Arc<dyn Source>;
    let objset = Objset::new_empty(source, ID, Kind::Filesystem, None);
    let txgs = Txgs::new(Txg::new(4), TxgLimits::default());
    let log = IntentLog::new(writer, txgs, objset, LogHeader::default());
    let (closed, has_closed) = std::sync::mpsc::channel();
    let commit = log.chain_writer.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            log.close();
            closed.send(()).expect("the test waits");
        });
        let early = has_closed.recv_timeout(Duration::from_millis(100));
        assert!(early.is_err(), "a sync could free the block that the commit is about to write");
        drop(commit);
        has_closed.recv().expect("it is closed after the commit");
    });
}
