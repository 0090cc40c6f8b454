//! Command descriptor blocks, parsed.
//!
//! A CDB has 6, 10, 12 or 16 bytes, by the upper bits of its first byte, the operation code. Reads and writes:
//! ```text
//! bytes  flags  LBA      blocks
//!     6  -      1 to 3   4; 0: 256 blocks
//!    10  1      2 to 5   7 to 8
//!    12  1      2 to 5   6 to 9
//!    16  1      2 to 9   10 to 13
//! ```
//! Flags: 0xe0 protection information, which is refused; 0x08 FUA; of VERIFY 0x06 BYTCHK.
//! Learnt from: SBC-3, chapter 5; SPC-4, chapter 6.

use lun::Geometry;

use super::Sense;

/// Bytes of the largest transfer, which the Block Limits page announces.
pub(crate) const MAX_TRANSFER_BYTES: u64 = 8 << 20;
/// Blocks of the largest COMPARE AND WRITE.
pub(crate) const MAX_COMPARE_BLOCKS: u8 = 255;
/// Blocks of one UNMAP at most, which is a change of metadata.
pub(crate) const MAX_UNMAP_BLOCKS: u32 = 1 << 20;
/// Blocks of one WRITE SAME at most: as many as its short form can name.
pub(crate) const MAX_SAME_BLOCKS: u32 = u16::MAX as u32;
/// Bytes of the longest parameter list.
const MAX_PARAMETER_BYTES: usize = 64 << 10;

/// A range of logical blocks within the unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blocks {
    pub(crate) lba: u64,
    pub(crate) count: u64,
    pub(crate) block_size: u32,
}

impl Blocks {
    pub(crate) fn offset(&self) -> u64 {
        self.lba * u64::from(self.block_size)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.count * u64::from(self.block_size)
    }
}

/// How VERIFY compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    /// The blocks can be read.
    Readable,
    /// The blocks are equal to the data.
    Data,
    /// Each block is equal to the one block of data.
    OneBlock,
}

/// A command with its parameters. Allocation and parameter list lengths are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    TestUnitReady,
    RequestSense {
        allocation: usize,
    },
    Inquiry {
        page: Option<u8>,
        allocation: usize,
    },
    ModeSense {
        is_long: bool,
        no_descriptors: bool,
        control: u8,
        page: u8,
        subpage: u8,
        allocation: usize,
    },
    LogSense {
        page: u8,
        allocation: usize,
    },
    ModeSelect {
        is_long: bool,
        length: usize,
    },
    StartStop {
        starts: bool,
    },
    PreventRemoval {
        prevents: bool,
    },
    ReadCapacity10,
    ReadCapacity16 {
        allocation: usize,
    },
    ReportUnits {
        allocation: usize,
    },
    ReportOpcodes {
        with_timeouts: bool,
        option: u8,
        opcode: u8,
        action: u16,
        allocation: usize,
    },
    Read {
        blocks: Blocks,
        fua: bool,
    },
    Write {
        blocks: Blocks,
        fua: bool,
    },
    WriteVerify {
        blocks: Blocks,
        compares: bool,
    },
    Verify {
        blocks: Blocks,
        comparison: Comparison,
    },
    Prefetch {
        blocks: Blocks,
    },
    Synchronize,
    Unmap {
        length: usize,
    },
    WriteSame {
        blocks: Blocks,
        no_data: bool,
    },
    CompareAndWrite {
        blocks: Blocks,
        fua: bool,
    },
    GetLbaStatus {
        lba: u64,
        allocation: usize,
    },
    ReserveIn {
        action: u8,
        allocation: usize,
    },
    ReserveOut {
        action: u8,
        scope_type: u8,
        length: usize,
    },
    ExtendedCopy {
        length: usize,
    },
    CopyResults {
        action: u8,
        list: u8,
        allocation: usize,
    },
    Reserve,
    Release,
}

type Parsed = Result<Command, Sense>;

fn be16(cdb: &[u8; 16], at: usize) -> u16 {
    u16::from_be_bytes([cdb[at], cdb[at + 1]])
}

fn be32(cdb: &[u8; 16], at: usize) -> u32 {
    u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]])
}

fn be64(cdb: &[u8; 16], at: usize) -> u64 {
    u64::from(be32(cdb, at)) << 32 | u64::from(be32(cdb, at + 4))
}

fn length16(cdb: &[u8; 16], at: usize) -> usize {
    usize::from(be16(cdb, at))
}

fn length32(cdb: &[u8; 16], at: usize) -> usize {
    usize::try_from(be32(cdb, at)).expect("the engine runs on 64 bits")
}

impl Command {
    /// Parses the CDB of a command to a unit of this shape.
    pub(crate) fn parse(cdb: &[u8; 16], geometry: &Geometry) -> Parsed {
        let control = match cdb[0] >> 5 {
            0 => 5,
            1 | 2 => 9,
            4 => 15,
            5 => 11,
            _ => return Err(Sense::INVALID_OPCODE),
        };
        // NACA: auto contingent allegiance is not supported
        if cdb[control] & 0x04 != 0 {
            return Err(Sense::invalid_field(5));
        }
        match cdb[0] {
            0x08 | 0x28 | 0xa8 | 0x88 | 0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x2f
            | 0xaf | 0x8f | 0x34 | 0x90 => Self::parse_blocks(cdb, geometry),
            0x35 | 0x91 => {
                parse_range(cdb, geometry)?;
                Ok(Self::Synchronize)
            }
            0x41 | 0x93 | 0x42 | 0x89 | 0x9e => Self::parse_provisioning(cdb, geometry),
            0x83 | 0x84 => Self::parse_copy(cdb),
            0x5e | 0x5f | 0x16 | 0x17 => Self::parse_reservation(cdb),
            _ => Self::parse_primary(cdb),
        }
    }

    fn parse_primary(cdb: &[u8; 16]) -> Parsed {
        Ok(match cdb[0] {
            0x00 => Self::TestUnitReady,
            // neither descriptor format nor saved parameters are there
            0x03 | 0x4d if cdb[1] & 1 != 0 => return Err(Sense::invalid_field(1)),
            0x03 => Self::RequestSense { allocation: cdb[4].into() },
            0x12 => {
                let has_page = cdb[1] & 1 != 0;
                if !has_page && cdb[2] != 0 || cdb[1] & 2 != 0 {
                    return Err(Sense::invalid_field(2));
                }
                Self::Inquiry { page: has_page.then_some(cdb[2]), allocation: length16(cdb, 3) }
            }
            0x1a | 0x5a => {
                let is_long = cdb[0] == 0x5a;
                Self::ModeSense {
                    is_long,
                    no_descriptors: cdb[1] & 0x08 != 0,
                    control: cdb[2] >> 6,
                    page: cdb[2] & 0x3f,
                    subpage: cdb[3],
                    allocation: if is_long { length16(cdb, 7) } else { cdb[4].into() },
                }
            }
            // SP, and no PF: pages of this format are not saved
            0x15 | 0x55 if cdb[1] & 0x11 != 0x10 => return Err(Sense::invalid_field(1)),
            0x15 => Self::ModeSelect { is_long: false, length: cdb[4].into() },
            0x55 => Self::ModeSelect { is_long: true, length: length16(cdb, 7) },
            0x1b if cdb[4] & 0xf0 != 0 => return Err(Sense::invalid_field(4)),
            0x1b => Self::StartStop { starts: cdb[4] & 1 != 0 },
            0x1e => Self::PreventRemoval { prevents: cdb[4] & 3 != 0 },
            0x25 => {
                // the LBA of a partial medium is obsolete
                Self::ReadCapacity10
            }
            // SP: nothing is saved; pages are whole, and have no subpages
            0x4d if cdb[3] != 0 => return Err(Sense::invalid_field(3)),
            0x4d if be16(cdb, 5) != 0 => return Err(Sense::invalid_field(5)),
            0x4d => Self::LogSense { page: cdb[2] & 0x3f, allocation: length16(cdb, 7) },
            0xa0 => Self::ReportUnits { allocation: length32(cdb, 6) },
            0xa3 if cdb[1] & 0x1f == 0x0c => Self::ReportOpcodes {
                with_timeouts: cdb[2] & 0x80 != 0,
                option: cdb[2] & 7,
                opcode: cdb[3],
                action: be16(cdb, 4),
                allocation: length32(cdb, 6),
            },
            0xa3 => return Err(Sense::invalid_field(1)),
            _ => return Err(Sense::INVALID_OPCODE),
        })
    }

    fn parse_blocks(cdb: &[u8; 16], geometry: &Geometry) -> Parsed {
        let is_short = cdb[0] < 0x20;
        // RDPROTECT, WRPROTECT, VRPROTECT: protection information is not supported
        if !is_short && cdb[1] & 0xe0 != 0 && !matches!(cdb[0], 0x34 | 0x90) {
            return Err(Sense::invalid_field(1));
        }
        let blocks = parse_range(cdb, geometry)?;
        let (fua, check) = (cdb[1] & 0x08 != 0, cdb[1] >> 1 & 3);
        let command = match cdb[0] {
            0x08 | 0x0a => {
                let is_read = cdb[0] == 0x08;
                if is_read {
                    Self::Read { blocks, fua: false }
                } else {
                    Self::Write { blocks, fua: false }
                }
            }
            0x28 | 0xa8 | 0x88 => Self::Read { blocks, fua },
            0x2a | 0xaa | 0x8a => Self::Write { blocks, fua },
            0x2e | 0xae | 0x8e => match check {
                0 => Self::WriteVerify { blocks, compares: false },
                1 => Self::WriteVerify { blocks, compares: true },
                _ => return Err(Sense::invalid_field(1)),
            },
            0x34 | 0x90 => return Ok(Self::Prefetch { blocks }),
            _ => {
                let comparison = match check {
                    0 => Comparison::Readable,
                    1 => Comparison::Data,
                    3 => Comparison::OneBlock,
                    _ => return Err(Sense::invalid_field(1)),
                };
                if comparison != Comparison::Data {
                    // nothing is transferred that could be too long
                    return Ok(Self::Verify { blocks, comparison });
                }
                Self::Verify { blocks, comparison }
            }
        };
        if blocks.bytes() > MAX_TRANSFER_BYTES {
            let at = match cdb[0] >> 5 {
                1 => 7,
                4 => 10,
                _ => 6,
            };
            return Err(Sense::invalid_field(at));
        }
        Ok(command)
    }

    fn parse_provisioning(cdb: &[u8; 16], geometry: &Geometry) -> Parsed {
        Ok(match cdb[0] {
            0x42 if cdb[1] & 1 != 0 => return Err(Sense::invalid_field(1)),
            0x42 => Self::Unmap { length: length16(cdb, 7) },
            0x41 | 0x93 => {
                let is_long = cdb[0] == 0x93;
                // WRPROTECT, ANCHOR, and the obsolete bits that have the LBA written into each block
                if cdb[1] & 0xf6 != 0 {
                    return Err(Sense::invalid_field(1));
                }
                let mut blocks = parse_range(cdb, geometry)?;
                let length_at = if is_long { 10 } else { 7 };
                if blocks.count == 0 {
                    // no number: up to the last block; the range was checked
                    blocks.count = geometry.blocks - blocks.lba;
                }
                if blocks.count > MAX_SAME_BLOCKS.into() {
                    return Err(Sense::invalid_field(length_at));
                }
                let no_data = is_long && cdb[1] & 1 != 0;
                Self::WriteSame { blocks, no_data }
            }
            0x89 => {
                if cdb[1] & 0xe0 != 0 {
                    return Err(Sense::invalid_field(1));
                }
                let (lba, count) = (be64(cdb, 2), cdb[13]);
                let blocks = checked_range(lba, count.into(), geometry)?;
                Self::CompareAndWrite { blocks, fua: cdb[1] & 8 != 0 }
            }
            // 0x9e
            _ => match cdb[1] & 0x1f {
                0x10 => Self::ReadCapacity16 { allocation: length32(cdb, 10) },
                0x12 => {
                    let lba = be64(cdb, 2);
                    checked_range(lba, 1, geometry)?;
                    Self::GetLbaStatus { lba, allocation: length32(cdb, 10) }
                }
                _ => return Err(Sense::invalid_field(1)),
            },
        })
    }

    fn parse_reservation(cdb: &[u8; 16]) -> Parsed {
        let action = cdb[1] & 0x1f;
        Ok(match cdb[0] {
            0x5e => Self::ReserveIn { action, allocation: length16(cdb, 7) },
            0x5f => {
                let length = length32(cdb, 5);
                if length > MAX_PARAMETER_BYTES {
                    return Err(Sense::PARAMETER_LIST_LENGTH);
                }
                Self::ReserveOut { action, scope_type: cdb[2], length }
            }
            // third-party and extent reservations are obsolete
            _ if action != 0 => return Err(Sense::invalid_field(1)),
            0x16 => Self::Reserve,
            _ => Self::Release,
        })
    }

    fn parse_copy(cdb: &[u8; 16]) -> Parsed {
        let (action, length) = (cdb[1] & 0x1f, length32(cdb, 10));
        match cdb[0] {
            0x84 => Ok(Self::CopyResults { action, list: cdb[2], allocation: length }),
            // the long list identifier
            _ if action != 0 => Err(Sense::invalid_field(1)),
            _ if length > MAX_PARAMETER_BYTES => Err(Sense::PARAMETER_LIST_LENGTH),
            _ => Ok(Self::ExtendedCopy { length }),
        }
    }

    /// Bytes of blocks that the command reads for the initiator.
    pub(crate) fn data_in_bytes(&self) -> usize {
        match self {
            Self::Read { blocks, .. } => {
                usize::try_from(blocks.bytes()).expect("reads are bounded")
            }
            _ => 0,
        }
    }

    /// Refuses data of another length where the command would mean something else without the rest.
    pub(crate) fn check_data_length(&self, offered: u64) -> Result<(), Sense> {
        let at = match self {
            Self::CompareAndWrite { .. } => 13,
            Self::WriteSame { .. } => 1,
            _ => return Ok(()),
        };
        if offered == self.data_out_bytes() { Ok(()) } else { Err(Sense::invalid_field(at)) }
    }

    /// Bytes of data that the command takes from the initiator.
    pub(crate) fn data_out_bytes(&self) -> u64 {
        match self {
            Self::Write { blocks, .. }
            | Self::WriteVerify { blocks, .. }
            | Self::Verify { blocks, comparison: Comparison::Data } => blocks.bytes(),
            Self::CompareAndWrite { blocks, .. } => blocks.bytes() * 2,
            Self::Verify { blocks, comparison: Comparison::OneBlock } if blocks.count > 0 => {
                blocks.block_size.into()
            }
            Self::WriteSame { blocks, no_data: false, .. } => blocks.block_size.into(),
            Self::Unmap { length }
            | Self::ModeSelect { length, .. }
            | Self::ExtendedCopy { length }
            | Self::ReserveOut { length, .. } => {
                u64::try_from(*length).expect("lengths have 32 bits")
            }
            _ => 0,
        }
    }
}

/// The range of a CDB with 6, 10, 12 or 16 bytes.
fn parse_range(cdb: &[u8; 16], geometry: &Geometry) -> Result<Blocks, Sense> {
    let (lba, count) = match cdb[0] >> 5 {
        0 => {
            let lba = be32(cdb, 0) & 0x1f_ffff;
            (lba.into(), if cdb[4] == 0 { 256 } else { cdb[4].into() })
        }
        1 | 2 => (be32(cdb, 2).into(), be16(cdb, 7).into()),
        4 => (be64(cdb, 2), be32(cdb, 10).into()),
        _ => (be32(cdb, 2).into(), be32(cdb, 6).into()),
    };
    checked_range(lba, count, geometry)
}

fn checked_range(lba: u64, count: u64, geometry: &Geometry) -> Result<Blocks, Sense> {
    match lba.checked_add(count) {
        Some(end) if end <= geometry.blocks => {
            Ok(Blocks { lba, count, block_size: geometry.block_size })
        }
        _ => Err(Sense::OUT_OF_RANGE),
    }
}
