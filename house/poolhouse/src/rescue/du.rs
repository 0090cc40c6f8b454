//! `poolhouse rescue du`: prints what folders take, as `du` does.

use std::collections::HashSet;
use std::io::{self, BufWriter, IsTerminal, Write};

use engine::files::{File, FileSystemReader, FileType};

use super::ls::human;
use super::place::{Opened, Place, for_output, safe};
use super::tree::{Step, walk};
use crate::common::Common;
use crate::outcome::{Done, Outcome};
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
    /// Only folders so many levels down
    #[arg(long, value_name = "LEVELS")]
    pub(crate) max_depth: Option<usize>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

pub(crate) fn run(args: &Args, common: &Common) -> Done {
    let mut opened = Opened::new(common);
    let stdout = io::stdout().lock();
    let terminal = stdout.is_terminal();
    let out = BufWriter::new(stdout);
    let mut counter = Counter { args, out, terminal, linked: HashSet::new(), wrong: false };
    for target in &args.targets {
        let place = Place::parse(target)?;
        let (files, top) = opened.find(&place)?;
        counter.top(&files, &top, &place)?;
    }
    counter.out.flush()?;
    Ok(Outcome::unless(counter.wrong))
}

struct Counter<'a, W: Write> {
    args: &'a Args,
    out: BufWriter<W>,
    terminal: bool,
    /// Files with several names count once: their dataset and number.
    linked: HashSet<(String, u64)>,
    wrong: bool,
}

impl<W: Write> Counter<'_, W> {
    fn top(&mut self, files: &FileSystemReader, top: &File, place: &Place) -> io::Result<()> {
        let depth = if self.args.summarize { 0 } else { self.args.max_depth.unwrap_or(usize::MAX) };
        let mut sums = vec![self.take(files, top.ino(), place)];
        let mut done = Ok(());
        if top.stat().is_directory() {
            walk(files, top, usize::MAX, &mut |step| {
                match step {
                    Step::Entry(name, path) => {
                        let took = self.take(files, name.ino, place);
                        if name.kind == FileType::Directory {
                            sums.push(took);
                        } else {
                            if let Some(last) = sums.last_mut() {
                                *last = last.saturating_add(took);
                            }
                            if self.args.all && sums.len() <= depth {
                                done = self.line(took, &place.shown(path));
                            }
                        }
                    }
                    Step::Leave(path) => {
                        let sum = sums.pop().unwrap_or(0);
                        if let Some(last) = sums.last_mut() {
                            *last = last.saturating_add(sum);
                        }
                        if sums.len() <= depth {
                            done = self.line(sum, &place.shown(path));
                        }
                    }
                    Step::Trouble(path, why) => {
                        self.wrong = true;
                        print::warning(&format!("{}: {why}", safe(&place.shown(path))));
                        // no end of it will be told
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
        self.line(sums.into_iter().sum(), &place.shown(b""))
    }

    /// What one file takes.
    fn take(&mut self, files: &FileSystemReader, id: u64, place: &Place) -> u64 {
        match files.file(id) {
            Ok(file) => {
                let facts = file.stat();
                let once = facts.is_directory() || facts.nlink < 2;
                if !once && !self.linked.insert((place.dataset.clone(), id)) {
                    return 0;
                }
                if self.args.apparent_size { facts.size } else { file.allocated() }
            }
            Err(why) => {
                self.wrong = true;
                print::warning(&format!("{}: object {id}: {why}", place.dataset));
                0
            }
        }
    }

    fn line(&mut self, bytes: u64, name: &[u8]) -> io::Result<()> {
        let shown = if self.args.human {
            human(bytes)
        } else if self.args.bytes {
            bytes.to_string()
        } else {
            bytes.div_ceil(1024).to_string()
        };
        write!(self.out, "{shown}\t")?;
        self.out.write_all(&for_output(name, self.terminal))?;
        self.out.write_all(b"\n")
    }
}
