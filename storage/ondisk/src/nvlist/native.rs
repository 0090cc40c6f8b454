//! The native encoding of a list: the writer's memory, in its byte order.
//!
//! A list is version (4 bytes, 0), flags (4), pairs, and one word of 0. A pair is
//!
//! ```text
//! offset  size  field     meaning
//!      0     4  size      bytes of the pair, header and value padded to 8; lists in it follow it
//!      4     2  name_size bytes of the name, its final NUL included
//!      6     2  reserved  0
//!      8     4  elements
//!     12     4  type
//!     16
//! ```
//!
//! then the name, padded so that the value starts at a multiple of 8. A string array starts with 8
//! bytes of 0 for each (pointers once), then the strings with their NULs. A list stands in the
//! pair as 24 bytes (version, flags, pointer, flag, pad), and its pairs follow the pair; an array
//! of lists has 8 bytes of 0 and 24 such bytes for each.
//!
//! Learnt from: the history of the fixture `version-28`. Proved by: `golden_history`, and
//! `every_type_survives_every_encoding`.

use super::{Name, Nvlist, Value, checked_count, kind, next_depth};
use crate::{Error, Order, Reader, Result};

const HEADER: usize = 16;
/// A list as a value of a pair.
const LIST_HEADER: usize = 24;

/// Reads version, flags and pairs.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Nvlist> {
    let version = reader.u32()?;
    let flags = reader.u32()?;
    check_version(version, reader)?;
    pairs(reader, flags, 0)
}

fn check_version(version: u32, reader: &Reader<'_>) -> Result<()> {
    match version {
        0 => Ok(()),
        found => {
            let found = u64::from(found);
            Err(Error::Unknown { structure: reader.structure(), field: "list version", found })
        }
    }
}

fn pairs(reader: &mut Reader<'_>, flags: u32, depth: u32) -> Result<Nvlist> {
    let mut list = Nvlist { flags, pairs: Vec::new() };
    loop {
        let size = reader.u32()?;
        if size == 0 {
            return Ok(list);
        }
        let Some(rest) = usize::try_from(size).ok().and_then(|size| size.checked_sub(4)) else {
            return Err(reader.corrupt_field(4, "a pair holds its own header", u64::from(size)));
        };
        let mut pair = Reader::new(reader.structure(), reader.bytes(rest)?, reader.order());
        let name_size = usize::from(pair.u16()?);
        let _reserved = pair.u16()?;
        let elements = pair.u32()?;
        let kind = pair.u32()?;
        let raw = pair.bytes(name_size)?;
        let title = Name::from_bytes(raw.split(|byte| *byte == 0).next().unwrap_or(raw));
        // the cursor lacks the 4 bytes of the size
        pair.seek(HEADER.saturating_add(name_size).next_multiple_of(8).saturating_sub(4));
        let value = value(&mut pair, reader, kind, elements, depth)?;
        list.pairs.push((title, value));
    }
}

fn read_array<'a, T>(
    pair: &mut Reader<'a>,
    elements: u32,
    width: usize,
    one: impl Fn(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = checked_count(pair, elements, width)?;
    (0..count).map(|_| one(pair)).collect()
}

fn signed8(reader: &mut Reader<'_>) -> Result<i8> {
    Ok(reader.u8()?.cast_signed())
}

fn signed16(reader: &mut Reader<'_>) -> Result<i16> {
    Ok(reader.u16()?.cast_signed())
}

fn signed32(reader: &mut Reader<'_>) -> Result<i32> {
    Ok(reader.u32()?.cast_signed())
}

fn boolean(reader: &mut Reader<'_>) -> Result<bool> {
    Ok(reader.u32()? != 0)
}

/// Up to and over the next NUL.
fn string(pair: &mut Reader<'_>) -> Result<Vec<u8>> {
    let mut ahead = pair.clone();
    let Some(length) = ahead.rest().iter().position(|byte| *byte == 0) else {
        return Err(pair.corrupt_field(0, "a string ends with NUL", 0));
    };
    let bytes = pair.bytes(length)?.to_vec();
    pair.skip(1)?;
    Ok(bytes)
}

fn value(
    pair: &mut Reader<'_>,
    after: &mut Reader<'_>,
    kind: u32,
    elements: u32,
    depth: u32,
) -> Result<Value> {
    Ok(match kind {
        kind::BOOLEAN => Value::Flag,
        kind::BYTE => Value::Byte(pair.u8()?),
        kind::INT16 => Value::I16(signed16(pair)?),
        kind::UINT16 => Value::U16(pair.u16()?),
        kind::INT32 => Value::I32(signed32(pair)?),
        kind::UINT32 => Value::U32(pair.u32()?),
        kind::INT64 => Value::I64(pair.i64()?),
        kind::UINT64 => Value::U64(pair.u64()?),
        kind::STRING => Value::Str(string(pair)?),
        kind::BYTE_ARRAY => Value::Bytes(read_array(pair, elements, 1, Reader::u8)?),
        kind::INT16_ARRAY => Value::I16s(read_array(pair, elements, 2, signed16)?),
        kind::UINT16_ARRAY => Value::U16s(read_array(pair, elements, 2, Reader::u16)?),
        kind::INT32_ARRAY => Value::I32s(read_array(pair, elements, 4, signed32)?),
        kind::UINT32_ARRAY => Value::U32s(read_array(pair, elements, 4, Reader::u32)?),
        kind::INT64_ARRAY => Value::I64s(read_array(pair, elements, 8, Reader::i64)?),
        kind::UINT64_ARRAY => Value::U64s(read_array(pair, elements, 8, Reader::u64)?),
        kind::STRING_ARRAY => {
            let count = checked_count(pair, elements, 8)?;
            pair.skip(count.saturating_mul(8))?;
            Value::Strs((0..count).map(|_| string(pair)).collect::<Result<_>>()?)
        }
        kind::HRTIME => Value::HrTime(pair.i64()?),
        kind::NVLIST => {
            let depth = next_depth(depth, pair)?;
            Value::List(list(pair, after, depth)?)
        }
        kind::NVLIST_ARRAY => {
            let depth = next_depth(depth, pair)?;
            let count = checked_count(pair, elements, LIST_HEADER.saturating_add(8))?;
            pair.skip(count.saturating_mul(8))?;
            Value::Lists((0..count).map(|_| list(pair, after, depth)).collect::<Result<_>>()?)
        }
        kind::BOOLEAN_VALUE => Value::Bool(boolean(pair)?),
        kind::INT8 => Value::I8(signed8(pair)?),
        kind::UINT8 => Value::U8(pair.u8()?),
        kind::BOOLEAN_ARRAY => Value::Bools(read_array(pair, elements, 4, boolean)?),
        kind::INT8_ARRAY => Value::I8s(read_array(pair, elements, 1, signed8)?),
        kind::UINT8_ARRAY => Value::U8s(read_array(pair, elements, 1, Reader::u8)?),
        kind::DOUBLE => Value::Double(f64::from_bits(pair.u64()?)),
        _ => {
            let found = u64::from(kind);
            return Err(Error::Unknown { structure: pair.structure(), field: "value type", found });
        }
    })
}

/// One list: its placeholder from the pair, its pairs from the following bytes.
fn list(pair: &mut Reader<'_>, after: &mut Reader<'_>, depth: u32) -> Result<Nvlist> {
    let version = pair.u32()?;
    let flags = pair.u32()?;
    check_version(version, pair)?;
    pair.skip(LIST_HEADER.saturating_sub(8))?;
    pairs(after, flags, depth)
}

/// Bytes that a pair takes in memory, which both encodings write down.
pub(super) fn memory_size(title: &[u8], value: &Value) -> u32 {
    let mut one = Vec::new();
    write_pair(&mut one, title, value, Order::Little);
    units::narrow(one.len())
}

/// Writes version, flags and pairs.
pub(super) fn write(list: &Nvlist, order: Order, out: &mut Vec<u8>) {
    write_u32(out, 0, order);
    write_u32(out, list.flags, order);
    write_pairs(list, order, out);
}

fn write_pairs(list: &Nvlist, order: Order, out: &mut Vec<u8>) {
    for (title, value) in &list.pairs {
        write_pair(out, title.bytes(), value, order);
        match value {
            Value::List(list) => write_pairs(list, order, out),
            Value::Lists(all) => all.iter().for_each(|list| write_pairs(list, order, out)),
            _ => {}
        }
    }
    write_u32(out, 0, order);
}

/// The pair without the lists that follow it.
fn write_pair(out: &mut Vec<u8>, title: &[u8], value: &Value, order: Order) {
    let mut pair = Vec::new();
    write_u32(&mut pair, 0, order);
    // names are ours and short
    write_u16(&mut pair, u16::try_from(title.len().saturating_add(1)).unwrap_or(u16::MAX), order);
    write_u16(&mut pair, 0, order);
    write_u32(&mut pair, units::narrow(value.elements()), order);
    write_u32(&mut pair, value.kind(), order);
    pair.extend_from_slice(title);
    pair.push(0);
    pad(&mut pair);
    write_value(&mut pair, value, order);
    pad(&mut pair);
    let size = units::narrow::<u32>(pair.len());
    write_u32(out, size, order);
    out.extend_from_slice(pair.get(4..).unwrap_or(&[]));
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}

fn write_u16(out: &mut Vec<u8>, number: u16, order: Order) {
    out.extend_from_slice(&match order {
        Order::Little => number.to_le_bytes(),
        Order::Big => number.to_be_bytes(),
    });
}

fn write_u32(out: &mut Vec<u8>, number: u32, order: Order) {
    out.extend_from_slice(&match order {
        Order::Little => number.to_le_bytes(),
        Order::Big => number.to_be_bytes(),
    });
}

fn write_u64(out: &mut Vec<u8>, number: u64, order: Order) {
    out.extend_from_slice(&match order {
        Order::Little => number.to_le_bytes(),
        Order::Big => number.to_be_bytes(),
    });
}

/// The length of `out` after space for this many pointers is added.
fn length_with_pointers(out: &[u8], count: usize) -> usize {
    out.len().saturating_add(count.saturating_mul(8))
}

fn write_list_header(out: &mut Vec<u8>, list: &Nvlist, order: Order) {
    write_u32(out, 0, order);
    write_u32(out, list.flags, order);
    out.extend_from_slice(&[0; 16]);
}

fn write_value(out: &mut Vec<u8>, value: &Value, order: Order) {
    match value {
        Value::Flag => {}
        Value::Byte(n) | Value::U8(n) => out.push(*n),
        Value::I8(n) => out.push(n.cast_unsigned()),
        Value::I16(n) => write_u16(out, n.cast_unsigned(), order),
        Value::U16(n) => write_u16(out, *n, order),
        Value::I32(n) => write_u32(out, n.cast_unsigned(), order),
        Value::U32(n) => write_u32(out, *n, order),
        Value::I64(n) | Value::HrTime(n) => write_u64(out, n.cast_unsigned(), order),
        Value::U64(n) => write_u64(out, *n, order),
        Value::Double(n) => write_u64(out, n.to_bits(), order),
        Value::Bool(b) => write_u32(out, u32::from(*b), order),
        Value::Str(bytes) => {
            out.extend_from_slice(bytes);
            out.push(0);
        }
        Value::Bytes(bytes) | Value::U8s(bytes) => out.extend_from_slice(bytes),
        Value::I8s(all) => out.extend(all.iter().map(|n| n.cast_unsigned())),
        Value::I16s(all) => all.iter().for_each(|n| write_u16(out, n.cast_unsigned(), order)),
        Value::U16s(all) => all.iter().for_each(|n| write_u16(out, *n, order)),
        Value::I32s(all) => all.iter().for_each(|n| write_u32(out, n.cast_unsigned(), order)),
        Value::U32s(all) => all.iter().for_each(|n| write_u32(out, *n, order)),
        Value::I64s(all) => all.iter().for_each(|n| write_u64(out, n.cast_unsigned(), order)),
        Value::U64s(all) => all.iter().for_each(|n| write_u64(out, *n, order)),
        Value::Bools(all) => all.iter().for_each(|b| write_u32(out, u32::from(*b), order)),
        Value::Strs(all) => {
            out.resize(length_with_pointers(out, all.len()), 0);
            for each in all {
                out.extend_from_slice(each);
                out.push(0);
            }
        }
        Value::List(list) => write_list_header(out, list, order),
        Value::Lists(all) => {
            out.resize(length_with_pointers(out, all.len()), 0);
            for list in all {
                write_list_header(out, list, order);
            }
        }
    }
}
