//! `poolhouse rescue du`: prints what folders take, as `du` does.

use std::collections::HashSet;
use std::io::{self, BufWriter, IsTerminal, Write};

use engine::files::{File, FileSystemReader, FileType};

use super::ls::human_size;
use super::pool_path::{OpenDatasets, PoolPath, escape_bytes, terminal_bytes};
use super::tree::{WalkEvent, walk_tree};
use crate::outcome::{CommandResult, Outcome};
use crate::pool_args::PoolArgs;
use crate::print;

/// Print the space that folders take
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
#[command(
    after_help = "Example:\n  poolhouse rescue du -d ~/images -sh tank/home:/ann tank/home:/bob"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command")]
pub(crate) struct Args {
    /// POOL/FS[@SNAP]:/PATH
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
    /// Only the sum of each
    #[arg(short)]
    pub(crate) summarize: bool,
    /// Files too
    #[arg(short)]
    pub(crate) all: bool,
    /// Bytes of content, not of space
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// In bytes, not in KiB
    #[arg(short)]
    pub(crate) bytes: bool,
    /// In short form, as 1.5M
    #[arg(short = 'h', long = "human")]
    pub(crate) human: bool,
    /// Only folders down to this many levels
    #[arg(long, value_name = "LEVELS")]
    pub(crate) max_depth: Option<usize>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    let mut opened = OpenDatasets::in_pools(common);
    let stdout = io::stdout().lock();
    let terminal = stdout.is_terminal();
    let out = BufWriter::new(stdout);
    let mut counter = UsageCounter {
        args,
        out,
        is_terminal: terminal,
        counted_links: HashSet::new(),
        has_errors: false,
    };
    for target in &args.targets {
        let place = PoolPath::parse(target)?;
        let (files, top) = opened.find_file(&place)?;
        counter.print_usage(&files, &top, &place)?;
    }
    counter.out.flush()?;
    Ok(Outcome::complete_unless(counter.has_errors))
}

struct UsageCounter<'a, W: Write> {
    args: &'a Args,
    out: BufWriter<W>,
    is_terminal: bool,
    /// Files with several names count once: their dataset and number.
    counted_links: HashSet<(String, u64)>,
    has_errors: bool,
}

impl<W: Write> UsageCounter<'_, W> {
    fn print_usage(
        &mut self,
        files: &FileSystemReader,
        top: &File,
        place: &PoolPath,
    ) -> io::Result<()> {
        let depth = if self.args.summarize { 0 } else { self.args.max_depth.unwrap_or(usize::MAX) };
        let mut sums = vec![self.space_of(files, top.ino(), place)];
        let mut done = Ok(());
        if top.stat().is_directory() {
            walk_tree(files, top, usize::MAX, &mut |step| {
                match step {
                    WalkEvent::Entry(name, path) => {
                        let took = self.space_of(files, name.ino, place);
                        if name.kind == FileType::Directory {
                            sums.push(took);
                        } else {
                            if let Some(last) = sums.last_mut() {
                                *last = last.saturating_add(took);
                            }
                            if self.args.all && sums.len() <= depth {
                                done = self.print_line(took, &place.display_with(path));
                            }
                        }
                    }
                    WalkEvent::EndOfDirectory(path) => {
                        let sum = sums.pop().unwrap_or(0);
                        if let Some(last) = sums.last_mut() {
                            *last = last.saturating_add(sum);
                        }
                        if sums.len() <= depth {
                            done = self.print_line(sum, &place.display_with(path));
                        }
                    }
                    WalkEvent::Error(path, why) => {
                        self.has_errors = true;
                        print::warning(&format!(
                            "{}: {why}",
                            escape_bytes(&place.display_with(path))
                        ));
                        // otherwise the end of the scan would not be printed
                        if !path.is_empty() && sums.len() > 1 {
                            let sum = sums.pop().unwrap_or(0);
                            if let Some(last) = sums.last_mut() {
                                *last = last.saturating_add(sum);
                            }
                        }
                    }
                }
                done.is_ok()
            });
        }
        done?;
        self.print_line(sums.into_iter().sum(), &place.display_with(b""))
    }

    /// The space of one file.
    fn space_of(&mut self, files: &FileSystemReader, id: u64, place: &PoolPath) -> u64 {
        match files.file(id) {
            Ok(file) => {
                let facts = file.stat();
                let once = facts.is_directory() || facts.nlink < 2;
                if !once && !self.counted_links.insert((place.dataset.clone(), id)) {
                    return 0;
                }
                if self.args.apparent_size { facts.size } else { file.allocated() }
            }
            Err(why) => {
                self.has_errors = true;
                print::warning(&format!("{}: object {id}: {why}", place.dataset));
                0
            }
        }
    }

    fn print_line(&mut self, bytes: u64, name: &[u8]) -> io::Result<()> {
        let shown = if self.args.human {
            human_size(bytes)
        } else if self.args.bytes {
            bytes.to_string()
        } else {
            bytes.div_ceil(1024).to_string()
        };
        write!(self.out, "{shown}\t")?;
        self.out.write_all(&terminal_bytes(name, self.is_terminal))?;
        self.out.write_all(b"\n")
    }
}
