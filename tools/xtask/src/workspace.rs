//! The crates of the workspace, as their manifests state them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::Violation;

/// The folders whose sub-folders are crates.
const CRATE_DIRS: [&str; 4] = ["storage", "sharing", "house", "tools"];

/// A crate of the workspace.
#[derive(Debug, Clone)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub dir: PathBuf,
    /// Its description in one line.
    pub description: String,
    /// Its floor, if it has one.
    pub floor: Option<i64>,
    /// The crates of the workspace that it imports, tests not counted.
    pub imports: BTreeSet<String>,
}

/// All crates of the workspace, sorted by floor, then name.
pub fn load_crates(root: &Path) -> Result<Vec<Crate>, Vec<Violation>> {
    let mut found = Vec::new();
    for wing in CRATE_DIRS {
        for dir in subfolders(&root.join(wing)) {
            let path = dir.join("Cargo.toml");
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let manifest: Table = text.parse().map_err(|error| {
                vec![Violation::new(crate::relative_path(root, &path), format!("{error}"))]
            })?;
            found.push(parse_manifest(dir, &manifest));
        }
    }
    let names: BTreeSet<String> = found.iter().map(|each| each.name.clone()).collect();
    for each in &mut found {
        each.imports.retain(|import| names.contains(import));
    }
    found.sort_by(|a, b| (a.floor, &a.name).cmp(&(b.floor, &b.name)));
    Ok(found)
}

fn parse_manifest(dir: PathBuf, manifest: &Table) -> Crate {
    let package = |key: &str| manifest.get("package").and_then(|package| package.get(key));
    let text = |key| package(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let floor = package("metadata").and_then(|metadata| metadata.get("floor"));
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = std::iter::once(manifest)
        .chain(targets.into_iter().flatten().filter_map(|(_, target)| target.as_table()));
    let imports = tables
        .flat_map(|table| [table.get("dependencies"), table.get("build-dependencies")])
        .filter_map(|dependencies| dependencies?.as_table())
        .flat_map(|dependencies| dependencies.iter().map(|(key, value)| package_name(key, value)))
        .collect();
    Crate {
        name: text("name"),
        dir,
        description: text("description"),
        floor: floor.and_then(Value::as_integer),
        imports,
    }
}

/// A dependency may be renamed: `key = { package = "name", ... }`.
fn package_name(key: &str, value: &Value) -> String {
    value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned()
}

fn subfolders(wing: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(wing).into_iter().flatten();
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_dependencies_are_ignored_and_renames_resolved() {
        let manifest: Table = r#"
            [package]
            name = "arc"
            metadata.floor = 5
            [dependencies]
            blocks = { package = "zio", path = "../zio" }
            [target.'cfg(unix)'.dependencies]
            device.workspace = true
            [dev-dependencies]
            spa.workspace = true
        "#
        .parse()
        .unwrap();
        let arc = parse_manifest(PathBuf::new(), &manifest);
        assert_eq!(arc.floor, Some(5));
        assert_eq!(arc.imports.into_iter().collect::<Vec<_>>(), ["device", "zio"]);
    }
}
