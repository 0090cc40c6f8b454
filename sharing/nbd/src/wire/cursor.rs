//! A cursor over the bytes of one message.

use super::{Error, MAX_STRING, Result};

/// Takes fields from the start of a message, one after the other.
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Error::TooShort)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Error::TooShort)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string that follows its length (32 bits).
    pub(crate) fn string(&mut self) -> Result<String> {
        let length = usize::try_from(self.u32()?).map_err(|_| Error::StringTooLong)?;
        if length > MAX_STRING {
            return Err(Error::StringTooLong);
        }
        parse_string(self.bytes(length)?)
    }

    /// Checks that the message has no further bytes.
    pub(crate) fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::TrailingBytes) }
    }
}

/// The bytes of a string, which must be UTF-8 and not too long.
pub(crate) fn parse_string(bytes: &[u8]) -> Result<String> {
    if bytes.len() > MAX_STRING {
        return Err(Error::StringTooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8)?;
    Ok(text.to_owned())
}
