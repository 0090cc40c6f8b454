//! `poolhouse rescue volume`: copies a volume to a sparse image.

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use engine::files::{Content, Time};

use super::cat::print_range;
use super::copy::{self, CopyOptions, CopyResult};
use super::report::{CopyReport, DamagedFile};
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::parallel::thread_count;
use crate::pool_args::PoolArgs;
use crate::progress::Progress;
use crate::{interrupt, print};

/// Copy a volume to a sparse image
#[derive(clap::Args, Debug)]
#[command(after_help = "The image is written as .NAME.poolhouse-part and gets its name when it is
complete; the same command resumes an interrupted copy. A block device is written from end to end.

Example:\n  poolhouse rescue volume -d ~/images tank/vm@monday vm.img")]
pub(crate) struct Args {
    /// POOL/VOL[@SNAP]
    pub(crate) source: String,
    /// The image or block device, or - for standard output
    pub(crate) dest: String,
    /// Overwrite an existing image, or the content of a block device
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Start an interrupted copy again, instead of resuming it
    #[arg(long)]
    pub(crate) restart: bool,
    /// No progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    let pool = common.open_unlocked(&args.source)?;
    let (content, log) = pool.open_volume(&args.source)?;
    if let Some(trouble) = log.error {
        print::warning(&format!("{}: {trouble}", args.source));
    }
    copy_out(args, &content, pool.txg())
}

/// Copies the content of a volume. `txg` stands for its state, in case an interrupted copy is resumed.
pub(crate) fn copy_out(args: &Args, content: &Content, txg: u64) -> CommandResult {
    if args.dest == "-" {
        let mut out = io::stdout().lock();
        let printed = print_range(content, 0, content.size(), &mut out)?;
        out.flush()?;
        let subject = format!("'{}'", args.source);
        let unreadable = |why| engine::Error::Unreadable { subject, why };
        return Ok(printed.map(|()| Outcome::Complete).map_err(unreadable)?);
    }
    let dest = PathBuf::from(&args.dest);
    let there = std::fs::metadata(&dest).ok();
    let device = there.as_ref().is_some_and(|facts| facts.file_type().is_block_device());
    if there.is_some() && !args.overwrite {
        let reason = "it is there already; give --overwrite to write over it".to_owned();
        let path = args.dest.clone();
        return Err(engine::Error::WriteFailed { path, reason }.into());
    }
    interrupt::install_handler();
    let progress = Progress::new(content.size(), args.quiet);
    let seconds = i64::try_from(txg).unwrap_or(0);
    let how = CopyOptions {
        threads: thread_count(0),
        resume_mark: Time { seconds, nanoseconds: 0 },
        restart: args.restart,
        write_zeros: device,
        progress: &progress,
    };
    let copied = if device {
        copy_to_device(content, &dest, &how)
    } else {
        copy_to_image(content, &dest, &how)
    };
    progress.finish();
    let copied = copied.map_err(|error| Failure::destination(&dest, &error))?;
    if copied.interrupted {
        return Err(engine::Error::Interrupted.into());
    }
    let mut report = CopyReport { copied: 1, bytes: copied.bytes, ..CopyReport::default() };
    report.resumed = u64::from(copied.resumed_bytes > 0);
    if !copied.bad_ranges.is_empty() {
        let (path, dest) = (args.source.clone(), args.dest.clone());
        report.damaged.push(DamagedFile { path, dest, bad_ranges: copied.bad_ranges });
    }
    report.print();
    Ok(Outcome::complete_unless(report.has_failures()))
}

fn copy_to_device(content: &Content, dest: &Path, how: &CopyOptions<'_>) -> io::Result<CopyResult> {
    let file = std::fs::OpenOptions::new().write(true).open(dest)?;
    let copied = copy::copy_content(content, &file, 0, how)?;
    file.sync_all()?;
    Ok(copied)
}

fn copy_to_image(content: &Content, dest: &Path, how: &CopyOptions<'_>) -> io::Result<CopyResult> {
    let name = dest.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let part = dest.with_file_name(format!(".{name}.poolhouse-part"));
    let (file, from) = copy::open_partial(&part, content, how)?;
    how.progress.add_bytes(from);
    let copied = copy::copy_content(content, &file, from, how)?;
    if copied.interrupted {
        return Ok(copied);
    }
    copy::set_length(&file, content.size())?;
    file.sync_all()?;
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
    rustix::fs::futimens(&file, &times)?;
    drop(file);
    std::fs::rename(&part, dest)?;
    Ok(copied)
}
