//! Fixtures are recipes: each packed pool has the function that made it, and its row in the index.

use std::path::Path;

use crate::Violation;

const MAX_BYTES: u64 = 15 << 20;

pub(crate) fn check(root: &Path) -> Vec<Violation> {
    let folder = root.join("fixtures");
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap_or_default();
    let (recipes, index) = (read("recipes/recipes.sh"), read("README.md"));
    let mut violations = Vec::new();
    let mut bytes = 0;
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".tar.zst") else { continue };
        bytes += entry.metadata().map_or(0, |meta| meta.len());
        let missing = [
            (!has_recipe(&recipes, name)).then_some("has no recipe in fixtures/recipes/recipes.sh"),
            (!has_row(&index, name)).then_some("has no row in fixtures/README.md"),
        ];
        let place = format!("fixtures/{file}");
        violations.extend(missing.into_iter().flatten().map(|what| Violation::new(&place, what)));
    }
    if bytes > MAX_BYTES {
        violations.push(Violation::new("fixtures", format!("{bytes} bytes, more than 15 MiB")));
    }
    violations
}

fn has_recipe(recipes: &str, name: &str) -> bool {
    let name = name.replace('-', "_");
    let kinds = ["fixture", "cut"].map(|kind| format!("{kind}_{name}() {{"));
    recipes.lines().any(|line| kinds.iter().any(|begin| line.starts_with(begin)))
}

fn has_row(index: &str, name: &str) -> bool {
    index.lines().any(|line| line.starts_with(&format!("| {name} |")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipe_function_matches_exact_name() {
        assert!(has_recipe("fixture_mirror_2() {\n", "mirror-2"));
        assert!(has_recipe("cut_whole_disk() {\n", "whole-disk"));
        assert!(!has_recipe("fixture_mirror_20() {\n", "mirror-2"));
    }
}
