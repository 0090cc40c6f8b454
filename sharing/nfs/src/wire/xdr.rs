//! XDR, the external data representation (RFC 4506): big-endian numbers, and opaque data padded to 4 bytes.
//!
//! ```text
//! number   4 or 8 bytes
//! fixed    bytes, then zeros up to a multiple of 4
//! opaque   length (4 bytes), bytes, then zeros up to a multiple of 4
//! list     count (4 bytes), then the items
//! optional 1 and the item, or 0
//! ```

use vfs::MemoryParts;

use super::{Error, Result};

/// Bytes of the unit that all fields are padded to.
const UNIT: usize = 4;

/// Takes fields from the start of a message, one after the other.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Error::TooShort)?;
        self.rest = rest;
        Ok(taken)
    }

    fn skip_padding(&mut self, length: usize) -> Result<()> {
        self.bytes(padding(length)).map(drop)
    }

    /// A number of 32 bits.
    pub fn u32(&mut self) -> Result<u32> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Error::TooShort)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*taken))
    }

    /// A number of 64 bits.
    pub fn u64(&mut self) -> Result<u64> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Error::TooShort)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*taken))
    }

    /// A signed number of 64 bits.
    pub fn i64(&mut self) -> Result<i64> {
        self.u64().map(u64::cast_signed)
    }

    /// A truth value: 0 or 1.
    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(Error::UnknownValue { found }),
        }
    }

    /// Opaque data of a fixed length.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Error::TooShort)?;
        self.rest = rest;
        self.skip_padding(N)?;
        Ok(*taken)
    }

    /// A count of items or bytes.
    pub fn count(&mut self, most: usize) -> Result<usize> {
        // 64-bit systems only: every u32 is a usize
        let found = usize::try_from(self.u32()?).map_err(|_| Error::TooShort)?;
        if found > most { Err(Error::TooLong { found, most }) } else { Ok(found) }
    }

    /// Opaque data, or a string, of at most `most` bytes.
    pub fn opaque(&mut self, most: usize) -> Result<&'a [u8]> {
        let length = self.count(most)?;
        let taken = self.bytes(length)?;
        self.skip_padding(length)?;
        Ok(taken)
    }

    /// A list of at most `most` items.
    pub fn list<T>(
        &mut self,
        most: usize,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        // an item has at least one unit: no count makes us allocate more than the message is long
        let count = self.count(most)?;
        let mut items = Vec::with_capacity(count.min(self.rest.len() / UNIT));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// An item that may be absent.
    pub fn optional<T>(&mut self, item: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { item(self).map(Some) } else { Ok(None) }
    }

    /// Checks that the message has no further bytes.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::TrailingBytes) }
    }
}

/// Bytes of padding behind data of a length.
fn padding(length: usize) -> usize {
    length.wrapping_neg() % UNIT
}

/// A message that is being written.
///
/// Opaque data that lies in memory elsewhere is not copied. The message has its place, and the sender takes it from there:
///
/// ```text
/// bytes     header  ......  length | padding  ......
/// external                  data   ^ at this offset of the bytes
/// ```
#[derive(Clone, Default, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    external: Option<External>,
}

/// Data of a message that is not among its bytes.
#[derive(Clone, Debug)]
struct External {
    at: usize,
    length: usize,
    parts: MemoryParts,
}

/// A place in a message for a number that is known later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placeholder(usize);

impl Writer {
    /// A message that begins with these bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes, external: None }
    }

    /// Bytes written so far, without those of [`Self::external_opaque`].
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of the message behind an offset of its own bytes.
    ///
    /// # Panics
    ///
    /// If they are more than a usize counts.
    pub fn message_len_from(&self, start: usize) -> usize {
        let own = self.bytes.get(start..).map_or(0, <[u8]>::len);
        let external = self.external.as_ref().filter(|external| external.at >= start);
        own.checked_add(external.map_or(0, |external| external.length))
            .expect("a message in memory")
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes written, without those of [`Self::external_opaque`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same; the external data is gone.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Drops everything behind a length.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        self.external.take_if(|external| external.at > length);
    }

    /// Whether the message has data that is not among its bytes.
    pub fn has_external(&self) -> bool {
        self.external.is_some()
    }

    /// Writes opaque data without a copy of it. Returns the number of its bytes.
    ///
    /// # Panics
    ///
    /// If the data has 4 GiB, or the message has such data already.
    pub fn external_opaque(&mut self, parts: MemoryParts) -> usize {
        assert!(self.external.is_none(), "a message has external data once");
        let length = parts.slices().map(<[u8]>::len).sum();
        self.count(length);
        self.external = Some(External { at: self.bytes.len(), length, parts });
        self.pad(length);
        length
    }

    /// The message in slices, in its order.
    pub fn slices(&self) -> Vec<&[u8]> {
        let Some(External { at, parts, .. }) = &self.external else { return vec![&self.bytes] };
        let (before, behind) = self.bytes.split_at(*at);
        [before].into_iter().chain(parts.slices()).chain([behind]).collect()
    }

    /// Writes a number of 32 bits.
    pub fn u32(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    /// Writes a number of 64 bits.
    pub fn u64(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    /// Writes a signed number of 64 bits.
    pub fn i64(&mut self, number: i64) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    /// Writes a truth value.
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Writes the count of a list.
    ///
    /// # Panics
    ///
    /// If the count has more than 32 bits: messages are smaller.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("messages have less than 4 GiB"));
    }

    /// Writes opaque data of a fixed length.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.pad(bytes.len());
    }

    /// Writes opaque data, or a string, with its length.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.fixed(bytes);
    }

    /// Writes XDR that was printed before.
    pub fn append(&mut self, printed: &[u8]) {
        self.bytes.extend_from_slice(printed);
    }

    fn pad(&mut self, length: usize) {
        self.bytes.extend_from_slice([0; UNIT].get(..padding(length)).unwrap_or_default());
    }

    /// Writes opaque data of at most `most` bytes that `fill` puts into a buffer. `fill` returns how many it has put.
    ///
    /// # Panics
    ///
    /// If `fill` returns more than `most`.
    pub fn opaque_with<E>(
        &mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> std::result::Result<usize, E>,
    ) -> std::result::Result<usize, E> {
        let length = self.placeholder();
        let start = self.bytes.len();
        self.bytes.resize(start.checked_add(most).expect("a buffer in memory"), 0);
        let (_, buffer) = self.bytes.split_at_mut(start);
        let filled = fill(buffer)?;
        assert!(filled <= most, "{filled} bytes in a buffer of {most}");
        self.bytes.truncate(start.wrapping_add(filled));
        self.pad(filled);
        self.set(length, u32::try_from(filled).expect("messages have less than 4 GiB"));
        Ok(filled)
    }

    /// Leaves a place for a number of 32 bits.
    pub fn placeholder(&mut self) -> Placeholder {
        let at = Placeholder(self.bytes.len());
        self.u32(0);
        at
    }

    /// Writes a number into its place.
    ///
    /// # Panics
    ///
    /// If the place is none of this message.
    pub fn set(&mut self, place: Placeholder, number: u32) {
        let bytes = self.bytes.get_mut(place.0..).and_then(|rest| rest.first_chunk_mut());
        *bytes.expect("a place in this message") = number.to_be_bytes();
    }

    /// Bytes written behind a place and its number.
    ///
    /// # Panics
    ///
    /// If the place is none of this message.
    pub fn len_behind(&self, place: Placeholder) -> usize {
        self.bytes.len().checked_sub(place.0.wrapping_add(UNIT)).expect("a place in this message")
    }
}
