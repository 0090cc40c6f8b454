//! Names made equal: upper case and Unicode forms, as the hash of a normalized table wants them.
//!
//! Case is folded a character at a time before the form is made, and only where one character
//! stands for another: `ß` stays. Bytes that are no UTF-8 stay as they are. The format's tables
//! are those of an old Unicode; whoever looks up a name with characters whose case or form has
//! come since must not trust the hash (see [`is_plain`]).

use ondisk::zap::Normalization;
use unicode_normalization::UnicodeNormalization;

/// A name as it is hashed or compared.
pub fn normalize(name: &[u8], how: Normalization) -> Vec<u8> {
    if how.is_none() {
        return name.to_vec();
    }
    if name.is_ascii() {
        return if how.folds_case() { name.to_ascii_uppercase() } else { name.to_vec() };
    }
    let mut out = Vec::with_capacity(name.len());
    for piece in name.utf8_chunks() {
        let text = piece.valid().chars().map(|c| if how.folds_case() { upper(c) } else { c });
        let text: String = match how.form() {
            Normalization::NFD => text.nfd().collect(),
            Normalization::NFC => text.nfc().collect(),
            Normalization::NFKD => text.nfkd().collect(),
            Normalization::NFKC => text.nfkc().collect(),
            _ => text.collect(),
        };
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(piece.invalid());
    }
    out
}

/// Whether all versions of Unicode agree on the name.
pub(crate) fn is_plain(name: &[u8]) -> bool {
    name.is_ascii()
}

/// The upper case of a character, if that is one character.
fn upper(c: char) -> char {
    let mut all = c.to_uppercase();
    match (all.next(), all.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::{Normalization, normalize};

    #[test]
    fn forms_and_case_are_folded() {
        let both = Normalization(Normalization::UPPER.0 | Normalization::NFD.0);
        assert_eq!(normalize("é".as_bytes(), both), "E\u{301}".as_bytes());
        assert_eq!(normalize("e\u{301}".as_bytes(), Normalization::NFC), "é".as_bytes());
        assert_eq!(normalize("ﬁ".as_bytes(), Normalization::NFKC), b"fi");
        assert_eq!(normalize("Straße".as_bytes(), Normalization::UPPER), "STRAßE".as_bytes());
        assert_eq!(normalize(b"a\xff\xc3", Normalization::UPPER), b"A\xff\xc3");
    }
}
