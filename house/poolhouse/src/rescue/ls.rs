//! `poolhouse rescue ls`: lists folders and files, as `ls` does.

use std::io::{self, BufWriter, IsTerminal, Write};

use engine::files::{DirEntry, File, FileStat, FileSystemReader, FileType};

use super::pool_path::{OpenDatasets, PoolPath, escape_bytes, terminal_bytes};
use super::tree::{WalkEvent, walk_tree};
use crate::outcome::{CommandResult, Outcome};
use crate::pool_args::PoolArgs;
use crate::{print, time};

/// List folders and files
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  poolhouse rescue ls -d ~/images -lR tank/home@monday:/ann")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command")]
pub(crate) struct Args {
    /// POOL/FS[@SNAP]:/PATH
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
    /// One line for each, with mode, owner, size and time
    #[arg(short)]
    pub(crate) long: bool,
    /// All folders below, too
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
    /// Also names that begin with a dot
    #[arg(short)]
    pub(crate) all: bool,
    /// With object numbers
    #[arg(short)]
    pub(crate) inode: bool,
    /// List the folder itself, not its entries
    #[arg(long)]
    pub(crate) directory: bool,
    /// Sizes in short form
    #[arg(long)]
    pub(crate) human: bool,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    list(args, &mut OpenDatasets::in_pools(common))
}

/// Lists the arguments.
pub(crate) fn list(args: &Args, opened: &mut OpenDatasets<'_>) -> CommandResult {
    let stdout = io::stdout().lock();
    let terminal = stdout.is_terminal();
    let out = BufWriter::with_capacity(64 << 10, stdout);
    let mut lister = Lister { args, out, is_terminal: terminal, has_errors: false };
    for (index, target) in args.targets.iter().enumerate() {
        let place = PoolPath::parse(target)?;
        let (files, file) = opened.find_file(&place)?;
        if args.directory || !file.stat().is_directory() {
            let name =
                DirEntry { name: target.clone().into(), ino: file.ino(), kind: file.stat().kind };
            lister.print_entry(&files, &name)?;
            continue;
        }
        let headed = args.recursive || args.targets.len() > 1;
        if headed {
            let gap = if index > 0 { "\n" } else { "" };
            writeln!(lister.out, "{gap}{target}:")?;
        }
        lister.list_directory(&files, &file)?;
        if args.recursive {
            lister.list_recursively(&files, &file, &place)?;
        }
    }
    lister.out.flush()?;
    Ok(Outcome::complete_unless(lister.has_errors))
}

struct Lister<'a, W: Write> {
    args: &'a Args,
    out: BufWriter<W>,
    is_terminal: bool,
    has_errors: bool,
}

impl<W: Write> Lister<'_, W> {
    fn report_error(&mut self, what: &dyn std::fmt::Display) {
        self.has_errors = true;
        print::warning(what);
    }

    /// The names in a folder.
    fn list_directory(&mut self, files: &FileSystemReader, folder: &File) -> io::Result<()> {
        let names = match files.read_dir_sorted(folder) {
            Ok(names) => names,
            Err(why) => {
                self.report_error(&why);
                return Ok(());
            }
        };
        if self.args.all {
            let here =
                DirEntry { name: b".".to_vec(), ino: folder.ino(), kind: FileType::Directory };
            let above = folder.stat().parent;
            let above = DirEntry { name: b"..".to_vec(), ino: above, kind: FileType::Directory };
            self.print_entry(files, &here)?;
            self.print_entry(files, &above)?;
        }
        for name in names {
            if self.args.all || !name.name.starts_with(b".") {
                self.print_entry(files, &name)?;
            }
        }
        Ok(())
    }

    /// The folders below a folder, each with a head.
    fn list_recursively(
        &mut self,
        files: &FileSystemReader,
        top: &File,
        place: &PoolPath,
    ) -> io::Result<()> {
        let mut done = Ok(());
        walk_tree(files, top, usize::MAX, &mut |step| {
            match step {
                WalkEvent::Entry(name, path) if name.kind == FileType::Directory => {
                    if !self.args.all && path.split(|byte| *byte == b'/').any(is_hidden) {
                        return true;
                    }
                    let head = terminal_bytes(&place.display_with(path), self.is_terminal);
                    done = self.out.write_all(b"\n").and_then(|()| self.out.write_all(&head));
                    done = std::mem::replace(&mut done, Ok(()))
                        .and_then(|()| self.out.write_all(b":\n"))
                        .and_then(|()| match files.file(name.ino) {
                            Ok(folder) => self.list_directory(files, &folder),
                            Err(why) => {
                                self.report_error(&why);
                                Ok(())
                            }
                        });
                }
                WalkEvent::Error(path, why) => {
                    self.report_error(&format!(
                        "{}: {why}",
                        escape_bytes(&place.display_with(path))
                    ));
                }
                _ => {}
            }
            done.is_ok()
        });
        done
    }

    fn print_entry(&mut self, files: &FileSystemReader, name: &DirEntry) -> io::Result<()> {
        if self.args.inode {
            write!(self.out, "{:>8} ", name.ino)?;
        }
        if !self.args.long {
            self.out.write_all(&terminal_bytes(&name.name, self.is_terminal))?;
            return self.out.write_all(b"\n");
        }
        let facts = match files.stat(name.ino) {
            Ok(facts) => facts,
            Err(why) => {
                self.report_error(&format!("{}: {why}", escape_bytes(&name.name)));
                write!(self.out, "?????????? ? ? ? ? ? ")?;
                self.out.write_all(&terminal_bytes(&name.name, self.is_terminal))?;
                return self.out.write_all(b"\n");
            }
        };
        let size = match facts.kind {
            FileType::CharDevice | FileType::BlockDevice => {
                format!("{}, {}", facts.rdev.0, facts.rdev.1)
            }
            _ if self.args.human => human_size(facts.size),
            _ => facts.size.to_string(),
        };
        let seconds = u64::try_from(facts.mtime.seconds).unwrap_or(0);
        write!(
            self.out,
            "{} {:>3} {:>5} {:>5} {size:>10} {:<16} ",
            mode_string(&facts),
            facts.nlink,
            facts.uid,
            facts.gid,
            time::format_minutes(seconds),
        )?;
        self.out.write_all(&terminal_bytes(&name.name, self.is_terminal))?;
        if facts.kind == FileType::Symlink
            && let Ok(target) = files.file(name.ino).and_then(|link| link.read_link())
        {
            self.out.write_all(b" -> ")?;
            self.out.write_all(&terminal_bytes(&target, self.is_terminal))?;
        }
        self.out.write_all(b"\n")
    }
}

fn is_hidden(part: &[u8]) -> bool {
    part.starts_with(b".")
}

/// "drwxr-xr-x" and the like.
pub(crate) fn mode_string(facts: &FileStat) -> String {
    let bit = |shift: u32| facts.mode >> shift & 1 == 1;
    let mut out = String::from(facts.kind.letter());
    for (group, special, letters) in [(6, 11, ('s', 'S')), (3, 10, ('s', 'S')), (0, 9, ('t', 'T'))]
    {
        out.push(if bit(group + 2) { 'r' } else { '-' });
        out.push(if bit(group + 1) { 'w' } else { '-' });
        out.push(match (bit(group), bit(special)) {
            (true, true) => letters.0,
            (false, true) => letters.1,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// Bytes in short form: 1.5M.
pub(crate) fn human_size(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    let (mut unit, mut tenths) = (None, u128::from(bytes) * 10);
    for next in UNITS {
        if tenths < 10240 {
            break;
        }
        (unit, tenths) = (Some(next), tenths.div_ceil(1024));
    }
    match unit {
        None => bytes.to_string(),
        Some(unit) if tenths < 100 => format!("{}.{}{unit}", tenths / 10, tenths % 10),
        Some(unit) => format!("{}{unit}", tenths.div_ceil(10)),
    }
}

#[cfg(test)]
mod tests {
    use super::human_size;

    #[test]
    fn short_sizes_equal_those_of_ls() {
        let cases = [(0, "0"), (1023, "1023"), (1024, "1.0K"), (1536, "1.5K"), (10240, "10K")];
        for (bytes, wanted) in cases {
            assert_eq!(human_size(bytes), wanted);
        }
        assert_eq!(human_size((1 << 20) + 1), "1.1M");
        assert_eq!(human_size(u64::MAX), "16E");
    }
}
