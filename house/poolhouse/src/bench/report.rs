//! `poolhouse bench report`: one page of results.

use std::io::Write;
use std::path::PathBuf;

use super::result;
use crate::outcome::{CommandResult, Outcome};
use crate::print;

/// `poolhouse bench report`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse bench report tank.json -o tank.html
  poolhouse bench report drives.json network.json tank.json -o nas.html")]
pub(crate) struct Args {
    /// Result files; those of one kind are shown side by side
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// The page's file; standard output if not given
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the results for programs instead
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self) -> CommandResult {
        let records = result::read_records(&self.results)?;
        if self.json {
            print::json(&records)?;
            return Ok(Outcome::Complete);
        }
        let page = lab::html_report::render_page(&records)?;
        match &self.output {
            Some(path) => result::write_text(path, &page)?,
            None => std::io::stdout().lock().write_all(page.as_bytes())?,
        }
        Ok(Outcome::Complete)
    }
}
