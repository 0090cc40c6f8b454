//! Pools mounted, and looked at through the kernel.

mod back;
mod control;
mod flags;
mod live;
mod mounted;
mod names;
mod place;
mod seen;
mod standstill;
mod volumes;
