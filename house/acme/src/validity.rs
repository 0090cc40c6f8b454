//! From when and until when a certificate holds: two times in the bytes of X.509 (RFC 5280), which are DER.
//!
//! ```text
//! SEQUENCE                   the certificate
//!   SEQUENCE                 what is signed
//!     [0] version, INTEGER serial number, SEQUENCE algorithm, SEQUENCE issuer
//!     SEQUENCE               from, until: UTCTime YYMMDDHHMMSSZ or GeneralizedTime YYYYMMDDHHMMSSZ
//! ```

use base64ct::{Base64, Encoding as _};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The times of the first certificate of a chain in PEM, in seconds since 1970.
pub(crate) fn validity(chain: &str) -> Option<(u64, u64)> {
    let (_, rest) = chain.split_once(BEGIN)?;
    let text: String = rest.split_once(END)?.0.split_whitespace().collect();
    let der = Base64::decode_vec(&text).ok()?;
    let (certificate, _) = element(&der, SEQUENCE)?;
    let (signed, _) = element(certificate, SEQUENCE)?;
    let rest = match element(signed, VERSION) {
        Some((_, rest)) => rest,
        None => signed,
    };
    let mut rest = rest;
    for _ in ["serial number", "algorithm", "issuer"] {
        let tag = *rest.first()?;
        (_, rest) = element(rest, tag)?;
    }
    let (times, _) = element(rest, SEQUENCE)?;
    let (from, rest) = time(times)?;
    let (until, _) = time(rest)?;
    Some((from, until))
}

/// The content of the element in front, which has this tag, and what is behind it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first().filter(|_| *found == tag)?;
    let (length, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        // the number of bytes of the length
        long @ 0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long - 0x80))?;
            let length = digits.iter().try_fold(0_usize, |sum, digit| {
                sum.checked_mul(256)?.checked_add(usize::from(*digit))
            })?;
            (length, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// The time in front, in seconds since 1970, and what is behind it.
fn time(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let tag = *bytes.first()?;
    let (text, rest) = element(bytes, tag)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, text) = match tag {
        UTC_TIME => {
            let (year, text) = (number(text, 0..2)?, text.get(2..)?);
            (if year < 50 { 2000 + year } else { 1900 + year }, text)
        }
        GENERALIZED_TIME => (number(text, 0..4)?, text.get(4..)?),
        _ => return None,
    };
    if text.len() != 10 {
        return None;
    }
    let part = |at: usize| number(text, at..at + 2);
    let (month, day) = (part(0)?, part(2)?);
    let (hour, minute, second) = (part(4)?, part(6)?, part(8)?);
    let is_date =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some((days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second, rest))
}

fn number(text: &str, range: std::ops::Range<usize>) -> Option<u64> {
    let digits = text.get(range)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The days from 1970 to a day of the Gregorian calendar: years begin in March here, so that the leap day is their last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month > 2 { year } else { year - 1 };
    let months = (month + 9) % 12;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * months + 2) / 5 + day - 1;
    // of the first of March of the year 0
    days - 719_468
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::{days_since_1970, validity};

    #[test]
    fn times_of_certificates_are_read() {
        let mut params = CertificateParams::new(vec!["nas.example.org".to_owned()]).unwrap();
        for (from, until, seconds) in [
            ((2026, 11, 28), (2027, 2, 26), (1_795_824_000, 1_803_600_000)),
            // a time after 2049 has another form
            ((1999, 12, 31), (2100, 3, 1), (946_598_400, 4_107_542_400)),
        ] {
            params.not_before = date_time_ymd(from.0, from.1, from.2);
            params.not_after = date_time_ymd(until.0, until.1, until.2);
            let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
            assert_eq!(validity(&pem), Some(seconds));
            for cut in 0..pem.len() {
                // no panic on a part of it
                let _ = validity(&format!("{}-----END CERTIFICATE-----", &pem[..cut]));
            }
        }
        assert_eq!((days_since_1970(1970, 1, 1), days_since_1970(2000, 2, 29)), (0, 11_016));
        assert_eq!(validity("no certificate"), None);
    }
}
