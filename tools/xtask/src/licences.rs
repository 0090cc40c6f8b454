//! The licences of linked packages: `deny.toml` must allow each dependency's expression.
//!
//! The expressions are those of SPDX: identifiers with AND, OR, WITH and brackets. `cargo tree` names them, so that
//! nothing has to be installed for it.

use std::path::Path;
use std::process::Command;

use crate::Violation;

/// Checks all dependencies but our own crates.
pub fn check(root: &Path) -> Result<(), Vec<Violation>> {
    let allowed = read_allowed(&root.join("deny.toml"))?;
    let mut tree = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tree.args(["tree", "--locked", "--workspace", "--edges", "normal,build", "--prefix", "none"]);
    tree.args(["--format", "{p}\t{l}"]).current_dir(root);
    let failed = |why: String| vec![Violation::new("cargo tree", why)];
    let done = tree.output().map_err(|why| failed(why.to_string()))?;
    if !done.status.success() {
        return Err(failed(String::from_utf8_lossy(&done.stderr).into_owned()));
    }
    let refused = refused_packages(&String::from_utf8_lossy(&done.stdout), &allowed);
    if refused.is_empty() { Ok(()) } else { Err(refused) }
}

fn read_allowed(path: &Path) -> Result<Vec<String>, Vec<Violation>> {
    let failed = |why: String| vec![Violation::new("deny.toml", why)];
    let text = std::fs::read_to_string(path).map_err(|why| failed(why.to_string()))?;
    let table: toml::Table =
        text.parse().map_err(|why: toml::de::Error| failed(why.to_string()))?;
    let list = table.get("licenses").and_then(|licences| licences.get("allow")?.as_array());
    let list = list.ok_or_else(|| failed("there is no list licenses.allow".to_owned()))?;
    Ok(list.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect())
}

/// The packages among lines of `NAME VERSION [(PATH)] TAB LICENCE` whose licence is not allowed.
fn refused_packages(lines: &str, allowed: &[String]) -> Vec<Violation> {
    let mut refused = std::collections::BTreeMap::new();
    for line in lines.lines() {
        // cargo marks packages that it has shown before
        let line = line.trim_end_matches(" (*)");
        let Some((package, licence)) = line.split_once('\t') else { continue };
        // our own crates have a path
        if package.contains(" (/") || is_met(licence, allowed) {
            continue;
        }
        let licence = if licence.is_empty() { "no licence" } else { licence };
        refused.insert(package.to_owned(), format!("{licence}: deny.toml does not allow it"));
    }
    refused.into_iter().map(|(package, why)| Violation::new(&package, why)).collect()
}

/// Whether an expression is met by licences that are allowed.
fn is_met(expression: &str, allowed: &[String]) -> bool {
    // older packages write OR as a slash
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = Words(spaced.split_whitespace().collect(), 0);
    let met = any(&mut words, allowed);
    met == Some(true) && words.peek().is_none()
}

struct Words<'a>(Vec<&'a str>, usize);

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.0.get(self.1).copied()
    }

    fn take(&mut self) -> Option<&'a str> {
        self.1 += 1;
        self.0.get(self.1 - 1).copied()
    }

    fn take_if(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        self.1 += usize::from(is_next);
        is_next
    }
}

/// `ALL OR ALL ...`; none: it is not an expression.
fn any(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut met = all(words, allowed)?;
    while words.take_if("OR") {
        met |= all(words, allowed)?;
    }
    Some(met)
}

/// `ONE AND ONE ...`
fn all(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut met = one(words, allowed)?;
    while words.take_if("AND") {
        met &= one(words, allowed)?;
    }
    Some(met)
}

/// A licence, perhaps `WITH` an exception, or an expression in brackets.
fn one(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let word = words.take()?;
    if word == "(" {
        let met = any(words, allowed)?;
        return words.take_if(")").then_some(met);
    }
    let licence = if words.take_if("WITH") {
        format!("{word} WITH {}", words.take()?)
    } else {
        word.to_owned()
    };
    Some(allowed.contains(&licence))
}

#[cfg(test)]
mod tests {
    use super::{is_met, refused_packages};

    fn allowed() -> Vec<String> {
        ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).to_vec()
    }

    #[test]
    fn expressions_are_met_by_allowed_licences() {
        let met = |text: &str| is_met(text, &allowed());
        assert!(met("MIT") && met("MIT OR GPL-3.0") && met("GPL-3.0/MIT"));
        assert!(met("(MIT OR GPL-2.0) AND Apache-2.0 WITH LLVM-exception"));
        assert!(!met("MIT AND GPL-3.0") && !met("GPL-3.0") && !met("") && !met("MIT MIT"));
        assert!(!met("(MIT") && !met("MIT WITH Classpath-exception"));
    }

    #[test]
    fn packages_with_other_licences_are_named() {
        let lines = "a v1.0.0\tMIT\nb v2.0.0\tGPL-3.0\nc v1.0.0\t\nours v0.1.0 (/srv/ours)\t\nb v2.0.0\tGPL-3.0 (*)";
        let refused: Vec<_> =
            refused_packages(lines, &allowed()).iter().map(ToString::to_string).collect();
        assert_eq!(refused.len(), 2, "{refused:?}");
    }
}
