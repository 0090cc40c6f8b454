//! The program that owns pools: services, jobs, events and configuration behind one HTTP API.
//!
//! [`serve`] is the daemon. It imports its earlier pools again, and serves the calls of crate `api`
//! on a Unix socket. [`Client`] makes these calls, and starts a daemon if none runs. A daemon has a
//! [`StateDir`]; several can run side by side, each in its own.
//!
//! ```text
//! client ── socket ── http ── router ── auth ── services ── pools ── engine
//!                                                  └ events, jobs, config
//! drives, ups, fans ── overview ── conditions ── alert_notifier
//!                         ├ dashboard (crate `web`)
//!                         └ metrics (Prometheus)
//! ```
#![forbid(unsafe_code)]

mod acme_store;
mod alert_notifier;
mod auth;
mod cancel;
mod client;
mod conditions;
mod config;
mod context;
mod dashboard_backend;
mod dataset_cache;
mod descriptor;
mod drives;
mod environment;
mod error;
mod event_file;
mod events;
mod fans;
mod hours;
mod http;
mod jobs;
mod log;
mod memory;
mod metrics;
mod monitor;
mod openapi;
mod overview;
mod parameters;
mod policy;
mod pool_cache;
mod pools;
mod replica;
mod repositories;
mod reservation_files;
mod router;
mod secret_file;
mod server;
mod services;
mod shares;
mod state_dir;
mod state_file;
mod time_machine;
mod ups;
mod volume_devices;
mod web_tls;

pub use client::Client;
pub use config::{ConfigProblem, check_config};
pub use descriptor::OfferedDescriptor;
pub use error::{Error, Result};
pub use fans::{set_fans_full, watch as watch_fans};
pub use server::{Mode, serve};
pub use state_dir::StateDir;
