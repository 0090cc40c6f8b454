//! Rules for file names: a file is named after its concept, not after being useful.

use super::SourceFile;
use crate::Violation;

const VAGUE_WORDS: [&str; 6] = ["util", "utils", "helper", "helpers", "manager", "misc"];

pub(crate) fn check(file: &SourceFile) -> Option<Violation> {
    let parts = file.path.trim_end_matches(".rs").split(['/', '_']);
    let empty = parts.into_iter().find(|part| VAGUE_WORDS.contains(part))?;
    Some(Violation::new(&file.path, format!("`{empty}` names no concept: name its subject")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vague_file_names_are_found() {
        assert!(check(&SourceFile::with_all_rules("storage/dmu/src/util.rs", "")).is_some());
        assert!(check(&SourceFile::with_all_rules("storage/dmu/src/read_helper.rs", "")).is_some());
        assert!(
            check(&SourceFile::with_all_rules("storage/dmu/src/utility_meter.rs", "")).is_none()
        );
    }
}
