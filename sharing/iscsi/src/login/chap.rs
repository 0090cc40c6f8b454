//! CHAP: one side sends a challenge, the other proves by a hash that it knows the secret (RFC 1994; RFC 7143, 12.1.3).
//!
//! ```text
//! initiator                                target
//! CHAP_A=7,5                         ->
//!                                    <-    CHAP_A=7 CHAP_I=identifier CHAP_C=challenge
//! CHAP_N=user CHAP_R=hash            ->
//!   [CHAP_I=... CHAP_C=...]          <-    [CHAP_N=user CHAP_R=hash]
//! ```
//! The hash is of the identifier (a byte), the secret and the challenge.

use md5::Md5;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::target::Chap;
use crate::wire::text::Text;

/// Bytes of a challenge.
pub(crate) const CHALLENGE_SIZE: usize = 32;
/// Bytes of the longest challenge of an initiator.
const MAX_CHALLENGE: usize = 1024;

/// A hash that both sides know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    /// The strongest algorithm of an initiator's list.
    fn choose(list: &str) -> Option<Self> {
        let mut names = list.split(',').map(str::trim);
        if names.clone().any(|name| name == "7") {
            return Some(Self::Sha256);
        }
        names.any(|name| name == "5").then_some(Self::Md5)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "5",
            Self::Sha256 => "7",
        }
    }

    fn hash(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn sum<H: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut hash = H::new();
            for part in parts {
                hash.update(part);
            }
            hash.finalize().to_vec()
        }
        let parts = [&[identifier][..], secret, challenge];
        match self {
            Self::Md5 => sum::<Md5>(parts),
            Self::Sha256 => sum::<Sha256>(parts),
        }
    }
}

/// A challenge that was sent.
#[derive(Debug)]
pub(crate) struct Challenge {
    algorithm: Algorithm,
    identifier: u8,
    bytes: [u8; CHALLENGE_SIZE],
}

/// The initiator did not prove its name.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Refused;

impl Challenge {
    /// Answers CHAP_A with a challenge, made of random bytes.
    pub(crate) fn send(
        list: &str,
        (identifier, bytes): (u8, [u8; CHALLENGE_SIZE]),
        answer: &mut Text,
    ) -> Result<Self, Refused> {
        let algorithm = Algorithm::choose(list).ok_or(Refused)?;
        answer.push("CHAP_A", algorithm.name());
        answer.push("CHAP_I", &identifier);
        answer.push("CHAP_C", &encode(&bytes));
        Ok(Self { algorithm, identifier, bytes })
    }

    /// Checks the proof of the initiator, and answers the initiator's own challenge if it sent one.
    pub(crate) fn check(&self, chap: &Chap, keys: &Text, answer: &mut Text) -> Result<(), Refused> {
        let (name, proof) = (keys.value("CHAP_N"), keys.value("CHAP_R"));
        let (Some(name), Some(proof)) = (name, proof) else { return Err(Refused) };
        let proof = decode(proof).ok_or(Refused)?;
        let user = chap.initiator();
        let expected = self.algorithm.hash(self.identifier, user.secret(), &self.bytes);
        // both are compared, so that the time does not show whether the name was right
        let is_name = name.as_bytes().ct_eq(user.name().as_bytes());
        let is_proof = proof.ct_eq(&expected);
        if !bool::from(is_name & is_proof) {
            return Err(Refused);
        }
        match (keys.value("CHAP_I"), keys.value("CHAP_C")) {
            (None, None) => Ok(()),
            (Some(identifier), Some(challenge)) => self.prove(chap, identifier, challenge, answer),
            _ => Err(Refused),
        }
    }

    fn prove(
        &self,
        chap: &Chap,
        identifier: &str,
        challenge: &str,
        answer: &mut Text,
    ) -> Result<(), Refused> {
        let user = chap.target().ok_or(Refused)?;
        let identifier: u8 = identifier.parse().map_err(|_| Refused)?;
        let challenge = decode(challenge).ok_or(Refused)?;
        // a challenge that comes back would have the target compute the answer to its own
        if challenge.is_empty() || challenge.len() > MAX_CHALLENGE || challenge == self.bytes {
            return Err(Refused);
        }
        answer.push("CHAP_N", user.name());
        let proof = self.algorithm.hash(identifier, user.secret(), &challenge);
        answer.push("CHAP_R", &encode(&proof));
        Ok(())
    }
}

/// Bytes as hexadecimal digits.
fn encode(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

/// The bytes of a binary value: `0x` and hexadecimal digits, or `0b` and base64.
fn decode(value: &str) -> Option<Vec<u8>> {
    let (kind, digits) = value.split_at_checked(2)?;
    match kind {
        "0x" | "0X" => decode_hex(digits.as_bytes()),
        "0b" | "0B" => decode_base64(digits.as_bytes()),
        _ => None,
    }
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect()
}

fn decode_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let (groups, []) = digits.as_chunks::<4>() else { return None };
    let mut bytes = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|digit| **digit == b'=').count();
        if padding > 2 || padding > 0 && index + 1 != groups.len() {
            return None;
        }
        let mut value = 0_u32;
        for digit in &group[..4 - padding] {
            value = value << 6 | base64_value(*digit)?;
        }
        value <<= 6 * padding;
        bytes.extend_from_slice(&value.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

fn base64_value(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::ChapUser;

    #[test]
    fn binary_values_are_decoded() {
        assert_eq!(decode("0x00ffA0"), Some(vec![0, 255, 160]));
        assert_eq!(decode("0bAP+g"), Some(vec![0, 255, 160]));
        assert_eq!(decode("0bAP8="), Some(vec![0, 255]));
        assert_eq!(decode("0bAA=="), Some(vec![0]));
        for wrong in ["", "0", "0x0", "0xzz", "0bA", "0bAA=A", "0bA===", "0bAA==AP+g", "12", "0ü"]
        {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn hashes_are_those_of_rfc_1994() {
        // the hash of `printf '\x01secret of 1994\x10\x20' | md5sum`
        let proof = Algorithm::Md5.hash(1, b"secret of 1994", &[0x10, 0x20]);
        assert_eq!(encode(&proof), MD5_PROOF);
        assert_eq!(Algorithm::choose("8,7,6,5"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("5"), Some(Algorithm::Md5));
        for list in ["", "56", "6"] {
            assert_eq!(Algorithm::choose(list), None);
        }
    }

    const MD5_PROOF: &str = "0x3ca9dc5d3b2cc763e3b0ffdd609de11f";

    fn chap() -> Chap {
        let user = |name, secret| ChapUser::new(name, secret).unwrap();
        Chap::new(user("alice", b"the secret of alice"), Some(user("disk", b"the secret of disk")))
            .unwrap()
    }

    fn keys(keys: &[(&str, &str)]) -> Text {
        let mut text = Text::default();
        for (key, value) in keys {
            text.push(key, value);
        }
        text
    }

    fn challenge() -> Challenge {
        let mut answer = Text::default();
        let challenge = Challenge::send("5", (9, [7; CHALLENGE_SIZE]), &mut answer).unwrap();
        assert_eq!((answer.value("CHAP_A"), answer.value("CHAP_I")), (Some("5"), Some("9")));
        challenge
    }

    #[test]
    fn proofs_are_checked_both_ways() {
        let proof = encode(&Algorithm::Md5.hash(9, b"the secret of alice", &[7; CHALLENGE_SIZE]));
        let right = [("CHAP_N", "alice"), ("CHAP_R", proof.as_str())];
        let mut answer = Text::default();
        assert_eq!(challenge().check(&chap(), &keys(&right), &mut answer), Ok(()));
        assert_eq!(answer, Text::default());
        let mutual = [&right[..], &[("CHAP_I", "3"), ("CHAP_C", "0x0102")]].concat();
        assert_eq!(challenge().check(&chap(), &keys(&mutual), &mut answer), Ok(()));
        let expected = encode(&Algorithm::Md5.hash(3, b"the secret of disk", &[1, 2]));
        assert_eq!(answer.value("CHAP_R"), Some(expected.as_str()));
        assert_eq!(answer.value("CHAP_N"), Some("disk"));
    }

    #[test]
    fn wrong_proofs_and_reflections_are_refused() {
        let proof = encode(&Algorithm::Md5.hash(9, b"the secret of alice", &[7; CHALLENGE_SIZE]));
        let reflected = encode(&[7; CHALLENGE_SIZE]);
        let wrong: [&[(&str, &str)]; 6] = [
            &[("CHAP_N", "bob"), ("CHAP_R", &proof)],
            &[("CHAP_N", "alice"), ("CHAP_R", "0x00")],
            &[("CHAP_N", "alice")],
            &[("CHAP_N", "alice"), ("CHAP_R", &proof), ("CHAP_I", "9"), ("CHAP_C", &reflected)],
            &[("CHAP_N", "alice"), ("CHAP_R", &proof), ("CHAP_I", "9")],
            &[("CHAP_N", "alice"), ("CHAP_R", &proof), ("CHAP_I", "300"), ("CHAP_C", "0x01")],
        ];
        for text in wrong {
            let checked = challenge().check(&chap(), &keys(text), &mut Text::default());
            assert_eq!(checked, Err(Refused), "{text:?}");
        }
    }
}
