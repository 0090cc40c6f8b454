//! Name/value list: the format's tree of settings (labels, pool configuration, stream headers).
//!
//! ```text
//! offset  size  field     meaning
//!      0     1  encoding  0 native (the writer's own memory), 1 XDR (always big-endian)
//!      1     1  endian    0 big, 1 little; matters for the native encoding
//!      2     2  reserved  0
//!      4
//! ```
//!
//! The pairs are in `xdr` or `native`. Both hold the same pairs: a name, one of 28 types, a
//! count of elements and the value. A list may hold lists, and arrays of lists.
//!
//! Must hold: lists nest at most [`MAX_DEPTH`] deep; every count is covered by bytes that are
//! there before anything is set aside for it.
//!
//! Learnt from: labels of the fixture pools. Proved by: `golden_label` against `zdb -l`, and
//! round trips of both encodings in both orders.

mod display;
mod native;
#[cfg(test)]
mod tests;
mod xdr;

use crate::{Error, Order, Reader, Result};

/// How deep lists may be nested.
pub const MAX_DEPTH: u32 = 32;

const STRUCTURE: &str = "name/value list";

/// The two ways in which a list is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Encoding {
    /// The writer's memory, in its byte order.
    Native(Order),
    /// Big-endian, in units of 4 bytes.
    Xdr,
}

/// A value with its type.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "each is the name of a plain type")]
pub enum Value {
    /// A name without value: its presence means true (boolean).
    Flag,
    Byte(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    /// Text as bytes, without the final NUL; mostly, but not surely, UTF-8.
    Str(Vec<u8>),
    /// Bytes as they are.
    Bytes(Vec<u8>),
    I16s(Vec<i16>),
    U16s(Vec<u16>),
    I32s(Vec<i32>),
    U32s(Vec<u32>),
    I64s(Vec<i64>),
    U64s(Vec<u64>),
    Strs(Vec<Vec<u8>>),
    /// Nanoseconds of the writer's high resolution clock.
    HrTime(i64),
    List(Nvlist),
    Lists(Vec<Nvlist>),
    /// A truth value (boolean_value).
    Bool(bool),
    I8(i8),
    U8(u8),
    Bools(Vec<bool>),
    I8s(Vec<i8>),
    U8s(Vec<u8>),
    Double(f64),
}

/// The numbers of the types.
mod kind {
    pub(super) const BOOLEAN: u32 = 1;
    pub(super) const BYTE: u32 = 2;
    pub(super) const INT16: u32 = 3;
    pub(super) const UINT16: u32 = 4;
    pub(super) const INT32: u32 = 5;
    pub(super) const UINT32: u32 = 6;
    pub(super) const INT64: u32 = 7;
    pub(super) const UINT64: u32 = 8;
    pub(super) const STRING: u32 = 9;
    pub(super) const BYTE_ARRAY: u32 = 10;
    pub(super) const INT16_ARRAY: u32 = 11;
    pub(super) const UINT16_ARRAY: u32 = 12;
    pub(super) const INT32_ARRAY: u32 = 13;
    pub(super) const UINT32_ARRAY: u32 = 14;
    pub(super) const INT64_ARRAY: u32 = 15;
    pub(super) const UINT64_ARRAY: u32 = 16;
    pub(super) const STRING_ARRAY: u32 = 17;
    pub(super) const HRTIME: u32 = 18;
    pub(super) const NVLIST: u32 = 19;
    pub(super) const NVLIST_ARRAY: u32 = 20;
    pub(super) const BOOLEAN_VALUE: u32 = 21;
    pub(super) const INT8: u32 = 22;
    pub(super) const UINT8: u32 = 23;
    pub(super) const BOOLEAN_ARRAY: u32 = 24;
    pub(super) const INT8_ARRAY: u32 = 25;
    pub(super) const UINT8_ARRAY: u32 = 26;
    pub(super) const DOUBLE: u32 = 27;
}

impl Value {
    /// The number of its type on disk.
    const fn kind(&self) -> u32 {
        match self {
            Self::Flag => kind::BOOLEAN,
            Self::Byte(_) => kind::BYTE,
            Self::I16(_) => kind::INT16,
            Self::U16(_) => kind::UINT16,
            Self::I32(_) => kind::INT32,
            Self::U32(_) => kind::UINT32,
            Self::I64(_) => kind::INT64,
            Self::U64(_) => kind::UINT64,
            Self::Str(_) => kind::STRING,
            Self::Bytes(_) => kind::BYTE_ARRAY,
            Self::I16s(_) => kind::INT16_ARRAY,
            Self::U16s(_) => kind::UINT16_ARRAY,
            Self::I32s(_) => kind::INT32_ARRAY,
            Self::U32s(_) => kind::UINT32_ARRAY,
            Self::I64s(_) => kind::INT64_ARRAY,
            Self::U64s(_) => kind::UINT64_ARRAY,
            Self::Strs(_) => kind::STRING_ARRAY,
            Self::HrTime(_) => kind::HRTIME,
            Self::List(_) => kind::NVLIST,
            Self::Lists(_) => kind::NVLIST_ARRAY,
            Self::Bool(_) => kind::BOOLEAN_VALUE,
            Self::I8(_) => kind::INT8,
            Self::U8(_) => kind::UINT8,
            Self::Bools(_) => kind::BOOLEAN_ARRAY,
            Self::I8s(_) => kind::INT8_ARRAY,
            Self::U8s(_) => kind::UINT8_ARRAY,
            Self::Double(_) => kind::DOUBLE,
        }
    }

    /// The count of elements that stands beside it: 0 for a flag, 1 for a single value.
    fn elements(&self) -> usize {
        match self {
            Self::Flag => 0,
            Self::Bytes(all) | Self::U8s(all) => all.len(),
            Self::I16s(all) => all.len(),
            Self::U16s(all) => all.len(),
            Self::I32s(all) => all.len(),
            Self::U32s(all) => all.len(),
            Self::I64s(all) => all.len(),
            Self::U64s(all) => all.len(),
            Self::Strs(all) => all.len(),
            Self::Lists(all) => all.len(),
            Self::Bools(all) => all.len(),
            Self::I8s(all) => all.len(),
            _ => 1,
        }
    }

    /// The number, if it is one of no more than 64 unsigned bits.
    pub fn u64(&self) -> Option<u64> {
        Some(match self {
            Self::U64(number) => *number,
            Self::U32(number) => u64::from(*number),
            Self::U16(number) => u64::from(*number),
            Self::U8(number) | Self::Byte(number) => u64::from(*number),
            _ => return None,
        })
    }

    /// The text, if it is one and UTF-8.
    pub fn str(&self) -> Option<&str> {
        match self {
            Self::Str(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// An ordered list of pairs. A name can come up more than once; the first one counts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Nvlist {
    /// The flags of the list: bit 0 names are unique, bit 1 names with types are.
    pub flags: u32,
    pairs: Vec<(Name, Value)>,
}

impl Nvlist {
    /// An empty list whose names are unique.
    pub const fn new() -> Self {
        Self { flags: 1, pairs: Vec::new() }
    }

    /// Reads a packed list. Later bytes are ignored, because labels and objects pad it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(STRUCTURE, bytes, Order::Big);
        let [encoding, endian, ..] = reader.array::<4>()?;
        let order = match endian {
            0 => Order::Big,
            1 => Order::Little,
            found => {
                return Err(reader.corrupt_field(3, "the byte order is 0 or 1", u64::from(found)));
            }
        };
        match encoding {
            0 => {
                let mut reader = Reader::new(STRUCTURE, bytes, order);
                reader.skip(4)?;
                native::read(&mut reader)
            }
            1 => xdr::read(&mut reader, 0),
            found => Err(Error::Unknown {
                structure: STRUCTURE,
                field: "encoding",
                found: u64::from(found),
            }),
        }
    }

    /// Packs the list.
    pub fn encode(&self, encoding: Encoding) -> Vec<u8> {
        let mut out = match encoding {
            Encoding::Native(Order::Big) => vec![0, 0, 0, 0],
            Encoding::Native(Order::Little) => vec![0, 1, 0, 0],
            Encoding::Xdr => vec![1, 1, 0, 0],
        };
        match encoding {
            Encoding::Native(order) => native::write(self, order, &mut out),
            Encoding::Xdr => xdr::write(self, &mut out),
        }
        out
    }

    /// Adds a pair at the end.
    pub fn push(&mut self, name: &str, value: Value) {
        self.push_bytes(name.as_bytes(), value);
    }

    /// The same for a name that may be any bytes: extended attributes need not be UTF-8.
    pub fn push_bytes(&mut self, name: &[u8], value: Value) {
        self.pairs.push((Name::from_bytes(name), value));
    }

    /// The pairs in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(name, value)| (name.text.as_str(), value))
    }

    /// The same with the names as they are stored.
    pub fn iter_bytes(&self) -> impl Iterator<Item = (&[u8], &Value)> {
        self.pairs.iter().map(|(name, value)| (name.bytes(), value))
    }

    /// How many pairs there are.
    pub const fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether the list is empty.
    pub const fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The first value of that name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.pairs.iter().find(|pair| pair.0.bytes() == name.as_bytes()).map(|pair| &pair.1)
    }

    /// Whether the name exists and is not a false truth value.
    pub fn flag(&self, name: &str) -> bool {
        !matches!(self.get(name), None | Some(Value::Bool(false)))
    }

    /// The unsigned number of that name.
    pub fn u64(&self, name: &str) -> Option<u64> {
        self.get(name)?.u64()
    }

    /// The text of that name, if it is UTF-8.
    pub fn str(&self, name: &str) -> Option<&str> {
        self.get(name)?.str()
    }

    /// The text of that name, with replacement characters for invalid UTF-8.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.get(name)? {
            Value::Str(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The list of that name.
    pub fn nvlist(&self, name: &str) -> Option<&Self> {
        match self.get(name)? {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The lists of that name; none if the pair is missing.
    pub fn nvlists(&self, name: &str) -> &[Self] {
        match self.get(name) {
            Some(Value::Lists(lists)) => lists,
            _ => &[],
        }
    }

    /// The array of numbers of that name.
    pub fn u64s(&self, name: &str) -> Option<&[u64]> {
        match self.get(name)? {
            Value::U64s(numbers) => Some(numbers),
            _ => None,
        }
    }
}

/// A name. It is ASCII in all that the format defines, but for names that users gave.
#[derive(Clone, PartialEq, Debug)]
struct Name {
    /// Invalid UTF-8 is replaced, because no lookup uses the text.
    text: String,
    /// The stored bytes, if they are not UTF-8.
    raw: Option<Vec<u8>>,
}

impl Name {
    fn from_bytes(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let raw = (text.as_bytes() != bytes).then(|| bytes.to_vec());
        Self { text, raw }
    }

    fn bytes(&self) -> &[u8] {
        self.raw.as_deref().unwrap_or(self.text.as_bytes())
    }
}

/// One level deeper, or an error where nothing honest goes.
fn next_depth(depth: u32, reader: &Reader<'_>) -> Result<u32> {
    match depth.checked_add(1) {
        Some(next) if next <= MAX_DEPTH => Ok(next),
        _ => Err(reader.corrupt_field(0, "lists nest at most 32 deep", u64::from(depth))),
    }
}

/// Refuses a count of elements, of `width` bytes or more each, that the bytes left cannot hold.
fn checked_count(reader: &Reader<'_>, count: u32, width: usize) -> Result<usize> {
    let wanted = usize::try_from(count).ok().and_then(|count| count.checked_mul(width));
    match (wanted, usize::try_from(count)) {
        (Some(wanted), Ok(count)) if wanted <= reader.remaining() => Ok(count),
        _ => Err(reader.corrupt_field(4, "an array fits its list", u64::from(count))),
    }
}
