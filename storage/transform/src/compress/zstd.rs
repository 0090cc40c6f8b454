//! zstd: a length, the writer's version and level, then a frame without its magic number.
//!
//! ```text
//! offset  size  field          since  meaning
//!      0     4  length         zstd   bytes of the frame, big-endian; what follows it is padding
//!      4     4  level-version  zstd   big-endian: level code in the top 8 bits, version below
//!      8     -  frame          zstd   a "magicless" zstd frame without size or checksum
//! ```
//!
//! The level is not needed to read (and some writers put the version first), so it is ignored
//! then. Its code is the level itself from 1 to 19; the fast levels -1 to -1000 follow from 103.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, DParameter, FrameFormat, VERSION_NUMBER};

use crate::Error;

const HEADER: usize = 8;
const DEFAULT_LEVEL: i32 = 3;
const FAST_LEVELS: [i32; 21] = [
    -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -20, -30, -40, -50, -60, -70, -80, -90, -100, -500,
    -1000,
];
const FIRST_FAST_CODE: u8 = 103;

thread_local! {
    static READER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    static WRITER: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), Error> {
    let (head, rest) = src.split_first_chunk::<HEADER>().ok_or(corrupt("no header"))?;
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let frame = rest.get(..length).ok_or(corrupt("the length points past the block"))?;
    READER.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = reader();
        }
        let reader = slot.as_mut().ok_or(corrupt("no memory for its state"))?;
        match reader.decompress_to_buffer(frame, dst) {
            Ok(n) if n == dst.len() => Ok(()),
            Ok(_) => Err(corrupt("it ends early")),
            Err(_) => Err(corrupt("the frame is malformed")),
        }
    })
}

pub(super) fn compress(level: i32, src: &[u8], dst_limit: usize) -> Option<Vec<u8>> {
    let level = if level == 0 { DEFAULT_LEVEL } else { level };
    let code = u32::from(level_code(level)?);
    WRITER.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|(l, _)| *l != level) {
            *slot = Some((level, writer(level)?));
        }
        let (_, writer) = slot.as_mut()?;
        let bound = zstd::zstd_safe::compress_bound(src.len()).checked_add(HEADER)?;
        let mut out = vec![0; bound.min(dst_limit)];
        let n = writer.compress_to_buffer(src, out.get_mut(HEADER..)?).ok()?;
        out.truncate(HEADER + n);
        let (head, _) = out.split_first_chunk_mut::<HEADER>()?;
        let word = (code << 24) | (VERSION_NUMBER & 0x00ff_ffff);
        head[..4].copy_from_slice(&u32::try_from(n).ok()?.to_be_bytes());
        head[4..].copy_from_slice(&word.to_be_bytes());
        Some(out)
    })
}

fn reader() -> Option<Decompressor<'static>> {
    let mut reader = Decompressor::new().ok()?;
    reader.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
    Some(reader)
}

fn writer(level: i32) -> Option<Compressor<'static>> {
    let mut writer = Compressor::new(level).ok()?;
    for parameter in [
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ChecksumFlag(false),
        CParameter::ContentSizeFlag(false),
    ] {
        writer.set_parameter(parameter).ok()?;
    }
    Some(writer)
}

fn level_code(level: i32) -> Option<u8> {
    if (1..=19).contains(&level) {
        return u8::try_from(level).ok();
    }
    let place = FAST_LEVELS.iter().position(|l| *l == level)?;
    Some(FIRST_FAST_CODE + u8::try_from(place).ok()?)
}

fn corrupt(rule: &'static str) -> Error {
    Error::CorruptCompression { method: "zstd", rule }
}
