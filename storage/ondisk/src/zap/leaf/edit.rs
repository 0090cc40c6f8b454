//! A leaf changed in place: entries put in, given other values, taken out, and the leaf split.
//!
//! Free chunks form a list; the last one freed is the first to be used. A free chunk is all zeros
//! except for its type and its link, so that leaves compress. A link is followed only to a chunk of
//! the link's type, and a chain for at most as many steps as there are chunks: a broken leaf gives
//! an error.
//!
//! Learnt from: zap_leaf.c. Proved by: `real_leaves_are_made_again`, and the tests of zap.

use super::{
    ARRAY, ARRAY_CHUNK, CHUNK, END, ENTRY_CHUNK, FREE_CHUNK, Key, Leaf, LeafEntry, STRUCTURE,
};
use crate::zap::{LEAF, write};
use crate::{Error, Order, Reader, Result};

/// The result of inserting an entry into a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeafUpdate {
    /// It was inserted.
    Done,
    /// The leaf has not enough free chunks: it must be split.
    LeafFull,
    /// It would not fit an empty leaf.
    TooLarge,
}

/// A leaf block, to be changed in place.
#[derive(Debug)]
pub struct LeafMut<'a> {
    bytes: &'a mut [u8],
    order: Order,
}

const FREE_COUNT: usize = 28;
const ENTRY_COUNT: usize = 30;
const FREE_LIST: usize = 34;
/// Where the link stands in an array chunk and in a free one.
const LINK_OFFSET: usize = 22;

impl<'a> LeafMut<'a> {
    /// Makes the block a leaf without entries, for all hashes.
    pub fn init(bytes: &'a mut [u8], order: Order, sorted: bool) -> Self {
        bytes.fill(0);
        write::u64(bytes, 0, order, LEAF);
        write::u32(bytes, 24, order, Leaf::MAGIC);
        write::slice(bytes, 36, &[u8::from(sorted)]);
        let heads = heads_end(bytes.len());
        if let Some(heads) = bytes.get_mut(Leaf::HEADER..heads) {
            heads.fill(0xff);
        }
        let mut leaf = Self { bytes, order };
        let count = leaf.chunk_count();
        leaf.write_field(FREE_COUNT, count);
        for number in 0..count {
            let next = number.saturating_add(1);
            let at = leaf.chunk_at(number);
            write::slice(leaf.bytes, at, &[FREE_CHUNK]);
            leaf.write_field(
                at.saturating_add(LINK_OFFSET),
                if next == count { END } else { next },
            );
        }
        leaf
    }

    /// Takes the block of a leaf.
    pub fn open(bytes: &'a mut [u8], order: Order) -> Result<Self> {
        Leaf::parse(bytes, order)?;
        Ok(Self { bytes, order })
    }

    /// The leaf as it reads now.
    pub fn view(&self) -> Result<Leaf<'_>> {
        Leaf::parse(self.bytes, self.order)
    }

    /// Puts an entry in. Without a `collision` it gets the least that no entry of its hash has.
    /// `value` is integers of `int_size` bytes, most significant byte first.
    pub fn insert(
        &mut self,
        key: &Key<'_>,
        collision: Option<u32>,
        (int_size, value): (u8, &[u8]),
    ) -> Result<LeafUpdate> {
        let chunks = array_chunk_count(key.bytes.len())
            .saturating_add(array_chunk_count(value.len()))
            .saturating_add(1);
        if chunks > usize::from(self.chunk_count()) || has_too_many_integers(int_size, value) {
            return Ok(LeafUpdate::TooLarge);
        }
        if chunks > usize::from(self.read_field(FREE_COUNT)?) {
            return Ok(LeafUpdate::LeafFull);
        }
        let collision = match collision {
            Some(known) => known,
            None => unused_collision(&self.view()?, key.hash)?,
        };
        let number = self.allocate_chunk(ENTRY_CHUNK)?;
        let name_chunk = self.write_array(key.bytes)?;
        let value_chunk = self.write_array(value)?;
        self.add_entry(&LeafEntry {
            hash: key.hash,
            collision,
            name_chunk,
            name_count: key.count,
            value_chunk,
            value_count: integer_count(int_size, value),
            int_size,
            number,
            next: END,
        })?;
        Ok(LeafUpdate::Done)
    }

    /// Gives an entry another value.
    pub fn set_value(
        &mut self,
        entry: &LeafEntry,
        (int_size, value): (u8, &[u8]),
    ) -> Result<LeafUpdate> {
        let old = self.array_chunks(entry.value_chunk)?;
        let wanted = array_chunk_count(value.len());
        let needed = wanted.saturating_sub(old.len());
        if wanted > usize::from(self.chunk_count()) || has_too_many_integers(int_size, value) {
            return Ok(LeafUpdate::TooLarge);
        }
        if needed > usize::from(self.read_field(FREE_COUNT)?) {
            return Ok(LeafUpdate::LeafFull);
        }
        for number in old.into_iter().rev() {
            self.free_chunk(number)?;
        }
        let value_chunk = self.write_array(value)?;
        let value_count = integer_count(int_size, value);
        self.write_entry(&LeafEntry { value_chunk, value_count, int_size, ..*entry });
        Ok(LeafUpdate::Done)
    }

    /// Gives every entry the same number as its value. An error if an entry has another kind of value.
    pub fn set_all_numbers(&mut self, number: u64) -> Result<()> {
        let entries: Vec<LeafEntry> = self.view()?.entries().collect::<Result<_>>()?;
        for entry in entries {
            if entry.int_size != 8 || entry.value_count != 1 {
                let place = Reader::new(STRUCTURE, &[], self.order);
                return Err(place.corrupt_field(
                    0,
                    "a value is one number",
                    entry.value_count.into(),
                ));
            }
            self.view()?.chunk(entry.value_chunk, ARRAY_CHUNK)?;
            let at = self.chunk_at(entry.value_chunk).saturating_add(1);
            write::slice(self.bytes, at, &number.to_be_bytes());
        }
        Ok(())
    }

    /// Takes an entry out.
    pub fn remove(&mut self, entry: &LeafEntry) -> Result<()> {
        let mut chunks = self.array_chunks(entry.name_chunk)?;
        chunks.extend(self.array_chunks(entry.value_chunk)?);
        let link = self.find_link(entry.number, entry.hash)?;
        self.write_field(link, entry.next);
        for number in chunks {
            self.free_chunk(number)?;
        }
        self.free_chunk(entry.number)?;
        self.adjust_count(ENTRY_COUNT, -1)
    }

    /// Moves the entries whose hash has a one as its next bit after the prefix to `upper`, an empty
    /// leaf.
    pub fn split(&mut self, upper: &mut LeafMut<'_>) -> Result<()> {
        let (prefix, bits, sorted) = {
            let leaf = self.view()?;
            (leaf.prefix, leaf.prefix_bits, upper.view()?.sorted)
        };
        let longer = bits.saturating_add(1);
        self.set_prefix(prefix << 1, longer);
        upper.set_prefix((prefix << 1) | 1, longer);
        let heads = heads_end(self.bytes.len());
        if let Some(heads) = self.bytes.get_mut(Leaf::HEADER..heads) {
            heads.fill(0xff);
        }
        if sorted {
            write::slice(self.bytes, 36, &[1]);
        }
        for number in 0..self.chunk_count() {
            let Ok(entry) = self.view()?.entry(number) else { continue };
            if entry.hash.checked_shl(bits).unwrap_or(0) >> 63 == 0 {
                self.link(number, entry.hash, entry.collision)?;
            } else {
                self.move_entry(&entry, upper)?;
            }
        }
        Ok(())
    }

    /// Sets the prefix of the hashes in it.
    pub fn set_prefix(&mut self, prefix: u64, bits: u32) {
        write::u64(self.bytes, 16, self.order, prefix);
        self.write_field(32, units::narrow(bits));
    }

    /// Moves an entry, which hangs in no chain any more, to another leaf.
    fn move_entry(&mut self, entry: &LeafEntry, to: &mut LeafMut<'_>) -> Result<()> {
        let number = to.allocate_chunk(ENTRY_CHUNK)?;
        let name_chunk = self.move_array(entry.name_chunk, to)?;
        let value_chunk = self.move_array(entry.value_chunk, to)?;
        self.free_chunk(entry.number)?;
        self.adjust_count(ENTRY_COUNT, -1)?;
        to.add_entry(&LeafEntry { name_chunk, value_chunk, number, ..*entry })
    }

    /// Moves an array, with the bytes after its end.
    fn move_array(&mut self, first: u16, to: &mut LeafMut<'_>) -> Result<u16> {
        let chunks = self.array_chunks(first)?;
        let bytes = self.view()?.array(first, chunks.len().saturating_mul(ARRAY))?;
        for number in chunks {
            self.free_chunk(number)?;
        }
        to.write_array(&bytes)
    }

    /// Counts an entry, writes it and hangs it into its chain.
    fn add_entry(&mut self, entry: &LeafEntry) -> Result<()> {
        self.write_entry(entry);
        self.link(entry.number, entry.hash, entry.collision)?;
        self.adjust_count(ENTRY_COUNT, 1)
    }

    fn write_entry(&mut self, entry: &LeafEntry) {
        let at = self.chunk_at(entry.number);
        write::slice(self.bytes, at, &[ENTRY_CHUNK, entry.int_size]);
        let fields =
            [entry.next, entry.name_chunk, entry.name_count, entry.value_chunk, entry.value_count];
        for (place, field) in (2..).step_by(2).zip(fields) {
            self.write_field(at.saturating_add(place), field);
        }
        write::u32(self.bytes, at.saturating_add(12), self.order, entry.collision);
        write::u64(self.bytes, at.saturating_add(16), self.order, entry.hash);
    }

    /// Links an entry into the chain of its hash, before those with a greater collision number.
    fn link(&mut self, number: u16, hash: u64, collision: u32) -> Result<()> {
        let mut place = self.head_at(hash)?;
        let mut next = END;
        for entry in self.view()?.chain(hash) {
            let entry = entry?;
            if entry.collision > collision {
                next = entry.number;
                break;
            }
            place = self.chunk_at(entry.number).saturating_add(2);
        }
        let own = self.chunk_at(number).saturating_add(2);
        self.write_field(own, next);
        self.write_field(place, number);
        Ok(())
    }

    /// Where the link stands that leads to an entry.
    fn find_link(&self, number: u16, hash: u64) -> Result<usize> {
        let mut place = self.head_at(hash)?;
        for entry in self.view()?.chain(hash) {
            let entry = entry?;
            if entry.number == number {
                return Ok(place);
            }
            place = self.chunk_at(entry.number).saturating_add(2);
        }
        Err(self.corrupt("an entry is in the chain of its hash", number))
    }

    /// Writes an array; gives its first chunk.
    fn write_array(&mut self, bytes: &[u8]) -> Result<u16> {
        let mut first = END;
        let mut last = None;
        for piece in bytes.chunks(ARRAY) {
            let number = self.allocate_chunk(ARRAY_CHUNK)?;
            let at = self.chunk_at(number);
            write::slice(self.bytes, at.saturating_add(1), piece);
            self.write_field(at.saturating_add(LINK_OFFSET), END);
            match last {
                None => first = number,
                Some(last) => {
                    self.write_field(self.chunk_at(last).saturating_add(LINK_OFFSET), number);
                }
            }
            last = Some(number);
        }
        Ok(first)
    }

    /// The chunks of an array.
    fn array_chunks(&self, first: u16) -> Result<Vec<u16>> {
        let leaf = self.view()?;
        let mut chunks = Vec::new();
        let mut number = first;
        while number != END {
            if chunks.len() >= leaf.chunk_count() {
                return Err(self.corrupt("an array has an end", first));
            }
            chunks.push(number);
            let mut reader = leaf.chunk(number, ARRAY_CHUNK)?;
            reader.skip(ARRAY)?;
            number = reader.u16()?;
        }
        Ok(chunks)
    }

    /// Takes a chunk from the list of free ones; it is all zeros but for its type.
    fn allocate_chunk(&mut self, kind: u8) -> Result<u16> {
        let number = self.read_field(FREE_LIST)?;
        let next = {
            let leaf = self.view()?;
            let mut reader = leaf.chunk(number, FREE_CHUNK)?;
            reader.skip(ARRAY)?;
            reader.u16()?
        };
        self.adjust_count(FREE_COUNT, -1)?;
        self.write_field(FREE_LIST, next);
        self.clear_chunk(number, kind);
        Ok(number)
    }

    /// Puts a chunk at the front of the list of free ones.
    fn free_chunk(&mut self, number: u16) -> Result<()> {
        if number >= self.chunk_count() {
            return Err(self.corrupt("a chunk is in the leaf", number));
        }
        let next = self.read_field(FREE_LIST)?;
        self.clear_chunk(number, FREE_CHUNK);
        self.write_field(self.chunk_at(number).saturating_add(LINK_OFFSET), next);
        self.write_field(FREE_LIST, number);
        self.adjust_count(FREE_COUNT, 1)
    }

    fn clear_chunk(&mut self, number: u16, kind: u8) {
        let at = self.chunk_at(number);
        let mut chunk = [0; CHUNK];
        chunk[0] = kind;
        write::slice(self.bytes, at, &chunk);
    }

    /// Changes one of the counts in the header.
    fn adjust_count(&mut self, at: usize, by: i16) -> Result<()> {
        let old = self.read_field(at)?;
        let Some(new) = old.checked_add_signed(by) else {
            return Err(self.corrupt("the counts of the leaf are true", old));
        };
        self.write_field(at, new);
        Ok(())
    }

    fn read_field(&self, at: usize) -> Result<u16> {
        let mut reader = Reader::new(STRUCTURE, self.bytes, self.order);
        reader.seek(at);
        reader.u16()
    }

    fn write_field(&mut self, at: usize, value: u16) {
        write::u16(self.bytes, at, self.order, value);
    }

    fn head_at(&self, hash: u64) -> Result<usize> {
        let bucket = self.view()?.bucket(hash);
        Ok(bucket.saturating_mul(2).saturating_add(Leaf::HEADER))
    }

    fn chunk_at(&self, number: u16) -> usize {
        let before = usize::from(number).saturating_mul(CHUNK);
        heads_end(self.bytes.len()).saturating_add(before)
    }

    fn chunk_count(&self) -> u16 {
        let room = self.bytes.len().saturating_sub(heads_end(self.bytes.len()));
        u16::try_from(room / CHUNK).unwrap_or(END)
    }

    fn corrupt(&self, rule: &'static str, found: u16) -> Error {
        Reader::new(STRUCTURE, &[], self.order).corrupt_field(0, rule, found.into())
    }
}

/// Where the chunks begin.
fn heads_end(size: usize) -> usize {
    Leaf::HEADER.saturating_add(size / 16)
}

/// The number of chunks for an array of this many bytes.
fn array_chunk_count(bytes: usize) -> usize {
    bytes.div_ceil(ARRAY)
}

/// Whether an entry, which counts in 16 bits, cannot hold a value: only blocks of more than 64 KiB have room for one.
fn has_too_many_integers(int_size: u8, value: &[u8]) -> bool {
    value.len().checked_div(int_size.into()).is_some_and(|count| count > usize::from(u16::MAX))
}

/// How many integers a value is.
fn integer_count(int_size: u8, value: &[u8]) -> u16 {
    let count = value.len().checked_div(int_size.into()).unwrap_or(0);
    units::narrow(count)
}

/// The least collision number that no entry of a hash has.
fn unused_collision(leaf: &Leaf<'_>, hash: u64) -> Result<u32> {
    let mut used = Vec::new();
    for entry in leaf.chain(hash) {
        let entry = entry?;
        if entry.hash == hash {
            used.push(entry.collision);
        }
    }
    used.sort_unstable();
    let mut least = 0_u32;
    for number in used {
        if number == least {
            least = least.saturating_add(1);
        }
    }
    Ok(least)
}
