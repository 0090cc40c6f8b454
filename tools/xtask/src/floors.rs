//! Floors: a crate imports only from lower ones.

use std::path::Path;

use crate::workspace::{self, Crate};
use crate::{Violation, relative_path};

/// Whether every crate states its floor and every import points to a lower one.
pub fn check(root: &Path) -> Result<(), Vec<Violation>> {
    let crates = workspace::load_crates(root)?;
    let violations: Vec<Violation> =
        crates.iter().flat_map(|each| check_crate(root, each, &crates)).collect();
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn check_crate(root: &Path, each: &Crate, crates: &[Crate]) -> Vec<Violation> {
    let place = relative_path(root, &each.dir.join("Cargo.toml"));
    let Some(floor) = each.floor else {
        return vec![Violation::new(place, "states no floor: [package.metadata] floor = N")];
    };
    let imported = crates.iter().filter(|other| each.imports.contains(&other.name));
    imported
        .filter(|other| other.floor.is_some_and(|lower| lower >= floor))
        .map(|other| {
            let upper = other.floor.unwrap_or_default();
            let what = format!(
                "{} is on floor {floor} and imports {} on floor {upper}: imports point down. \
                 State what is needed as a trait here, and let the upper floor provide it",
                each.name, other.name
            );
            Violation::new(&place, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_crate(name: &str, floor: Option<i64>, imports: &[&str]) -> Crate {
        Crate {
            name: name.into(),
            dir: name.into(),
            description: String::new(),
            floor,
            imports: imports.iter().map(|&import| import.to_owned()).collect(),
        }
    }

    #[test]
    fn upward_and_level_imports_are_refused() {
        let house = [
            test_crate("low", Some(1), &[]),
            test_crate("beside", Some(2), &["low"]),
            test_crate("high", Some(2), &["low", "beside"]),
            test_crate("lost", None, &[]),
        ];
        let root = Path::new("");
        let count = |index: usize| check_crate(root, &house[index], &house).len();
        assert_eq!([count(0), count(1), count(2), count(3)], [0, 0, 1, 1]);
    }
}
