//! Targets: tables of names, datasets, dedup and clone tables, intent logs.

use ondisk::dedup::{
    CloneTable, DedupKey, DedupValue, LogHeader, Records, Shape, TableName, clone_count, histogram,
    unpack,
};
use ondisk::dsl::{
    Bookmark, Bpobj, Bptree, BptreeEntry, Dataset, Deadlist, Dir, RedactedBlocks, RedactionList,
};
use ondisk::zap::{block_kind, fat, leaf as leaves, micro};
use ondisk::zil::{Chain, Record};

use crate::{BYTE_ORDERS, read_structures};

/// A table of one block.
pub fn microzap(data: &[u8]) {
    for order in BYTE_ORDERS {
        let _ = block_kind(data, order);
        let _ = micro::Micro::parse(data, order).map(|table| table.entries().count());
    }
}

/// The first block of a table of many.
pub fn fatzap(data: &[u8]) {
    for order in BYTE_ORDERS {
        let _ = fat::Header::parse(data, order).map(|header| header.table_len());
    }
}

/// A leaf of a table: all entries, and the chains of some hashes.
pub fn leaf(data: &[u8]) {
    for order in BYTE_ORDERS {
        let Ok(leaf) = leaves::Leaf::parse(data, order) else { continue };
        let chains = [0, 1 << 63, u64::MAX].map(|hash| leaf.chain(hash).flatten());
        for entry in leaf.entries().flatten().chain(chains.into_iter().flatten()) {
            let _ = (leaf.name(&entry), leaf.key(&entry), leaf.value(&entry));
            let _ = leaf.name_matches(&entry, b"name");
        }
    }
}

/// A directory of datasets.
pub fn dir(data: &[u8]) {
    for order in BYTE_ORDERS {
        let _ = Dir::parse(data, order);
    }
}

/// A dataset.
pub fn dataset(data: &[u8]) {
    for order in BYTE_ORDERS {
        let _ = (Dataset::parse(data, order), Deadlist::parse(data, order));
    }
}

/// Bookmarks, and what redaction keeps.
pub fn bookmark(data: &[u8]) {
    for order in BYTE_ORDERS {
        let _ = (Bookmark::parse(data, order), RedactionList::parse(data, order));
        read_structures(data, order, RedactedBlocks::read);
    }
}

/// Lists of block pointers.
pub fn bpobj(data: &[u8]) {
    for order in BYTE_ORDERS {
        let _ = (Bpobj::parse(data, order), Bptree::parse(data, order));
        read_structures(data, order, BptreeEntry::read);
    }
}

/// Dedup tables: keys, values, logs.
pub fn ddt(data: &[u8]) {
    for shape in [Shape::Traditional, Shape::Flat] {
        let _ = DedupValue::parse(data, shape).map(|value| value.references());
        for order in BYTE_ORDERS {
            read_structures(data, order, LogHeader::read);
            read_structures(data, order, DedupKey::read);
            let _ = histogram(data, order);
            let _ = Records::new(data, order, shape).count();
        }
    }
    for size in [0, 64, 256, 1 << 16] {
        let _ = unpack(data, size);
    }
    let _ = TableName::parse(&String::from_utf8_lossy(data)).map(|name| name.to_string());
}

/// The table of cloned blocks.
pub fn brt(data: &[u8]) {
    for order in BYTE_ORDERS {
        read_structures(data, order, CloneTable::read);
        let _ = clone_count(data, order);
    }
}

/// A block of an intent log, of the old kind and the new, with all its records.
pub fn zil(data: &[u8]) {
    for order in BYTE_ORDERS {
        for front in [false, true] {
            if let Ok((_, records)) = Chain::split(data, order, front) {
                read_structures(records, order, Record::read);
            }
        }
        read_structures(data, order, Record::read);
        read_structures(data, order, |reader| {
            let _ = Record::peek(reader);
            Record::skip(reader)
        });
    }
}
