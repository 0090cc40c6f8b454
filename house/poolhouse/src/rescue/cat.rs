//! `poolhouse rescue cat`: prints files, as `cat` does.

use std::io::{self, Write};
use std::ops::ControlFlow;

use engine::Error;
use engine::files::{Content, ContentChunk, FileType};

use super::hash::{chunks, for_each_piece};
use super::pool_path::{OpenDatasets, PoolPath};
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::parallel::{run_ordered, thread_count};
use crate::pool_args::PoolArgs;
use crate::print;

/// Print the content of files
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  poolhouse rescue cat -d ~/images tank/home:/ann/notes.txt")]
pub(crate) struct Args {
    /// POOL/FS[@SNAP]:/PATH
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    print_files(&args.targets, &mut OpenDatasets::in_pools(common))
}

/// Prints files, one after another.
pub(crate) fn print_files(targets: &[String], opened: &mut OpenDatasets<'_>) -> CommandResult {
    let (mut wrong, mut out) = (false, io::stdout().lock());
    for target in targets {
        let place = PoolPath::parse(target)?;
        let (_, file) = opened.find_file(&place)?;
        match file.stat().kind {
            FileType::File => {}
            FileType::Directory => return Err(Failure::usage(format!("'{target}' is a folder"))),
            _ => return Err(Failure::usage(format!("'{target}' is not a regular file"))),
        }
        let content = file.content();
        if let Err(failure) = print_range(&content, 0, content.size(), &mut out)? {
            wrong = true;
            print::error(&Error::Unreadable { subject: format!("'{target}'"), why: failure });
        }
    }
    out.flush()?;
    Ok(Outcome::complete_unless(wrong))
}

/// Prints a range, holes as zeros; gives why it ended early, if so.
pub(crate) fn print_range(
    content: &Content,
    start: u64,
    end: u64,
    out: &mut dyn Write,
) -> io::Result<Result<(), String>> {
    let trash = std::cell::RefCell::new(Vec::new());
    let jobs = chunks(content, start, end).map(|range| (range, trash.take()));
    let read = |((start, end), trash): ((u64, u64), Vec<Vec<ContentChunk>>)| {
        drop(trash);
        let mut found = Vec::new();
        let done = for_each_piece(content, start, end, &mut |piece| found.push(piece));
        (found, done)
    };
    let (mut failed, mut broken) = (None, None);
    let count = thread_count(0);
    let _ = run_ordered(count, count * 4, jobs, read, |(found, done)| {
        for piece in &found {
            if let Err(error) = print_piece(piece, out) {
                failed = Some(error);
                return ControlFlow::Break(());
            }
        }
        trash.borrow_mut().push(found);
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(why) => {
                broken = Some(why.to_string());
                ControlFlow::Break(())
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(broken.map_or(Ok(()), Err)),
    }
}

fn print_piece(piece: &ContentChunk, out: &mut dyn Write) -> io::Result<()> {
    match &piece.bytes {
        Some(bytes) => out.write_all(bytes),
        None => {
            io::copy(&mut io::Read::take(io::repeat(0), piece.end - piece.start), out).map(|_| ())
        }
    }
}
