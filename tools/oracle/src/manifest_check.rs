//! Our programs set against a recorded manifest.

use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::Fixture;
use serde_json::Value;

use crate::differences;

/// The reason why a folder cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its manifest, or a key's file.
    #[error("{path}: {why}")]
    File {
        /// Which file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// `poolhouse` did not run, or printed something else than a manifest.
    #[error("poolhouse {args}: {why}")]
    Run {
        /// The arguments.
        args: String,
        /// The output of the failure.
        why: String,
    },
}

/// The differences between the output of `poolhouse` for the images in a folder and the manifest
/// beside them, a line each.
pub fn check_manifest(poolhouse: &Path, dir: &Path) -> Result<Vec<String>, Error> {
    let path = dir.join("manifest.json");
    let fault = |why: String| Error::File { path: path.clone(), why };
    let text = std::fs::read(&path).map_err(|error| fault(error.to_string()))?;
    let manifest: Value =
        serde_json::from_slice(&text).map_err(|error| fault(error.to_string()))?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let fixture = Fixture { name, dir: dir.to_owned(), manifest };
    let keys = write_key_files(&fixture)?;
    let (_, out, _) = run_rescue(poolhouse, "manifest", &fixture, &keys)?;
    let ours: Value = serde_json::from_str(&out)
        .map_err(|error| Error::Run { args: "manifest".to_owned(), why: error.to_string() })?;
    let mut found = differences(&fixture.manifest, &ours);
    let (status, out, words) = run_rescue(poolhouse, "verify", &fixture, &keys)?;
    if (status == 0) != fixture.damaged_images().is_empty() {
        let said: Vec<&str> = out.lines().chain(words.lines()).collect();
        found.push(format!("verify ends with {status}: {}", said.join(" | ")));
    }
    Ok(found)
}

/// Arguments that load the keys of the manifest.
fn write_key_files(fixture: &Fixture) -> Result<Vec<String>, Error> {
    let mut args = Vec::new();
    for (number, key) in fixture.keys().iter().enumerate() {
        let path = fixture.dir.join(format!("key-{number}"));
        std::fs::write(&path, key.file_content())
            .map_err(|error| Error::File { path: path.clone(), why: error.to_string() })?;
        args.push("--key".to_owned());
        args.push(format!("{}={}", key.dataset, path.display()));
    }
    Ok(args)
}

/// Status and output of `poolhouse rescue WORD` for the fixture's pool.
fn run_rescue(
    poolhouse: &Path,
    word: &str,
    fixture: &Fixture,
    keys: &[String],
) -> Result<(i32, String, String), Error> {
    let mut command = Command::new(poolhouse);
    command.args(["rescue", word, "-d"]).arg(&fixture.dir).arg(fixture.pool_name()).args(keys);
    let fault = |why: String| Error::Run { args: format!("rescue {word}"), why };
    let done = command.output().map_err(|error| fault(error.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match done.status.code() {
        Some(status) => Ok((status, text(&done.stdout), text(&done.stderr))),
        None => Err(fault(format!("{}: {}", done.status, text(&done.stderr)))),
    }
}
