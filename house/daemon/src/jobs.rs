//! Jobs: work that takes long, can be watched and cancelled. The daemon keeps the list over restarts.
//!
//! The list is written when a job starts and when one ends, not while it runs. A job that ran when the daemon
//! died is read back as interrupted.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::{Event, Job, JobProgress, JobState};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use units::MinusOrZero as _;

use crate::events::{Events, unix_seconds};
use crate::log::Log;
use crate::{Error, Result, StateDir, state_file};

/// The number of ended jobs that the daemon keeps.
const MAX_ENDED: usize = 100;

/// The work of a running job, as the list of jobs sees it.
pub(crate) trait JobControl: Send + Sync {
    /// How far the work is.
    fn progress(&self) -> JobProgress;

    /// Requests that the work stops soon.
    fn cancel(&self);

    /// Why the work cannot be cancelled; none: it can.
    fn cancel_refusal(&self) -> Option<&'static str> {
        None
    }
}

/// The jobs of a daemon.
pub(crate) struct Jobs {
    list: Mutex<JobList>,
    path: PathBuf,
    events: Arc<Events>,
    log: Arc<Log>,
}

struct JobList {
    next_id: u64,
    jobs: Vec<(Job, Option<Arc<dyn JobControl>>)>,
}

/// The file with the jobs.
#[derive(Debug, Default, Serialize, Deserialize)]
struct JobFile {
    next_id: u64,
    jobs: Vec<Job>,
}

/// A job that runs. It fails if it is dropped before it ends.
pub(crate) struct RunningJob {
    jobs: Arc<Jobs>,
    id: u64,
    has_ended: AtomicBool,
}

impl Jobs {
    /// Reads the list of jobs.
    pub(crate) fn load(state_dir: &StateDir, events: Arc<Events>, log: Arc<Log>) -> Result<Self> {
        let path = state_dir.jobs();
        let file = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|why| {
                // nothing depends on old jobs
                log.write_line(&format!("'{}' cannot be read: {why}", path.display()));
                JobFile::default()
            }),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => JobFile::default(),
            Err(why) => return Err(Error::file_error(&path, &why)),
        };
        let interrupted = |mut job: Job| {
            if job.state == JobState::Running {
                job.state = JobState::Interrupted;
                job.finished = Some(unix_seconds());
                job.log.push("The daemon ended while this job ran.".to_owned());
            }
            (job, None)
        };
        let list = JobList {
            next_id: file.next_id,
            jobs: file.jobs.into_iter().map(interrupted).collect(),
        };
        Ok(Self { list: Mutex::new(list), path, events, log })
    }

    /// Starts a job that `control` watches and cancels.
    pub(crate) fn start(
        self: &Arc<Self>,
        kind: &str,
        subject: &str,
        uid: u32,
        control: Arc<dyn JobControl>,
    ) -> RunningJob {
        let mut list = self.list.lock();
        list.next_id += 1;
        let job = Job {
            id: list.next_id,
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            uid,
            state: JobState::Running,
            progress: control.progress(),
            started: unix_seconds(),
            finished: None,
            log: Vec::new(),
        };
        let id = job.id;
        self.record(&job);
        list.jobs.push((job, Some(control)));
        self.save(&list);
        drop(list);
        RunningJob { jobs: Arc::clone(self), id, has_ended: AtomicBool::new(false) }
    }

    /// The jobs, the oldest first.
    pub(crate) fn list(&self) -> Vec<Job> {
        let list = self.list.lock();
        let now = |(job, control): &(Job, Option<Arc<dyn JobControl>>)| {
            let progress = control.as_ref().map(|control| control.progress());
            Job { progress: progress.unwrap_or_else(|| job.progress.clone()), ..job.clone() }
        };
        list.jobs.iter().map(now).collect()
    }

    /// Requests that a running job stops.
    pub(crate) fn cancel(&self, id: u64) -> Result<()> {
        let list = self.list.lock();
        let found = list.jobs.iter().find(|(job, _)| job.id == id);
        let Some((job, control)) = found else {
            return Err(Error::refused_error(format!("there is no job {id}")));
        };
        let Some(control) = control.clone() else {
            let state = job.state.as_str();
            return Err(Error::refused_error(format!("job {id} does not run: it is {state}")));
        };
        drop(list);
        if let Some(why) = control.cancel_refusal() {
            return Err(Error::refused_error(format!("job {id} cannot be cancelled: {why}")));
        }
        control.cancel();
        Ok(())
    }

    fn end(&self, id: u64, state: JobState, sentence: Option<String>) {
        let mut list = self.list.lock();
        let Some((job, control)) = list.jobs.iter_mut().find(|(job, _)| job.id == id) else {
            return;
        };
        if let Some(control) = control.take() {
            job.progress = control.progress();
        }
        job.state = state;
        job.finished = Some(unix_seconds());
        job.log.extend(sentence);
        self.record(job);
        let ended = list.jobs.iter().filter(|(_, control)| control.is_none()).count();
        let mut surplus = ended.minus_or_zero(MAX_ENDED);
        list.jobs.retain(|(_, control)| {
            let goes = control.is_none() && surplus > 0;
            surplus -= usize::from(goes);
            !goes
        });
        self.save(&list);
    }

    fn record(&self, job: &Job) {
        let (job_kind, subject) = (job.kind.clone(), job.subject.clone());
        let event = Event::JobChanged { id: job.id, job: job_kind, subject, state: job.state };
        self.events.record(&[event]);
    }

    /// The work continues if the list cannot be written.
    fn save(&self, list: &JobList) {
        let jobs = list.jobs.iter().map(|(job, _)| job.clone()).collect();
        let file = JobFile { next_id: list.next_id, jobs };
        let saved = serde_json::to_vec_pretty(&file)
            .map_err(|why| Error::file_error(&self.path, &why.into()))
            .and_then(|bytes| state_file::replace(&self.path, &bytes));
        if let Err(why) = saved {
            self.log.write_line(&why.to_string());
        }
    }
}

impl RunningJob {
    /// Ends the job: it finished.
    pub(crate) fn finish(self) {
        self.end(JobState::Finished, None);
    }

    /// Ends the job: it finished, and the sentence describes the result.
    pub(crate) fn finish_with(self, sentence: String) {
        self.end(JobState::Finished, Some(sentence));
    }

    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Ends the job: a user cancelled it.
    pub(crate) fn cancelled(self, sentence: String) {
        self.end(JobState::Cancelled, Some(sentence));
    }

    /// Ends the job: it failed.
    pub(crate) fn fail(self, sentence: String) {
        self.end(JobState::Failed, Some(sentence));
    }

    fn end(&self, state: JobState, sentence: Option<String>) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            self.jobs.end(self.id, state, sentence);
        }
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.end(JobState::Failed, Some("The thread of this job ended early.".to_owned()));
    }
}

/// The control of work that counts its steps and looks at a flag.
#[derive(Debug, Default)]
pub(crate) struct StepControl {
    done: AtomicU64,
    total: u64,
    unit: &'static str,
    is_cancelled: AtomicBool,
}

impl StepControl {
    /// Work of `total` steps.
    pub(crate) fn new(total: usize, unit: &'static str) -> Self {
        Self { total: total as u64, unit, ..Self::default() }
    }

    /// Sets the number of steps that are done.
    pub(crate) fn set_done(&self, done: usize) {
        self.done.store(done as u64, Ordering::Relaxed);
    }

    /// Whether a user cancelled the work.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

impl JobControl for StepControl {
    fn progress(&self) -> JobProgress {
        let done = self.done.load(Ordering::Relaxed);
        JobProgress { done, total: self.total, unit: self.unit.to_owned() }
    }

    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::{JobProgress, JobState};

    use super::{JobControl, Jobs, MAX_ENDED, StepControl};
    use crate::StateDir;
    use crate::events::Events;
    use crate::log::Log;

    fn load(state_dir: &StateDir) -> Arc<Jobs> {
        let log = Arc::new(Log::open(state_dir, false).unwrap());
        Arc::new(Jobs::load(state_dir, Arc::new(Events::new()), log).unwrap())
    }

    #[test]
    fn jobs_survive_restarts() {
        let dir = std::env::temp_dir().join(format!("poolhouse-jobs-{}", std::process::id()));
        let state_dir = StateDir::from_dir(&dir).unwrap();
        state_dir.create_dirs().unwrap();
        let jobs = load(&state_dir);
        let control = Arc::new(StepControl::new(10, "datasets"));
        let first = jobs.start("destroy", "tank/a", 0, Arc::clone(&control) as Arc<_>);
        control.set_done(4);
        assert_eq!(jobs.list()[0].progress.done, 4);
        jobs.cancel(1).unwrap();
        assert!(control.is_cancelled());
        first.cancelled("4 of 10 are destroyed.".to_owned());
        assert!(jobs.cancel(1).unwrap_err().to_string().contains("cancelled"));
        assert!(jobs.cancel(9).is_err());
        let lost = jobs.start("destroy", "tank/b", 0, Arc::new(StepControl::new(1, "datasets")));
        // as where the power fails
        std::mem::forget(lost);
        let jobs = load(&state_dir);
        let states: Vec<_> = jobs.list().iter().map(|job| (job.id, job.state)).collect();
        assert_eq!(states, [(1, JobState::Cancelled), (2, JobState::Interrupted)]);
        assert_eq!(jobs.list()[0].progress.done, 4);
        for _ in 0..MAX_ENDED {
            jobs.start("destroy", "tank/c", 0, Arc::new(StepControl::new(1, "datasets"))).finish();
        }
        let list = jobs.list();
        assert_eq!((list.len(), list[0].id), (MAX_ENDED, 3));
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Work that the pool needs.
    struct Needed;

    impl JobControl for Needed {
        fn progress(&self) -> JobProgress {
            JobProgress::default()
        }

        fn cancel(&self) {
            panic!("it was cancelled");
        }

        fn cancel_refusal(&self) -> Option<&'static str> {
            Some("the pool needs it")
        }
    }

    #[test]
    fn needed_work_is_not_cancelled() {
        let dir = std::env::temp_dir().join(format!("poolhouse-needed-{}", std::process::id()));
        let state_dir = StateDir::from_dir(&dir).unwrap();
        state_dir.create_dirs().unwrap();
        let jobs = load(&state_dir);
        let job = jobs.start("resilver", "tank", 0, Arc::new(Needed));
        let why = jobs.cancel(1).unwrap_err().to_string();
        assert_eq!(why, "job 1 cannot be cancelled: the pool needs it");
        assert_eq!(jobs.list()[0].state, JobState::Running);
        job.finish();
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_dropped_job_fails() {
        let dir = std::env::temp_dir().join(format!("poolhouse-dropped-{}", std::process::id()));
        let state_dir = StateDir::from_dir(&dir).unwrap();
        state_dir.create_dirs().unwrap();
        let jobs = load(&state_dir);
        drop(jobs.start("destroy", "tank", 0, Arc::new(StepControl::new(1, "datasets"))));
        assert_eq!(jobs.list()[0].state, JobState::Failed);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
