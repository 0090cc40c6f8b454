//! Writes results to a file, to standard output, or as a table; reads them again.

use std::io::Write;
use std::path::{Path, PathBuf};

use lab::{BenchResult, Heading};

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// Where a result goes.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "The result")]
pub(crate) struct ResultArgs {
    /// Write the result to a file, for compare and report; an existing file is overwritten
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Heading of its column in comparisons; the default is the file's name
    #[arg(long, value_name = "WORDS")]
    label: Option<String>,
    /// Print the result for programs
    #[arg(long)]
    json: bool,
    /// No bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl ResultArgs {
    /// The heading of the result of measuring `subject`.
    pub(crate) fn heading(&self, subject: &str) -> Heading {
        let stem = self.output.as_deref().and_then(Path::file_stem);
        let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
        let label = self.label.clone().or(stem).unwrap_or_else(|| subject.to_owned());
        Heading { label, started: crate::time::now_rfc3339() }
    }

    /// Warns before long work that its result will not be kept.
    pub(crate) fn warn_if_unsaved(&self) {
        if self.output.is_none() && !self.json && !self.quiet {
            print::warning(&"the result is shown, but not kept: -o FILE keeps it");
        }
    }

    /// Keeps and prints a result.
    pub(crate) fn save_and_print(&self, record: &BenchResult) -> CommandResult {
        if let Some(path) = &self.output {
            let mut text = serde_json::to_string_pretty(record)?;
            text.push('\n');
            std::fs::write(path, text).map_err(|error| Failure::destination(path, &error))?;
        }
        if self.json {
            print::json(record)?;
        } else {
            let text = lab::formatting::format_result(record);
            std::io::stdout().lock().write_all(text.as_bytes())?;
        }
        if record.complete { Ok(Outcome::Complete) } else { Ok(Outcome::Interrupted) }
    }
}

/// Prints what would be done.
pub(crate) fn print_dry_run(sentences: &[String]) -> CommandResult {
    let mut out = std::io::stdout().lock();
    for sentence in sentences {
        writeln!(out, "{sentence}")?;
    }
    writeln!(out, "Nothing was touched (--dry-run).")?;
    Ok(Outcome::Complete)
}

/// Reads results.
pub(crate) fn read_records(paths: &[PathBuf]) -> Result<Vec<BenchResult>, Failure> {
    let one = |path: &PathBuf| {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::unreadable(path, &engine::error::io_error_text(&error)))?;
        BenchResult::parse(&text).map_err(|error| Failure::unreadable(path, &error.to_string()))
    };
    paths.iter().map(one).collect()
}

/// Writes a text to a file.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::destination(path, &error))
}
