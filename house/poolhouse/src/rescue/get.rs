//! `poolhouse rescue get`: copies files and trees out.
//!
//! One thread walks the trees and creates folders; others copy files, several at a time, large ones
//! in parts. Complete files are skipped, so that the same command resumes an interrupted
//! copy. Folders get their owners, modes and times last, and so do further names of a file.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use engine::files::{File, FileStat, FileSystemReader, FileType};

use super::attributes::{self, AttributeOptions, DAMAGED_MTIME_SHIFT, LostAttributes};
use super::copy::{self, BadRange, CopyOptions};
use super::pool_path::{OpenDatasets, PoolPath, escape_bytes};
use super::report::{CopyReport, DamagedFile};
use super::tree::{WalkEvent, walk_tree};
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::parallel::{run_ordered, thread_count};
use crate::pool_args::PoolArgs;
use crate::progress::Progress;
use crate::{interrupt, print};

/// Copy files and trees with their metadata out of a pool
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A folder or file is copied to DEST/ITS-NAME, the contents of a root (tank/home:/)
to DEST, or, with several SRC, to DEST/LAST-PART-OF-ITS-NAME. Files are written as
.NAME.poolhouse-part and get their name when they are complete. The same command resumes an
interrupted copy, and skips complete files: those with the size and the time of their original. A
partly unreadable file has holes in place of the missing ranges, and a time that is 2 seconds off,
so that the next run tries again.

Examples:
  poolhouse rescue get -d ~/images tank/home@monday:/ann ~/saved
  poolhouse rescue get -d ~/images -r --report report.json tank:/ ~/saved"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command")]
pub(crate) struct Args {
    /// POOL/FS[@SNAP]:/PATH to be copied, one or more, and the folder to copy them to
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    pub(crate) places: Vec<String>,
    /// Include the datasets below SRC, as folders
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Start interrupted copies again, instead of resuming them
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
    /// Write a report of copied and failed files as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// How many files at a time; 0: as many as suits this machine
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) jobs: usize,
    /// No progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    copy_out(args, &mut OpenDatasets::in_pools(common))
}

/// Copies the arguments.
pub(crate) fn copy_out(args: &Args, opened: &mut OpenDatasets<'_>) -> CommandResult {
    let Some((dest, sources)) = args.places.split_last() else {
        return Err(Failure::usage("SRC and DEST are wanted"));
    };
    let dest = PathBuf::from(dest);
    let mut trees = Vec::new();
    for source in sources {
        let place = PoolPath::parse(source)?;
        let (files, file) = opened.find_file(&place)?;
        let to = if place.path.is_empty() && sources.len() == 1 {
            dest.clone()
        } else {
            dest.join(place.file_name())
        };
        trees.push(SourceTree { source: place, files, root: file, dest: to });
    }
    if args.recursive {
        add_child_filesystems(opened, &mut trees)?;
    }
    std::fs::create_dir_all(&dest).map_err(|error| Failure::destination(&dest, &error))?;
    let total = trees.iter().map(|tree| expected_bytes(opened, tree)).sum();
    interrupt::install_handler();
    let keep = AttributeOptions {
        owner: !args.no_owner && rustix::process::geteuid().is_root(),
        xattrs: !args.no_xattrs,
    };
    let copier = Copier {
        args,
        attribute_options: keep,
        // one more than cores: while some write into the cache of the destination, others read
        threads: thread_count(args.jobs) + usize::from(args.jobs == 0),
        progress: Progress::new(total, args.quiet),
        lost_attributes: LostAttributes::default(),
    };
    let mut report = CopyReport::default();
    if !keep.owner && !args.no_owner {
        report.owners_skipped = true;
    }
    for tree in &trees {
        copier.copy_tree(tree, &mut report);
    }
    copier.progress.finish();
    report.lost_attributes = copier.lost_attributes.summary();
    report.interrupted = interrupt::is_interrupted();
    report.print();
    if let Some(path) = &args.report {
        report.write_json(path).map_err(|error| Failure::destination(path, &error))?;
    }
    if report.interrupted {
        return Err(engine::Error::Interrupted.into());
    }
    Ok(Outcome::complete_unless(report.has_failures()))
}

/// The source and the target.
struct SourceTree {
    source: PoolPath,
    files: FileSystemReader,
    root: File,
    dest: PathBuf,
}

/// Adds the file systems below those whose roots are copied, each at its mountpoint.
fn add_child_filesystems(
    opened: &mut OpenDatasets<'_>,
    trees: &mut Vec<SourceTree>,
) -> Result<(), Failure> {
    let mut at = 0;
    while at < trees.len() {
        let SourceTree { source: place, dest: to, .. } = &trees[at];
        at += 1;
        if !place.path.is_empty() {
            continue;
        }
        let to = to.clone();
        let (name, snapshot) = match place.dataset.split_once('@') {
            Some((name, snapshot)) => (name.to_owned(), format!("@{snapshot}")),
            None => (place.dataset.clone(), String::new()),
        };
        for child in opened.catalog(&name)?.child_filesystems(&name) {
            let dataset = format!("{child}{snapshot}");
            let place = PoolPath { dataset, path: String::new() };
            match opened.find_file(&place) {
                Ok((files, file)) => {
                    let to = to.join(child.rsplit('/').next().unwrap_or(&child));
                    trees.push(SourceTree { source: place, files, root: file, dest: to });
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
fn expected_bytes(opened: &mut OpenDatasets<'_>, tree: &SourceTree) -> u64 {
    if tree.root.stat().kind == FileType::File {
        return tree.root.stat().size;
    }
    if !tree.source.path.is_empty() {
        return 0;
    }
    let catalog = opened.catalog(&tree.source.dataset);
    catalog.map_or(0, |catalog| catalog.logical_size(&tree.source.dataset))
}

/// A file to be copied.
struct FileJob {
    object: u64,
    source: Vec<u8>,
    dest: PathBuf,
}

/// The result for a file.
enum FileResult {
    Copied { bytes: u64, resumed: bool },
    Skipped,
    Damaged { bytes: u64, bad_ranges: Vec<BadRange> },
    Failed { reason: String },
    Conflict,
    Interrupted,
}

struct Copier<'a> {
    args: &'a Args,
    attribute_options: AttributeOptions,
    threads: usize,
    progress: Progress,
    lost_attributes: LostAttributes,
}

impl Copier<'_> {
    fn copy_tree(&self, tree: &SourceTree, report: &mut CopyReport) {
        if interrupt::is_interrupted() {
            return;
        }
        let mut plan = DeferredWork::default();
        // files are copied while the walk continues: it runs as the source of the jobs
        let (send, receive) = std::sync::mpsc::sync_channel::<WalkItem>(1024);
        std::thread::scope(|scope| {
            scope.spawn(move || Self::walk_tree(tree, &send));
            let jobs = receive.iter().filter_map(|found| match found {
                WalkItem::File(job, links) => plan.defer_hard_link(job, links),
                WalkItem::Directory(id, to) => {
                    plan.directories.push((id, to));
                    None
                }
                WalkItem::Error(from, why) => {
                    plan.errors.push((from, why));
                    None
                }
            });
            let work = |job: FileJob| {
                let made = self.copy_file(&tree.files, &job);
                (job, made)
            };
            let _ = run_ordered(self.threads, self.threads * 16, jobs, work, |(job, made)| {
                self.count_result(&job, made, report);
                ControlFlow::Continue(())
            });
        });
        for (from, why) in std::mem::take(&mut plan.errors) {
            report.failed.push((escape_bytes(&from), why));
        }
        if interrupt::is_interrupted() {
            return;
        }
        for (job, first) in std::mem::take(&mut plan.hard_links) {
            self.create_hard_link(&job, &first, report);
        }
        for (id, to) in plan.directories.iter().rev() {
            match tree.files.file(*id) {
                Ok(file) => attributes::apply_attributes(
                    to,
                    &file,
                    self.attribute_options,
                    0,
                    &self.lost_attributes,
                ),
                Err(why) => report.failed.push((to.display().to_string(), why.to_string())),
            }
        }
    }

    /// Walks the tree, creates its folders, and yields the other files.
    fn walk_tree(tree: &SourceTree, send: &std::sync::mpsc::SyncSender<WalkItem>) {
        let facts = tree.root.stat();
        let start = tree.source.display_with(b"");
        if !facts.is_directory() {
            let job = FileJob { object: facts.ino, source: start, dest: tree.dest.clone() };
            let _ = send.send(WalkItem::File(job, facts.nlink > 1));
            return;
        }
        if let Err(error) = create_directory(&tree.dest) {
            let _ = send.send(WalkItem::Error(start, engine::error::io_error_text(&error)));
            return;
        }
        let _ = send.send(WalkItem::Directory(facts.ino, tree.dest.clone()));
        walk_tree(&tree.files, &tree.root, usize::MAX, &mut |step| {
            let found = match step {
                WalkEvent::Entry(name, path) => {
                    let to = tree.dest.join(OsStr::from_bytes(path));
                    let from = tree.source.display_with(path);
                    if !is_valid_name(&name.name) {
                        WalkItem::Error(from, "no name that a file can have".to_owned())
                    } else if name.kind == FileType::Directory {
                        match create_directory(&to) {
                            Ok(()) => WalkItem::Directory(name.ino, to),
                            Err(error) => {
                                WalkItem::Error(from, engine::error::io_error_text(&error))
                            }
                        }
                    } else {
                        let links = tree.files.stat(name.ino).map_or(1, |facts| facts.nlink);
                        WalkItem::File(
                            FileJob { object: name.ino, source: from, dest: to },
                            links > 1,
                        )
                    }
                }
                WalkEvent::Error(path, why) => {
                    WalkItem::Error(tree.source.display_with(path), why.to_string())
                }
                WalkEvent::EndOfDirectory(_) => return !interrupt::is_interrupted(),
            };
            send.send(found).is_ok() && !interrupt::is_interrupted()
        });
    }

    fn count_result(&self, job: &FileJob, made: FileResult, report: &mut CopyReport) {
        let from = escape_bytes(&job.source);
        match made {
            FileResult::Copied { bytes, resumed } => {
                report.copied += 1;
                report.bytes += bytes;
                report.resumed += u64::from(resumed);
            }
            FileResult::Skipped => report.skipped += 1,
            FileResult::Damaged { bytes, bad_ranges: bad } => {
                report.bytes += bytes;
                self.progress
                    .print_warning(&format!("{from} cannot be read in full: {}", bad[0].reason));
                let dest = job.dest.display().to_string();
                report.damaged.push(DamagedFile { path: from, dest, bad_ranges: bad });
            }
            FileResult::Failed { reason: why } => {
                self.progress.print_warning(&format!("{from}: {why}"));
                report.failed.push((from, why));
            }
            FileResult::Conflict => {
                let to = job.dest.display();
                let why = format!("{to} exists already and differs; give --overwrite");
                self.progress.print_warning(&format!("{from}: {why}"));
                report.failed.push((from, why));
            }
            FileResult::Interrupted => {}
        }
    }

    /// Creates one file of any type.
    fn copy_file(&self, files: &FileSystemReader, job: &FileJob) -> FileResult {
        if interrupt::is_interrupted() {
            return FileResult::Interrupted;
        }
        let file = match files.file(job.object) {
            Ok(file) => file,
            Err(why) => return FileResult::Failed { reason: why.to_string() },
        };
        let facts = file.stat();
        let there = std::fs::symlink_metadata(&job.dest).ok();
        if let Some(there) = &there {
            if is_complete(there, &facts, &job.dest, &file) {
                self.progress.add_bytes(facts.size);
                return FileResult::Skipped;
            }
            if !self.args.overwrite && !is_damaged(there, &facts) {
                return FileResult::Conflict;
            }
        }
        let made = match facts.kind {
            FileType::File => self.copy_content(&file, &facts, job),
            _ => self.copy_special(&file, &facts, job, there.is_some()),
        };
        made.unwrap_or_else(|error| FileResult::Failed {
            reason: engine::error::io_error_text(&error),
        })
    }

    fn copy_content(&self, file: &File, facts: &FileStat, job: &FileJob) -> io::Result<FileResult> {
        self.progress.set_message(&job.dest.to_string_lossy());
        let part = partial_path(&job.dest, facts.ino);
        let content = file.content();
        let how = CopyOptions {
            threads: self.threads,
            resume_mark: facts.mtime,
            restart: self.args.restart,
            write_zeros: false,
            progress: &self.progress,
        };
        let (out, from) = copy::open_partial(&part, &content, &how)?;
        self.progress.add_bytes(from);
        let copied = copy::copy_content(&content, &out, from, &how)?;
        if copied.interrupted {
            return Ok(FileResult::Interrupted);
        }
        copy::set_length(&out, facts.size)?;
        drop(out);
        let shift = if copied.bad_ranges.is_empty() { 0 } else { DAMAGED_MTIME_SHIFT };
        attributes::apply_attributes(
            &part,
            file,
            self.attribute_options,
            shift,
            &self.lost_attributes,
        );
        std::fs::rename(&part, &job.dest)?;
        if copied.bad_ranges.is_empty() {
            return Ok(FileResult::Copied { bytes: copied.bytes, resumed: from > 0 });
        }
        Ok(FileResult::Damaged { bytes: copied.bytes, bad_ranges: copied.bad_ranges })
    }

    fn copy_special(
        &self,
        file: &File,
        facts: &FileStat,
        job: &FileJob,
        there: bool,
    ) -> io::Result<FileResult> {
        if matches!(facts.kind, FileType::Other(_)) {
            return Ok(FileResult::Failed { reason: "it is of no type that is known".to_owned() });
        }
        if there {
            std::fs::remove_file(&job.dest)?;
        }
        if facts.kind == FileType::Symlink {
            let target = match file.read_link() {
                Ok(target) => target,
                Err(why) => return Ok(FileResult::Failed { reason: why.to_string() }),
            };
            std::os::unix::fs::symlink(OsStr::from_bytes(&target), &job.dest)?;
        } else if let Err(error) = attributes::create_node(&job.dest, facts) {
            if error.kind() == io::ErrorKind::PermissionDenied {
                self.lost_attributes.add("device nodes", &error);
                return Ok(FileResult::Skipped);
            }
            return Err(error);
        }
        attributes::apply_attributes(
            &job.dest,
            file,
            self.attribute_options,
            0,
            &self.lost_attributes,
        );
        Ok(FileResult::Copied { bytes: 0, resumed: false })
    }

    /// Gives a file that was copied a further name.
    fn create_hard_link(&self, job: &FileJob, first: &Path, report: &mut CopyReport) {
        let made = || -> io::Result<bool> {
            let original = std::fs::symlink_metadata(first)?;
            if let Ok(there) = std::fs::symlink_metadata(&job.dest) {
                if (there.dev(), there.ino()) == (original.dev(), original.ino()) {
                    return Ok(false);
                }
                let same = there.len() == original.len() && there.mtime() == original.mtime();
                if !same && !self.args.overwrite {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                std::fs::remove_file(&job.dest)?;
            }
            std::fs::hard_link(first, &job.dest)?;
            Ok(true)
        };
        match made() {
            Ok(true) => report.copied += 1,
            Ok(false) => report.skipped += 1,
            Err(error) => {
                let why = format!("no further name of {}: {error}", first.display());
                report.failed.push((escape_bytes(&job.source), why));
            }
        }
    }
}

/// An item of the walk.
enum WalkItem {
    /// A file, and whether it has several names.
    File(FileJob, bool),
    Directory(u64, PathBuf),
    Error(Vec<u8>, String),
}

/// The tasks for the end of a tree.
#[derive(Default)]
struct DeferredWork {
    directories: Vec<(u64, PathBuf)>,
    hard_links: Vec<(FileJob, PathBuf)>,
    first_paths: HashMap<u64, PathBuf>,
    errors: Vec<(Vec<u8>, String)>,
}

impl DeferredWork {
    /// A file to be copied now, unless it is a further name of one that was met before.
    fn defer_hard_link(&mut self, job: FileJob, several: bool) -> Option<FileJob> {
        if several {
            if let Some(first) = self.first_paths.get(&job.object) {
                self.hard_links.push((job, first.clone()));
                return None;
            }
            self.first_paths.insert(job.object, job.dest.clone());
        }
        Some(job)
    }
}

/// Whether a name stays in its folder; the names come from an untrusted disk.
fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// Creates a folder, or uses an existing one. A symbolic link is not followed.
fn create_directory(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let there = std::fs::symlink_metadata(path)?;
            if there.is_dir() { Ok(()) } else { Err(error) }
        }
        other => other,
    }
}

/// The name of a file that is not whole yet.
fn partial_path(path: &Path, id: u64) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let name = if name.len() + 17 <= 255 {
        [b".", name, b".poolhouse-part"].concat()
    } else {
        format!(".{id}.poolhouse-part").into_bytes()
    };
    path.with_file_name(OsStr::from_bytes(&name))
}

/// Whether the modification time is that of the original, plus `shift`. Some file systems
/// have no fractions of seconds.
fn has_mtime(there: &std::fs::Metadata, facts: &FileStat, shift: i64) -> bool {
    there.mtime() == facts.mtime.seconds.saturating_add(shift)
        && (there.mtime_nsec() == i64::from(facts.mtime.nanoseconds) || there.mtime_nsec() == 0)
}

fn is_complete(there: &std::fs::Metadata, facts: &FileStat, path: &Path, file: &File) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let kind = there.file_type();
    match facts.kind {
        FileType::File => kind.is_file() && there.len() == facts.size && has_mtime(there, facts, 0),
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
        FileType::Directory | FileType::Other(_) => false,
    }
}

/// Whether it is an incomplete copy of an earlier run.
fn is_damaged(there: &std::fs::Metadata, facts: &FileStat) -> bool {
    there.is_file() && there.len() == facts.size && has_mtime(there, facts, DAMAGED_MTIME_SHIFT)
}
