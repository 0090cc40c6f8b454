//! The UPS monitor: a thread reads the UPS, decides the stage of a power failure, and acts when it changes.
//!
//! ```text
//! on-battery   an alert
//! quiet        scrubs and replication stop              outage.rs
//! shut-down    primary: FSD to the others; pools close; POWERDOWNFLAG; logout; the shutdown command
//! normal       pools are imported again, scrubs start again, replication continues
//! ```

mod outage;
mod source;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ::ups::{PowerWatch, Role, Stage, UpsConfig};
use api::{Event, UpsStatus};

use crate::StateDir;
use crate::context::Context;
use crate::events::unix_seconds;
use crate::log::Log;
use crate::monitor::MonitorState;

use outage::Outage;
use source::Source;

/// The monitor of the UPS.
pub(crate) struct UpsMonitor {
    state_dir: StateDir,
    log: Arc<Log>,
    state: MonitorState<UpsConfig, UpsStatus>,
    /// Whether background work has to wait for line power.
    is_quiet: AtomicBool,
}

/// The thread's own part of the monitor.
struct Session {
    source: Source,
    watch: PowerWatch,
    outage: Outage,
    started: Instant,
    status: UpsStatus,
}

impl UpsMonitor {
    pub(crate) fn new(state_dir: &StateDir, log: Arc<Log>) -> Self {
        Self {
            state_dir: state_dir.clone(),
            log,
            state: MonitorState::default(),
            is_quiet: AtomicBool::new(false),
        }
    }

    /// Sets the configuration for the next reading.
    pub(crate) fn configure(&self, config: UpsConfig) {
        self.state.configure(config);
    }

    /// Ends the thread at its next look.
    pub(crate) fn stop(&self) {
        self.state.stop();
    }

    /// The UPS as it was at the last look; none if none is configured.
    pub(crate) fn status(&self) -> Option<UpsStatus> {
        self.state.status()
    }

    /// Whether background work has to wait for line power.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Acquire)
    }

    /// Looks at the UPS until [`Self::stop`].
    pub(crate) fn run(&self, context: &Arc<Context>) {
        let mut session = Session {
            source: Source::default(),
            watch: PowerWatch::default(),
            outage: Outage::load(&self.state_dir, &self.log),
            started: Instant::now(),
            status: UpsStatus::default(),
        };
        while let Some(config) = self.next_look(&session) {
            if config.server.is_some() {
                self.poll_ups(&mut session, &config, context);
            } else if session.watch.stage() != Stage::Normal {
                // the owner no longer wants the UPS watched
                session.watch = PowerWatch::default();
                self.enter(Stage::Normal, &mut session, &config, context);
            }
            session.outage.restart_scrubs(session.watch.stage(), context);
            session.status.stopped_scrubs = session.outage.stopped_scrubs();
            session.status.are_pools_closed = session.outage.are_pools_closed();
            let status = config.server.is_some().then(|| session.status.clone());
            self.state.set_status(status);
        }
    }

    /// Waits until the next look is due. Returns its configuration, or nothing when the daemon ends.
    fn next_look(&self, session: &Session) -> Option<UpsConfig> {
        // a power failure is looked at closely
        self.state.next_look(|config| match session.watch.stage() {
            Stage::Normal => config.interval,
            _ => config.interval.min(2),
        })
    }

    /// Reads the UPS, and enters another stage if there is one.
    fn poll_ups(&self, session: &mut Session, config: &UpsConfig, context: &Arc<Context>) {
        let read = session.source.read(config);
        let now = session.started.elapsed().as_secs();
        let before = session.watch.stage();
        let stage = session.watch.observe(read.as_ref().ok(), &config.thresholds(), now);
        let status = &mut session.status;
        status.server = config.server.as_ref().map(ToString::to_string).unwrap_or_default();
        status.role = match config.role {
            Role::Primary => "primary".to_owned(),
            Role::Secondary => "secondary".to_owned(),
        };
        (status.stage, status.battery_seconds) = (stage, session.watch.battery_seconds(now));
        match read {
            Ok(reading) => {
                if status.error.take().is_some() {
                    self.log.write_line(&format!("UPS {}: contact is back", status.server));
                }
                (status.reading, status.read_at) = (Some(reading), Some(unix_seconds()));
            }
            Err(why) => {
                if status.error.as_ref() != Some(&why) {
                    self.log.write_line(&format!("UPS: {why}"));
                }
                status.error = Some(why);
            }
        }
        if stage != before {
            // closing pools takes time, and the reason is visible meanwhile
            self.state.set_status(Some(status.clone()));
            self.enter(stage, session, config, context);
        }
    }

    /// Does the work of a stage. A stage may skip those before it.
    fn enter(
        &self,
        stage: Stage,
        session: &mut Session,
        config: &UpsConfig,
        context: &Arc<Context>,
    ) {
        self.log.write_line(&format!("UPS: {}", announcement(stage)));
        let event = Event::PowerStageChanged { stage: stage.as_str().to_owned() };
        context.events.record(&[event]);
        self.is_quiet.store(stage >= Stage::Quiet, Ordering::Release);
        if stage >= Stage::Quiet {
            session.outage.stop_background_work(context);
        }
        if stage == Stage::ShutDown {
            let done = session.outage.shut_down(&mut session.source, config, context);
            session.status.shutdown_error = done.err();
            if let Some(why) = &session.status.shutdown_error {
                self.log.write_line(&format!("UPS: {why}"));
            }
        }
        if stage == Stage::Normal {
            session.status.shutdown_error = None;
            session.source.resume();
            session.outage.reopen_pools(config, context);
        }
    }
}

/// The line in the log when a stage begins.
const fn announcement(stage: Stage) -> &'static str {
    match stage {
        Stage::Normal => "line power is back; pools and background work go on",
        Stage::OnBattery => "line power failed; this machine runs on battery",
        Stage::Quiet => "the power failure lasts; scrubs and replication stop",
        Stage::ShutDown => "the battery is nearly empty or the primary shuts down; pools close",
    }
}
