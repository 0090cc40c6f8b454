//! The XDR encoding of a list: big-endian, everything in units of 4 bytes.
//!
//! A list is version (4 bytes, 0), flags (4), pairs, and two words of 0. A pair is
//!
//! ```text
//! size  field     meaning
//!    4  encoded   bytes of the pair here; off by 4 for arrays without elements, so not believed
//!    4  decoded   bytes of the pair in the writer's memory; of no use to us
//!    4  length    of the name, then the name, padded to 4 bytes
//!    4  type
//!    4  elements
//! ```
//!
//! and the value: numbers of up to 32 bits as 4 bytes, of 64 as 8; strings with their length in
//! front; byte arrays bare; other arrays of numbers with their count in front; lists as they are.
//! Without elements there is no value at all.
//!
//! Learnt from: labels of the fixtures. Proved by: `packing_gives_the_same_bytes`.

use super::{Name, Nvlist, Value, checked_count, kind, next_depth};
use crate::{Error, Reader, Result};

/// A pair takes no less than this.
const MIN_LIST_SIZE: usize = 16;

/// Reads version, flags and pairs.
pub(super) fn read(reader: &mut Reader<'_>, depth: u32) -> Result<Nvlist> {
    let version = reader.u32()?;
    if version != 0 {
        let found = u64::from(version);
        return Err(Error::Unknown { structure: reader.structure(), field: "list version", found });
    }
    let flags = reader.u32()?;
    let mut list = Nvlist { flags, pairs: Vec::new() };
    loop {
        let encoded = reader.u32()?;
        let decoded = reader.u32()?;
        if encoded == 0 && decoded == 0 {
            return Ok(list);
        }
        let title = Name::from_bytes(string(reader)?);
        let kind = reader.u32()?;
        let elements = reader.u32()?;
        list.pairs.push((title, value(reader, kind, elements, depth)?));
    }
}

fn string<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let length = reader.u32()?;
    let length = checked_count(reader, length, 1)?;
    let bytes = reader.bytes(length)?;
    pad(reader, length)?;
    Ok(bytes)
}

fn pad(reader: &mut Reader<'_>, length: usize) -> Result<()> {
    reader.skip(length.wrapping_neg() % 4)
}

/// A number of up to 32 bits: the low bytes of a word.
fn small_number<const N: usize>(reader: &mut Reader<'_>) -> Result<[u8; N]> {
    let word = reader.array::<4>()?;
    let mut out = [0; N];
    for (to, from) in out.iter_mut().rev().zip(word.iter().rev()) {
        *to = *from;
    }
    Ok(out)
}

/// An array with its count in front, its elements `width` bytes each.
fn read_array<'a, T>(
    reader: &mut Reader<'a>,
    width: usize,
    one: impl Fn(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = reader.u32()?;
    let count = checked_count(reader, count, width)?;
    (0..count).map(|_| one(reader)).collect()
}

fn value(reader: &mut Reader<'_>, kind: u32, elements: u32, depth: u32) -> Result<Value> {
    if elements == 0 {
        return empty_value(kind, reader);
    }
    Ok(match kind {
        kind::BOOLEAN => Value::Flag,
        kind::BYTE => Value::Byte(u8::from_be_bytes(small_number(reader)?)),
        kind::INT16 => Value::I16(i16::from_be_bytes(small_number(reader)?)),
        kind::UINT16 => Value::U16(u16::from_be_bytes(small_number(reader)?)),
        kind::INT32 => Value::I32(i32::from_be_bytes(small_number(reader)?)),
        kind::UINT32 => Value::U32(reader.u32()?),
        kind::INT64 => Value::I64(reader.i64()?),
        kind::UINT64 => Value::U64(reader.u64()?),
        kind::STRING => Value::Str(string(reader)?.to_vec()),
        kind::BYTE_ARRAY => {
            let length = checked_count(reader, elements, 1)?;
            let bytes = reader.bytes(length)?.to_vec();
            pad(reader, length)?;
            Value::Bytes(bytes)
        }
        kind::INT16_ARRAY => {
            Value::I16s(read_array(reader, 4, |r| Ok(i16::from_be_bytes(small_number(r)?)))?)
        }
        kind::UINT16_ARRAY => {
            Value::U16s(read_array(reader, 4, |r| Ok(u16::from_be_bytes(small_number(r)?)))?)
        }
        kind::INT32_ARRAY => {
            Value::I32s(read_array(reader, 4, |r| Ok(i32::from_be_bytes(small_number(r)?)))?)
        }
        kind::UINT32_ARRAY => Value::U32s(read_array(reader, 4, Reader::u32)?),
        kind::INT64_ARRAY => Value::I64s(read_array(reader, 8, Reader::i64)?),
        kind::UINT64_ARRAY => Value::U64s(read_array(reader, 8, Reader::u64)?),
        kind::STRING_ARRAY => {
            let count = checked_count(reader, elements, 4)?;
            let all: Result<Vec<_>> = (0..count).map(|_| Ok(string(reader)?.to_vec())).collect();
            Value::Strs(all?)
        }
        kind::HRTIME => Value::HrTime(reader.i64()?),
        kind::NVLIST => Value::List(read(reader, next_depth(depth, reader)?)?),
        kind::NVLIST_ARRAY => {
            let depth = next_depth(depth, reader)?;
            let count = checked_count(reader, elements, MIN_LIST_SIZE)?;
            let all: Result<Vec<_>> = (0..count).map(|_| read(reader, depth)).collect();
            Value::Lists(all?)
        }
        kind::BOOLEAN_VALUE => Value::Bool(reader.u32()? != 0),
        kind::INT8 => Value::I8(i8::from_be_bytes(small_number(reader)?)),
        kind::UINT8 => Value::U8(u8::from_be_bytes(small_number(reader)?)),
        kind::BOOLEAN_ARRAY => Value::Bools(read_array(reader, 4, |r| Ok(r.u32()? != 0))?),
        kind::INT8_ARRAY => {
            Value::I8s(read_array(reader, 4, |r| Ok(i8::from_be_bytes(small_number(r)?)))?)
        }
        kind::UINT8_ARRAY => {
            Value::U8s(read_array(reader, 4, |r| Ok(u8::from_be_bytes(small_number(r)?)))?)
        }
        kind::DOUBLE => Value::Double(f64::from_bits(reader.u64()?)),
        _ => return unknown_type(kind, reader),
    })
}

/// A pair without elements has no value: an empty array, or a flag.
fn empty_value(kind: u32, reader: &Reader<'_>) -> Result<Value> {
    Ok(match kind {
        kind::BOOLEAN => Value::Flag,
        kind::BYTE_ARRAY => Value::Bytes(Vec::new()),
        kind::INT16_ARRAY => Value::I16s(Vec::new()),
        kind::UINT16_ARRAY => Value::U16s(Vec::new()),
        kind::INT32_ARRAY => Value::I32s(Vec::new()),
        kind::UINT32_ARRAY => Value::U32s(Vec::new()),
        kind::INT64_ARRAY => Value::I64s(Vec::new()),
        kind::UINT64_ARRAY => Value::U64s(Vec::new()),
        kind::STRING_ARRAY => Value::Strs(Vec::new()),
        kind::NVLIST_ARRAY => Value::Lists(Vec::new()),
        kind::BOOLEAN_ARRAY => Value::Bools(Vec::new()),
        kind::INT8_ARRAY => Value::I8s(Vec::new()),
        kind::UINT8_ARRAY => Value::U8s(Vec::new()),
        _ if kind == 0 || kind > kind::DOUBLE => return unknown_type(kind, reader),
        _ => return Err(reader.corrupt_field(4, "a single value counts as one element", 0)),
    })
}

fn unknown_type(kind: u32, reader: &Reader<'_>) -> Result<Value> {
    Err(Error::Unknown {
        structure: reader.structure(),
        field: "value type",
        found: u64::from(kind),
    })
}

/// Writes version, flags and pairs.
pub(super) fn write(list: &Nvlist, out: &mut Vec<u8>) {
    word(out, 0);
    word(out, list.flags);
    for (title, value) in &list.pairs {
        let start = out.len();
        word(out, 0);
        word(out, super::native::memory_size(title.bytes(), value));
        write_string(out, title.bytes());
        word(out, value.kind());
        word(out, length(value.elements()));
        write_value(out, value);
        let size = length(out.len().saturating_sub(start));
        if let Some(place) = out.get_mut(start..start.saturating_add(4)) {
            place.copy_from_slice(&size.to_be_bytes());
        }
    }
    word(out, 0);
    word(out, 0);
}

/// Lists are built by us and stay far below 4 GiB.
fn length(count: usize) -> u32 {
    units::narrow(count)
}

fn word(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn write_string(out: &mut Vec<u8>, bytes: &[u8]) {
    word(out, length(bytes.len()));
    write_padded(out, bytes);
}

fn write_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn words<T: Copy>(out: &mut Vec<u8>, all: &[T], one: impl Fn(&mut Vec<u8>, T)) {
    if !all.is_empty() {
        word(out, length(all.len()));
    }
    for each in all {
        one(out, *each);
    }
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    let signed = |out: &mut Vec<u8>, number: i32| out.extend_from_slice(&number.to_be_bytes());
    let wide = |out: &mut Vec<u8>, number: u64| out.extend_from_slice(&number.to_be_bytes());
    let wide_signed = |out: &mut Vec<u8>, number: i64| out.extend_from_slice(&number.to_be_bytes());
    match value {
        Value::Flag => {}
        Value::Byte(n) | Value::U8(n) => word(out, u32::from(*n)),
        Value::I8(n) => signed(out, i32::from(*n)),
        Value::I16(n) => signed(out, i32::from(*n)),
        Value::U16(n) => word(out, u32::from(*n)),
        Value::I32(n) => signed(out, *n),
        Value::U32(n) => word(out, *n),
        Value::I64(n) | Value::HrTime(n) => wide_signed(out, *n),
        Value::U64(n) => wide(out, *n),
        Value::Double(n) => wide(out, n.to_bits()),
        Value::Bool(b) => word(out, u32::from(*b)),
        Value::Str(bytes) => write_string(out, bytes),
        Value::Bytes(bytes) => write_padded(out, bytes),
        Value::I8s(all) => words(out, all, |out, n| signed(out, i32::from(n))),
        Value::U8s(all) => words(out, all, |out, n| word(out, u32::from(n))),
        Value::I16s(all) => words(out, all, |out, n| signed(out, i32::from(n))),
        Value::U16s(all) => words(out, all, |out, n| word(out, u32::from(n))),
        Value::I32s(all) => words(out, all, signed),
        Value::U32s(all) => words(out, all, word),
        Value::I64s(all) => words(out, all, wide_signed),
        Value::U64s(all) => words(out, all, wide),
        Value::Bools(all) => words(out, all, |out, b| word(out, u32::from(b))),
        Value::Strs(all) => all.iter().for_each(|each| write_string(out, each)),
        Value::List(list) => write(list, out),
        Value::Lists(all) => all.iter().for_each(|each| write(each, out)),
    }
}
