//! Rules of the repository that tests check: floors, tidy, the picture of the floors.
//!
//! Every rule here is run by `cargo test -p xtask` as well as by `cargo xtask RULE`, so that
//! `make test` runs all. This crate imports no other crate of the repository.
#![forbid(unsafe_code)]

pub mod floors;
pub mod format_book;
pub mod licences;
pub mod picture;
pub mod tidy;
pub mod workspace;

use std::fmt;
use std::path::{Path, PathBuf};

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file (with its line, where there is one) or crate.
    pub location: String,
    /// The problem, and the next step.
    pub message: String,
}

impl Violation {
    /// A violation at a place.
    pub fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Violation { location: place.into(), message: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// The root of the repository this program was built in.
///
/// # Panics
/// Never: this crate lies two folders below the root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tools/xtask").to_owned()
}

/// A path for messages: relative to the root.
pub fn relative_path(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// All lines of violations, for a failing test's message.
pub fn format_violations(violations: &[Violation]) -> String {
    violations.iter().flat_map(|violation| [violation.to_string(), "\n".into()]).collect()
}
