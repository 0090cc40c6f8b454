//! The header that begins each PDU.
//!
//! ```text
//! offset  size  field
//!      0     1  opcode: 6 bits; 0x40: immediate delivery
//!      1     1  flags, by the opcode; 0x80: final
//!      2     2  by the opcode
//!      4     1  length of the additional header segments, in 4-byte words
//!      5     3  length of the data segment, in bytes, without padding
//!      8     8  logical unit, or by the opcode
//!     16     4  initiator task tag
//!     20    28  by the opcode
//!     48
//! ```

/// Bytes of the header.
pub const HEADER_SIZE: usize = 48;
/// Bytes of the longest additional header segments.
pub const MAX_AHS_SIZE: usize = 255 * 4;

/// A header as it came, with access to its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header(pub [u8; HEADER_SIZE]);

impl Header {
    /// The opcode.
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// Whether the PDU is to be delivered out of the order of CmdSN.
    pub fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// The flags of the opcode.
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Bytes of the additional header segments.
    pub fn ahs_length(&self) -> usize {
        usize::from(self.0[4]).wrapping_mul(4)
    }

    /// Bytes of the data segment.
    ///
    /// # Panics
    /// On a machine of 16 bits.
    pub fn data_length(&self) -> usize {
        let bytes = [0, self.0[5], self.0[6], self.0[7]];
        usize::try_from(u32::from_be_bytes(bytes)).expect("24 bits fit into usize")
    }

    /// The initiator task tag.
    pub fn task_tag(&self) -> u32 {
        self.u32_at(16)
    }

    pub(crate) fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array_at(at))
    }

    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array_at(at))
    }

    pub(crate) fn array_at<const N: usize>(&self, at: usize) -> [u8; N] {
        let field = self.0.get(at..).and_then(|rest| rest.first_chunk());
        *field.expect("the offsets of fields are constants within the header")
    }
}

/// A header that is being written.
#[derive(Clone, Copy)]
pub(crate) struct HeaderWriter([u8; HEADER_SIZE]);

impl HeaderWriter {
    /// A header with an opcode, its flags and the length of its data segment.
    pub(crate) fn new(opcode: u8, flags: u8, data_length: usize) -> Self {
        let mut bytes = [0; HEADER_SIZE];
        bytes[0] = opcode;
        bytes[1] = flags;
        let length = u32::try_from(data_length).ok().filter(|length| length >> 24 == 0);
        let [_, high, middle, low] =
            length.expect("a data segment has less than 16 MiB").to_be_bytes();
        bytes[5] = high;
        bytes[6] = middle;
        bytes[7] = low;
        Self(bytes)
    }

    pub(crate) fn put<const N: usize>(mut self, at: usize, value: [u8; N]) -> Self {
        let field = self.0.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
        *field.expect("the offsets of fields are constants within the header") = value;
        self
    }

    pub(crate) fn u8(self, at: usize, value: u8) -> Self {
        self.put(at, [value])
    }

    pub(crate) fn u16(self, at: usize, value: u16) -> Self {
        self.put(at, value.to_be_bytes())
    }

    pub(crate) fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, value.to_be_bytes())
    }

    pub(crate) fn finish(self) -> [u8; HEADER_SIZE] {
        self.0
    }
}
