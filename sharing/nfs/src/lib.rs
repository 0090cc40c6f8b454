//! File systems for the network: an NFS server (v3, v4.0 to v4.2) without the kernel's.
//!
//! ```text
//! server          listeners, the table of exports, the table of connections; start, reload, stop, status
//!  ├ udp          datagrams of the helpers of NFSv3
//!  └ connection   one client: threads that take turns at reading requests
//!    └ dispatch   the record of a call to the record of its answer
//!      ├ v3       the procedures of NFSv3 and MOUNT; the cache of answers to repeated requests
//!      ├ v4       COMPOUND, its operations, and the state of clients: sessions, opens, locks, delegations
//!      ├ nlm      locks for NFSv3, notices of restarts
//!      ├ portmapper  the ports of all these
//!      ├ request  what all versions do with files: handles, names, attributes, content
//!      │ └ export    which file system a path or a handle is in, and what its client may do
//!      └ wire     bytes to messages and back
//! ```
//!
//! A connection has a few threads that take turns: one of them reads a request from the socket, lets the next one
//! read, carries out its request and sends the answer. So requests of one connection run in parallel, no queue grows,
//! and a client that sends faster than the pool writes is slowed down by TCP. Requests and answers in memory are
//! bounded for the whole server ([`ServerOptions::max_buffered_bytes`]), and the state of each client is bounded as
//! well.
//!
//! A write that requests no stability is in memory when it is answered, and the answer says so.
//! COMMIT, stable writes and changes of names are in the intent log or on the drives when they are
//! answered. A dataset has one log, so one write of it commits the changes of many clients.
//!
//! While the pool is suspended, clients wait (failmode=wait) or get an I/O error (failmode=continue).
//!
//! The server is closed by default: it listens only on the addresses of its options, and an export admits only the
//! networks of its rules.
#![forbid(unsafe_code)]

mod attributes;
mod clock;
mod connection;
mod core;
mod dispatch;
mod error;
mod export;
mod failure;
mod hosts;
mod list_file;
mod log_wait;
mod name_pattern;
mod names;
mod nlm;
mod node;
mod open_cache;
mod options;
mod passages;
mod portmapper;
mod request;
mod rpc_client;
mod server;
mod service;
mod socket;
mod status;
mod udp;
mod v3;
mod v4;
pub mod wire;

pub use error::{Error, Result};
pub use export::{ClientRule, Export, Squash};
pub use hosts::Clients;
pub use options::{Portmapper, Secret, ServerOptions};
pub use server::Server;
pub use status::{
    ClientStatus, ConnectionStatus, Counters, ExportStatus, LockClientStatus, LogWaitStatus,
    PortmapperStatus, ServerStatus,
};
