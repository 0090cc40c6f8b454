//! Tidy: the rules for files, functions and words that no lint knows.

mod arithmetic;
mod compat;
mod drawing;
mod handles;
mod names;
mod prose;
mod ratchet;
mod recipes;
mod rust;
mod state;
mod text;
mod tour;

use std::path::{Path, PathBuf};

use crate::workspace::{self, Crate};
use crate::{Violation, relative_path};

/// The lowest floor that may print.
const PRINTING_FLOOR: i64 = 13;
/// The lowest floor that may use clock, randomness or environment.
const ENVIRONMENT_FLOOR: i64 = 11;
/// Crates in which a bare `u64` is the business itself, or `unsafe` is confined.
const BARE_NUMBER_CRATES: [&str; 3] = ["ondisk", "simd", "geometry"];
const UNSAFE_CRATES: [&str; 4] = ["simd", "device", "fusedev", "heap"];

/// A Rust file, and its permissions by its place.
#[expect(clippy::struct_excessive_bools, reason = "each is a permission of its own")]
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    /// Relative to the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Code of tests, examples and benches: lengths are not counted, printing is allowed.
    pub(crate) is_test: bool,
    /// It says in its first lines that a program wrote it.
    pub(crate) is_generated: bool,
    pub(crate) may_print: bool,
    pub(crate) may_use_environment: bool,
    pub(crate) may_pass_bare_numbers: bool,
    pub(crate) may_be_unsafe: bool,
}

/// Whether every rule is kept.
pub fn check(root: &Path) -> Result<(), Vec<Violation>> {
    let (mut violations, sizes, files) = measure(root)?;
    let allowed = ratchet::load(root)?;
    violations.extend(ratchet::check(&allowed, &sizes));
    violations.extend(compat::check(root, &files));
    violations.extend(handles::check(files.iter()));
    violations.extend(recipes::check(root));
    violations.extend(tour::check(root));
    violations.extend(prose::check_documents(root));
    violations.extend(prose::check_commits(root));
    violations.sort();
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

/// Removes unneeded entries from the ratchet.
pub fn tighten(root: &Path) -> Result<(), Vec<Violation>> {
    let (_, sizes, _) = measure(root)?;
    ratchet::tighten(root, &sizes)
}

/// Lets everything be as long as it is now.
pub fn accept(root: &Path) -> Result<(), Vec<Violation>> {
    let (_, sizes, _) = measure(root)?;
    ratchet::write(root, &sizes)
}

type Measurement = (Vec<Violation>, ratchet::Sizes, Vec<SourceFile>);

fn measure(root: &Path) -> Result<Measurement, Vec<Violation>> {
    let mut files = Vec::new();
    let mut counts = arithmetic::Counts::default();
    for each in workspace::load_crates(root)? {
        let dir = relative_path(root, &each.dir);
        for path in rust_files(&each.dir) {
            let file = read_file(root, &each, &path).map_err(|violation| vec![violation])?;
            counts.add(&dir, &file);
            files.push(file);
        }
    }
    let mut sizes = ratchet::Sizes::new();
    let mut violations = counts.finish(&mut sizes);
    for file in &files {
        violations.extend(text::check(file));
        violations.extend(names::check(file));
        violations.extend(prose::check(file));
        violations.extend(state::check(file));
        if file.path.starts_with("storage/ondisk/src/") {
            violations.extend(drawing::check(file));
        }
        violations.extend(rust::check(file, &mut sizes));
    }
    Ok((violations, sizes, files))
}

fn read_file(root: &Path, of: &Crate, path: &Path) -> Result<SourceFile, Violation> {
    let name = relative_path(root, path);
    let text =
        std::fs::read_to_string(path).map_err(|error| Violation::new(&name, error.to_string()))?;
    let inside = relative_path(&of.dir, path);
    let is_test = inside.ends_with("tests.rs")
        || ["tests/", "examples/", "benches/"].iter().any(|part| inside.contains(part));
    let floor = of.floor.unwrap_or_default();
    Ok(SourceFile {
        is_generated: text.lines().take(20).any(|line| line.contains("@generated")),
        is_test,
        may_print: is_test || floor >= PRINTING_FLOOR || inside == "build.rs",
        may_use_environment: is_test || floor >= ENVIRONMENT_FLOOR || inside == "build.rs",
        may_pass_bare_numbers: is_test
            || floor >= PRINTING_FLOOR
            || BARE_NUMBER_CRATES.contains(&of.name.as_str()),
        may_be_unsafe: UNSAFE_CRATES.contains(&of.name.as_str()),
        path: name,
        text,
    })
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && entry.file_name() != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
impl SourceFile {
    /// A file of the engine with every rule in force.
    pub(crate) fn with_all_rules(path: &str, text: &str) -> Self {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
            is_test: false,
            is_generated: false,
            may_print: false,
            may_use_environment: false,
            may_pass_bare_numbers: false,
            may_be_unsafe: false,
        }
    }
}
