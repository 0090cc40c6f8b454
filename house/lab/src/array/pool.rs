//! A pool that our engine makes of drives, as something that can be closed, made cold, opened again,
//! read whole and destroyed.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use engine::OpenOptions;
use engine::check::PoolVerifier;
use engine::pool::{self, Environment, NewPool, NewVdev, ScanProgress, VdevRole};
use job::Job;

use super::drives::Drive;
use super::session::{self, CloseAction, Session};
use super::{DrivePart, Layout};
use crate::progress::Progress;
use crate::{Error, System};

/// How often is looked whether to stop.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The same where compression would cost measured time.
const SHORT_CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A pool. Its drives are empty again when it goes.
pub(super) struct Pool {
    drives: Vec<Arc<Drive>>,
    drive_part: DrivePart,
    name: String,
    environment: Environment,
    /// None while it is closed.
    session: RwLock<Option<Session>>,
}

/// All that a pool holds was read, or all of a drive written.
pub(super) struct ScanResult {
    pub(super) bytes: u64,
    pub(super) duration: Duration,
}

impl Pool {
    /// Makes it of drives that may be overwritten.
    pub(super) fn create(
        drives: &[Arc<Drive>],
        layout: &Layout,
        properties: &[(String, String)],
        system: &System,
    ) -> Result<Arc<Self>, Error> {
        let drives = drives[..layout.drive_count().min(drives.len())].to_vec();
        let mut rest = drives.as_slice();
        let mut vdevs = Vec::new();
        for &(shape, width) in &layout.vdevs {
            let (own, left) = rest.split_at_checked(width).ok_or_else(|| {
                Error::invalid_request(format!("there are too few drives for {layout}"))
            })?;
            rest = left;
            let paths = own.iter().map(|drive| drive.path().to_owned()).collect();
            vdevs.push(NewVdev { layout: shape, drives: paths, role: VdevRole::Data });
        }
        let pool = Self {
            drives,
            drive_part: layout.drive_part,
            name: format!("bench-{}", std::process::id()),
            environment: session::environment(system),
            session: RwLock::new(None),
        };
        let new = NewPool {
            name: pool.name.clone(),
            vdevs,
            ashift: Some(layout.ashift),
            properties: properties.to_vec(),
            // the drives were checked before, and unequal vdevs are allowed
            force: true,
        };
        pool.drives.iter().try_for_each(|drive| drive.clear_labels(pool.drive_part))?;
        let held = pool::create_on_devices(&new, &pool.open_drives()?, &pool.environment)?;
        pool.replace_session(Some(Session::new(held)));
        Ok(Arc::new(pool))
    }

    /// Its name, and that of its first file system.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn open_drives(&self) -> Result<Vec<pool::Drive>, Error> {
        self.drives.iter().map(|drive| drive.open_for_pool(self.drive_part)).collect()
    }

    fn replace_session(&self, session: Option<Session>) -> Option<Session> {
        let mut place = self.session.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, session)
    }

    /// Does something with the pool while it is open.
    pub(super) fn with_session<T>(
        &self,
        work: impl FnOnce(&Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let session = self.session.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || Error::invalid_request("the pool is closed after an error");
        work(session.as_ref().ok_or_else(closed)?)
    }

    /// Exports it, and drops its pages from the page cache; returns the part that is still
    /// cached.
    fn close(&self) -> Result<Option<f64>, Error> {
        if let Some(session) = self.replace_session(None) {
            session.close(CloseAction::Close)?;
        }
        let found = self.drives.iter().filter_map(|drive| drive.drop_cache());
        Ok(found.reduce(f64::max))
    }

    fn open(&self) -> Result<(), Error> {
        let held = pool::import_devices(&self.open_drives()?, &self.name, &self.environment)?;
        self.replace_session(Some(Session::new(held)));
        Ok(())
    }

    /// Exports and imports it: afterwards nothing of it is in memory, except for the returned
    /// part.
    pub(super) fn reopen(&self) -> Result<Option<f64>, Error> {
        let found = self.close()?;
        self.open()?;
        Ok(found)
    }

    /// Reads all that it holds, all copies and parity, and checks it. None if it was stopped. The
    /// pool is closed afterwards.
    pub(super) fn scrub(&self, course: &Progress<'_>) -> Result<Option<ScanResult>, Error> {
        self.close()?;
        let pool = engine::search_devices(&self.open_drives()?)
            .open(&self.name, &OpenOptions::default())?;
        let job = Arc::new(Job::default());
        let began = Instant::now();
        let verify = PoolVerifier::new(&pool, Arc::clone(&job))?;
        loop {
            self.run_verify_round(&verify, &job, course);
            if course.is_cancelled() {
                return Ok(None);
            }
            if !verify.next_round() {
                break;
            }
        }
        let time = began.elapsed();
        let findings = verify.findings();
        if !findings.clean {
            return Err(Error::invalid_request(format!(
                "the pool that was measured is damaged: {} blocks are lost, {} repairable",
                findings.lost, findings.repairable
            )));
        }
        Ok(Some(ScanResult { bytes: findings.examined_bytes, duration: time }))
    }

    /// Clears a drive, and resilvers it. None if it was stopped. Returns the bytes written to the
    /// drive.
    pub(super) fn resilver(
        &self,
        which: usize,
        course: &Progress<'_>,
    ) -> Result<Option<ScanResult>, Error> {
        self.close()?;
        let missing = || Error::invalid_request("the pool has fewer drives than its layout");
        let drive = self.drives.get(which).ok_or_else(missing)?;
        drive.clear_labels(self.drive_part)?;
        let mut devices = self.open_drives()?;
        let device = devices.remove(which);
        let held = pool::import_devices(&devices, &self.name, &self.environment)?;
        self.replace_session(Some(Session::new(held)));
        self.with_session(|session| {
            let (held, path) = (session.pool(), drive.path());
            held.vdevs().replace_with(&path.display().to_string(), path, &device)?;
            let watch = ScanProgress::new();
            let began = Instant::now();
            let mended = std::thread::scope(|scope| {
                let work = scope.spawn(|| held.scans().resilver(&watch));
                while !work.is_finished() {
                    std::thread::sleep(SHORT_CANCEL_POLL_INTERVAL);
                    if course.is_cancelled() {
                        watch.job().cancel.cancel();
                    }
                }
                work.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
            })?;
            let time = began.elapsed();
            if mended.errors > 0 {
                let what = format!("{} blocks could not be resilvered", mended.errors);
                return Err(Error::invalid_request(what));
            }
            Ok(mended.complete.then_some(ScanResult { bytes: mended.written, duration: time }))
        })
    }

    fn run_verify_round(&self, verify: &PoolVerifier, job: &Job, course: &Progress<'_>) {
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            for _ in 0..self.environment.workers {
                let ended = ended.clone();
                scope.spawn(move || {
                    verify.work();
                    drop(ended);
                });
            }
            drop(ended);
            while wait.recv_timeout(CANCEL_POLL_INTERVAL)
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                if course.is_cancelled() {
                    job.cancel.cancel();
                }
            }
        });
    }

    /// Destroys it; what remains of it on the drives goes with [`Pool`].
    pub(super) fn destroy(&self) -> Result<(), Error> {
        if self.with_session(|_| Ok(())).is_err() {
            self.open()?;
        }
        match self.replace_session(None) {
            Some(session) => session.close(CloseAction::Destroy),
            None => Ok(()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.replace_session(None));
        for drive in &self.drives {
            // no caller is left for the error; the next run refuses the drive and requires its name
            drop(drive.clear_labels(self.drive_part));
        }
    }
}
