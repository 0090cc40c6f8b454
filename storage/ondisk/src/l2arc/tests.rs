//! Encoded structures parse to their input, and fields have the offsets of the drawings.

use units::{Guid, Txg, VdevId};

use super::{Entry, Header, LogBlock, LogPointer, MAX_ENTRIES, entries_per_log};
use crate::{Compression, Dva};

fn pointer(at: u64) -> LogPointer {
    LogPointer {
        offset: at,
        payload_size: 3 << 20,
        payload_start: at - (3 << 20),
        lsize: 64 << 10,
        psize: 12 << 10,
        compression: Some(Compression::Lz4),
        sum: [1, 2, 3, 4],
    }
}

fn entry(number: u64) -> Entry {
    Entry {
        dva: Dva {
            vdev: VdevId::new(3),
            offset: number << 17,
            asize: 128 << 10,
            gang: number.is_multiple_of(7),
        },
        birth: Txg::new(1000 + number),
        lsize: 16 << 20,
        psize: 512 * (1 + u32::try_from(number).unwrap()),
        compression: Some(Compression::Zstd),
        metadata: number.is_multiple_of(2),
        protected: number.is_multiple_of(3),
        offset: number << 20,
    }
}

#[test]
fn header_survives_encoding() {
    let header = Header {
        pool: Guid::new(11),
        device: Guid::new(12),
        log_entries: 63,
        evict: 1 << 29,
        first_sweep: true,
        start: 0x40_1000,
        end: 1 << 30,
        logs: [pointer(1 << 28), LogPointer::NONE],
        log_bytes: 12 << 10,
        log_count: 1,
    };
    let bytes = header.encode();
    assert_eq!(&bytes[..8], b"EHCACSFZ");
    assert_eq!(u64::from_le_bytes(bytes[72..80].try_into().unwrap()), 1 << 28);
    assert_eq!(bytes[136..200], [0; 64], "a pointer that leads nowhere is all zeros");
    assert_eq!(Header::parse(&bytes).unwrap(), header);
    let mut swapped = bytes;
    swapped.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    assert_eq!(Header::parse(&swapped).unwrap(), header);
    swapped[0] = 0;
    assert!(Header::parse(&swapped).is_err());
}

#[test]
fn log_block_survives_encoding() {
    let block = LogBlock { previous: pointer(5 << 20), entries: (0..63).map(entry).collect() };
    let bytes = block.encode();
    assert_eq!((bytes.len(), &bytes[..8]), (LogBlock::SIZE, &b"DHKLBGOL"[..]));
    assert_eq!(LogBlock::parse(&bytes, 63).unwrap(), block);
    assert_eq!(LogBlock::parse(&bytes, u64::MAX).unwrap(), block, "an empty slot is not an entry");
    let mut swapped = bytes;
    swapped.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    assert_eq!(LogBlock::parse(&swapped, 63).unwrap(), block);
    assert!(LogBlock::parse(&swapped[..4000], 63).is_err());
}

#[test]
fn entries_per_log_fit_the_device() {
    assert_eq!(entries_per_log(5 << 20, (1 << 30) - 1), 0);
    assert_eq!(entries_per_log(5 << 20, 1 << 30), 63);
    assert_eq!(entries_per_log(5 << 20, 1 << 50), MAX_ENTRIES);
}
