//! A table: opened by its block 0, looked up by name.

use std::borrow::Cow;
use std::sync::Arc;

use dmu::Object;
use ondisk::zap::fat::{Flags, Header};
use ondisk::zap::leaf::{Key, Leaf, LeafEntry};
use ondisk::zap::micro::Micro;
use ondisk::zap::{self, Normalization, hash};
use parking_lot::Mutex;
use units::BlockId;
use zio::Block;

use crate::entries::ZapEntries;
use crate::fat_table::{FatTable, corrupt_error};
use crate::micro::{MicroTable, parse_micro};
use crate::normalize::{has_certain_form, normalize};
use crate::{Error, Result, ZapCursor, ZapEntry, ZapValue};

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
///
/// In a live object set a handle stays valid when the table is changed through any handle. A writer
/// holds the lock of the table's owner (a directory, a dataset).
#[derive(Clone)]
pub struct Zap(pub(crate) Arc<ZapInner>);

pub(crate) struct ZapInner {
    pub(crate) object: Object,
    /// The facts that never change.
    pub(crate) salt: u64,
    normalization: Normalization,
    flags: Flags,
    /// The parsed block 0. In a live object set it is valid only while the block is the same. A fat
    /// table is not cached: a shared block would have to be copied at each change.
    pub(crate) cached: Mutex<Option<Arc<ZapKind>>>,
}

pub(crate) enum ZapKind {
    Micro(MicroTable),
    Fat(FatTable),
}

impl ZapKind {
    /// The kind of table in block 0.
    fn parse(object: &Object, block: Block) -> Result<Self> {
        let told = |error| corrupt_error(object, BlockId::new(0), error);
        match zap::block_kind(&block, block.order()).map_err(told)? {
            zap::MICRO => {
                Micro::parse(&block, block.order()).map_err(told)?;
                Ok(Self::Micro(MicroTable::new(block)))
            }
            zap::HEADER => {
                let header = Header::parse(&block, block.order()).map_err(told)?;
                Ok(Self::Fat(FatTable::new(header, block, object.objset().is_writable())))
            }
            _ => Err(Error::NotZap { zbookmark: object.zbookmark(BlockId::new(0)) }),
        }
    }

    pub(crate) fn block(&self) -> &Block {
        match self {
            Self::Micro(table) => &table.block,
            Self::Fat(fat) => &fat.block,
        }
    }
}

impl std::fmt::Debug for Zap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zap({:?})", self.0.object)
    }
}

impl Zap {
    /// Reads block 0 of the object.
    pub fn open(object: Object) -> Result<Self> {
        let kind = ZapKind::parse(&object, read_block_zero(&object)?)?;
        let (salt, normalization, flags) = match &kind {
            ZapKind::Micro(table) => {
                let micro = parse_micro(&table.block);
                (micro.salt, micro.normalization, Flags::default())
            }
            ZapKind::Fat(fat) => (fat.header.salt, fat.header.normalization, fat.header.flags),
        };
        let inner = ZapInner {
            object,
            salt,
            normalization,
            flags,
            cached: Mutex::new(Some(Arc::new(kind))),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The table as it is now.
    pub(crate) fn current(&self) -> Result<Arc<ZapKind>> {
        let ZapInner { object, cached: known, .. } = &*self.0;
        let live = object.objset().is_writable();
        let was = known.lock().clone();
        if let Some(kind) = was.as_ref().filter(|_| !live) {
            return Ok(Arc::clone(kind));
        }
        let block = read_block_zero(object)?;
        if let Some(kind) = was.filter(|kind| kind.block().is_same_buffer(&block)) {
            return Ok(kind);
        }
        let kind = Arc::new(ZapKind::parse(object, block)?);
        *known.lock() = Some(&kind).filter(|_| !live || is_micro(&kind)).cloned();
        Ok(kind)
    }

    /// The object that it is kept in.
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// Whether it is a micro table.
    pub fn is_micro(&self) -> Result<bool> {
        Ok(is_micro(&*self.current()?))
    }

    /// How many entries it has.
    pub fn count(&self) -> Result<u64> {
        Ok(match &*self.current()? {
            ZapKind::Micro(table) => units::to_u64(table.index().len()),
            ZapKind::Fat(fat) => fat.header.entries,
        })
    }

    /// How its names are made equal.
    pub fn normalization(&self) -> Normalization {
        self.0.normalization
    }

    /// Its flags for keys and hashes.
    pub fn flags(&self) -> Flags {
        self.0.flags
    }

    /// The hash of a name.
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        hash::hash_name(self.0.salt, self.0.flags, &normalize(name, self.0.normalization))
    }

    /// The value of a name, byte for byte.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<ZapValue>> {
        Ok(self.lookup_normalized(name, Matching::Exact)?.map(|entry| entry.value))
    }

    /// The number that stands for a name; an error if its value is anything else.
    pub fn lookup_u64(&self, name: &[u8]) -> Result<Option<u64>> {
        let Some(value) = self.lookup(name)? else { return Ok(None) };
        match value.u64() {
            Some(number) => Ok(Some(number)),
            None => Err(Error::WrongValueType {
                zbookmark: self.0.object.zbookmark(BlockId::new(0)),
                int_size: value.int_size(),
                count: value.count(),
            }),
        }
    }

    /// The entry of a name, which may be written otherwise in the table; of several, the oldest.
    pub fn lookup_normalized(&self, name: &[u8], matching: Matching) -> Result<Option<ZapEntry>> {
        if self.flags().word_keys() {
            return Ok(None);
        }
        let normalization = self.normalization();
        let hash = self.hash(name);
        let wanted = NameQuery::new(name, matching, normalization);
        let found = match &*self.current()? {
            ZapKind::Micro(table) => table.find(hash, &wanted),
            ZapKind::Fat(fat) => self.find_in_fat(fat, hash, &wanted)?,
        };
        if found.is_some() || normalization.is_none() || has_certain_form(name) {
            return Ok(found);
        }
        self.scan_names(&wanted)
    }

    /// The value of a key of words.
    pub fn lookup_key64(&self, words: &[u64]) -> Result<Option<ZapValue>> {
        if !self.flags().word_keys() {
            return Ok(None);
        }
        let now = self.current()?;
        let ZapKind::Fat(fat) = &*now else { return Ok(None) };
        let hash = hash::hash_words(self.0.salt, self.0.flags, words);
        let Some((bytes, count)) = encode_words(words) else { return Ok(None) };
        let (number, block) = fat.leaf(&self.0.object, hash)?;
        let told = |error| corrupt_error(&self.0.object, number, error);
        let leaf = Leaf::parse(&block, block.order()).map_err(told)?;
        let key = Key { hash, bytes: &bytes, count };
        let Some(entry) = leaf.find(&key).map_err(told)? else { return Ok(None) };
        let bytes = leaf.value(&entry).map_err(told)?;
        Ok(Some(ZapValue::new(entry.int_size, bytes)))
    }

    /// The entries in the order of their hashes, leaf by leaf. An unreadable part yields one error,
    /// and the listing continues.
    pub fn entries(&self) -> ZapEntries {
        self.entries_from(ZapCursor::START)
    }

    /// The entries from a cursor on.
    pub fn entries_from(&self, cursor: ZapCursor) -> ZapEntries {
        ZapEntries::new(self.clone(), cursor)
    }

    /// Goes through all names, where the hash cannot be trusted.
    fn scan_names(&self, wanted: &NameQuery<'_>) -> Result<Option<ZapEntry>> {
        for entry in self.entries() {
            let entry = entry?;
            if wanted.matches(&entry.name) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn find_in_fat(
        &self,
        fat: &FatTable,
        hash: u64,
        wanted: &NameQuery<'_>,
    ) -> Result<Option<ZapEntry>> {
        let (number, block) = fat.leaf(&self.0.object, hash)?;
        let told = |error| corrupt_error(&self.0.object, number, error);
        let leaf = Leaf::parse(&block, block.order()).map_err(told)?;
        let mut best: Option<LeafEntry> = None;
        for entry in leaf.chain(hash) {
            let entry = entry.map_err(told)?;
            if entry.hash != hash || best.is_some_and(|best| best.collision <= entry.collision) {
                continue;
            }
            let same = match wanted.matching {
                Matching::Exact => {
                    leaf.name_matches(&entry, &wanted.nul_terminated).map_err(told)?
                }
                _ => wanted.matches(trim_nul(&leaf.name(&entry).map_err(told)?)),
            };
            if same {
                best = Some(entry);
            }
        }
        best.map(|entry| leaf_entry(&leaf, &entry, false).map_err(told)).transpose()
    }
}

fn is_micro(kind: &ZapKind) -> bool {
    matches!(kind, ZapKind::Micro(_))
}

fn read_block_zero(object: &Object) -> Result<Block> {
    let place = object.zbookmark(BlockId::new(0));
    object.block(BlockId::new(0))?.ok_or(Error::NotZap { zbookmark: place })
}

/// The words of a key, most significant byte first, and how many they are.
pub(crate) fn encode_words(words: &[u64]) -> Option<(Vec<u8>, u16)> {
    let bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    Some((bytes, u16::try_from(words.len()).ok()?))
}

/// A name that is looked for.
pub(crate) struct NameQuery<'a> {
    name: &'a [u8],
    matching: Matching,
    /// How names are made equal before they are compared.
    normalization: Normalization,
    normalized: Cow<'a, [u8]>,
    /// The name with its NUL.
    pub(crate) nul_terminated: Vec<u8>,
}

impl<'a> NameQuery<'a> {
    pub(crate) fn new(name: &'a [u8], matching: Matching, table: Normalization) -> Self {
        let normalization = match matching {
            Matching::Exact => Normalization::default(),
            Matching::Normalized => table,
            Matching::NormalizedCase => table.without_case_folding(),
        };
        let mut nul_terminated = name.to_vec();
        nul_terminated.push(0);
        Self {
            name,
            matching,
            normalization,
            normalized: normalize(name, normalization),
            nul_terminated,
        }
    }

    pub(crate) fn matches(&self, other: &[u8]) -> bool {
        match self.matching {
            Matching::Exact => self.name == other,
            _ => self.normalized == normalize(other, self.normalization),
        }
    }
}

/// An entry of a leaf with its name and value.
pub(crate) fn leaf_entry(
    leaf: &Leaf<'_>,
    entry: &LeafEntry,
    word_keys: bool,
) -> ondisk::Result<ZapEntry> {
    let (name, key64) = if word_keys {
        let words = leaf.key(entry)?;
        (words.iter().flat_map(|word| word.to_be_bytes()).collect(), Some(words))
    } else {
        let mut name = leaf.name(entry)?;
        name.truncate(trim_nul(&name).len());
        (name, None)
    };
    let value = ZapValue::new(entry.int_size, leaf.value(entry)?);
    let cursor = ZapCursor { hash: entry.hash, collision: entry.collision };
    Ok(ZapEntry { name, key64, value, cursor })
}

/// The bytes before the first NUL.
fn trim_nul(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.get(..end).unwrap_or(name)
}
