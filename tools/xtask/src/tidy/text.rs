//! Rules for lines: their length, and a header that describes the file.
//!
//! rustfmt keeps code within 100 columns. Lines that it leaves alone (drawings, tables in macros)
//! may have 130; a sentence for the user stays on one line, however long, so that a search finds
//! it.

use super::SourceFile;
use crate::Violation;

const MAX_COLUMNS: usize = 130;
/// A literal of this many characters is a sentence.
const MIN_SENTENCE_LEN: usize = 60;

pub(crate) fn check(file: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !has_header(&file.text) {
        let what = "begins with no `//!` header that describes the file";
        violations.push(Violation::new(&file.path, what));
    }
    if file.is_generated {
        return violations;
    }
    let numbered = (1..).zip(file.text.lines());
    let long =
        numbered.filter(|(_, line)| line.chars().count() > MAX_COLUMNS && !has_sentence(line));
    let long: Vec<String> = long.map(|(number, _): (usize, _)| number.to_string()).collect();
    if let Some(first) = long.first() {
        let what = format!("longer than 130 columns: lines {}", long.join(", "));
        violations.push(Violation::new(format!("{}:{first}", file.path), what));
    }
    violations
}

/// Whether a line holds a sentence that is kept whole.
fn has_sentence(line: &str) -> bool {
    line.split('"').skip(1).step_by(2).any(|literal| literal.chars().count() >= MIN_SENTENCE_LEN)
}

/// The first line that is neither blank nor an inner attribute is a `//!` line with words in it.
fn has_header(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#![") && !line.starts_with("// "))
        .and_then(|line| line.strip_prefix("//!"))
        .is_some_and(|rest| !rest.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_must_precede_code() {
        assert!(has_header("#![forbid(unsafe_code)]\n\n//! What it is.\nuse x;\n"));
        assert!(!has_header("use x;\n//! Too late.\n"));
        assert!(!has_header("//!\n"));
    }

    #[test]
    fn columns_are_counted_in_characters() {
        let fits = format!("//! {}", "é".repeat(126));
        assert_eq!(check(&SourceFile::with_all_rules("a.rs", &fits)), []);
        assert_eq!(check(&SourceFile::with_all_rules("a.rs", &format!("{fits}x"))).len(), 1);
    }
}
