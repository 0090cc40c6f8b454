//! The tour of the code: each link leads to a file that has the named function or type.

use std::path::Path;

use crate::Violation;

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
    violations
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
    fn links_name_functions_or_files() {
        let line = "1. [`A::b`](../x.rs) calls [`c`](../y/c.rs), and `d` too.";
        assert_eq!(links(line).collect::<Vec<_>>(), [("A::b", "../x.rs"), ("c", "../y/c.rs")]);
        assert!(has_name("pub fn b(&self) {}", "../x.rs", "A::b"));
        assert!(has_name("", "../y/c.rs", "c.rs"));
        assert!(!has_name("fn bc() {}", "../x.rs", "b"));
    }
}
