//! The builds of examples/builds run, and their chapters in docs/manual/builds show the output.
//!
//! A build prints sections (see examples/builds/lib.sh). A chapter has a block for each:
//!
//! ```text
//! <!-- build: NAME -->            or <!-- build: NAME (figures) -->
//! (the section as a code block)
//! <!-- end of build -->
//! ```
//!
//! `UPDATE_DOCS=1` regenerates the blocks. Of figures only commands and checks are compared, since
//! figures vary. Runs of spaces count as one, since columns are as wide as the paths of the run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All builds; `make test-builds` runs them whole.
const BUILDS: [&str; 8] = [
    "odd-drives",
    "over-the-wire",
    "seven-drives",
    "household",
    "four-bays",
    "wish-list",
    "iscsi-volumes",
    "24-bays",
];
/// The status of a build that lacks a client.
const SKIPPED: i32 = 77;
const BEGIN: &str = "<!-- build: ";
const END: &str = "<!-- end of build -->";

/// A part of a build's output.
struct Section {
    /// As in the heading, with ` (figures)` where figures vary.
    title: String,
    text: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Runs a build to its end within a time limit. Returns its output, or nothing if a client is
/// missing.
fn run_build(name: &str, is_quick: bool) -> Option<String> {
    let script = repository().join("examples/builds").join(name).join("build.sh");
    let output = fixtures::scratch_dir(&format!("build-{name}-{is_quick}")).join("output");
    let limit = if is_quick { "240" } else { "1200" };
    let mut command = Command::new("timeout");
    command.args(["--kill-after=20", limit, "bash"]).arg(script);
    command.arg(env!("CARGO_BIN_EXE_poolhouse")).stdin(Stdio::null()).env("LC_ALL", "C.UTF-8");
    command.env_remove("POOLHOUSE_STATE").env("TZ", "UTC");
    if is_quick {
        command.env("QUICK", "1");
    } else {
        command.env_remove("QUICK");
    }
    // a file, as a daemon that a build leaves behind would hold a pipe open
    let file = File::create(&output).expect("a file");
    command.stdout(file.try_clone().expect("a handle")).stderr(file);
    let status = command.status().expect("timeout and bash");
    let text = fs::read_to_string(&output).expect("text");
    if status.code() == Some(SKIPPED) {
        eprintln!("{name}: {}", text.lines().last().unwrap_or_default());
        return None;
    }
    assert!(status.success(), "{name} ends with {status}:\n{text}");
    Some(text)
}

fn sections(output: &str) -> Vec<Section> {
    let mut found: Vec<Section> = Vec::new();
    for line in output.lines() {
        if let Some(title) = line.strip_prefix("== ").and_then(|rest| rest.strip_suffix(" ==")) {
            found.push(Section { title: title.to_owned(), text: String::new() });
        } else if let Some(section) = found.last_mut() {
            section.text.push_str(line.trim_end());
            section.text.push('\n');
        }
    }
    found
}

/// The blocks of a chapter: titles, and the ranges of bytes between the marks.
fn blocks(chapter: &str) -> Vec<(String, std::ops::Range<usize>)> {
    let mut found = Vec::new();
    for (begin, _) in chapter.match_indices(BEGIN) {
        let title = chapter[begin + BEGIN.len()..].split(" -->").next().unwrap_or_default();
        let start = begin + BEGIN.len() + title.len() + " -->\n".len();
        let length = chapter[start..].find(END).expect("a block has an end");
        found.push((title.to_owned(), start..start + length));
    }
    found
}

fn code_block(section: &Section) -> String {
    format!("```console\n{}\n```\n", section.text.trim_end())
}

/// The lines of a block that are compared.
fn compared_lines(title: &str, block: &str) -> Vec<String> {
    let is_compared = |line: &&str| {
        !title.ends_with(" (figures)") || line.starts_with("$ ") || line.starts_with("ok: ")
    };
    let joined = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = block.lines().filter(|line| !line.starts_with("```")).filter(is_compared);
    lines.map(joined).filter(|line| !line.is_empty()).collect()
}

/// The chapter with a build's output in its blocks.
fn update(chapter: &str, printed: &[Section]) -> String {
    let mut text = chapter.to_owned();
    for (title, range) in blocks(chapter).into_iter().rev() {
        if let Some(section) = printed.iter().find(|section| section.title == title) {
            text.replace_range(range, &code_block(section));
        }
    }
    text
}

/// Compares a chapter with what its build printed.
fn check_chapter(name: &str, output: &str, is_quick: bool) {
    let path = repository().join(format!("docs/manual/builds/{name}.md"));
    let mut chapter = fs::read_to_string(&path).expect("a chapter");
    let printed = sections(output);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        chapter = update(&chapter, &printed);
        fs::write(&path, &chapter).expect("the chapter is written");
    }
    let shown = blocks(&chapter);
    for section in &printed {
        let block = shown.iter().find(|(title, _)| *title == section.title);
        let (title, range) = block.unwrap_or_else(|| {
            panic!("{name}.md has no block `{BEGIN}{} -->`", section.title);
        });
        let wanted = compared_lines(title, &section.text);
        let found = compared_lines(title, &chapter[range.clone()]);
        let first = wanted.iter().zip(&found).find(|(wanted, found)| wanted != found);
        assert!(
            wanted == found,
            "{name}.md does not show what ran in `{title}` (first: {first:?}): \
             UPDATE_DOCS=1 cargo test -p poolhouse --test it {}",
            if is_quick { "builds" } else { "builds -- --ignored" }
        );
    }
    for (title, _) in shown.iter().filter(|(title, _)| !(is_quick && title.contains("(figures)"))) {
        let is_printed = printed.iter().any(|section| section.title == *title);
        assert!(is_printed, "{name}.md shows `{title}`, which the build does not print");
    }
}

fn check_build(name: &str, is_quick: bool) {
    if let Some(output) = run_build(name, is_quick) {
        check_chapter(name, &output, is_quick);
    }
}

#[test]
fn odd_drives_chapter_shows_what_runs() {
    check_build("odd-drives", true);
}

#[test]
fn iscsi_volumes_chapter_shows_what_runs() {
    check_build("iscsi-volumes", true);
}

#[test]
fn household_chapter_shows_what_runs() {
    check_build("household", true);
}

#[test]
fn seven_drives_chapter_shows_what_runs() {
    check_build("seven-drives", true);
}

#[test]
#[ignore = "takes minutes: make test-builds"]
fn all_builds_run_whole() {
    let chosen = std::env::var("BUILDS").unwrap_or_default();
    let is_chosen = |name: &&str| chosen.is_empty() || chosen.split(' ').any(|word| word == *name);
    for name in BUILDS.into_iter().filter(|name| is_chosen(name)) {
        eprintln!("{name}");
        check_build(name, false);
    }
}

#[test]
fn every_build_has_a_chapter() {
    let index = fs::read_to_string(repository().join("docs/manual/builds/README.md")).unwrap();
    for entry in fs::read_dir(repository().join("examples/builds")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            assert!(BUILDS.contains(&&*name), "{name} is missing in the list of builds");
            assert!(index.contains(&format!("({name}.md)")), "the manual's index lacks {name}");
        }
    }
}

#[test]
fn only_blocks_of_printed_sections_change() {
    let output = "preface\n== plan ==\n$ a\nx  1\n\n== speed (figures) ==\n# MB/s\n$ b\n5\n";
    let chapter = "A\n<!-- build: plan -->\nold\n<!-- end of build -->\nB\n\
                   <!-- build: other -->\nkept\n<!-- end of build -->\n";
    let updated = update(chapter, &sections(output));
    assert_eq!(
        updated,
        "A\n<!-- build: plan -->\n```console\n$ a\nx  1\n```\n<!-- end of build -->\nB\n\
         <!-- build: other -->\nkept\n<!-- end of build -->\n"
    );
    assert_eq!(compared_lines("plan", "$ a\nx  1\n"), ["$ a", "x 1"]);
    assert_eq!(compared_lines("speed (figures)", "# MB/s\n$ b\n5\nok: c\n"), ["$ b", "ok: c"]);
}
