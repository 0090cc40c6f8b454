//! Tables of guarantees name the tests that prove them, and the files that implement them: these
//! exist.

use std::collections::BTreeSet;
use std::path::Path;

use super::SourceFile;
use crate::Violation;

/// The documents with such tables.
const DOCUMENTS: [&str; 3] = ["COMPAT.md", "docs/crash.md", "docs/threads-and-locks.md"];

/// A test is named in backticks by its path, as `fixtures::mirror_2` or `blkptr::golden`; a file by its own,
/// as `storage/spa/src/commit.rs`.
pub(crate) fn check(root: &Path, files: &[SourceFile]) -> Vec<Violation> {
    let known: BTreeSet<&str> = files.iter().flat_map(|file| test_names(file)).collect();
    let mut violations = Vec::new();
    for document in DOCUMENTS {
        let Ok(text) = std::fs::read_to_string(root.join(document)) else {
            violations.push(Violation::new(document, "is not there"));
            continue;
        };
        for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
            let place = format!("{document}:{}", index + 1);
            for name in cited_tests(line).filter(|name| !known.contains(name)) {
                violations.push(Violation::new(&place, format!("there is no test `{name}`")));
            }
            for path in cited_files(line).filter(|path| !root.join(path).exists()) {
                violations.push(Violation::new(&place, format!("there is no file `{path}`")));
            }
        }
    }
    violations
}

/// The words in backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn cited_files(line: &str) -> impl Iterator<Item = &str> {
    let is_rust = |path: &str| Path::new(path).extension().is_some_and(|end| end == "rs");
    quoted(line).filter(move |path| path.contains('/') && is_rust(path))
}

/// The last words of the paths in backticks.
fn cited_tests(line: &str) -> impl Iterator<Item = &str> {
    quoted(line).filter_map(|path| path.rsplit_once("::")).map(|(_, name)| name)
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
        assert_eq!(
            cited_files("| `W1` | `a/b.rs`, `c.rs`, `d/e` |").collect::<Vec<_>>(),
            ["a/b.rs"]
        );
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
