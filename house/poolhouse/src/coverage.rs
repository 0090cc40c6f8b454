//! docs/commands.md: how much of zpool(8) and zfs(8) there is, made from the command line's definition.
//!
//! `openzfs-options.tsv` lists each subcommand of OpenZFS 2.3.2 with the options of its manual
//! page. A test generates the table and compares it with the file, so the document always equals
//! the program.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::cli::Cli;

const OPTIONS: &str = include_str!("../tests/data/openzfs-options.tsv");
const DOCUMENT: &str = "../../docs/commands.md";
const INTRODUCTION: &str = "# The words of zpool(8) and zfs(8)

Each subcommand of OpenZFS 2.3.2 with the options of its manual page. A test makes this file from the
program's own definition (`UPDATE_DOCS=1 cargo test -p poolhouse coverage`), so it says what the program
takes. An option that is *not there* is refused, and nothing is changed.
";

/// One subcommand of OpenZFS, and how much of it there is.
struct Coverage<'a> {
    name: &'a str,
    is_present: bool,
    taken: Vec<&'a str>,
    missing: Vec<&'a str>,
}

impl Coverage<'_> {
    fn row(&self) -> String {
        let (taken, missing) = (self.taken.join(" "), self.missing.join(" "));
        let missing = match (self.is_present, missing.as_str()) {
            (false, _) => "the subcommand",
            (true, missing) => missing,
        };
        format!("| {} | {taken} | {missing} |\n", self.name)
    }
}

/// The options of a command, with their dashes: without hidden ones, which are only refused, and
/// without the help and version of every command.
fn options_of(command: &clap::Command) -> BTreeSet<String> {
    let is_offered = |argument: &&clap::Arg| {
        !argument.is_hide_set() && argument.get_id() != "help" && argument.get_id() != "version"
    };
    let mut options = BTreeSet::new();
    for argument in command.get_arguments().filter(is_offered) {
        let short = argument.get_short_and_visible_aliases().unwrap_or_default();
        let long = argument.get_long_and_visible_aliases().unwrap_or_default();
        options.extend(short.into_iter().map(|letter| format!("-{letter}")));
        options.extend(long.into_iter().map(|word| format!("--{word}")));
    }
    options
}

fn measure<'a>(program: &clap::Command, line: &'a str) -> Coverage<'a> {
    let mut fields = line.split('\t').skip(1);
    let name = fields.next().expect("a subcommand");
    let options = fields.next().unwrap_or_default().split(' ').filter(|option| !option.is_empty());
    let command = program.find_subcommand(name);
    let known = command.map(options_of).unwrap_or_default();
    let (taken, missing) = options.partition(|option| known.contains(*option));
    Coverage { name, is_present: command.is_some(), taken, missing }
}

fn write_table(text: &mut String, program: &str) {
    let mut definition = Cli::definition();
    definition.build();
    let command = definition.find_subcommand(program).expect("zpool and zfs");
    let lines = OPTIONS.lines().filter(|line| line.split('\t').next() == Some(program));
    let rows: Vec<_> = lines.map(|line| measure(command, line)).collect();
    let present = rows.iter().filter(|row| row.is_present).count();
    let taken: usize = rows.iter().map(|row| row.taken.len()).sum();
    let all: usize = rows.iter().map(|row| row.taken.len() + row.missing.len()).sum();
    let count = rows.len();
    write!(
        text,
        "\n## {program}\n\n{present} of {count} subcommands, {taken} of {all} options.\n\n\
         | subcommand | options | not there |\n| --- | --- | --- |\n"
    )
    .expect("text takes text");
    text.extend(rows.iter().map(Coverage::row));
}

#[test]
fn document_lists_the_options_of_the_program() {
    let mut text = INTRODUCTION.to_owned();
    write_table(&mut text, "zpool");
    write_table(&mut text, "zfs");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).expect("the document is written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "docs/commands.md is old: UPDATE_DOCS=1 cargo test -p poolhouse coverage"
    );
}
