//! The width of text, and text cut to a width.
//!
//! The viewer chooses the font, so its width can only be assumed: that of DejaVu Sans, which is
//! wider than the fonts of most browsers.

/// The mark of removed text.
const ELLIPSIS: char = '…';

/// Width of a letter in parts of its size.
fn char_width(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '|' | '\'' => 0.30,
        ' ' | '.' | ',' | ':' | ';' | '/' | '\\' | '!' | 'I' => 0.35,
        '-' | '(' | ')' | '[' | ']' | 'f' | 'r' | 't' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | ELLIPSIS => 1.0,
        'A'..='Z' => 0.79,
        letter if letter.is_ascii() => 0.65,
        _ => 1.0,
    }
}

/// The text if it fits into `room` units in letters of `size` units; or else as much of its start
/// and end as fits. The end of a path, and of most names, is more informative.
pub(crate) fn truncate_middle(words: &str, room: f64, size: f64) -> String {
    let mut left = room / size;
    if words.chars().map(char_width).sum::<f64>() <= left {
        return words.to_owned();
    }
    left -= char_width(ELLIPSIS);
    let mut for_begin = left / 3.0;
    let begin: String =
        words.chars().take_while(|&letter| reserve_width(&mut for_begin, letter)).collect();
    let mut for_end = left - begin.chars().map(char_width).sum::<f64>();
    let end: Vec<char> =
        words.chars().rev().take_while(|&letter| reserve_width(&mut for_end, letter)).collect();
    let mut cut = begin;
    cut.push(ELLIPSIS);
    cut.extend(end.into_iter().rev());
    cut
}

/// Whether a letter fits; its width is then subtracted.
fn reserve_width(room: &mut f64, letter: char) -> bool {
    *room -= char_width(letter);
    *room >= 0.0
}

#[cfg(test)]
mod tests {
    use super::truncate_middle;

    #[test]
    fn long_text_loses_its_middle() {
        assert_eq!(truncate_middle("random read 4K, 32 at a time", 400.0, 12.0).len(), 28);
        let path = "/srv/machines/of/the/house/images/of/drives/that/are/kept/drive-17: outer";
        let cut = truncate_middle(path, 400.0, 12.0);
        assert!(cut.starts_with("/srv/mach") && cut.ends_with("/drive-17: outer"), "{cut}");
        assert!(cut.contains('…') && cut.chars().count() < path.len(), "{cut}");
        assert_eq!(truncate_middle("wide", 0.0, 12.0), "…");
        let wide = truncate_middle(&"W".repeat(100), 120.0, 12.0);
        assert_eq!(wide.chars().count(), 10, "{wide}");
    }
}
