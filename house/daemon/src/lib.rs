//! The program that owns pools: runs jobs, keeps configuration, answers on a socket.
//!
//! [`serve`] is the daemon: it takes over again the pools that it had, each synced by a thread of
//! its own, and answers HTTP with JSON on a Unix socket. [`Client`] asks it things ([`Request`]), and
//! starts one if none runs. Where a daemon lives is a [`StateDir`]: several run side by side, each in
//! a place of its own.
//!
//! ```text
//! POST /v1/VERB   the fields of an `Request` as a JSON object
//!                 200 {"value": ..., "warnings": [...]}
//!                 4xx {"error": a sentence, "status": the exit status of the command}
//! GET  /v1/VERB   the same without fields, for those that only look: pools, datasets, hello
//! ```
#![forbid(unsafe_code)]

mod cancel;
mod client;
mod daemon;
mod descriptor;
mod environment;
mod error;
mod log;
mod pool_cache;
mod request;
mod response;
mod server;
mod state_dir;
mod stream_request;

pub use client::Client;
pub use descriptor::OfferedDescriptor;
pub use error::{Error, Result};
pub use request::{
    CreatePool, ImportPool, ListRequest, MountOverrides, Request, Secret, VdevLayout, VdevRole,
};
pub use response::{
    DaemonInfo, DestroyedDatasets, ImportResult, ImportablePool, Mounting, PoolReport,
    ReceivedStream, Response,
};
pub use server::{Mode, serve};
pub use state_dir::StateDir;
pub use stream_request::{ReceiveStream, SendStream};
