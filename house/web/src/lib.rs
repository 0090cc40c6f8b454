//! The dashboard: pages rendered on the server, sessions, and the checks of requests.
//!
//! ```text
//! request ── headers ── gate ── page or action
//!              │          ├ no user              404; only a setup link leads on
//!              │          ├ no session           /login
//!              │          ├ POST without token   403
//!              │          └ role too low         403
//!              └ Content-Security-Policy, no framing, no caching, on every answer
//!
//! GET  /                              all on one page       GET  /datasets, /datasets/{name}[/changes]
//! GET  /drives/{drive}                a drive               GET  /shares, /copies, /alerts, /users
//! GET  /repositories[/files]          backups               GET  /benchmarks[/report]
//! GET  /pools/{pool}                  a pool                GET  /new-pool, /account[/totp]
//! GET  /pools/{pool}/replace/{device} the guide             POST /account/..., /share-users
//! GET  /do/{action}                   asks back             POST /do/{action}
//! GET  /login, /setup/{token}                               POST /login, /setup/{token}, /logout
//! GET  /ca.crt                        the root certificate  GET  /assets/{name}
//! ```
//!
//! The overview, pools and drives come from memory, so that they wait for no drive. Other pages show an answer of
//! the API, or the last one after two seconds. Changes are calls of the API. The crate knows the daemon by the trait
//! [`Backend`] only.
#![forbid(unsafe_code)]

mod accounts;
mod actions;
mod answers;
mod backend;
mod dashboard;
mod forms;
mod pages;
mod password;
mod routes;
mod sessions;
mod setup;
mod throttle;
mod totp;

pub use backend::{ApiReply, ApiRequest, Backend, ClientAddress, IsEncrypted};
pub use dashboard::{Dashboard, SETUP_MINUTES};
