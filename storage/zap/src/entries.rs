//! The listing of a table: a leaf at a time, in the order of the hashes.

use std::sync::Arc;

use ondisk::zap::leaf::Leaf;
use units::BlockId;

use crate::micro::{micro, micro_entry};
use crate::table::{Fat, corrupt};
use crate::zap::{Kind, Zap, leaf_entry};
use crate::{Cursor, Entry, Error, Result};

/// Lists a table. It holds the entries of one leaf, however large the table is. A table that is
/// changed meanwhile is listed as it is when a leaf's turn comes.
pub struct Entries {
    zap: Zap,
    from: Cursor,
    next: Next,
    /// The leaf that was last gone to in vain: further pointers to it are passed over.
    last: Option<BlockId>,
    now: std::vec::IntoIter<Result<Entry>>,
}

/// Where to go on.
enum Next {
    /// At this one of a micro table, in the order of hashes.
    Micro(Arc<Kind>, usize),
    /// At the leaf of this hash.
    Hash(u64),
    End,
}

impl Entries {
    pub(crate) fn new(zap: Zap, from: Cursor) -> Self {
        let mut now = Vec::new();
        let next = match zap.now() {
            Ok(kind) => match &*kind {
                Kind::Micro(table) => {
                    let first = table.seats().partition_point(|(cursor, _)| *cursor < from);
                    Next::Micro(Arc::clone(&kind), first)
                }
                Kind::Fat(_) if from == Cursor::END => Next::End,
                Kind::Fat(_) => Next::Hash(from.hash),
            },
            Err(error) => {
                now.push(Err(error));
                Next::End
            }
        };
        Self { zap, from, next, last: None, now: now.into_iter() }
    }

    /// Goes to the leaf of a hash.
    fn advance(&mut self, hash: u64) -> Result<()> {
        self.next = Next::End;
        let kind = self.zap.now()?;
        let Kind::Fat(fat) = &*kind else { return Ok(()) };
        let object = self.zap.object().clone();
        let index = fat.index(hash);
        let leaf = match fat.leaf_of(&object, index) {
            Ok(leaf) => leaf,
            Err(error) => {
                self.go_on(fat, fat.behind_gap(&object, index));
                return Err(error);
            }
        };
        self.go_on(fat, index.saturating_add(1));
        if self.last == Some(leaf) {
            return Ok(());
        }
        self.last = Some(leaf);
        self.now = self.leaf(fat, index, leaf)?.into_iter();
        Ok(())
    }

    fn go_on(&mut self, fat: &Fat, index: u64) {
        self.next = fat.first_hash(index).map_or(Next::End, Next::Hash);
    }

    /// The entries of a leaf in their order, and the place behind it as the next.
    fn leaf(&mut self, fat: &Fat, index: u64, number: BlockId) -> Result<Vec<Result<Entry>>> {
        let object = &self.zap.0.object;
        let block = fat.block(object, number)?;
        let told = |why| corrupt(object, number, why);
        let leaf = Leaf::parse(&block, block.order()).map_err(told)?;
        let spare = fat.header.table_shift.checked_sub(leaf.prefix_bits);
        let run = spare.and_then(|bits| {
            let first = leaf.prefix.checked_shl(bits)?;
            Some((first, first.checked_add(1_u64.checked_shl(bits)?)?))
        });
        let Some((_, end)) = run.filter(|(first, end)| (*first..*end).contains(&index)) else {
            let hash = fat.first_hash(index).unwrap_or(0);
            return Err(Error::WrongLeaf { place: object.zbookmark(number), hash });
        };
        let word_keys = fat.header.flags.word_keys();
        let mut batch = Vec::with_capacity(usize::from(leaf.entry_count).min(block.len() / 72));
        let mut broken = Vec::new();
        for entry in leaf.entries() {
            match entry {
                Ok(entry) => {
                    let cursor = Cursor { hash: entry.hash, collision: entry.collision };
                    if cursor >= self.from {
                        batch.push((cursor, entry));
                    }
                }
                Err(why) => broken.push(Err(told(why))),
            }
        }
        batch.sort_unstable_by_key(|(cursor, _)| *cursor);
        let entries = batch.iter().map(|(_, entry)| leaf_entry(&leaf, entry, word_keys));
        let entries = entries.map(|entry| entry.map_err(told)).chain(broken).collect();
        self.go_on(fat, end);
        // a further pointer to it is wrong, which is worth an error of its own
        self.last = None;
        Ok(entries)
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.now.next() {
                return Some(entry);
            }
            match &mut self.next {
                Next::Micro(kind, at) => {
                    let Kind::Micro(table) = &**kind else { return None };
                    let (cursor, number) = *table.seats().get(*at)?;
                    *at = at.saturating_add(1);
                    let entry = micro(&table.block).entry(number)?;
                    return Some(Ok(micro_entry(cursor, entry)));
                }
                Next::Hash(hash) => {
                    let hash = *hash;
                    if let Err(error) = self.advance(hash) {
                        return Some(Err(error));
                    }
                }
                Next::End => return None,
            }
        }
    }
}
