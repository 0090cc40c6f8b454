//! The picture of the floors in ARCHITECTURE.md, drawn from the manifests.

use std::fmt::Write as _;
use std::path::Path;

use crate::Violation;
use crate::workspace::{self, Crate};

const FILE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- floors: drawn by `cargo xtask picture` -->\n";
const END: &str = "<!-- end of floors -->";

/// Checks that the picture equals the crates.
pub fn check(root: &Path) -> Result<(), Vec<Violation>> {
    let (old, new) = current_and_redrawn(root)?;
    if old == new {
        return Ok(());
    }
    Err(vec![Violation::new(FILE, "the picture of the floors is stale: run `cargo xtask picture`")])
}

/// Redraws the picture.
pub fn redraw(root: &Path) -> Result<(), Vec<Violation>> {
    let (_, new) = current_and_redrawn(root)?;
    std::fs::write(root.join(FILE), new)
        .map_err(|error| vec![Violation::new(FILE, error.to_string())])
}

fn current_and_redrawn(root: &Path) -> Result<(String, String), Vec<Violation>> {
    let fail = |what: String| vec![Violation::new(FILE, what)];
    let old = std::fs::read_to_string(root.join(FILE)).map_err(|error| fail(error.to_string()))?;
    let crates = workspace::load_crates(root)?;
    let new = replace_drawing(&old, &draw_floors(&crates))
        .ok_or_else(|| fail(format!("the markers are gone: {} ... {END}", BEGIN.trim_end())))?;
    Ok((old, new))
}

/// The text with the part between the markers replaced.
fn replace_drawing(text: &str, picture: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{picture}{END}{after}"))
}

/// One line a crate, the highest floor first.
fn draw_floors(crates: &[Crate]) -> String {
    let width = crates.iter().map(|each| each.description.len()).max().unwrap_or_default();
    let mut text = format!("\n```text\nfloor  {:<11} {:<width$}  imports\n", "crate", "what it is");
    let mut above = None;
    for each in crates.iter().rev() {
        let floor = match each.floor {
            floor if floor == above => String::new(),
            floor => floor.map(|number| number.to_string()).unwrap_or_default(),
        };
        above = each.floor;
        let imports = each.imports.iter().cloned().collect::<Vec<_>>().join(" ");
        let line = format!("{floor:>5}  {:<11} {:<width$}  {imports}", each.name, each.description);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str(
        "                                        (at the end of a line: what it imports)\n",
    );
    text.push_str("```\n\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_between_markers_changes() {
        let text = format!("a\n{BEGIN}old{END}\nb\n");
        assert_eq!(replace_drawing(&text, "new").unwrap(), format!("a\n{BEGIN}new{END}\nb\n"));
        assert_eq!(replace_drawing("no markers", "new"), None);
    }
}
