//! INQUIRY and its vital product data pages, READ CAPACITY, REPORT LUNS.
//!
//! Standard inquiry data:
//! ```text
//! offset  size  field
//!      0     1  0x00: a disk that is there; 0x7f: no unit
//!      2     1  version: 6 (SPC-4)
//!      3     1  0x10 hierarchical LUNs, 2 format of the answer
//!      4     1  bytes that follow
//!      5     1  0x08: third-party copies
//!      7     1  0x02: command queueing
//!      8     8  vendor
//!     16    16  product
//!     32     4  revision
//!     58    16  version descriptors: SAM-5, iSCSI, SPC-4, SBC-3
//! ```
//! A page begins with its type (0), its code, and the bytes that follow (16 bits). Block Limits (0xb0):
//! ```text
//!      4     1  0: WRITE SAME of 0 blocks is one up to the last block
//!      5     1  blocks of the largest COMPARE AND WRITE
//!      6     2  optimal transfer granularity, blocks
//!      8     4  blocks of the largest transfer
//!     12     4  optimal transfer length, blocks
//!     16     4  blocks of the largest PRE-FETCH
//!     20     4  blocks of the largest UNMAP
//!     24     4  descriptors of the largest UNMAP
//!     28     4  blocks that an UNMAP frees at least
//!     32     4  0x80000000 and the block at which these begin
//!     36     8  blocks of the largest WRITE SAME
//! ```
//! Learnt from: SPC-4, 6.6 and 7.8; SBC-3, 5.15, 5.16 and 6.6.

use std::collections::BTreeMap;
use std::sync::Arc;

use lun::{Geometry, Lun};

use super::cdb::{MAX_COMPARE_BLOCKS, MAX_SAME_BLOCKS, MAX_TRANSFER_BYTES, MAX_UNMAP_BLOCKS};
use super::provisioning::MAX_UNMAP_DESCRIPTORS;
use super::{LogicalUnit, Sense};
use crate::target::{PORTAL_GROUP, UnitId};

/// Eight bytes in the form of the standard.
const VENDOR: &[u8; 8] = b"POOLHOUS";
const PRODUCT: &[u8; 16] = b"ZFS VOLUME      ";
const REVISION: &[u8; 4] = b"0001";
const PAGES: [u8; 8] = [0x00, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2];

/// The answer to INQUIRY, with a page or without.
pub(crate) fn inquiry(
    page: Option<u8>,
    logical: &LogicalUnit,
    target: &str,
) -> Result<Vec<u8>, Sense> {
    let body = match page {
        None => return Ok(standard(0x00)),
        Some(0x00) => PAGES.to_vec(),
        Some(0x80) => logical.id.to_string().into_bytes(),
        Some(0x83) => identification(logical.id, target),
        Some(0x86) => extended(),
        Some(0x8f) => super::copy::page(),
        Some(0xb0) => block_limits(&logical.unit.geometry()),
        Some(0xb1) => characteristics(),
        Some(0xb2) => provisioning(&logical.unit.geometry()),
        Some(_) => return Err(Sense::invalid_field(2)),
    };
    let length = u16::try_from(body.len()).expect("pages are short");
    let page = page.expect("there is a page");
    Ok([&[0, page][..], &length.to_be_bytes(), &body].concat())
}

/// The answer for a missing unit.
pub(crate) fn no_unit() -> Vec<u8> {
    standard(0x7f)
}

fn standard(device_type: u8) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    bytes[0] = device_type;
    bytes[2] = 6;
    bytes[3] = 0x12;
    bytes[4] = 96 - 5;
    bytes[5] = 0x08;
    bytes[7] = 0x02;
    bytes[8..16].copy_from_slice(VENDOR);
    bytes[16..32].copy_from_slice(PRODUCT);
    bytes[32..36].copy_from_slice(REVISION);
    for (index, version) in [0x00a0_u16, 0x0960, 0x0460, 0x04c0].into_iter().enumerate() {
        bytes[58 + 2 * index..60 + 2 * index].copy_from_slice(&version.to_be_bytes());
    }
    bytes
}

/// The vendor, and the serial number.
pub(crate) fn vendor_name(id: UnitId) -> Vec<u8> {
    [&VENDOR[..], id.to_string().as_bytes()].concat()
}

/// Descriptors: code set and protocol, type and association, 0, length, the name.
fn identification(id: UnitId, target: &str) -> Vec<u8> {
    let descriptor = |code_set: u8, kind: u8, name: &[u8]| {
        let length = u8::try_from(name.len()).expect("names are short");
        [&[code_set, kind, 0, length][..], name].concat()
    };
    let mut port_name = format!("{target},t,0x{PORTAL_GROUP:04x}").into_bytes();
    // ends with a NUL, in whole words
    port_name.push(0);
    port_name.resize(port_name.len().next_multiple_of(4), 0);
    [
        descriptor(1, 3, &id.naa()),
        descriptor(2, 1, &vendor_name(id)),
        // of the port: its relative number, its group, and its name, for iSCSI
        descriptor(0x51, 0x94, &[0, 0, 0, 1]),
        descriptor(0x51, 0x95, &[0, 0, 0, 1]),
        descriptor(0x53, 0x98, &port_name),
    ]
    .concat()
}

fn extended() -> Vec<u8> {
    let mut bytes = vec![0; 0x3c];
    // head of queue, ordered and simple tasks
    bytes[1] = 0x07;
    // the write cache is volatile
    bytes[2] = 0x01;
    bytes
}

fn block_limits(geometry: &Geometry) -> Vec<u8> {
    let block_size = u64::from(geometry.block_size);
    let blocks = |bytes: u64| u32::try_from(bytes / block_size).expect("limits are below 4 GiB");
    let (least, most) = geometry.optimal_transfer;
    let granularity = u16::try_from(blocks(least.into())).unwrap_or(0);
    let max_transfer = blocks(MAX_TRANSFER_BYTES);
    [
        &[0, MAX_COMPARE_BLOCKS][..],
        &granularity.to_be_bytes(),
        &max_transfer.to_be_bytes(),
        &blocks(u64::from(most).min(MAX_TRANSFER_BYTES)).to_be_bytes(),
        &max_transfer.to_be_bytes(),
        &MAX_UNMAP_BLOCKS.to_be_bytes(),
        &MAX_UNMAP_DESCRIPTORS.to_be_bytes(),
        &blocks(geometry.unmap_granularity.into()).to_be_bytes(),
        &0x8000_0000_u32.to_be_bytes(),
        &u64::from(MAX_SAME_BLOCKS).to_be_bytes(),
        &[0; 20],
    ]
    .concat()
}

fn characteristics() -> Vec<u8> {
    let mut bytes = vec![0; 0x3c];
    // not rotating: where a block lies in the pool does not follow from its address, so that an
    // initiator gains nothing from sorting or defragmenting
    bytes[1] = 1;
    bytes
}

fn provisioning(geometry: &Geometry) -> Vec<u8> {
    // UNMAP and WRITE SAME free blocks, which then read as zeros; thin provisioned
    vec![super::thin_threshold::set_exponent(geometry), 0xe4, 2, 0]
}

pub(crate) fn read_capacity10(unit: &dyn Lun) -> Vec<u8> {
    let geometry = unit.geometry();
    let last = u32::try_from(last_block(&geometry)).unwrap_or(u32::MAX);
    [last.to_be_bytes(), geometry.block_size.to_be_bytes()].concat()
}

pub(crate) fn read_capacity16(unit: &dyn Lun) -> Vec<u8> {
    let geometry = unit.geometry();
    let per_physical = (geometry.physical_block_size / geometry.block_size).max(1);
    let exponent = u8::try_from(per_physical.ilog2()).expect("32 bits").min(15);
    let mut bytes = vec![0; 32];
    bytes[..8].copy_from_slice(&last_block(&geometry).to_be_bytes());
    bytes[8..12].copy_from_slice(&geometry.block_size.to_be_bytes());
    bytes[13] = exponent;
    // thin provisioned, and unmapped ranges read as zeros
    bytes[14] = 0xc0;
    bytes
}

/// A volume has at least one block.
fn last_block(geometry: &Geometry) -> u64 {
    geometry.blocks.saturating_sub(1)
}

/// The units of a target.
pub(crate) fn report_units(units: &BTreeMap<u16, Arc<LogicalUnit>>) -> Vec<u8> {
    let length = u32::try_from(units.len() * 8).expect("a target has few units");
    let mut bytes = [length.to_be_bytes(), [0; 4]].concat();
    for number in units.keys() {
        bytes.extend(encode_unit_number(*number));
        bytes.extend([0; 6]);
    }
    bytes
}

/// The first level of a LUN: peripheral addressing below 256, flat addressing above.
fn encode_unit_number(number: u16) -> [u8; 2] {
    if number < 256 { number.to_be_bytes() } else { (number | 0x4000).to_be_bytes() }
}

/// The number of a unit, of its eight bytes. None: no unit of this target is addressed so.
pub(crate) fn parse_unit_number(lun: [u8; 8]) -> Option<u16> {
    let [first, second, rest @ ..] = lun;
    let number = u16::from_be_bytes([first & 0x3f, second]);
    match first >> 6 {
        0 if first == 0 && rest == [0; 6] => Some(number),
        1 if rest == [0; 6] => Some(number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lun::VolumeGuids;

    #[test]
    fn unit_numbers_are_encoded_and_parsed() {
        for number in [0, 1, 255, 256, 16383] {
            let [first, second] = encode_unit_number(number);
            assert_eq!(parse_unit_number([first, second, 0, 0, 0, 0, 0, 0]), Some(number));
        }
        assert_eq!(parse_unit_number([0x40, 7, 0, 0, 0, 0, 0, 0]), Some(7));
        assert_eq!(parse_unit_number([0, 7, 0, 1, 0, 0, 0, 0]), None);
        assert_eq!(parse_unit_number([0xc1, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn pages_have_their_lengths() {
        let geometry = Geometry {
            block_size: 512,
            blocks: 4096,
            physical_block_size: 8192,
            optimal_transfer: (8192, 1 << 20),
            unmap_granularity: 8192,
            is_read_only: false,
        };
        let limits = block_limits(&geometry);
        assert_eq!(limits.len(), 0x3c);
        assert_eq!(limits[24..28], [0, 0, 0, 16], "blocks that an UNMAP frees");
        assert_eq!(standard(0)[4], 91);
        let names = identification(
            UnitId::new(&VolumeGuids { pool: 1, volume: 2 }),
            "iqn.2026-01.org.example:disk",
        );
        assert_eq!(names[..4], [1, 3, 0, 8]);
        assert_eq!(names[4] >> 4, 3, "a name that is assigned locally");
    }
}
