//! House keeping that is checked by tests: floors, tidy, the picture of the house.
//!
//! Every rule here is run by `cargo test -p xtask` as well as by `cargo xtask RULE`, so that
//! `make test` is everything. Nothing here knows the code it looks at: no crate of the house is
//! imported.
#![forbid(unsafe_code)]

pub mod floors;
pub mod format_book;
pub mod licences;
pub mod picture;
pub mod tidy;
pub mod workspace;

use std::fmt;
use std::path::{Path, PathBuf};

/// A rule of the house that is not kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file (with its line, where there is one) or crate.
    pub location: String,
    /// What is wrong, and what to do.
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

/// A path as it is said in messages: relative to the root.
pub fn relative_path(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// All lines of violations, for a failing test's message.
pub fn format_violations(violations: &[Violation]) -> String {
    violations.iter().flat_map(|violation| [violation.to_string(), "\n".into()]).collect()
}
