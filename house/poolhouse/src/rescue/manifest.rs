//! `poolhouse rescue manifest`: prints a manifest: every entry with its attributes and its hash.
//!
//! Streamed: of a tree only one folder's names at a time are held, and those of the folders that
//! are still to be visited.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use engine::files::{
    Content, DatasetContents, DatasetDetails, DirEntry, File, FileSystemReader, FileType,
};

use super::entry::{self, Line, quoted};
use super::hash;
use crate::common::Common;
use crate::ordered::{ordered, threads};
use crate::outcome::{Done, Failure, Outcome};
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

pub(crate) fn run(args: &Args, common: &Common) -> Done {
    let pool = common.open_unlocked(&args.target)?;
    let out: Box<dyn Write> = match &args.output {
        Some(path) => {
            Box::new(std::fs::File::create(path).map_err(|error| Failure::file(path, &error))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    let mut writer = Writer {
        out: BufWriter::with_capacity(256 << 10, out),
        threads: threads(args.jobs),
        wrong: false,
    };
    writer.begin(pool.name())?;
    let (mut first, mut failed) = (true, None);
    pool.visit_details(&args.target, !args.no_children, &mut |record| {
        let done = match record {
            Ok(record) => writer.dataset(&record, std::mem::take(&mut first)),
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
    Ok(Outcome::unless(writer.wrong))
}

struct Writer<W: Write> {
    out: BufWriter<W>,
    threads: usize,
    wrong: bool,
}

impl<W: Write> Writer<W> {
    fn warn(&mut self, what: &dyn std::fmt::Display) {
        self.wrong = true;
        print::warning(what);
    }

    fn begin(&mut self, pool: &str) -> io::Result<()> {
        writeln!(self.out, "{{\"pool\": {},", quoted(pool.as_bytes()))?;
        self.out.write_all(b"\"datasets\": [\n")
    }

    fn dataset(&mut self, record: &DatasetDetails, first: bool) -> io::Result<()> {
        for trouble in &record.errors {
            self.warn(&format!("{}: {trouble}", record.name));
        }
        if !first {
            self.out.write_all(b",\n")?;
        }
        write!(self.out, "{{\"name\": {}", quoted(record.name.as_bytes()))?;
        self.field("type", &quoted(record.kind.as_bytes()))?;
        self.field("properties", &properties(record))?;
        if let Some(space) = &record.space {
            let mut line = Line::object();
            for (who, rows) in
                [("user", &space.user), ("group", &space.group), ("project", &space.project)]
            {
                line.raw(who, &serde_json::to_string(rows)?);
            }
            self.field("space", &line.close())?;
        }
        match &record.contents {
            DatasetContents::FileSystem(files) => self.files(record, files)?,
            DatasetContents::Volume(content) => self.volume(record, content)?,
            DatasetContents::Empty => {}
            DatasetContents::Incomplete(part) => {
                let why = format!("{}: OpenZFS does not mount it", part.description());
                self.field("refused", &quoted(why.as_bytes()))?;
            }
            DatasetContents::Unreadable { why } => {
                self.field("refused", &quoted(why.as_bytes()))?;
                self.warn(&format!("{}: {why}", record.name));
            }
        }
        if !record.holds.is_empty() {
            self.field("holds", &serde_json::to_string(&record.holds)?)?;
        }
        self.out.write_all(b"}")
    }

    fn field(&mut self, key: &str, json: &str) -> io::Result<()> {
        write!(self.out, ",\n \"{key}\": {json}")
    }

    fn volume(&mut self, record: &DatasetDetails, content: &Content) -> io::Result<()> {
        let size = content.size();
        let mut line = Line::object();
        line.number("size", size);
        match hash::digest(content, 0, size) {
            Ok(sha) => line.text(b"sha256", sha.as_bytes()),
            Err(why) => {
                line.text(b"error", why.to_string().as_bytes());
                self.warn(&format!("{}: {why}", record.name));
            }
        }
        self.field("volume", &line.close())
    }

    fn files(&mut self, record: &DatasetDetails, files: &FileSystemReader) -> io::Result<()> {
        self.out.write_all(b",\n \"entries\": [")?;
        let mut walk = Walk::new(files, record.name.clone());
        let (mut first, mut wrong, mut failed) = (true, 0_u64, None);
        let (out, threads) = (&mut self.out, self.threads);
        let jobs = std::iter::from_fn(|| walk.next());
        let work = |(id, path): (u64, Vec<u8>)| entry::describe(files, id, &path);
        let _ = ordered(threads, threads * 32, jobs, work, |(line, is_wrong)| {
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
        let troubles = std::mem::take(&mut walk.troubles);
        for trouble in &troubles {
            self.warn(trouble);
        }
        if wrong > 0 {
            self.warn(&format!("{}: {wrong} entries cannot be read in full", record.name));
        }
        Ok(())
    }
}

fn properties(record: &DatasetDetails) -> String {
    let mut line = Line::object();
    for property in &record.properties {
        let value = quoted(property.value.as_bytes());
        if matches!(property.source.as_str(), "-" | "default") {
            line.raw(&property.name, &value);
        } else {
            let source = quoted(property.source.as_bytes());
            line.raw(&property.name, &format!("[{value}, {source}]"));
        }
    }
    line.close()
}

/// All entries of a tree: the root, then each folder's, and then those of the folders in it.
struct Walk<'a> {
    files: &'a FileSystemReader,
    dataset: String,
    root: Option<File>,
    /// The folders to be visited, the next one last.
    todo: Vec<(u64, Vec<u8>)>,
    /// The folder that is being told.
    path: Vec<u8>,
    names: std::vec::IntoIter<DirEntry>,
    /// Those of its folders that were met.
    folders: Vec<(u64, Vec<u8>)>,
    depth_guard: std::collections::HashSet<u64>,
    troubles: Vec<String>,
}

impl<'a> Walk<'a> {
    fn new(files: &'a FileSystemReader, dataset: String) -> Self {
        let mut troubles = Vec::new();
        let root = files.root().map_err(|why| troubles.push(format!("{dataset}: {why}"))).ok();
        let (path, names) = (Vec::new(), Vec::new().into_iter());
        let (todo, folders) = (Vec::new(), Vec::new());
        let depth_guard = std::collections::HashSet::new();
        Self { files, dataset, root, todo, path, names, folders, depth_guard, troubles }
    }

    fn next(&mut self) -> Option<(u64, Vec<u8>)> {
        if let Some(root) = self.root.take() {
            self.todo.push((root.ino(), Vec::new()));
            return Some((root.ino(), b".".to_vec()));
        }
        loop {
            if let Some(name) = self.names.next() {
                let mut path = Vec::with_capacity(self.path.len() + 1 + name.name.len());
                path.extend_from_slice(&self.path);
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&name.name);
                if name.kind == FileType::Directory {
                    self.folders.push((name.ino, path.clone()));
                }
                return Some((name.ino, path));
            }
            // the next folder is the first of those below the last one
            self.todo.extend(self.folders.drain(..).rev());
            let (id, path) = self.todo.pop()?;
            self.enter(id, path);
        }
    }

    fn enter(&mut self, id: u64, path: Vec<u8>) {
        // a folder has one name: a second one is damage, and maybe a circle
        if !self.depth_guard.insert(id) {
            let shown = String::from_utf8_lossy(&path).into_owned();
            self.troubles.push(format!("{}: {shown}: the folder has two names", self.dataset));
            return;
        }
        let listed = self.files.file(id).and_then(|folder| self.files.read_dir_sorted(&folder));
        match listed {
            Ok(names) => self.names = names.into_iter(),
            Err(why) => {
                let shown = String::from_utf8_lossy(&path).into_owned();
                self.troubles.push(format!("{}: {shown}: {why}", self.dataset));
            }
        }
        self.path = path;
    }
}
