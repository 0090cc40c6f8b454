//! Rules for prose: comments, messages, names of tests and commit subjects in plain English.
//!
//! STYLE.md has the rule. A program finds only a part of what breaks it: sentences with a clause as
//! their subject ("Who writes ..."), phrases that have a word of the field, overlong names.

use std::path::Path;
use std::process::Command;

use super::SourceFile;
use crate::Violation;

/// The longest name of a test, in words.
const MAX_TEST_WORDS: usize = 8;
/// The longest subject of a commit, in characters.
const MAX_SUBJECT: usize = 72;
/// Commits from this date on are checked.
const FIRST_COMMITS: &str = "2026-11-28";

/// Files and folders whose prose is older than these rules. A file that was rewritten leaves the list.
const EXEMPT: [&str; 8] = [
    "house/daemon/src/services/",
    "sharing/nfs/",
    "storage/spa/src/active/",
    "storage/spa/src/clones.rs",
    "storage/spa/src/dedup",
    "storage/spa/src/scan/",
    "storage/vdev/",
    "storage/zio/",
];

/// Documents without old prose, beside those in `docs`.
const DOCUMENTS: [&str; 5] =
    ["ARCHITECTURE.md", "COMPAT.md", "CONTRIBUTING.md", "README.md", "STYLE.md"];

/// First words of a sentence whose subject is a clause.
const CLAUSES: [&str; 9] =
    ["What", "Who", "Whoever", "Whom", "Whose", "Whatever", "Those who", "That which", "He who"];

/// Phrases, and the words of the field in their place.
const PHRASES: [(&str, &str); 13] = [
    ("stands still", "is suspended; stops"),
    ("stand still", "be suspended; stop"),
    ("standstill", "suspension; rest"),
    ("sign of life", "heartbeat"),
    ("signs of life", "heartbeats"),
    ("taken over", "imported"),
    ("taken back", "rewound; rolled back; reopened"),
    ("is given up", "is discarded, freed or exported"),
    ("somebody", "the user, a program, a thread"),
    ("whoever", "the caller, the owner, the thread that"),
    ("lest", "otherwise; so that ... not"),
    ("is no more", "no longer exists"),
    ("nobody waits", "no thread waits"),
];

/// Names of types that name nothing.
const EMPTY_TYPES: [&str; 22] = [
    "By", "New", "Kept", "Live", "Seen", "Told", "Wanted", "Sought", "Who", "What", "Held", "Spot",
    "Dice", "Crew", "Wish", "House", "Judged", "Mended", "Promise", "Still", "Owned", "Manner",
];

/// Names of functions that name no action of the field.
const EMPTY_VERBS: [&str; 9] =
    ["judge", "say", "give", "look", "soil", "stir", "press", "ripen", "tell"];

/// Checks the comments, strings and names of a Rust file.
pub(crate) fn check(file: &SourceFile) -> Vec<Violation> {
    let is_exempt = EXEMPT.iter().any(|path| file.path.starts_with(path))
        || file.path == "tools/xtask/src/tidy/prose.rs";
    if is_exempt || file.is_generated {
        return Vec::new();
    }
    let mut found = Found { path: &file.path, violations: Vec::new() };
    let lines: Vec<&str> = file.text.lines().map(str::trim_start).collect();
    let mut is_test = false;
    let mut is_paragraph = false;
    for (line, number) in lines.iter().zip(1..) {
        let comment = comment_text(line);
        if let Some(text) = comment {
            found.check_clauses(number, text, !is_paragraph);
        }
        is_paragraph = comment.is_some_and(|text| !text.trim().is_empty());
        if comment.is_some() || line.contains('"') {
            found.check_phrases(number, line);
        }
        if comment.is_none() {
            found.check_names(number, line, is_test);
            is_test = line.starts_with("#[test]") || (is_test && line.starts_with("#["));
        }
    }
    found.violations
}

/// Checks the documents for phrases.
pub(crate) fn check_documents(root: &Path) -> Vec<Violation> {
    let entries = std::fs::read_dir(root.join("docs")).into_iter().flatten().flatten();
    let in_docs = entries.map(|entry| format!("docs/{}", entry.file_name().to_string_lossy()));
    let mut violations = Vec::new();
    for name in in_docs.chain(DOCUMENTS.map(str::to_owned)) {
        let is_text = Path::new(&name).extension().is_some_and(|end| end == "md");
        let text = if is_text { std::fs::read_to_string(root.join(&name)) } else { continue };
        let mut found = Found { path: &name, violations: Vec::new() };
        for (line, number) in text.unwrap_or_default().lines().zip(1..) {
            found.check_phrases(number, line);
        }
        violations.append(&mut found.violations);
    }
    violations
}

/// Checks the subjects of the latest commits. Without git, or in a copy without history, there are none.
pub(crate) fn check_commits(root: &Path) -> Vec<Violation> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["log", "-50", "--no-merges", "--format=%h %s"]);
    let Ok(output) = git.arg(format!("--since={FIRST_COMMITS}")).output() else {
        return Vec::new();
    };
    let subjects = String::from_utf8_lossy(&output.stdout);
    let long = |line: &&str| {
        line.split_once(' ').is_some_and(|(_, subject)| subject.chars().count() > MAX_SUBJECT)
    };
    let what = format!("its subject has more than {MAX_SUBJECT} characters: shorten it");
    subjects.lines().filter(long).map(|line| Violation::new(line, what.clone())).collect()
}

/// The text of a line that is a comment; none for lines of code.
fn comment_text(line: &str) -> Option<&str> {
    let text = line.strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text))
}

struct Found<'a> {
    path: &'a str,
    violations: Vec<Violation>,
}

impl Found<'_> {
    fn report(&mut self, line: usize, what: String) {
        self.violations.push(Violation::new(format!("{}:{line}", self.path), what));
    }

    /// Reports sentences whose subject is a clause. `is_start`: the line begins a paragraph.
    fn check_clauses(&mut self, line: usize, text: &str, is_start: bool) {
        let first = is_start.then_some(text);
        for sentence in first.into_iter().chain(text.split(". ").skip(1)) {
            let sentence = sentence.trim_start();
            let begins = |clause: &&&str| {
                sentence.strip_prefix(**clause).is_some_and(|rest| rest.starts_with(' '))
            };
            if let Some(clause) = CLAUSES.iter().find(begins)
                && !sentence.contains('?')
            {
                let what = format!("a sentence begins with \"{clause}\": begin with its subject");
                self.report(line, what);
            }
        }
    }

    fn check_phrases(&mut self, line: usize, text: &str) {
        let text = text.to_lowercase();
        for (phrase, word) in PHRASES {
            let has_phrase = text.match_indices(phrase).any(|(at, _)| is_whole(&text, at, phrase));
            if has_phrase {
                self.report(line, format!("\"{phrase}\" has a word of the field: {word}"));
            }
        }
    }

    /// Reports names of types, functions and tests that break a rule.
    fn check_names(&mut self, line: usize, code: &str, is_test: bool) {
        let words: Vec<&str> = code
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|w| !w.is_empty())
            .collect();
        for pair in words.windows(2) {
            let (keyword, name) = (pair[0], pair[1]);
            let is_type = matches!(keyword, "struct" | "enum" | "trait");
            if is_type && EMPTY_TYPES.contains(&name) {
                self.report(
                    line,
                    format!("the type `{name}` names nothing: use a noun of the field"),
                );
            }
            if keyword == "fn" && EMPTY_VERBS.contains(&name) {
                self.report(line, format!("`{name}` names no action: use a verb with its object"));
            }
            let count = name.split('_').filter(|word| !word.is_empty()).count();
            if keyword == "fn" && is_test && count > MAX_TEST_WORDS {
                let what = format!("the test's name has {count} words, more than {MAX_TEST_WORDS}");
                self.report(line, what);
            }
        }
    }
}

/// Whether a phrase at a place of a text is not a part of longer words.
fn is_whole(text: &str, at: usize, phrase: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let before = text.get(..at).and_then(|part| part.chars().next_back());
    let after = text.get(at + phrase.len()..).and_then(|part| part.chars().next());
    !is_letter(before) && !is_letter(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&SourceFile::with_all_rules("storage/x/src/a.rs", text)).len()
    }

    #[test]
    fn clauses_as_subjects_are_found() {
        assert_eq!(count("/// Who writes a block.\n"), 1);
        assert_eq!(count("/// A block. What it holds is old.\n"), 1);
        assert_eq!(count("/// The thread knows\n/// What it means.\n"), 0, "within a sentence");
        assert_eq!(count("// What is missing?\n"), 0, "a question");
        assert_eq!(count("/// Whole blocks.\n"), 0);
    }

    #[test]
    fn phrases_are_found_in_comments_and_strings() {
        assert_eq!(count("// the pool stands still\n"), 1);
        assert_eq!(count("    error(\"pool is taken over\");\n"), 1);
        assert_eq!(count("// the oldest one\n"), 0, "a part of a word");
        assert_eq!(count("let lest = 1;\n"), 0, "code");
    }

    #[test]
    fn long_names_of_tests_are_found() {
        assert_eq!(count("#[test]\nfn a_b_c_d_e_f_g_h() {}\n"), 0);
        assert_eq!(count("#[test]\n#[ignore]\nfn a_b_c_d_e_f_g_h_i() {}\n"), 1);
        assert_eq!(count("fn a_b_c_d_e_f_g_h_i() {}\n"), 0, "no test");
    }

    #[test]
    fn empty_names_are_found() {
        assert_eq!(count("pub struct Kept {}\nfn look(&self) {}\n"), 2);
        assert_eq!(count("struct Keptness;\nfn look_up() {}\n"), 0);
    }

    #[test]
    fn old_files_are_exempt() {
        let old = SourceFile::with_all_rules("storage/zio/src/a.rs", "// Who knows.\n");
        assert_eq!(check(&old), []);
    }
}
