//! Spin-down of the drives of idle pools: the sections `[[power]]` of the configuration, and the thread that acts.
//!
//! ```toml
//! [[power]]
//! pool = "tank"
//! idle_minutes = 30     # no request for so long: its disks go to standby
//! ```
//!
//! The first request after that wakes all disks of the pool at the same time: one after the other, a wide raidz would take
//! a minute. Only disks with platters are sent to standby.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use api::Drive;
use health::{IdleTimer, PoolRequests, PowerStep, wake_drive};
use serde::{Deserialize, Deserializer};

use crate::context::Context;
use crate::monitor::MonitorState;

/// The most seconds between two looks at the requests of a pool whose disks turn.
const LOOK_SECONDS: u64 = 5;
/// The seconds between two looks while disks sleep: the others wake that much later than the first.
const WAKE_LOOK_SECONDS: u64 = 1;

/// A section `[[power]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PowerConfig {
    /// The pool.
    pool: String,
    /// Minutes without a request after which its disks go to standby.
    #[serde(deserialize_with = "minutes", rename = "idle_minutes")]
    idle: Duration,
}

/// The spin-down of all pools.
#[derive(Default)]
pub(crate) struct PowerMonitor {
    state: MonitorState<Vec<PowerConfig>, ()>,
}

impl PowerMonitor {
    /// Sets the configuration.
    pub(crate) fn configure(&self, config: Vec<PowerConfig>) {
        self.state.configure(config);
    }

    /// Ends the thread at its next look.
    pub(crate) fn stop(&self) {
        self.state.stop();
    }

    /// Looks at the requests of the pools until [`Self::stop`].
    pub(crate) fn run(&self, context: &Context) {
        let start = Instant::now();
        let mut timers: BTreeMap<String, IdleTimer> = BTreeMap::new();
        loop {
            let is_asleep = timers.values().any(IdleTimer::is_asleep);
            let Some(config) = self.state.next_look(|config| look_interval(config, is_asleep))
            else {
                return;
            };
            timers.retain(|pool, _| config.iter().any(|entry| entry.pool == *pool));
            for entry in &config {
                let Ok(pool) = context.pools.pool(&entry.pool) else {
                    timers.remove(&entry.pool);
                    continue;
                };
                let requests = count(&pool.handle.drives().io_stats());
                drop(pool);
                let now = start.elapsed();
                let timer = timers.entry(entry.pool.clone());
                let timer = timer.or_insert_with(|| IdleTimer::new(now, requests));
                match timer.step(now, requests, entry.idle) {
                    PowerStep::Nothing => {}
                    PowerStep::Sleep => send_to_standby(context, entry),
                    PowerStep::Wake => wake(context, &entry.pool),
                }
            }
        }
    }
}

/// The seconds between two looks.
fn look_interval(config: &[PowerConfig], is_asleep: bool) -> u64 {
    let shortest = config.iter().map(|entry| entry.idle.as_secs() / 4).min();
    match shortest {
        _ if is_asleep => WAKE_LOOK_SECONDS,
        Some(seconds) => seconds.clamp(1, LOOK_SECONDS),
        // a changed configuration ends the pause
        None => 3600,
    }
}

fn count(stats: &engine::pool::PoolIoStats) -> PoolRequests {
    let mut sum = PoolRequests::default();
    for drive in &stats.drives {
        for kind in [&drive.read, &drive.write, &drive.trim, &drive.flush] {
            sum.ended += kind.requests;
            sum.in_flight += kind.in_flight;
        }
    }
    sum
}

/// The disks of a pool that turn.
fn disks(context: &Context, pool: &str) -> Vec<Drive> {
    let is_of_pool = |drive: &Drive| drive.place.as_ref().is_some_and(|place| place.pool == pool);
    let overview = context.overview.latest();
    let drives = context.drives.list(&overview.pools).drives.into_iter();
    drives.filter(|drive| drive.kind == "HDD" && is_of_pool(drive)).collect()
}

fn send_to_standby(context: &Context, entry: &PowerConfig) {
    let mut sleeping = 0;
    for drive in disks(context, &entry.pool) {
        match context.drives.send_to_standby(&drive.name) {
            Ok(()) => sleeping += 1,
            Err(why) => context.log.write_line(&format!("drive {}: no standby: {why}", drive.id())),
        }
    }
    let minutes = entry.idle.as_secs_f64() / 60.0;
    context.log.write_line(&format!(
        "pool '{}' had no request for {minutes} minutes: {sleeping} of its disks sleep",
        entry.pool
    ));
}

/// Wakes the sleeping disks of a pool, each by a thread of its own, and waits until they turn.
fn wake(context: &Context, pool: &str) {
    let sleeping: Vec<_> =
        disks(context, pool).into_iter().filter(|drive| drive.is_asleep).collect();
    let start = Instant::now();
    let place = crate::events::unix_seconds();
    let paths: Vec<(String, PathBuf)> =
        sleeping.into_iter().map(|drive| (drive.name, drive.path)).collect();
    thread::scope(|scope| {
        for (name, path) in &paths {
            scope.spawn(move || {
                if let Err(why) = wake_drive(path, place) {
                    context.log.write_line(&format!("drive {name} does not wake: {why}"));
                }
                context.drives.set_asleep(name, false);
            });
        }
    });
    context.log.write_line(&format!(
        "pool '{pool}' has requests again: {} of its disks were woken within {:.1} s",
        paths.len(),
        start.elapsed().as_secs_f64()
    ));
}

fn minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let minutes = f64::deserialize(deserializer)?;
    if (0.01..=100_000.0).contains(&minutes) {
        return Ok(Duration::from_secs_f64(minutes * 60.0));
    }
    Err(serde::de::Error::custom("the value must be 0.01 to 100000 minutes"))
}
