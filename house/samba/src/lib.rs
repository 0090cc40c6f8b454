//! Samba's smbd over mounted file systems: configured, started, watched and stopped.
//!
//! ```text
//! folder            files of one smbd, closed to other users; nothing in /etc/samba is read or written
//!  ├ smb.conf         written by `conf`, never by hand
//!  ├ users.map        Poolhouse users that have another name than their system user
//!  ├ private/         passdb.tdb: the users' password hashes (pdbedit)
//!  ├ state/           Samba's other databases
//!  └ log.smbd         smbd's log
//! run folder        locks, sockets and process ids, through which the users of clients may pass
//! ```
//!
//! A thread of [`Server`] waits for smbd. If smbd ends by itself, the thread starts it again, each time after a longer
//! pause. smbd runs as root and becomes the user of each client, or runs as an ordinary user and serves that user
//! alone.
#![forbid(unsafe_code)]

mod conf;
mod error;
mod folder;
mod programs;
mod server;
mod status;
mod users;
mod version;

pub use conf::{Conf, Listen, Share, TimeMachine};
pub use error::{Error, Result};
pub use folder::Folder;
pub use programs::Programs;
pub use server::{LogLine, Server, end_strays, own_user};
pub use status::{Connection, OpenFile, Status};
pub use users::{User, UserName, Users};
pub use version::Version;
