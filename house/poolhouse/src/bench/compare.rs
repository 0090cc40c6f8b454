//! `poolhouse bench compare`: results side by side.

use std::io::Write;
use std::path::PathBuf;

use super::result;
use crate::outcome::{CommandResult, Outcome};
use crate::{pictures, print};

/// `poolhouse bench compare`.
#[derive(clap::Args, Debug)]
#[command(after_help = "The others are compared with the first result.

Examples:
  poolhouse bench compare ashift9.json ashift12.json
  poolhouse bench compare raidz.json raidz2.json mirror.json --svg pictures --html page.html")]
pub(crate) struct Args {
    /// Results of the same kind
    #[arg(required = true, num_args = 2.., value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// Write the pictures as SVG files into a folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the pictures as PNG files into a folder
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,
    /// Write a page with pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print it for programs
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self) -> CommandResult {
        let records = result::read_records(&self.results)?;
        let comparison = lab::compare::compare(&records)?;
        let drawn = || {
            let all = lab::plot::comparison_plots(&comparison);
            all.into_iter().map(|named| (named.name, named.svg))
        };
        if let Some(dir) = &self.svg {
            pictures::write_svg(dir, drawn())?;
        }
        if let Some(dir) = &self.png {
            pictures::write_png(dir, drawn())?;
        }
        if let Some(path) = &self.html {
            result::write_text(path, &lab::html_report::render_page(&records)?)?;
        }
        if self.json {
            print::json(&comparison)?;
        } else {
            std::io::stdout().lock().write_all(comparison.to_text().as_bytes())?;
        }
        Ok(Outcome::Complete)
    }
}
