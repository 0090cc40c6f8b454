//! Pools mounted, and looked at through the kernel.

mod live;
mod mounted;
mod seen;
mod standstill;
