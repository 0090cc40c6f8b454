//! NFSv4.0, NFSv4.1 and NFSv4.2.
//!
//! ```text
//! compound    the operations of a request, one after the other, and its slot
//! v40         what NFSv4.0 has in place of sessions
//! sessions    clients, sessions, the end of reclaiming
//! names       current and saved file, lookup, create, remove, rename, link, listings
//! opens       OPEN, CLOSE, byte-range locks
//! delegations the delegations that OPEN gives, and their return
//! files       attributes, access, content
//! ranges      SEEK, ALLOCATE, DEALLOCATE, COPY, CLONE
//! xattrs      extended attributes
//! attributes  from files to attributes of the protocol and back
//! state       the state of all clients
//! ```

mod attributes;
mod compound;
mod delegations;
mod files;
mod names;
mod opens;
mod ranges;
mod sessions;
mod state;
mod v40;
mod xattrs;

pub(crate) use compound::execute;
pub(crate) use state::StateTable;
pub(crate) use v40::is_non_idempotent;
