//! The tour of the code: each link leads to a file that has the named function or type.

use std::path::Path;

use crate::workspace::{self, Crate};
use crate::{Violation, relative_path};

const DOCUMENT: &str = "docs/tour-of-the-code.md";

/// A step names its place as ``[`name`](../path.rs)``. The name is a function or a type of the file, or the
/// file's own name.
pub(crate) fn check(root: &Path) -> Vec<Violation> {
    let Ok(text) = std::fs::read_to_string(root.join(DOCUMENT)) else {
        return vec![Violation::new(DOCUMENT, "is missing")];
    };
    let mut violations = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for (name, path) in links(line) {
            let place = format!("{DOCUMENT}:{number}");
            match std::fs::read_to_string(root.join("docs").join(path)) {
                Err(_) => {
                    violations.push(Violation::new(place, format!("`{path}` does not exist")));
                }
                Ok(code) if !has_name(&code, path, name) => {
                    violations.push(Violation::new(place, format!("`{path}` has no `{name}`")));
                }
                Ok(_) => {}
            }
        }
    }
    let crates = workspace::load_crates(root).unwrap_or_default();
    let floor = |path: &str| floor_of(root, &crates, path);
    violations.extend(check_write_path(&text, &floor));
    violations
}

/// The section with the files of a write: a row of its table for each.
const WRITE_PATH: &str = "### The files of a write";
/// Files that a write passes through, at most.
const MAX_WRITE_FILES: usize = 25;

/// A write passes through few files, each on a floor at or below that of the one before. Only a hook climbs: a trait of
/// the lower floor that the upper one provides.
fn check_write_path(text: &str, floor: &dyn Fn(&str) -> Option<i64>) -> Vec<Violation> {
    let section = text.split_once(WRITE_PATH).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut violations = Vec::new();
    let (mut files, mut hooks, mut last) = (Vec::new(), 0, i64::MAX);
    for line in section.lines().filter(|line| line.starts_with("| [`")) {
        let Some((_, path)) = links(line).next() else { continue };
        files.push(path);
        let Some(this) = floor(path) else {
            violations.push(Violation::new(DOCUMENT, format!("`{path}` is in no crate")));
            continue;
        };
        // the transport calls the mount that is registered with it
        if line.trim_end().ends_with("| transport |") {
            continue;
        }
        let is_hook = line.trim_end().ends_with("| hook |");
        hooks += usize::from(is_hook);
        if this > last && !is_hook {
            let what = format!("a write climbs from floor {last} to {this} at `{path}`");
            violations.push(Violation::new(DOCUMENT, what));
        }
        last = this;
    }
    files.sort_unstable();
    files.dedup();
    if files.is_empty() || files.len() > MAX_WRITE_FILES || hooks > 1 {
        let what = format!(
            "a write passes through {} files and {hooks} hooks: {MAX_WRITE_FILES} files and one hook are allowed",
            files.len()
        );
        violations.push(Violation::new(DOCUMENT, what));
    }
    violations
}

/// The floor of the crate in which a linked file is.
fn floor_of(root: &Path, crates: &[Crate], path: &str) -> Option<i64> {
    let path = path.strip_prefix("../").unwrap_or(path);
    let is_inside =
        |each: &&Crate| path.starts_with(&format!("{}/", relative_path(root, &each.dir)));
    crates.iter().find(is_inside)?.floor
}

/// The links of a line: names and paths.
fn links(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split("[`").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once("`](")?;
        Some((name, rest.split_once(')')?.0))
    })
}

/// Whether a file defines the function or type of a name, which may be a path (`Type::function`), or is
/// called so.
fn has_name(code: &str, path: &str, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    let defines = |keyword: &str| {
        let begin = format!("{keyword} {last}");
        code.match_indices(&begin).any(|(at, _)| is_end(code[at + begin.len()..].chars().next()))
    };
    path.ends_with(&format!("/{name}"))
        || ["fn", "struct", "enum", "trait"].into_iter().any(defines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_climbs_by_a_hook_only() {
        let floor = |path: &str| path.strip_suffix(".rs")?.parse().ok();
        let row = |path: &str, mark: &str| format!("| [`write`]({path}) | does it | {mark} |\n");
        let page =
            |rows: String| format!("{WRITE_PATH}\n\n{rows}\n## A read\n{}", row("99.rs", ""));
        let path = |last: &str| page(row("9.rs", "") + &row("4.rs", "") + last + &row("3.rs", ""));
        assert_eq!(check_write_path(&path(&row("7.rs", "hook")), &floor), []);
        assert_eq!(check_write_path(&path(&row("7.rs", "")), &floor).len(), 1);
        let many: String =
            (0..=MAX_WRITE_FILES).rev().map(|at| row(&format!("{at}.rs"), "")).collect();
        assert_eq!(check_write_path(&page(many), &floor).len(), 1);
        assert_eq!(check_write_path("", &floor).len(), 1, "the section is there");
    }

    #[test]
    fn links_name_functions_or_files() {
        let line = "1. [`A::b`](../x.rs) calls [`c`](../y/c.rs), and `d` too.";
        assert_eq!(links(line).collect::<Vec<_>>(), [("A::b", "../x.rs"), ("c", "../y/c.rs")]);
        assert!(has_name("pub fn b(&self) {}", "../x.rs", "A::b"));
        assert!(has_name("", "../y/c.rs", "c.rs"));
        assert!(!has_name("fn bc() {}", "../x.rs", "b"));
    }
}
