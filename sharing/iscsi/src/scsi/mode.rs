//! MODE SENSE and MODE SELECT.
//!
//! The header, of MODE SENSE(6) and of MODE SENSE(10), is followed by a block descriptor and by pages:
//! ```text
//! (6) (10)  size     field
//!  0   0    1 or 2   bytes that follow
//!  1   2    1        medium type: 0
//!  2   3    1        0x80 write protected, 0x10 FUA is known
//!  3   6    1 or 2   bytes of the block descriptor: 0 or 8
//!
//! block descriptor: blocks (32 bits; all ones: too many), 0, bytes of a block (24)
//! page: code, bytes that follow, values
//! ```
//! Pages: 0x01 error recovery, 0x08 caching (0x04 at 2: write cache), 0x0a control (0x08 at 4: write protection by
//! the initiator), 0x1c informational exceptions, and its subpage 0x02 ([`thin_threshold`]).
//! Learnt from: SPC-4, 6.11 to 6.14 and 7.5; SBC-3, 6.5.

use super::cdb::Command;
use super::execute::{Outcome, answer};
use super::{LogicalUnit, Path, Sense, SessionId, thin_threshold};

/// The page of informational exceptions, and its subpage with the threshold of thin provisioning.
const EXCEPTIONS: u8 = 0x1c;
const THRESHOLD: u8 = 0x02;
const WRITE_CACHE: u8 = 0x04;
const WRITE_PROTECTION: u8 = 0x08;

/// Which values of a page are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Current,
    /// A bit is set where a value can be changed.
    Changeable,
    Default,
}

/// A page with its code and its length.
type Page = Vec<u8>;

fn pages(logical: &LogicalUnit, values: Values) -> [Page; 4] {
    let (cache, protection) = match values {
        Values::Current => (logical.has_write_cache(), logical.has_software_write_protection()),
        Values::Changeable => (true, true),
        Values::Default => (true, false),
    };
    let mut recovery = vec![0x01, 0x0a, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut caching = vec![0; 20];
    caching[..2].copy_from_slice(&[0x08, 0x12]);
    caching[2] = if cache { WRITE_CACHE } else { 0 };
    // a task set for each path, in which simple tasks are done in any order; no time is busy for too long
    let mut control = vec![0x0a, 0x0a, 0x20, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
    let mut exceptions = vec![0x1c, 0x0a, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if values == Values::Changeable {
        for page in [&mut recovery, &mut control, &mut exceptions] {
            page[2..].fill(0);
        }
    }
    control[4] = if protection { WRITE_PROTECTION } else { 0 };
    [recovery, caching, control, exceptions]
}

/// MODE SENSE.
pub(crate) fn sense(
    command: &Command,
    path: &Path<'_>,
    logical: &LogicalUnit,
    data_in: &mut Vec<u8>,
) -> Outcome {
    let Command::ModeSense { is_long, no_descriptors, control, page, subpage, allocation } =
        *command
    else {
        unreachable!("the caller has looked")
    };
    let values = match control {
        0 => Values::Current,
        1 => Values::Changeable,
        2 => Values::Default,
        _ => return Err(Sense::SAVING_NOT_SUPPORTED.into()),
    };
    let is_threshold = (page, subpage) == (EXCEPTIONS, THRESHOLD);
    if ![0, 0xff].contains(&subpage) && !is_threshold {
        return Err(Sense::invalid_field(3).into());
    }
    let mut wanted = if is_threshold { Vec::new() } else { pages(logical, values).to_vec() };
    if page != 0x3f {
        wanted.retain(|known| known[0] == page);
    }
    if is_threshold || subpage == 0xff && [EXCEPTIONS, 0x3f].contains(&page) {
        let mut threshold = thin_threshold::mode_page(&logical.unit.geometry(), path.space_warning);
        if values == Values::Changeable {
            threshold[4..].fill(0);
        }
        wanted.push(threshold);
    }
    if wanted.is_empty() {
        return Err(Sense::invalid_field(2).into());
    }
    let descriptor = if no_descriptors { Vec::new() } else { block_descriptor(logical) };
    let body = [descriptor.clone(), wanted.concat()].concat();
    let device = 0x10 | if logical.is_write_protected() { 0x80 } else { 0 };
    let descriptor_length = u8::try_from(descriptor.len()).expect("0 or 8");
    let header = if is_long {
        let length = u16::try_from(body.len() + 6).expect("pages are short");
        let [high, low] = length.to_be_bytes();
        vec![high, low, 0, device, 0, 0, 0, descriptor_length]
    } else {
        let length = u8::try_from(body.len() + 3).expect("pages are short");
        vec![length, 0, device, descriptor_length]
    };
    answer(data_in, &[header, body].concat(), allocation);
    Ok(())
}

fn block_descriptor(logical: &LogicalUnit) -> Vec<u8> {
    let geometry = logical.unit.geometry();
    let blocks = u32::try_from(geometry.blocks).unwrap_or(u32::MAX);
    [blocks.to_be_bytes(), geometry.block_size.to_be_bytes()].concat()
}

/// MODE SELECT. A page is taken as a whole or not at all.
pub(crate) fn select(
    is_long: bool,
    data: &[u8],
    logical: &LogicalUnit,
    session: SessionId,
) -> Outcome {
    if data.is_empty() {
        return Ok(());
    }
    let (header, descriptor_at) = if is_long { (8, 7) } else { (4, 3) };
    let Some(descriptor_length) = data.get(descriptor_at).filter(|_| data.len() >= header) else {
        return Err(Sense::PARAMETER_LIST_LENGTH.into());
    };
    let pages_at = header + usize::from(*descriptor_length);
    let mut rest = data.get(pages_at..).ok_or(Sense::PARAMETER_LIST_LENGTH)?;
    if let Some(descriptor) = data[header..pages_at].first_chunk::<8>()
        && descriptor[5..] != logical.unit.geometry().block_size.to_be_bytes()[1..]
    {
        return Err(Sense::INVALID_PARAMETER.into());
    }
    let current = pages(logical, Values::Current);
    let changeable = pages(logical, Values::Changeable);
    let mut cache = logical.has_write_cache();
    let mut protection = logical.has_software_write_protection();
    while let [code, length, ..] = *rest {
        let size = 2 + usize::from(length);
        let page = rest.get(..size).ok_or(Sense::PARAMETER_LIST_LENGTH)?;
        let known = current.iter().zip(&changeable).find(|(known, _)| known[..2] == page[..2]);
        let (now, mask) = known.ok_or(Sense::INVALID_PARAMETER)?;
        debug_assert_eq!(code, now[0]);
        let is_allowed = (2..size).all(|at| (page[at] ^ now[at]) & !mask[at] == 0);
        if !is_allowed {
            return Err(Sense::INVALID_PARAMETER.into());
        }
        match code {
            0x08 => cache = page[2] & WRITE_CACHE != 0,
            0x0a => protection = page[4] & WRITE_PROTECTION != 0,
            _ => {}
        }
        rest = &rest[size..];
    }
    if !rest.is_empty() {
        return Err(Sense::PARAMETER_LIST_LENGTH.into());
    }
    if logical.has_write_cache() && !cache {
        // earlier acknowledged writes are to be as durable as later ones
        logical.unit.flush().map_err(|error| super::execute::write_failure(&error))?;
    }
    logical.set_mode(cache, protection, session);
    Ok(())
}
