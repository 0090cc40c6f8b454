//! `poolhouse rescue get`: copies files and trees out.
//!
//! One thread walks the trees and makes folders; others copy files, several at a time, large ones
//! in parts. What is complete already is skipped, so that the same command goes on where it was
//! stopped. Folders get their owners, modes and times last, and so do further names of a file.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use engine::files::{File, FileStat, FileSystemReader, FileType};

use super::attributes::{self, DAMAGED, Keep, NotKept};
use super::copy::{self, Bad, How};
use super::place::{Opened, Place, safe};
use super::report::{Damaged, Report};
use super::tree::{Step, walk};
use crate::common::Common;
use crate::ordered::{ordered, threads};
use crate::outcome::{Done, Failure, Outcome};
use crate::progress::Progress;
use crate::{print, stop};

/// Copy files and trees out, with all that belongs to them
#[derive(clap::Args, Debug)]
#[command(after_help = "A folder or file is copied to DEST/ITS-NAME; of a root (tank/home:/) that
comes straight into DEST, or, with several SRC, into DEST/LAST-PART-OF-ITS-NAME. Files are written
as .NAME.poolhouse-part and get their name when they are whole. The same command goes on where it
was stopped, and skips what is complete: what has the size and the time of its original. A file that
cannot be read in full has holes in place of what is missing, and a time that is 2 seconds off, so
that the next run tries again.

Examples:
  poolhouse rescue get -d ~/images tank/home@monday:/ann ~/saved
  poolhouse rescue get -d ~/images -r --report report.json tank:/ ~/saved")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command")]
pub(crate) struct Args {
    /// POOL/FS[@SNAP]:/PATH to be copied, one or more, and the folder to copy them to
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    pub(crate) places: Vec<String>,
    /// The datasets below those of SRC, too, as folders
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Begin anew where an earlier copy was broken off, instead of going on
    #[arg(long)]
    pub(crate) restart: bool,
    /// Overwrite files that are there and differ
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Do not keep owners and groups
    #[arg(long)]
    pub(crate) no_owner: bool,
    /// Do not keep extended attributes and ACLs
    #[arg(long)]
    pub(crate) no_xattrs: bool,
    /// Write what was copied, and what could not be, to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// How many files at a time; 0: as many as suits this machine
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) jobs: usize,
    /// No progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

pub(crate) fn run(args: &Args, common: &Common) -> Done {
    let Some((dest, sources)) = args.places.split_last() else {
        return Err(Failure::usage("SRC and DEST are wanted"));
    };
    let dest = PathBuf::from(dest);
    let mut opened = Opened::new(common);
    let mut trees = Vec::new();
    for source in sources {
        let place = Place::parse(source)?;
        let (files, file) = opened.find(&place)?;
        let to = if place.path.is_empty() && sources.len() == 1 {
            dest.clone()
        } else {
            dest.join(place.last())
        };
        trees.push(Tree { place, files, file, to });
    }
    if args.recursive {
        add_children(&mut opened, &mut trees)?;
    }
    std::fs::create_dir_all(&dest).map_err(|error| Failure::file(&dest, &error))?;
    let total = trees.iter().map(|tree| expected(&mut opened, tree)).sum();
    stop::listen();
    let keep = Keep {
        owner: !args.no_owner && rustix::process::geteuid().is_root(),
        xattrs: !args.no_xattrs,
    };
    let copier = Copier {
        args,
        keep,
        // one more than cores: while some write into the cache of the destination, others read
        threads: threads(args.jobs) + usize::from(args.jobs == 0),
        progress: Progress::new(total, args.quiet),
        not_kept: NotKept::default(),
    };
    let mut report = Report::default();
    if !keep.owner && !args.no_owner {
        report.owners_left_out = true;
    }
    for tree in &trees {
        copier.tree(tree, &mut report);
    }
    copier.progress.end();
    report.not_kept = copier.not_kept.all();
    report.stopped = stop::wanted();
    report.print();
    if let Some(path) = &args.report {
        report.write(path).map_err(|error| Failure::file(path, &error))?;
    }
    if report.stopped {
        return Err(engine::Error::Interrupted.into());
    }
    Ok(Outcome::unless(report.is_bad()))
}

/// What is to be copied, and where to.
struct Tree {
    place: Place,
    files: FileSystemReader,
    file: File,
    to: PathBuf,
}

/// Adds the file systems below those whose roots are to be copied, each where it would be mounted.
fn add_children(opened: &mut Opened<'_>, trees: &mut Vec<Tree>) -> Result<(), Failure> {
    let mut at = 0;
    while at < trees.len() {
        let Tree { place, to, .. } = &trees[at];
        at += 1;
        if !place.path.is_empty() {
            continue;
        }
        let to = to.clone();
        let (name, snapshot) = match place.dataset.split_once('@') {
            Some((name, snapshot)) => (name.to_owned(), format!("@{snapshot}")),
            None => (place.dataset.clone(), String::new()),
        };
        for child in opened.pool(&name)?.child_filesystems(&name) {
            let dataset = format!("{child}{snapshot}");
            let place = Place { dataset, path: String::new() };
            match opened.find(&place) {
                Ok((files, file)) => {
                    let to = to.join(child.rsplit('/').next().unwrap_or(&child));
                    trees.push(Tree { place, files, file, to });
                }
                // a child need not have the snapshot
                Err(Failure::Engine(engine::Error::NoSuchDataset { .. }))
                    if !snapshot.is_empty() => {}
                Err(Failure::Engine(error)) => print::warning(&error),
                Err(other) => return Err(other),
            }
        }
    }
    Ok(())
}

/// How many bytes a tree has, as far as the pool knows at once.
fn expected(opened: &mut Opened<'_>, tree: &Tree) -> u64 {
    if tree.file.stat().kind == FileType::File {
        return tree.file.stat().size;
    }
    if !tree.place.path.is_empty() {
        return 0;
    }
    let number = |pool: engine::RescuePool| pool.logical_size(&tree.place.dataset);
    opened.pool(&tree.place.dataset).map_or(0, number)
}

/// A file to be copied.
struct Job {
    id: u64,
    from: Vec<u8>,
    to: PathBuf,
}

/// What came of a file.
enum Made {
    Copied { bytes: u64, resumed: bool },
    Skipped,
    Damaged { bytes: u64, bad: Vec<Bad> },
    Failed { why: String },
    InTheWay,
    Stopped,
}

struct Copier<'a> {
    args: &'a Args,
    keep: Keep,
    threads: usize,
    progress: Progress,
    not_kept: NotKept,
}

impl Copier<'_> {
    fn tree(&self, tree: &Tree, report: &mut Report) {
        if stop::wanted() {
            return;
        }
        let mut plan = Plan::default();
        // what the walk meets is copied while it goes on: it runs as the source of the jobs
        let (send, receive) = std::sync::mpsc::sync_channel::<Found>(1024);
        std::thread::scope(|scope| {
            scope.spawn(move || Self::walk(tree, &send));
            let jobs = receive.iter().filter_map(|found| match found {
                Found::File(job, links) => plan.take(job, links),
                Found::Folder(id, to) => {
                    plan.folders.push((id, to));
                    None
                }
                Found::Trouble(from, why) => {
                    plan.troubles.push((from, why));
                    None
                }
            });
            let work = |job: Job| {
                let made = self.file(&tree.files, &job);
                (job, made)
            };
            let _ = ordered(self.threads, self.threads * 16, jobs, work, |(job, made)| {
                self.count(&job, made, report);
                ControlFlow::Continue(())
            });
        });
        for (from, why) in std::mem::take(&mut plan.troubles) {
            report.failed.push((safe(&from), why));
        }
        if stop::wanted() {
            return;
        }
        for (job, first) in std::mem::take(&mut plan.links) {
            self.link(&job, &first, report);
        }
        for (id, to) in plan.folders.iter().rev() {
            match tree.files.file(*id) {
                Ok(file) => attributes::apply(to, &file, self.keep, 0, &self.not_kept),
                Err(why) => report.failed.push((to.display().to_string(), why.to_string())),
            }
        }
    }

    /// Walks the tree, makes its folders, and tells what else there is to be made.
    fn walk(tree: &Tree, send: &std::sync::mpsc::SyncSender<Found>) {
        let facts = tree.file.stat();
        let start = tree.place.shown(b"");
        if !facts.is_directory() {
            let job = Job { id: facts.ino, from: start, to: tree.to.clone() };
            let _ = send.send(Found::File(job, facts.nlink > 1));
            return;
        }
        if let Err(error) = make_folder(&tree.to) {
            let _ = send.send(Found::Trouble(start, engine::error::io_error_text(&error)));
            return;
        }
        let _ = send.send(Found::Folder(facts.ino, tree.to.clone()));
        walk(&tree.files, &tree.file, usize::MAX, &mut |step| {
            let found = match step {
                Step::Entry(name, path) => {
                    let to = tree.to.join(OsStr::from_bytes(path));
                    let from = tree.place.shown(path);
                    if !is_plain(&name.name) {
                        Found::Trouble(from, "no name that a file can have".to_owned())
                    } else if name.kind == FileType::Directory {
                        match make_folder(&to) {
                            Ok(()) => Found::Folder(name.ino, to),
                            Err(error) => {
                                Found::Trouble(from, engine::error::io_error_text(&error))
                            }
                        }
                    } else {
                        let links = tree.files.stat(name.ino).map_or(1, |facts| facts.nlink);
                        Found::File(Job { id: name.ino, from, to }, links > 1)
                    }
                }
                Step::Trouble(path, why) => Found::Trouble(tree.place.shown(path), why.to_string()),
                Step::Leave(_) => return !stop::wanted(),
            };
            send.send(found).is_ok() && !stop::wanted()
        });
    }

    fn count(&self, job: &Job, made: Made, report: &mut Report) {
        let from = safe(&job.from);
        match made {
            Made::Copied { bytes, resumed } => {
                report.copied += 1;
                report.bytes += bytes;
                report.resumed += u64::from(resumed);
            }
            Made::Skipped => report.skipped += 1,
            Made::Damaged { bytes, bad } => {
                report.bytes += bytes;
                self.progress.warn(&format!("{from} cannot be read in full: {}", bad[0].why));
                let dest = job.to.display().to_string();
                report.damaged.push(Damaged { path: from, dest, bad });
            }
            Made::Failed { why } => {
                self.progress.warn(&format!("{from}: {why}"));
                report.failed.push((from, why));
            }
            Made::InTheWay => {
                let to = job.to.display();
                let why = format!("{to} is there already and differs; give --overwrite");
                self.progress.warn(&format!("{from}: {why}"));
                report.failed.push((from, why));
            }
            Made::Stopped => {}
        }
    }

    /// Makes one file, whatever it is.
    fn file(&self, files: &FileSystemReader, job: &Job) -> Made {
        if stop::wanted() {
            return Made::Stopped;
        }
        let file = match files.file(job.id) {
            Ok(file) => file,
            Err(why) => return Made::Failed { why: why.to_string() },
        };
        let facts = file.stat();
        let there = std::fs::symlink_metadata(&job.to).ok();
        if let Some(there) = &there {
            if is_complete(there, &facts, &job.to, &file) {
                self.progress.add(facts.size);
                return Made::Skipped;
            }
            if !self.args.overwrite && !is_damaged(there, &facts) {
                return Made::InTheWay;
            }
        }
        let made = match facts.kind {
            FileType::File => self.content(&file, &facts, job),
            _ => self.other(&file, &facts, job, there.is_some()),
        };
        made.unwrap_or_else(|error| Made::Failed { why: engine::error::io_error_text(&error) })
    }

    fn content(&self, file: &File, facts: &FileStat, job: &Job) -> io::Result<Made> {
        self.progress.at(&job.to.to_string_lossy());
        let part = part_of(&job.to, facts.ino);
        let content = file.content();
        let how = How {
            threads: self.threads,
            mark: facts.mtime,
            restart: self.args.restart,
            zeros: false,
            progress: &self.progress,
        };
        let (out, from) = copy::open_part(&part, &content, &how)?;
        self.progress.add(from);
        let copied = copy::copy(&content, &out, from, &how)?;
        if copied.stopped {
            return Ok(Made::Stopped);
        }
        copy::set_length(&out, facts.size)?;
        drop(out);
        let shift = if copied.bad.is_empty() { 0 } else { DAMAGED };
        attributes::apply(&part, file, self.keep, shift, &self.not_kept);
        std::fs::rename(&part, &job.to)?;
        if copied.bad.is_empty() {
            return Ok(Made::Copied { bytes: copied.bytes, resumed: from > 0 });
        }
        Ok(Made::Damaged { bytes: copied.bytes, bad: copied.bad })
    }

    fn other(&self, file: &File, facts: &FileStat, job: &Job, there: bool) -> io::Result<Made> {
        if facts.kind == FileType::Other {
            return Ok(Made::Failed { why: "it is of no type that is known".to_owned() });
        }
        if there {
            std::fs::remove_file(&job.to)?;
        }
        if facts.kind == FileType::Symlink {
            let target = match file.read_link() {
                Ok(target) => target,
                Err(why) => return Ok(Made::Failed { why: why.to_string() }),
            };
            std::os::unix::fs::symlink(OsStr::from_bytes(&target), &job.to)?;
        } else if let Err(error) = attributes::make_node(&job.to, facts) {
            if error.kind() == io::ErrorKind::PermissionDenied {
                self.not_kept.add("device nodes", &error);
                return Ok(Made::Skipped);
            }
            return Err(error);
        }
        attributes::apply(&job.to, file, self.keep, 0, &self.not_kept);
        Ok(Made::Copied { bytes: 0, resumed: false })
    }

    /// Gives a file that was copied a further name.
    fn link(&self, job: &Job, first: &Path, report: &mut Report) {
        let made = || -> io::Result<bool> {
            let original = std::fs::symlink_metadata(first)?;
            if let Ok(there) = std::fs::symlink_metadata(&job.to) {
                if (there.dev(), there.ino()) == (original.dev(), original.ino()) {
                    return Ok(false);
                }
                let same = there.len() == original.len() && there.mtime() == original.mtime();
                if !same && !self.args.overwrite {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                std::fs::remove_file(&job.to)?;
            }
            std::fs::hard_link(first, &job.to)?;
            Ok(true)
        };
        match made() {
            Ok(true) => report.copied += 1,
            Ok(false) => report.skipped += 1,
            Err(error) => {
                let why = format!("no further name of {}: {error}", first.display());
                report.failed.push((safe(&job.from), why));
            }
        }
    }
}

/// What the walk meets.
enum Found {
    /// A file, and whether it has several names.
    File(Job, bool),
    Folder(u64, PathBuf),
    Trouble(Vec<u8>, String),
}

/// What is left for the end of a tree.
#[derive(Default)]
struct Plan {
    folders: Vec<(u64, PathBuf)>,
    links: Vec<(Job, PathBuf)>,
    first_names: HashMap<u64, PathBuf>,
    troubles: Vec<(Vec<u8>, String)>,
}

impl Plan {
    /// A file to be copied now, unless it is a further name of one that was met before.
    fn take(&mut self, job: Job, several: bool) -> Option<Job> {
        if several {
            if let Some(first) = self.first_names.get(&job.id) {
                self.links.push((job, first.clone()));
                return None;
            }
            self.first_names.insert(job.id, job.to.clone());
        }
        Some(job)
    }
}

/// Whether a name, which comes from a disk that nobody vouches for, stays in its folder.
fn is_plain(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// Makes a folder, or finds that it is there. One that is a link is not followed.
fn make_folder(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let there = std::fs::symlink_metadata(path)?;
            if there.is_dir() { Ok(()) } else { Err(error) }
        }
        other => other,
    }
}

/// The name of a file that is not whole yet.
fn part_of(path: &Path, id: u64) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let name = if name.len() + 17 <= 255 {
        [b".", name, b".poolhouse-part"].concat()
    } else {
        format!(".{id}.poolhouse-part").into_bytes()
    };
    path.with_file_name(OsStr::from_bytes(&name))
}

/// Whether the time of last change is that of the original, so many seconds off. Some file systems
/// keep no parts of seconds.
fn has_time(there: &std::fs::Metadata, facts: &FileStat, shift: i64) -> bool {
    there.mtime() == facts.mtime.seconds.saturating_add(shift)
        && (there.mtime_nsec() == i64::from(facts.mtime.nanoseconds) || there.mtime_nsec() == 0)
}

fn is_complete(there: &std::fs::Metadata, facts: &FileStat, path: &Path, file: &File) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let kind = there.file_type();
    match facts.kind {
        FileType::File => kind.is_file() && there.len() == facts.size && has_time(there, facts, 0),
        FileType::Symlink => {
            kind.is_symlink()
                && std::fs::read_link(path).is_ok_and(|now| {
                    file.read_link().is_ok_and(|target| now.as_os_str().as_bytes() == target)
                })
        }
        FileType::Fifo => kind.is_fifo(),
        FileType::Socket => kind.is_socket(),
        FileType::CharDevice => kind.is_char_device(),
        FileType::BlockDevice => kind.is_block_device(),
        FileType::Directory | FileType::Other => false,
    }
}

/// Whether it is what an earlier run could not copy in full.
fn is_damaged(there: &std::fs::Metadata, facts: &FileStat) -> bool {
    there.is_file() && there.len() == facts.size && has_time(there, facts, DAMAGED)
}
