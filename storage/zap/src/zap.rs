//! A table: opened by its block 0, looked up by name.

use std::sync::{Arc, OnceLock};

use dmu::Object;
use ondisk::zap::fat::{Flags, Header};
use ondisk::zap::leaf::{Leaf, LeafEntry};
use ondisk::zap::micro::{Micro, MicroEntry};
use ondisk::zap::{self, Normalization, hash};
use units::BlockId;
use zio::Block;

use crate::entries::Entries;
use crate::normalize::{is_plain, normalize};
use crate::table::{Fat, corrupt};
use crate::{Cursor, Entry, Error, Result, Value};

/// When two names are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matching {
    /// If their bytes are the same.
    Exact,
    /// If they are the same as the table normalizes them (MT_NORMALIZE).
    Normalized,
    /// The same, but upper and lower case are two (MT_NORMALIZE with MT_MATCH_CASE).
    NormalizedCase,
}

/// A table of names and values. Cheap to clone.
#[derive(Clone)]
pub struct Zap(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) object: Object,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Micro(Block, OnceLock<Vec<Seat>>),
    Fat(Fat),
}

/// Where an entry of a micro table is in the order of hashes, and which it is.
pub(crate) type Seat = (Cursor, usize);

impl std::fmt::Debug for Zap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zap({:?})", self.0.object)
    }
}

impl Zap {
    /// Reads block 0 of the object.
    pub fn open(object: Object) -> Result<Self> {
        let not_a_table = Error::NotATable { place: object.place(BlockId::new(0)) };
        let Some(block) = object.block(BlockId::new(0))? else { return Err(not_a_table) };
        let told = |why| corrupt(&object, 0, why);
        let kind = match zap::block_kind(&block, block.order()).map_err(told)? {
            zap::MICRO => {
                Micro::parse(&block, block.order()).map_err(told)?;
                Kind::Micro(block, OnceLock::new())
            }
            zap::HEADER => Kind::Fat(Fat::new(Header::parse(&block, block.order()).map_err(told)?)),
            _ => return Err(not_a_table),
        };
        Ok(Self(Arc::new(Inner { object, kind })))
    }

    /// The object that it is kept in.
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// Whether it is a micro table.
    pub fn is_micro(&self) -> bool {
        matches!(self.0.kind, Kind::Micro(..))
    }

    /// How many entries it has.
    pub fn count(&self) -> u64 {
        match &self.0.kind {
            Kind::Micro(block, _) => {
                u64::try_from(micro(block).entries().count()).unwrap_or(u64::MAX)
            }
            Kind::Fat(fat) => fat.header.entries,
        }
    }

    /// How its names are made equal.
    pub fn normalization(&self) -> Normalization {
        match &self.0.kind {
            Kind::Micro(block, _) => micro(block).normalization,
            Kind::Fat(fat) => fat.header.normalization,
        }
    }

    /// Its keys and hashes.
    pub fn flags(&self) -> Flags {
        match &self.0.kind {
            Kind::Micro(..) => Flags::default(),
            Kind::Fat(fat) => fat.header.flags,
        }
    }

    fn salt(&self) -> u64 {
        match &self.0.kind {
            Kind::Micro(block, _) => micro(block).salt,
            Kind::Fat(fat) => fat.header.salt,
        }
    }

    /// The value of a name, byte for byte.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<Value>> {
        Ok(self.lookup_normalized(name, Matching::Exact)?.map(|entry| entry.value))
    }

    /// The number that stands for a name; an error if its value is anything else.
    pub fn lookup_u64(&self, name: &[u8]) -> Result<Option<u64>> {
        let Some(value) = self.lookup(name)? else { return Ok(None) };
        match value.u64() {
            Some(number) => Ok(Some(number)),
            None => Err(Error::OtherValue {
                place: self.0.object.place(BlockId::new(0)),
                int_size: value.int_size(),
                count: value.count(),
            }),
        }
    }

    /// The entry of a name, which may be written otherwise in the table; of several, the oldest.
    pub fn lookup_normalized(&self, name: &[u8], matching: Matching) -> Result<Option<Entry>> {
        if self.flags().word_keys() {
            return Ok(None);
        }
        let normalization = self.normalization();
        let hash = hash::of_name(self.salt(), self.flags(), &normalize(name, normalization));
        let wanted = Wanted::new(name, matching, normalization);
        let found = match &self.0.kind {
            Kind::Micro(block, seats) => Self::find_micro(block, seats, hash, &wanted),
            Kind::Fat(fat) => self.find_fat(fat, hash, &wanted)?,
        };
        if found.is_some() || normalization.is_none() || is_plain(name) {
            return Ok(found);
        }
        self.search(&wanted)
    }

    /// The value of a key of words.
    pub fn lookup_key64(&self, words: &[u64]) -> Result<Option<Value>> {
        let Kind::Fat(fat) = &self.0.kind else { return Ok(None) };
        if !fat.header.flags.word_keys() {
            return Ok(None);
        }
        let hash = hash::of_words(fat.header.salt, fat.header.flags, words);
        let (number, block) = self.leaf(fat, hash)?;
        let told = |why| corrupt(&self.0.object, number, why);
        let leaf = Leaf::parse(&block, block.order()).map_err(told)?;
        for entry in leaf.chain(hash) {
            let entry = entry.map_err(told)?;
            if entry.hash == hash
                && usize::from(entry.name_count) == words.len()
                && leaf.key(&entry).map_err(told)? == words
            {
                let bytes = leaf.value(&entry).map_err(told)?;
                return Ok(Some(Value::new(entry.int_size, bytes)));
            }
        }
        Ok(None)
    }

    /// The entries in the order of their hashes, streamed leaf by leaf. What cannot be read is told
    /// as an error once, and the rest goes on.
    pub fn entries(&self) -> Entries {
        self.entries_from(Cursor::START)
    }

    /// The entries from a cursor on.
    pub fn entries_from(&self, cursor: Cursor) -> Entries {
        Entries::new(self.clone(), cursor)
    }

    /// Goes through all names, where the hash cannot be trusted.
    fn search(&self, wanted: &Wanted<'_>) -> Result<Option<Entry>> {
        for entry in self.entries() {
            let entry = entry?;
            if wanted.is(&entry.name) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn find_micro(
        block: &Block,
        seats: &OnceLock<Vec<Seat>>,
        hash: u64,
        wanted: &Wanted<'_>,
    ) -> Option<Entry> {
        let seats = seats.get_or_init(|| seats_of(block));
        let first = seats.partition_point(|(cursor, _)| cursor.hash < hash);
        let same = seats.get(first..)?.iter().take_while(|(cursor, _)| cursor.hash == hash);
        let mut found = same.filter_map(|(cursor, at)| Some((cursor, micro(block).entry(*at)?)));
        let (cursor, entry) = found.find(|(_, entry)| wanted.is(entry.name))?;
        Some(micro_entry(*cursor, entry))
    }

    fn find_fat(&self, fat: &Fat, hash: u64, wanted: &Wanted<'_>) -> Result<Option<Entry>> {
        let (number, block) = self.leaf(fat, hash)?;
        let told = |why| corrupt(&self.0.object, number, why);
        let leaf = Leaf::parse(&block, block.order()).map_err(told)?;
        let mut best: Option<LeafEntry> = None;
        for entry in leaf.chain(hash) {
            let entry = entry.map_err(told)?;
            if entry.hash != hash || best.is_some_and(|best| best.collision <= entry.collision) {
                continue;
            }
            let same = match wanted.matching {
                Matching::Exact => leaf.name_is(&entry, &wanted.on_disk).map_err(told)?,
                _ => wanted.is(cut(&leaf.name(&entry).map_err(told)?)),
            };
            if same {
                best = Some(entry);
            }
        }
        best.map(|entry| leaf_entry(&leaf, &entry, false).map_err(told)).transpose()
    }

    /// The leaf for a hash, with its block number.
    fn leaf(&self, fat: &Fat, hash: u64) -> Result<(u64, Block)> {
        let object = &self.0.object;
        let number = fat.leaf_of(object, fat.index(hash))?;
        let block = fat.block(object, number)?;
        let leaf = Leaf::parse(&block, block.order());
        let leaf = leaf.map_err(|why| corrupt(object, number, why))?;
        if !leaf.covers(hash) {
            let place = object.place(BlockId::new(number));
            return Err(Error::WrongLeaf { place, hash });
        }
        Ok((number, block))
    }
}

/// A name that is looked for.
struct Wanted<'a> {
    name: &'a [u8],
    matching: Matching,
    /// How names are made equal before they are compared.
    how: Normalization,
    normalized: Vec<u8>,
    /// The name with its NUL.
    on_disk: Vec<u8>,
}

impl<'a> Wanted<'a> {
    fn new(name: &'a [u8], matching: Matching, table: Normalization) -> Self {
        let how = match matching {
            Matching::Exact => Normalization::default(),
            Matching::Normalized => table,
            Matching::NormalizedCase => table.with_case(),
        };
        let mut on_disk = name.to_vec();
        on_disk.push(0);
        Self { name, matching, how, normalized: normalize(name, how), on_disk }
    }

    fn is(&self, other: &[u8]) -> bool {
        match self.matching {
            Matching::Exact => self.name == other,
            _ => self.normalized == normalize(other, self.how),
        }
    }
}

/// The micro table in a block that has been found to hold one.
pub(crate) fn micro(block: &Block) -> Micro<'_> {
    Micro::parse(block, block.order()).unwrap_or_default()
}

/// The entries of a micro table in the order of their hashes.
pub(crate) fn seats_of(block: &Block) -> Vec<Seat> {
    let table = micro(block);
    let seat = |(at, entry): (usize, MicroEntry<'_>)| {
        let name = normalize(entry.name, table.normalization);
        let hash = hash::of_name(table.salt, Flags::default(), &name);
        (Cursor { hash, collision: entry.collision }, at)
    };
    let mut seats: Vec<Seat> = table.numbered().map(seat).collect();
    seats.sort_unstable();
    seats
}

pub(crate) fn micro_entry(cursor: Cursor, entry: MicroEntry<'_>) -> Entry {
    let (name, value) = (entry.name.to_vec(), Value::number(entry.value));
    Entry { name, key64: None, value, cursor }
}

/// An entry of a leaf with its name and value.
pub(crate) fn leaf_entry(
    leaf: &Leaf<'_>,
    entry: &LeafEntry,
    word_keys: bool,
) -> ondisk::Result<Entry> {
    let (name, key64) = if word_keys {
        let words = leaf.key(entry)?;
        (words.iter().flat_map(|word| word.to_be_bytes()).collect(), Some(words))
    } else {
        let mut name = leaf.name(entry)?;
        name.truncate(cut(&name).len());
        (name, None)
    };
    let value = Value::new(entry.int_size, leaf.value(entry)?);
    let cursor = Cursor { hash: entry.hash, collision: entry.collision };
    Ok(Entry { name, key64, value, cursor })
}

/// The bytes before the first NUL.
fn cut(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.get(..end).unwrap_or(name)
}
