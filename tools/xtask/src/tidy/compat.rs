//! COMPAT.md promises nothing that no test proves: each test it names exists.

use std::collections::BTreeSet;
use std::path::Path;

use super::File;
use crate::Violation;

const FILE: &str = "COMPAT.md";

/// A test is named in backticks by its path, as `fixtures::mirror_2` or `blkptr::golden`.
pub(crate) fn check(root: &Path, files: &[File]) -> Vec<Violation> {
    let Ok(text) = std::fs::read_to_string(root.join(FILE)) else {
        return vec![Violation::new(FILE, "is not there")];
    };
    let known: BTreeSet<&str> = files.iter().flat_map(|file| tests_of(file)).collect();
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        for name in named_tests(line).filter(|name| !known.contains(name)) {
            let place = format!("{FILE}:{}", index + 1);
            violations.push(Violation::new(place, format!("there is no test `{name}`")));
        }
    }
    violations
}

/// The last words of the paths in backticks.
fn named_tests(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter_map(|path| path.rsplit_once("::")).map(|(_, n)| n)
}

/// Names of functions; in `fixtures.rs` of a test program, where a macro makes a test of each name,
/// every word.
fn tests_of(file: &File) -> Vec<&str> {
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
    fn tests_are_named_in_backticks_with_a_path() {
        let line = "| `zstd` | reads | `fixtures::mirror_2`, `a::b::c` |";
        assert_eq!(named_tests(line).collect::<Vec<_>>(), ["mirror_2", "c"]);
    }

    #[test]
    fn functions_are_tests_and_in_the_list_of_fixtures_words_are() {
        let file = File::strict("a.rs", "fn golden() { mirror_2 }");
        assert_eq!(tests_of(&file), ["golden"]);
        let list = File { is_test: true, ..File::strict("tests/it/fixtures.rs", "each! { m }") };
        assert!(tests_of(&list).contains(&"m"));
    }
}
