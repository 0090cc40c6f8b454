//! The hours in which this machine is awake, and its waking by the network: the section `[hours]`.
//!
//! ```toml
//! [hours]
//! awake = "07:00-23:00"              # local time; at other times the machine sleeps while it is idle
//! idle_minutes = 15                  # no request to a pool, no job and no scan for so long: it sleeps
//! sleep_command = ["rtcwake", "--mode", "mem", "--time", "{wake}"]   # {wake}: seconds since 1970
//! wake_on_lan = ["enp3s0"]           # the cards that a magic packet may wake
//! ethtool = "/usr/sbin/ethtool"      # without it that of the PATH
//! ```
//!
//! Before the machine sleeps, all pools are synced: it may lose its power meanwhile. A user who wakes it at night keeps
//! it awake by using it. Nothing sleeps in a power failure, since the UPS has to be watched.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ::ups::Stage;
use api::{Event, JobState};
use serde::{Deserialize, Deserializer};

use crate::context::Context;
use crate::events::unix_seconds;
use crate::monitor::MonitorState;
use crate::replica::Window;

/// The most seconds between two looks.
const LOOK_SECONDS: u64 = 10;
/// The time before the hours begin in which the machine no longer goes to sleep.
const SHORTEST_SLEEP: u64 = 300;
/// The time of the next hours in the words of the command.
const WAKE_TIME: &str = "{wake}";

/// The section `[hours]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HoursConfig {
    /// The hours in which the machine is awake; none: always.
    awake: Option<Window>,
    /// The time without work after which it sleeps.
    #[serde(deserialize_with = "minutes", rename = "idle_minutes")]
    idle: Duration,
    /// The program and its arguments that suspend the machine, and wake it again.
    #[serde(deserialize_with = "command")]
    sleep_command: Vec<String>,
    /// The network cards that may wake it.
    wake_on_lan: Vec<String>,
    /// The program that sets up network cards.
    ethtool: String,
}

impl Default for HoursConfig {
    fn default() -> Self {
        let words = ["rtcwake", "--mode", "mem", "--time", WAKE_TIME];
        Self {
            awake: None,
            idle: Duration::from_mins(15),
            sleep_command: words.map(str::to_owned).to_vec(),
            wake_on_lan: Vec::new(),
            ethtool: "ethtool".to_owned(),
        }
    }
}

/// The thread's view of the machine's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    /// Requests of all pools that ended since their imports.
    requests: u64,
    /// Requests, jobs, scans or a power failure that must not be interrupted.
    is_running: bool,
}

/// Decides when the machine sleeps. Times are spans since any fixed moment, of a clock that is never set.
#[derive(Debug)]
struct SleepTimer {
    last: Work,
    busy_at: Duration,
}

impl SleepTimer {
    const fn new(now: Duration, work: Work) -> Self {
        Self { last: work, busy_at: now }
    }

    /// Whether the machine has been idle for `idle`.
    fn is_idle(&mut self, now: Duration, work: Work, idle: Duration) -> bool {
        if work.is_running || work.requests != self.last.requests {
            self.busy_at = now;
        }
        self.last = work;
        now.checked_sub(self.busy_at).is_some_and(|span| span >= idle)
    }
}

/// The hours of the machine.
#[derive(Default)]
pub(crate) struct HoursMonitor {
    state: MonitorState<HoursConfig, ()>,
}

impl HoursMonitor {
    /// Sets the configuration.
    pub(crate) fn configure(&self, config: HoursConfig) {
        self.state.configure(config);
    }

    /// Ends the thread at its next look.
    pub(crate) fn stop(&self) {
        self.state.stop();
    }

    /// Has the machine sleep at its hours until [`Self::stop`].
    pub(crate) fn run(&self, context: &Context) {
        let start = Instant::now();
        let mut timer = SleepTimer::new(start.elapsed(), find_work(context));
        let mut cards: Vec<String> = Vec::new();
        while let Some(config) = self.state.next_look(look_interval) {
            if cards != config.wake_on_lan {
                cards.clone_from(&config.wake_on_lan);
                let_cards_wake(context, &config);
            }
            let is_idle = timer.is_idle(start.elapsed(), find_work(context), config.idle);
            let Some(wake) = wake_time(config.awake, unix_seconds()).filter(|_| is_idle) else {
                continue;
            };
            sleep(context, &config, wake);
            // the user who woke it has time to use it, and cards may have forgotten their setting
            timer = SleepTimer::new(start.elapsed(), find_work(context));
            let_cards_wake(context, &config);
        }
    }
}

/// The seconds between two looks.
fn look_interval(config: &HoursConfig) -> u64 {
    match config.awake {
        Some(_) => (config.idle.as_secs() / 4).clamp(1, LOOK_SECONDS),
        // a changed configuration ends the pause
        None => 3600,
    }
}

/// When the machine has to wake, in seconds since 1970; none: it has to be awake now or soon.
fn wake_time(awake: Option<Window>, now: u64) -> Option<u64> {
    let awake = awake.filter(|awake| !awake.is_open(now))?;
    awake.next_begin(now).filter(|wake| *wake >= now + SHORTEST_SLEEP)
}

fn find_work(context: &Context) -> Work {
    let mut work = Work::default();
    for pool in context.pools.all() {
        let scan = pool.handle.scans().status();
        work.is_running |= scan.is_some_and(|scan| scan.is_scanning());
        for drive in &pool.handle.drives().io_stats().drives {
            for kind in [&drive.read, &drive.write, &drive.trim, &drive.flush] {
                work.requests += kind.requests;
                work.is_running |= kind.in_flight > 0;
            }
        }
    }
    work.is_running |= context.jobs.list().iter().any(|job| job.state == JobState::Running);
    work.is_running |= context.ups.status().is_some_and(|ups| ups.stage != Stage::Normal);
    work
}

/// Syncs the pools and runs the command, which returns when the machine is awake again.
fn sleep(context: &Context, config: &HoursConfig, wake: u64) {
    for pool in context.pools.all().iter().filter(|pool| !pool.handle.is_read_only()) {
        if let Err(why) = pool.handle.sync() {
            let name = pool.handle.name();
            context.log.write_line(&format!("hours: the machine stays awake: '{name}': {why}"));
            return;
        }
    }
    context.log.write_line("hours: the machine is idle outside its hours, and sleeps");
    context.events.record(&[Event::MachineSleeps { until: wake }]);
    let words: Vec<String> = config
        .sleep_command
        .iter()
        .map(|word| word.replace(WAKE_TIME, &wake.to_string()))
        .collect();
    match run_command(&words) {
        Ok(()) => context.log.write_line("hours: the machine is awake"),
        Err(why) => context.log.write_line(&format!("hours: the machine does not sleep: {why}")),
    }
    context.events.record(&[Event::MachineWoke {}]);
}

/// Has the network cards wake the machine by magic packets.
fn let_cards_wake(context: &Context, config: &HoursConfig) {
    for card in &config.wake_on_lan {
        let words = [config.ethtool.as_str(), "-s", card, "wol", "g"].map(str::to_owned);
        let line = match run_command(&words) {
            Ok(()) => format!("hours: a magic packet to {card} wakes this machine"),
            Err(why) => format!("hours: no Wake-on-LAN by {card}: {why}"),
        };
        context.log.write_line(&line);
    }
}

/// Runs a program to its end.
fn run_command(words: &[String]) -> Result<(), String> {
    let Some((program, args)) = words.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let done = command.output().map_err(|why| format!("'{program}' does not start: {why}"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("'{program}' failed ({}): {}", done.status, said.trim()))
}

fn minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let minutes = f64::deserialize(deserializer)?;
    if (0.01..=1440.0).contains(&minutes) {
        return Ok(Duration::from_secs_f64(minutes * 60.0));
    }
    Err(serde::de::Error::custom("the value must be 0.01 to 1440 minutes"))
}

fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(deserializer)?;
    if words.iter().skip(1).any(|word| word.contains(WAKE_TIME)) {
        return Ok(words);
    }
    let why = format!("the command needs {WAKE_TIME}, or the machine does not wake again");
    Err(serde::de::Error::custom(why))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SleepTimer, Work, wake_time};
    use crate::config::Config;
    use crate::replica::Window;

    #[test]
    fn idle_time_begins_again_with_work() {
        let work = |requests, is_running| Work { requests, is_running };
        let at = Duration::from_mins;
        let mut timer = SleepTimer::new(at(0), work(7, false));
        assert!(!timer.is_idle(at(14), work(7, false), at(15)));
        assert!(timer.is_idle(at(15), work(7, false), at(15)));
        assert!(!timer.is_idle(at(16), work(8, false), at(15)));
        assert!(!timer.is_idle(at(30), work(8, true), at(15)));
        assert!(!timer.is_idle(at(44), work(8, false), at(15)));
        assert!(timer.is_idle(at(45), work(8, false), at(15)));
    }

    #[test]
    fn machine_wakes_when_its_hours_begin() {
        let hours = |text: &str| Some(Window::try_from(text.to_owned()).unwrap());
        let zone = jiff::tz::TimeZone::system();
        let moment = |hour, minute| {
            let day = jiff::civil::date(2026, 1, 15).at(hour, minute, 0, 0);
            u64::try_from(day.to_zoned(zone.clone()).unwrap().timestamp().as_second()).unwrap()
        };
        let day = hours("07:00-23:00");
        assert_eq!(wake_time(day, moment(2, 30)), Some(moment(7, 0)));
        assert_eq!(wake_time(day, moment(23, 30)), Some(moment(7, 0) + 86_400));
        assert_eq!(wake_time(day, moment(12, 0)), None);
        // it is nearly time
        assert_eq!(wake_time(day, moment(6, 58)), None);
        assert_eq!(wake_time(hours("18:00-02:00"), moment(2, 0)), Some(moment(18, 0)));
        assert_eq!(wake_time(None, moment(2, 0)), None);
    }

    #[test]
    fn command_that_never_wakes_is_refused() {
        let text =
            "[hours]\nawake = \"07:00-23:00\"\nsleep_command = [\"systemctl\", \"suspend\"]\n";
        let problems = Config::parse(text).unwrap_err();
        assert!(problems[0].to_string().contains("needs {wake}"), "{problems:?}");
        assert!(Config::parse("[hours]\nawake = \"7-23\"\n").is_err());
        assert!(Config::parse("[hours]\nawake = \"07:00-23:00\"\n").is_ok());
    }
}
