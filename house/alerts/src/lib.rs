//! Alerts: problems told once and again when they get worse, by mail, webhook and ntfy.
//!
//! ```text
//! conditions   what is wrong now, computed from the state of pools and drives
//!     |  compared with the book: new, worse, over
//! book         alerts.json: open alerts, and messages that are not delivered yet
//!     |  each message to each channel, tried again until it is delivered
//! channel      webhook (JSON by POST), ntfy (text by POST), mail (the sendmail command)
//! ```
//!
//! Conditions are states, not events: a pool that was degraded before the daemon started is told as well, and
//! a restart tells nothing twice.
#![forbid(unsafe_code)]

mod book;
mod channel;
mod config;
mod http;
mod mail;

pub use book::{Alert, AlertBook, AlertState, Condition, Message, Severity};
pub use channel::{Channel, DeliveryError};
pub use config::AlertsConfig;
