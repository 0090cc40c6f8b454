//! Pools mounted, and looked at through the kernel.

mod mounted;
mod seen;
