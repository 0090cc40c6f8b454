//! The state that a monitor's thread shares with the daemon: its configuration, and what its last look saw.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The shared state of a monitor with a configuration `C`, whose readings give an `S`.
pub(crate) struct MonitorState<C, S> {
    state: Mutex<State<C, S>>,
    /// Wakes the thread.
    changed: Condvar,
}

struct State<C, S> {
    config: C,
    is_changed: bool,
    is_stopped: bool,
    status: Option<S>,
}

impl<C: Default, S> Default for MonitorState<C, S> {
    fn default() -> Self {
        let (config, is_changed, is_stopped, status) = (C::default(), false, false, None);
        let state = Mutex::new(State { config, is_changed, is_stopped, status });
        Self { state, changed: Condvar::new() }
    }
}

impl<C: Clone + PartialEq, S: Clone> MonitorState<C, S> {
    /// Sets the configuration. If it changed, the next reading is made at once.
    pub(crate) fn configure(&self, config: C) {
        let mut state = self.state.lock();
        state.is_changed |= state.config != config;
        state.config = config;
        self.changed.notify_all();
    }

    /// The configuration.
    pub(crate) fn config(&self) -> C {
        self.state.lock().config.clone()
    }

    /// Has the thread end before its next look.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Whether the thread is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Sets the result of the last reading.
    pub(crate) fn set_status(&self, status: Option<S>) {
        self.state.lock().status = status;
    }

    /// The result of the last reading.
    pub(crate) fn status(&self) -> Option<S> {
        self.state.lock().status.clone()
    }

    /// Waits until the next look is due; `interval`: the seconds between two. Returns its configuration, or
    /// nothing when the daemon ends.
    pub(crate) fn next_look(&self, interval: impl Fn(&C) -> u64) -> Option<C> {
        let mut state = self.state.lock();
        let due = Instant::now() + Duration::from_secs(interval(&state.config));
        while !state.is_changed && !state.is_stopped {
            if self.changed.wait_until(&mut state, due).timed_out() {
                break;
            }
        }
        state.is_changed = false;
        (!state.is_stopped).then(|| state.config.clone())
    }
}
