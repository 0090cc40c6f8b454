//! The door of the engine stays thin: a pool and each group of its methods has few of them.

use std::collections::BTreeMap;

use super::SourceFile;
use crate::Violation;

/// The folder with the pool's methods.
const FOLDER: &str = "storage/engine/src/pool/";
/// The file that gives out the groups.
const GROUPS: &str = "storage/engine/src/pool/handles.rs";
/// Public methods of the pool or of one group, at most.
const MAX_METHODS: usize = 20;

pub(crate) fn check<'a>(files: impl Iterator<Item = &'a SourceFile>) -> Vec<Violation> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for file in files.filter(|file| file.path.starts_with(FOLDER) && file.path != GROUPS) {
        count_methods(&file.text, &mut counts);
    }
    let too_many = counts.into_iter().filter(|(_, count)| *count > MAX_METHODS);
    let violation = |(name, count): (String, usize)| {
        let what = format!(
            "{name} has {count} public methods, more than {MAX_METHODS}: divide it by subject"
        );
        Violation::new(FOLDER, what)
    };
    too_many.map(violation).collect()
}

/// Adds the public methods of `impl Pool` and of `impl GROUP<'_>`.
fn count_methods(text: &str, counts: &mut BTreeMap<String, usize>) {
    let mut group = None;
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("impl ") {
            let name = head.strip_suffix("<'_> {").or_else(|| (head == "Pool {").then_some("Pool"));
            group = name.map(str::to_owned);
        } else if line == "}" {
            group = None;
        } else if line.starts_with("    pub fn ")
            && let Some(name) = &group
        {
            *counts.entry(name.clone()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_many_methods_are_found() {
        let methods = |count: usize| "    pub fn a(self) {}\n".repeat(count);
        let text = |head: &str, count| {
            format!("impl {head} {{\n{}    fn own() {{}}\n}}\n", methods(count))
        };
        let files = [
            (FOLDER, text("Drives<'_>", 12)),
            (FOLDER, text("Drives<'_>", 9) + &text("Pool", 20) + &text("Other", 50)),
            ("storage/dsl/src/", text("Keys<'_>", 50)),
        ];
        let files =
            files.map(|(folder, text)| SourceFile::with_all_rules(&format!("{folder}a.rs"), &text));
        let found = check(files.iter());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(format!("{:?}", found[0]).contains("Drives has 21 public methods"), "{found:?}");
    }
}
