//! Changing a table: names put in, given other values, taken out.
//!
//! A table begins as a micro one, whose block grows by a sector when its slots are used up. It
//! becomes a fat one at the first entry that a micro one cannot hold: a value that is not one
//! number, a name of more than 49 bytes, or an entry beyond 128 KiB. It never becomes a micro one
//! again.

mod create;
mod fat;
mod fill;
mod grow;
mod micro;
mod shrink;

pub use create::NewZap;

use ondisk::ObjectType;
use ondisk::zap::hash;
use ondisk::zap::leaf::Key;
use ondisk::zap::micro::Micro;
use txg::Tx;
use units::BlockId;

use crate::normalize::has_certain_form;
use crate::zap::encode_words;
use crate::{Error, Matching, Result, Zap, ZapValue};
use fat::FatWriter;

/// The longest name and key in bytes, a name's NUL among them (ZAP_MAXNAMELEN).
const MAX_NAME: usize = 256;
/// The longest name in a directory (ZAP_MAXNAMELEN_NEW).
const MAX_LONG_NAME: usize = 1024;
/// The longest value in bytes (ZAP_MAXVALUELEN).
const MAX_VALUE: usize = 8192;

/// Whether an existing entry may be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StoreMode {
    /// An existing name is an error.
    Insert,
    /// An existing name gets the new value.
    Update,
}

impl Zap {
    /// Puts a new name into the table.
    pub fn insert(&self, tx: &Tx, name: &[u8], value: &ZapValue) -> Result<()> {
        self.store(tx, name, value, StoreMode::Insert)
    }

    /// Sets the value of a name, new or existing.
    pub fn update(&self, tx: &Tx, name: &[u8], value: &ZapValue) -> Result<()> {
        self.store(tx, name, value, StoreMode::Update)
    }

    /// Puts a new name that stands for a number into the table.
    pub fn insert_u64(&self, tx: &Tx, name: &[u8], value: u64) -> Result<()> {
        self.insert(tx, name, &ZapValue::from_u64(value))
    }

    /// Makes a name stand for a number.
    pub fn update_u64(&self, tx: &Tx, name: &[u8], value: u64) -> Result<()> {
        self.update(tx, name, &ZapValue::from_u64(value))
    }

    /// Adds to the number of a name, 0 if the name is missing, and returns the sum. An entry whose
    /// sum is 0 is removed (zap_increment).
    pub fn add_u64(&self, tx: &Tx, name: &[u8], delta: i64) -> Result<u64> {
        let old = self.lookup_u64(name)?.unwrap_or(0);
        let sum = old.wrapping_add_signed(delta);
        match sum {
            _ if delta == 0 => {}
            0 => drop(self.remove(tx, name)?),
            _ => self.update_u64(tx, name, sum)?,
        }
        Ok(sum)
    }

    /// Removes a name; returns whether it existed.
    pub fn remove(&self, tx: &Tx, name: &[u8]) -> Result<bool> {
        self.remove_normalized(tx, name, Matching::Exact)
    }

    /// Takes out the name that [`Zap::lookup_normalized`] finds.
    pub fn remove_normalized(&self, tx: &Tx, name: &[u8], matching: Matching) -> Result<bool> {
        let Some(found) = self.lookup_normalized(name, matching)? else { return Ok(false) };
        if self.is_micro()? {
            self.remove_micro(tx, found.cursor)?;
            return Ok(true);
        }
        let bytes = nul_terminated(&found.name);
        let key =
            Key { hash: found.cursor.hash, bytes: &bytes, count: self.check_name_len(&bytes)? };
        FatWriter::open(self.object(), tx)?.remove(&key)
    }

    /// Puts a new key of words into the table.
    pub fn insert_key64(&self, tx: &Tx, words: &[u64], value: &ZapValue) -> Result<()> {
        self.store_key64(tx, words, value, StoreMode::Insert)
    }

    /// Sets the value of a key of words, new or existing.
    pub fn update_key64(&self, tx: &Tx, words: &[u64], value: &ZapValue) -> Result<()> {
        self.store_key64(tx, words, value, StoreMode::Update)
    }

    /// Removes a key of words; returns whether it existed.
    pub fn remove_key64(&self, tx: &Tx, words: &[u64]) -> Result<bool> {
        let bytes = self.encode_key64(words)?;
        let key = self.word_key(words, &bytes);
        FatWriter::open(self.object(), tx)?.remove(&key)
    }

    fn store(&self, tx: &Tx, name: &[u8], value: &ZapValue, mode: StoreMode) -> Result<()> {
        self.check_value(value)?;
        let bytes = nul_terminated(name);
        let count = self.check_name_len(&bytes)?;
        if self.is_micro()? {
            if let Some(number) = micro_value(name, value)
                && self.store_micro(tx, name, number, mode)?
            {
                return Ok(());
            }
            self.upgrade_to_fat(tx)?;
        }
        let key = Key { hash: self.stored_hash(name)?, bytes: &bytes, count };
        FatWriter::open(self.object(), tx)?.store(&key, None, value, mode)
    }

    fn store_key64(&self, tx: &Tx, words: &[u64], value: &ZapValue, mode: StoreMode) -> Result<()> {
        self.check_value(value)?;
        let bytes = self.encode_key64(words)?;
        let key = self.word_key(words, &bytes);
        FatWriter::open(self.object(), tx)?.store(&key, None, value, mode)
    }

    /// The hash that a name has in the table, or would have: the real system may have given it
    /// another.
    fn stored_hash(&self, name: &[u8]) -> Result<u64> {
        if !self.normalization().is_none()
            && !has_certain_form(name)
            && let Some(found) = self.lookup_normalized(name, Matching::Exact)?
        {
            return Ok(found.cursor.hash);
        }
        Ok(self.hash(name))
    }

    fn word_key<'a>(&self, words: &[u64], bytes: &'a [u8]) -> Key<'a> {
        let hash = hash::hash_words(self.0.salt, self.flags(), words);
        let count = units::narrow::<u16>(words.len());
        Key { hash, bytes, count }
    }

    /// The bytes of a key, if the table supports it.
    fn encode_key64(&self, words: &[u64]) -> Result<Vec<u8>> {
        let bytes = encode_words(words).map(|(bytes, _)| bytes);
        let fits = |bytes: &Vec<u8>| (1..=MAX_NAME).contains(&bytes.len());
        let bytes = bytes.filter(|bytes| fits(bytes) && self.flags().word_keys());
        bytes.ok_or(Error::BadName { zbookmark: self.zbookmark() })
    }

    /// The length of a name with its NUL, if the table supports it.
    fn check_name_len(&self, bytes: &[u8]) -> Result<u16> {
        let long = self.object().dnode().kind == ObjectType::DIRECTORY;
        let most = if long { MAX_LONG_NAME } else { MAX_NAME };
        let nul = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        let whole = nul > 0 && nul + 1 == bytes.len() && bytes.len() <= most;
        let count = u16::try_from(bytes.len()).ok().filter(|_| whole && !self.flags().word_keys());
        count.ok_or(Error::BadName { zbookmark: self.zbookmark() })
    }

    fn check_value(&self, value: &ZapValue) -> Result<()> {
        let (size, bytes) = (value.int_size(), value.bytes().len());
        let whole = bytes.checked_rem(size.into()) == Some(0);
        if matches!(size, 1 | 2 | 4 | 8) && whole && bytes <= MAX_VALUE {
            return Ok(());
        }
        Err(Error::BadValue { zbookmark: self.zbookmark() })
    }

    fn zbookmark(&self) -> units::Zbookmark {
        self.object().zbookmark(BlockId::new(0))
    }
}

/// A name as it stands in a leaf: with a NUL.
fn nul_terminated(name: &[u8]) -> Vec<u8> {
    let mut bytes = name.to_vec();
    bytes.push(0);
    bytes
}

/// The number of an entry that a micro table can have.
fn micro_value(name: &[u8], value: &ZapValue) -> Option<u64> {
    let number = value.u64().filter(|_| value.int_size() == 8)?;
    (name.len() <= Micro::MAX_NAME).then_some(number)
}
