//! The store of alerts: which problems are open, and which messages are still to be delivered.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The time in seconds that a condition must be gone before its alert ends: a flapping device is one alert.
const END_DELAY: u64 = 5 * 60;
/// The alerts that ended and are kept.
const MAX_ENDED: usize = 100;
/// The messages that wait for delivery, at most; the oldest goes first.
const MAX_PENDING: usize = 200;
/// The pauses in seconds before the next try to deliver a message; the last one repeats.
const RETRY_PAUSES: [u64; 5] = [10, 60, 300, 1800, 3600];
/// The age in seconds at which an undeliverable message is dropped.
const MAX_MESSAGE_AGE: u64 = 3 * 24 * 60 * 60;

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Notice,
    /// Needs attention; no data is in danger yet.
    Warning,
    /// Data is in danger or cannot be reached.
    Critical,
}

impl Severity {
    /// The word in tables and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The name by which it is recognised at the next look: `pool/tank/state`.
    pub key: String,
    /// How urgent it is.
    pub severity: Severity,
    /// A number that grows when it gets worse: errors, steps of used space.
    pub level: u64,
    /// The fact, for the subject of a mail.
    pub title: String,
    /// The consequence for the data, as a sentence.
    pub sentence: String,
    /// The next step.
    pub action: String,
}

/// Whether an alert's condition still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertState {
    /// The condition holds.
    Open,
    /// The condition is over.
    Ended,
}

/// A condition of which the owner was notified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// The name of the condition.
    pub key: String,
    /// How urgent it is.
    pub severity: Severity,
    /// The number that grows when it gets worse.
    pub level: u64,
    /// The fact.
    pub title: String,
    /// The consequence for the data, as a sentence.
    pub sentence: String,
    /// The next step.
    pub action: String,
    /// Whether it still holds.
    pub state: AlertState,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// When the owner was notified last, in seconds since 1970.
    pub notified: u64,
    /// When its condition was gone first, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<u64>,
    /// Whether the owner acknowledged it as it is. An alert that gets worse is not acknowledged any more.
    #[serde(default)]
    pub is_acknowledged: bool,
}

/// A message for all channels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The name of the condition.
    pub key: String,
    /// How urgent it is.
    pub severity: Severity,
    /// The fact.
    pub title: String,
    /// The consequence and the next step.
    pub text: String,
    /// When it was written, in seconds since 1970.
    pub time: u64,
}

/// A message that one channel has not delivered yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) channel: String,
    pub(crate) message: Message,
    /// The failed tries.
    pub(crate) tries: usize,
    /// When it is tried again, in seconds since 1970.
    pub(crate) due: u64,
    /// Why the last try failed.
    pub(crate) why: Option<String>,
}

/// The store of alerts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertStore {
    open: BTreeMap<String, Alert>,
    /// The latest ones last.
    ended: Vec<Alert>,
    pending: Vec<Pending>,
    /// When the owner heard last that all is well, in seconds since 1970.
    #[serde(default)]
    all_well: Option<u64>,
}

impl AlertStore {
    /// Compares the present conditions with the store. Returns the messages for new, worse and
    /// ended conditions. `is_known` tells whether the condition of a key could be checked; if not,
    /// its alert stays.
    pub fn update(
        &mut self,
        conditions: Vec<Condition>,
        is_known: impl Fn(&str) -> bool,
        now: u64,
    ) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut holding = std::collections::BTreeSet::new();
        for condition in conditions {
            holding.insert(condition.key.clone());
            messages.extend(self.update_one(condition, now));
        }
        for alert in self.open.values_mut().filter(|alert| !holding.contains(&alert.key)) {
            if is_known(&alert.key) {
                alert.gone.get_or_insert(now);
            }
        }
        let is_over = |_: &String, alert: &mut Alert| {
            alert.gone.is_some_and(|gone| now.checked_sub(gone).is_some_and(|it| it >= END_DELAY))
        };
        let over: Vec<_> = self.open.extract_if(.., is_over).map(|(_, alert)| alert).collect();
        for alert in over {
            messages.push(Message {
                key: alert.key.clone(),
                severity: Severity::Notice,
                title: format!("Over: {}", alert.title),
                text: "The condition no longer holds.".to_owned(),
                time: now,
            });
            self.ended.push(Alert { state: AlertState::Ended, ..alert });
        }
        let count = self.ended.len();
        self.ended.drain(..count - count.min(MAX_ENDED));
        messages
    }

    fn update_one(&mut self, condition: Condition, now: u64) -> Option<Message> {
        let Condition { key, severity, level, title, sentence, action } = condition;
        let known = self.open.get_mut(&key);
        let is_worse = known.as_ref().is_none_or(|known| {
            severity > known.severity || (severity == known.severity && level > known.level)
        });
        let text = format!("{sentence} {action}").trim().to_owned();
        let message = Message { key: key.clone(), severity, title: title.clone(), text, time: now };
        if let Some(known) = known {
            // a condition that gets better keeps its worst level, so that its return sends no message
            known.gone = None;
            (known.title, known.sentence, known.action) = (title, sentence, action);
            if is_worse {
                (known.severity, known.level, known.notified) = (severity, level, now);
                known.is_acknowledged = false;
            }
        } else {
            let (state, began, notified, gone) = (AlertState::Open, now, now, None);
            let alert = Alert {
                key: key.clone(),
                severity,
                level,
                title,
                sentence,
                action,
                state,
                began,
                notified,
                gone,
                is_acknowledged: false,
            };
            self.open.insert(key, alert);
        }
        is_worse.then_some(message)
    }

    /// Acknowledges an open alert as it is now. Returns whether there is one of that key.
    pub fn acknowledge(&mut self, key: &str) -> bool {
        let found = self.open.get_mut(key);
        found.map(|alert| alert.is_acknowledged = true).is_some()
    }

    /// Whether the owner acknowledged the alert of a key.
    pub fn is_acknowledged(&self, key: &str) -> bool {
        self.open.get(key).is_some_and(|alert| alert.is_acknowledged)
    }

    /// The open alerts, the most urgent first, then those that ended, the latest first.
    pub fn alerts(&self) -> Vec<Alert> {
        let mut open: Vec<_> = self.open.values().cloned().collect();
        open.sort_by_key(|alert| (std::cmp::Reverse(alert.severity), alert.began));
        open.into_iter().chain(self.ended.iter().rev().cloned()).collect()
    }

    /// The message that all is well, if it is due and nothing is wrong. `interval`: the time between two; none: no message.
    /// While an alert is open it waits: the owner knows of the alert.
    pub fn all_well(
        &mut self,
        interval: Option<Duration>,
        sentence: &str,
        now: u64,
    ) -> Option<Message> {
        let interval = interval?;
        let last = *self.all_well.get_or_insert(now);
        let age = now.checked_sub(last);
        // the clock was set back
        let is_due = age.is_none_or(|age| age >= interval.as_secs());
        if !is_due || !self.open.is_empty() {
            return None;
        }
        self.all_well = Some(now);
        Some(Message {
            key: "all-well".to_owned(),
            severity: Severity::Notice,
            title: "All is well".to_owned(),
            text: sentence.to_owned(),
            time: now,
        })
    }

    /// Queues a message for channels.
    pub fn queue(&mut self, message: &Message, channels: &[String]) {
        for channel in channels {
            self.pending.push(Pending {
                channel: channel.clone(),
                message: message.clone(),
                tries: 0,
                due: message.time,
                why: None,
            });
        }
        let count = self.pending.len();
        self.pending.drain(..count - count.min(MAX_PENDING));
    }

    /// Takes the next message that is due: its channel and the message. The caller reports the result with
    /// [`Self::delivered`] or [`Self::failed`].
    pub fn next_due(&self, now: u64) -> Option<(String, Message)> {
        let due = self.pending.iter().find(|pending| pending.due <= now)?;
        Some((due.channel.clone(), due.message.clone()))
    }

    /// Removes a message that a channel delivered.
    pub fn delivered(&mut self, channel: &str, message: &Message) {
        self.pending.retain(|it| it.channel != channel || it.message != *message);
    }

    /// Plans the next try of a message that a channel could not deliver. Returns whether it is
    /// dropped.
    pub fn failed(&mut self, channel: &str, message: &Message, why: &str, now: u64) -> bool {
        let found =
            self.pending.iter_mut().find(|it| it.channel == channel && it.message == *message);
        let Some(pending) = found else { return false };
        let is_too_old = |age| age >= MAX_MESSAGE_AGE;
        if now.checked_sub(message.time).is_some_and(is_too_old) {
            self.delivered(channel, message);
            return true;
        }
        let last = RETRY_PAUSES.len() - 1;
        let pause = RETRY_PAUSES.get(pending.tries.min(last)).copied().unwrap_or(0);
        pending.tries += 1;
        pending.due = now + pause;
        pending.why = Some(why.to_owned());
        false
    }

    /// A sentence for each channel that could not deliver a message so far.
    pub fn undelivered(&self) -> Vec<String> {
        let mut channels: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for pending in &self.pending {
            if let Some(why) = &pending.why {
                let entry = channels.entry(&pending.channel).or_default();
                *entry = (entry.0 + 1, why);
            }
        }
        let sentence = |(channel, (count, why)): (&str, (usize, &str))| {
            let messages = if count == 1 { "message waits" } else { "messages wait" };
            format!("{count} {messages} for {channel}: {why}")
        };
        channels.into_iter().map(sentence).collect()
    }

    /// Drops messages for channels that are no longer configured.
    pub fn keep_channels(&mut self, channels: &[String]) {
        self.pending.retain(|pending| channels.contains(&pending.channel));
    }
}
