//! Copies content into a file: holes stay holes, unreadable ranges are reported and left out.
//!
//! A copy is written to a file of another name, `.NAME.poolhouse-part`, and renamed when it is
//! complete. Partial files carry a mark, so that a later run can recognize the same content and
//! resume: the access time, which only reading would change.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use engine::files::{Content, Extent, Time};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

use super::hash::{chunks, for_each_piece};
use crate::interrupt;
use crate::parallel::run_ordered;
use crate::progress::Progress;

/// A range that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadRange {
    /// The offset of its first byte.
    pub(crate) start: u64,
    /// The offset behind its last byte.
    pub(crate) end: u64,
    /// Why not.
    pub(crate) reason: String,
}

/// The result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyResult {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Bytes that an earlier run had written.
    pub(crate) resumed_bytes: u64,
    /// The unreadable ranges.
    pub(crate) bad_ranges: Vec<BadRange>,
    /// It was stopped before the end.
    pub(crate) interrupted: bool,
}

/// How a copy is made.
#[derive(Clone, Copy)]
pub(crate) struct CopyOptions<'a> {
    /// Threads for one file.
    pub(crate) threads: usize,
    /// The identity of the content.
    pub(crate) resume_mark: Time,
    /// Do not continue where an earlier run stopped.
    pub(crate) restart: bool,
    /// Write zeros where there are holes: into something that holds other bytes.
    pub(crate) write_zeros: bool,
    /// The receiver of progress.
    pub(crate) progress: &'a Progress,
}

/// The most jobs of one file in flight; a resumed copy goes back this far.
const MAX_IN_FLIGHT: usize = 8;
/// Smaller content is copied by the calling thread.
const SINGLE_THREAD_MAX: u64 = 1 << 20;

/// Opens the part and finds out where to continue.
pub(crate) fn open_partial(
    path: &Path,
    content: &Content,
    how: &CopyOptions<'_>,
) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.open(path)?;
    let facts = file.metadata()?;
    let is_ours = facts.atime() == how.resume_mark.seconds
        && (facts.atime_nsec() == i64::from(how.resume_mark.nanoseconds)
            || facts.atime_nsec() == 0);
    let mut from = 0;
    if is_ours && !how.restart && facts.len() > 0 {
        // later ranges may have gaps: blocks are written in any order
        let step = chunks(content, 0, u64::MAX).next().map_or(1, |(_, end)| end);
        let back = step.saturating_mul(MAX_IN_FLIGHT as u64 + 1);
        from = (facts.len().saturating_sub(back) / step).saturating_mul(step);
    }
    set_length(&file, from)?;
    set_resume_mark(&file, Some(how.resume_mark))?;
    Ok((file, from))
}

/// Cuts or lengthens it, unless it is right: some file systems take even that for a change, and
/// write all that they hold of a file that was cut to nothing as soon as it is closed.
pub(crate) fn set_length(file: &File, length: u64) -> io::Result<()> {
    if file.metadata()?.len() == length { Ok(()) } else { file.set_len(length) }
}

/// Sets or removes the mark that lets a later run resume.
fn set_resume_mark(file: &File, time: Option<Time>) -> io::Result<()> {
    let time = time.unwrap_or_default();
    let last_access = Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access, last_modification })?)
}

/// Copies content from `from` on. Sets the file's length where it is done.
pub(crate) fn copy_content(
    content: &Content,
    file: &File,
    from: u64,
    how: &CopyOptions<'_>,
) -> io::Result<CopyResult> {
    let mut copied = CopyResult { resumed_bytes: from, ..CopyResult::default() };
    let size = content.size();
    let mut outcome = Ok(());
    {
        let mut take = |result: io::Result<JobResult>| match result {
            Ok(part) => {
                how.progress.add_bytes(part.bytes);
                copied.bytes += part.bytes;
                if !part.bad_ranges.is_empty() && copied.bad_ranges.is_empty() {
                    // a later run must start again to find this
                    let _ = set_resume_mark(file, None);
                }
                part.bad_ranges
                    .into_iter()
                    .for_each(|bad| merge_bad_range(&mut copied.bad_ranges, bad));
                ControlFlow::Continue(())
            }
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        };
        let jobs =
            copy_jobs(content, from, how.write_zeros).take_while(|_| !interrupt::is_interrupted());
        let work = |job: CopyJob| run_job(content, file, job, how.write_zeros);
        if size <= SINGLE_THREAD_MAX {
            for job in jobs {
                if take(work(job)).is_break() {
                    break;
                }
            }
        } else {
            let _ = run_ordered(how.threads, MAX_IN_FLIGHT, jobs, work, take);
        }
    }
    outcome?;
    copied.interrupted = interrupt::is_interrupted();
    Ok(copied)
}

/// Ranges that follow one another are one.
fn merge_bad_range(all: &mut Vec<BadRange>, bad: BadRange) {
    match all.last_mut() {
        Some(last) if last.end == bad.start && last.reason == bad.reason => last.end = bad.end,
        _ => all.push(bad),
    }
}

/// A range to be copied, or one of which is known that it cannot be.
enum CopyJob {
    Range(u64, u64),
    Bad(BadRange),
}

/// The result of a job.
#[derive(Default)]
struct JobResult {
    bytes: u64,
    bad_ranges: Vec<BadRange>,
}

fn copy_jobs(content: &Content, from: u64, all: bool) -> Box<dyn Iterator<Item = CopyJob> + '_> {
    if all {
        let ranges = chunks(content, from, content.size());
        return Box::new(ranges.map(|(start, end)| CopyJob::Range(start, end)));
    }
    Box::new(content.extents(from).flat_map(move |extent| {
        let (ranges, bad) = match extent {
            Extent::Data { start, end } => (Some(chunks(content, start, end)), None),
            Extent::Unreadable { start, end, why } => {
                (None, Some(BadRange { start, end, reason: why.to_string() }))
            }
        };
        let ranges = ranges.into_iter().flatten();
        ranges.map(|(start, end)| CopyJob::Range(start, end)).chain(bad.map(CopyJob::Bad))
    }))
}

/// Copies one range, on any thread.
fn run_job(content: &Content, file: &File, job: CopyJob, zeros: bool) -> io::Result<JobResult> {
    let mut out = JobResult::default();
    let (start, end) = match job {
        CopyJob::Range(start, end) => (start, end),
        CopyJob::Bad(bad) => {
            out.bad_ranges.push(bad);
            return Ok(out);
        }
    };
    let mut at = start;
    while at < end {
        let mut run = Vec::new();
        let done = for_each_piece(content, at, end, &mut |piece| run.push(piece));
        let behind = run.last().map_or(at, |piece| piece.end);
        out.bytes += write_pieces(file, &run, zeros)?;
        at = behind;
        match done {
            Ok(()) => break,
            Err(why) => {
                let behind = content.error_end(at, &why).min(end).max(at + 1);
                out.bad_ranges.push(BadRange { start: at, end: behind, reason: why.to_string() });
                at = behind;
            }
        }
    }
    Ok(out)
}

/// Writes pieces that follow one another, in as few calls as can be.
fn write_pieces(file: &File, run: &[engine::files::ContentChunk], zeros: bool) -> io::Result<u64> {
    let mut bytes = 0;
    let mut rest = run;
    while let Some(first) = rest.first() {
        let count = rest.iter().take(64).take_while(|piece| piece.bytes.is_some()).count();
        let (now, later) = rest.split_at(count.max(1));
        rest = later;
        if count == 0 {
            if zeros {
                write_zeros(file, first.start, first.end)?;
                bytes += first.end - first.start;
            }
            continue;
        }
        let slices: Vec<IoSlice<'_>> =
            now.iter().filter_map(|piece| piece.bytes.as_deref()).map(IoSlice::new).collect();
        let total: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        let written = rustix::io::pwritev(file, &slices, first.start)? as u64;
        if written < total {
            write_remaining(file, now, written)?;
        }
        bytes += total;
    }
    Ok(bytes)
}

/// The rest after a short write.
fn write_remaining(
    file: &File,
    pieces: &[engine::files::ContentChunk],
    mut done: u64,
) -> io::Result<()> {
    for piece in pieces {
        let Some(bytes) = piece.bytes.as_deref() else { continue };
        let skip = usize::try_from(done).unwrap_or(usize::MAX).min(bytes.len());
        done -= skip as u64;
        file.write_all_at(&bytes[skip..], piece.start + skip as u64)?;
    }
    Ok(())
}

fn write_zeros(file: &File, start: u64, end: u64) -> io::Result<()> {
    static ZEROS: [u8; 128 << 10] = [0; 128 << 10];
    let mut at = start;
    while at < end {
        let count = usize::try_from(end - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(&ZEROS[..count], at)?;
        at += count as u64;
    }
    Ok(())
}
