//! The listing of a table: a leaf at a time, in the order of the hashes.

use std::sync::Arc;

use ondisk::zap::leaf::Leaf;
use units::BlockId;

use crate::fat_table::{FatTable, corrupt_error};
use crate::micro::{micro_entry, parse_micro};
use crate::zap::{Zap, ZapKind, leaf_entry};
use crate::{Error, Result, ZapCursor, ZapEntry};

/// Lists a table. It holds the entries of one leaf, however large the table is. A table that is
/// changed meanwhile is listed as it is when a leaf's turn comes.
pub struct ZapEntries {
    zap: Zap,
    start: ZapCursor,
    position: ListPosition,
    /// The leaf that was last gone to in vain: further pointers to it are passed over.
    last_leaf: Option<BlockId>,
    batch: std::vec::IntoIter<Result<ZapEntry>>,
}

/// Where to continue.
enum ListPosition {
    /// At this one of a micro table, in the order of hashes.
    Micro(Arc<ZapKind>, usize),
    /// At the leaf of this hash.
    Hash(u64),
    End,
}

impl ZapEntries {
    pub(crate) fn new(zap: Zap, start: ZapCursor) -> Self {
        let mut now = Vec::new();
        let position = match zap.current() {
            Ok(kind) => match &*kind {
                ZapKind::Micro(table) => {
                    let first = table.index().partition_point(|(cursor, _)| *cursor < start);
                    ListPosition::Micro(Arc::clone(&kind), first)
                }
                ZapKind::Fat(_) if start == ZapCursor::END => ListPosition::End,
                ZapKind::Fat(_) => ListPosition::Hash(start.hash),
            },
            Err(error) => {
                now.push(Err(error));
                ListPosition::End
            }
        };
        Self { zap, start, position, last_leaf: None, batch: now.into_iter() }
    }

    /// Goes to the leaf of a hash.
    fn load_leaf(&mut self, hash: u64) -> Result<()> {
        self.position = ListPosition::End;
        let kind = self.zap.current()?;
        let ZapKind::Fat(fat) = &*kind else { return Ok(()) };
        let object = self.zap.object().clone();
        let index = fat.index_of_hash(hash);
        let leaf = match fat.leaf_at_index(&object, index) {
            Ok(leaf) => leaf,
            Err(error) => {
                self.set_next_index(fat, fat.index_after_gap(&object, index));
                return Err(error);
            }
        };
        self.set_next_index(fat, index + 1);
        if self.last_leaf == Some(leaf) {
            return Ok(());
        }
        self.last_leaf = Some(leaf);
        self.batch = self.leaf_entries(fat, index, leaf)?.into_iter();
        Ok(())
    }

    fn set_next_index(&mut self, fat: &FatTable, index: u64) {
        self.position = fat.first_hash(index).map_or(ListPosition::End, ListPosition::Hash);
    }

    /// The entries of a leaf in their order, and the place behind it as the next.
    fn leaf_entries(
        &mut self,
        fat: &FatTable,
        index: u64,
        number: BlockId,
    ) -> Result<Vec<Result<ZapEntry>>> {
        let object = &self.zap.0.object;
        let block = fat.block(object, number)?;
        let told = |error| corrupt_error(object, number, error);
        let leaf = Leaf::parse(&block, block.order()).map_err(told)?;
        let spare = fat.header.table_shift.checked_sub(leaf.prefix_bits);
        let run = spare.and_then(|bits| {
            let first = leaf.prefix.checked_shl(bits)?;
            Some((first, first.checked_add(1_u64.checked_shl(bits)?)?))
        });
        let Some((_, end)) = run.filter(|(first, end)| (*first..*end).contains(&index)) else {
            let hash = fat.first_hash(index).unwrap_or(0);
            return Err(Error::WrongLeaf { zbookmark: object.zbookmark(number), hash });
        };
        let word_keys = fat.header.flags.word_keys();
        let mut batch = Vec::with_capacity(usize::from(leaf.entry_count).min(block.len() / 72));
        let mut broken = Vec::new();
        for entry in leaf.entries() {
            match entry {
                Ok(entry) => {
                    let cursor = ZapCursor { hash: entry.hash, collision: entry.collision };
                    if cursor >= self.start {
                        batch.push((cursor, entry));
                    }
                }
                Err(error) => broken.push(Err(told(error))),
            }
        }
        batch.sort_unstable_by_key(|(cursor, _)| *cursor);
        let entries = batch.iter().map(|(_, entry)| leaf_entry(&leaf, entry, word_keys));
        let entries = entries.map(|entry| entry.map_err(told)).chain(broken).collect();
        self.set_next_index(fat, end);
        // a second pointer to it is wrong and yields an error of its own
        self.last_leaf = None;
        Ok(entries)
    }
}

impl Iterator for ZapEntries {
    type Item = Result<ZapEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.batch.next() {
                return Some(entry);
            }
            match &mut self.position {
                ListPosition::Micro(kind, at) => {
                    let ZapKind::Micro(table) = &**kind else { return None };
                    let (cursor, number) = *table.index().get(*at)?;
                    *at += 1;
                    let entry = parse_micro(&table.block).entry(number)?;
                    return Some(Ok(micro_entry(cursor, entry)));
                }
                ListPosition::Hash(hash) => {
                    let hash = *hash;
                    if let Err(error) = self.load_leaf(hash) {
                        return Some(Err(error));
                    }
                }
                ListPosition::End => return None,
            }
        }
    }
}
