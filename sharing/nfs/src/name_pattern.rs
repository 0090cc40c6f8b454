//! Patterns of host names, as exports(5) has them.
//!
//! ```text
//! *        any characters, also dots
//! ?        one character
//! [a-fx]   one character of a list; [!a-f] one that is not in it
//! ```

/// A part of a pattern that stands for one character.
enum Part<'a> {
    Byte(u8),
    Any,
    List { members: &'a [u8], is_negated: bool },
}

impl<'a> Part<'a> {
    /// The part at the beginning of a pattern, and what follows it. A bracket that is never closed stands for itself.
    fn split(pattern: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (first, rest) = pattern.split_first()?;
        if *first == b'[' {
            let (is_negated, list) = match rest.split_first() {
                Some((b'!' | b'^', list)) => (true, list),
                _ => (false, rest),
            };
            // a bracket that comes first is a member
            let end = list.iter().skip(1).position(|byte| *byte == b']').map(|at| at + 1);
            if let Some((members, [_, rest @ ..])) = end.and_then(|end| list.split_at_checked(end))
            {
                return Some((Self::List { members, is_negated }, rest));
            }
        }
        let part = if *first == b'?' { Self::Any } else { Self::Byte(*first) };
        Some((part, rest))
    }

    fn fits(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::Any => true,
            Self::List { members, is_negated } => is_member(members, byte) != *is_negated,
        }
    }
}

/// Whether a list has a character, by itself or in a range.
fn is_member(mut members: &[u8], byte: u8) -> bool {
    while let Some((first, rest)) = members.split_first() {
        let (last, rest) = match rest {
            [b'-', last, rest @ ..] => (last, rest),
            _ => (first, rest),
        };
        if (*first..=*last).contains(&byte) {
            return true;
        }
        members = rest;
    }
    false
}

/// Whether a name fits a pattern as a whole.
pub(crate) fn fits(name: &str, pattern: &str) -> bool {
    let (mut name, mut pattern) = (name.as_bytes(), pattern.as_bytes());
    // the pattern after the last `*`, and the rest of the name that it was compared with
    let mut star: Option<(&[u8], &[u8])> = None;
    while let Some((byte, rest_of_name)) = name.split_first() {
        if let Some((b'*', rest)) = pattern.split_first() {
            pattern = rest;
            star = Some((rest, name));
            continue;
        }
        match (Part::split(pattern), star) {
            (Some((part, rest)), _) if part.fits(*byte) => (name, pattern) = (rest_of_name, rest),
            // the `*` stands for one character more
            (_, Some((after, [_, reach @ ..]))) => {
                (name, pattern) = (reach, after);
                star = Some((after, reach));
            }
            (_, _) => return false,
        }
    }
    pattern.iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, fitting, others) in [
            (
                "*.lan",
                &["mac.lan", "a.b.lan", ".lan"][..],
                &["lan", "mac.lan.example", "maclan"][..],
            ),
            ("pc-?.lan", &["pc-1.lan"], &["pc-.lan", "pc-12.lan"]),
            ("a*b*c", &["abc", "axxbbxc", "abcbc"], &["ab", "acb", "abcd"]),
            ("**", &["", "x"], &[]),
            ("pc[1-3x].lan", &["pc1.lan", "pc3.lan", "pcx.lan"], &["pc4.lan", "pc.lan", "pc-.lan"]),
            ("*[!0-9].lan", &["mac.lan", "a1b.lan"], &["pc7.lan", ".lan"]),
            ("a*[bc]d", &["abd", "abcd", "abdcd"], &["ad", "abdd"]),
            ("[]x]", &["]", "x"], &["", "]x"]),
            ("[ab", &["[ab"], &["a"]),
        ] {
            assert!(fitting.iter().all(|name| fits(name, pattern)), "{pattern}");
            assert!(!others.iter().any(|name| fits(name, pattern)), "{pattern}");
        }
    }
}
