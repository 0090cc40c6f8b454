//! TCP connections of servers, bounded in time, memory and number.
//!
//! The servers of NFS, NBD and iSCSI share this: a [`Listener`] accepts connections, a [`ConnectionTable`] limits their
//! number and waits for their end, [`Incoming`] and [`send`] limit the time of each message, and a [`MemoryBudget`]
//! limits the data in memory. [`IdleConnections`] waits for the requests of silent clients.
#![forbid(unsafe_code)]

mod budget;
mod idle;
mod listener;
mod socket;
mod table;
mod transport;

pub use budget::{ConnectionShare, MemoryBudget, Reserved};
pub use idle::IdleConnections;
pub use listener::{Listener, ListenerError};
pub use socket::{
    Awaited, Incoming, SEND_WAIT, allowance, configure, send, send_or_wait, wait_for_hangup,
};
pub use table::{ConnectionTable, Membership};
pub use transport::Transport;
