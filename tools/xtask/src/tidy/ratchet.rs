//! The ratchet: sizes beyond a limit when the rule was added may stay, but may not grow.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::Violation;

const FILE: &str = "tools/xtask/ratchet.txt";
const HEADER: &str = "\
# What is longer than the house allows, and by how much at most: KIND FILE ITEM SIZE.
# `cargo xtask ratchet` takes out what is no longer needed. Nothing is added without a reason, given
# in the commit.
";

/// The kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LimitKind {
    /// Lines of a function, at most 70.
    Function,
    /// Lines of a file, at most 600.
    File,
    /// Bare `u64` parameters of a public function, at most one.
    BareNumbers,
    /// Clamps of a crate, which hide mistakes of ours.
    Clamps,
}

impl LimitKind {
    const ALL: [LimitKind; 4] =
        [LimitKind::Function, LimitKind::File, LimitKind::BareNumbers, LimitKind::Clamps];

    fn message(self, size: usize) -> String {
        match self {
            LimitKind::Function => format!("has {size} lines, more than 70: take a part out"),
            LimitKind::File => format!("has {size} lines, more than 600: one concept a file"),
            LimitKind::BareNumbers => {
                format!("takes {size} bare u64s, easily swapped: name their type")
            }
            LimitKind::Clamps => {
                format!("has {size} clamps, more than before: see STYLE.md, Arithmetic")
            }
        }
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitKind::Function => "function",
            LimitKind::File => "file",
            LimitKind::BareNumbers => "bare-u64",
            LimitKind::Clamps => "clamps",
        })
    }
}

/// Kind, file and item, with the size; only those over the limit.
pub(crate) type Sizes = BTreeMap<(LimitKind, String, String), usize>;

/// The allowed sizes.
pub(crate) fn load(root: &Path) -> Result<Sizes, Vec<Violation>> {
    let text = std::fs::read_to_string(root.join(FILE)).unwrap_or_default();
    parse(&text).map_err(|line| vec![Violation::new(FILE, format!("not understood: {line}"))])
}

fn parse(text: &str) -> Result<Sizes, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [kind, file, item, size] = words[..] else { return Err(line.to_owned()) };
            let kind = LimitKind::ALL.into_iter().find(|each| each.to_string() == kind);
            let size = size.parse().map_err(|_| line.to_owned())?;
            Ok(((kind.ok_or(line)?, file.to_owned(), item.to_owned()), size))
        })
        .collect()
}

/// Sizes over the limit that are not allowed, and unneeded allowances.
pub(crate) fn check(allowed: &Sizes, sizes: &Sizes) -> Vec<Violation> {
    let grown = sizes.iter().filter(|(key, size)| allowed.get(key).is_none_or(|most| size > &most));
    let grown = grown.map(|((kind, file, item), size)| {
        Violation::new(format!("{file} {item}"), kind.message(*size))
    });
    let loose = allowed.iter().filter(|(key, most)| sizes.get(key).is_none_or(|size| size < most));
    let loose = loose.map(|((kind, file, item), _)| {
        let what = format!("{kind} {file} {item} has become smaller: run `cargo xtask ratchet`");
        Violation::new(FILE, what)
    });
    grown.chain(loose).collect()
}

/// Writes the ratchet with every size at its present value, if that is less.
pub(crate) fn tighten(root: &Path, sizes: &Sizes) -> Result<(), Vec<Violation>> {
    let allowed = load(root)?;
    let kept = allowed.into_iter().filter_map(|(key, most)| {
        let size = most.min(*sizes.get(&key)?);
        Some((key, size))
    });
    write(root, &kept.collect())
}

/// Writes the ratchet with every size at its present value.
pub(crate) fn write(root: &Path, sizes: &Sizes) -> Result<(), Vec<Violation>> {
    let lines =
        sizes.iter().map(|((kind, file, item), size)| format!("{kind} {file} {item} {size}\n"));
    let text: String = std::iter::once(HEADER.to_owned()).chain(lines).collect();
    std::fs::write(root.join(FILE), text)
        .map_err(|error| vec![Violation::new(FILE, error.to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_and_slack_are_reported() {
        let allowed = parse("# x\nfunction a.rs f 80\nfile b.rs - 700\n").unwrap();
        assert_eq!(check(&allowed, &allowed), []);
        let grown = parse("function a.rs f 81\nfile b.rs - 700\n").unwrap();
        assert_eq!(check(&allowed, &grown)[0].location, "a.rs f");
        let gone = parse("function a.rs f 80\n").unwrap();
        assert_eq!(check(&allowed, &gone)[0].location, FILE);
        assert!(parse("function a.rs f\n").is_err());
    }
}
