//! The dashboard: pages rendered on the server, sessions, and the checks of requests.
//!
//! ```text
//! request ── headers ── gate ── page or form
//!              │          ├ no password set      404; only a setup link leads on
//!              │          ├ no session           /login
//!              │          └ POST without token   403
//!              └ Content-Security-Policy, no framing, no caching, on every answer
//!
//! GET  /                          all on one page              GET  /live   the same without the frame
//! GET  /drives/{drive}            a drive                      POST /drives/{drive}/note
//! GET  /pools/{pool}/scrub        asks back                    POST /pools/{pool}/scrub
//! GET  /login                     asks for the password        POST /login, /logout
//! GET  /setup/{token}             sets the password, once      POST /setup/{token}
//! GET  /assets/{name}             style sheet and script
//! ```
//!
//! Pages show the daemon's latest overview from memory, so that none waits for a drive. The crate knows the
//! daemon by the trait [`Backend`] only.
#![forbid(unsafe_code)]

mod backend;
mod dashboard;
mod forms;
mod pages;
mod password;
mod routes;
mod sessions;
mod setup;
mod throttle;

pub use backend::{Backend, ClientAddress};
pub use dashboard::{Dashboard, SETUP_MINUTES};
