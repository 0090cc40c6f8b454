//! The token that resumes an interrupted receive.
//!
//! ```text
//! 1-<sum of the compressed list>-<bytes of the list>-<the list, compressed, in hex>
//! ```
//!
//! The list names the stream and the position at which the receive stopped. It is gzipped. Any gzip
//! encoding of it is valid, so the token's letters may differ from those that OpenZFS prints.

use std::fmt::Write;

use ondisk::Order;
use ondisk::blkptr::Compression;
use ondisk::dsl::Dataset as Phys;
use ondisk::nvlist::{Encoding, Nvlist, Value};

use crate::{Dataset, Error, Result};

/// The most bytes of a list.
const MAX_LIST: usize = 1 << 20;

const NUMBER_FIELDS: [(&str, &str); 5] = [
    (Phys::RESUME_FROM_GUID, "fromguid"),
    (Phys::RESUME_OBJECT, "object"),
    (Phys::RESUME_OFFSET, "offset"),
    (Phys::RESUME_BYTES, "bytes"),
    (Phys::RESUME_TO_GUID, "toguid"),
];
const FLAG_FIELDS: [(&str, &str); 4] = [
    (Phys::RESUME_LARGE_BLOCKS, "largeblockok"),
    (Phys::RESUME_EMBEDDED, "embedok"),
    (Phys::RESUME_COMPRESSED, "compressok"),
    (Phys::RESUME_RAW, "rawok"),
];
const LIST_FIELDS: [(&str, &str); 2] =
    [(Phys::REDACTED_SNAPS, "redact_snaps"), (Phys::RESUME_REDACT_SNAPS, "book_redact_snaps")];

/// Where in which stream a receive stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "options of a stream, each on its own")]
pub struct ResumeToken {
    /// The guid of the base snapshot; 0: the stream is full.
    pub from_guid: u64,
    /// The object of the record that was applied last.
    pub object: u64,
    /// The offset of that record, in bytes.
    pub offset: u64,
    /// Bytes of the stream that were received.
    pub bytes: u64,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// The snapshot's full name on the sender.
    pub to_name: String,
    /// The stream has large blocks (-L).
    pub large_blocks: bool,
    /// The stream has embedded blocks (-e).
    pub embedded: bool,
    /// The stream has compressed blocks (-c).
    pub compressed: bool,
    /// The stream is raw (-w).
    pub raw: bool,
    /// The guids of the snapshots that the stream is redacted by; none: it is not redacted.
    pub redact_snaps: Option<Vec<u64>>,
    /// The guids of the snapshots that its base is redacted by.
    pub base_redact_snaps: Option<Vec<u64>>,
}

impl ResumeToken {
    /// Reads a token of ours or of OpenZFS.
    pub fn decode(token: &str) -> Result<Self> {
        let bad = |why| Error::InvalidResumeToken { why };
        let list = decode_list(token).map_err(bad)?;
        let number = |name: &str| list.u64(name);
        let missing = || bad("a field is missing");
        Ok(Self {
            from_guid: number("fromguid").unwrap_or(0),
            object: number("object").ok_or_else(missing)?,
            offset: number("offset").ok_or_else(missing)?,
            bytes: number("bytes").ok_or_else(missing)?,
            to_guid: number("toguid").ok_or_else(missing)?,
            to_name: list.text("toname").ok_or_else(missing)?,
            large_blocks: list.flag("largeblockok"),
            embedded: list.flag("embedok"),
            compressed: list.flag("compressok"),
            raw: list.flag("rawok"),
            redact_snaps: list.u64s("redact_snaps").map(<[u64]>::to_vec),
            base_redact_snaps: list.u64s("book_redact_snaps").map(<[u64]>::to_vec),
        })
    }
}

/// The list in a token; or why there is none.
fn decode_list(token: &str) -> std::result::Result<Nvlist, &'static str> {
    let mut parts = token.trim().splitn(4, '-');
    let mut part = || parts.next().ok_or("it is cut");
    if part()? != "1" {
        return Err("its version is not 1");
    }
    let [sum, size] = [part()?, part()?].map(|hex| u64::from_str_radix(hex, 16));
    let sum = sum.map_err(|_| "its checksum is not a number")?;
    let size = size.ok().and_then(|size| usize::try_from(size).ok());
    let size = size.filter(|size| *size <= MAX_LIST).ok_or("its size is not allowed")?;
    let (pairs, rest) = part()?.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    let squeezed: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    let squeezed = squeezed.filter(|_| rest.is_empty()).ok_or("it has other letters than hex")?;
    if token_checksum(&squeezed) != sum {
        return Err("its checksum is wrong");
    }
    let mut packed = vec![0; size];
    transform::compress::decompress(Compression::Gzip(6), &squeezed, &mut packed)
        .map_err(|_| "it cannot be decompressed")?;
    Nvlist::decode(&packed).map_err(|_| "it is not a list")
}

/// The first word of fletcher4: the sum of all whole words.
fn token_checksum(squeezed: &[u8]) -> u64 {
    let words = squeezed.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    words.fold(0, u64::wrapping_add)
}

impl Dataset {
    /// The state of the receive into this very dataset, if it was stopped and can be resumed.
    pub fn resume_state(&self) -> Result<Option<ResumeToken>> {
        self.own_resume_token()?.map(|token| ResumeToken::decode(&token)).transpose()
    }

    /// The token, if a receive into it was stopped and can continue. An increment is received into
    /// a hidden clone below.
    pub fn resume_token(&self) -> Result<Option<String>> {
        if self.is_snapshot() {
            return Ok(None);
        }
        if let Some(token) = self.own_resume_token()? {
            return Ok(Some(token));
        }
        match self.tree().find(&format!("{}/%recv", self.dir().path())) {
            Ok(clone) => clone.own_resume_token(),
            Err(_) => Ok(None),
        }
    }

    /// Whether a receive into it was stopped and can continue; so it may be if that cannot be read.
    pub(crate) fn can_resume_receive(&self) -> bool {
        !matches!(self.zap_field(Phys::RESUME_TO_GUID), Ok(None))
    }

    fn own_resume_token(&self) -> Result<Option<String>> {
        if self.zap_field(Phys::RESUME_TO_GUID)?.is_none() {
            return Ok(None);
        }
        let mut list = Nvlist::new();
        for (field, name) in NUMBER_FIELDS {
            if let Some(number) = self.zap_field(field)?.and_then(|value| value.u64()) {
                list.push(name, Value::U64(number));
            }
        }
        if let Some(value) = self.zap_field(Phys::RESUME_TO_NAME)? {
            list.push("toname", Value::Str(value.as_str().unwrap_or_default().into()));
        }
        for (field, name) in FLAG_FIELDS {
            if self.zap_field(field)?.is_some() {
                list.push(name, Value::Flag);
            }
        }
        for (field, name) in LIST_FIELDS {
            if let Some(value) = self.zap_field(field)? {
                list.push(name, Value::U64s(value.u64s()));
            }
        }
        Ok(encode_token(&list.encode(Encoding::Native(Order::Little))))
    }
}

fn encode_token(packed: &[u8]) -> Option<String> {
    let gzip = Compression::Gzip(6);
    let limit = packed.len() + 64;
    let squeezed = transform::compress::compress(gzip, 6, packed, limit)?;
    let sum = token_checksum(&squeezed);
    let mut token = format!("1-{sum:x}-{:x}-", packed.len());
    for byte in squeezed {
        write!(token, "{byte:02x}").ok()?;
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::ResumeToken;

    /// Of `zfs receive -s` of OpenZFS 2.3.2.
    const TOKEN: &str = "1-aa221046b-b8-789c636064000310a500c4ec50360710e72765a526973030184394\
        60caa7a515a79630c001489e0d493ea9b224b51848bfe867c1aabf243fbd343305a86ef9b7ad5d4f0edcd340\
        92e704cbe725e6a602e9c4bc6cfdb4a2fc5c87fcbc54a85d009da219b1";

    #[test]
    fn token_of_openzfs_is_read() {
        let token = ResumeToken::decode(TOKEN).unwrap();
        let known = ResumeToken {
            object: 0x33,
            bytes: 0x48fe8,
            to_guid: 0xdec0_e48a_b5f6_a762,
            to_name: "tank/from@one".to_owned(),
            ..ResumeToken::default()
        };
        assert_eq!(token, known);
        for (at, _) in TOKEN.char_indices().step_by(7) {
            assert!(ResumeToken::decode(&TOKEN[..at]).is_err(), "cut at {at}");
        }
        let other = TOKEN.replace("9460caa7", "9460caa8");
        assert!(ResumeToken::decode(&other).unwrap_err().to_string().contains("checksum"));
    }
}
