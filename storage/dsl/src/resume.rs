//! The token by which a stopped receive goes on.
//!
//! ```text
//! 1-<sum of the compressed list>-<bytes of the list>-<the list, compressed, in hex>
//! ```
//!
//! The list names where in which stream the receive stopped. It is gzipped; any gzip of it is as
//! good as another, so that the token's letters need not be those that OpenZFS prints.

use std::fmt::Write;

use ondisk::Order;
use ondisk::blkptr::Compression;
use ondisk::dsl::Dataset as Phys;
use ondisk::nvlist::{Encoding, Nvlist, Value};

use crate::{Dataset, Result};

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

impl Dataset {
    /// The token, if a receive into it was stopped and can go on. An increment is received into
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

    /// Whether a receive into it was stopped and can go on; so it may be if that cannot be read.
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
    let limit = packed.len().saturating_add(64);
    let squeezed = transform::compress::compress(gzip, 6, packed, limit)?;
    // the first word of fletcher4: the sum of all whole words
    let words = squeezed.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    let sum = words.fold(0, u64::wrapping_add);
    let mut token = format!("1-{sum:x}-{:x}-", packed.len());
    for byte in squeezed {
        write!(token, "{byte:02x}").ok()?;
    }
    Some(token)
}
