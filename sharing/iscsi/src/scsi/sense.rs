//! Sense data: why a command failed, or what an initiator has to know before its next one.
//!
//! ```text
//! offset  size  field
//!      0     1  0x70: current error, fixed format; 0x80: the information is valid
//!      2     1  sense key
//!      3     4  information
//!      7     1  bytes that follow: 10
//!     12     1  additional sense code
//!     13     1  its qualifier
//!     15     3  of an invalid field: 0x80, 0x40 in the CDB; its offset (16 bits)
//!     18
//! ```
//! Learnt from: SPC-4, 4.5 and annex on sense codes.

/// Bytes of sense data.
pub(crate) const SENSE_SIZE: usize = 18;

/// Sense key, additional sense code and qualifier, with their data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sense {
    key: u8,
    code: u8,
    qualifier: u8,
    information: Option<u32>,
    /// Whether the invalid field is in the CDB, and its offset.
    field: Option<(bool, u16)>,
}

impl Sense {
    pub(crate) const NONE: Self = Self::new(0x0, 0x00, 0x00);
    pub(crate) const MANUAL_INTERVENTION: Self = Self::new(0x2, 0x04, 0x03);
    pub(crate) const WRITE_ERROR: Self = Self::new(0x3, 0x0c, 0x00);
    pub(crate) const READ_ERROR: Self = Self::new(0x3, 0x11, 0x00);
    pub(crate) const PARAMETER_LIST_LENGTH: Self = Self::new(0x5, 0x1a, 0x00);
    pub(crate) const INVALID_OPCODE: Self = Self::new(0x5, 0x20, 0x00);
    pub(crate) const OUT_OF_RANGE: Self = Self::new(0x5, 0x21, 0x00);
    pub(crate) const NO_SUCH_UNIT: Self = Self::new(0x5, 0x25, 0x00);
    pub(crate) const INVALID_PARAMETER: Self = Self::new(0x5, 0x26, 0x00);
    pub(crate) const INVALID_RELEASE: Self = Self::new(0x5, 0x26, 0x04);
    pub(crate) const TOO_MANY_TARGET_DESCRIPTORS: Self = Self::new(0x5, 0x26, 0x06);
    pub(crate) const UNSUPPORTED_TARGET_DESCRIPTOR: Self = Self::new(0x5, 0x26, 0x07);
    pub(crate) const TOO_MANY_SEGMENT_DESCRIPTORS: Self = Self::new(0x5, 0x26, 0x08);
    pub(crate) const UNSUPPORTED_SEGMENT_DESCRIPTOR: Self = Self::new(0x5, 0x26, 0x09);
    pub(crate) const INLINE_DATA_LENGTH: Self = Self::new(0x5, 0x26, 0x0b);
    pub(crate) const SAVING_NOT_SUPPORTED: Self = Self::new(0x5, 0x39, 0x00);
    pub(crate) const INSUFFICIENT_RESERVATION_RESOURCES: Self = Self::new(0x5, 0x55, 0x02);
    pub(crate) const WRITE_PROTECTED: Self = Self::new(0x7, 0x27, 0x00);
    pub(crate) const SPACE_ALLOCATION_FAILED: Self = Self::new(0x7, 0x27, 0x07);
    pub(crate) const POWER_ON: Self = Self::new(0x6, 0x29, 0x00);
    pub(crate) const UNIT_RESET: Self = Self::new(0x6, 0x29, 0x03);
    pub(crate) const MEDIUM_MAY_HAVE_CHANGED: Self = Self::new(0x6, 0x28, 0x00);
    pub(crate) const MODE_PARAMETERS_CHANGED: Self = Self::new(0x6, 0x2a, 0x01);
    pub(crate) const RESERVATIONS_PREEMPTED: Self = Self::new(0x6, 0x2a, 0x03);
    pub(crate) const RESERVATIONS_RELEASED: Self = Self::new(0x6, 0x2a, 0x04);
    pub(crate) const REGISTRATIONS_PREEMPTED: Self = Self::new(0x6, 0x2a, 0x05);
    pub(crate) const CAPACITY_CHANGED: Self = Self::new(0x6, 0x2a, 0x09);
    pub(crate) const THIN_PROVISIONING_THRESHOLD: Self = Self::new(0x6, 0x38, 0x07);
    pub(crate) const UNITS_CHANGED: Self = Self::new(0x6, 0x3f, 0x0e);

    pub(crate) const COPY_ABORTED: Self = Self::new(0xa, 0x00, 0x00);
    pub(crate) const COPY_TARGET_NOT_REACHABLE: Self = Self::new(0xa, 0x0d, 0x02);
    pub(crate) const PROTOCOL_SERVICE_CRC_ERROR: Self = Self::new(0xb, 0x47, 0x05);

    const fn new(key: u8, code: u8, qualifier: u8) -> Self {
        Self { key, code, qualifier, information: None, field: None }
    }

    /// The field of the CDB at this offset is invalid.
    pub(crate) fn invalid_field(offset: u16) -> Self {
        Self { field: Some((true, offset)), ..Self::new(0x5, 0x24, 0x00) }
    }

    /// The data differs from the medium at this byte.
    pub(crate) fn miscompare(at: usize) -> Self {
        Self { information: u32::try_from(at).ok(), ..Self::new(0xe, 0x1d, 0x00) }
    }

    /// The sense data.
    pub(crate) fn encode(&self) -> [u8; SENSE_SIZE] {
        let mut bytes = [0; SENSE_SIZE];
        bytes[0] = if self.information.is_some() { 0xf0 } else { 0x70 };
        bytes[2] = self.key;
        bytes[3..7].copy_from_slice(&self.information.map_or([0; 4], u32::to_be_bytes));
        bytes[7] = 10;
        bytes[12] = self.code;
        bytes[13] = self.qualifier;
        if let Some((is_cdb, offset)) = self.field {
            bytes[15] = if is_cdb { 0xc0 } else { 0x80 };
            bytes[16..18].copy_from_slice(&offset.to_be_bytes());
        }
        bytes
    }
}
