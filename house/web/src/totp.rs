//! One-time codes of authenticator apps: TOTP (RFC 6238) with HMAC-SHA-1, 6 digits and steps of 30 seconds, the
//! parameters that all apps know.

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;

/// The seconds for which a code holds.
const STEP: u64 = 30;
/// The bytes of a secret: those of a SHA-1 hash, as RFC 4226 recommends.
pub(crate) const SECRET_BYTES: usize = 20;
/// The digits of base 32 (RFC 4648).
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// A secret in base 32, as authenticator apps take it.
pub(crate) fn encode_secret(secret: &[u8; SECRET_BYTES]) -> String {
    let bits: Vec<u8> =
        secret.iter().flat_map(|byte| (0..8).rev().map(move |bit| (byte >> bit) & 1)).collect();
    let digit = |five: &[u8]| five.iter().fold(0, |sum, bit| (sum << 1) | usize::from(*bit));
    let digits = bits.chunks(5).filter_map(|five| BASE32.get(digit(five)));
    digits.copied().map(char::from).collect()
}

/// The bytes of a secret in base 32; none: it is damaged.
fn decode_secret(text: &str) -> Option<Vec<u8>> {
    let mut bits = Vec::new();
    for letter in text.bytes() {
        let digit = BASE32.iter().position(|known| *known == letter)?;
        bits.extend((0..5).rev().map(|bit| (digit >> bit) & 1 == 1));
    }
    let byte = |eight: &[bool]| eight.iter().fold(0, |sum, bit| (sum << 1) | u8::from(*bit));
    Some(bits.chunks_exact(8).map(byte).collect())
}

/// The code of a step: the HOTP value (RFC 4226, section 5.3).
fn code(secret: &[u8], step: u64) -> Option<String> {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let hash = tag.as_ref();
    let offset = usize::from(hash.last()? & 0xf);
    let four = hash.get(offset..offset + 4)?.try_into().ok()?;
    Some(format!("{:06}", (u32::from_be_bytes(four) & 0x7fff_ffff) % 1_000_000))
}

/// The step of a code that holds now, or one step earlier or later, since clocks differ. `last` is the step of the
/// code that was used last: no code works twice.
pub(crate) fn verify(secret: &str, typed: &str, last: u64, now: u64) -> Option<u64> {
    let secret = decode_secret(secret)?;
    let typed: String = typed.chars().filter(|letter| !letter.is_whitespace()).collect();
    let present = now / STEP;
    let mut steps = present.checked_sub(1).into_iter().chain([present, present + 1]);
    steps.find(|step| {
        let right = code(&secret, *step);
        let is_right =
            right.is_some_and(|right| bool::from(right.as_bytes().ct_eq(typed.as_bytes())));
        is_right && *step > last
    })
}

#[cfg(test)]
mod tests {
    use super::{SECRET_BYTES, code, decode_secret, encode_secret, verify};

    /// The secret of the test vectors of RFC 6238, appendix B.
    const SECRET: &[u8; SECRET_BYTES] = b"12345678901234567890";

    #[test]
    fn codes_are_those_of_rfc_6238() {
        for (time, expected) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_234_567_890, "005924"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(code(SECRET, time / 30).as_deref(), Some(expected), "{time}");
        }
    }

    #[test]
    fn secrets_survive_base_32() {
        let text = encode_secret(SECRET);
        assert_eq!(text, "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        assert_eq!(decode_secret(&text).as_deref(), Some(&SECRET[..]));
        assert_eq!(decode_secret("GEZ!"), None);
    }

    #[test]
    fn codes_work_once_and_for_a_minute() {
        let secret = encode_secret(SECRET);
        assert_eq!(verify(&secret, "287 082", 0, 59), Some(1));
        assert_eq!(verify(&secret, "287082", 1, 59), None);
        assert_eq!(verify(&secret, "287082", 0, 89), Some(1));
        assert_eq!(verify(&secret, "287082", 0, 90), None);
        assert_eq!(verify(&secret, "", 0, 59), None);
        assert_eq!(verify("broken", "287082", 0, 59), None);
    }
}
