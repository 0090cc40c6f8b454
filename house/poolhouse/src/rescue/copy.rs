//! Content copied into a file: holes stay holes, what cannot be read is told and left out.
//!
//! A copy is made in a file of another name, `.NAME.poolhouse-part`, and gets its own when it is
//! whole. Parts carry a mark, so that a later run can tell that it is the same content and go on:
//! the time of last access, which nothing but reading would change.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use engine::files::{Content, Extent, Time};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

use super::hash::{chunks, pieces};
use crate::ordered::ordered;
use crate::progress::Progress;
use crate::stop;

/// A range that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    /// The offset of its first byte.
    pub(crate) start: u64,
    /// The offset behind its last byte.
    pub(crate) end: u64,
    /// Why not.
    pub(crate) why: String,
}

/// What came of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Bytes that an earlier run had written.
    pub(crate) before: u64,
    /// What could not be read.
    pub(crate) bad: Vec<Bad>,
    /// It was stopped before the end.
    pub(crate) stopped: bool,
}

/// How a copy is made.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    /// Threads for one file.
    pub(crate) threads: usize,
    /// What tells one content from another.
    pub(crate) mark: Time,
    /// Do not go on where an earlier run stopped.
    pub(crate) restart: bool,
    /// Write zeros where there are holes: into something that holds other bytes.
    pub(crate) zeros: bool,
    /// Where progress is told.
    pub(crate) progress: &'a Progress,
}

/// Jobs of one file that may be under way at a time; a resumed copy goes back so far.
const WINDOW: usize = 8;
/// Smaller content is copied by the thread that asks.
const SMALL: u64 = 1 << 20;

/// Opens the part and finds out where to go on.
pub(crate) fn open_part(path: &Path, content: &Content, how: &How<'_>) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.open(path)?;
    let facts = file.metadata()?;
    let is_ours = facts.atime() == how.mark.seconds
        && (facts.atime_nsec() == i64::from(how.mark.nanoseconds) || facts.atime_nsec() == 0);
    let mut from = 0;
    if is_ours && !how.restart && facts.len() > 0 {
        // what is above may have gaps: blocks are written as they come
        let step = chunks(content, 0, u64::MAX).next().map_or(1, |(_, end)| end);
        let back = step.saturating_mul(WINDOW as u64 + 1);
        from = (facts.len().saturating_sub(back) / step).saturating_mul(step);
    }
    set_length(&file, from)?;
    mark(&file, Some(how.mark))?;
    Ok((file, from))
}

/// Cuts or lengthens it, unless it is right: some file systems take even that for a change, and
/// write all that they hold of a file that was cut to nothing as soon as it is closed.
pub(crate) fn set_length(file: &File, length: u64) -> io::Result<()> {
    if file.metadata()?.len() == length { Ok(()) } else { file.set_len(length) }
}

/// Sets or takes away the mark that lets a later run go on.
fn mark(file: &File, time: Option<Time>) -> io::Result<()> {
    let time = time.unwrap_or_default();
    let last_access = Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access, last_modification })?)
}

/// Copies content from `from` on. Sets the file's length where it is done.
pub(crate) fn copy(content: &Content, file: &File, from: u64, how: &How<'_>) -> io::Result<Copied> {
    let mut copied = Copied { before: from, ..Copied::default() };
    let size = content.size();
    let mut outcome = Ok(());
    {
        let mut take = |result: io::Result<Part>| match result {
            Ok(part) => {
                how.progress.add(part.bytes);
                copied.bytes += part.bytes;
                if !part.bad.is_empty() && copied.bad.is_empty() {
                    // a later run must begin anew to know of this
                    let _ = mark(file, None);
                }
                part.bad.into_iter().for_each(|bad| add_bad(&mut copied.bad, bad));
                ControlFlow::Continue(())
            }
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        };
        let jobs = jobs(content, from, how.zeros).take_while(|_| !stop::wanted());
        let work = |job: Job| part(content, file, job, how.zeros);
        if size <= SMALL {
            for job in jobs {
                if take(work(job)).is_break() {
                    break;
                }
            }
        } else {
            let _ = ordered(how.threads, WINDOW, jobs, work, take);
        }
    }
    outcome?;
    copied.stopped = stop::wanted();
    Ok(copied)
}

/// Ranges that follow one another are one.
fn add_bad(all: &mut Vec<Bad>, bad: Bad) {
    match all.last_mut() {
        Some(last) if last.end == bad.start && last.why == bad.why => last.end = bad.end,
        _ => all.push(bad),
    }
}

/// A range to be copied, or one of which is known that it cannot be.
enum Job {
    Range(u64, u64),
    Bad(Bad),
}

/// What came of a job.
#[derive(Default)]
struct Part {
    bytes: u64,
    bad: Vec<Bad>,
}

fn jobs(content: &Content, from: u64, all: bool) -> Box<dyn Iterator<Item = Job> + '_> {
    if all {
        let ranges = chunks(content, from, content.size());
        return Box::new(ranges.map(|(start, end)| Job::Range(start, end)));
    }
    Box::new(content.extents(from).flat_map(move |extent| {
        let (ranges, bad) = match extent {
            Extent::Data { start, end } => (Some(chunks(content, start, end)), None),
            Extent::Unreadable { start, end, why } => {
                (None, Some(Bad { start, end, why: why.to_string() }))
            }
        };
        let ranges = ranges.into_iter().flatten();
        ranges.map(|(start, end)| Job::Range(start, end)).chain(bad.map(Job::Bad))
    }))
}

/// Copies one range, on whatever thread.
fn part(content: &Content, file: &File, job: Job, zeros: bool) -> io::Result<Part> {
    let mut out = Part::default();
    let (start, end) = match job {
        Job::Range(start, end) => (start, end),
        Job::Bad(bad) => {
            out.bad.push(bad);
            return Ok(out);
        }
    };
    let mut at = start;
    while at < end {
        let mut run = Vec::new();
        let done = pieces(content, at, end, &mut |piece| run.push(piece));
        let behind = run.last().map_or(at, |piece| piece.end);
        out.bytes += write(file, &run, zeros)?;
        at = behind;
        match done {
            Ok(()) => break,
            Err(why) => {
                let behind = content.error_end(at, &why).min(end).max(at + 1);
                out.bad.push(Bad { start: at, end: behind, why: why.to_string() });
                at = behind;
            }
        }
    }
    Ok(out)
}

/// Writes pieces that follow one another, in as few calls as can be.
fn write(file: &File, run: &[engine::files::ContentChunk], zeros: bool) -> io::Result<u64> {
    let mut bytes = 0;
    let mut rest = run;
    while let Some(first) = rest.first() {
        let count = rest.iter().take(64).take_while(|piece| piece.bytes.is_some()).count();
        let (now, later) = rest.split_at(count.max(1));
        rest = later;
        if count == 0 {
            if zeros {
                fill(file, first.start, first.end)?;
                bytes += first.end - first.start;
            }
            continue;
        }
        let slices: Vec<IoSlice<'_>> =
            now.iter().filter_map(|piece| piece.bytes.as_deref()).map(IoSlice::new).collect();
        let total: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        let written = rustix::io::pwritev(file, &slices, first.start)? as u64;
        if written < total {
            write_rest(file, now, written)?;
        }
        bytes += total;
    }
    Ok(bytes)
}

/// What a short write left.
fn write_rest(
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

fn fill(file: &File, start: u64, end: u64) -> io::Result<()> {
    static ZEROS: [u8; 128 << 10] = [0; 128 << 10];
    let mut at = start;
    while at < end {
        let count = usize::try_from(end - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(&ZEROS[..count], at)?;
        at += count as u64;
    }
    Ok(())
}
