//! Messages of an authentication.
//!
//! ```text
//! Negotiate (type 0, id 0)              Challenge (1, 1)                  Reply (1, 2)
//! offset  size  field                   offset  size  field               offset  size  field
//!      4     2  exchange                     4     2  exchange                 4     2  exchange
//!      6     1  secure channel; 0: none      6     1  bytes of a hash          6     1  bytes of a hash
//!      7     1  protocols                    8     1  hash                     8     1  1: C2 is valid
//!      8    64  each: 0 1: DH-HMAC-CHAP      9     1  group; 0: none          10     2  bytes of the number
//!               2 hashes, 3 groups          10     2  bytes of the number     12     4  S2
//!               4 hash ids (30)             12     4  S1                      16        response
//!               34 group ids (30)           16        C1                                C2, or zeros
//! Success1 (1, 3)                                     public number                     public number
//!      4     2  exchange                Success2 (1, 4), Failure1 (0, 0xf0), Failure2 (0, 0xf1)
//!      6     1  bytes of a hash              4     2  exchange
//!      8     1  1: a response follows        6     1  failures: 1
//!     16        response                     7     1  the reason, see `Failure`
//! ```
//! Learnt from: NVM Express Base Specification 2.0, section 8.13.5.3 to 8.13.5.7.

use super::hash::Hash;
use crate::wire::{Page, le16, le32};

/// The protocol DH-HMAC-CHAP in Negotiate.
const DH_HMAC_CHAP: u8 = 1;
/// Bytes of the description of a protocol, and of a list of ids in it.
const PROTOCOL_SIZE: usize = 64;
const LIST_SIZE: usize = 30;
/// Bytes before the first response or challenge.
const HEADER_SIZE: usize = 16;

/// The reasons of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    Authentication = 1,
    Protocol = 2,
    SecureChannel = 3,
    Hash = 4,
    Group = 5,
    InvalidPayload = 6,
    IncorrectMessage = 7,
}

/// A message of a host.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Message<'a> {
    Negotiate(Offer<'a>),
    Reply(Reply<'a>),
    Success2,
    Failure2,
}

/// The ids that a host can do with.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Offer<'a> {
    pub(super) wants_secure_channel: bool,
    pub(super) hashes: &'a [u8],
    pub(super) groups: &'a [u8],
}

/// The response of a host.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Reply<'a> {
    pub(super) response: &'a [u8],
    /// The challenge to the controller (C2).
    pub(super) challenge: Option<&'a [u8]>,
    pub(super) sequence: u32,
    pub(super) public: &'a [u8],
}

/// The number of the exchange of a message.
pub(super) fn exchange_number(bytes: &[u8]) -> u16 {
    le16(bytes, 4)
}

impl<'a> Message<'a> {
    /// Parses a message.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Failure> {
        match bytes {
            [0, 0x00, ..] => parse_offer(bytes).map(Self::Negotiate),
            [1, 0x02, ..] => parse_reply(bytes).map(Self::Reply),
            [1, 0x04, ..] if bytes.len() >= HEADER_SIZE => Ok(Self::Success2),
            [0, 0xf1, ..] => Ok(Self::Failure2),
            _ => Err(Failure::IncorrectMessage),
        }
    }
}

fn parse_offer(bytes: &[u8]) -> Result<Offer<'_>, Failure> {
    let secure_channel = *bytes.get(6).ok_or(Failure::InvalidPayload)?;
    let count = usize::from(*bytes.get(7).ok_or(Failure::InvalidPayload)?);
    let protocols = bytes.get(8..8 + count * PROTOCOL_SIZE).ok_or(Failure::InvalidPayload)?;
    let (protocols, _) = protocols.as_chunks::<PROTOCOL_SIZE>();
    let found = protocols.iter().find(|protocol| protocol[0] == DH_HMAC_CHAP);
    let found = found.ok_or(Failure::Protocol)?;
    let list = |count: u8, at: usize| {
        let ids = &found[at..at + LIST_SIZE];
        ids.get(..usize::from(count)).ok_or(Failure::InvalidPayload)
    };
    let hashes = list(found[2], 4)?;
    Ok(Offer {
        wants_secure_channel: secure_channel != 0,
        hashes,
        groups: list(found[3], 4 + LIST_SIZE)?,
    })
}

fn parse_reply(bytes: &[u8]) -> Result<Reply<'_>, Failure> {
    let header = bytes.get(..HEADER_SIZE).ok_or(Failure::InvalidPayload)?;
    let (size, public_size) = (usize::from(header[6]), usize::from(le16(header, 10)));
    let part = |at: usize, size: usize| bytes.get(at..at + size).ok_or(Failure::InvalidPayload);
    let challenge = part(HEADER_SIZE + size, size)?;
    Ok(Reply {
        response: part(HEADER_SIZE, size)?,
        challenge: (header[8] & 1 != 0).then_some(challenge),
        sequence: le32(header, 12),
        public: part(HEADER_SIZE + 2 * size, public_size)?,
    })
}

/// The challenge to a host.
pub(super) struct Challenge<'a> {
    pub(super) exchange: u16,
    pub(super) hash: Hash,
    /// The id of the group, and the public number of the controller.
    pub(super) group: (u8, &'a [u8]),
    pub(super) sequence: u32,
    pub(super) value: &'a [u8],
}

/// Bytes of a hash, as messages have them.
fn size_of(hash: Hash) -> u8 {
    u8::try_from(hash.size()).expect("hashes are short")
}

impl Challenge<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (group, public) = self.group;
        let mut page = Page::new(HEADER_SIZE + self.value.len() + public.len());
        page.put(0, &[1, 1])
            .put16(4, self.exchange)
            .put8(6, size_of(self.hash))
            .put8(8, self.hash as u8)
            .put8(9, group)
            .put16(10, u16::try_from(public.len()).expect("groups have up to 1024 bytes"))
            .put32(12, self.sequence)
            .put(HEADER_SIZE, self.value)
            .put(HEADER_SIZE + self.value.len(), public);
        page.into_bytes()
    }
}

/// The success, with the response of the controller if the host wants it.
pub(super) fn encode_success(exchange: u16, hash: Hash, response: Option<&Vec<u8>>) -> Vec<u8> {
    let bytes = response.map_or(&[][..], |response| response);
    // the field of the response is there in any case
    let mut page = Page::new(HEADER_SIZE + hash.size());
    page.put(0, &[1, 3])
        .put16(4, exchange)
        .put8(6, size_of(hash))
        .put8(8, u8::from(response.is_some()))
        .put(HEADER_SIZE, bytes);
    page.into_bytes()
}

/// The failure of a host.
pub(super) fn encode_failure(exchange: u16, why: Failure) -> Vec<u8> {
    let mut page = Page::new(HEADER_SIZE);
    page.put(0, &[0, 0xf0]).put16(4, exchange).put(6, &[1, why as u8]);
    page.into_bytes()
}
