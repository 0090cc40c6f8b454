//! Pools mounted, and looked at through the kernel.

mod back;
mod client;
mod control;
mod flags;
mod live;
mod many;
mod mapped;
mod mapping;
mod mounted;
mod names;
mod place;
mod seen;
mod standstill;
mod syncing;
mod volumes;
