//! Notifies the owner of problems once, and again when they get worse: mail, webhook, ntfy.
//!
//! ```text
//! conditions   present problems, computed from the state of pools and drives
//!     |  compared with the store: new, worse, over
//! store        alerts.json: open alerts, and messages that are not delivered yet
//!     |  each message to each channel, tried again until it is delivered
//! channel      webhook (JSON by POST), ntfy (text by POST), mail (the sendmail command)
//! ```
//!
//! Conditions are states, not events: a pool that was degraded before the daemon started raises an alert, and
//! a restart repeats none.
#![forbid(unsafe_code)]

mod channel;
mod config;
mod http;
mod mail;
mod store;

pub use channel::{Channel, DeliveryError};
pub use config::AlertsConfig;
pub use http::ping;
pub use store::{Alert, AlertState, AlertStore, Condition, Message, Severity};
