//! lzjb: the oldest method, still what `compression=on` meant before lz4.
//!
//! Items come in groups of eight. A map byte leads each group; its lowest bit speaks of the first
//! item. Bit 0: the item is one literal byte. Bit 1: it is two bytes, big-endian, whose top six
//! bits are a length less 3 (3 to 66) and whose low ten bits say how far back to copy from
//! (1 to 1023, overlapping allowed). The stream has no end mark: it ends when the block is full,
//! in the middle of a copy if need be.

use crate::Error;

const LENGTH_BITS: u32 = 6;
const MIN_MATCH: usize = 3;
const MAX_MATCH: usize = (1 << LENGTH_BITS) + MIN_MATCH - 1;
const MAX_OFFSET: usize = (1 << (16 - LENGTH_BITS)) - 1;
const TABLE: usize = 1024;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), Error> {
    let mut src = src;
    let mut at = 0;
    while at < dst.len() {
        let (map, rest) = src.split_first().ok_or(corrupt("it ends early"))?;
        src = rest;
        for bit in 0..8 {
            if at == dst.len() {
                break;
            }
            if map >> bit & 1 == 0 {
                let (byte, rest) = src.split_first().ok_or(corrupt("a literal is missing"))?;
                dst[at] = *byte;
                at += 1;
                src = rest;
            } else {
                let (pair, rest) =
                    src.split_first_chunk::<2>().ok_or(corrupt("half a copy is missing"))?;
                at = copy_back(dst, at, u16::from_be_bytes(*pair))?;
                src = rest;
            }
        }
    }
    Ok(())
}

/// Copies what `item` names to `dst[at..]`; returns where the copy ends.
fn copy_back(dst: &mut [u8], at: usize, item: u16) -> Result<usize, Error> {
    let back = usize::from(item) & MAX_OFFSET;
    let length = usize::from(item >> (16 - LENGTH_BITS)) + MIN_MATCH;
    let from = at.checked_sub(back).ok_or(corrupt("a copy from before the block"))?;
    if back == 0 {
        return Err(corrupt("a copy from nowhere"));
    }
    let end = dst.len().min(at + length);
    if at + back >= end {
        dst.copy_within(from..from + (end - at), at);
    } else {
        for i in at..end {
            dst[i] = dst[i - back];
        }
    }
    Ok(end)
}

pub(super) fn compress(src: &[u8], dst_limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(src.len().min(dst_limit));
    // where each hash was last seen, plus one: zero is "never"
    let mut seen = [0_usize; TABLE];
    let mut at = 0;
    while at < src.len() {
        let map_at = out.len();
        out.push(0);
        for bit in 0..8 {
            let Some(byte) = src.get(at) else { break };
            if let Some((back, length)) = find_match(src, at, &mut seen) {
                out[map_at] |= 1 << bit;
                let item = (length - MIN_MATCH) << (16 - LENGTH_BITS) | back;
                out.extend_from_slice(&u16::try_from(item).ok()?.to_be_bytes());
                at += length;
            } else {
                out.push(*byte);
                at += 1;
            }
        }
        if out.len() > dst_limit {
            return None;
        }
    }
    Some(out)
}

/// The match at `at` as (distance, length), if one is long enough to save bytes.
fn find_match(src: &[u8], at: usize, seen: &mut [usize; TABLE]) -> Option<(usize, usize)> {
    let here = src.get(at..src.len().min(at + MAX_MATCH))?;
    let [a, b, c] = *here.first_chunk::<MIN_MATCH>()?;
    let key = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    let key = key + (key >> 9);
    let key = key + (key >> 5);
    let earlier = std::mem::replace(&mut seen[key % TABLE], at + 1).checked_sub(1)?;
    let back = at - earlier;
    let there = src.get(earlier..)?;
    let length = here.iter().zip(there).take_while(|(x, y)| x == y).count();
    (back <= MAX_OFFSET && length >= MIN_MATCH).then_some((back, length))
}

fn corrupt(rule: &'static str) -> Error {
    Error::CorruptCompression { method: "lzjb", rule }
}
