//! Pictures of a plan: SVG, and one HTML page that holds them all.

use crate::plan::{Plan, Question};

/// The page.
pub fn page(_plan: &Plan, _question: &Question) -> String {
    String::new()
}

/// The pictures, each with its name.
pub fn files(_plan: &Plan, _question: &Question) -> Vec<(&'static str, String)> {
    Vec::new()
}
