//! The actions in a power failure, and their undoing when line power returns.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ::ups::{Stage, UpsConfig};
use api::JobState;
use engine::pool::{ScanKind, ScrubRange};

use super::source::Source;
use crate::context::Context;
use crate::log::Log;
use crate::{StateDir, state_file};

/// The time that the pools have to close. A pool whose devices hang must not keep the machine running until the
/// battery is empty.
const CLOSE_LIMIT: Duration = Duration::from_mins(1);
/// The content by which upsmon -K recognises its flag.
const POWER_DOWN_MAGIC: &str = "upsmon-shutdown-file";

/// A power failure.
pub(super) struct Outage {
    /// The pools whose scrubs were stopped. They are in a file as well, since the machine may shut down.
    scrubs: BTreeSet<String>,
    are_pools_closed: bool,
}

impl Outage {
    /// Reads which scrubs the last power failure stopped.
    pub(super) fn load(state_dir: &StateDir, log: &Log) -> Self {
        let path = state_dir.stopped_scrubs();
        let scrubs = match fs::read(&path) {
            Err(_) => BTreeSet::new(),
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|why| {
                // a scrub can be started again by hand
                log.write_line(&format!("'{}' cannot be read: {why}", path.display()));
                BTreeSet::new()
            }),
        };
        Self { scrubs, are_pools_closed: false }
    }

    pub(super) fn stopped_scrubs(&self) -> Vec<String> {
        self.scrubs.iter().cloned().collect()
    }

    pub(super) fn are_pools_closed(&self) -> bool {
        self.are_pools_closed
    }

    /// Pauses scrubs and stops replication. Resilvers go on: the pools need them.
    pub(super) fn stop_background_work(&mut self, context: &Context) {
        for pool in context.pools.all() {
            let scan = pool.handle.scans().status();
            let is_scrub = scan.is_some_and(|it| it.scan == ScanKind::Scrub && it.is_scanning());
            // it may have ended meanwhile
            if is_scrub && pool.handle.scans().pause_scrub().is_ok() {
                let name = pool.handle.name();
                context.log.write_line(&format!("pool '{name}': the scrub waits for line power"));
                self.scrubs.insert(name.to_owned());
            }
        }
        self.save(context);
        let is_replication =
            |job: &api::Job| job.kind == "replicate" && job.state == JobState::Running;
        for job in context.jobs.list().into_iter().filter(is_replication) {
            // it may have ended meanwhile
            let _ = context.jobs.cancel(job.id);
        }
    }

    /// Closes the pools and shuts the machine down. Returns why the shutdown command failed.
    pub(super) fn shut_down(
        &mut self,
        source: &mut Source,
        config: &UpsConfig,
        context: &Arc<Context>,
    ) -> Result<(), String> {
        if let Err(why) = source.force_shutdown() {
            context
                .log
                .write_line(&format!("UPS: the other machines could not be notified: {why}"));
        }
        self.are_pools_closed = true;
        close_pools(context);
        source.wait_for_secondaries();
        if let Some(flag) = &config.power_down_flag {
            write_power_down_flag(flag, &context.log);
        }
        // from now on this machine needs no power for its data
        source.release();
        run_command(&config.shutdown_command)
    }

    /// Has the pools imported again that were closed. The machine may be off before that is needed.
    pub(super) fn reopen_pools(&mut self, config: &UpsConfig, context: &Context) {
        if !std::mem::take(&mut self.are_pools_closed) {
            return;
        }
        if let Some(flag) = &config.power_down_flag {
            // without it the UPS stays on at a later shutdown
            let _ = fs::remove_file(flag);
        }
        context.pools.reopen_after_power_failure();
    }

    /// Resumes the scrubs that the power failure paused, once their pools are imported.
    pub(super) fn restart_scrubs(&mut self, stage: Stage, context: &Context) {
        if stage != Stage::Normal || self.scrubs.is_empty() {
            return;
        }
        let before = self.scrubs.len();
        self.scrubs.retain(|name| {
            let Ok(pool) = context.pools.pool(name) else { return true };
            let line = match pool.handle.scans().start_scrub(ScrubRange::All) {
                Ok(()) => format!("pool '{name}': the scrub goes on"),
                Err(why) => format!("pool '{name}': the scrub does not go on: {why}"),
            };
            context.log.write_line(&line);
            false
        });
        if self.scrubs.len() != before {
            self.save(context);
        }
    }

    fn save(&self, context: &Context) {
        let path = context.state_dir.stopped_scrubs();
        if self.scrubs.is_empty() {
            let _ = fs::remove_file(&path);
            return;
        }
        let saved = serde_json::to_vec(&self.scrubs)
            .map_err(|why| crate::Error::file_error(&path, &why.into()))
            .and_then(|bytes| state_file::replace(&path, &bytes));
        if let Err(why) = saved {
            context.log.write_line(&why.to_string());
        }
    }
}

/// Closes the pools, as far as they close within the limit.
fn close_pools(context: &Arc<Context>) {
    let (sender, closed) = mpsc::channel();
    let work = Arc::clone(context);
    let close = move || {
        let lines = match work.pools.close_for_power_failure() {
            Ok(failures) => failures,
            Err(why) => vec![why.to_string()],
        };
        for line in &lines {
            work.log.write_line(line);
        }
        // the other end may have stopped waiting
        let _ = sender.send(());
    };
    let spawned = std::thread::Builder::new().name("close pools".to_owned()).spawn(close);
    let why = match spawned {
        Ok(_) => closed.recv_timeout(CLOSE_LIMIT).err().map(|_| "they need too long".to_owned()),
        Err(why) => Some(why.to_string()),
    };
    if let Some(why) = why {
        let next = "the machine shuts down, and the import rolls back to the last txg";
        context.log.write_line(&format!("UPS: the pools are not closed: {why}; {next}"));
    }
}

/// Writes the flag by which NUT's system-shutdown script switches the UPS off after the machine.
fn write_power_down_flag(path: &Path, log: &Log) {
    if let Err(why) = fs::write(path, POWER_DOWN_MAGIC) {
        let why = engine::error::io_error_text(&why);
        let path = path.display();
        log.write_line(&format!("UPS: '{path}' is not written: {why}; the UPS stays on"));
    }
}

/// Runs the shutdown command, and waits for it.
fn run_command(words: &[String]) -> Result<(), String> {
    let Some((program, args)) = words.split_first() else { return Ok(()) };
    let failed = |why: &dyn ToString| {
        let why = why.to_string();
        format!("the shutdown command '{program}' failed: {why}; shut this machine down by hand")
    };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|why| failed(&why))?;
    if status.success() { Ok(()) } else { Err(failed(&status)) }
}
