//! The bytes of NVMe over TCP: PDUs, submission queue entries and completion queue entries, parsed and printed without
//! I/O.
//!
//! All numbers are little-endian. Learnt from: NVM Express TCP Transport Specification 1.0, NVM Express over Fabrics
//! 1.1, NVM Express Base Specification 2.0.
//!
//! Nothing here panics or allocates more than a few times the bytes it is given.

pub mod command;
pub mod completion;
pub mod connect;
pub mod pdu;

/// The CRC32C of a header or of data, as it is sent.
pub fn digest(parts: &[&[u8]]) -> [u8; 4] {
    parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part)).to_le_bytes()
}

/// The bytes of a number at an offset; zero behind the end.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().unwrap_or([0; N])
}

/// The 16 bits at an offset; zero behind the end.
pub fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// The 32 bits at an offset; zero behind the end.
pub fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// The 64 bits at an offset; zero behind the end.
pub fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// A structure of a fixed size that is filled field by field.
pub(crate) struct Page(Vec<u8>);

impl Page {
    /// A structure of zeros.
    pub(crate) fn new(size: usize) -> Self {
        Self(vec![0; size])
    }

    /// Puts bytes at an offset.
    ///
    /// # Panics
    /// If they end behind the structure, which is an error of the caller.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Puts a byte at an offset.
    pub(crate) fn put8(&mut self, at: usize, value: u8) -> &mut Self {
        self.put(at, &[value])
    }

    /// Puts 16 bits at an offset.
    pub(crate) fn put16(&mut self, at: usize, value: u16) -> &mut Self {
        self.put(at, &value.to_le_bytes())
    }

    /// Puts 32 bits at an offset.
    pub(crate) fn put32(&mut self, at: usize, value: u32) -> &mut Self {
        self.put(at, &value.to_le_bytes())
    }

    /// Puts 64 bits at an offset.
    pub(crate) fn put64(&mut self, at: usize, value: u64) -> &mut Self {
        self.put(at, &value.to_le_bytes())
    }

    /// Puts the start of a text that fits, and fills the field.
    pub(crate) fn put_text(&mut self, at: usize, size: usize, text: &str, fill: u8) -> &mut Self {
        let mut field = vec![fill; size];
        let count = text.len().min(size);
        field[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.put(at, &field)
    }

    /// The structure.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
