//! Running the command.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The result of a run.
pub(crate) struct CommandOutput {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `poolhouse` with the arguments, without a terminal.
pub(crate) fn run(args: &[&str]) -> CommandOutput {
    run_in(Path::new("."), args)
}

/// Runs it in a folder.
pub(crate) fn run_in(dir: &Path, args: &[&str]) -> CommandOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.current_dir(dir);
    command.args(args).env("TZ", "UTC").stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("the command starts");
    CommandOutput {
        status: status.code().unwrap_or(-1),
        stdout: String::from_utf8(stdout).expect("it prints text"),
        stderr: String::from_utf8(stderr).expect("it prints text"),
    }
}

/// Runs it with text on standard input.
pub(crate) fn run_with_input(args: &[&str], input: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // it may end before it read all
    let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("the command ends");
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Runs it and wants it to do all of its work.
pub(crate) fn run_ok(args: &[&str]) -> String {
    let run = run(args);
    assert_eq!(run.status, 0, "{args:?}: {}", run.stderr);
    run.stdout
}

/// The same, and its output is JSON.
pub(crate) fn run_json(args: &[&str]) -> Value {
    serde_json::from_str(&run_ok(args)).expect("it prints JSON")
}

/// A path as an argument.
pub(crate) fn path_arg(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// The fixture's keys in files, as arguments.
pub(crate) fn key_files(fixture: &fixtures::Fixture, scratch: &str) -> Vec<String> {
    let keys = fixture.keys();
    if keys.is_empty() {
        return Vec::new();
    }
    let dir = fixtures::scratch_dir(&format!("{scratch}-{}", fixture.name));
    let mut args = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let path = dir.join(format!("key{index}"));
        std::fs::write(&path, key.file_content()).expect("a file");
        args.extend(["--key".to_owned(), format!("{}={}", key.dataset, path_arg(&path))]);
    }
    args
}
