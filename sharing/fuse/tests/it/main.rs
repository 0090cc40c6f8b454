//! Pools mounted, and looked at through the kernel.

mod back;
mod flags;
mod live;
mod many;
mod mounted;
mod names;
mod place;
mod seen;
mod standstill;
mod volumes;
