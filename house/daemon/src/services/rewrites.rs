//! The service of rewrites: files of mounted file systems are written again in place, as jobs.
//!
//! A rewrite holds no state: it rewrites the blocks that were written before a txg, and what it rewrote is younger.
//! So a job that was cancelled, or cut by a power failure, is continued by another one with the same txg.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use api::{
    Event, GetRewrite, JobProgress, Reply, RewriteFiles, RewriteStatus, StartedRewrite, pool_of,
};
use engine::files::{File, FileType};
use engine::pool::{FileRewrite, OpenFileSystem, Pool, RewriteFilter, RewriteRequest};
use job::Job;
use parking_lot::Mutex;

use super::Service;
use crate::auth::Caller;
use crate::context::Context;
use crate::events::ChangeOptions;
use crate::jobs::{JobControl, Jobs, RunningJob};
use crate::pools::Pools;
use crate::router::Router;
use crate::{Error, Result};

/// The most names, and the most errors, that a job keeps until a client takes them. A client that still looks takes
/// them several times a second.
const MAX_KEPT: usize = 10_000;

/// The service of rewrites.
pub(super) struct RewriteService {
    pools: Arc<Pools>,
    jobs: Arc<Jobs>,
    running: Mutex<Vec<RunningRewrite>>,
}

struct RunningRewrite {
    id: u64,
    pool: String,
    control: Arc<RewriteControl>,
    thread: JoinHandle<()>,
}

/// The control of a rewrite's job, and what it has done.
#[derive(Default)]
struct RewriteControl {
    work: Job,
    status: Mutex<RewriteStatus>,
}

impl JobControl for RewriteControl {
    fn progress(&self) -> JobProgress {
        let progress = &self.work.progress;
        let (done, total) = (progress.bytes_done(), progress.bytes_total());
        JobProgress { done, total, unit: "bytes".to_owned() }
    }

    fn cancel(&self) {
        self.work.cancel.cancel();
    }
}

/// A file or directory to rewrite.
struct RewriteTarget {
    dataset: String,
    files: OpenFileSystem,
    top: File,
    /// The path below the root of the file system.
    path: Vec<u8>,
    /// The prefix of the paths that users see: the mountpoint, or `FS:`.
    prefix: String,
}

/// A mounted file system.
struct Mounted {
    pool: Pool,
    dataset: String,
    dir: PathBuf,
}

impl RewriteService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        let (pools, jobs) = (Arc::clone(&context.pools), Arc::clone(&context.jobs));
        Self { pools, jobs, running: Mutex::default() }
    }

    fn start_rewrite(&self, call: &RewriteFiles, caller: &Caller) -> Result<Reply<StartedRewrite>> {
        let mut targets = Vec::new();
        for path in &call.paths {
            targets.extend(self.find_targets(path, call)?);
        }
        let first =
            targets.first().ok_or_else(|| Error::usage_error("no file or directory is named"))?;
        let pool_name = pool_of(&first.dataset).to_owned();
        if targets.iter().any(|target| pool_of(&target.dataset) != pool_name) {
            return Err(Error::usage_error("the files of a rewrite are of one pool"));
        }
        let pool = self.pools.pool(&pool_name)?.handle.clone();
        pool.check_writable()?;
        // dirty blocks get an age, and clones of this moment are on the drives
        pool.sync()?;
        let born_before = call.born_before.unwrap_or(pool.txg() + 1);
        let warnings = snapshot_warning(&pool, &targets, call)?;
        let request = RewriteRequest {
            recursive: call.recursive,
            range: call.offset..call.length.map_or(u64::MAX, |it| call.offset.saturating_add(it)),
            filter: RewriteFilter {
                skip_cloned: call.skip_cloned,
                skip_snapshots: call.skip_snapshots,
                born_before: Some(born_before),
            },
        };
        let control = Arc::new(RewriteControl::default());
        let subject = call.paths.join(" ");
        let job = self.jobs.start("rewrite", &subject, caller.peer.uid, Arc::clone(&control) as _);
        let id = job.id();
        let (work, has_names) = (Arc::clone(&control), call.names);
        let work = move || run_rewrite(&targets, &request, (&work, has_names), job);
        let thread = std::thread::Builder::new().name(format!("rewrite {pool_name}")).spawn(work);
        let thread = thread.map_err(|why| {
            Error::refused_error(format!("the rewrite has no thread: {why}; try again"))
        })?;
        let mut running = self.running.lock();
        running.push(RunningRewrite { id, pool: pool_name, control, thread });
        // a client asks for the end of the newest ones
        let ended = running.iter().filter(|it| it.thread.is_finished()).count();
        let mut surplus = ended.max(8) - 8;
        running.retain(|it| {
            let goes = surplus > 0 && it.thread.is_finished();
            surplus -= usize::from(goes);
            !goes
        });
        Ok(Reply { value: StartedRewrite { job: id, born_before }, warnings })
    }

    fn status(&self, call: &GetRewrite) -> Result<RewriteStatus> {
        let running = self.running.lock();
        let found = running.iter().find(|it| it.id == call.job).ok_or_else(|| {
            Error::refused_error(format!("there is no rewrite with job number {}", call.job))
        })?;
        let mut status = found.control.status.lock();
        let (names, errors) =
            (std::mem::take(&mut status.names), std::mem::take(&mut status.errors));
        let progress = &found.control.work.progress;
        Ok(RewriteStatus { names, errors, rewritten: progress.bytes_done(), ..status.clone() })
    }

    /// The file or directory of a path, and the file systems that are mounted below it.
    fn find_targets(&self, path: &str, call: &RewriteFiles) -> Result<Vec<RewriteTarget>> {
        if let Some((dataset, below)) = path.split_once(":/").filter(|_| !path.starts_with('/')) {
            let pool = self.pools.pool_of_dataset(dataset)?.handle.clone();
            let found = find_target(&pool, (dataset, &format!("{dataset}:")), below)?;
            check_kind(&found, path, call)?;
            return Ok(vec![found]);
        }
        let mounted = self.mounted();
        let wanted = Path::new(path);
        let top = mounted.iter().filter(|mount| wanted.starts_with(&mount.dir));
        let top = top.max_by_key(|mount| mount.dir.as_os_str().len()).ok_or_else(|| {
            Error::refused_error(format!(
                "cannot rewrite '{path}': it is not in a mounted file system of an imported pool"
            ))
        })?;
        let below = wanted.strip_prefix(&top.dir).unwrap_or(Path::new(""));
        let prefix = prefix_of(&top.dir);
        let found = find_target(&top.pool, (&top.dataset, &prefix), &below.display().to_string())?;
        check_kind(&found, path, call)?;
        let mut targets = vec![found];
        if call.recursive && !call.one_filesystem {
            let inner = |mount: &&Mounted| mount.dir != top.dir && mount.dir.starts_with(wanted);
            for mount in mounted.iter().filter(inner) {
                let prefix = prefix_of(&mount.dir);
                targets.push(find_target(&mount.pool, (&mount.dataset, &prefix), "")?);
            }
        }
        Ok(targets)
    }

    fn mounted(&self) -> Vec<Mounted> {
        let mut all = Vec::new();
        for pool in self.pools.all() {
            for (dataset, dir) in pool.mounted_filesystems() {
                all.push(Mounted { pool: pool.handle.clone(), dataset, dir });
            }
        }
        all
    }

    /// Cancels rewrites and waits until they have stopped.
    fn cancel(&self, is_meant: &dyn Fn(&RunningRewrite) -> bool) {
        let mut running = self.running.lock();
        let (meant, others): (Vec<_>, _) = running.drain(..).partition(|it| is_meant(it));
        *running = others;
        drop(running);
        for rewrite in &meant {
            rewrite.control.cancel();
        }
        for rewrite in meant {
            // the job recorded its error
            let _ = rewrite.thread.join();
        }
    }
}

/// The prefix of the paths that users see of a mounted file system.
fn prefix_of(dir: &Path) -> String {
    dir.display().to_string().trim_end_matches('/').to_owned()
}

fn find_target(pool: &Pool, (dataset, prefix): (&str, &str), path: &str) -> Result<RewriteTarget> {
    let files = pool.datasets().filesystem(dataset)?;
    let shown = format!("{prefix}/{path}");
    let failed = |why: &dyn std::fmt::Display| {
        Error::refused_error(format!("cannot rewrite '{shown}': {why}"))
    };
    if path.split('/').next() == Some(".zfs") {
        return Err(failed(&"snapshots cannot be changed"));
    }
    let found = files.reader().find(path.as_bytes()).map_err(|why| failed(&why))?;
    let top = found.ok_or_else(|| failed(&"no such file or directory"))?;
    let (dataset, prefix) = (dataset.to_owned(), prefix.to_owned());
    let path = path.trim_matches('/').as_bytes().to_vec();
    Ok(RewriteTarget { dataset, files, top, path, prefix })
}

fn check_kind(target: &RewriteTarget, path: &str, call: &RewriteFiles) -> Result<()> {
    match target.top.stat().kind {
        FileType::File => Ok(()),
        FileType::Directory if call.recursive => Ok(()),
        FileType::Directory => Err(Error::refused_error(format!(
            "cannot rewrite '{path}': it is a directory; -r rewrites the files below it"
        ))),
        _ => Err(Error::refused_error(format!(
            "cannot rewrite '{path}': only regular files have blocks to rewrite"
        ))),
    }
}

/// A sentence about the space that snapshots will take.
fn snapshot_warning(
    pool: &Pool,
    targets: &[RewriteTarget],
    call: &RewriteFiles,
) -> Result<Vec<String>> {
    let mut with_snapshots = BTreeMap::new();
    for target in targets.iter().filter(|_| !call.skip_snapshots) {
        let count = pool.snapshots().list(&target.dataset)?.len();
        if count > 0 {
            with_snapshots.insert(target.dataset.as_str(), count);
        }
    }
    let warning = |(dataset, count): (&str, usize)| {
        format!(
            "'{dataset}' has {count} snapshot(s), which keep the old blocks: each rewritten block takes its space \
             twice until they are destroyed. -S leaves blocks as they are that the newest snapshot shares."
        )
    };
    Ok(with_snapshots.into_iter().map(warning).collect())
}

/// Rewrites targets one after the other, and ends the job with a sentence.
fn run_rewrite(
    targets: &[RewriteTarget],
    request: &RewriteRequest,
    (control, has_names): (&RewriteControl, bool),
    job: RunningJob,
) {
    let is_single = targets.len() == 1 && !request.recursive;
    if let Some(target) = targets.first().filter(|_| is_single) {
        let end = request.range.end.min(target.top.stat().size);
        control.work.progress.set_bytes_total(end.max(request.range.start) - request.range.start);
    }
    let mut result = Ok(true);
    for target in targets {
        let mut report = |file: FileRewrite<'_>| control.record(target, &file, has_names);
        let top = (&target.top, target.path.as_slice());
        result = target.files.rewrite_tree(top, request, &control.work, &mut report);
        if !matches!(result, Ok(true)) {
            break;
        }
    }
    let sums = control.describe();
    let resume = request.filter.born_before.map_or_else(String::new, |txg| {
        format!(" The same command with --born-before {txg} rewrites the rest.")
    });
    control.status.lock().has_ended = true;
    let failed = control.status.lock().failed_files;
    match result {
        Ok(true) if failed == 0 => job.finish_with(sums),
        Ok(true) => job.fail(format!("{sums} {failed} file(s) could not be rewritten.{resume}")),
        Ok(false) => job.cancelled(format!("Cancelled. {sums}{resume}")),
        Err(why) => job.fail(format!("The rewrite stopped: {why}. {sums}{resume}")),
    }
}

impl RewriteControl {
    fn record(&self, target: &RewriteTarget, file: &FileRewrite<'_>, has_names: bool) {
        let path = format!("{}/{}", target.prefix, String::from_utf8_lossy(file.path));
        let mut status = self.status.lock();
        match &file.result {
            Ok(sums) => {
                status.files += 1;
                status.skipped += sums.skipped;
                if has_names && status.names.len() < MAX_KEPT {
                    status.names.push(path);
                }
            }
            Err(why) => {
                status.failed_files += 1;
                if status.errors.len() < MAX_KEPT {
                    status.errors.push(format!("cannot rewrite '{path}': {why}"));
                }
            }
        }
    }

    fn describe(&self) -> String {
        let (status, rewritten) = (self.status.lock(), self.work.progress.bytes_done());
        format!(
            "{} file(s) done: {rewritten} bytes rewritten, {} bytes left as they were.",
            status.files, status.skipped
        )
    }
}

impl Service for RewriteService {
    fn name(&self) -> &'static str {
        "rewrites"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let service = Arc::clone(&self);
        router.add(move |call: &RewriteFiles, caller| service.start_rewrite(call, caller));
        router.add(move |call: &GetRewrite, _| self.status(call));
    }

    fn prepare(&self, coming: &[Event], options: &ChangeOptions) -> Result<()> {
        let leaving = coming.iter().filter_map(|event| match event {
            Event::PoolExported { pool } | Event::PoolDestroyed { pool } => Some(pool),
            _ => None,
        });
        for pool in leaving {
            let running = {
                let running = self.running.lock();
                let is_busy = |it: &&RunningRewrite| it.pool == *pool && !it.thread.is_finished();
                running.iter().find(is_busy).map(|it| it.id)
            };
            if let Some(id) = running.filter(|_| !options.force) {
                return Err(Error::refused_error(format!(
                    "a rewrite of files of pool '{pool}' runs: job {id}; `poolhouse jobs cancel {id}` cancels \
                     it, and it can be continued later"
                )));
            }
            self.cancel(&|rewrite| rewrite.pool == *pool);
        }
        Ok(())
    }

    fn stop(&self) {
        self.cancel(&|_| true);
    }
}
