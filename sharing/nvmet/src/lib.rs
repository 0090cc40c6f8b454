//! Volumes as NVMe namespaces over TCP: an NVMe over Fabrics target over logical units.
//!
//! ```text
//! server        listeners, subsystems, controllers, connections; start, reload, stop, status
//!  └ connection   one queue: threads that read PDUs and carry out commands
//!    ├ transfer     the data of commands that come in PDUs of their own
//!    ├ fused        pairs of Compare and Write
//!    ├ sender       completions and data to PDUs
//!    ├ fabrics      Connect, properties, Disconnect
//!    ├ auth         DH-HMAC-CHAP, without a socket
//!    ├ admin        Identify, log pages, features, events, discovery
//!    ├ io           commands on a namespace, reservations
//!    └ wire         bytes to PDUs and commands, and back
//! subsystem     namespaces under a name, with the hosts that may use them
//! controller    what one host has of one subsystem: properties, features, events, keep-alive
//! ```
//!
//! A connection is one queue. The first queue of a host is the admin queue, which makes a controller; the controller
//! ends with it. An I/O queue has a few threads that take turns at reading, so that commands run in parallel.
//!
//! Namespaces report a volatile write cache. A write is in it until Flush, FUA, or the end of the cache by Set Features
//! commits it to the intent log.
//!
//! While the pool is suspended, commands wait (failmode=wait) or fail with Namespace Not Ready (failmode=continue).
//! Hosts learn of a new size, a rollback, and other namespaces of a subsystem by asynchronous events.
#![forbid(unsafe_code)]

mod admin;
mod auth;
mod buffers;
mod client;
mod connection;
mod controller;
mod error;
mod fabrics;
mod fused;
mod io;
mod memory_reads;
mod namespace;
mod options;
mod sender;
mod server;
mod status;
mod subsystem;
mod transfer;
pub mod wire;

pub use auth::{DhChap, HostSecrets, Secret};
pub use error::{Error, Result};
pub use namespace::NamespaceId;
pub use options::ServerOptions;
pub use server::{FailedLogin, FailedLoginCallback, Server};
pub use status::{ControllerStatus, Counters, ServerStatus};
pub use subsystem::Subsystem;
