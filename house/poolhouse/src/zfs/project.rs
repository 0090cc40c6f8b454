//! `poolhouse zfs project`: projects of files in mounted file systems, for project quotas.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fuse::FileProject;
use rustix::fs::OFlags;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::table::escape_control;

/// Show or set the projects of files and directories
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A quota of a project (projectquota@ID) limits all files that have it. A directory with the inherit
flag (P) passes its project on to new files. Without -p, -s, -c and -C the projects are listed: of a directory
and of what is in it.

Examples:
  poolhouse zfs project -s -r -p 1001 /tank/site    a tree for project 1001
  poolhouse zfs project -d /tank/site
  poolhouse zfs project -c -r /tank/site            what has another project?
  poolhouse zfs project -C -r -k /tank/site         new files inherit no longer"
)]
#[expect(clippy::struct_excessive_bools, reason = "options of zfs(8)")]
pub(super) struct ProjectArgs {
    /// The directory itself, and not what is in it
    #[arg(short = 'd', conflicts_with_all = ["clear", "set_inherit"])]
    directory: bool,
    /// All that is below the directory, too
    #[arg(short = 'r')]
    recursive: bool,
    /// Check: print what has another project than the directory, or no inherit flag
    #[arg(short = 'c', conflicts_with_all = ["clear", "set_inherit", "keep"])]
    check: bool,
    /// With -c: print names only, each with a zero byte behind it
    #[arg(short = '0', requires = "check", conflicts_with_all = ["clear", "set_inherit"])]
    zero: bool,
    /// Clear the project and the inherit flag
    #[arg(short = 'C', conflicts_with_all = ["set_inherit", "project"])]
    clear: bool,
    /// With -C: keep the project
    #[arg(short = 'k', requires = "clear", conflicts_with_all = ["set_inherit", "project"])]
    keep: bool,
    /// Set the inherit flag; with -r the directory's project as well
    #[arg(short = 's')]
    set_inherit: bool,
    /// The project to set, or with -c to compare with
    #[arg(short = 'p', value_name = "ID")]
    project: Option<u32>,
    /// Files and directories
    #[arg(value_name = "FILE|DIRECTORY", required = true)]
    paths: Vec<PathBuf>,
}

/// The work at each file of a command.
#[derive(Clone, Copy, Debug)]
enum ProjectAction {
    List,
    Check { expected: u32 },
    Clear { keeps_project: bool },
    Set { project: Option<u32>, sets_inherit: bool },
}

impl ProjectArgs {
    pub(super) fn run(&self) -> CommandResult {
        let is_change = self.clear || self.set_inherit || (self.project.is_some() && !self.check);
        if self.directory && is_change {
            return Err(Failure::usage("-d is for lists and checks"));
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        for path in &self.paths {
            let file = open(path)?;
            let is_dir = file.metadata()?.is_dir();
            if (self.directory || self.recursive) && !is_dir {
                let what =
                    format!("'{}' is not a directory: -d and -r are for those", path.display());
                return Err(Failure::usage(what));
            }
            let action = self.action(path, &file)?;
            self.walk(&mut out, (path, &file, is_dir), action)?;
        }
        out.flush()?;
        Ok(Outcome::Complete)
    }

    /// The action for one path of the command.
    fn action(&self, path: &Path, file: &File) -> Result<ProjectAction, Failure> {
        let own_project = || match self.project {
            Some(project) => Ok(project),
            None => Ok::<_, Failure>(read(path, file)?.id),
        };
        Ok(if self.check {
            ProjectAction::Check { expected: own_project()? }
        } else if self.clear {
            ProjectAction::Clear { keeps_project: self.keep }
        } else if self.set_inherit || self.project.is_some() {
            // a tree gets the project of its top
            let project = if self.recursive { Some(own_project()?) } else { self.project };
            ProjectAction::Set { project, sets_inherit: self.set_inherit }
        } else {
            ProjectAction::List
        })
    }

    /// Does the action at a path, and below it as far as the options say. Other types than files and directories
    /// have no projects to set.
    fn walk(
        &self,
        out: &mut dyn Write,
        (path, file, is_dir): (&Path, &File, bool),
        action: ProjectAction,
    ) -> Result<(), Failure> {
        action.apply(out, path, file, self.zero)?;
        let lists = matches!(action, ProjectAction::List | ProjectAction::Check { .. });
        if !is_dir || self.directory || !(self.recursive || lists) {
            return Ok(());
        }
        let failed = |why: &io::Error| unusable(path, why);
        let mut names: Vec<_> = std::fs::read_dir(path)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(|why| failed(&why))?;
        names.sort_by_key(std::fs::DirEntry::file_name);
        for entry in names {
            let kind = entry.file_type().map_err(|why| failed(&why))?;
            if !(kind.is_file() || kind.is_dir()) || entry.file_name() == OsStr::new(".zfs") {
                continue;
            }
            let below = entry.path();
            let file = open(&below)?;
            if self.recursive {
                self.walk(out, (&below, &file, kind.is_dir()), action)?;
            } else {
                action.apply(out, &below, &file, self.zero)?;
            }
        }
        Ok(())
    }
}

impl ProjectAction {
    fn apply(
        self,
        out: &mut dyn Write,
        path: &Path,
        file: &File,
        zero: bool,
    ) -> Result<(), Failure> {
        let found = read(path, file)?;
        match self {
            Self::List => {
                let flag = if found.is_inherited { 'P' } else { '-' };
                writeln!(out, "{:5} {flag} {}", found.id, shown(path))?;
            }
            Self::Check { expected } => print_mismatch(out, path, (found, expected), zero)?,
            Self::Clear { keeps_project } => {
                let id = if keeps_project { found.id } else { 0 };
                write(path, file, found, FileProject { id, is_inherited: false })?;
            }
            Self::Set { project, sets_inherit } => {
                let id = project.unwrap_or(found.id);
                let is_inherited = sets_inherit || found.is_inherited;
                write(path, file, found, FileProject { id, is_inherited })?;
            }
        }
        Ok(())
    }
}

/// Prints the ways in which a file has another project than expected.
fn print_mismatch(
    out: &mut dyn Write,
    path: &Path,
    (found, expected): (FileProject, u32),
    zero: bool,
) -> io::Result<()> {
    let is_other = found.id != expected;
    if zero {
        if is_other || !found.is_inherited {
            write!(out, "{}\0", path.display())?;
        }
        return Ok(());
    }
    let path = shown(path);
    if is_other {
        writeln!(out, "{path} - project ID is not set properly ({}/{expected})", found.id)?;
    }
    if !found.is_inherited {
        writeln!(out, "{path} - project inherit flag is not set")?;
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    escape_control(&path.display().to_string())
}

fn unusable(path: &Path, why: &io::Error) -> Failure {
    Failure::unreadable(path, &engine::error::io_error_text(why))
}

fn open(path: &Path) -> Result<File, Failure> {
    // a pipe does not keep the command waiting
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(flags).open(path);
    opened.map_err(|why| unusable(path, &why))
}

fn read(path: &Path, file: &File) -> Result<FileProject, Failure> {
    FileProject::read(file).map_err(|why| unusable(path, &why.into()))
}

fn write(path: &Path, file: &File, found: FileProject, new: FileProject) -> Result<(), Failure> {
    if new == found {
        return Ok(());
    }
    new.write(file).map_err(|why| unusable(path, &why.into()))
}
