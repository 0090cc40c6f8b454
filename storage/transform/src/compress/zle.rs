//! zle: runs of zeros are counted, all else stands as it is.
//!
//! A control byte below 64 says that control+1 literal bytes follow; any other stands for
//! control-63 zeros (1 to 192). The stream has no end mark: it ends when the block is full.

use crate::Error;

const LITERALS: usize = 64;
const ZEROS: usize = 256 - LITERALS;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), Error> {
    let mut src = src;
    let mut dst = dst;
    while !dst.is_empty() {
        let (control, rest) = src.split_first().ok_or(corrupt("it ends early"))?;
        let control = usize::from(*control);
        src = rest;
        let zeros = control >= LITERALS;
        let run = if zeros { control - LITERALS + 1 } else { control + 1 };
        let (head, tail) =
            dst.split_at_mut_checked(run).ok_or(corrupt("a run goes past the block"))?;
        if zeros {
            head.fill(0);
        } else {
            let (bytes, rest) = src.split_at_checked(run).ok_or(corrupt("literals are missing"))?;
            head.copy_from_slice(bytes);
            src = rest;
        }
        dst = tail;
    }
    Ok(())
}

pub(super) fn compress(src: &[u8], dst_limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(src.len().min(dst_limit));
    let mut rest = src;
    while let Some(first) = rest.first() {
        let run = if *first == 0 {
            let run = rest.iter().take(ZEROS).take_while(|b| **b == 0).count();
            out.push(u8::try_from(LITERALS + run - 1).ok()?);
            run
        } else {
            let run = literal_run(rest);
            out.push(u8::try_from(run - 1).ok()?);
            out.extend_from_slice(rest.get(..run)?);
            run
        };
        if out.len() > dst_limit {
            return None;
        }
        rest = rest.get(run..)?;
    }
    Some(out)
}

/// How many bytes to store as they are: up to a pair of zeros, at most 64, at least one.
fn literal_run(data: &[u8]) -> usize {
    let window = data.get(..LITERALS.min(data.len())).unwrap_or(data);
    let end = window.windows(2).position(|pair| pair == [0, 0]).unwrap_or(window.len());
    end.max(1)
}

fn corrupt(rule: &'static str) -> Error {
    Error::CorruptCompression { method: "zle", rule }
}
