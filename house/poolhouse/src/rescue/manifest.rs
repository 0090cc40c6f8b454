//! `poolhouse rescue manifest`: prints a manifest: every entry with its attributes and its hash.
//!
//! Streamed: only the names of one folder at a time are in memory, and the queue of folders.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use engine::files::{
    Content, DatasetContents, DatasetDetails, DirEntry, File, FileSystemReader, FileType,
};

use super::entry::{self, JsonObject, json_string};
use super::hash;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::parallel::{run_ordered, thread_count};
use crate::pool_args::PoolArgs;
use crate::print;

/// Print every entry with its attributes and hash, as JSON
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  poolhouse rescue manifest -d ~/images tank > tank.json")]
pub(crate) struct Args {
    /// POOL[/FS][@SNAP]
    pub(crate) target: String,
    /// Only that dataset, not those below it
    #[arg(long)]
    pub(crate) no_children: bool,
    /// Write to a file instead
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<std::path::PathBuf>,
    /// How many files are read at a time; 0: as many as suits this machine
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) jobs: usize,
}

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    let pool = common.open_unlocked(&args.target)?;
    let out: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(
            std::fs::File::create(path).map_err(|error| Failure::destination(path, &error))?,
        ),
        None => Box::new(io::stdout().lock()),
    };
    let mut writer = ManifestWriter {
        out: BufWriter::with_capacity(256 << 10, out),
        threads: thread_count(args.jobs),
        has_errors: false,
    };
    writer.write_header(pool.name())?;
    let (mut first, mut failed) = (true, None);
    pool.visit_details(&args.target, !args.no_children, &mut |record| {
        let done = match record {
            Ok(record) => writer.write_dataset(&record, std::mem::take(&mut first)),
            Err(event) => {
                writer.warn(&event);
                Ok(())
            }
        };
        failed = done.err();
        failed.is_none()
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    writer.out.write_all(b"]}\n")?;
    writer.out.flush()?;
    Ok(Outcome::complete_unless(writer.has_errors))
}

struct ManifestWriter<W: Write> {
    out: BufWriter<W>,
    threads: usize,
    has_errors: bool,
}

impl<W: Write> ManifestWriter<W> {
    fn warn(&mut self, what: &dyn std::fmt::Display) {
        self.has_errors = true;
        print::warning(what);
    }

    fn write_header(&mut self, pool: &str) -> io::Result<()> {
        writeln!(self.out, "{{\"pool\": {},", json_string(pool.as_bytes()))?;
        self.out.write_all(b"\"datasets\": [\n")
    }

    fn write_dataset(&mut self, record: &DatasetDetails, first: bool) -> io::Result<()> {
        for trouble in &record.errors {
            self.warn(&format!("{}: {trouble}", record.name));
        }
        if !first {
            self.out.write_all(b",\n")?;
        }
        write!(self.out, "{{\"name\": {}", json_string(record.name.as_bytes()))?;
        self.write_field("type", &json_string(record.kind.as_bytes()))?;
        self.write_field("properties", &properties_json(record))?;
        if let Some(space) = &record.space {
            let mut line = JsonObject::begin();
            for (who, rows) in
                [("user", &space.user), ("group", &space.group), ("project", &space.project)]
            {
                line.add_raw(who, &serde_json::to_string(rows)?);
            }
            self.write_field("space", &line.finish())?;
        }
        match &record.contents {
            DatasetContents::FileSystem(files) => self.write_entries(record, files)?,
            DatasetContents::Volume(content) => self.write_volume(record, content)?,
            DatasetContents::Empty => {}
            DatasetContents::Incomplete(part) => {
                let why = format!("{}: OpenZFS does not mount it", part.description());
                self.write_field("refused", &json_string(why.as_bytes()))?;
            }
            DatasetContents::Unreadable { why } => {
                self.write_field("refused", &json_string(why.as_bytes()))?;
                self.warn(&format!("{}: {why}", record.name));
            }
        }
        if !record.holds.is_empty() {
            self.write_field("holds", &serde_json::to_string(&record.holds)?)?;
        }
        self.out.write_all(b"}")
    }

    fn write_field(&mut self, key: &str, json: &str) -> io::Result<()> {
        write!(self.out, ",\n \"{key}\": {json}")
    }

    fn write_volume(&mut self, record: &DatasetDetails, content: &Content) -> io::Result<()> {
        let size = content.size();
        let mut line = JsonObject::begin();
        line.add_number("size", size);
        match hash::digest(content, 0, size) {
            Ok(sha) => line.add_string(b"sha256", sha.as_bytes()),
            Err(why) => {
                line.add_string(b"error", why.to_string().as_bytes());
                self.warn(&format!("{}: {why}", record.name));
            }
        }
        self.write_field("volume", &line.finish())
    }

    fn write_entries(
        &mut self,
        record: &DatasetDetails,
        files: &FileSystemReader,
    ) -> io::Result<()> {
        self.out.write_all(b",\n \"entries\": [")?;
        let mut walk = EntryWalker::new(files, record.name.clone());
        let (mut first, mut wrong, mut failed) = (true, 0_u64, None);
        let (out, threads) = (&mut self.out, self.threads);
        let jobs = std::iter::from_fn(|| walk.next_entry());
        let work = |(id, path): (u64, Vec<u8>)| entry::describe_entry(files, id, &path);
        let _ = run_ordered(threads, threads * 32, jobs, work, |(line, is_wrong)| {
            wrong += u64::from(is_wrong);
            let comma: &[u8] = if std::mem::take(&mut first) { b"\n  " } else { b",\n  " };
            match out.write_all(comma).and_then(|()| out.write_all(line.as_bytes())) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        self.out.write_all(b"]")?;
        let troubles = std::mem::take(&mut walk.errors);
        for trouble in &troubles {
            self.warn(trouble);
        }
        if wrong > 0 {
            self.warn(&format!("{}: {wrong} entries cannot be read in full", record.name));
        }
        Ok(())
    }
}

fn properties_json(record: &DatasetDetails) -> String {
    let mut line = JsonObject::begin();
    for property in &record.properties {
        let value = json_string(property.value.as_bytes());
        if matches!(property.source.as_str(), "-" | "default") {
            line.add_raw(&property.name, &value);
        } else {
            let source = json_string(property.source.as_bytes());
            line.add_raw(&property.name, &format!("[{value}, {source}]"));
        }
    }
    line.finish()
}

/// All entries of a tree: the root, then each folder's, and then those of its subfolders.
struct EntryWalker<'a> {
    files: &'a FileSystemReader,
    dataset: String,
    root: Option<File>,
    /// The folders to be visited, the next one last.
    pending_dirs: Vec<(u64, Vec<u8>)>,
    /// The present folder.
    current_path: Vec<u8>,
    names: std::vec::IntoIter<DirEntry>,
    /// Its subfolders.
    subdirs: Vec<(u64, Vec<u8>)>,
    visited_dirs: std::collections::HashSet<u64>,
    errors: Vec<String>,
}

impl<'a> EntryWalker<'a> {
    fn new(files: &'a FileSystemReader, dataset: String) -> Self {
        let mut errors = Vec::new();
        let root = files.root().map_err(|why| errors.push(format!("{dataset}: {why}"))).ok();
        let (current_path, names) = (Vec::new(), Vec::new().into_iter());
        let (pending_dirs, subdirs) = (Vec::new(), Vec::new());
        let visited_dirs = std::collections::HashSet::new();
        Self {
            files,
            dataset,
            root,
            pending_dirs,
            current_path,
            names,
            subdirs,
            visited_dirs,
            errors,
        }
    }

    fn next_entry(&mut self) -> Option<(u64, Vec<u8>)> {
        if let Some(root) = self.root.take() {
            self.pending_dirs.push((root.ino(), Vec::new()));
            return Some((root.ino(), b".".to_vec()));
        }
        loop {
            if let Some(name) = self.names.next() {
                let mut path = Vec::with_capacity(self.current_path.len() + 1 + name.name.len());
                path.extend_from_slice(&self.current_path);
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&name.name);
                if name.kind == FileType::Directory {
                    self.subdirs.push((name.ino, path.clone()));
                }
                return Some((name.ino, path));
            }
            // the next folder is the first of those below the last one
            self.pending_dirs.extend(self.subdirs.drain(..).rev());
            let (id, path) = self.pending_dirs.pop()?;
            self.enter_dir(id, path);
        }
    }

    fn enter_dir(&mut self, id: u64, path: Vec<u8>) {
        // a folder has one name: a second one is damage, and maybe a cycle
        if !self.visited_dirs.insert(id) {
            let shown = String::from_utf8_lossy(&path).into_owned();
            self.errors.push(format!("{}: {shown}: the folder has two names", self.dataset));
            return;
        }
        let listed = self.files.file(id).and_then(|folder| self.files.read_dir_sorted(&folder));
        match listed {
            Ok(names) => self.names = names.into_iter(),
            Err(why) => {
                let shown = String::from_utf8_lossy(&path).into_owned();
                self.errors.push(format!("{}: {shown}: {why}", self.dataset));
            }
        }
        self.current_path = path;
    }
}
