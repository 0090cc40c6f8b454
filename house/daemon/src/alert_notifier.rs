//! The alert notifier: it keeps the store of alerts, and a thread that delivers messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alerts::{Alert, AlertStore, AlertsConfig, Channel, Condition, Message, Severity};
use api::{AlertList, ChannelTest, Event};
use parking_lot::{Condvar, Mutex};

use crate::events::{Events, unix_seconds};
use crate::log::Log;
use crate::{StateDir, state_file};

/// The time between two looks for messages that are to be tried again.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time between two pings.
const PING_INTERVAL: Duration = Duration::from_mins(5);
/// The age in seconds of the last look at pools and drives at which no ping is sent: something hangs.
const MAX_LOOK_AGE: u64 = 120;

/// The alert notifier.
pub(crate) struct AlertNotifier {
    state_dir: StateDir,
    events: Arc<Events>,
    log: Arc<Log>,
    state: Mutex<State>,
    /// Wakes the thread that delivers.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    config: AlertsConfig,
    store: AlertStore,
    /// When pools and drives were looked at last, in seconds since 1970.
    looked_at: u64,
    /// When the last ping was tried, and whether it failed.
    pinged: Option<(Instant, bool)>,
    is_stopped: bool,
}

impl AlertNotifier {
    /// The notifier with the alerts of the last daemon.
    pub(crate) fn new(state_dir: &StateDir, events: &Arc<Events>, log: &Arc<Log>) -> Self {
        let path = state_dir.alerts();
        let read = std::fs::read(&path).map(|bytes| serde_json::from_slice(&bytes));
        let store = match read {
            Ok(Ok(store)) => store,
            Ok(Err(why)) => {
                let path = path.display();
                log.write_line(&format!("'{path}' is damaged ({why}): open alerts are sent again"));
                AlertStore::default()
            }
            Err(_) => AlertStore::default(),
        };
        Self {
            state_dir: state_dir.clone(),
            events: Arc::clone(events),
            log: Arc::clone(log),
            state: Mutex::new(State { store, ..State::default() }),
            changed: Condvar::new(),
        }
    }

    /// Sets the configuration.
    pub(crate) fn configure(&self, config: AlertsConfig) {
        let mut state = self.state.lock();
        let names = channel_names(&config);
        state.store.keep_channels(&names);
        state.config = config;
        self.changed.notify_all();
    }

    /// The percentage of used space from which a pool raises an alert.
    pub(crate) fn space_percent(&self) -> u64 {
        self.state.lock().config.space
    }

    /// Sends messages about new, worse and ended conditions. Alerts of drives stay until all drives
    /// were read. `all_well` is the sentence of a message for the case that there is no problem.
    pub(crate) fn update(
        &self,
        conditions: Vec<Condition>,
        drives_are_known: bool,
        all_well: &str,
        now: u64,
    ) {
        let mut state = self.state.lock();
        let before = state.store.clone();
        let is_known = |key: &str| drives_are_known || !key.starts_with("drive");
        let mut messages = state.store.update(conditions, is_known, now);
        state.looked_at = now;
        let interval = state.config.all_well_interval();
        // not before all drives were looked at
        if drives_are_known {
            messages.extend(state.store.all_well(interval, all_well, now));
        }
        let names = channel_names(&state.config);
        for message in &messages {
            state.store.queue(message, &names);
        }
        if state.store != before {
            self.save(&state.store);
        }
        drop(state);
        for message in &messages {
            self.log.write_line(&format!("alert: {}. {}", message.title, message.text));
        }
        let changed = |message: &Message| Event::AlertChanged {
            alert: message.key.clone(),
            severity: message.severity.as_str().to_owned(),
            title: message.title.clone(),
        };
        self.events.record(&messages.iter().map(changed).collect::<Vec<_>>());
        self.changed.notify_all();
    }

    /// Acknowledges an open alert. Returns whether there is one of that key.
    pub(crate) fn acknowledge(&self, key: &str) -> bool {
        let mut state = self.state.lock();
        let is_known = state.store.acknowledge(key);
        self.save(&state.store);
        is_known
    }

    /// Whether the owner acknowledged the alert of a condition.
    pub(crate) fn is_acknowledged(&self, key: &str) -> bool {
        self.state.lock().store.is_acknowledged(key)
    }

    /// The alerts, the open ones first.
    pub(crate) fn alerts(&self) -> Vec<Alert> {
        self.state.lock().store.alerts()
    }

    /// The alerts and their channels.
    pub(crate) fn list(&self) -> AlertList {
        let state = self.state.lock();
        AlertList {
            alerts: state.store.alerts(),
            channels: channel_names(&state.config),
            undelivered: state.store.undelivered(),
        }
    }

    /// Sends a message by every channel, one after the other.
    pub(crate) fn test(&self) -> Vec<ChannelTest> {
        let channels = self.state.lock().config.channels();
        let message = Message {
            key: "test".to_owned(),
            severity: Severity::Notice,
            title: "Test of poolhouse's alerts".to_owned(),
            text: "There is no problem: this message shows that alerts reach you.".to_owned(),
            time: unix_seconds(),
        };
        let test = |channel: &Channel| ChannelTest {
            channel: channel.name().to_owned(),
            error: channel.send(&message, &host()).err().map(|why| why.to_string()),
        };
        channels.iter().map(test).collect()
    }

    /// Delivers messages until [`Self::stop`].
    pub(crate) fn run(&self) {
        loop {
            let mut state = self.state.lock();
            let (channel, message) = loop {
                if state.is_stopped {
                    return;
                }
                if let Some((name, message)) = state.store.next_due(unix_seconds()) {
                    let channels = state.config.channels();
                    match channels.into_iter().find(|channel| channel.name() == name) {
                        Some(channel) => break (channel, message),
                        None => state.store.delivered(&name, &message),
                    }
                } else if let Some(url) = state.due_ping() {
                    let ca_file = state.config.ca_file.clone();
                    drop(state);
                    let failed = alerts::ping(&url, ca_file.as_deref()).err();
                    state = self.state.lock();
                    self.take_ping(&mut state, failed.as_ref());
                } else {
                    self.changed.wait_for(&mut state, INTERVAL);
                }
            };
            drop(state);
            let sent = channel.send(&message, &host());
            self.take_result(&channel, &message, sent.err().map(|why| why.to_string()));
        }
    }

    /// Notes a ping. The log has the first failure of several.
    fn take_ping(&self, state: &mut State, failed: Option<&alerts::DeliveryError>) {
        let was_failing = state.pinged.is_some_and(|(_, failed)| failed);
        state.pinged = Some((Instant::now(), failed.is_some()));
        if let Some(why) = failed.filter(|_| !was_failing) {
            self.log.write_line(&format!("alerts.ping: {why}"));
        }
    }

    fn take_result(&self, channel: &Channel, message: &Message, error: Option<String>) {
        let mut state = self.state.lock();
        match error {
            None => state.store.delivered(channel.name(), message),
            Some(why) => {
                let is_lost = state.store.failed(channel.name(), message, &why, unix_seconds());
                let next = if is_lost { "it is dropped" } else { "it is tried again" };
                let (name, title) = (channel.name(), &message.title);
                self.log.write_line(&format!("alert '{title}' by {name}: {why}; {next}"));
            }
        }
        self.save(&state.store);
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    fn save(&self, store: &AlertStore) {
        let path = self.state_dir.alerts();
        let saved = serde_json::to_vec_pretty(store)
            .map_err(|why| crate::Error::file_error(&path, &why.into()))
            .and_then(|bytes| state_file::replace(&path, &bytes));
        if let Err(why) = saved {
            self.log.write_line(&why.to_string());
        }
    }
}

impl State {
    /// The URL to ping, if it is due. A daemon whose pool check hangs sends none, so that its owner
    /// hears of it.
    fn due_ping(&self) -> Option<String> {
        let url = self.config.ping.clone()?;
        let is_due = self.pinged.is_none_or(|(last, _)| last.elapsed() >= PING_INTERVAL);
        let age = unix_seconds().checked_sub(self.looked_at);
        (is_due && age.is_some_and(|age| age <= MAX_LOOK_AGE)).then_some(url)
    }
}

fn channel_names(config: &AlertsConfig) -> Vec<String> {
    config.channels().iter().map(|channel| channel.name().to_owned()).collect()
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
