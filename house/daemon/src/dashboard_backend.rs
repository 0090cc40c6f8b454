//! The daemon as the dashboard sees it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use api::{DriveDetails, LocateDrive, NoteDrive, Overview, ScrubPool};
use web::Backend;

use crate::context::Context;
use crate::events::unix_seconds;
use crate::{Error, Result, environment, state_file};

/// The seconds for which the button of the dashboard lets a light blink.
const LOCATE_SECONDS: u64 = 60;

/// The daemon behind the dashboard. It keeps the context by a weak reference: the context has the routes.
pub(crate) struct DashboardBackend {
    context: Weak<Context>,
    started: Instant,
}

impl DashboardBackend {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::downgrade(context), started: Instant::now() }
    }

    fn context(&self) -> Result<Arc<Context>> {
        let why = "the daemon is shutting down";
        self.context.upgrade().ok_or_else(|| Error::refused_error(why))
    }

    fn write_password(&self, hash: Option<&str>) -> Result<()> {
        let path = self.context()?.state_dir.web_password();
        let Some(hash) = hash else {
            return match std::fs::remove_file(&path) {
                Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::file_error(&path, &why))
                }
                _ => Ok(()),
            };
        };
        state_file::replace(&path, hash.as_bytes())
    }

    fn read_password(&self) -> Result<Option<String>> {
        let path = self.context()?.state_dir.web_password();
        match std::fs::read_to_string(&path) {
            Ok(hash) => Ok(Some(hash.trim().to_owned())),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(Error::file_error(&path, &why)),
        }
    }

    fn start_scrub(&self, pool: &str, stop: bool, command: &str) -> Result<()> {
        let context = self.context()?;
        let call = ScrubPool { name: pool.to_owned(), stop, ..ScrubPool::default() };
        context.pools.scrub(&call)?;
        let uid = rustix::process::geteuid().as_raw();
        context.pools.record_command(pool, command, uid);
        Ok(())
    }
}

/// An error as a sentence.
fn sentence<T>(result: Result<T>) -> std::result::Result<T, String> {
    result.map_err(|why| why.to_string())
}

impl Backend for DashboardBackend {
    fn overview(&self) -> Arc<Overview> {
        self.context().map(|context| context.overview.latest()).unwrap_or_default()
    }

    fn drive(&self, drive: &str) -> std::result::Result<DriveDetails, String> {
        sentence(
            self.context().and_then(|context| {
                context.drives.details(&context.overview.latest().drives, drive)
            }),
        )
    }

    fn scrub(&self, pool: &str, stop: bool, command: &str) -> std::result::Result<(), String> {
        sentence(self.start_scrub(pool, stop, command))
    }

    fn note_drive(&self, drive: &str) -> std::result::Result<(), String> {
        sentence(self.context().and_then(|context| {
            let call = NoteDrive { drive: drive.to_owned(), forget: false };
            context.drives.note(&call, &context.overview.latest().pools).map(drop)
        }))
    }

    fn locate_drive(&self, drive: &str) -> std::result::Result<(), String> {
        sentence(self.context().and_then(|context| {
            let call = LocateDrive { drive: drive.to_owned(), seconds: LOCATE_SECONDS };
            context.drives.locate(&call).map(drop)
        }))
    }

    fn load_password(&self) -> std::result::Result<Option<String>, String> {
        sentence(self.read_password())
    }

    fn save_password(&self, hash: Option<&str>) -> std::result::Result<(), String> {
        sentence(self.write_password(hash))
    }

    fn fill_random(&self, bytes: &mut [u8]) -> std::result::Result<(), String> {
        environment::fill_random(bytes).map_err(|why| format!("no random numbers: {why}"))
    }

    fn monotonic_seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    fn unix_seconds(&self) -> u64 {
        unix_seconds()
    }

    fn log(&self, line: &str) {
        if let Ok(context) = self.context() {
            context.log.write_line(line);
        }
    }
}
