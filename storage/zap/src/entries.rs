//! The listing of a table: a leaf at a time, in the order of the hashes.

use ondisk::zap::leaf::Leaf;
use units::BlockId;

use crate::table::{Fat, corrupt};
use crate::zap::{Kind, Zap, leaf_entry, micro, micro_entry, seats_of};
use crate::{Cursor, Entry, Error, Result};

/// Lists a table. It holds the entries of one leaf, however large the table is.
pub struct Entries {
    zap: Zap,
    from: Cursor,
    /// The next place: of a micro table in the order of hashes, of a fat one in the pointer table.
    at: u64,
    /// The leaf that was last gone to in vain: further pointers to it are passed over.
    last: Option<u64>,
    now: std::vec::IntoIter<Result<Entry>>,
}

impl Entries {
    pub(crate) fn new(zap: Zap, from: Cursor) -> Self {
        let at = match &zap.0.kind {
            Kind::Micro(block, seats) => {
                let seats = seats.get_or_init(|| seats_of(block));
                let first = seats.partition_point(|(cursor, _)| *cursor < from);
                u64::try_from(first).unwrap_or(u64::MAX)
            }
            Kind::Fat(_) if from == Cursor::END => u64::MAX,
            Kind::Fat(fat) => fat.index(from.hash),
        };
        Self { zap, from, at, last: None, now: Vec::new().into_iter() }
    }

    /// The next entry of a micro table.
    fn next_micro(&mut self) -> Option<Result<Entry>> {
        let Kind::Micro(block, seats) = &self.zap.0.kind else { return None };
        let seats = seats.get_or_init(|| seats_of(block));
        let (cursor, number) = *seats.get(usize::try_from(self.at).ok()?)?;
        self.at = self.at.saturating_add(1);
        micro(block).entry(number).map(|entry| Ok(micro_entry(cursor, entry)))
    }

    /// Goes to the next leaf; `None` at the end of the table.
    fn advance(&mut self) -> Option<()> {
        let zap = self.zap.clone();
        let Kind::Fat(fat) = &zap.0.kind else { return None };
        let object = &zap.0.object;
        while self.at < fat.header.table_len() {
            let index = self.at;
            let leaf = match fat.leaf_of(object, index) {
                Ok(leaf) => leaf,
                Err(error) => {
                    self.at = fat.behind_gap(object, index);
                    self.now = vec![Err(error)].into_iter();
                    return Some(());
                }
            };
            self.at = index.saturating_add(1);
            if self.last == Some(leaf) {
                continue;
            }
            self.last = Some(leaf);
            let batch = match self.leaf(fat, index, leaf) {
                Ok(batch) => batch,
                Err(error) => vec![Err(error)],
            };
            if !batch.is_empty() {
                self.now = batch.into_iter();
                return Some(());
            }
        }
        None
    }

    /// The entries of a leaf in their order, and the place behind it as the next.
    fn leaf(&mut self, fat: &Fat, index: u64, number: u64) -> Result<Vec<Result<Entry>>> {
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
            let bits = 64_u32.saturating_sub(fat.header.table_shift);
            let hash = index.checked_shl(bits).unwrap_or(0);
            return Err(Error::WrongLeaf { place: object.place(BlockId::new(number)), hash });
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
        self.at = end;
        // a further pointer to it is wrong, which is worth an error of its own
        self.last = None;
        Ok(entries)
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.zap.is_micro() {
            return self.next_micro();
        }
        loop {
            if let Some(entry) = self.now.next() {
                return Some(entry);
            }
            self.advance()?;
        }
    }
}
