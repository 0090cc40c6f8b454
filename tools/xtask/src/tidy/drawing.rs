//! Rules for the crate `ondisk`: a drawn structure is contiguous, and names its source.
//!
//! A drawing is a table in a doc comment whose first line begins with `offset size`. Each row's
//! offset is the end of the row before it, as far as both are plain numbers; a last row of one
//! number is the size of the whole. A row whose field begins with `or` shows other bytes of the
//! same offset. The table may end where the next field has no fixed offset.

use super::SourceFile;
use crate::Violation;

pub(crate) fn check(file: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut end: Option<u64> = None;
    let mut is_drawing = false;
    let mut has_drawing = false;
    for (index, line) in file.text.lines().enumerate() {
        let words = doc_text(line).map(|text| text.split_whitespace().collect::<Vec<_>>());
        match words.as_deref() {
            Some(["offset", "size", ..]) => (is_drawing, has_drawing, end) = (true, true, None),
            None | Some([] | ["```", ..]) => is_drawing = false,
            Some(words) if is_drawing => match parse_row(words) {
                Row::Field { offset, .. } if end.is_some_and(|end| end != offset) => {
                    let before = end.unwrap_or_default();
                    let what = format!("row at {offset}, but the row before it ends at {before}");
                    violations.push(Violation::new(format!("{}:{}", file.path, index + 1), what));
                    is_drawing = false;
                }
                Row::Field { offset, size } => end = size.map(|size| offset + size),
                Row::UnknownPlace => end = None,
                Row::Continuation => {}
            },
            Some(_) => {}
        }
    }
    if has_drawing && !file.text.contains("Learnt from:") {
        violations.push(Violation::new(&file.path, "draws a structure without `Learnt from:`"));
    }
    violations
}

enum Row {
    /// A field at a known place; of unknown size if the size is in words.
    Field { offset: u64, size: Option<u64> },
    /// The row begins with something like a place that is not a number, or shows the same bytes again.
    UnknownPlace,
    /// A continuation of the row before.
    Continuation,
}

fn parse_row(words: &[&str]) -> Row {
    match words {
        [_, _, "or", ..] => Row::UnknownPlace,
        [offset, rest @ ..] => match (parse_number(offset), rest.first()) {
            (Some(offset), Some(size)) => Row::Field { offset, size: parse_number(size) },
            (Some(offset), None) => Row::Field { offset, size: None },
            (None, _) if offset.starts_with(|c: char| c.is_ascii_digit()) => Row::UnknownPlace,
            (None, Some(size)) if parse_number(size).is_some() => Row::UnknownPlace,
            (None, _) => Row::Continuation,
        },
        [] => Row::Continuation,
    }
}

fn parse_number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_violations(rows: &str) -> usize {
        let rows: String = rows.lines().flat_map(|row| ["//! ", row, "\n"]).collect();
        let text =
            format!("//! ```text\n//! offset size field\n{rows}//! ```\n//! Learnt from: x\n");
        check(&SourceFile::with_all_rules("storage/ondisk/src/a.rs", &text)).len()
    }

    #[test]
    fn gaps_and_overlaps_are_found() {
        assert_eq!(count_violations("0 8 a\n8 4 b, which\n   goes on here\n12 4 c\n16"), 0);
        assert_eq!(count_violations("0 8 a\n12 4 b"), 1, "a gap");
        assert_eq!(count_violations("0 8 a\n4 4 b"), 1, "an overlap");
        assert_eq!(count_violations("0 8 a\n12"), 1, "the end");
        assert_eq!(count_violations("0 8 a\n8 n b\n99 4 c"), 0, "a size in words");
        assert_eq!(count_violations("0 8 a\nlen-40 40 c"), 0, "a place in words");
        assert_eq!(count_violations("0x0 0x10 a\n0x10 8 b"), 0);
    }

    #[test]
    fn drawing_without_source_is_reported() {
        let text = "//! offset size field\n//! 0 8 a\n";
        assert_eq!(check(&SourceFile::with_all_rules("storage/ondisk/src/a.rs", text)).len(), 1);
    }
}
