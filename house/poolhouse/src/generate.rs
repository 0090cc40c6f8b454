//! Completions and man pages, made from the command line's definition.

use std::path::{Path, PathBuf};

use crate::cli::Cli;
use crate::outcome::{CommandResult, Failure, Outcome};

/// `poolhouse completions SHELL`.
#[derive(clap::Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

/// `poolhouse man DIR`.
#[derive(clap::Args, Debug)]
pub(crate) struct Man {
    /// The folder, which is made if it is not there
    dir: PathBuf,
}

impl Completions {
    pub(crate) fn run(&self) -> CommandResult {
        let mut all = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::definition(), "poolhouse", &mut all);
        std::io::Write::write_all(&mut std::io::stdout().lock(), &all)?;
        Ok(Outcome::Complete)
    }
}

impl Man {
    pub(crate) fn run(&self) -> CommandResult {
        std::fs::create_dir_all(&self.dir)
            .map_err(|error| Failure::destination(&self.dir, &error))?;
        let mut command = Cli::definition();
        command.build();
        write_man_page(&command, "poolhouse", &self.dir)?;
        Ok(Outcome::Complete)
    }
}

/// Writes the page of a command and those of its subcommands.
fn write_man_page(command: &clap::Command, name: &str, dir: &Path) -> Result<(), Failure> {
    let path = dir.join(format!("{name}.1"));
    let mut bytes = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut bytes)?;
    std::fs::write(&path, bytes).map_err(|error| Failure::destination(&path, &error))?;
    for below in command.get_subcommands() {
        if !below.is_hide_set() && below.get_name() != "help" {
            write_man_page(below, &format!("{name}-{}", below.get_name()), dir)?;
        }
    }
    Ok(())
}
