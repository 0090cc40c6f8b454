//! `poolhouse rescue stat`: prints all that is known of files, as `stat` does.

use std::io::{self, Write};

use engine::files::{FileStat, FileType, Time};

use super::ls::mode_string;
use super::pool_path::{OpenDatasets, PoolPath, escape_bytes};
use crate::outcome::{CommandResult, Outcome};
use crate::pool_args::PoolArgs;
use crate::{print, time};

/// Print all that is known of files
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  poolhouse rescue stat -d ~/images tank/home:/ann/notes.txt")]
pub(crate) struct Args {
    /// POOL/FS[@SNAP]:/PATH
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    let mut opened = OpenDatasets::in_pools(common);
    let mut out = io::stdout().lock();
    let mut wrong = false;
    for target in &args.targets {
        let (_, file) = opened.find_file(&PoolPath::parse(target)?)?;
        let facts = file.stat();
        let xattrs = file.xattrs().unwrap_or_else(|why| {
            wrong = true;
            print::warning(&format!("{target}: {why}"));
            Vec::new()
        });
        let link = if facts.kind == FileType::Symlink { file.read_link().ok() } else { None };
        if common.json {
            let line = super::entry::stat_json(target, &facts, link.as_deref(), &xattrs);
            writeln!(out, "{line}")?;
            continue;
        }
        write!(out, "{}", describe_file(target, &facts, link.as_deref(), file.allocated()))?;
        for (name, value) in xattrs {
            writeln!(out, "     xattr: {} ({} bytes)", escape_bytes(&name), value.len())?;
        }
    }
    Ok(Outcome::complete_unless(wrong))
}

fn describe_file(target: &str, facts: &FileStat, link: Option<&[u8]>, space: u64) -> String {
    let arrow = link.map(|link| format!(" -> {}", escape_bytes(link))).unwrap_or_default();
    let kind = match facts.kind {
        FileType::File => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Other(_) => "something unknown",
    };
    let mut out = format!("      file: {target}{arrow}\n      type: {kind}\n");
    let mut row = |name: &str, value: String| {
        out.push_str(&format!("{name:>10}: {value}\n"));
    };
    row("size", format!("{} bytes, {space} on disk", facts.size));
    row("mode", format!("{:04o} ({})", facts.mode, mode_string(facts)));
    row("owner", format!("{}, group {}", facts.uid, facts.gid));
    row("links", facts.nlink.to_string());
    row("object", format!("{}, made in txg {}", facts.ino, facts.generation));
    if matches!(facts.kind, FileType::CharDevice | FileType::BlockDevice) {
        row("device", format!("{}, {}", facts.rdev.0, facts.rdev.1));
    }
    if facts.flags.to_linux() != 0 {
        row("flags", format!("{:#x}", facts.flags.to_linux()));
    }
    if facts.project_id != 0 {
        row("project", facts.project_id.to_string());
    }
    row("accessed", format_nanoseconds(facts.atime));
    row("modified", format_nanoseconds(facts.mtime));
    row("changed", format_nanoseconds(facts.ctime));
    row("created", format_nanoseconds(facts.crtime));
    out
}

/// Local time with nanoseconds.
fn format_nanoseconds(at: Time) -> String {
    match u64::try_from(at.seconds) {
        Ok(seconds) if seconds > 0 => {
            let local = time::format_local(seconds);
            let (left, right) = local.split_at_checked(19).unwrap_or((&local, ""));
            format!("{left}.{:09}{right}", at.nanoseconds)
        }
        _ => format!("{}.{:09} seconds after 1970", at.seconds, at.nanoseconds),
    }
}
