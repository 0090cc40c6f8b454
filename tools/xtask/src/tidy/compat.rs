//! COMPAT.md promises nothing that no test proves: each test it names exists.

use std::collections::BTreeSet;
use std::path::Path;

use super::SourceFile;
use crate::Violation;

const FILE: &str = "COMPAT.md";

/// A test is named in backticks by its path, as `fixtures::mirror_2` or `blkptr::golden`.
pub(crate) fn check(root: &Path, files: &[SourceFile]) -> Vec<Violation> {
    let Ok(text) = std::fs::read_to_string(root.join(FILE)) else {
        return vec![Violation::new(FILE, "is not there")];
    };
    let known: BTreeSet<&str> = files.iter().flat_map(|file| test_names(file)).collect();
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        for name in cited_tests(line).filter(|name| !known.contains(name)) {
            let place = format!("{FILE}:{}", index + 1);
            violations.push(Violation::new(place, format!("there is no test `{name}`")));
        }
    }
    violations
}

/// The last words of the paths in backticks.
fn cited_tests(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter_map(|path| path.rsplit_once("::")).map(|(_, n)| n)
}

/// Names of functions; in `fixtures.rs` of a test program, where a macro makes a test of each name,
/// every word.
fn test_names(file: &SourceFile) -> Vec<&str> {
    let words = file.text.split(|c: char| !c.is_alphanumeric() && c != '_');
    if file.is_test && file.path.ends_with("/fixtures.rs") {
        return words.collect();
    }
    let all: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    all.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cited_tests_are_paths_in_backticks() {
        let line = "| `zstd` | reads | `fixtures::mirror_2`, `a::b::c` |";
        assert_eq!(cited_tests(line).collect::<Vec<_>>(), ["mirror_2", "c"]);
    }

    #[test]
    fn fixture_lists_name_tests_by_word() {
        let file = SourceFile::with_all_rules("a.rs", "fn golden() { mirror_2 }");
        assert_eq!(test_names(&file), ["golden"]);
        let list = SourceFile {
            is_test: true,
            ..SourceFile::with_all_rules("tests/it/fixtures.rs", "each! { m }")
        };
        assert!(test_names(&list).contains(&"m"));
    }
}
